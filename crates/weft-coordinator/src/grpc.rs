//! The gRPC services: decode and validate, ask, map the error, encode. No rules live here.

pub(crate) mod catalog;
pub(crate) mod invocation;
pub(crate) mod link;
pub(crate) mod node;
mod page;
pub(crate) mod session;
pub(crate) mod traced;

use tonic::Status;
use weft_core::{
    ids::{CallerId, SkillKey},
    refusal::Refusal,
};
use weft_proto::{convert::Malformed, status};

/// The status of a refusal; our own bugs are logged where they meet a caller.
fn refused(refusal: Refusal) -> Status {
    if let Refusal::Internal(bug) = &refusal {
        tracing::error!(%bug, "internal error");
    }
    status::from_refusal(&refusal)
}

fn malformed(malformed: Malformed) -> Status {
    status::from_malformed(&malformed)
}

/// Who calls. Until callers authenticate, everybody who can reach the loopback listener is one caller.
fn caller() -> CallerId {
    "local".parse().expect("the constant is a valid id")
}

/// The skill that a caller names, in any spelling. A name that cannot be a key is simply not known.
fn skill_key(name: &str) -> Result<SkillKey, Status> {
    if name.is_empty() {
        return Err(malformed(Malformed::new("skill", "is missing; name the skill to run")));
    }
    SkillKey::normalise(name)
        .map_err(|_| refused(Refusal::SkillNotFound { skill: name.chars().take(128).collect() }))
}
