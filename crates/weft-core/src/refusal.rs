//! Why a request is refused before an invocation exists. Each has a stable reason that programs can match.

use std::time::Duration;

use crate::{
    ids::{Digest, NodeId, SkillKey},
    schema::Violation,
    skill::{Class, Diagnostic},
};

/// Why one node is no candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub name: String,
    /// A stable word: a gate, or `target`, `offline`, `draining`, `cordoned`, `digest`.
    pub kind: String,
    /// In words.
    pub reason: String,
}

/// A refusal. The messages are for the caller: they say what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No node offers the skill, or the agent may not see it.
    #[error("skill {skill:?} is not known here; `weft skills` lists what is")]
    SkillNotFound {
        /// As the caller wrote it.
        skill: String,
    },
    /// Nodes have files for the skill, but they do not load.
    #[error("skill {skill} does not load: {}", .diagnostics.first().map(|(_, d)| d.to_string()).unwrap_or_default())]
    SkillInvalid {
        /// The skill.
        skill: SkillKey,
        /// What is wrong, and on which node.
        diagnostics: Vec<(NodeId, Diagnostic)>,
    },
    /// The skill is instructions to read; nothing can be run.
    #[error("skill {skill} is instructions only and has nothing to run; read it with `weft skills {skill}`")]
    SkillNotExecutable {
        /// The skill.
        skill: SkillKey,
    },
    /// The args are not what the skill takes.
    #[error("the args of {skill} are not valid: {}", list(.violations))]
    ArgsInvalid {
        /// The skill.
        skill: SkillKey,
        /// Where and what.
        violations: Vec<Violation>,
    },
    /// A field of the request is missing or malformed.
    #[error("{field}: {message}")]
    RequestInvalid {
        /// The field.
        field: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// The skill is known, but no node can run it now.
    #[error("no node can run {skill}: {}", listed(.obstacles))]
    NoEligibleNode {
        /// The skill.
        skill: SkillKey,
        /// Why not, per node.
        obstacles: Vec<Obstacle>,
    },
    /// No node offers the digest that the caller pinned.
    #[error("no node offers {skill} with digest {pinned}")]
    DigestMismatch {
        /// The skill.
        skill: SkillKey,
        /// What the caller asked for.
        pinned: Digest,
    },
    /// The variants of the skill take different args and the caller did not say which it means.
    #[error("the nodes offer {skill} with different schemas; pin a digest or name a node")]
    SchemaConflict {
        /// The skill.
        skill: SkillKey,
    },
    /// The other side speaks no protocol version that this one does.
    #[error("protocol versions {theirs} are not spoken here; this side speaks {ours}")]
    ProtocolSkew {
        /// What the other side speaks.
        theirs: String,
        /// What this side speaks.
        ours: String,
    },
    /// The policy says no.
    #[error("{skill} is {class} and may not run: {reason}")]
    PolicyDenied {
        /// The skill.
        skill: SkillKey,
        /// Its class.
        class: Class,
        /// Why, and what would make it possible.
        reason: String,
    },
    /// Every node that could run it is away.
    #[error("every node that offers {skill} is offline: {}", listed(.obstacles))]
    NodeOffline {
        /// The skill.
        skill: SkillKey,
        /// The nodes.
        obstacles: Vec<Obstacle>,
    },
    /// Every node that could run it has too much to do.
    #[error("every node that could run {skill} is busy; try again in {} s", .retry_after.as_secs())]
    QueueFull {
        /// The skill.
        skill: SkillKey,
        /// When to try again.
        retry_after: Duration,
    },
    /// The coordinator holds as much as it may.
    #[error("{what}; try again in {} s", .retry_after.as_secs())]
    Quota {
        /// What is used up.
        what: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// The request id stands for another request.
    #[error("request id {request_id} was used for a different request; take a new one")]
    RequestIdReused {
        /// The id.
        request_id: String,
    },
    /// The caller wants to go on from an event that is not there.
    #[error("cannot watch after event {after}: {why}")]
    WatchExpired {
        /// The sequence that the caller named.
        after: u64,
        /// The last sequence there is.
        last: u64,
        /// Why not, and what to do.
        why: String,
    },
    /// The coordinator is about to stop.
    #[error("this coordinator is stopping and takes no new work; try again")]
    Draining,
    /// The stream ends here and goes on elsewhere.
    #[error("this coordinator is stopping; watch invocation {invocation} again to go on")]
    StreamMoved {
        /// The invocation; empty for streams of something else.
        invocation: String,
    },
    /// There is no such invocation, or it belongs to someone else.
    #[error(
        "invocation {invocation} is not known here; results are kept for a limited time, and this \
             coordinator's memory does not outlive a restart"
    )]
    InvocationNotFound {
        /// As the caller wrote it.
        invocation: String,
    },
    /// There is no such session, or it belongs to someone else.
    #[error(
        "session {session} is not known here; sessions end when they are idle for long, and this coordinator's \
         memory does not outlive a restart: open another"
    )]
    SessionNotFound {
        /// As the caller wrote it.
        session: String,
    },
    /// The skill has no such file, or it cannot be read.
    #[error("skill {skill} has no file {path:?} that can be read: {why}")]
    FileNotFound {
        /// The skill.
        skill: SkillKey,
        /// As the caller wrote it.
        path: String,
        /// Why not.
        why: String,
    },
    /// Several nodes have the name.
    #[error("several nodes are called {node:?}; name one by its id: {}", .ids.join(", "))]
    NodeAmbiguous {
        /// As the caller wrote it.
        node: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// There is no such node.
    #[error("node {node:?} is not known here; `weft nodes` lists those that are")]
    NodeNotFound {
        /// As the caller wrote it.
        node: String,
    },
    /// A bug of ours.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Refusal {
    /// The stable word that programs match.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::SkillNotFound { .. } => "SKILL_NOT_FOUND",
            Self::SkillInvalid { .. } => "SKILL_INVALID",
            Self::SkillNotExecutable { .. } => "SKILL_NOT_EXECUTABLE",
            Self::ArgsInvalid { .. } => "ARGS_INVALID",
            Self::RequestInvalid { .. } => "REQUEST_INVALID",
            Self::NoEligibleNode { .. } => "NO_ELIGIBLE_NODE",
            Self::DigestMismatch { .. } => "DIGEST_MISMATCH",
            Self::SchemaConflict { .. } => "SCHEMA_CONFLICT",
            Self::ProtocolSkew { .. } => "PROTOCOL_SKEW",
            Self::PolicyDenied { .. } => "POLICY_DENIED",
            Self::NodeOffline { .. } => "NODE_OFFLINE",
            Self::QueueFull { .. } => "QUEUE_FULL",
            Self::Quota { .. } => "QUOTA",
            Self::RequestIdReused { .. } => "REQUEST_ID_REUSED",
            Self::WatchExpired { .. } => "WATCH_EXPIRED",
            Self::Draining => "DRAINING",
            Self::StreamMoved { .. } => "STREAM_MOVED",
            Self::InvocationNotFound { .. } => "INVOCATION_NOT_FOUND",
            Self::SessionNotFound { .. } => "SESSION_NOT_FOUND",
            Self::FileNotFound { .. } => "FILE_NOT_FOUND",
            Self::NodeAmbiguous { .. } => "NODE_AMBIGUOUS",
            Self::NodeNotFound { .. } => "NODE_NOT_FOUND",
            Self::Internal(_) => "INTERNAL",
        }
    }
}

/// Most items that a message lists; details carry them all.
const LISTED: usize = 5;

fn list(violations: &[Violation]) -> String {
    joined(violations.iter().map(|violation| match violation.pointer.as_str() {
        "" => violation.message.clone(),
        pointer => format!("{pointer}: {}", violation.message),
    }))
}

fn listed(obstacles: &[Obstacle]) -> String {
    joined(obstacles.iter().map(|obstacle| format!("{}: {}", obstacle.name, obstacle.reason)))
}

fn joined(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(LISTED);
    let mut text = items.take(LISTED).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text
}
