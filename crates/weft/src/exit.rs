//! Exit codes, and how a failure is told.

use std::fmt::Display;

use weft_client::Error;
use weft_core::{outcome::Outcome, refusal::Refusal};

use crate::output;

/// It worked.
pub(crate) const OK: u8 = 0;
/// The skill failed, or weft itself did.
pub(crate) const FAILED: u8 = 1;
/// The command line or the args are wrong.
pub(crate) const USAGE: u8 = 2;
/// There is no such skill, node or invocation, or no node that can run it now.
pub(crate) const NOT_FOUND: u8 = 3;
/// A policy or a person said no.
pub(crate) const DENIED: u8 = 4;
/// The coordinator cannot be reached.
pub(crate) const UNREACHABLE: u8 = 6;
/// It may have run; nobody can tell.
pub(crate) const UNKNOWN: u8 = 7;
/// Out of time.
pub(crate) const TIMED_OUT: u8 = 124;
/// Cancelled, or interrupted by a signal.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code for an outcome.
pub(crate) const fn of_outcome(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Succeeded => OK,
        Outcome::Failed | Outcome::InvalidOutput | Outcome::OutputTooLarge => FAILED,
        Outcome::NotStarted => NOT_FOUND,
        Outcome::Denied => DENIED,
        Outcome::TimedOut => TIMED_OUT,
        Outcome::Cancelled => INTERRUPTED,
        Outcome::Unknown => UNKNOWN,
    }
}

/// The exit code for an outcome of this terminal's own invocation, which it `interrupted` or did not.
pub(crate) const fn of_own(outcome: Outcome, interrupted: bool) -> u8 {
    match outcome {
        // Somebody else ended it: to its caller that is a failure.
        Outcome::Cancelled if !interrupted => FAILED,
        outcome => of_outcome(outcome),
    }
}

/// The exit code for the reason of a refusal.
fn of_reason(reason: Option<&str>) -> u8 {
    match reason {
        Some("ARGS_INVALID" | "REQUEST_INVALID" | "REQUEST_ID_REUSED" | "WATCH_EXPIRED") => USAGE,
        Some(
            "SKILL_NOT_FOUND"
            | "SKILL_INVALID"
            | "SKILL_NOT_EXECUTABLE"
            | "NO_ELIGIBLE_NODE"
            | "NODE_OFFLINE"
            | "NODE_NOT_FOUND"
            | "DIGEST_MISMATCH"
            | "SCHEMA_CONFLICT"
            | "QUEUE_FULL"
            | "QUOTA"
            | "INVOCATION_NOT_FOUND"
            | "SESSION_NOT_FOUND"
            | "FILE_NOT_FOUND",
        ) => NOT_FOUND,
        Some("POLICY_DENIED" | "UNAUTHENTICATED") => DENIED,
        Some("DRAINING" | "STREAM_MOVED") => UNREACHABLE,
        _ => FAILED,
    }
}

/// Why a command failed, and with which exit code it says so.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The coordinator, or the way to it.
    Client(Error),
    /// A coordinator would have refused it, in these words and for this reason.
    Refused(String, &'static str),
    /// The command line.
    Usage(String),
    /// Anything else.
    Other(anyhow::Error),
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self::Refused(refusal.to_string(), refusal.reason())
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Refused(_, reason) => of_reason(Some(reason)),
            Self::Other(_) | Self::Client(Error::Malformed(_)) => FAILED,
            Self::Client(Error::Unreachable { .. }) => UNREACHABLE,
            Self::Client(Error::Lost { .. } | Error::Unsure { .. }) => UNKNOWN,
            Self::Client(error @ Error::Refused(_)) => of_reason(error.reason()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Tells a failure on stderr: what went wrong, and what to do where that is known.
pub(crate) fn report(failure: &Failure) {
    match failure {
        Failure::Usage(message) => output::note(message),
        Failure::Refused(message, reason) => output::note(&format!("{message} ({reason})")),
        Failure::Other(error) => output::note(&format!("{error:#}")),
        Failure::Client(error) => {
            output::note(&match error.reason() {
                Some(reason) => format!("{error} ({reason})"),
                None => error.to_string(),
            });
            if let Error::Refused(refused) = error {
                for (kind, node, why) in &refused.preconditions {
                    output::note(&format!("  {}: {kind}: {why}", refused.name_of(node)));
                }
            }
            if let Error::Unreachable { .. } = error {
                output::note(
                    "is it running? start one with `weft dev`, or name another with --coordinator or WEFT_COORDINATOR",
                );
            }
        }
    }
}
