//! Every attempt on this node: taken, queued, started, ended, and told to the coordinator.
//!
//! One lock guards the table of attempts. It is held for moments only: nothing is awaited, no file is read and no
//! process is started under it.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use indexmap::IndexMap;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use weft_core::{
    args::Args,
    event::{EventKind, News},
    ids::{AgentId, Digest, SkillKey},
    limits,
    outcome::{Final, Outcome},
    policy::{Decision, decide},
    schema::Schema,
    skill::{Class, Kind},
    trace::TraceContext,
};
use weft_daemon::TaskGroup;
use weft_exec::{Command, Executor, Observer, Report, Running, StopReason};
use weft_proto::{
    convert::{self, Malformed},
    link,
};
use weft_skills::{Copy, Host, Inventory, Watcher};

use crate::{
    attempt::{Attempt, Key, Order, Phase},
    conclude::{Conclusion, conclude},
    config::Config,
    environment::{self, Told},
};

/// How long an attempt of a skill that is not safe is remembered after its end, so that a second dispatch of it is
/// answered instead of run.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// Most attempts that are remembered after their end; the oldest is forgotten first.
const MAX_REMEMBERED: usize = 100_000;
/// Results larger than this are checked away from the event loop, in bytes.
const LARGE_RESULT: usize = 256 * 1024;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Supervisor(Arc<Shared>);

struct Shared {
    config: Config,
    host: Host,
    executor: Executor,
    watcher: Watcher,
    inventory: watch::Receiver<Arc<Inventory>>,
    tasks: TaskGroup,
    table: Mutex<Table>,
    /// There may be something to send.
    news: Notify,
    /// An attempt ended.
    ended: Notify,
}

#[derive(Default)]
struct Table {
    attempts: HashMap<Key, Attempt>,
    /// Attempts that are over and told: what each asked for, the oldest first. Of skills that are not safe only:
    /// running a safe one again does no harm.
    remembered: IndexMap<Key, Remembered>,
    /// Attempts that wait for a slot, the oldest first.
    waiting: VecDeque<Key>,
    /// Attempts that have something to send, in turn.
    line: VecDeque<Key>,
    running: usize,
    running_by_skill: HashMap<SkillKey, u32>,
    /// Schemas by their text, compiled once while a skill keeps it.
    schemas: HashMap<String, Arc<Schema>>,
    sent_bytes: u64,
    draining: bool,
}

/// An attempt that is over.
struct Remembered {
    content: Digest,
    ended: Instant,
}

/// Everything that a supervisor stands on.
pub(crate) struct Ground {
    pub(crate) config: Config,
    pub(crate) host: Host,
    pub(crate) executor: Executor,
    pub(crate) watcher: Watcher,
    pub(crate) inventory: watch::Receiver<Arc<Inventory>>,
    pub(crate) tasks: TaskGroup,
}

// === impl Supervisor: dispatches and cancels ===

