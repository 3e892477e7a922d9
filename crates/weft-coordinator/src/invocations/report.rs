//! What nodes tell of their attempts.

use std::sync::Arc;

use tokio::time::Instant;
use weft_core::{
    event::{EventKind, News, NodeNews},
    ids::{InvocationId, NodeId},
    invocation::{Invocation, State, Trigger},
    json,
    outcome::{Final, Outcome, ResultBody},
};

use super::{
    Invocations, Prepared,
    live::{Inner, Live, Missing},
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
            // Not more than it just said: it counts its credit by what is acknowledged.
            return (Taken { acknowledged: sequence, recorded: None }, None);
        }
        let first = match &news {
            Some(News::Event(EventKind::Gap { node_from, .. })) => *node_from,
            Some(News::Accepted { .. } | News::Event(_)) | None => sequence,
        };
        if first > last + 1 {
            // A sound node never skips. What is missing is told.
            tracing::warn!(weft.invocation.id = %live.id, last, first, "a node skipped news");
            self.miss(inner, last + 1, first - 1, 0);
        }
        if let Some(attempt) = &mut inner.attempt {
            attempt.sequence = sequence;
            attempt.since = Instant::now();
        }
        let mut again = None;
        let recorded = match news {
            // From a newer node: nothing that this side could record.
            None => None,
            Some(News::Accepted { .. }) => {
                if let Some(attempt) = &mut inner.attempt {
                    attempt.accepted = true;
                }
                if inner.step(Trigger::Accept { attempt }) { self.record(inner, []) } else { None }
            }
            Some(News::Event(EventKind::Started { pid, .. })) => {
                if let Some(attempt) = &mut inner.attempt {
                    attempt.accepted = true;
                    attempt.started = true;
                }
                // What is told late, after an outage, says nothing of the wait.
                if inner.step(Trigger::Start { attempt }) {
                    let waited = inner.age();
                    let Invocation { class, request, .. } = &inner.invocation;
                    self.metrics.invocation_queued(&request.skill, *class, waited);
                    if let Some(spans) = inner.attempt.as_mut().and_then(|attempt| attempt.spans.as_mut()) {
                        spans.started(waited);
                    }
                }
                self.record(inner, [EventKind::Started { attempt, pid }])
            }
            Some(News::Event(EventKind::Finished(last))) => {
                let (recorded, moved) = self.conclude(live, inner, *last);
                again = moved;
                recorded
            }
            Some(News::Event(EventKind::Gap { node_from, node_to, bytes })) => {
                self.miss(inner, node_from, node_to, bytes);
                self.record(inner, [])
            }
            Some(News::Event(
                event @ (EventKind::Stderr { .. }
                | EventKind::Progress { .. }
                | EventKind::OutputChunk { .. }),
            )) => self.record_output(inner, sequence, event),
            Some(News::Event(
                EventKind::Admitted { .. }
                | EventKind::ApprovalPending { .. }
                | EventKind::ApprovalDecided { .. }
                | EventKind::Queued { .. }
                | EventKind::Dispatched { .. }
                | EventKind::NodeLost { .. },
            )) => None,
        };
        (Taken { acknowledged: sequence, recorded }, again)
    }

    /// Notes output that is missing; told before the next event, so that a flood costs one event.
    fn miss(&self, inner: &mut Inner, node_from: u64, node_to: u64, bytes: u64) {
        let known = inner.pending_gap.unwrap_or(Missing { node_from, node_to, bytes: 0 });
        inner.pending_gap =
            Some(Missing { node_from: known.node_from, node_to, bytes: known.bytes.saturating_add(bytes) });
    }

    /// Records output; what finds no room is missing, and told.
    fn record_output(
        &self,
        inner: &mut Inner,
        sequence: u64,
        event: EventKind,
    ) -> Option<weft_store::Recorded> {
        let bytes = event.payload() as u64;
        let chunk = matches!(event, EventKind::OutputChunk { .. });
        let (before, gap) = (inner.invocation.last_sequence, inner.pending_gap.take());
        let told = gap.map(|gap| EventKind::Gap {
            node_from: gap.node_from,
            node_to: gap.node_to,
            bytes: gap.bytes,
        });
        let events = inner.number(told.into_iter().chain([event]));
        match self.store.append(&inner.invocation, events) {
            Ok(recorded) => Some(recorded),
            Err(error) => {
                tracing::debug!(weft.invocation.id = %inner.invocation.id, %error, bytes, "output dropped");
                inner.invocation.last_sequence = before;
                inner.pending_gap = gap;
                inner.result_dropped |= chunk;
                self.miss(inner, sequence, sequence, bytes);
                None
            }
        }
    }

    /// The node says how the attempt ended.
    fn conclude(
        &self,
        live: &Arc<Live>,
        inner: &mut Inner,
        mut last: Final,
    ) -> (Option<weft_store::Recorded>, Option<Prepared>) {
        let Some(attempt) = inner.attempt.as_ref() else { return (None, None) };
        last.attempt = inner.invocation.attempts;
        last.node = Some(attempt.node.clone());
        last.digest = Some(attempt.digest);
        if last.outcome == Outcome::NotStarted && (attempt.started || last.started == Some(true)) {
            // A contradiction proves nothing, and only proof lets a skill be started again.
            last.outcome = Outcome::Unknown;
            last.started = Some(true);
            last.message =
                format!("its node says that it never started, after it said that it did: {}", last.message);
        }
        if inner.result_dropped && matches!(last.result, ResultBody::Chunked { .. }) {
            last.result = ResultBody::None;
            last.message = "it succeeded, but the coordinator's event log had no room for its result".into();
        }
        if let Some(wrong) = wrong_result(&last) {
            last.outcome = Outcome::InvalidOutput;
            last.message = format!("its node passed on what is no result: {wrong}");
            last.result = ResultBody::None;
        }
        let moving = !matches!(inner.invocation.state, State::Terminating { .. } | State::Finished { .. });
        if last.outcome == Outcome::NotStarted && moving {
            let node = attempt.node.clone();
            last.message = format!("node {node} did not start it: {}", last.message);
            return (None, self.never_started(live, inner, Some(node), last));
        }
        (self.finish(inner, last), None)
    }

    /// A node heard of a cancel and does not have the attempt. In the session that the dispatch went to, messages
    /// keep their order, so an attempt that was not accepted never reached it.
    pub(crate) fn cancel_missed(&self, node: &NodeId, epoch: u64, id: InvocationId, number: u32) {
        let Some(live) = self.find(id) else { return };
        let mut inner = live.inner();
        let never = inner.invocation.state == (State::Terminating { attempt: number })
            && inner.attempt.as_ref().is_some_and(|attempt| {
                attempt.node == *node && attempt.epoch == epoch && !attempt.accepted && !attempt.started
            });
        if never {
            let mut last = Final::without_run(Outcome::Cancelled, "cancelled; never started");
            last.attempt = number;
            self.finish(&mut inner, last);
        }
    }
}

/// Why a successful record does not hold a result that callers can use.
fn wrong_result(last: &Final) -> Option<String> {
    if last.outcome != Outcome::Succeeded {
        return None;
    }
    match &last.result {
        ResultBody::Inline(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json::check_object(text).err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        },
        // The receiver of the chunks checks their digest.
        ResultBody::Chunked { .. } => None,
        ResultBody::None if last.message.is_empty() => Some("there is none".into()),
        ResultBody::None => None,
    }
}
