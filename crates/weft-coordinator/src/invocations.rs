//! Every invocation that has not ended, and what happens to it.
//!
//! The owner of an invocation alone writes its events; here that is this coordinator. Each invocation has a lock
//! of its own; nothing is awaited under it. Whatever is told to a node was recorded before.
//!
//! Order of locks: an invocation's own first, then the map of all of them, the nodes, the catalog, the store. Never
//! take an invocation's lock while walking the map: clone its `Arc` first.

mod live;
mod lost;
mod report;
mod spans;

use std::{collections::HashMap, sync::Arc, time::Duration};

use dashmap::DashMap;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio::time::{sleep, timeout};
use weft_core::{
    event::EventKind,
    ids::{AgentId, InvocationId, NodeId},
    invocation::{Invocation, Request, State, Trigger},
    limits,
    node::Target,
    outcome::{Final, Outcome},
    policy::Evidence,
    refusal::Refusal,
    skill::Class,
    trace::TraceContext,
};
use weft_proto::{
    convert::{self, authorisation_to_wire, duration_to_wire, timestamp_to_wire},
    link::{self, connect_response::Message},
    v1,
};
use weft_store::{Created, Filter, Page, Store, StoreError};
use weft_telemetry::Metrics;

use self::{
    live::{Attempt, Inner, Live},
    spans::Spans,
};
use crate::{
    admission::{Admission, Plan, Route},
    catalog::Keeper,
    config::Config,
    nodes::Nodes,
};

/// How often it is looked whether a node is back that a call waits for: thousands come back at the same time, and many
/// calls may wait for them.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Invocations {
    store: Arc<dyn Store>,
    nodes: Arc<Nodes>,
    catalog: Arc<Keeper>,
    config: Config,
    metrics: Metrics,
    /// What has not ended, and what ended as `UNKNOWN` and may still be resolved.
    live: DashMap<InvocationId, Arc<Live>>,
}

/// A dispatch that is recorded and has not left.
struct Prepared {
    live: Arc<Live>,
    attempt: u32,
    recorded: weft_store::Recorded,
}

