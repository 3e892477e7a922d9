//! Every attempt on this node: taken, queued, started, ended, and told to the coordinator.
//!
//! One lock guards the table of attempts. It is held for moments only: nothing is awaited, no file is read and no
//! process is started under it.

mod listen;
mod start;
mod table;
mod tell;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use weft_core::{
    agents::Agents,
    args::Args,
    event::News,
    ids::{AgentId, NodeId, SkillKey},
    limits,
    outcome::{Final, Outcome},
    policy::{Decision, Evidence, decide},
    schema::Schema,
    skill::{Diagnostic, Kind},
};
use weft_daemon::TaskGroup;
use weft_exec::{Executor, StopReason};
use weft_proto::{
    convert::{self, Malformed},
    link,
};
use weft_skills::{Copy, ExactCopies, Host, Inventory, Watcher};
use weft_telemetry::Metrics;

use self::table::Table;
use crate::{
    attempt::{Attempt, Key, Order, Phase},
    config::Config,
    spans::Spans,
    spool::Spool,
};

/// How long an attempt of a skill that is not safe is remembered after its end, so that a second dispatch of it is
/// answered instead of run.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Supervisor(Arc<Shared>);

struct Shared {
    id: NodeId,
    config: Config,
    /// Which skills each agent may use here, as the operator says now.
    agents: ArcSwap<Agents>,
    complaint: watch::Sender<Option<Diagnostic>>,
    host: Host,
    executor: Executor,
    watcher: Watcher,
    inventory: watch::Receiver<Arc<Inventory>>,
    exact: ExactCopies,
    spool: Spool,
    tasks: TaskGroup,
    metrics: Metrics,
    table: Mutex<Table>,
    /// There may be something to send.
    news: Notify,
    /// There may be something to send that can wait a moment for company.
    news_for_later: Notify,
    /// An attempt ended.
    ended: Notify,
}

/// Everything that a supervisor stands on.
pub(crate) struct Ground {
    pub(crate) id: NodeId,
    pub(crate) config: Config,
    pub(crate) host: Host,
    pub(crate) executor: Executor,
    pub(crate) watcher: Watcher,
    pub(crate) inventory: watch::Receiver<Arc<Inventory>>,
    pub(crate) exact: ExactCopies,
    pub(crate) spool: Spool,
    pub(crate) tasks: TaskGroup,
}

