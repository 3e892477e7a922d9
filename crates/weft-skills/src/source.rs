//! Sources: the directories that a node loads skills from.

use std::path::PathBuf;

use weft_core::{advert::Scope, skill::Layer};

/// A directory that skills are loaded from. It is also an allow-list root: what runs must lie below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its rank against other sources.
    pub layer: Layer,
    /// For whom its skills count.
    pub scope: Scope,
    /// The directory, as the operator wrote it. It need not exist yet.
    pub root: PathBuf,
}

impl Source {
    /// An allow-list directory of the operator, for every agent.
    pub fn managed(root: impl Into<PathBuf>) -> Self {
        Self { layer: Layer::Managed, scope: Scope::All, root: root.into() }
    }
}

/// The directories in a list such as `WEFT_SKILLS_DIRS` or `ONGRID_SKILLS_EXTERNAL_DIRS`: separated by `:` or
/// `,`, trimmed, empty items left out. Relative ones stay in; the loader skips them and says so.
pub fn parse_dirs(list: &str) -> Vec<PathBuf> {
    list.split([':', ',']).map(str::trim).filter(|item| !item.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_on_colons_and_commas() {
        let expected: Vec<PathBuf> = ["/a", "/b c", "rel", "/d"].iter().map(PathBuf::from).collect();
        assert_eq!(parse_dirs(" /a:/b c,, rel :/d:"), expected);
        assert!(parse_dirs("").is_empty());
        assert!(parse_dirs(" : , ").is_empty());
    }
}