impl Invocations {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        nodes: Arc<Nodes>,
        catalog: Arc<Keeper>,
        config: Config,
        metrics: Metrics,
    ) -> Self {
        Self { store, nodes, catalog, config, metrics, live: DashMap::new() }
    }

    pub(crate) fn admission(&self) -> Admission<'_> {
        Admission {
            catalog: &self.catalog,
            nodes: &self.nodes,
            evidence: Evidence {
                operator_allows: self.config.allow.map(|allowed| allowed.0),
                ..Evidence::default()
            },
        }
    }

    /// For which agent the invocation is that a request's id stands for: that of its session, when it is in one and
    /// names none. `None`: there is no such invocation.
    pub(crate) async fn agent_of_known(&self, request: &Request) -> Result<Option<Option<AgentId>>, Refusal> {
        let Some(id) = &request.request_id else { return Ok(None) };
        let known = self.store.find_request(&request.caller, id).await.map_err(internal)?;
        Ok(known.map(|known| match (&request.agent, &request.session) {
            (None, Some(session)) if known.request.session.as_ref() == Some(session) => known.request.agent,
            _ => request.agent.clone(),
        }))
    }

    /// Waits while a request could only be refused because the nodes that have its skill are on their way, after a
    /// restart of the coordinator. Cancel safe: nothing is created here.
    pub(crate) async fn until_routable(&self, request: &Request) {
        if !self.nodes.awaits_any() {
            return;
        }
        let back = async {
            while self.admission().waits(request) {
                sleep(BETWEEN_LOOKS).await;
            }
        };
        let _ = timeout(self.config.timings.queue_wait, back).await;
    }

    /// How many have not ended.
    pub(crate) fn active(&self) -> usize {
        self.all().iter().filter(|live| !live.inner().invocation.state.is_finished()).count()
    }

    /// Makes a request an invocation, or finds the one that its request id stands for.
    pub(crate) async fn create(
        &self,
        request: Request,
        trace: Option<TraceContext>,
    ) -> Result<Invocation, Refusal> {
        if let Some(request_id) = &request.request_id {
            let known = self.store.find_request(&request.caller, request_id).await.map_err(internal)?;
            if let Some(known) = known {
                return self.attach(known, &request);
            }
        }
        let (plan, attempt) = self.admit(&request).inspect_err(|refusal| {
            if let Refusal::PolicyDenied { class, .. } = refusal {
                self.metrics.policy_denied(*class);
            }
        })?;
        let invocation = Invocation {
            id: InvocationId::generate(),
            class: plan.class,
            state: State::Routing,
            node: None,
            digest: None,
            attempts: 0,
            created: Timestamp::now(),
            finished: None,
            last_sequence: 0,
            request,
        };
        let id = invocation.id;
        let active = self.metrics.invocation_active(&invocation.request.skill, invocation.class);
        let live = Arc::new(Live::new(invocation, plan, trace, active));
        let (created, snapshot, trace_id) = {
            let mut inner = live.inner();
            // Findable before it is recorded: whoever reads of it can cancel it, and a node that comes back settles it.
            self.live.insert(id, live.clone());
            let (skill, class) = (inner.invocation.request.skill.clone(), inner.invocation.class);
            inner.step(Trigger::Ready);
            let dispatched = inner.give(attempt, "");
            let events = inner.number([EventKind::Admitted { skill, class }, dispatched]);
            let created = self.store.create(&inner.invocation, events);
            if !matches!(created, Ok((Created::New, _))) {
                self.live.remove(&id);
                if let Some(spans) = inner.attempt.as_mut().and_then(|attempt| attempt.spans.take()) {
                    spans.give_up("the invocation was not recorded");
                }
            }
            (created, inner.invocation.clone(), inner.trace_id().map(str::to_owned))
        };
        match created.map_err(store_full)? {
            (Created::Existing(known), _) => self.attach(*known, &snapshot.request),
            (Created::New, recorded) => {
                tracing::debug!(
                    weft.invocation.id = %id, weft.skill = %snapshot.request.skill,
                    trace_id, "invocation admitted"
                );
                let attempt = snapshot.attempts;
                self.send_all(vec![Prepared { live, attempt, recorded }]).await;
                Ok(snapshot)
            }
        }
    }

    /// Checks a request and takes a place for it on a node.
    fn admit(&self, request: &Request) -> Result<(Plan, Attempt), Refusal> {
        // A node may leave between the choice and the place; then another is chosen.
        for _ in 0..3 {
            let (plan, route) = self.admission().admit(request)?;
            if let Some(attempt) = self.reserve(route) {
                return Ok((plan, attempt));
            }
        }
        Err(Refusal::NodeOffline { skill: request.skill.clone(), obstacles: vec![] })
    }

    /// Takes a place on a node. `None` when it has left meanwhile.
    fn reserve(&self, route: Route) -> Option<Attempt> {
        let view = self.nodes.view(&route.node)?;
        let place = self.nodes.take_place(&route.node)?;
        Some(Attempt::new(route, view.journal, view.epoch, place))
    }

    /// The invocation that a request id stands for, if the request asks for the same thing.
    fn attach(&self, known: Invocation, request: &Request) -> Result<Invocation, Refusal> {
        if !known.request.asks_the_same(request) {
            let request_id = request.request_id.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(Refusal::RequestIdReused { request_id });
        }
        if let (true, Some(live)) = (request.detach, self.find(known.id)) {
            // Whoever asks for it this way does not watch it.
            live.inner().invocation.request.detach = true;
        }
        Ok(known)
    }

    /// Voids the current attempt and gives the invocation to another node. `None` when there is none now, and then
    /// nothing has changed.
    fn move_on(
        &self,
        live: &Arc<Live>,
        inner: &mut Inner,
        trigger: Trigger,
        reason: &str,
    ) -> Option<Prepared> {
        let digest = inner.invocation.digest?;
        let route = self.admission().reroute(&inner.invocation.request, digest, &inner.avoid)?;
        let attempt = self.reserve(route)?;
        if !inner.step(trigger) {
            return None;
        }
        inner.retries += 1;
        let dispatched = inner.give(attempt, reason);
        let recorded = self.record(inner, [EventKind::Queued { reason: reason.to_owned() }, dispatched])?;
        Some(Prepared { live: live.clone(), attempt: inner.invocation.attempts, recorded })
    }

    /// An attempt provably never started: another node may have it, or it ends here.
    fn never_started(
        &self,
        live: &Arc<Live>,
        inner: &mut Inner,
        avoid: Option<NodeId>,
        last: Final,
    ) -> Option<Prepared> {
        inner.avoid.extend(avoid);
        let attempt = inner.invocation.attempts;
        let elsewhere = inner.plan.class != Class::Dangerous
            && inner.retries < limits::SAFE_RETRIES
            && !matches!(inner.invocation.request.target, Target::Node(_));
        let moved = elsewhere
            .then(|| self.move_on(live, inner, Trigger::Requeue { attempt }, &last.message))
            .flatten();
        if moved.is_none() {
            self.finish(inner, last);
        }
        moved
    }

    /// Sends dispatches once they are recorded. One whose session is gone goes to another node.
    async fn send_all(&self, mut prepared: Vec<Prepared>) {
        while let Some(Prepared { live, attempt, recorded }) = prepared.pop() {
            // A safe skill may run again, so its intent need not be on disk before it leaves.
            if live.class > Class::Safe && recorded.await.is_err() {
                let mut inner = live.inner();
                self.finish(
                    &mut inner,
                    Final::without_run(Outcome::NotStarted, "cannot record the dispatch"),
                );
                continue;
            }
            let mut inner = live.inner();
            if inner.invocation.state != (State::Dispatched { attempt }) {
                continue;
            }
            let Some(message) = self.dispatch_message(&inner) else { continue };
            let Some(current) = inner.attempt.as_mut() else { continue };
            if self.nodes.send(&current.node, current.epoch, Message::Dispatch(message)) {
                current.sent = true;
                continue;
            }
            // It never left.
            let node = current.node.clone();
            let last = Final::without_run(Outcome::NotStarted, "its node left before the dispatch did");
            prepared.extend(self.never_started(&live, &mut inner, Some(node), last));
        }
    }

    fn dispatch_message(&self, inner: &Inner) -> Option<link::Dispatch> {
        let attempt = inner.attempt.as_ref()?;
        let Plan { class, budget, mode, evidence, sandboxed, .. } = inner.plan;
        let request = &inner.invocation.request;
        let wait = self.config.timings.queue_wait;
        Some(link::Dispatch {
            invocation_id: inner.invocation.id.to_string(),
            attempt: inner.invocation.attempts,
            session_epoch: attempt.epoch,
            skill: request.skill.to_string(),
            digest: bytes::Bytes::copy_from_slice(attempt.digest.as_bytes()),
            pinned: request.pinned.is_some(),
            agent: request.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
            args: request.args.clone(),
            class: v1::SkillClass::from(class).into(),
            authorisation: Some(authorisation_to_wire(mode, evidence)),
            budget: Some(duration_to_wire(budget)),
            queue_wait: Some(duration_to_wire(wait)),
            expire_time: Some(timestamp_to_wire(Timestamp::now() + wait)),
            trace: attempt.spans.as_ref().and_then(Spans::context).map(convert::trace_to_wire),
            sandboxed,
        })
    }

    /// Appends events, after the gap that stands in for output which found no room.
    fn record(
        &self,
        inner: &mut Inner,
        kinds: impl IntoIterator<Item = EventKind>,
    ) -> Option<weft_store::Recorded> {
        let gap = inner.pending_gap.take().map(|gap| EventKind::Gap {
            node_from: gap.node_from,
            node_to: gap.node_to,
            bytes: gap.bytes,
        });
        let events = inner.number(gap.into_iter().chain(kinds));
        match self.store.append(&inner.invocation, events) {
            Ok(recorded) => Some(recorded),
            Err(error) => {
                tracing::error!(weft.invocation.id = %inner.invocation.id, %error, "cannot record events");
                None
            }
        }
    }

    /// Ends an invocation. Returns what its last event waits for.
    fn finish(&self, inner: &mut Inner, mut last: Final) -> Option<weft_store::Recorded> {
        let resolves = inner.invocation.state.is_finished();
        let outcome = last.outcome;
        if !inner.step(Trigger::Finish { outcome }) {
            return None;
        }
        last.resolves = resolves;
        last.digest = last.digest.or(inner.invocation.digest);
        last.node = last.node.or_else(|| inner.invocation.node.clone());
        inner.invocation.finished = Some(Timestamp::now());
        if let Some(spans) = inner.attempt.as_mut().and_then(|attempt| attempt.spans.take()) {
            spans.end(&last);
        }
        if inner.active.take().is_some() {
            let Invocation { class, request, .. } = &inner.invocation;
            self.metrics.invocation_ended(&request.skill, *class, outcome, inner.age());
        }
        inner.unknown_at = None;
        let id = inner.invocation.id;
        let message = last.message.clone();
        let recorded = self.record(inner, [EventKind::Finished(Box::new(last))]);
        // An attempt that may still tell its end is kept, so that the truth can come late.
        if outcome == Outcome::Unknown {
            tracing::warn!(
                weft.invocation.id = %id, trace_id = inner.trace_id(), %message,
                "the outcome of an invocation is unknown"
            );
            inner.ended_at = Some(Instant::now());
            // Kept for a day: as little of it as will do.
            inner.invocation.request.args = bytes::Bytes::new();
            if let Some(attempt) = &mut inner.attempt {
                attempt.place = None;
            }
        } else {
            tracing::debug!(
                weft.invocation.id = %id, trace_id = inner.trace_id(), weft.outcome = %outcome,
                "invocation finished"
            );
            inner.attempt = None;
            self.live.remove(&id);
        }
        recorded
    }

    /// Asks for the end of an invocation. One that has ended stays as it is.
    pub(crate) async fn cancel(&self, id: InvocationId) -> Result<Invocation, Refusal> {
        if let Some(live) = self.find(id) {
            self.cancel_live(&live, "the caller cancelled it");
        }
        self.get(id).await
    }

    fn cancel_live(&self, live: &Live, reason: &str) {
        let mut inner = live.inner();
        match inner.invocation.state {
            State::Finished { .. } => {}
            State::Routing | State::PendingApproval | State::Queued => {
                self.finish(
                    &mut inner,
                    Final::without_run(Outcome::Cancelled, format!("{reason}; never started")),
                );
            }
            State::Dispatched { .. }
            | State::Accepted { .. }
            | State::Running { .. }
            | State::Terminating { .. } => {
                if inner.attempt.as_ref().is_some_and(|attempt| !attempt.sent) {
                    let last = Final::without_run(Outcome::Cancelled, format!("{reason}; never started"));
                    self.finish(&mut inner, last);
                    return;
                }
                inner.step(Trigger::Terminate);
                inner.cancel_reason = Some(reason.to_owned());
                // The change of state is recorded without an event: the end itself is the event.
                self.record(&mut inner, []);
                self.send_cancel(&inner);
            }
        }
    }

    fn send_cancel(&self, inner: &Inner) {
        let (Some(attempt), Some(reason)) = (&inner.attempt, &inner.cancel_reason) else { return };
        // Without a session it is sent when the node is back.
        self.nodes.send(
            &attempt.node,
            attempt.epoch,
            Message::Cancel(link::Cancel {
                invocation_id: inner.invocation.id.to_string(),
                attempt: inner.invocation.attempts,
                reason: reason.clone(),
            }),
        );
    }

    /// What is known of an invocation.
    pub(crate) async fn get(&self, id: InvocationId) -> Result<Invocation, Refusal> {
        self.store.get(id).await.map_err(|error| match error {
            StoreError::NotFound | StoreError::Forgotten => {
                Refusal::InvocationNotFound { invocation: id.to_string() }
            }
            StoreError::Full => internal(error),
        })
    }

    pub(crate) async fn list(&self, filter: Filter, most: usize) -> Result<Page, Refusal> {
        self.store.list(filter, most).await.map_err(internal)
    }

    fn find(&self, id: InvocationId) -> Option<Arc<Live>> {
        self.live.get(&id).map(|live| live.clone())
    }

    /// Everything that is live now; each is looked at under its own lock afterwards.
    fn all(&self) -> Vec<Arc<Live>> {
        self.live.iter().map(|live| live.clone()).collect()
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Counts a watcher of an invocation as long as the guard lives.
    pub(crate) fn watched(&self, id: InvocationId) -> Option<live::Watched> {
        self.find(id).map(live::Watched::new)
    }
}

