//! Nodes that come back, and nodes that do not.

use std::time::Duration;

use tokio::time::Instant;
use weft_core::{
    event::EventKind,
    ids::{JournalId, NodeId},
    invocation::State,
    limits,
    node::Node,
    outcome::{Final, Outcome},
    skill::Class,
};
use weft_proto::{
    convert,
    link::{self, connect_response::Message},
};

use super::{
    InHand, Invocations, Prepared,
    live::{Inner, Live},
};

/// How long an invocation whose outcome is unknown can still be resolved.
const RESOLVABLE: Duration = Duration::from_secs(24 * 3600);

impl Invocations {
    /// A node opened a session. What it has in hand goes on; what it should have and has not is settled by what
    /// its journal proves; what it has and should not have is ended.
    pub(crate) async fn node_connected(
        &self,
        node: &NodeId,
        journal: &JournalId,
        epoch: u64,
        mut in_hand: InHand,
    ) {
        let mut prepared = Vec::new();
        for live in self.all() {
            let mut inner = live.inner();
            let number = inner.invocation.attempts;
            let Some(attempt) = inner.attempt.as_mut().filter(|attempt| attempt.node == *node) else {
                continue;
            };
            if in_hand.remove(&(live.id, number)).is_some() {
                attempt.epoch = epoch;
                attempt.sent = true;
                attempt.lost = false;
                inner.unknown_at = None;
                // A cancel may have been lost with the session.
                self.send_cancel(&inner);
                continue;
            }
            // Given to the node in this very session, after its hello.
            if attempt.epoch >= epoch {
                continue;
            }
            prepared.extend(self.settle(&live, &mut inner, journal));
        }
        for ((invocation, attempt), known) in in_hand {
            if known.finished || convert::class(known.class) != Class::Safe {
                continue;
            }
            tracing::info!(weft.invocation.id = %invocation, weft.node.id = %node, "ending a safe invocation that nobody knows");
            self.nodes.send(
                node,
                Message::Cancel(link::Cancel {
                    invocation_id: invocation.to_string(),
                    attempt,
                    reason: "the coordinator does not know this attempt".into(),
                }),
            );
        }
        self.send_all(prepared).await;
    }

    /// An attempt that its node does not have in hand.
    fn settle(
        &self,
        live: &std::sync::Arc<Live>,
        inner: &mut Inner,
        journal: &JournalId,
    ) -> Option<Prepared> {
        let attempt = inner.attempt.as_ref()?;
        let node = attempt.node.clone();
        if inner.invocation.state.is_finished() {
            return None;
        }
        if attempt.journal == *journal {
            // The journal remembers everything that was accepted, so this was not.
            let cancelled = matches!(inner.invocation.state, State::Terminating { .. });
            if cancelled {
                let last = Final::without_run(Outcome::Cancelled, "cancelled; its node never accepted it");
                self.finish(inner, last);
                return None;
            }
            if inner.plan.class == Class::Dangerous {
                let last = Final::without_run(Outcome::NotStarted, "its node never accepted it");
                self.finish(inner, last);
                return None;
            }
            return self.requeue(live, inner, None, "its node never accepted it");
        }
        let reason = "the node restarted and does not know the attempt any more";
        self.lose(live, inner, &node, reason, Duration::ZERO)
    }

    /// A node's lease ended.
    pub(crate) async fn node_lost(&self, node: &Node, silent: Duration) {
        let reason = format!("no message from {} for {} s", node.name, silent.as_secs());
        let mut prepared = Vec::new();
        for live in self.all() {
            let mut inner = live.inner();
            if inner.attempt.as_ref().is_some_and(|attempt| attempt.node == node.id && !attempt.lost) {
                prepared.extend(self.lose(
                    &live,
                    &mut inner,
                    &node.id,
                    &reason,
                    self.config.timings.unknown_after,
                ));
            }
        }
        self.send_all(prepared).await;
    }

    /// The node of an attempt is lost. What may run again does, elsewhere; the rest is unknown after a while.
    fn lose(
        &self,
        live: &std::sync::Arc<Live>,
        inner: &mut Inner,
        node: &NodeId,
        reason: &str,
        unknown_after: Duration,
    ) -> Option<Prepared> {
        if inner.invocation.state.is_finished() {
            return None;
        }
        let number = inner.invocation.attempts;
        let lost = EventKind::NodeLost { node: node.clone(), attempt: number, reason: reason.to_owned() };
        self.record(inner, [lost]);
        if let Some(attempt) = &mut inner.attempt {
            attempt.lost = true;
        }
        let terminating = matches!(inner.invocation.state, State::Terminating { .. });
        if !terminating && inner.may_run_again() && inner.retries < limits::SAFE_RETRIES {
            let digest = inner.invocation.digest?;
            // Only when another node stands ready: the lost one may come back with the result.
            if self.admission().reroute(&inner.invocation.request, digest, &[]).is_some() {
                inner.retries += 1;
                return self.requeue(live, inner, None, reason);
            }
        }
        if unknown_after.is_zero() {
            self.give_up(inner, reason);
        } else {
            inner.unknown_at = Some(Instant::now() + unknown_after);
        }
        None
    }

    fn give_up(&self, inner: &mut Inner, reason: &str) {
        let mut last = Final::without_run(Outcome::Unknown, format!("{reason}; it may have run"));
        last.attempt = inner.invocation.attempts;
        self.finish(inner, last);
    }

    /// What time alone brings about.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for live in self.all() {
            let (abandoned, forget) = {
                let mut inner = live.inner();
                if inner.unknown_at.is_some_and(|at| at <= now) {
                    self.give_up(&mut inner, "its node did not come back");
                }
                let unwatched = now.duration_since(inner.unwatched_since);
                let abandoned = inner.watchers == 0
                    && inner.needs_watcher()
                    && unwatched >= self.config.timings.unwatched;
                (abandoned, inner.ended_at.is_some_and(|at| now.duration_since(at) > RESOLVABLE))
            };
            if abandoned {
                self.cancel_live(&live, "nobody watched it");
            }
            if forget {
                self.live.remove(&live.id);
            }
        }
    }
}
