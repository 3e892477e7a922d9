//! What the operator of a node says of single skills: `skills.entries.<key>`.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use crate::ids::SkillKey;

/// The entries by the key of the skill, or by the key that its document names instead.
pub type Entries = BTreeMap<SkillKey, Entry>;

/// What is said of one skill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Only a literal `false` switches it off.
    pub enabled: Option<bool>,
    /// Variables for the environment of its child, and of no other.
    pub env: BTreeMap<String, Secret>,
    /// The value of the variable that its document calls `primaryEnv`.
    pub api_key: Option<Secret>,
}

impl Entry {
    /// Whether the operator switched the skill off.
    pub fn is_off(&self) -> bool {
        self.enabled == Some(false)
    }
}

/// A value that is given to a skill and shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// It stands in the configuration.
    Plain(String),
    /// It is the value of a variable of the node.
    Variable(String),
    /// It is the content of a file, read anew for each start; a line feed at the end is no part of it.
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain(…)"),
            Self::Variable(name) => write!(f, "Variable({name})"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_never_shows_a_value() {
        let entry = Entry { api_key: Some(Secret::Plain("hunter2".into())), ..Entry::default() };
        assert!(!format!("{entry:?}").contains("hunter2"));
    }
}
