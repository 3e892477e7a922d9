//! The rules for manifests that a node may be told to relax.

/// A rule for manifests that is stricter than it was before weft, and that is relaxed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leniency {
    /// A time-out out of range is brought into it.
    ClampTimeouts,
    /// A description of white space is a description.
    BlankDescriptions,
    /// A name may have up to 255 characters.
    LongNames,
    /// Of a member that comes twice the last counts, of a class the highest; the case of its name does not.
    LooseMembers,
}

impl Leniency {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::ClampTimeouts, Self::BlankDescriptions, Self::LongNames, Self::LooseMembers];

    /// The word used in a file and after `--compat`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClampTimeouts => "clamp-timeouts",
            Self::BlankDescriptions => "blank-descriptions",
            Self::LongNames => "long-names",
            Self::LooseMembers => "loose-members",
        }
    }

    /// What a word means.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|leniency| leniency.as_str() == word)
    }
}
