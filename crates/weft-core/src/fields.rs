//! Names of the fields in logs, spans and metrics. One spelling everywhere.

/// The id of an invocation.
pub const INVOCATION_ID: &str = "weft.invocation.id";
/// The key of a skill.
pub const SKILL: &str = "weft.skill";
/// The digest of a skill's files.
pub const SKILL_DIGEST: &str = "weft.skill.digest";
/// The class of a skill.
pub const SKILL_CLASS: &str = "weft.skill.class";
/// The id of a node.
pub const NODE_ID: &str = "weft.node.id";
/// The outcome of an invocation.
pub const OUTCOME: &str = "weft.outcome";
/// The number of the attempt, from 1.
pub const ATTEMPT: &str = "weft.attempt";
