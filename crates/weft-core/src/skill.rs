//! What a skill is, independent of the disk it was read from and of the wire it travels on.

use std::{fmt, str::FromStr, time::Duration};

use sha2::{Digest as _, Sha256};

use crate::{advert::Scope, ids::SkillKey, limits};

/// Whether a skill can be invoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Has an entry that a node can start.
    Executable,
    /// Instructions for a model to read; never run.
    Instructions,
}

/// How much harm a skill can do, from the manifest's `class`. Ordered: a later one is the higher risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Reads only; no side effect on any system.
    Safe,
    /// Creates or changes state, reversibly.
    Mutating,
    /// Cannot be undone: deletes, restarts, runs arbitrary code.
    Dangerous,
}

impl Class {
    /// The word used in manifests, on the command line and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Mutating => "mutating",
            Self::Dangerous => "dangerous",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        match text {
            "safe" => Ok(Self::Safe),
            "mutating" => Ok(Self::Mutating),
            "dangerous" => Ok(Self::Dangerous),
            _ => Err(UnknownClass(text.chars().take(80).collect())),
        }
    }
}

/// A word that names no [`Class`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("class {0:?} is not one of safe, mutating, dangerous")]
pub struct UnknownClass(pub String);

/// Whether the manifest said its class, or weft assumed `safe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClassSource {
    /// The manifest names it.
    Declared,
    /// The manifest is silent.
    Defaulted,
}

/// Where a copy of a skill was found. Ordered by precedence: the first variant outranks all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// `<workspace>/skills`: one agent's.
    Workspace,
    /// `<workspace>/.agents/skills`: every agent of that workspace.
    Project,
    /// `~/.agents/skills`.
    Personal,
    /// The allow-list directories of the operator.
    Managed,
    /// Shipped with weft.
    Bundled,
    /// Extra directories, and plugins after them.
    Extra,
}

impl Layer {
    /// The word used in catalogs and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Project => "project",
            Self::Personal => "personal",
            Self::Managed => "managed",
            Self::Bundled => "bundled",
            Self::Extra => "extra",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One block of conditions under which a skill can be used on a host. Every condition of every block must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Operating systems, any of which will do: `linux`, `darwin`, `win32`. Empty: all.
    pub os: Vec<String>,
    /// Programs, all of which must be in the skill PATH.
    pub bins: Vec<String>,
    /// Programs, one of which must be in the skill PATH. Empty: no condition.
    pub any_bins: Vec<String>,
    /// Environment variables that must be set and not blank.
    pub env: Vec<String>,
    /// Dotted paths into the node's configuration that must be truthy.
    pub config: Vec<String>,
    /// The conditions of this block but `os` are waived, on a node whose operator allows that.
    pub always: bool,
}

/// The definition of a skill: all that a manifest says and nothing of the host it was read on, so that the same
/// files give the same definition everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The key that catalogs, allow-lists and calls compare.
    pub key: SkillKey,
    /// The name as the manifest writes it.
    pub name: String,
    /// Whether it can be invoked.
    pub kind: Kind,
    /// For people and for models.
    pub description: String,
    /// JSON Schema of the args object, as raw JSON text. Empty for instructions.
    pub schema: String,
    /// JSON Schema of the result, as raw JSON text.
    pub output_schema: Option<String>,
    /// How much harm it can do.
    pub class: Class,
    /// Whether the class was declared.
    pub class_source: ClassSource,
    /// A label to group by.
    pub category: String,
    /// Time the child may take.
    pub timeout: Duration,
    /// Names of the variables that are forwarded to the child.
    pub env_allow: Vec<String>,
    /// The blocks of conditions, all of which must hold.
    pub requirements: Vec<Requirements>,
    /// Why the gate data could not be read: then the skill is ineligible everywhere.
    pub broken_requirements: Option<String>,
    /// The variable that the `apiKey` of an operator's entry is the value of.
    pub primary_env: Option<String>,
    /// The key under which operators speak of it in `skills.entries`, where that is not its own.
    pub settings_key: Option<SkillKey>,
    /// Running it twice with the same args has the effect of running it once.
    pub idempotent: bool,
    /// JSON pointers into args and result whose values are secret.
    pub sensitive: Vec<String>,
    /// Most invocations of it that may run at the same time on one node.
    pub max_concurrency: Option<u32>,
    /// The author's own version, not interpreted.
    pub version: String,
    /// When a model should use it; carried, not interpreted.
    pub when_to_use: String,
    /// The `activation` block as JSON text; carried, not interpreted.
    pub activation: String,
    /// Not shown in prompts, still callable by name.
    pub hidden_from_prompts: bool,
    /// The text of SKILL.md, or the one generated for a skill without it.
    pub instructions: String,
}

/// The schema of a skill that names none: an object, about which nothing is known.
pub const EMPTY_SCHEMA: &str = r#"{"type":"object","properties":{}}"#;

