//! The skill directories: there, safe from others, and what is in them.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use weft_core::skill::Severity;
use weft_skills::Inventory;

use super::Check;

/// Most paths that one check names.
const NAMED: usize = 3;

/// Checks each directory, and what all of them hold.
pub(super) fn checks(directories: &[PathBuf], inventory: &Inventory) -> Vec<Check> {
    if directories.is_empty() {
        let advice = "name one with --skills or WEFT_SKILLS_DIRS; without any a node offers nothing";
        return vec![Check::warn("source", "no skill directory is named", advice)];
    }
    let mut checks: Vec<Check> = directories.iter().map(|directory| source(directory, inventory)).collect();
    checks.push(skills(inventory));
    checks
}

fn source(directory: &Path, inventory: &Inventory) -> Check {
    let shown = directory.display();
    if !directory.is_absolute() {
        return Check::warn(
            "source",
            format!("{shown} is not absolute and is skipped"),
            "write the whole path",
        );
    }
    if !directory.is_dir() {
        return Check::warn(
            "source",
            format!("{shown} is not a directory that can be read"),
            "make it, or name another",
        );
    }
    let open: Vec<_> = paths(directory, inventory).into_iter().filter_map(|path| weakness(&path)).collect();
    if open.is_empty() {
        return Check::ok("source", shown.to_string());
    }
    let more = open.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named: Vec<_> = open.into_iter().take(NAMED).collect();
    let advice = "who can write there can run programs as the node: chown to root or to the node, chmod go-w";
    Check::warn("source", format!("{shown}: {}{more}", named.join(", ")), advice)
}

/// Everything whose owner decides what is run: what leads to the source, and what the loader read in it.
fn paths(source: &Path, inventory: &Inventory) -> Vec<PathBuf> {
    let read = inventory.directories().map(Path::to_owned);
    let copies = inventory.copies.iter().flat_map(|copy| [Some(copy.manifest.clone()), copy.entry.clone()]);
    let below = read.chain(copies.flatten()).filter(|path| path.starts_with(source) && path != source);
    source.ancestors().map(Path::to_owned).chain(below).collect()
}

/// Who besides root and this user may change what is there, in words.
fn weakness(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let (mode, owner) = (found.mode(), found.uid());
    // In a directory with the sticky bit nobody can replace what belongs to another.
    let shared = found.is_dir() && mode & 0o1000 != 0;
    let shown = path.display();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        Some(format!("{shown} belongs to user {owner}"))
    } else if mode & 0o002 != 0 && !shared {
        Some(format!("{shown} can be written by everybody"))
    } else if mode & 0o020 != 0 && !shared && found.gid() != 0 {
        Some(format!("{shown} can be written by group {}", found.gid()))
    } else {
        None
    }
}

fn skills(inventory: &Inventory) -> Check {
    let offered = || inventory.copies.iter().filter(|copy| copy.shadowed_by.is_none());
    let ineligible: Vec<_> =
        offered().filter(|copy| !copy.eligible()).map(|copy| copy.definition.key.to_string()).collect();
    let invalid = inventory.diagnostics.iter().filter(|one| one.severity == Severity::Error).count();
    let found = format!(
        "{} loaded, {} of them cannot run here, {invalid} errors",
        offered().count(),
        ineligible.len()
    );
    if invalid > 0 {
        Check::warn("skills", found, "`weft skill lint DIRECTORY` says what is wrong")
    } else if ineligible.is_empty() {
        Check::ok("skills", found)
    } else {
        let named: Vec<_> = ineligible.into_iter().take(NAMED).collect();
        Check::warn(
            "skills",
            found,
            format!("`weft skill lint DIRECTORY` says why; the first: {}", named.join(", ")),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use weft_skills::{Config, Loader, Source};

    use super::{super::Verdict, *};

    #[test]
    fn a_directory_that_everybody_can_write_is_a_warning() {
        let scratch = tempfile::tempdir().unwrap();
        let open = scratch.path().join("open");
        fs::create_dir(&open).unwrap();
        let chmod = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        chmod(0o755);
        assert_eq!(weakness(&open), None);
        chmod(0o757);
        assert!(weakness(&open).is_some_and(|why| why.contains("everybody")));
        let directories = [open.clone()];
        let config = Config::new(directories.iter().map(Source::managed).collect());
        let checks = checks(&directories, &Loader::new(config).load(None));
        assert_eq!(
            checks.iter().map(|check| check.verdict).collect::<Vec<_>>(),
            [Verdict::Warn, Verdict::Ok]
        );
    }
}
