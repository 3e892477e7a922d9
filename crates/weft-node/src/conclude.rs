//! From how a process ended to what that means for the invocation.

use std::time::Duration;

use bytes::Bytes;
use weft_core::{
    ids::Digest,
    limits,
    outcome::{Exit, Final, Outcome, ResultBody, check_output},
    schema::Schema,
    skill::Definition,
    text,
};
use weft_exec::{Ending, Report, StopReason};

/// The end of an attempt: its final record, and the result that comes before it when it is large.
#[derive(Debug)]
pub(crate) struct Conclusion {
    pub(crate) last: Final,
    /// The result in pieces, with their offsets; empty when it travels in the final record.
    pub(crate) chunks: Vec<(u64, Bytes)>,
}

/// Concludes from a report. `output_schema` is the compiled one of the definition, `budget` the time that it had.
pub(crate) fn conclude(
    report: Report,
    definition: &Definition,
    output_schema: Option<&Schema>,
    budget: Duration,
) -> Conclusion {
    let (outcome, message) = judge(&report, definition, output_schema, budget);
    let succeeded = outcome == Outcome::Succeeded;
    let (result, chunks) = if succeeded { split(&report.stdout) } else { (ResultBody::None, Vec::new()) };
    let stdout_tail = if succeeded {
        Bytes::new()
    } else {
        // A copy: a slice would keep all of it.
        Bytes::copy_from_slice(text::tail(&report.stdout, limits::TAIL_BYTES))
    };
    let last = Final {
        outcome,
        message,
        started: match &report.ending {
            Ending::KillUnconfirmed { .. } if report.pid.is_none() => None,
            _ => Some(report.pid.is_some()),
        },
        exit: report.exit,
        duration: report.duration,
        stdout_bytes: report.stdout_bytes,
        stderr_bytes: report.stderr_bytes,
        dropped_bytes: report.stderr_dropped,
        node: None,
        digest: None,
        attempt: 0,
        leftovers_killed: report.leftovers_killed,
        stderr_tail: report.stderr_tail,
        stdout_tail,
        result,
        resolves: false,
    };
    Conclusion { last, chunks }
}

fn judge(
    report: &Report,
    definition: &Definition,
    output_schema: Option<&Schema>,
    budget: Duration,
) -> (Outcome, String) {
    match (&report.ending, report.exit) {
        (Ending::CannotStart(error), _) => (Outcome::Failed, format!("cannot start: {error}")),
        (Ending::TimedOut, _) => {
            let whose = if budget < definition.timeout { "the caller" } else { "its manifest" };
            let limit = budget.as_secs_f64();
            (
                Outcome::TimedOut,
                format!("out of time after {limit} s, the limit of {whose}; everything it started was ended"),
            )
        }
        (Ending::OutputTooLarge | Ending::Stopped(StopReason::OutputTooLarge), _) => (
            Outcome::OutputTooLarge,
            format!("result too large: more than {} bytes on stdout", limits::RESULT_BYTES),
        ),
        (Ending::Stopped(reason), _) => {
            let why = match reason {
                StopReason::Cancelled => "cancelled",
                StopReason::Draining | StopReason::Closed => "the node is shutting down",
                StopReason::OutputTooLarge => "result too large",
            };
            let started = if report.pid.is_some() { "" } else { "; never started" };
            (Outcome::Cancelled, format!("{why}{started}"))
        }
        (Ending::KillUnconfirmed { what }, _) => (Outcome::Unknown, format!("kill unconfirmed: {what}")),
        (Ending::Exited, Some(Exit::Code(0))) => match check_output(&report.stdout, output_schema) {
            Ok(()) => (Outcome::Succeeded, String::new()),
            Err(message) => (Outcome::InvalidOutput, message),
        },
        (Ending::Exited, Some(Exit::Code(127))) if !definition.env_allow.iter().any(|name| name == "PATH") => (
            Outcome::Failed,
            "exit code 127: a program was not found; PATH is not in env_allow, so the skill runs without one"
                .into(),
        ),
        (Ending::Exited, Some(Exit::Signal(9))) => {
            (Outcome::Failed, "killed by signal 9, maybe because memory ran out".into())
        }
        (Ending::Exited, Some(exit)) => (Outcome::Failed, exit.to_string()),
        (Ending::Exited, None) => (Outcome::Unknown, "its exit status was lost".into()),
    }
}

