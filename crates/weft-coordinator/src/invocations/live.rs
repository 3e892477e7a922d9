//! One invocation that has not ended.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;
use weft_core::{
    event::{Event, EventKind},
    ids::{Digest, InvocationId, JournalId, NodeId},
    invocation::{Invocation, State, Trigger},
    skill::Class,
    trace::TraceContext,
};
use weft_telemetry::metrics::Active;

use super::spans::Spans;
use crate::{
    admission::{Plan, Route},
    nodes::Place,
};

/// An invocation and its lock.
#[derive(Debug)]
pub(crate) struct Live {
    pub(super) id: InvocationId,
    pub(super) class: Class,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) invocation: Invocation,
    pub(super) plan: Plan,
    pub(super) trace: Option<TraceContext>,
    pub(super) attempt: Option<Attempt>,
    /// Nodes that are not asked again.
    pub(super) avoid: Vec<NodeId>,
    /// Attempts after the first that were made because a node was lost or refused.
    pub(super) retries: u32,
    /// Why it is being ended, once it is.
    pub(super) cancel_reason: Option<String>,
    /// A part of the result found no room in the log.
    pub(super) result_dropped: bool,
    /// Output that found no room, told before the next event.
    pub(super) pending_gap: Option<Missing>,
    pub(super) watchers: usize,
    /// Since when nobody watches.
    pub(super) unwatched_since: Instant,
    /// When nobody can know any more how it ended.
    pub(super) unknown_at: Option<Instant>,
    /// When it ended as `UNKNOWN`.
    pub(super) ended_at: Option<Instant>,
    /// Counts it as active until its outcome.
    pub(super) active: Option<Active>,
}

/// The attempt under way.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) node: NodeId,
    pub(super) digest: Digest,
    /// The journal and the session that it was given to.
    pub(super) journal: JournalId,
    pub(super) epoch: u64,
    /// The node sequence of the last news that was recorded.
    pub(super) sequence: u64,
    /// The dispatch has left.
    pub(super) sent: bool,
    /// The node has it in its journal.
    pub(super) accepted: bool,
    /// The process runs or ran.
    pub(super) started: bool,
    /// Its node was told lost.
    pub(super) lost: bool,
    /// Since when the node has had the time to get on with it: its dispatch, its start, or the node's return.
    pub(super) since: Instant,
    pub(super) place: Option<Place>,
    /// Until the attempt is over.
    pub(super) spans: Option<Spans>,
}

impl Attempt {
    pub(super) fn new(route: Route, journal: JournalId, epoch: u64, place: Place) -> Self {
        Self {
            node: route.node,
            digest: route.digest,
            journal,
            epoch,
            sequence: 0,
            sent: false,
            accepted: false,
            started: false,
            lost: false,
            since: Instant::now(),
            place: Some(place),
            spans: None,
        }
    }
}

/// Output that is missing from the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Missing {
    pub(super) node_from: u64,
    pub(super) node_to: u64,
    pub(super) bytes: u64,
}

impl Live {
    pub(super) fn new(
        invocation: Invocation,
        plan: Plan,
        trace: Option<TraceContext>,
        active: Active,
    ) -> Self {
        Self {
            id: invocation.id,
            class: invocation.class,
            inner: Mutex::new(Inner {
                invocation,
                plan,
                trace,
                attempt: None,
                avoid: Vec::new(),
                retries: 0,
                cancel_reason: None,
                result_dropped: false,
                pending_gap: None,
                watchers: 0,
                unwatched_since: Instant::now(),
                unknown_at: None,
                ended_at: None,
                active: Some(active),
            }),
        }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The id of the trace that it belongs to, for logs.
    pub(super) fn trace_id(&self) -> Option<&str> {
        self.trace.as_ref().map(TraceContext::trace_id)
    }

    /// How long it has been there.
    pub(super) fn age(&self) -> Duration {
        Duration::try_from(Timestamp::now().duration_since(self.invocation.created)).unwrap_or_default()
    }

    /// Moves the state machine. `false` when the trigger has no meaning here: news that came too late.
    pub(super) fn step(&mut self, trigger: Trigger) -> bool {
        match self.invocation.state.on(trigger) {
            Ok(next) => {
                self.invocation.state = next;
                true
            }
            Err(illegal) => {
                tracing::debug!(weft.invocation.id = %self.invocation.id, %illegal, "ignored");
                false
            }
        }
    }

    /// Gives events their sequences and times.
    pub(super) fn number(&mut self, kinds: impl IntoIterator<Item = EventKind>) -> Vec<Event> {
        let time = Timestamp::now();
        kinds
            .into_iter()
            .map(|kind| {
                self.invocation.last_sequence += 1;
                Event { sequence: self.invocation.last_sequence, time, kind }
            })
            .collect()
    }

    /// Whether a lost attempt may be made again without harm.
    pub(super) fn may_run_again(&self) -> bool {
        match self.plan.class {
            Class::Safe => true,
            Class::Mutating => self.plan.idempotent,
            Class::Dangerous => false,
        }
    }

    /// Whether somebody wants it to go on without being watched.
    pub(super) fn needs_watcher(&self) -> bool {
        self.plan.class == Class::Safe
            && !self.invocation.request.detach
            && !matches!(self.invocation.state, State::Finished { .. } | State::Terminating { .. })
    }
}

/// Somebody watches an invocation as long as this lives.
#[derive(Debug)]
pub(crate) struct Watched(Arc<Live>);

impl Watched {
    pub(super) fn new(live: Arc<Live>) -> Self {
        live.inner().watchers += 1;
        Self(live)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut inner = self.0.inner();
        inner.watchers -= 1;
        inner.unwatched_since = Instant::now();
    }
}
