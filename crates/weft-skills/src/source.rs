//! Sources: the directories that a node loads skills from.

use std::path::{Path, PathBuf};

use weft_core::{advert::Scope, ids::AgentId, skill::Layer};

/// A directory that skills are loaded from. It is also an allow-list root: what runs must lie below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its rank against other sources.
    pub layer: Layer,
    /// For whom its skills count.
    pub scope: Scope,
    /// The directory, as the operator wrote it. It need not exist yet.
    pub root: PathBuf,
    /// Nobody named this directory: it follows from another. That it is not there, or empty, is nothing to tell.
    pub implied: bool,
}

impl Source {
    /// The skills that lie in the workspace `directory` of an agent, for that agent.
    pub fn workspace(agent: AgentId, directory: impl AsRef<Path>) -> Self {
        let root = directory.as_ref().join("skills");
        Self { layer: Layer::Workspace, scope: Scope::Agent(agent), root, implied: true }
    }

    /// The skills of whatever is developed in the workspace `directory`, for one agent that works there. Each agent
    /// of that workspace has such a source.
    pub fn project(agent: AgentId, directory: impl AsRef<Path>) -> Self {
        let root = directory.as_ref().join(".agents/skills");
        Self { layer: Layer::Project, scope: Scope::Agent(agent), root, implied: true }
    }

    /// The skills in the home directory of the user that the node runs as, for every agent.
    pub fn personal(home: impl AsRef<Path>) -> Self {
        let root = home.as_ref().join(".agents/skills");
        Self { layer: Layer::Personal, scope: Scope::All, root, implied: true }
    }

    /// An allow-list directory of the operator, for every agent.
    pub fn managed(root: impl Into<PathBuf>) -> Self {
        Self { layer: Layer::Managed, scope: Scope::All, root: root.into(), implied: false }
    }

    /// The skills that are shipped with weft, for every agent.
    pub fn bundled(root: impl Into<PathBuf>) -> Self {
        Self { layer: Layer::Bundled, scope: Scope::All, root: root.into(), implied: true }
    }

    /// A further directory of the operator, below all others, for every agent.
    pub fn extra(root: impl Into<PathBuf>) -> Self {
        Self { layer: Layer::Extra, scope: Scope::All, root: root.into(), implied: false }
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

    #[test]
    fn what_nobody_named_follows_from_a_workspace_or_a_home() {
        let agent: AgentId = "writer".parse().unwrap();
        let own = Source::workspace(agent.clone(), "/w");
        assert_eq!((own.root.as_path(), own.layer), (Path::new("/w/skills"), Layer::Workspace));
        let project = Source::project(agent.clone(), "/w");
        assert_eq!((project.root.as_path(), project.layer), (Path::new("/w/.agents/skills"), Layer::Project));
        assert_eq!((&own.scope, &project.scope), (&Scope::Agent(agent.clone()), &Scope::Agent(agent)));
        let personal = Source::personal("/home/a");
        assert_eq!(personal.root, Path::new("/home/a/.agents/skills"));
        assert!(own.implied && project.implied && personal.implied && Source::bundled("/b").implied);
        assert!(!Source::managed("/m").implied && !Source::extra("/e").implied);
    }
}