impl Supervisor {
    pub(crate) fn new(ground: Ground) -> Self {
        let Ground { config, host, executor, watcher, inventory, tasks } = ground;
        Self(Arc::new(Shared {
            config,
            host,
            executor,
            watcher,
            inventory,
            tasks,
            table: Mutex::default(),
            news: Notify::new(),
            ended: Notify::new(),
        }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that holds this lock can panic half-way through a change.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
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
        let order = Arc::new(read_dispatch(&dispatch)?);
        let checked = self.check(&order, &dispatch);
        let mut table = self.table();
        let known = table.attempts.get(&order.key).map(|attempt| attempt.order.content());
        if let Some(known) = known.or_else(|| table.remembered.get(&order.key).map(|over| over.content)) {
            // Its news answer: they are on their way, or were recorded.
            if known != order.content() {
                tracing::error!(
                    weft.invocation.id = %order.key.0, weft.attempt = order.key.1,
                    "a second dispatch under the same id asks for something else; ignored"
                );
            }
            return Ok(());
        }
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
        let mut attempt = Attempt::new(order, checked.ok());
        match refusal {
            Some(reason) => {
                tracing::debug!(weft.invocation.id = %key.0, %reason, "not started");
                attempt.phase = Phase::Finished;
                let last = Final::without_run(Outcome::NotStarted, reason);
                attempt.tell(News::Event(EventKind::Finished(Box::new(last))));
            }
            None => {
                attempt.tell(News::Accepted { queued_before });
                table.waiting.push_back(key);
            }
        }
        table.attempts.insert(key, attempt);
        table.join_line(key);
        drop(table);
        self.0.news.notify_one();
        self.start_waiting();
        Ok(())
    }

    /// Everything that a dispatch can be refused for without starting it. The coordinator checked the same; the
    /// node does not take its word for it.
    fn check(&self, order: &Order, dispatch: &link::Dispatch) -> Result<Arc<Copy>, String> {
        let inventory = self.0.inventory.borrow().clone();
        let copy = inventory
            .winner(&order.skill)
            .ok_or_else(|| format!("changed: this node does not have {} any more", order.skill))?;
        let definition = &copy.definition;
        if definition.kind == Kind::Instructions {
            return Err(format!("{} is instructions only on this node", order.skill));
        }
        if copy.digest != order.digest {
            return Err(format!("changed: the files on this node have digest {}", copy.digest));
        }
        if let Some(verdict) = copy.verdicts.iter().find(|verdict| !verdict.passed) {
            return Err(format!("ineligible on this node: {}", verdict.reason));
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
            Phase::Finished => return false,
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
                table.finish(key, vec![], last);
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
        trace: dispatch
            .trace
            .as_ref()
            .and_then(|trace| TraceContext::parse(&trace.traceparent, &trace.tracestate)),
    })
}

// === impl Supervisor: starting and ending ===

impl Supervisor {
    /// Starts what waits, as far as there are slots.
    fn start_waiting(&self) {
        while let Some((order, copy)) = self.next_to_start() {
            if self.must_hash(&order, &copy) {
                // Reading all files of a skill takes its time, and the link must be read meanwhile.
                let supervisor = self.clone();
                self.0.tasks.spawn(async move {
                    let (reader, asked, files) = (supervisor.clone(), order.clone(), copy.clone());
                    let checked = tokio::task::spawn_blocking(move || reader.unchanged(&asked, &files)).await;
                    let checked = checked.unwrap_or_else(|_| Err("the check of its files failed".into()));
                    supervisor.start_or_end(&order, &copy, checked);
                    supervisor.start_waiting();
                });
            } else {
                let checked = self.unchanged(&order, &copy);
                self.start_or_end(&order, &copy, checked);
            }
        }
    }

    fn start_or_end(&self, order: &Arc<Order>, copy: &Arc<Copy>, checked: Result<PathBuf, String>) {
        let started = checked.and_then(|entry| self.start(order, copy, entry));
        if let Err(reason) = started {
            let last = Final::without_run(Outcome::NotStarted, reason);
            self.end(order.key, Conclusion { last, chunks: vec![] });
        }
    }

    /// The oldest waiting attempt whose skill may run once more, now taking a slot.
    fn next_to_start(&self) -> Option<(Arc<Order>, Arc<Copy>)> {
        let mut table = self.table();
        if table.running >= self.0.executor.slots() {
            return None;
        }
        let at = table.waiting.iter().position(|key| {
            table.attempts.get(key).and_then(|attempt| attempt.copy.as_ref()).is_some_and(|copy| {
                let key = &copy.definition.key;
                let running = table.running_by_skill.get(key).copied().unwrap_or(0);
                copy.definition.max_concurrency.is_none_or(|most| running < most)
            })
        })?;
        let key = table.waiting.remove(at)?;
        let attempt = table.attempts.get_mut(&key)?;
        attempt.phase = Phase::Starting { cancelled: false };
        let (order, copy) = (attempt.order.clone(), attempt.copy.clone()?);
        table.running += 1;
        *table.running_by_skill.entry(copy.definition.key.clone()).or_default() += 1;
        Some((order, copy))
    }

    /// Starts an attempt in its slot, or says why it never starts.
    fn start(&self, order: &Arc<Order>, copy: &Arc<Copy>, entry: PathBuf) -> Result<(), String> {
        if order.start_by <= Instant::now() {
            return Err("it waited too long for a slot".into());
        }
        let told = Told {
            invocation: order.key.0,
            deadline: Timestamp::now() + order.budget,
            node: &self.0.config.name,
            trace: order.trace.as_ref(),
        };
        let allow = &copy.definition.env_allow;
        let command = Command {
            program: entry,
            directory: copy.directory.clone(),
            environment: environment::build(allow, &self.0.host, &told, self.0.config.allow_loader_variables),
            stdin: match order.args.iter().all(u8::is_ascii_whitespace) {
                true => Bytes::from_static(b"{}"),
                false => order.args.clone(),
            },
            budget: order.budget.min(copy.definition.timeout),
            stop_grace: None,
        };
        let observer = Box::new(Listener { supervisor: self.clone(), key: order.key });
        let running = self
            .0
            .executor
            .try_start(command, observer)
            .map_err(|_| "no slot of this node can be used".to_owned())?;
        let stopper = running.stopper();
        {
            let mut table = self.table();
            if let Some(attempt) = table.attempts.get_mut(&order.key) {
                if matches!(attempt.phase, Phase::Starting { cancelled: true }) {
                    stopper.stop(StopReason::Cancelled);
                }
                attempt.phase = Phase::Running { stopper };
            }
        }
        self.0.tasks.spawn(self.clone().wait(order.key, copy.clone(), running));
        Ok(())
    }

    /// Whether a stat of manifest and entry is not enough: a stat does not see what else the entry may load. That the
    /// watcher sees, unless it cannot.
    fn must_hash(&self, order: &Order, copy: &Copy) -> bool {
        let exact = order.pinned || copy.definition.class.max(order.class) == Class::Dangerous;
        exact || !self.0.watcher.is_clean()
    }

    /// Checks that the files are what was advertised, and returns the entry to start.
    fn unchanged(&self, order: &Order, copy: &Copy) -> Result<PathBuf, String> {
        let reload = |why: String| {
            self.0.watcher.rescan_now();
            format!("changed: {why}")
        };
        let entry = copy.check_unchanged().map_err(|error| reload(error.to_string()))?;
        if self.must_hash(order, copy) {
            match copy.digest_now() {
                Ok(digest) if digest == copy.digest => {}
                Ok(digest) => return Err(reload(format!("the files now have digest {digest}"))),
                Err(error) => return Err(reload(format!("the files cannot be read: {error}"))),
            }
        }
        Ok(entry)
    }

    async fn wait(self, key: Key, copy: Arc<Copy>, mut running: Running) {
        let report = running.wait().await;
        let conclusion = if report.stdout.len() > LARGE_RESULT {
            let supervisor = self.clone();
            let concluded = tokio::task::spawn_blocking(move || supervisor.conclude(report, &copy)).await;
            concluded.unwrap_or_else(|_| Conclusion {
                last: Final::without_run(Outcome::Unknown, "the check of its result failed"),
                chunks: vec![],
            })
        } else {
            self.conclude(report, &copy)
        };
        self.end(key, conclusion);
        self.start_waiting();
    }

    fn conclude(&self, report: Report, copy: &Copy) -> Conclusion {
        let definition = &copy.definition;
        // It compiled when the skill was loaded.
        let schema = definition.output_schema.as_deref().and_then(|text| self.schema(text).ok());
        conclude(report, definition, schema.as_deref())
    }

    /// Ends an attempt that had a slot, and gives the slot back.
    fn end(&self, key: Key, Conclusion { last, chunks }: Conclusion) {
        let mut table = self.table();
        table.running -= 1;
        let skill = table.attempts.get(&key).map(|attempt| attempt.order.skill.clone());
        if let Some(skill) = skill
            && let Some(running) = table.running_by_skill.get_mut(&skill)
        {
            *running -= 1;
            if *running == 0 {
                table.running_by_skill.remove(&skill);
            }
        }
        tracing::debug!(weft.invocation.id = %key.0, weft.outcome = %last.outcome, message = %last.message, "attempt ended");
        table.finish(key, chunks, last);
        drop(table);
        self.0.news.notify_one();
        self.0.ended.notify_waiters();
    }

    /// What time alone brings about: attempts that waited too long, and memories that are old enough.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        let mut table = self.table();
        let late = |table: &Table, key: &Key| {
            table.attempts.get(key).is_none_or(|attempt| attempt.order.start_by <= now)
        };
        let expired: Vec<Key> = table.waiting.iter().filter(|key| late(&table, key)).copied().collect();
        for key in &expired {
            table.waiting.retain(|waiting| waiting != key);
            let last = Final::without_run(Outcome::NotStarted, "it waited too long for a slot");
            table.finish(*key, vec![], last);
        }
        while table.remembered.first().is_some_and(|(_, over)| now.duration_since(over.ended) > REMEMBERED) {
            table.remembered.shift_remove_index(0);
        }
        drop(table);
        if !expired.is_empty() {
            self.0.news.notify_one();
            self.0.ended.notify_waiters();
        }
    }
}

impl Table {
    fn finish(&mut self, key: Key, chunks: Vec<(u64, Bytes)>, mut last: Final) {
        let Some(attempt) = self.attempts.get_mut(&key) else { return };
        attempt.phase = Phase::Finished;
        // The files are not needed any more.
        attempt.copy = None;
        for (offset, bytes) in chunks {
            attempt.tell(News::Event(EventKind::OutputChunk { offset, bytes }));
        }
        last.dropped_bytes += attempt.dropped;
        attempt.tell(News::Event(EventKind::Finished(Box::new(last))));
        self.join_line(key);
    }

