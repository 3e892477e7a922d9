//! What a node offers: the rows that it advertises.

use std::sync::Arc;

use crate::{
    ids::{AgentId, Digest, SkillKey},
    skill::{Diagnostic, Layer, Verdict},
};

/// For whom a row counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Every agent.
    #[default]
    All,
    /// The one agent whose workspace holds the copy.
    Agent(AgentId),
}

/// One copy of a skill on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    /// For whom it counts.
    pub scope: Scope,
    /// The skill.
    pub key: SkillKey,
    /// Where it was found.
    pub layer: Layer,
    /// Its directory on the node, for people to read; never joined to anything.
    pub path: String,
    /// The digest of its files.
    pub digest: Digest,
    /// The digest leaves out something that the entry may run.
    pub partial: bool,
    /// The digest of its encoded definition, by which a coordinator asks for the definition and checks it.
    pub definition: Digest,
    /// What each gate says on this node.
    pub verdicts: Vec<Verdict>,
    /// The path of the copy that wins over this one, if another does.
    pub shadowed_by: Option<String>,
}

impl Row {
    /// Whether the node can run (or read out) this copy now.
    pub fn eligible(&self) -> bool {
        self.shadowed_by.is_none() && self.verdicts.iter().all(|verdict| verdict.passed)
    }
}

/// All that one node offers at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advert {
    /// Grows with each change on that node.
    pub revision: u64,
    /// One row a copy.
    pub rows: Vec<Arc<Row>>,
    /// What did not load, and what is odd.
    pub diagnostics: Vec<Diagnostic>,
}
