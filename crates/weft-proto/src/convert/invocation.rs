//! Invocations, their events and their ends.

use bytes::{Buf as _, Bytes};
use weft_core::{
    event::{Event, EventKind, News},
    ids::SkillKey,
    invocation::{Invocation, State},
    limits,
    outcome::{Exit, Final, Outcome, ResultBody},
    policy::{Evidence, PermissionMode},
    trace::TraceContext,
};

use super::{
    Malformed,
    catalog::{bounded, class_from_wire},
    digest, duration_from_wire, duration_to_wire, parse, parse_optional, required, timestamp_from_wire,
    timestamp_to_wire,
};
use crate::{link, v1};

impl From<Outcome> for v1::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Failed => Self::Failed,
            Outcome::InvalidOutput => Self::InvalidOutput,
            Outcome::OutputTooLarge => Self::OutputTooLarge,
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Denied => Self::Denied,
            Outcome::NotStarted => Self::NotStarted,
            Outcome::Unknown => Self::Unknown,
        }
    }
}

/// An outcome from the wire. One that is not known claims nothing: `UNKNOWN`.
impl From<v1::Outcome> for Outcome {
    fn from(outcome: v1::Outcome) -> Self {
        match outcome {
            v1::Outcome::Succeeded => Self::Succeeded,
            v1::Outcome::Failed => Self::Failed,
            v1::Outcome::InvalidOutput => Self::InvalidOutput,
            v1::Outcome::OutputTooLarge => Self::OutputTooLarge,
            v1::Outcome::TimedOut => Self::TimedOut,
            v1::Outcome::Cancelled => Self::Cancelled,
            v1::Outcome::Denied => Self::Denied,
            v1::Outcome::NotStarted => Self::NotStarted,
            v1::Outcome::Unknown | v1::Outcome::Unspecified => Self::Unknown,
        }
    }
}

impl From<State> for v1::InvocationState {
    fn from(state: State) -> Self {
        match state {
            State::Routing => Self::Routing,
            State::PendingApproval => Self::PendingApproval,
            State::Queued => Self::Queued,
            State::Dispatched { .. } => Self::Dispatched,
            State::Accepted { .. } => Self::Accepted,
            State::Running { .. } => Self::Running,
            State::Terminating { .. } => Self::Terminating,
            State::Finished { .. } => Self::Finished,
        }
    }
}

impl From<&Invocation> for v1::Invocation {
    fn from(invocation: &Invocation) -> Self {
        let request = &invocation.request;
        let outcome = match invocation.state {
            State::Finished { outcome, .. } => outcome.into(),
            State::Routing
            | State::PendingApproval
            | State::Queued
            | State::Dispatched { .. }
            | State::Accepted { .. }
            | State::Running { .. }
            | State::Terminating { .. } => v1::Outcome::Unspecified,
        };
        Self {
            id: invocation.id.to_string(),
            skill: request.skill.to_string(),
            class: v1::SkillClass::from(invocation.class).into(),
            caller: request.caller.to_string(),
            agent: request.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
            request_id: request.request_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            state: v1::InvocationState::from(invocation.state).into(),
            outcome: outcome.into(),
            node_id: invocation.node.as_ref().map(ToString::to_string).unwrap_or_default(),
            digest: invocation.digest.as_ref().map(ToString::to_string).unwrap_or_default(),
            attempts: invocation.attempts,
            create_time: Some(timestamp_to_wire(invocation.created)),
            finish_time: invocation.finished.map(timestamp_to_wire),
            last_sequence: invocation.last_sequence,
        }
    }
}