    fn join_line(&mut self, key: Key) {
        if let Some(attempt) = self.attempts.get_mut(&key)
            && !attempt.in_line
        {
            attempt.in_line = true;
            self.line.push_back(key);
        }
    }

    /// Forgets an attempt that has ended and whose news are all recorded; one that must not run again leaves a trace.
    fn forget_if_over(&mut self, key: Key) {
        let Some(attempt) = self.attempts.get(&key) else { return };
        if !(attempt.is_finished() && attempt.is_told()) {
            return;
        }
        if attempt.order.class > Class::Safe {
            if self.remembered.len() >= MAX_REMEMBERED {
                self.remembered.shift_remove_index(0);
            }
            let over = Remembered { content: attempt.order.content(), ended: Instant::now() };
            self.remembered.insert(key, over);
        }
        self.attempts.remove(&key);
    }

    fn link_room(&self) -> u64 {
        limits::LINK_CREDIT.saturating_sub(self.sent_bytes)
    }
}

/// Hears a child on its slot's own thread.
struct Listener {
    supervisor: Supervisor,
    key: Key,
}

impl Listener {
    fn tell(&self, tell: impl FnOnce(&mut Attempt)) {
        let mut table = self.supervisor.table();
        if let Some(attempt) = table.attempts.get_mut(&self.key) {
            tell(attempt);
            table.join_line(self.key);
        }
        drop(table);
        self.supervisor.0.news.notify_one();
    }
}

impl Observer for Listener {
    fn started(&mut self, pid: u32, _: SystemTime) {
        let attempt = self.key.1;
        self.tell(|told| told.tell(News::Event(EventKind::Started { attempt, pid })));
    }

