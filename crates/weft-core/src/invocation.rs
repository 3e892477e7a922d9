//! The life of one invocation, as a state machine with one function for every transition.
//!
//! ```text
//! Routing → PendingApproval → Queued → Dispatched → Accepted → Running → Terminating → Finished
//!                               ↑__________|____________|__________|  (re-dispatch)
//! ```

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;

use crate::{
    ids::{AgentId, CallerId, Digest, InvocationId, NodeId, RequestId, SessionId, SkillKey},
    node::Target,
    outcome::Outcome,
    skill::Class,
};

/// Where an invocation is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Its node is being chosen.
    Routing,
    /// People have to agree.
    PendingApproval,
    /// It waits to be handed to a node.
    Queued,
    /// Handed to a node, which has not answered.
    Dispatched {
        /// The attempt, from 1.
        attempt: u32,
    },
    /// In the node's journal, not started.
    Accepted {
        /// The attempt.
        attempt: u32,
    },
    /// The process runs.
    Running {
        /// The attempt.
        attempt: u32,
    },
    /// It is being ended.
    Terminating {
        /// The attempt.
        attempt: u32,
    },
    /// It has ended.
    Finished {
        /// How.
        outcome: Outcome,
        /// It was `UNKNOWN` and the truth came later; no other truth can follow.
        resolved: bool,
    },
}

/// What makes an invocation move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A node is chosen and people have to agree.
    ApprovalNeeded,
    /// A node is chosen, or the people agreed: it can be handed over.
    Ready,
    /// Handed to a node.
    Dispatch {
        /// The new attempt, one more than the last.
        attempt: u32,
    },
    /// The node has it in its journal.
    Accept {
        /// The attempt that the node speaks of.
        attempt: u32,
    },
    /// The node started the process.
    Start {
        /// The attempt that the node speaks of.
        attempt: u32,
    },
    /// It is to be ended.
    Terminate,
    /// The attempt provably never started, and a new one may be made.
    Requeue {
        /// The attempt that is void.
        attempt: u32,
    },
    /// The attempt is lost, and the skill does no harm when it runs again.
    RunAgain {
        /// The attempt that is void.
        attempt: u32,
    },
    /// It ended.
    Finish {
        /// How.
        outcome: Outcome,
    },
}

/// A trigger that has no meaning in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{trigger:?} is not possible in state {state:?}")]
pub struct IllegalTransition {
    /// The state.
    pub state: State,
    /// What was tried.
    pub trigger: Trigger,
}

impl State {
    /// The attempt that is under way.
    pub const fn attempt(self) -> Option<u32> {
        match self {
            Self::Dispatched { attempt }
            | Self::Accepted { attempt }
            | Self::Running { attempt }
            | Self::Terminating { attempt } => Some(attempt),
            Self::Routing | Self::PendingApproval | Self::Queued | Self::Finished { .. } => None,
        }
    }

    /// Whether it has ended.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Finished { .. })
    }

    /// The state after a trigger. The only place where an invocation changes state.
    ///
    /// # Errors
    /// When the trigger has no meaning here; the state stays.
    pub fn on(self, trigger: Trigger) -> Result<Self, IllegalTransition> {
        use State::{Accepted, Dispatched, Finished, PendingApproval, Queued, Routing, Running, Terminating};
        let illegal = Err(IllegalTransition { state: self, trigger });
        match (self, trigger) {
            (Routing, Trigger::ApprovalNeeded) => Ok(PendingApproval),
            (Routing | PendingApproval, Trigger::Ready) => Ok(Queued),
            (Queued, Trigger::Dispatch { attempt }) => Ok(Dispatched { attempt }),

            // A node speaks of the attempt that it was given, and only forward.
            (Dispatched { attempt }, Trigger::Accept { attempt: said }) if attempt == said => {
                Ok(Accepted { attempt })
            }
            (Dispatched { attempt } | Accepted { attempt }, Trigger::Start { attempt: said })
                if attempt == said =>
            {
                Ok(Running { attempt })
            }
            // A cancel may overtake the news that the attempt was accepted or started.
            (
                Terminating { attempt },
                Trigger::Accept { attempt: said } | Trigger::Start { attempt: said },
            ) if attempt == said => Ok(self),

            (
                Dispatched { attempt } | Accepted { attempt } | Running { attempt } | Terminating { attempt },
                Trigger::Terminate,
            ) => Ok(Terminating { attempt }),

            // Nothing that is being ended is tried again, and what has started is never said not to have.
            (Dispatched { attempt } | Accepted { attempt }, Trigger::Requeue { attempt: void })
            | (
                Dispatched { attempt } | Accepted { attempt } | Running { attempt },
                Trigger::RunAgain { attempt: void },
            ) if attempt == void => Ok(Queued),

            (
                Routing
                | PendingApproval
                | Queued
                | Dispatched { .. }
                | Accepted { .. }
                | Running { .. }
                | Terminating { .. },
                Trigger::Finish { outcome },
            ) => Ok(Finished { outcome, resolved: false }),
            // The truth may come late, once, and only where nobody knew it.
            (Finished { outcome: Outcome::Unknown, resolved: false }, Trigger::Finish { outcome })
                if outcome != Outcome::Unknown =>
            {
                Ok(Finished { outcome, resolved: true })
            }

            (
                Routing
                | PendingApproval
                | Queued
                | Dispatched { .. }
                | Accepted { .. }
                | Running { .. }
                | Terminating { .. }
                | Finished { .. },
                _,
            ) => illegal,
        }
    }

    /// The word used on the command line and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Routing => "ROUTING",
            Self::PendingApproval => "PENDING_APPROVAL",
            Self::Queued => "QUEUED",
            Self::Dispatched { .. } => "DISPATCHED",
            Self::Accepted { .. } => "ACCEPTED",
            Self::Running { .. } => "RUNNING",
            Self::Terminating { .. } => "TERMINATING",
            Self::Finished { .. } => "FINISHED",
        }
    }
}

