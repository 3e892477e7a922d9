//! The entry: the file that a node starts. Resolved when a skill is loaded and again before each start, because
//! a link may have been turned in between.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{platform, report::shown_path};

/// Why an entry may not be started.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// It lies outside the source, or for an absolute path outside every source.
    #[error("entry {} escapes allowlist root {}", shown_path(.entry), shown_path(.root))]
    Escapes {
        /// The entry with every link resolved.
        entry: PathBuf,
        /// The root below which it should lie, resolved as well.
        root: PathBuf,
    },
    /// There is no such file, or it cannot be reached.
    #[error("entry {}: {source}", shown_path(.entry))]
    Unreachable {
        /// The entry as the manifest names it, made absolute.
        entry: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A directory, a device or the like.
    #[error("entry {} is not a regular file", shown_path(.entry))]
    NotRegular {
        /// The entry with every link resolved.
        entry: PathBuf,
    },
    /// No execute bit at all.
    #[error("entry {} is not executable: it has no execute bit", shown_path(.entry))]
    NotExecutable {
        /// The entry with every link resolved.
        entry: PathBuf,
    },
}

/// Resolves an entry.
///
/// A relative one starts from `directory` and must end below `root`; an absolute one may end below any of
/// `roots`. Roots are given with links resolved.
///
/// # Errors
/// When it is not an executable regular file there.
pub fn resolve_entry(
    entry: &str,
    directory: &Path,
    root: &Path,
    roots: &[PathBuf],
) -> Result<PathBuf, EntryError> {
    let absolute = Path::new(entry).is_absolute();
    let written = directory.join(entry);
    let resolved = written
        .canonicalize()
        .map_err(|source| EntryError::Unreachable { entry: written.clone(), source })?;
    // By whole components, so that neither "/root-b" nor "/root/..data" is mistaken.
    let allowed =
        resolved.starts_with(root) || (absolute && roots.iter().any(|root| resolved.starts_with(root)));
    if !allowed {
        return Err(EntryError::Escapes { entry: resolved, root: root.to_owned() });
    }
    let metadata = resolved
        .symlink_metadata()
        .map_err(|source| EntryError::Unreachable { entry: resolved.clone(), source })?;
    if !metadata.is_file() {
        return Err(EntryError::NotRegular { entry: resolved });
    }
    if !platform::has_execute_bit(&metadata) {
        return Err(EntryError::NotExecutable { entry: resolved });
    }
    Ok(resolved)
}

/// Why a copy may not be started now.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The copy has no entry: its instructions are for reading.
    #[error("the skill has instructions only and cannot be run")]
    NoEntry,
    /// A file is not what it was when the copy was loaded.
    #[error("{} changed since the skill was loaded", shown_path(.path))]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The entry may not be started any more.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;
    use crate::testing::script;

    struct Tree {
        _temporary: tempfile::TempDir,
        root: PathBuf,
        skill: PathBuf,
        outside: PathBuf,
    }

    fn tree() -> Tree {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path().canonicalize().unwrap();
        let (root, outside) = (base.join("root"), base.join("root-b"));
        let skill = root.join("skill");
        fs::create_dir_all(&skill).unwrap();
        fs::create_dir(&outside).unwrap();
        script(&outside.join("run"), "");
        script(&skill.join("run"), "");
        Tree { _temporary: temporary, root, skill, outside }
    }

    fn resolve(tree: &Tree, entry: &str) -> Result<PathBuf, EntryError> {
        resolve_entry(entry, &tree.skill, &tree.root, std::slice::from_ref(&tree.root))
    }

    #[test]
    fn an_entry_below_the_root_is_resolved() {
        let tree = tree();
        assert_eq!(resolve(&tree, "run").unwrap(), tree.skill.join("run"));
        assert_eq!(resolve(&tree, "../skill/./run").unwrap(), tree.skill.join("run"));
        script(&tree.root.join("..shared"), "");
        assert_eq!(resolve(&tree, "../..shared").unwrap(), tree.root.join("..shared"));
        symlink("run", tree.skill.join("link")).unwrap();
        assert_eq!(resolve(&tree, "link").unwrap(), tree.skill.join("run"));
    }

    #[test]
    fn an_entry_that_ends_outside_escapes_with_the_wording_of_the_contract() {
        let tree = tree();
        symlink(tree.outside.join("run"), tree.skill.join("link")).unwrap();
        let expected = format!(
            "entry {} escapes allowlist root {}",
            tree.outside.join("run").display(),
            tree.root.display()
        );
        for entry in ["link", "../../root-b/run", tree.outside.join("run").to_str().unwrap()] {
            assert_eq!(resolve(&tree, entry).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn an_absolute_entry_may_lie_below_any_root_and_a_relative_one_may_not() {
        let tree = tree();
        let roots = [tree.root.clone(), tree.outside.clone()];
        let absolute = tree.outside.join("run");
        let found = resolve_entry(absolute.to_str().unwrap(), &tree.skill, &tree.root, &roots).unwrap();
        assert_eq!(found, absolute);
        let relative = resolve_entry("../../root-b/run", &tree.skill, &tree.root, &roots);
        assert!(matches!(relative, Err(EntryError::Escapes { .. })));
    }

    #[test]
    fn an_entry_must_be_an_executable_regular_file() {
        let tree = tree();
        assert!(matches!(resolve(&tree, "."), Err(EntryError::NotRegular { .. })));
        assert!(matches!(resolve(&tree, "none"), Err(EntryError::Unreachable { .. })));
        assert!(matches!(resolve(&tree, "a\0b"), Err(EntryError::Unreachable { .. })));
        fs::set_permissions(tree.skill.join("run"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(resolve(&tree, "run"), Err(EntryError::NotExecutable { .. })));
    }
}
