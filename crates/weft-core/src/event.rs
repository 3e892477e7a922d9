//! What happens to an invocation, in order. The events of one invocation are its whole story.

use bytes::Bytes;
use jiff::Timestamp;

use crate::{
    ids::{Digest, NodeId, SkillKey},
    outcome::Final,
    skill::Class,
};

/// One recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// From 1, without gaps, given by the owner when it records the event.
    pub sequence: u64,
    /// When the owner recorded it.
    pub time: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The invocation exists: every check that a caller can be refused by has passed.
    Admitted {
        /// The skill.
        skill: SkillKey,
        /// The class that the policy judged.
        class: Class,
    },
    /// People have to agree first.
    ApprovalPending {
        /// How many different people.
        needed: u32,
    },
    /// The people agreed or refused.
    ApprovalDecided {
        /// Whether it may run.
        approved: bool,
        /// Who decided and why, in words.
        note: String,
    },
    /// It waits for a node.
    Queued {
        /// Why, in words.
        reason: String,
    },
    /// It was handed to a node.
    Dispatched {
        /// The node.
        node: NodeId,
        /// The attempt, from 1.
        attempt: u32,
        /// The digest of the skill's files that the node is to start.
        digest: Digest,
    },
    /// The node started the process.
    Started {
        /// The attempt.
        attempt: u32,
        /// The process id on the node.
        pid: u32,
    },
    /// Bytes of stderr, exact and in order, often many lines.
    Stderr {
        /// Where the bytes stand in the child's stderr.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// How far the skill says it is.
    Progress {
        /// Done so far.
        done: u64,
        /// All there is, 0 when unknown.
        total: u64,
        /// In words.
        text: String,
    },
    /// A part of a result that is too large for `finished`.
    OutputChunk {
        /// Where the bytes stand in the result.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// The node is gone; what it runs may go on. Not final.
    NodeLost {
        /// The node.
        node: NodeId,
        /// The attempt that was there.
        attempt: u32,
        /// Why it counts as lost, in words.
        reason: String,
    },
    /// The node had to drop some of the oldest stderr.
    Gap {
        /// First node sequence that is missing.
        node_from: u64,
        /// Last node sequence that is missing.
        node_to: u64,
        /// Bytes of stderr that are missing.
        bytes: u64,
    },
    /// The end.
    Finished(Box<Final>),
}

impl EventKind {
    /// The bytes that the event carries for the skill; what it costs to keep, beyond a small constant.
    pub fn payload(&self) -> usize {
        match self {
            Self::Stderr { bytes, .. } | Self::OutputChunk { bytes, .. } => bytes.len(),
            Self::Finished(last) => {
                let result = match &last.result {
                    crate::outcome::ResultBody::Inline(bytes) => bytes.len(),
                    crate::outcome::ResultBody::None | crate::outcome::ResultBody::Chunked { .. } => 0,
                };
                result + last.stderr_tail.len() + last.stdout_tail.len() + last.message.len()
            }
            Self::Queued { reason: text }
            | Self::NodeLost { reason: text, .. }
            | Self::ApprovalDecided { note: text, .. }
            | Self::Progress { text, .. } => text.len(),
            Self::Admitted { .. }
            | Self::ApprovalPending { .. }
            | Self::Dispatched { .. }
            | Self::Started { .. }
            | Self::Gap { .. } => 0,
        }
    }
}

/// What a node tells of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It is in the node's journal.
    Accepted {
        /// Attempts that wait before it.
        queued_before: u32,
    },
    /// Something that becomes an event: started, stderr, progress, a chunk, a gap or the end.
    Event(EventKind),
}

/// One numbered piece of news of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNews {
    /// The invocation.
    pub invocation: crate::ids::InvocationId,
    /// The attempt.
    pub attempt: u32,
    /// From 1, without gaps within the attempt.
    pub sequence: u64,
    /// What the node tells; `None` when it is of a kind that this side does not know.
    pub news: Option<News>,
}
