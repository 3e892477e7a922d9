//! How an invocation ends.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    ids::{Digest, NodeId},
    json, limits,
    schema::Schema,
    text,
};

/// The one word for how an invocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Exit code 0 and one JSON object on stdout.
    Succeeded,
    /// It ran and did not succeed, or the operating system could not start it.
    Failed,
    /// Exit code 0, but stdout is not one JSON object, or does not fit `output_schema`.
    InvalidOutput,
    /// More stdout than a result may have; killed at once.
    OutputTooLarge,
    /// Out of time; its whole tree is gone.
    TimedOut,
    /// Cancelled; its whole tree is gone, or it never started.
    Cancelled,
    /// A person or a policy refused it after it was admitted.
    Denied,
    /// Proof that it never started: safe to try again.
    NotStarted,
    /// It may have run; nobody can tell how it ended.
    Unknown,
}

impl Outcome {
    /// The word used on the command line, in logs and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::InvalidOutput => "INVALID_OUTPUT",
            Self::OutputTooLarge => "OUTPUT_TOO_LARGE",
            Self::TimedOut => "TIMED_OUT",
            Self::Cancelled => "CANCELLED",
            Self::Denied => "DENIED",
            Self::NotStarted => "NOT_STARTED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How the child's first process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// The result of a successful invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultBody {
    /// There is none.
    None,
    /// The bytes that the child printed.
    Inline(Bytes),
    /// The bytes came before, in `output_chunk` events.
    Chunked {
        /// How many bytes all chunks have together.
        size: u64,
        /// The SHA-256 of all chunks together.
        digest: Digest,
    },
}

/// The final record of an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Final {
    /// The one word.
    pub outcome: Outcome,
    /// Why, in words; empty when it succeeded.
    pub message: String,
    /// Whether a process was started. `None` when nobody can tell.
    pub started: Option<bool>,
    /// How the first process ended, when it did.
    pub exit: Option<Exit>,
    /// From the start of the process to its end.
    pub duration: Duration,
    /// Bytes that the child wrote to stdout.
    pub stdout_bytes: u64,
    /// Bytes that the child wrote to stderr.
    pub stderr_bytes: u64,
    /// Bytes of stderr that no event carries.
    pub dropped_bytes: u64,
    /// Where it ran or would have run.
    pub node: Option<NodeId>,
    /// The digest of the skill's files.
    pub digest: Option<Digest>,
    /// The attempt that ended, from 1; 0 when there was none.
    pub attempt: u32,
    /// Processes that outlived the first one and were killed.
    pub leftovers_killed: u32,
    /// The last 64 KiB of stderr.
    pub stderr_tail: Bytes,
    /// The last 64 KiB of stdout when it did not succeed.
    pub stdout_tail: Bytes,
    /// The result.
    pub result: ResultBody,
    /// It replaces an earlier `UNKNOWN` of the same invocation.
    pub resolves: bool,
}

impl Final {
    /// The record of an invocation of which nothing else is known.
    pub fn without_run(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
            started: match outcome {
                Outcome::NotStarted | Outcome::Denied | Outcome::Cancelled => Some(false),
                Outcome::Succeeded
                | Outcome::Failed
                | Outcome::InvalidOutput
                | Outcome::OutputTooLarge
                | Outcome::TimedOut
                | Outcome::Unknown => None,
            },
            exit: None,
            duration: Duration::ZERO,
            stdout_bytes: 0,
            stderr_bytes: 0,
            dropped_bytes: 0,
            node: None,
            digest: None,
            attempt: 0,
            leftovers_killed: 0,
            stderr_tail: Bytes::new(),
            stdout_tail: Bytes::new(),
            result: ResultBody::None,
            resolves: false,
        }
    }
}

/// Checks what a child that exited with code 0 printed.
///
/// # Errors
/// With the message of an [`Outcome::InvalidOutput`]: where the output stops being one JSON object, and its
/// first 200 bytes, escaped.
pub fn check_output(stdout: &[u8], schema: Option<&Schema>) -> Result<(), String> {
    let shown = || {
        let head = &stdout[..stdout.len().min(limits::SHOWN_OUTPUT_BYTES)];
        format!("the program ran to completion; its stdout begins with: {}", text::escape(head))
    };
    let printed = match std::str::from_utf8(stdout) {
        Ok(printed) => printed,
        Err(error) => {
            return Err(format!("invalid result: not UTF-8 at byte {}; {}", error.valid_up_to(), shown()));
        }
    };
    if printed.trim_ascii().is_empty() {
        return Err("invalid result: stdout is empty, one JSON object was expected; \
                    the program ran to completion"
            .into());
    }
    json::check_object(printed)
        .map_err(|error| format!("invalid result: not one JSON object ({error}); {}", shown()))?;
    if let Some(schema) = schema {
        let value = json::parse(stdout).map_err(|error| format!("invalid result: {error}; {}", shown()))?;
        if let Err(violations) = schema.validate(&value) {
            let list: Vec<_> = violations
                .iter()
                .map(|violation| format!("at \"{}\": {}", violation.pointer, violation.message))
                .collect();
            return Err(format!(
                "invalid result: does not fit output_schema: {}; the program ran to completion",
                list.join("; ")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_json_object_is_a_result() {
        assert_eq!(check_output(b"\n  {\"ok\":true}\n\n", None), Ok(()));
        let banner = check_output(b"Loading tools v1.2\n{\"ok\":true}", None).unwrap_err();
        assert!(banner.contains("ran to completion") && banner.contains("Loading tools v1.2\\n"), "{banner}");
        let latin = check_output(b"{\"name\":\"caf\xe9\"}", None).unwrap_err();
        assert!(latin.contains("not UTF-8 at byte 12") && latin.contains("caf\\xe9"), "{latin}");
        assert!(check_output(b" \n", None).is_err());
        assert!(check_output(b"{}{}", None).is_err());
        assert!(check_output(b"[1]", None).is_err());
    }

    #[test]
    fn results_are_held_to_the_output_schema() {
        let schema = Schema::compile(r#"{"type":"object","required":["n"]}"#).unwrap();
        assert_eq!(check_output(b"{\"n\":1}", Some(&schema)), Ok(()));
        assert!(check_output(b"{}", Some(&schema)).unwrap_err().contains("output_schema"));
    }
}