impl From<&Final> for v1::Finished {
    fn from(last: &Final) -> Self {
        Self {
            outcome: v1::Outcome::from(last.outcome).into(),
            message: last.message.clone(),
            started: last.started,
            exit: last.exit.map(|exit| v1::ProcessExit {
                exit: Some(match exit {
                    Exit::Code(code) => v1::process_exit::Exit::Code(code),
                    Exit::Signal(signal) => v1::process_exit::Exit::Signal(signal),
                }),
            }),
            duration: Some(duration_to_wire(last.duration)),
            stdout_bytes: last.stdout_bytes,
            stderr_bytes: last.stderr_bytes,
            dropped_bytes: last.dropped_bytes,
            node_id: last.node.as_ref().map(ToString::to_string).unwrap_or_default(),
            digest: last.digest.as_ref().map(ToString::to_string).unwrap_or_default(),
            attempt: last.attempt,
            leftovers_killed: last.leftovers_killed,
            stderr_tail: last.stderr_tail.clone(),
            stdout_tail: last.stdout_tail.clone(),
            result: match &last.result {
                ResultBody::None => None,
                ResultBody::Inline(bytes) => Some(v1::finished::Result::Inline(bytes.clone())),
                ResultBody::Chunked { size, digest } => {
                    Some(v1::finished::Result::Chunked(v1::ChunkedResult {
                        size: *size,
                        digest: digest.to_string(),
                    }))
                }
            },
            resolves: last.resolves,
        }
    }
}

impl TryFrom<v1::Finished> for Final {
    type Error = Malformed;

    fn try_from(mut message: v1::Finished) -> Result<Self, Malformed> {
        if let Some(v1::finished::Result::Inline(bytes)) = &message.result
            && bytes.len() > limits::INLINE_RESULT_BYTES
        {
            return Err(Malformed::new("inline", "a result this large travels in chunks"));
        }
        for tail in [&mut message.stderr_tail, &mut message.stdout_tail] {
            tail.advance(tail.len().saturating_sub(limits::TAIL_BYTES));
        }
        bounded("message", &message.message, limits::TAIL_BYTES)?;
        Ok(Self {
            outcome: message.outcome().into(),
            started: message.started,
            exit: message.exit.and_then(|exit| exit.exit).map(|exit| match exit {
                v1::process_exit::Exit::Code(code) => Exit::Code(code),
                v1::process_exit::Exit::Signal(signal) => Exit::Signal(signal),
            }),
            duration: duration_from_wire("duration", message.duration.unwrap_or_default())?,
            stdout_bytes: message.stdout_bytes,
            stderr_bytes: message.stderr_bytes,
            dropped_bytes: message.dropped_bytes,
            node: parse_optional("node_id", &message.node_id)?,
            digest: parse_optional("digest", &message.digest)?,
            attempt: message.attempt,
            leftovers_killed: message.leftovers_killed,
            message: message.message,
            stderr_tail: own(message.stderr_tail),
            stdout_tail: own(message.stdout_tail),
            result: match message.result {
                None => ResultBody::None,
                Some(v1::finished::Result::Inline(bytes)) => ResultBody::Inline(own(bytes)),
                Some(v1::finished::Result::Chunked(chunked)) => ResultBody::Chunked {
                    size: chunked.size,
                    digest: parse("chunked.digest", &chunked.digest)?,
                },
            },
            resolves: message.resolves,
        })
    }
}

impl From<&Event> for v1::InvocationEvent {
    fn from(event: &Event) -> Self {
        Self {
            sequence: event.sequence,
            time: Some(timestamp_to_wire(event.time)),
            event: Some((&event.kind).into()),
        }
    }
}

