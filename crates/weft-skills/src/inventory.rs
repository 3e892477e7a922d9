//! What one load found: every copy of every skill, which copies win, and what is wrong.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use weft_core::{
    advert::Scope,
    ids::{AgentId, Digest, SkillKey},
    skill::{Definition, Diagnostic, Layer, Verdict},
};

use crate::{
    digest::{self, Bounds, Cache, Ignore, Subject},
    entry::{CheckError, resolve_entry},
    injected::Injected,
    platform::{FileStamp, Identity},
};

/// What a node's sources hold at one moment. Never changed; the next load makes another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Grows by one when anything changed that an advert tells. A later inventory with the same revision differs
    /// in stamps, or in what entries give, at most: a file was touched but holds the same.
    pub revision: u64,
    /// In order of precedence: layer, then configured order, then byte order of path.
    pub copies: Vec<Arc<Copy>>,
    /// What did not load, and what is odd, in order of path.
    pub diagnostics: Vec<Diagnostic>,
    pub(crate) directories: Vec<(PathBuf, Identity)>,
}

impl Inventory {
    /// The copy that every agent uses for a key, whether or not its gates hold. A copy in one agent's
    /// workspace comes before it for that agent: see [`Inventory::winner_for`].
    pub fn winner(&self, key: &SkillKey) -> Option<&Arc<Copy>> {
        self.winner_for(&Scope::All, key)
    }

    /// The copy of a key that wins within one scope.
    pub fn winner_for(&self, scope: &Scope, key: &SkillKey) -> Option<&Arc<Copy>> {
        self.copies
            .iter()
            .find(|copy| copy.shadowed_by.is_none() && copy.scope == *scope && copy.definition.key == *key)
    }

    /// The copies of a key that count for an agent, whether or not their gates hold: first that of its own
    /// workspace, which outranks all others for it, then the one that every agent uses.
    pub fn winners<'a>(
        &'a self,
        agent: Option<&AgentId>,
        key: &SkillKey,
    ) -> impl Iterator<Item = &'a Arc<Copy>> + use<'a> {
        let own = agent.and_then(|agent| {
            self.copies.iter().find(|copy| {
                matches!(&copy.scope, Scope::Agent(owner) if owner == agent)
                    && copy.shadowed_by.is_none()
                    && copy.definition.key == *key
            })
        });
        own.into_iter().chain(self.winner(key))
    }

    /// Every directory in which a change could change the inventory, a source's root before what is below it.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(|(path, _)| path.as_path())
    }

    /// Whether an advert of the other would be the same.
    pub(crate) fn tells_the_same(&self, other: &Self) -> bool {
        self.diagnostics == other.diagnostics
            && self.copies.len() == other.copies.len()
            && self.copies.iter().zip(&other.copies).all(|(a, b)| a.tells_the_same(b))
    }
}

/// One copy of a skill, as it was when it was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// What the manifest says.
    pub definition: Arc<Definition>,
    /// For whom it counts.
    pub scope: Scope,
    /// The layer of its source.
    pub layer: Layer,
    /// The source's root, links resolved.
    pub root: PathBuf,
    /// The skill's directory, as reached from the source's configured root: where its child starts.
    pub directory: PathBuf,
    /// The `skill.json`, or the `SKILL.md` of a skill without one.
    pub manifest: PathBuf,
    /// The file to start, links resolved; executables only.
    pub entry: Option<PathBuf>,
    /// The digest of its files.
    pub digest: Digest,
    /// The digest leaves out something that the entry may run.
    pub partial: bool,
    /// What each gate says on this host.
    pub verdicts: Vec<Verdict>,
    /// The directory of the copy that wins over this one, if another does.
    pub shadowed_by: Option<PathBuf>,
    /// What the operator's entry puts into the environment of its child. `None` for a skill without one.
    pub injected: Option<Arc<Injected>>,
    /// What its manifest and entry looked like.
    pub stamp: Stamp,
    /// What is needed to resolve the entry and to digest the files again.
    pub(crate) recipe: Recipe,
}

/// What the files that decide how a skill runs looked like when it was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// `skill.json` and `SKILL.md`, those that there are, by the path under which they were found.
    pub(crate) manifests: Vec<(PathBuf, FileStamp)>,
    pub(crate) entry: Option<FileStamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// As the manifest names it.
    pub(crate) entry: String,
    /// Every allow-list root of the node.
    pub(crate) roots: Arc<[PathBuf]>,
    pub(crate) ignore: Ignore,
    /// That of the loader.
    pub(crate) cache: Cache,
}

impl Copy {
    /// Whether every gate holds and no other copy wins.
    pub fn eligible(&self) -> bool {
        self.shadowed_by.is_none() && self.verdicts.iter().all(|verdict| verdict.passed)
    }

    /// Asks before a start whether manifest and entry are still what was loaded: a few `stat` calls. Returns
    /// the file to start, resolved anew.
    ///
    /// # Errors
    /// When a file changed, the entry may not be started any more, or there is none.
    pub fn check_unchanged(&self) -> Result<PathBuf, CheckError> {
        let (Some(loaded), Some(stamp)) = (&self.entry, &self.stamp.entry) else {
            return Err(CheckError::NoEntry);
        };
        for (path, stamp) in &self.stamp.manifests {
            unchanged(path, stamp)?;
        }
        let entry = resolve_entry(&self.recipe.entry, &self.directory, &self.root, &self.recipe.roots)?;
        unchanged(&entry, stamp)?;
        if entry != *loaded {
            return Err(CheckError::Changed { path: entry });
        }
        Ok(entry)
    }

    /// Digests the files as they are now. May be called from any thread; blocks on the file system.
    ///
    /// Every file is looked at; it is read only when nobody has read it under its present stamp (device, inode,
    /// size, mode, times of modification and of change): neither the loader nor an earlier call. What a stamp
    /// does not show is not seen: a process that keeps a file mapped for writing can change it without a trace.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn digest_now(&self) -> io::Result<Digest> {
        let directory = self.directory.canonicalize()?;
        digest::digest(self.subject(&directory), Bounds::default(), &self.recipe.cache)
            .map(|digested| digested.digest)
    }

    /// What its digest is taken of; `directory` is its own, links resolved.
    pub(crate) fn subject<'a>(&'a self, directory: &'a Path) -> Subject<'a> {
        Subject { root: &self.root, directory, entry: self.entry.as_deref(), ignore: &self.recipe.ignore }
    }

    fn tells_the_same(&self, other: &Self) -> bool {
        *self == Self { stamp: self.stamp.clone(), injected: self.injected.clone(), ..other.clone() }
    }
}

fn unchanged(path: &Path, stamp: &FileStamp) -> Result<(), CheckError> {
    match path.metadata() {
        Ok(metadata) if FileStamp::of(&metadata) == *stamp => Ok(()),
        _ => Err(CheckError::Changed { path: path.to_owned() }),
    }
}
