//! What can go wrong between a client and its coordinator.

use tonic::{Code, Status};
use weft_core::ids::InvocationId;
use weft_proto::{convert::Malformed, status};

/// Why a call did not do what it was asked to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The coordinator said no, and why.
    #[error("{}", .0.message)]
    Refused(Box<status::Refused>),
    /// No coordinator answers.
    #[error("cannot reach the coordinator at {address}: {why}")]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// What the transport says.
        why: String,
    },
    /// The request left, and its answer was lost before an id came.
    #[error(
        "lost the answer of {address}: {why}; the request may have reached it, so the skill may have run"
    )]
    Unsure {
        /// Where it was sent.
        address: String,
        /// What the transport says.
        why: String,
    },
    /// The invocation was started, and then its coordinator could not tell any more how it ended.
    #[error("lost sight of invocation {id}: {why}")]
    Lost {
        /// The invocation.
        id: InvocationId,
        /// Why.
        why: String,
    },
    /// The coordinator sent what it should not have.
    #[error("the coordinator sent a malformed message: {0}")]
    Malformed(#[from] Malformed),
}

impl Error {
    /// Reads a status that a coordinator at `address` gave, or the transport on its behalf.
    pub(crate) fn from_status(address: impl ToString, status: &Status) -> Self {
        if is_transport(status) {
            return Self::Unreachable { address: address.to_string(), why: root_cause(status) };
        }
        Self::Refused(Box::new(status::read(status)))
    }

    /// The stable reason, when the coordinator gave one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused(refused) if !refused.reason.is_empty() => Some(&refused.reason),
            Self::Refused(_)
            | Self::Unreachable { .. }
            | Self::Unsure { .. }
            | Self::Lost { .. }
            | Self::Malformed(_) => None,
        }
    }
}

/// Whether the transport made this status up: then nothing is known of what the coordinator did.
pub(crate) fn is_transport(status: &Status) -> bool {
    status::read(status).reason.is_empty()
        && matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal | Code::Aborted
        )
}

/// Whether no connection came about, so that the request never left.
pub(crate) fn never_left(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The innermost cause of a transport error: it is the one that helps ("connection refused").
fn root_cause(status: &Status) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}