impl From<&EventKind> for v1::invocation_event::Event {
    fn from(kind: &EventKind) -> Self {
        match kind {
            EventKind::Admitted { skill, class } => Self::Admitted(v1::Admitted {
                skill: skill.to_string(),
                class: v1::SkillClass::from(*class).into(),
            }),
            EventKind::ApprovalPending { needed } => {
                Self::ApprovalPending(v1::ApprovalPending { needed: *needed })
            }
            EventKind::ApprovalDecided { approved, note } => {
                Self::ApprovalDecided(v1::ApprovalDecided { approved: *approved, note: note.clone() })
            }
            EventKind::Queued { reason } => Self::Queued(v1::Queued { reason: reason.clone() }),
            EventKind::Dispatched { node, attempt, digest } => Self::Dispatched(v1::Dispatched {
                node_id: node.to_string(),
                attempt: *attempt,
                digest: digest.to_string(),
            }),
            EventKind::Started { attempt, pid } => {
                Self::Started(v1::Started { attempt: *attempt, pid: *pid })
            }
            EventKind::Stderr { offset, bytes } => {
                Self::Stderr(v1::Stderr { offset: *offset, data: bytes.clone() })
            }
            EventKind::Progress { done, total, text } => {
                Self::Progress(v1::Progress { done: *done, total: *total, text: text.clone() })
            }
            EventKind::OutputChunk { offset, bytes } => {
                Self::OutputChunk(v1::OutputChunk { offset: *offset, data: bytes.clone() })
            }
            EventKind::NodeLost { node, attempt, reason } => Self::NodeLost(v1::NodeLost {
                node_id: node.to_string(),
                attempt: *attempt,
                reason: reason.clone(),
            }),
            EventKind::Gap { node_from, node_to, bytes } => {
                Self::Gap(v1::Gap { node_from: *node_from, node_to: *node_to, bytes: *bytes })
            }
            EventKind::Finished(last) => Self::Finished((&**last).into()),
        }
    }
}

/// An event from the wire; `None` for a kind that this side does not know, which readers ignore.
///
/// # Errors
/// When a field is malformed.
pub fn event_from_wire(event: v1::InvocationEvent) -> Result<Option<Event>, Malformed> {
    use v1::invocation_event::Event as Wire;
    let time = timestamp_from_wire("time", required("time", event.time)?)?;
    let kind = match event.event {
        None => return Ok(None),
        Some(Wire::Admitted(admitted)) => EventKind::Admitted {
            class: class_from_wire(admitted.class),
            skill: SkillKey::normalise(&admitted.skill).map_err(|error| Malformed::new("skill", error))?,
        },
        Some(Wire::ApprovalPending(pending)) => EventKind::ApprovalPending { needed: pending.needed },
        Some(Wire::ApprovalDecided(decided)) => {
            EventKind::ApprovalDecided { approved: decided.approved, note: decided.note }
        }
        Some(Wire::Queued(queued)) => EventKind::Queued { reason: queued.reason },
        Some(Wire::Dispatched(dispatched)) => EventKind::Dispatched {
            node: parse("node_id", &dispatched.node_id)?,
            attempt: dispatched.attempt,
            digest: parse("digest", &dispatched.digest)?,
        },
        Some(Wire::NodeLost(lost)) => EventKind::NodeLost {
            node: parse("node_id", &lost.node_id)?,
            attempt: lost.attempt,
            reason: lost.reason,
        },
        Some(Wire::Started(started)) => EventKind::Started { attempt: started.attempt, pid: started.pid },
        Some(Wire::Stderr(stderr)) => EventKind::Stderr { offset: stderr.offset, bytes: stderr.data },
        Some(Wire::Progress(progress)) => {
            EventKind::Progress { done: progress.done, total: progress.total, text: progress.text }
        }
        Some(Wire::OutputChunk(chunk)) => EventKind::OutputChunk { offset: chunk.offset, bytes: chunk.data },
        Some(Wire::Gap(gap)) => {
            EventKind::Gap { node_from: gap.node_from, node_to: gap.node_to, bytes: gap.bytes }
        }
        Some(Wire::Finished(finished)) => EventKind::Finished(Box::new(finished.try_into()?)),
    };
    Ok(Some(Event { sequence: event.sequence, time, kind }))
}

