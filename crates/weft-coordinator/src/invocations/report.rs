//! What nodes tell of their attempts.

use std::sync::Arc;

use weft_core::{
    event::{EventKind, News, NodeNews},
    ids::NodeId,
    invocation::{State, Trigger},
    limits,
    node::Target,
    outcome::{Final, Outcome, ResultBody},
    skill::Class,
};

use super::{
    Invocations, Prepared,
    live::{Inner, Live},
};

/// What became of a piece of news.
pub(crate) struct Taken {
    /// Everything up to this node sequence is recorded, or of no interest any more.
    pub(crate) acknowledged: u64,
    /// Resolves when that is safe to say.
    pub(crate) recorded: Option<weft_store::Recorded>,
}

impl Invocations {
    /// Takes one piece of news from a node. News of attempts that are not that node's, or are void, change
    /// nothing and are acknowledged, so that the node forgets them.
    pub(crate) async fn report(&self, node: &NodeId, news: NodeNews) -> Taken {
        let forget = Taken { acknowledged: news.sequence, recorded: None };
        let Some(live) = self.find(news.invocation) else { return forget };
        let (taken, again) = {
            let mut inner = live.inner();
            let ours = inner.invocation.attempts == news.attempt
                && inner.attempt.as_ref().is_some_and(|attempt| attempt.node == *node);
            if !ours {
                tracing::debug!(weft.invocation.id = %news.invocation, weft.node.id = %node, "news of a void attempt");
                return forget;
            }
            self.take(&live, &mut inner, news)
        };
        if let Some(again) = again {
            self.send_all(vec![again]).await;
        }
        taken
    }

    fn take(&self, live: &Arc<Live>, inner: &mut Inner, news: NodeNews) -> (Taken, Option<Prepared>) {
        let NodeNews { attempt, sequence, news, .. } = news;
        let last = inner.attempt.as_ref().map_or(0, |attempt| attempt.sequence);
        if sequence <= last {
            return (Taken { acknowledged: last, recorded: None }, None);
        }
        let first = match &news {
            News::Event(EventKind::Gap { node_from, .. }) => *node_from,
            News::Accepted { .. } | News::Event(_) => sequence,
        };
        let mut recorded = None;
        if first > last + 1 {
            // A sound node never skips. What is missing is told.
            tracing::warn!(weft.invocation.id = %live.id, last, first, "a node skipped news");
            recorded =
                self.record(inner, [EventKind::Gap { node_from: last + 1, node_to: first - 1, bytes: 0 }]);
        }
        if let Some(attempt) = &mut inner.attempt {
            attempt.sequence = sequence;
        }
        let mut again = None;
        match news {
            News::Accepted { .. } => {
                if inner.step(Trigger::Accept { attempt }) {
                    recorded = self.record(inner, []);
                }
            }
            News::Event(EventKind::Started { pid, .. }) => {
                inner.step(Trigger::Start { attempt });
                recorded = self.record(inner, [EventKind::Started { attempt, pid }]);
            }
            News::Event(EventKind::Finished(last)) => again = self.conclude(live, inner, *last),
            News::Event(
                event @ (EventKind::Stderr { .. }
                | EventKind::Progress { .. }
                | EventKind::OutputChunk { .. }
                | EventKind::Gap { .. }),
            ) => recorded = self.record_output(inner, sequence, event),
            News::Event(
                EventKind::Admitted { .. }
                | EventKind::ApprovalPending { .. }
                | EventKind::ApprovalDecided { .. }
                | EventKind::Queued { .. }
                | EventKind::Dispatched { .. }
                | EventKind::NodeLost { .. },
            ) => {}
        }
        (Taken { acknowledged: sequence, recorded }, again)
    }

    /// Records output; what finds no room is replaced by a gap.
    fn record_output(
        &self,
        inner: &mut Inner,
        sequence: u64,
        event: EventKind,
    ) -> Option<weft_store::Recorded> {
        let bytes = event.payload() as u64;
        let chunk = matches!(event, EventKind::OutputChunk { .. });
        let before = inner.invocation.last_sequence;
        let events = inner.number([event]);
        match self.store.append(&inner.invocation, events) {
            Ok(recorded) => Some(recorded),
            Err(error) => {
                tracing::warn!(weft.invocation.id = %inner.invocation.id, %error, bytes, "output dropped");
                inner.invocation.last_sequence = before;
                inner.result_dropped |= chunk;
                self.record(inner, [EventKind::Gap { node_from: sequence, node_to: sequence, bytes }])
            }
        }
    }

    /// The node says how the attempt ended.
    fn conclude(&self, live: &Arc<Live>, inner: &mut Inner, mut last: Final) -> Option<Prepared> {
        let node = inner.attempt.as_ref().map(|attempt| attempt.node.clone());
        last.attempt = inner.invocation.attempts;
        last.node.clone_from(&node);
        last.digest = inner.attempt.as_ref().map(|attempt| attempt.digest);
        if inner.result_dropped && matches!(last.result, ResultBody::Chunked { .. }) {
            last.result = ResultBody::None;
            last.message = "it succeeded, but the coordinator's event log had no room for its result".into();
        }
        if last.outcome == Outcome::NotStarted && self.may_go_elsewhere(inner) {
            inner.retries += 1;
            let reason = format!("node {} did not start it: {}", name(&node), last.message);
            // What finds no other node ends with this node's reason.
            return self.requeue(live, inner, node, &reason);
        }
        self.finish(inner, last);
        None
    }

    /// Whether an attempt that provably never started is made again on another node.
    fn may_go_elsewhere(&self, inner: &Inner) -> bool {
        let moving = !matches!(inner.invocation.state, State::Terminating { .. } | State::Finished { .. });
        moving
            && inner.plan.class != Class::Dangerous
            && inner.retries < limits::SAFE_RETRIES
            && !matches!(inner.invocation.request.target, Target::Node(_))
    }
}

fn name(node: &Option<NodeId>) -> &str {
    node.as_ref().map_or("?", NodeId::as_str)
}
