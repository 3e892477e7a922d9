//! Nodes: their labels, and how a caller names the ones that may run an invocation.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::ids::NodeId;

/// The labels of a node.
pub type Labels = BTreeMap<String, String>;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its identity.
    pub id: NodeId,
    /// What people call it; not unique.
    pub name: String,
    /// `linux`, `darwin` or `win32`.
    pub os: String,
    /// `x86_64`, `aarch64`, ….
    pub arch: String,
    /// The version of weft that it runs.
    pub version: String,
    /// Its labels.
    pub labels: Labels,
    /// Invocations it runs at the same time.
    pub slots: u32,
    /// It can run skills in a sandbox.
    pub sandbox: bool,
}

/// The word by which a node says in its hello that it can run skills in a sandbox.
pub const SANDBOX: &str = "sandbox";

/// Where an invocation may run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Target {
    /// On any eligible node.
    #[default]
    Any,
    /// On the node with this id or name.
    Node(String),
    /// On an eligible node whose labels fit.
    Selector(Selector),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any node"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Selector(selector) => write!(f, "nodes with {selector}"),
        }
    }
}

/// A label selector; every term must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    /// The terms.
    pub terms: Vec<Term>,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The label's name.
    pub label: String,
    /// The condition.
    pub condition: Condition,
}

/// A condition on a label's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// It is set and is one of these.
    In(Vec<String>),
    /// It is not set or is none of these.
    NotIn(Vec<String>),
    /// It is set.
    Exists,
    /// It is not set.
    Absent,
}

/// A text that is no selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("selector term {0:?} is not one of label=value, label!=value, label, !label")]
pub struct InvalidSelector(pub String);

impl Selector {
    /// Whether the labels fit.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.label);
            match &term.condition {
                Condition::In(values) => value.is_some_and(|value| values.contains(value)),
                Condition::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Condition::Exists => value.is_some(),
                Condition::Absent => value.is_none(),
            }
        })
    }
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    /// Terms separated by commas: `label=value`, `label!=value`, `label` (set), `!label` (not set).
    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let term = |text: &str| {
            let text = text.trim();
            let (label, condition) = if let Some((label, value)) = text.split_once("!=") {
                (label, Condition::NotIn(vec![value.trim().to_owned()]))
            } else if let Some((label, value)) = text.split_once('=') {
                (label, Condition::In(vec![value.trim_start_matches('=').trim().to_owned()]))
            } else if let Some(label) = text.strip_prefix('!') {
                (label, Condition::Absent)
            } else {
                (text, Condition::Exists)
            };
            match label.trim() {
                "" => Err(InvalidSelector(text.to_owned())),
                label => Ok(Term { label: label.to_owned(), condition }),
            }
        };
        Ok(Self { terms: text.split(',').map(term).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Term { label, condition }) in self.terms.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match condition {
                Condition::In(values) => write!(f, "{comma}{label}={}", values.join("|"))?,
                Condition::NotIn(values) => write!(f, "{comma}{label}!={}", values.join("|"))?,
                Condition::Exists => write!(f, "{comma}{label}")?,
                Condition::Absent => write!(f, "{comma}!{label}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_hold_only_when_every_term_does() {
        let labels = Labels::from([("zone".into(), "a".into()), ("gpu".into(), "".into())]);
        for (text, fits) in [
            ("zone=a", true),
            ("zone=a,gpu", true),
            ("zone=b", false),
            ("zone!=b", true),
            ("!zone", false),
            ("zone=a,!tpu,tpu!=x", true),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.matches(&labels), fits, "{text}");
            assert_eq!(selector.to_string(), text);
        }
        assert!("=x".parse::<Selector>().is_err());
        assert!("a=b,".parse::<Selector>().is_err());
    }
}