/// The result as it travels: whole when it is small, else in chunks with their digest.
fn split(stdout: &Bytes) -> (ResultBody, Vec<(u64, Bytes)>) {
    if stdout.len() <= limits::INLINE_RESULT_BYTES {
        return (ResultBody::Inline(stdout.clone()), Vec::new());
    }
    let chunks = (0..stdout.len())
        .step_by(limits::CHUNK_BYTES)
        .map(|at| (at as u64, stdout.slice(at..stdout.len().min(at + limits::CHUNK_BYTES))))
        .collect();
    (ResultBody::Chunked { size: stdout.len() as u64, digest: Digest::of(stdout) }, chunks)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weft_core::{ids::SkillKey, skill::Kind};

    use super::*;

    fn definition() -> Definition {
        Definition::new(SkillKey::normalise("a").unwrap(), Kind::Executable)
    }

    fn report(ending: Ending, exit: Option<Exit>, stdout: Bytes) -> Report {
        Report {
            ending,
            pid: Some(7),
            started_at: None,
            duration: Duration::from_secs(1),
            exit,
            stdout_bytes: stdout.len() as u64,
            stdout,
            stderr_bytes: 0,
            stderr_dropped: 0,
            leftovers_killed: 0,
            stderr_tail: Bytes::new(),
        }
    }

    fn outcome(ending: Ending, exit: Option<Exit>, stdout: &'static [u8]) -> Final {
        conclude(
            report(ending, exit, Bytes::from_static(stdout)),
            &definition(),
            None,
            Duration::from_secs(30),
        )
        .last
    }

    #[test]
    fn exit_zero_and_one_object_is_success_and_nothing_else_is() {
        use Exit::{Code, Signal};
        assert_eq!(
            outcome(Ending::Exited, Some(Code(0)), b"{}\n").result,
            ResultBody::Inline(Bytes::from_static(b"{}\n"))
        );
        assert_eq!(outcome(Ending::Exited, Some(Code(0)), b"hi").outcome, Outcome::InvalidOutput);
        assert_eq!(outcome(Ending::Exited, Some(Code(7)), b"{}").outcome, Outcome::Failed);
        assert_eq!(outcome(Ending::Exited, Some(Signal(15)), b"{}").message, "signal 15");
        assert_eq!(outcome(Ending::TimedOut, Some(Code(0)), b"{}").outcome, Outcome::TimedOut);
        let unsure = Ending::KillUnconfirmed { what: "x".into() };
        assert_eq!(outcome(unsure, None, b"").outcome, Outcome::Unknown);
    }

    #[test]
    fn a_missing_program_without_path_gets_a_hint() {
        let last = outcome(Ending::Exited, Some(Exit::Code(127)), b"");
        assert!(last.message.contains("PATH is not in env_allow"));
    }

    #[test]
    fn a_large_result_comes_in_chunks_that_join_to_it() {
        let mut text = b"{\"a\":\"".to_vec();
        text.resize(600 * 1024, b'x');
        text.extend(b"\"}");
        let whole = Bytes::from(text);
        let concluded = conclude(
            report(Ending::Exited, Some(Exit::Code(0)), whole.clone()),
            &definition(),
            None,
            Duration::from_secs(30),
        );
        let joined: Vec<u8> = concluded.chunks.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        assert_eq!(joined, whole);
        let digest = Digest::of(&whole);
        assert_eq!(concluded.last.result, ResultBody::Chunked { size: whole.len() as u64, digest });
    }
}