impl From<&News> for link::node_event::Event {
    fn from(news: &News) -> Self {
        match news {
            News::Accepted { queued_before } => {
                Self::Accepted(link::Accepted { queued_before: *queued_before })
            }
            News::Event(kind) => match v1::invocation_event::Event::from(kind) {
                v1::invocation_event::Event::Started(started) => Self::Started(started),
                v1::invocation_event::Event::Stderr(stderr) => Self::Stderr(stderr),
                v1::invocation_event::Event::Progress(progress) => Self::Progress(progress),
                v1::invocation_event::Event::OutputChunk(chunk) => Self::OutputChunk(chunk),
                v1::invocation_event::Event::Gap(gap) => Self::Gap(gap),
                v1::invocation_event::Event::Finished(finished) => Self::Finished(finished),
                v1::invocation_event::Event::Admitted(_)
                | v1::invocation_event::Event::ApprovalPending(_)
                | v1::invocation_event::Event::ApprovalDecided(_)
                | v1::invocation_event::Event::Queued(_)
                | v1::invocation_event::Event::Dispatched(_)
                | v1::invocation_event::Event::NodeLost(_) => {
                    unreachable!("only a coordinator records this, a node never tells it")
                }
            },
        }
    }
}

/// What a node tells; `None` for a kind that this side does not know.
///
/// # Errors
/// When a field is malformed.
pub fn news_from_wire(event: Option<link::node_event::Event>) -> Result<Option<News>, Malformed> {
    use link::node_event::Event as Wire;
    Ok(Some(match event {
        None => return Ok(None),
        Some(Wire::Accepted(accepted)) => News::Accepted { queued_before: accepted.queued_before },
        Some(Wire::Started(started)) => {
            News::Event(EventKind::Started { attempt: started.attempt, pid: started.pid })
        }
        Some(Wire::Stderr(stderr)) => {
            News::Event(EventKind::Stderr { offset: stderr.offset, bytes: own(stderr.data) })
        }
        Some(Wire::Progress(progress)) => {
            bounded("progress.text", &progress.text, limits::DESCRIPTION_BYTES)?;
            News::Event(EventKind::Progress {
                done: progress.done,
                total: progress.total,
                text: progress.text,
            })
        }
        Some(Wire::OutputChunk(chunk)) => {
            News::Event(EventKind::OutputChunk { offset: chunk.offset, bytes: chunk.data })
        }
        Some(Wire::Gap(gap)) => {
            News::Event(EventKind::Gap { node_from: gap.node_from, node_to: gap.node_to, bytes: gap.bytes })
        }
        Some(Wire::Finished(finished)) => News::Event(EventKind::Finished(Box::new(finished.try_into()?))),
    }))
}

/// Bytes that will be kept. A few are copied: as a part of what the transport read they would keep all of that.
pub fn own(bytes: Bytes) -> Bytes {
    const FEW: usize = 16 * 1024;
    if bytes.len() < FEW { Bytes::copy_from_slice(&bytes) } else { bytes }
}

/// The wire form of a trace context.
pub fn trace_to_wire(trace: &TraceContext) -> link::TraceContext {
    link::TraceContext { traceparent: trace.traceparent().into(), tracestate: trace.tracestate().into() }
}

/// The trace context in a message; `None` when there is none, or none that is sound.
pub fn trace_from_wire(message: Option<&link::TraceContext>) -> Option<TraceContext> {
    message.and_then(|trace| TraceContext::parse(&trace.traceparent, &trace.tracestate))
}

/// The wire form of what speaks for an attempt.
pub fn authorisation_to_wire(mode: PermissionMode, evidence: Evidence) -> link::Authorisation {
    link::Authorisation {
        permission_mode: mode.as_str().to_owned(),
        confirmations: evidence.confirmations,
        signatures: evidence.signatures,
        operator_allows: evidence.operator_allows.map_or(v1::SkillClass::Unspecified, Into::into).into(),
    }
}

/// What speaks for an attempt. Whatever is missing or not known speaks for nothing.
pub fn authorisation_from_wire(message: Option<link::Authorisation>) -> (PermissionMode, Evidence) {
    let message = message.unwrap_or_default();
    let operator_allows = match message.operator_allows() {
        v1::SkillClass::Unspecified => None,
        v1::SkillClass::Safe => Some(weft_core::skill::Class::Safe),
        v1::SkillClass::Mutating => Some(weft_core::skill::Class::Mutating),
        v1::SkillClass::Dangerous => Some(weft_core::skill::Class::Dangerous),
    };
    let evidence =
        Evidence { confirmations: message.confirmations, signatures: message.signatures, operator_allows };
    (PermissionMode::from_word(&message.permission_mode), evidence)
}