    fn stderr(&mut self, chunk: Bytes) {
        self.tell(|told| told.tell_stderr(chunk));
    }

    fn stderr_dropped(&mut self, bytes: u64) {
        self.tell(|told| told.tell_dropped(bytes));
    }
}

// === impl Supervisor: telling the coordinator ===

impl Supervisor {
    /// The attempts for a hello; everything not acknowledged will be sent again.
    pub(crate) fn in_hand(&self) -> Vec<link::AttemptInHand> {
        let mut table = self.table();
        table.sent_bytes = 0;
        table.line.clear();
        let mut keys: Vec<Key> = table.attempts.keys().copied().collect();
        keys.sort_unstable();
        let mut list = Vec::new();
        for key in keys {
            if let Some(attempt) = table.attempts.get_mut(&key) {
                attempt.rewind();
                if !(attempt.is_finished() && attempt.is_told()) {
                    list.push(attempt.in_hand());
                }
            }
            table.join_line(key);
        }
        list
    }

    /// Resolves when there may be something to send.
    pub(crate) async fn has_news(&self) {
        self.0.news.notified().await;
    }

    /// The next frame: at most 64 KiB of news, one piece of each attempt in turn. `None` when there is nothing to
    /// send, or no credit.
    pub(crate) fn next_frame(&self) -> Option<link::NodeEvents> {
        let mut table = self.table();
        let mut events = Vec::new();
        let mut size = 0;
        let mut without_credit = 0;
        while size < limits::FRAME_BYTES as u64 && without_credit < table.line.len() {
            let Some(key) = table.line.pop_front() else { break };
            let room = table.link_room();
            let Some(attempt) = table.attempts.get_mut(&key) else { continue };
            if !attempt.can_send(room) {
                // What has nothing to send leaves the line and joins again when it has.
                attempt.in_line = attempt.has_unsent();
                if attempt.in_line {
                    table.line.push_back(key);
                    without_credit += 1;
                }
                continue;
            }
            let Some((event, cost)) = attempt.send_next() else { continue };
            size += cost;
            events.push(event);
            table.sent_bytes += cost;
            table.line.push_back(key);
            without_credit = 0;
        }
        (!events.is_empty()).then_some(link::NodeEvents { events })
    }

    /// News are recorded: they are forgotten here, and their bytes are credit again.
    ///
    /// # Errors
    /// When the message breaks the protocol.
    pub(crate) fn acknowledge(&self, acknowledgement: link::Acknowledgement) -> Result<(), Malformed> {
        let mut table = self.table();
        for entry in acknowledgement.attempts {
            let key = (convert::parse("invocation_id", &entry.invocation_id)?, entry.attempt);
            let Some(attempt) = table.attempts.get_mut(&key) else { continue };
            let freed = attempt.acknowledge(entry.node_sequence);
            table.sent_bytes = table.sent_bytes.saturating_sub(freed);
            table.forget_if_over(key);
            table.join_line(key);
        }
        drop(table);
        self.0.news.notify_one();
        // Whoever drains waits for the last acknowledgement as well.
        self.0.ended.notify_waiters();
        Ok(())
    }

    /// How many invocations run, and how many wait.
    pub(crate) fn load(&self) -> (u32, u32) {
        let table = self.table();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (count(table.running), count(table.waiting.len()))
    }

    /// What the node offers now, and later.
    pub(crate) fn inventory(&self) -> watch::Receiver<Arc<Inventory>> {
        self.0.inventory.clone()
    }

    pub(crate) fn slots(&self) -> usize {
        self.0.executor.slots()
    }
}

// === impl Supervisor: the end ===

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
}