impl Definition {
    /// A definition in which everything but the name is left to the defaults of a manifest.
    pub fn new(key: SkillKey, kind: Kind) -> Self {
        Self {
            name: key.to_string(),
            key,
            kind,
            description: String::new(),
            schema: match kind {
                Kind::Executable => EMPTY_SCHEMA.to_owned(),
                Kind::Instructions => String::new(),
            },
            output_schema: None,
            class: Class::Safe,
            class_source: ClassSource::Defaulted,
            category: "external".to_owned(),
            timeout: limits::DEFAULT_TIMEOUT,
            env_allow: Vec::new(),
            requirements: Vec::new(),
            broken_requirements: None,
            primary_env: None,
            settings_key: None,
            idempotent: false,
            sensitive: Vec::new(),
            max_concurrency: None,
            version: String::new(),
            when_to_use: String::new(),
            activation: String::new(),
            hidden_from_prompts: false,
            instructions: String::new(),
        }
    }

    /// The name under which a kernel offers the skill to a model: `[a-z][a-z0-9_]{0,47}`, derived from the key
    /// alone, so it never changes because something else joined the fleet.
    pub fn tool_name(&self) -> String {
        tool_name(&self.key)
    }
}

/// Longest derived tool name, in bytes.
const MAX_TOOL_NAME: usize = 48;

/// See [`Definition::tool_name`].
pub fn tool_name(key: &SkillKey) -> String {
    let key = key.as_str();
    if key.len() <= MAX_TOOL_NAME && key.starts_with(|c: char| c.is_ascii_lowercase()) {
        return key.to_owned();
    }
    let hash = hex::encode(&Sha256::digest(key.as_bytes())[..4]);
    let stem = key.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let room = MAX_TOOL_NAME - hash.len() - 1;
    match stem.get(..stem.len().min(room)) {
        Some(stem) if !stem.is_empty() => format!("{stem}_{hash}"),
        _ => format!("skill_{hash}"),
    }
}

/// A condition that a gate checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gate {
    /// The operating system.
    Os,
    /// A program in the skill PATH.
    Bin,
    /// One of several programs in the skill PATH.
    AnyBin,
    /// An environment variable.
    Env,
    /// A path into the node's configuration.
    Config,
    /// The operator's switch for this skill.
    Enabled,
    /// The gate data itself: it could not be read.
    Metadata,
}

impl Gate {
    /// The word used in catalogs, errors and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::Bin => "requires.bins",
            Self::AnyBin => "requires.anyBins",
            Self::Env => "requires.env",
            Self::Config => "requires.config",
            Self::Enabled => "enabled",
            Self::Metadata => "metadata",
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What one gate said on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Verdict {
    /// The condition.
    pub gate: Gate,
    /// What was looked for: a program, a variable, a path.
    pub subject: String,
    /// Whether the condition holds.
    pub passed: bool,
    /// In words, for `weft why`: where it was found, or why not.
    pub reason: String,
}

impl Verdict {
    /// The reason for whoever is not shown the subject beside it.
    pub fn sentence(&self) -> String {
        let part_of_a_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let mut words = self.reason.split(|c| !part_of_a_word(c));
        match words.any(|word| word == self.subject) {
            true => self.reason.clone(),
            false => format!("{}: {}", self.subject, self.reason),
        }
    }
}

/// How much a diagnostic matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The skill loads, but something is odd.
    Warning,
    /// The skill does not load.
    Error,
}

/// Something that is wrong with a file or a source on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the skill loaded all the same.
    pub severity: Severity,
    /// The file or directory.
    pub path: String,
    /// The line, from 1, where it is known.
    pub line: Option<u32>,
    /// A stable word for the rule that was broken, such as `class` or `entry`.
    pub rule: String,
    /// What is wrong and what to do, in words.
    pub message: String,
    /// The skill concerned, where its name could be read.
    pub key: Option<SkillKey>,
    /// Whom it concerns: what is wrong in an agent's workspace is nobody else's.
    pub scope: Scope,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: {}", self.rule, self.message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_key_has_a_tool_name_that_every_dialect_takes(key in "[a-z0-9_]{1,255}") {
            let name = tool_name(&SkillKey::normalise(&key).unwrap());
            prop_assert!(name.len() <= 48);
            prop_assert!(name.starts_with(|c: char| c.is_ascii_lowercase()));
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        }
    }

    #[test]
    fn a_verdict_names_its_subject_once() {
        let sentence = |subject: &str, reason: &str| {
            let (gate, subject, reason) = (Gate::Env, subject.to_owned(), reason.to_owned());
            Verdict { gate, subject, passed: false, reason }.sentence()
        };
        assert_eq!(sentence("API_KEY", "not set"), "API_KEY: not set");
        assert_eq!(
            sentence("df", "no executable \"df\" in the skill PATH"),
            "no executable \"df\" in the skill PATH"
        );
        assert_eq!(sentence("off", "switched off in x.off"), "switched off in x.off");
        assert_eq!(sentence("n", "not set"), "n: not set");
    }

    #[test]
    fn keys_that_differ_only_past_the_cut_have_different_tool_names() {
        let a = SkillKey::normalise(&("a".repeat(60) + "b")).unwrap();
        let b = SkillKey::normalise(&("a".repeat(60) + "c")).unwrap();
        assert_ne!(tool_name(&a), tool_name(&b));
        assert_eq!(tool_name(&SkillKey::normalise("disk_usage").unwrap()), "disk_usage");
    }
}
