//! The walk below a source: which directories hold a manifest.
//!
//! Real directories are read first and links after them, so that a skill reached both ways has its real path.
//! Each real directory is visited once. A link is followed only while it stays under the root.

use std::{
    collections::{BTreeSet, HashSet},
    fs, io,
    path::{Path, PathBuf},
};

use weft_core::limits;

use crate::{
    frontmatter, manifest,
    platform::Identity,
    report::{Problem, shown, shown_path},
};

/// Trees that are built or fetched, not written: never searched for skills, never watched, never digested.
const PRUNED: [&str; 17] = [
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    ".venv",
    "venv",
    "target",
    "dist",
    "build",
    "__pycache__",
    ".cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".nox",
    ".direnv",
];

/// Pruned trees that hold nothing which an entry could run.
const NEVER_RUN: [&str; 8] =
    [".git", ".hg", ".svn", "__pycache__", ".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache"];

/// Most links that one walk follows or complains about.
const MAX_LINKS: usize = 10_000;

/// What a directory's name says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    /// To be read.
    Plain,
    /// Left out, though an entry could run what is in it.
    Pruned,
    /// Left out, and nothing of it is ever run.
    Scratch,
    /// Begins with `..`: a mounted volume's versions, reached through links beside them.
    Versions,
}

pub(crate) fn tree(name: &str) -> Tree {
    if name.starts_with("..") {
        Tree::Versions
    } else if NEVER_RUN.contains(&name) {
        Tree::Scratch
    } else if PRUNED.contains(&name) {
        Tree::Pruned
    } else {
        Tree::Plain
    }
}

/// A directory with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// As reached from the source.
    pub(crate) directory: PathBuf,
    /// With links resolved.
    pub(crate) canonical: PathBuf,
    pub(crate) has_manifest: bool,
    pub(crate) has_document: bool,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// In byte order of path.
    pub(crate) found: Vec<Found>,
    /// Every directory read, the root first, then in byte order of path.
    pub(crate) directories: Vec<(PathBuf, Identity)>,
    pub(crate) problems: Vec<(PathBuf, Problem)>,
}

/// Bounds of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) depth: usize,
    pub(crate) entries: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { depth: limits::WALK_DEPTH, entries: limits::WALK_ENTRIES }
    }
}

/// Walks below `root`, of which `canonical` is the resolved path.
pub(crate) fn walk(root: &Path, canonical: &Path, bounds: Bounds) -> Walk {
    let mut walker = Walker {
        root: canonical,
        bounds,
        entries: 0,
        full: false,
        visited: HashSet::new(),
        links: BTreeSet::new(),
        walk: Walk::default(),
    };
    walker.tree(root.to_owned(), 0);
    while let Some((link, depth)) = walker.links.pop_first() {
        walker.link(link, depth);
    }
    let mut walk = walker.walk;
    walk.found.sort_by(|a, b| bytes(&a.directory).cmp(bytes(&b.directory)));
    walk.directories.sort_by(|a, b| bytes(&a.0).cmp(bytes(&b.0)));
    walk
}

pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

struct Walker<'a> {
    root: &'a Path,
    bounds: Bounds,
    entries: usize,
    full: bool,
    visited: HashSet<Identity>,
    /// Links to look at once all real directories are read, with the depth that they would add.
    links: BTreeSet<(PathBuf, usize)>,
    walk: Walk,
}

