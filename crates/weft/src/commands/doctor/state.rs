//! The state directory: writable, private, with room.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use rustix::fs::{Access, access, statvfs};

use super::Check;

/// Below this a node soon has no room for what it keeps until the coordinator has it.
const LITTLE: u64 = 1 << 30;
/// Below this it has none.
const NOTHING: u64 = 16 << 20;

/// Checks the directory without making it.
pub(super) fn checks(dir: Option<&Path>) -> Vec<Check> {
    let Some(dir) = dir else {
        return vec![Check::fail(
            "state",
            "there is no home directory to keep it in",
            "name one with --state-dir",
        )];
    };
    let Some(there) = dir.ancestors().find(|ancestor| ancestor.exists()) else {
        return vec![Check::fail(
            "state",
            format!("no part of {} exists", dir.display()),
            "name another with --state-dir",
        )];
    };
    let mut checks = vec![writable(dir, there)];
    if let Ok(volume) = statvfs(there) {
        checks.push(room(volume.f_bavail.saturating_mul(volume.f_frsize)));
    }
    checks
}

fn writable(dir: &Path, there: &Path) -> Check {
    let shown = dir.display();
    if let Err(error) = access(there, Access::WRITE_OK | Access::EXEC_OK) {
        let found = format!("{shown}: cannot write to {}: {error}", there.display());
        return Check::fail("state", found, "name another with --state-dir, or run as its owner");
    }
    if there != dir {
        return Check::ok("state", format!("{shown} will be made in {}", there.display()));
    }
    let mode = fs::metadata(dir).map_or(0, |found| found.mode());
    if mode & 0o077 != 0 {
        let advice = format!("others may read what the node keeps: chmod 700 {shown}");
        return Check::warn("state", format!("{shown} has mode {:o}", mode & 0o7777), advice);
    }
    Check::ok("state", format!("{shown} can be written"))
}

fn room(free: u64) -> Check {
    let found = format!("{} MiB free", free >> 20);
    match free {
        free if free < NOTHING => {
            Check::fail("room", found, "make room on the volume of the state directory")
        }
        free if free < LITTLE => Check::warn(
            "room",
            found,
            "a node may keep 1 GiB of stderr and results while its coordinator is away",
        ),
        _ => Check::ok("room", found),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Verdict, *};

    #[test]
    fn a_directory_that_is_not_there_yet_is_fine_and_stays_away() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("a/b");
        assert_eq!(checks(Some(&dir))[0].verdict, Verdict::Ok);
        assert!(!scratch.path().join("a").exists());
        assert_eq!(checks(None)[0].verdict, Verdict::Fail);
    }

    #[test]
    fn room_has_three_grades() {
        let verdicts = [1 << 40, 100 << 20, 1 << 20].map(|free| room(free).verdict);
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Warn, Verdict::Fail]);
    }
}
