//! Who may run what: one pure function, asked by the coordinator and again by the node.

use std::str::FromStr;

use crate::skill::Class;

/// How much an agent may do without a person. An unknown word means the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PermissionMode {
    /// Only safe skills.
    #[default]
    ReadOnly,
    /// Mutating skills after one person confirmed.
    MutatingWithConfirm,
    /// Mutating and dangerous skills after two people signed.
    DualSignRequired,
}

impl PermissionMode {
    /// The word used in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::MutatingWithConfirm => "mutating-with-confirm",
            Self::DualSignRequired => "dual-sign-required",
        }
    }

    /// The mode that a word names; [`PermissionMode::ReadOnly`] for any other word.
    pub fn from_word(word: &str) -> Self {
        match word {
            "mutating-with-confirm" => Self::MutatingWithConfirm,
            "dual-sign-required" => Self::DualSignRequired,
            _ => Self::ReadOnly,
        }
    }
}

/// What speaks for an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// People who confirmed exactly this invocation.
    pub confirmations: u32,
    /// Different people, none of them the requester, who signed exactly this invocation.
    pub signatures: u32,
    /// The operator started the coordinator with leave to run this class and all below it unconfirmed.
    pub operator_allows: Option<Class>,
}

/// What the policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may run.
    Allow,
    /// It may run once a person confirms.
    NeedsConfirmation,
    /// It may run once two people sign.
    NeedsTwoSignatures,
    /// It may not run.
    Deny,
}

/// Decides whether an invocation may run.
pub fn decide(class: Class, mode: PermissionMode, evidence: Evidence) -> Decision {
    if evidence.operator_allows.is_some_and(|highest| class <= highest) {
        return Decision::Allow;
    }
    match (class, mode) {
        (Class::Safe, _) => Decision::Allow,
        (Class::Mutating | Class::Dangerous, PermissionMode::ReadOnly)
        | (Class::Dangerous, PermissionMode::MutatingWithConfirm) => Decision::Deny,
        (Class::Mutating, PermissionMode::MutatingWithConfirm) => match evidence.confirmations {
            0 => Decision::NeedsConfirmation,
            _ => Decision::Allow,
        },
        (Class::Mutating | Class::Dangerous, PermissionMode::DualSignRequired) => match evidence.signatures {
            0 | 1 => Decision::NeedsTwoSignatures,
            _ => Decision::Allow,
        },
    }
}

/// The highest class that the operator lets run unconfirmed, as given to `--allow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed(pub Class);

impl FromStr for Allowed {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word.parse() {
            Ok(class @ (Class::Mutating | Class::Dangerous)) => Ok(Self(class)),
            Ok(Class::Safe) => Err("safe skills are always allowed; name mutating or dangerous".into()),
            Err(_) => Err("expected mutating or dangerous".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLASSES: [Class; 3] = [Class::Safe, Class::Mutating, Class::Dangerous];
    const MODES: [PermissionMode; 3] =
        [PermissionMode::ReadOnly, PermissionMode::MutatingWithConfirm, PermissionMode::DualSignRequired];

    #[test]
    fn the_table_of_the_design_holds() {
        use Decision::{Allow, Deny, NeedsConfirmation, NeedsTwoSignatures};
        let none = Evidence::default();
        let table = [
            [Allow, Deny, Deny],
            [Allow, NeedsConfirmation, Deny],
            [Allow, NeedsTwoSignatures, NeedsTwoSignatures],
        ];
        for (mode, row) in MODES.into_iter().zip(table) {
            for (class, expected) in CLASSES.into_iter().zip(row) {
                assert_eq!(decide(class, mode, none), expected, "{mode:?} {class}");
            }
        }
        assert_eq!(PermissionMode::from_word("DUAL-SIGN-REQUIRED"), PermissionMode::ReadOnly);
    }

    proptest! {
        #[test]
        fn a_higher_class_is_never_allowed_where_a_lower_one_is_not(
            mode in 0usize..3, confirmations in 0u32..3, signatures in 0u32..3, allows in 0usize..4,
        ) {
            let evidence = Evidence { confirmations, signatures, operator_allows: CLASSES.get(allows).copied() };
            let allowed = CLASSES.map(|class| decide(class, MODES[mode], evidence) == Decision::Allow);
            prop_assert!(allowed[0] && (allowed[1] || !allowed[2]));
        }
    }
}
