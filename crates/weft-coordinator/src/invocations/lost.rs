//! Nodes that come back, and nodes that do not.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use weft_core::{
    event::EventKind,
    ids::{JournalId, NodeId},
    invocation::{State, Trigger},
    limits,
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
use crate::nodes::{Lost, Presence};

/// How long an invocation whose outcome is unknown can still be resolved.
const RESOLVABLE: Duration = Duration::from_secs(24 * 3600);
/// How much longer than it may take a node is given to say that it has accepted, started or ended something: stop
/// grace, kill confirmation, and what waits on the link.
const OVERDUE: Duration = Duration::from_secs(300);

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
                attempt.accepted = true;
                attempt.lost = false;
                attempt.since = Instant::now();
                if !inner.invocation.state.is_finished() {
                    // The registry may have forgotten the node meanwhile, and its places with it.
                    let place = self.nodes.take_place(node);
                    if let Some(attempt) = &mut inner.attempt {
                        attempt.place = place;
                    }
                }
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
                epoch,
                Message::Cancel(link::Cancel {
                    invocation_id: invocation.to_string(),
                    attempt,
                    reason: "the coordinator does not know this attempt".into(),
                }),
            );
        }
        self.send_all(prepared).await;
    }

    /// Whether any of these attempts is one that has not ended here.
    pub(crate) fn knows_any(&self, in_hand: &InHand) -> bool {
        in_hand.keys().any(|(id, _)| self.live.contains_key(id))
    }

    /// An attempt that its node does not have in hand.
    fn settle(&self, live: &Arc<Live>, inner: &mut Inner, journal: &JournalId) -> Option<Prepared> {
        let attempt = inner.attempt.as_ref()?;
        let node = attempt.node.clone();
        if inner.invocation.state.is_finished() {
            return None;
        }
        if attempt.journal == *journal && !attempt.started {
            // The journal remembers everything that was accepted, so this was not.
            if matches!(inner.invocation.state, State::Terminating { .. }) {
                self.finish(
                    inner,
                    Final::without_run(Outcome::Cancelled, "cancelled; its node never accepted it"),
                );
                return None;
            }
            let last = Final::without_run(Outcome::NotStarted, "its node never accepted it");
            return self.never_started(live, inner, None, last);
        }
        self.lose(
            live,
            inner,
            &node,
            "the node restarted and does not know the attempt any more",
            Duration::ZERO,
        )
    }

    /// A node's lease ended.
    pub(crate) async fn node_lost(&self, lost: &Lost) {
        let node = &lost.node;
        let reason = format!("no message from {} for {} s", node.name, lost.silent.as_secs());
        let mut prepared = Vec::new();
        for live in self.all() {
            let mut inner = live.inner();
            // An attempt that a newer session has taken up is not lost.
            let ours = inner.attempt.as_ref().is_some_and(|attempt| {
                attempt.node == node.id && attempt.epoch <= lost.epoch && !attempt.lost
            });
            if ours {
                let wait = self.config.timings.unknown_after;
                prepared.extend(self.lose(&live, &mut inner, &node.id, &reason, wait));
            }
        }
        self.send_all(prepared).await;
    }

    /// The node of an attempt is lost. What may run again does, elsewhere, as soon as there is a node for it; the
    /// rest is unknown after a while.
    fn lose(
        &self,
        live: &Arc<Live>,
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
        let again = self.run_again(live, inner, reason);
        if again.is_some() {
            return again;
        }
        if unknown_after.is_zero() && !wants_again(inner) {
            self.give_up(inner, reason);
        } else {
            inner.unknown_at = Some(Instant::now() + unknown_after.max(self.config.timings.unknown_after));
        }
        None
    }

    /// Runs a lost attempt again, when that does no harm and another node stands ready.
    fn run_again(&self, live: &Arc<Live>, inner: &mut Inner, reason: &str) -> Option<Prepared> {
        let attempt = inner.invocation.attempts;
        wants_again(inner).then(|| self.move_on(live, inner, Trigger::RunAgain { attempt }, reason)).flatten()
    }

    fn give_up(&self, inner: &mut Inner, reason: &str) {
        let mut last = Final::without_run(Outcome::Unknown, format!("{reason}; it may have run"));
        last.attempt = inner.invocation.attempts;
        self.finish(inner, last);
    }

    /// What time alone brings about.
    pub(crate) async fn sweep(&self) {
        let now = Instant::now();
        let mut prepared = Vec::new();
        for live in self.all() {
            let (abandoned, forget) = {
                let mut inner = live.inner();
                if inner.attempt.as_ref().is_some_and(|attempt| attempt.lost) {
                    prepared.extend(self.run_again(&live, &mut inner, "its node is lost"));
                }
                if inner.unknown_at.is_some_and(|at| at <= now) {
                    self.give_up(&mut inner, "its node did not come back");
                } else if self.is_overdue(&inner, now) {
                    self.give_up(&mut inner, "its node is there, but does not say what became of it");
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
        self.send_all(prepared).await;
    }

    /// Whether a connected node has kept silent about an attempt for longer than it can take.
    fn is_overdue(&self, inner: &Inner, now: Instant) -> bool {
        let Some(attempt) = inner.attempt.as_ref().filter(|attempt| !attempt.lost) else { return false };
        if inner.invocation.state.is_finished() {
            return false;
        }
        let may_take = match attempt.started {
            true => inner.plan.budget,
            false => self.config.timings.queue_wait,
        };
        now.duration_since(attempt.since) > may_take + OVERDUE
            && self.nodes.view(&attempt.node).is_some_and(|view| view.presence != Presence::Disconnected)
    }
}

/// Whether a lost attempt is to be made again.
fn wants_again(inner: &Inner) -> bool {
    let moving = !matches!(inner.invocation.state, State::Terminating { .. } | State::Finished { .. });
    moving && inner.may_run_again() && inner.retries < limits::SAFE_RETRIES
}