impl Walker<'_> {
    fn problem(&mut self, path: &Path, problem: Problem) {
        self.walk.problems.push((path.to_owned(), problem));
    }

    /// Reads a directory and the real ones below it.
    fn tree(&mut self, start: PathBuf, depth: usize) {
        let mut pending = vec![(start, depth)];
        while let Some((directory, depth)) = pending.pop() {
            match self.directory(&directory, depth) {
                Ok(below) => pending.extend(below.into_iter().map(|path| (path, depth + 1))),
                Err(error) => {
                    let message = format!("walk {}: {error}", shown_path(&directory));
                    self.problem(&directory, Problem::warning("walk", message));
                }
            }
        }
    }

    /// Reads one directory; the real ones in it that are to be read next, last one first.
    fn directory(&mut self, directory: &Path, depth: usize) -> io::Result<Vec<PathBuf>> {
        let identity = Identity::of(&directory.metadata()?);
        if self.full || !self.visited.insert(identity) {
            return Ok(Vec::new());
        }
        let mut below = Vec::new();
        let (mut has_manifest, mut has_document) = (false, false);
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            self.entries += 1;
            if self.entries > self.bounds.entries {
                self.full = true;
                let message = format!("more than {} entries; the rest is not read", self.bounds.entries);
                self.problem(directory, Problem::warning("walk", message));
                break;
            }
            let name = entry.file_name();
            let kind = entry.file_type()?;
            let is_manifest = name == manifest::NAME;
            let is_document = name == frontmatter::NAME;
            if kind.is_dir() {
                match tree(&name.to_string_lossy()) {
                    Tree::Plain if depth < self.bounds.depth => below.push(entry.path()),
                    Tree::Plain | Tree::Versions | Tree::Scratch => {}
                    Tree::Pruned => self.pruned(&entry.path()),
                }
            } else if kind.is_symlink() {
                if tree(&name.to_string_lossy()) != Tree::Versions {
                    match fs::metadata(entry.path()) {
                        Ok(target) if (is_manifest || is_document) && !target.is_dir() => {
                            has_manifest |= is_manifest;
                            has_document |= is_document;
                        }
                        Ok(target) if !target.is_dir() => {}
                        // A directory, or a link that leads nowhere.
                        _ => self.later(entry.path(), depth + 1),
                    }
                }
            } else {
                has_manifest |= is_manifest;
                has_document |= is_document;
            }
        }
        if has_manifest || has_document {
            self.walk.found.push(Found {
                directory: directory.to_owned(),
                canonical: directory.canonicalize()?,
                has_manifest,
                has_document,
            });
        }
        self.walk.directories.push((directory.to_owned(), identity));
        below.sort_by(|a, b| bytes(b).cmp(bytes(a)));
        Ok(below)
    }

    fn later(&mut self, link: PathBuf, depth: usize) {
        if self.links.len() < MAX_LINKS {
            self.links.insert((link, depth));
        }
    }

    /// Says so when a skill is hidden by the name of its directory.
    fn pruned(&mut self, directory: &Path) {
        if [manifest::NAME, frontmatter::NAME].iter().any(|name| directory.join(name).is_file()) {
            let name = directory.file_name().unwrap_or_default().to_string_lossy();
            let message = format!(
                "a manifest in a directory named {:?} is not read; rename the directory",
                shown(&name)
            );
            self.problem(directory, Problem::warning("walk", message));
        }
    }

    fn link(&mut self, link: PathBuf, depth: usize) {
        let target = match link.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.problem(&link, Problem::warning("link", "the link leads nowhere"));
                return;
            }
            Err(error) => {
                self.problem(
                    &link,
                    Problem::warning("link", format!("the link cannot be followed: {error}")),
                );
                return;
            }
        };
        if !target.starts_with(self.root) {
            let message = format!("the link leaves the root {}; it is not followed", shown_path(self.root));
            self.problem(&link, Problem::warning("link", message));
            return;
        }
        let beside = link.parent().and_then(|parent| parent.canonicalize().ok());
        if beside.is_some_and(|beside| beside.starts_with(&target)) {
            self.problem(
                &link,
                Problem::warning("link", "the link leads to a directory above itself; it is not followed"),
            );
            return;
        }
        let plain = target
            .file_name()
            .is_none_or(|name| matches!(tree(&name.to_string_lossy()), Tree::Plain | Tree::Versions));
        if plain && depth <= self.bounds.depth {
            self.tree(link, depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn touch(path: PathBuf) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    fn names(root: &Path, walk: &Walk) -> Vec<String> {
        walk.found
            .iter()
            .map(|found| found.directory.strip_prefix(root).unwrap().to_str().unwrap().to_owned())
            .collect()
    }

    fn run(root: &Path, bounds: Bounds) -> Walk {
        walk(root, &root.canonicalize().unwrap(), bounds)
    }

    #[test]
    fn skills_come_in_byte_order_of_path_and_pruned_trees_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for directory in
            ["b", "a", "a/nested", "a-b", "B", ".git/x", "a/node_modules/x", "v/venv/x", "..x", "c/..data/y"]
        {
            touch(root.join(directory).join("skill.json"));
        }
        touch(root.join("d/SKILL.md"));
        touch(root.join("d/skill.JSON"));
        touch(root.join("skill.json/skill.json"));
        let walk = run(root, Bounds::default());
        assert_eq!(names(root, &walk), ["B", "a", "a-b", "a/nested", "b", "d", "skill.json"]);
        assert!(walk.found[5].has_document && !walk.found[5].has_manifest);
        assert!(walk.problems.is_empty(), "{:?}", walk.problems);
        assert!(walk.directories.iter().all(|(path, _)| !path.ends_with("node_modules")));
    }

    #[test]
    fn a_skill_hidden_by_the_name_of_its_directory_is_reported() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path().join("build/skill.json"));
        let walk = run(root.path(), Bounds::default());
        assert!(walk.found.is_empty());
        assert!(walk.problems[0].1.message.contains("\"build\""));
    }

    #[test]
    fn links_inside_are_followed_once_and_all_others_end_with_one_report() {
        let temporary = tempfile::tempdir().unwrap();
        let (root, outside) = (temporary.path().join("root"), temporary.path().join("outside"));
        touch(root.join("_store/in_root/skill.json"));
        touch(outside.join("skill.json"));
        symlink("_store/in_root", root.join("in_link")).unwrap();
        symlink("z_real", root.join("a_link")).unwrap();
        touch(root.join("z_real/skill.json"));
        symlink(&outside, root.join("out_link")).unwrap();
        symlink(".", root.join("loop")).unwrap();
        symlink("missing", root.join("dangling")).unwrap();
        symlink("self", root.join("self")).unwrap();
        let walk = run(&root, Bounds::default());
        assert_eq!(names(&root, &walk), ["_store/in_root", "z_real"]);
        let reported: Vec<_> =
            walk.problems.iter().map(|(path, _)| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(reported, ["dangling", "loop", "out_link", "self"]);
        assert!(walk.problems[2].1.message.contains("leaves the root"));
    }

    #[test]
    fn a_volume_with_versions_is_found_at_its_stable_path() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        touch(root.join("..2024_01/disk/skill.json"));
        touch(root.join("..2024_01/skill.json"));
        symlink("..2024_01", root.join("..data")).unwrap();
        symlink("..data/disk", root.join("disk")).unwrap();
        symlink("..data/skill.json", root.join("skill.json")).unwrap();
        let walk = run(root, Bounds::default());
        assert_eq!(names(root, &walk), ["", "disk"]);
        assert!(walk.problems.is_empty());
    }

    #[test]
    fn depth_and_entries_are_bounded() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        touch(root.join("1/2/3/4/5/6/7/8/skill.json"));
        touch(root.join("1/2/3/4/5/6/7/8/9/skill.json"));
        assert_eq!(names(root, &run(root, Bounds::default())), ["1/2/3/4/5/6/7/8"]);
        let bounds = Bounds { entries: 3, ..Bounds::default() };
        let walk = run(root, bounds);
        assert!(walk.found.is_empty());
        assert!(walk.problems[0].1.message.contains("more than 3 entries"));
        assert_eq!(walk.problems.len(), 1);
    }
}