/// What a caller asked for: the part of an invocation that never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Who asked.
    pub caller: CallerId,
    /// The caller's own id of the request.
    pub request_id: Option<RequestId>,
    /// For which agent.
    pub agent: Option<AgentId>,
    /// The skill.
    pub skill: SkillKey,
    /// The digest that the caller insists on.
    pub pinned: Option<Digest>,
    /// The session that it belongs to.
    pub session: Option<SessionId>,
    /// The digests of which its session lets it run one, that of the variant shown first. Empty: any.
    pub among: Arc<[Digest]>,
    /// The args, exactly as they came. A store may forget them once the invocation has ended.
    pub args: Bytes,
    /// The digest of the args, which outlives them.
    pub args_digest: Digest,
    /// Where it may run.
    pub target: Target,
    /// The longest run that the caller wants; the manifest may say less.
    pub budget: Option<Duration>,
    /// Goes on without a watcher, also when the skill is safe.
    pub detach: bool,
}

impl Request {
    /// Whether a second request under the same id asks for the same thing. The budget and the way of watching may
    /// differ: they do not change what is done.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        (&self.agent, &self.skill, &self.pinned, &self.args_digest, &self.target)
            == (&other.agent, &other.skill, &other.pinned, &other.args_digest, &other.target)
    }
}

/// What is known of an invocation at one moment, without its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Its id.
    pub id: InvocationId,
    /// What was asked for.
    pub request: Request,
    /// The class that the policy judged.
    pub class: Class,
    /// Where it is in its life.
    pub state: State,
    /// The node of the current or last attempt.
    pub node: Option<NodeId>,
    /// The digest of the current or last attempt.
    pub digest: Option<Digest>,
    /// Attempts made so far.
    pub attempts: u32,
    /// When it was admitted.
    pub created: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// The sequence of its last event.
    pub last_sequence: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trigger() -> impl Strategy<Value = Trigger> {
        let outcome = prop_oneof![
            Just(Outcome::Succeeded),
            Just(Outcome::Failed),
            Just(Outcome::Cancelled),
            Just(Outcome::NotStarted),
            Just(Outcome::Unknown)
        ];
        prop_oneof![
            Just(Trigger::ApprovalNeeded),
            Just(Trigger::Ready),
            (1u32..4).prop_map(|attempt| Trigger::Dispatch { attempt }),
            (1u32..4).prop_map(|attempt| Trigger::Accept { attempt }),
            (1u32..4).prop_map(|attempt| Trigger::Start { attempt }),
            Just(Trigger::Terminate),
            (1u32..4).prop_map(|attempt| Trigger::Requeue { attempt }),
            (1u32..4).prop_map(|attempt| Trigger::RunAgain { attempt }),
            outcome.prop_map(|outcome| Trigger::Finish { outcome }),
        ]
    }

    proptest! {
        #[test]
        fn no_story_changes_a_known_end_or_resolves_twice(story in prop::collection::vec(trigger(), 0..40)) {
            let mut state = State::Routing;
            let mut ends = Vec::new();
            for trigger in story {
                let Ok(next) = state.on(trigger) else { continue };
                if let State::Finished { outcome, .. } = next { ends.push(outcome) }
                prop_assert!(!state.is_finished() || next.is_finished());
                state = next;
            }
            prop_assert!(ends.len() <= 2);
            if let [first, second] = ends[..] {
                prop_assert_eq!(first, Outcome::Unknown);
                prop_assert_ne!(second, Outcome::Unknown);
            }
        }

        #[test]
        fn news_of_another_attempt_changes_nothing(story in prop::collection::vec(trigger(), 0..40)) {
            let mut state = State::Routing;
            for trigger in story {
                if let (Trigger::Accept { attempt } | Trigger::Start { attempt } | Trigger::Requeue { attempt }, current) =
                    (trigger, state.attempt())
                    && current != Some(attempt)
                {
                    prop_assert!(state.on(trigger).is_err());
                }
                state = state.on(trigger).unwrap_or(state);
            }
        }
    }

    #[test]
    fn what_has_started_cannot_be_said_not_to_have() {
        let running = State::Running { attempt: 1 };
        assert!(running.on(Trigger::Requeue { attempt: 1 }).is_err());
        assert_eq!(running.on(Trigger::RunAgain { attempt: 1 }), Ok(State::Queued));
    }

    #[test]
    fn the_usual_story_is_legal() {
        let mut state = State::Routing;
        for trigger in [
            Trigger::Ready,
            Trigger::Dispatch { attempt: 1 },
            Trigger::Accept { attempt: 1 },
            Trigger::Requeue { attempt: 1 },
            Trigger::Dispatch { attempt: 2 },
            Trigger::Start { attempt: 2 },
            Trigger::Terminate,
            Trigger::Finish { outcome: Outcome::Cancelled },
        ] {
            state = state.on(trigger).unwrap();
        }
        assert_eq!(state, State::Finished { outcome: Outcome::Cancelled, resolved: false });
        assert!(state.on(Trigger::Finish { outcome: Outcome::Succeeded }).is_err());
    }
}