fn internal(error: StoreError) -> Refusal {
    Refusal::Internal(error.to_string())
}

fn store_full(error: StoreError) -> Refusal {
    match error {
        StoreError::Full => Refusal::Quota {
            what:
                "the event log is full of invocations that run, and of requests that are remembered for a day"
                    .into(),
            retry_after: Duration::from_secs(60),
        },
        StoreError::NotFound | StoreError::Forgotten => internal(error),
    }
}

/// Attempts that a node says it has, by invocation and attempt.
pub(crate) type InHand = HashMap<(InvocationId, u32), link::AttemptInHand>;

impl Inner {
    /// Gives the invocation to a node: the next attempt, and why the one before was given up. Nothing of that carries
    /// over.
    fn give(&mut self, attempt: Attempt, reason: &str) -> EventKind {
        let number = self.invocation.attempts + 1;
        let before = self.attempt.take().and_then(|attempt| attempt.spans);
        self.step(Trigger::Dispatch { attempt: number });
        self.invocation.attempts = number;
        self.invocation.node = Some(attempt.node.clone());
        self.invocation.digest = Some(attempt.digest);
        self.unknown_at = None;
        self.result_dropped = false;
        let event =
            EventKind::Dispatched { node: attempt.node.clone(), attempt: number, digest: attempt.digest };
        let before = before.and_then(|spans| spans.give_up(reason));
        let spans = Spans::start(self.trace.as_ref(), &self.invocation, before.as_ref());
        self.attempt = Some(Attempt { spans: Some(spans), ..attempt });
        event
    }
}