impl Supervisor {
    pub(crate) fn new(ground: Ground) -> Self {
        let Ground { id, config, host, executor, watcher, inventory, exact, spool, tasks } = ground;
        Self(Arc::new(Shared {
            id,
            agents: ArcSwap::from_pointee(config.agents.clone()),
            complaint: watch::Sender::new(None),
            config,
            host,
            executor,
            watcher,
            inventory,
            exact,
            spool,
            tasks,
            metrics: Metrics::of("weft-node"),
            table: Mutex::default(),
            news: Notify::new(),
            news_for_later: Notify::new(),
            ended: Notify::new(),
        }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that holds this lock can panic half-way through a change.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts other settings of skills and agents into effect.
    pub(crate) fn configure(&self, config: &Config) {
        self.0.agents.store(Arc::new(config.agents.clone()));
        self.0.watcher.reconfigure(config.skills(), config.watch);
    }

    /// Which skills each agent may use here, as the operator says now.
    pub(crate) fn agents(&self) -> Arc<Agents> {
        self.0.agents.load_full()
    }

    /// Reads the skills again now.
    pub(crate) fn rescan(&self) {
        self.0.watcher.rescan_now();
    }

    /// Replaces what is wrong with the node itself.
    pub(crate) fn complain(&self, complaint: Option<Diagnostic>) {
        self.0.complaint.send_if_modified(|old| {
            let changed = *old != complaint;
            *old = complaint;
            changed
        });
    }

    /// What is wrong with the node itself.
    pub(crate) fn complaint(&self) -> watch::Receiver<Option<Diagnostic>> {
        self.0.complaint.subscribe()
    }

    /// Takes a dispatch that came in the session with this epoch: accepts it, or says why it never starts.
    ///
    /// # Errors
    /// When the message breaks the protocol.
    pub(crate) fn dispatch(&self, dispatch: link::Dispatch, epoch: u64) -> Result<(), Malformed> {
        if dispatch.session_epoch != epoch {
            tracing::warn!(weft.invocation.id = %dispatch.invocation_id, "dispatch of another session ignored");
            return Ok(());
        }
        let mut order = read_dispatch(&dispatch)?;
        if self.is_known(&order) {
            return Ok(());
        }
        let spans = Spans::start(&order, self.0.id.as_str());
        order.trace = spans.context().cloned();
        let order = Arc::new(order);
        let checked = self.check(&order, &dispatch);
        // Nobody else puts attempts in: dispatches come one after the other.
        let mut table = self.table();
        let room = self.0.executor.slots() + self.0.config.queue;
        let refusal = match &checked {
            Err(reason) => Some(reason.clone()),
            Ok(_) if table.draining => Some("the node is draining".into()),
            Ok(_) if table.running + table.waiting.len() >= room => Some(format!(
                "{} invocations run and {} wait on this node already",
                table.running,
                table.waiting.len()
            )),
            Ok(_) => None,
        };
        let queued_before = u32::try_from(table.waiting.len()).unwrap_or(u32::MAX);
        let key = order.key;
        let active = self.0.metrics.invocation_active(&order.skill, order.class);
        let mut attempt = Attempt::new(order, checked.ok());
        (attempt.spans, attempt.active) = (Some(spans), Some(active));
        if refusal.is_none() {
            attempt.tell(News::Accepted { queued_before });
            table.waiting.push_back(key);
        }
        table.attempts.insert(key, attempt);
        match refusal {
            Some(reason) => {
                tracing::debug!(weft.invocation.id = %key.0, %reason, "not started");
                table.finish(&self.0.metrics, key, vec![], Final::without_run(Outcome::NotStarted, reason));
                self.0.news.notify_one();
            }
            None => {
                table.join_line(key);
                self.0.news_for_later.notify_one();
            }
        }
        drop(table);
        self.start_waiting();
        Ok(())
    }

    /// Whether a dispatch was taken before. Its news answer: they are on their way, or were recorded.
    fn is_known(&self, order: &Order) -> bool {
        let table = self.table();
        let known = table.attempts.get(&order.key).map(|attempt| attempt.order.content());
        let Some(known) = known.or_else(|| table.remembered.get(&order.key).map(|over| over.content)) else {
            return false;
        };
        if known != order.content() {
            tracing::error!(
                weft.invocation.id = %order.key.0, weft.attempt = order.key.1,
                "a second dispatch under the same id asks for something else; ignored"
            );
        }
        true
    }

    /// Everything that a dispatch can be refused for without starting it. The coordinator checked the same; the
    /// node does not take its word for it.
    fn check(&self, order: &Order, dispatch: &link::Dispatch) -> Result<Arc<Copy>, String> {
        let agents = self.0.agents.load();
        if let Some(agent) = order.agent.as_ref()
            && !agents.sees(Some(agent), &order.skill)
        {
            return Err(format!("the operator of this node does not let agent {agent} use {}", order.skill));
        }
        if dispatch.sandboxed || agents.sandboxed(order.agent.as_ref()) {
            return Err("the agent runs in a sandbox only, and this node offers none".into());
        }
        let inventory = self.0.inventory.borrow().clone();
        let mut winners = inventory.winners(order.agent.as_ref(), &order.skill).peekable();
        let first = winners
            .peek()
            .map(|copy| copy.digest)
            .ok_or_else(|| format!("changed: this node does not have {} any more", order.skill))?;
        // The agent's own copy counts only where the coordinator admits it.
        let copy = winners
            .find(|copy| copy.digest == order.digest)
            .ok_or_else(|| format!("changed: the files on this node have digest {first}"))?;
        let definition = &copy.definition;
        if definition.kind == Kind::Instructions {
            return Err(format!("{} is instructions only on this node", order.skill));
        }
        if let Some(verdict) = copy.verdicts.iter().find(|verdict| !verdict.passed) {
            return Err(format!("ineligible on this node: {}", verdict.sentence()));
        }
        let class = definition.class.max(order.class);
        if class > self.0.config.max_class {
            return Err(format!(
                "the operator of this node runs nothing above {}, and {} is {class}",
                self.0.config.max_class, order.skill
            ));
        }
        let (mode, evidence) = convert::authorisation_from_wire(dispatch.authorisation.clone());
        if decide(class, mode, evidence) != Decision::Allow {
            return Err(format!("{} is {class}, and nothing in the dispatch allows that", order.skill));
        }
        // What this operator says of an agent holds beside what the coordinator lets run without people.
        let people = Evidence { operator_allows: None, ..evidence };
        if let Some(own) = agents.stated_mode(order.agent.as_ref())
            && decide(class, own, people) != Decision::Allow
        {
            return Err(format!(
                "{} is {class}, and the operator of this node keeps the agent to {}",
                order.skill,
                own.as_str()
            ));
        }
        let args = Args::parse(order.args.clone()).map_err(|error| error.to_string())?;
        let schema = self.schema(&definition.schema)?;
        args.validate(&schema).map_err(|violations| {
            let first = violations.first().map(|v| format!("{}: {}", v.pointer, v.message));
            format!("the args do not fit the schema on this node: {}", first.unwrap_or_default())
        })?;
        if order.start_by <= Instant::now() {
            return Err("expired before it arrived".into());
        }
        Ok(copy.clone())
    }

    fn schema(&self, text: &str) -> Result<Arc<Schema>, String> {
        if let Some(schema) = self.table().schemas.get(text) {
            return Ok(schema.clone());
        }
        let schema = Arc::new(Schema::compile(text).map_err(|error| error.to_string())?);
        let mut table = self.table();
        // Skills change rarely; when many did, start again rather than keep what nobody uses.
        if table.schemas.len() >= 2 * limits::SKILLS_PER_NODE {
            table.schemas.clear();
        }
        table.schemas.insert(text.to_owned(), schema.clone());
        Ok(schema)
    }

    /// Ends an attempt. Returns whether it was here to end.
    pub(crate) fn cancel(&self, key: Key, reason: StopReason) -> bool {
        let mut table = self.table();
        let Some(attempt) = table.attempts.get_mut(&key) else { return false };
        match &mut attempt.phase {
            // What it has to tell is on its way, and says more than this could.
            Phase::Finished => {}
            Phase::Running { stopper } => stopper.stop(reason),
            Phase::Starting { cancelled } => *cancelled = true,
            Phase::Waiting => {
                let last = match reason {
                    // Another node may have it.
                    StopReason::Draining | StopReason::Closed => {
                        Final::without_run(Outcome::NotStarted, "the node is shutting down")
                    }
                    StopReason::Cancelled | StopReason::OutputTooLarge => {
                        Final::without_run(Outcome::Cancelled, "cancelled; never started")
                    }
                };
                table.waiting.retain(|waiting| *waiting != key);
                table.finish(&self.0.metrics, key, vec![], last);
                drop(table);
                self.0.news.notify_one();
                self.0.ended.notify_waiters();
            }
        }
        true
    }
}

fn read_dispatch(dispatch: &link::Dispatch) -> Result<Order, Malformed> {
    let wait = convert::duration_from_wire("queue_wait", dispatch.queue_wait.unwrap_or_default())?;
    let expires =
        convert::timestamp_from_wire("expire_time", convert::required("expire_time", dispatch.expire_time)?)?;
    // The stricter of the two: clocks differ, and a dispatch may have been under way for long.
    let remaining = Duration::try_from(expires.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
    let budget = convert::duration_from_wire("budget", convert::required("budget", dispatch.budget)?)?;
    Ok(Order {
        key: (convert::parse("invocation_id", &dispatch.invocation_id)?, dispatch.attempt),
        skill: SkillKey::normalise(&dispatch.skill).map_err(|error| Malformed::new("skill", error))?,
        digest: convert::dispatch_digest(dispatch)?,
        pinned: dispatch.pinned,
        agent: convert::parse_optional::<AgentId>("agent", &dispatch.agent)?,
        args: dispatch.args.clone(),
        class: convert::class(dispatch.class),
        budget: budget.min(limits::MAX_OPERATOR_TIMEOUT),
        start_by: Instant::now() + wait.min(remaining).min(limits::MAX_OPERATOR_TIMEOUT),
        trace: convert::trace_from_wire(dispatch.trace.as_ref()),
    })
}

impl Supervisor {
    /// Takes nothing new from now on.
    pub(crate) fn refuse_new(&self) {
        self.table().draining = true;
    }

    /// Ends everything that has not ended.
    pub(crate) fn stop_all(&self) {
        let keys: Vec<Key> = self.table().attempts.keys().copied().collect();
        for key in keys {
            self.cancel(key, StopReason::Draining);
        }
    }

    /// Resolves when every attempt has ended.
    pub(crate) async fn idle(&self) {
        self.until(|table| table.attempts.values().all(Attempt::is_finished)).await;
    }

    /// Resolves when every attempt has ended and the coordinator has recorded it.
    pub(crate) async fn told(&self) {
        self.until(|table| table.attempts.values().all(|attempt| attempt.is_finished() && attempt.is_told()))
            .await;
    }

    /// How much news is not recorded yet.
    pub(crate) fn untold(&self) -> usize {
        self.table().attempts.values().map(Attempt::untold).sum()
    }

    async fn until(&self, condition: impl Fn(&Table) -> bool) {
        loop {
            let ended = self.0.ended.notified();
            tokio::pin!(ended);
            // Registered before the look, so that no end between the two is missed.
            ended.as_mut().enable();
            if condition(&self.table()) {
                return;
            }
            ended.await;
        }
    }

    /// Ends every process and every thread of the executor. Blocks.
    pub(crate) fn close(&self) {
        self.0.executor.close();
    }

    /// What time alone brings about: attempts that waited too long, and memories that are old enough.
    pub(crate) fn sweep(&self) {
        let orphans = self.0.executor.reap_orphans();
        if orphans.killed > 0 {
            tracing::warn!(killed = orphans.killed, "ended processes that an invocation had left behind");
        }
        let now = Instant::now();
        let mut table = self.table();
        let late = |table: &Table, key: &Key| {
            table.attempts.get(key).is_none_or(|attempt| attempt.order.start_by <= now)
        };
        let expired: Vec<Key> = table.waiting.iter().filter(|key| late(&table, key)).copied().collect();
        for key in &expired {
            table.waiting.retain(|waiting| waiting != key);
            let last = Final::without_run(Outcome::NotStarted, "it waited too long for a slot");
            table.finish(&self.0.metrics, *key, vec![], last);
        }
        while table.remembered.first().is_some_and(|(_, over)| now.duration_since(over.ended) > REMEMBERED) {
            table.remembered.shift_remove_index(0);
        }
        drop(table);
        if self.0.spool.is_idle() {
            let spool = self.0.spool.clone();
            self.0.tasks.spawn(async move {
                let trimmed = tokio::task::spawn_blocking(move || spool.trim()).await;
                if let Ok(Err(error)) = trimmed {
                    tracing::warn!(%error, "cannot give back the room of the spool");
                }
            });
        }
        if !expired.is_empty() {
            self.0.news.notify_one();
            self.0.ended.notify_waiters();
        }
    }
}