/// A class from the wire; a number that is not known, or none, means dangerous.
pub fn class(number: i32) -> weft_core::skill::Class {
    class_from_wire(number)
}

/// The digest of a dispatch.
///
/// # Errors
/// When it is no SHA-256.
pub fn dispatch_digest(dispatch: &link::Dispatch) -> Result<weft_core::ids::Digest, Malformed> {
    digest("digest", &dispatch.digest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use proptest::prelude::*;
    use weft_core::{ids::Digest, skill::Class};

    use super::*;

    fn last() -> Final {
        Final {
            outcome: Outcome::Failed,
            message: "exit code 3".into(),
            started: Some(true),
            exit: Some(Exit::Code(3)),
            duration: Duration::from_micros(1_234_567),
            stdout_bytes: 1,
            stderr_bytes: 2,
            dropped_bytes: 3,
            node: Some("n1".parse().unwrap()),
            digest: Some(Digest::of(b"x")),
            attempt: 2,
            leftovers_killed: 1,
            stderr_tail: Bytes::from_static(b"\xff tail"),
            stdout_tail: Bytes::from_static(b"{"),
            result: ResultBody::Chunked { size: 9, digest: Digest::of(b"y") },
            resolves: true,
        }
    }

    fn kind() -> impl Strategy<Value = EventKind> {
        let bytes = prop::collection::vec(any::<u8>(), 0..50).prop_map(Bytes::from);
        prop_oneof![
            Just(EventKind::Admitted { skill: SkillKey::normalise("a_b").unwrap(), class: Class::Mutating }),
            any::<u32>().prop_map(|needed| EventKind::ApprovalPending { needed }),
            (any::<bool>(), ".*").prop_map(|(approved, note)| EventKind::ApprovalDecided { approved, note }),
            ".*".prop_map(|reason| EventKind::Queued { reason }),
            any::<u32>().prop_map(|attempt| EventKind::Dispatched {
                node: "n".parse().unwrap(),
                attempt,
                digest: Digest::of(b"")
            }),
            (any::<u32>(), any::<u32>()).prop_map(|(attempt, pid)| EventKind::Started { attempt, pid }),
            (any::<u64>(), bytes.clone()).prop_map(|(offset, bytes)| EventKind::Stderr { offset, bytes }),
            (any::<u64>(), any::<u64>(), ".*").prop_map(|(done, total, text)| EventKind::Progress {
                done,
                total,
                text
            }),
            (any::<u64>(), bytes).prop_map(|(offset, bytes)| EventKind::OutputChunk { offset, bytes }),
            ".*".prop_map(|reason| EventKind::NodeLost { node: "n".parse().unwrap(), attempt: 1, reason }),
            (any::<u64>(), any::<u64>(), any::<u64>())
                .prop_map(|(node_from, node_to, bytes)| EventKind::Gap { node_from, node_to, bytes }),
            Just(EventKind::Finished(Box::new(last()))),
        ]
    }

    proptest! {
        #[test]
        fn events_survive_the_wire(kind in kind(), sequence in any::<u64>()) {
            let event = Event { sequence, time: "2026-11-30T12:00:00.123456789Z".parse().unwrap(), kind };
            prop_assert_eq!(event_from_wire((&event).into()).unwrap(), Some(event));
        }
    }

    #[test]
    fn missing_authorisation_speaks_for_nothing() {
        assert_eq!(authorisation_from_wire(None), (PermissionMode::ReadOnly, Evidence::default()));
        let evidence = Evidence { operator_allows: Some(Class::Mutating), ..Evidence::default() };
        let wire = authorisation_to_wire(PermissionMode::DualSignRequired, evidence);
        assert_eq!(authorisation_from_wire(Some(wire)), (PermissionMode::DualSignRequired, evidence));
    }
}
