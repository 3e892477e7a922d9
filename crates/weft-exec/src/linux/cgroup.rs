//! Containment by cgroup v2: one group per executor below our own, one pooled group per slot below that.
//!
//! ```text
//! <our group>/weft-<pid>-<start time>-<random>/slot-0
//!                                              slot-1 …
//! ```
//!
//! No controller is switched on, so our own group may hold processes and children at once. The executor holds
//! a lock on its group's directory for as long as it lives; a group whose lock can be taken and whose process
//! is gone belongs to an executor that died, and the next one to be built there kills what is left in it and
//! removes it.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, openat};
use rustix::io::{pread, write};
use rustix::process::{Pid, Signal, kill_process};

use super::proc;

/// How long the processes of all dead executors together get to die before what is left of them waits for the next
/// sweep: a start must not hang on a process that cannot be killed.
const SWEEP_LIMIT: Duration = Duration::from_millis(200);

/// Why there is no group to put children in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCgroup {
    /// The configuration chose tags.
    #[error("not asked for")]
    NotAsked,
    /// No cgroup v2 hierarchy is mounted, or we are in no group of it that the mount shows.
    #[error("no cgroup v2 hierarchy holds this process: {0}")]
    NoHierarchy(String),
    /// The hierarchy is there, but no group can be made in it.
    #[error("cannot make a group below `{}`: {why}", path.display())]
    NotWritable {
        /// Our own group.
        path: PathBuf,
        /// The system's answer.
        why: String,
    },
    /// The kernel is older than Linux 5.14.
    #[error("the kernel has no cgroup.kill (Linux 5.14)")]
    NoKillFile,
    /// A child could not be put into a group.
    #[error("a child cannot be put into a group: {0}")]
    NoPlacement(String),
}

// === impl Pool ===

/// The executor's group, removed with everything below when dropped.
#[derive(Debug)]
pub(crate) struct Pool {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Pool {
    /// Finds our group, sweeps what dead executors left there and makes a group for this one.
    pub(crate) fn make() -> Result<Pool, NoCgroup> {
        let ours = our_group()?;
        sweep(&ours);
        let refused = |error: io::Error| NoCgroup::NotWritable { path: ours.clone(), why: error.to_string() };
        let pid = std::process::id();
        let start = proc::stat(pid).map_or(0, |stat| stat.start);
        let path = ours.join(format!("weft-{pid}-{start}-{:08x}", RandomState::new().hash_one(pid) as u32));
        fs::create_dir(&path).map_err(refused)?;
        let lock = open_directory(&path).and_then(|fd| {
            flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
            Ok(fd)
        });
        let lock = match lock {
            Ok(lock) => lock,
            Err(error) => {
                let _ = fs::remove_dir(&path);
                return Err(refused(error));
            }
        };
        let pool = Pool { path, _lock: lock };
        if !pool.path.join("cgroup.kill").exists() || !pool.path.join("cgroup.events").exists() {
            return Err(NoCgroup::NoKillFile);
        }
        Ok(pool)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The group of a slot.
    pub(crate) fn group(&self, slot: usize) -> io::Result<Group> {
        self.group_named(&format!("slot-{slot}"))
    }

    pub(crate) fn group_named(&self, name: &str) -> io::Result<Group> {
        Group::make(self.path.join(name))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cgroup left behind");
        }
    }
}

// === impl Group ===

/// A slot's group. It is used again for the next invocation.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    directory: OwnedFd,
    events: OwnedFd,
    /// `cgroup.procs` for writing, for children that enter by themselves.
    enter: OwnedFd,
    killed: Cell<bool>,
}

impl Group {
    fn make(path: PathBuf) -> io::Result<Group> {
        fs::create_dir(&path)?;
        let directory = open_directory(&path)?;
        let events = openat(&directory, "cgroup.events", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let enter = openat(&directory, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Group { path, directory, events, enter, killed: Cell::new(false) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub(crate) fn enter(&self) -> BorrowedFd<'_> {
        self.enter.as_fd()
    }

    /// True while a living process is in the group or below it. Zombies do not count.
    pub(crate) fn is_populated(&self) -> bool {
        let mut buffer = [0_u8; 128];
        let n = pread(&self.events, &mut buffer[..], 0).unwrap_or_default();
        let text = String::from_utf8_lossy(&buffer[..n]);
        if text.contains("frozen 1") {
            // A skill that may write here froze itself; the next child in this group must not hang.
            self.tell("cgroup.freeze", b"0");
        }
        !text.contains("populated 0")
    }

    /// The living processes in the group and below it.
    pub(crate) fn members(&self) -> Vec<u32> {
        let mut members = Vec::new();
        collect_members(&self.path, &mut members);
        members
    }

    /// SIGKILL to all of them, atomically with respect to forks.
    pub(crate) fn kill(&self) {
        self.killed.set(true);
        self.tell("cgroup.kill", b"1");
    }

    /// A group that was killed once is no place to be born in: on Linux 6.18 every later child that
    /// `CLONE_INTO_CGROUP` puts there is killed at birth. (It seems to be taken for one that raced with the
    /// kill.) Entering by itself still works, and so does a new group.
    pub(crate) fn was_killed(&self) -> bool {
        self.killed.get()
    }

    /// Replaces the empty group by a new one of the same name. Where that fails it is tried again after the
    /// next invocation, and until then children enter the old one by themselves, which works after a kill.
    pub(crate) fn replace(&mut self) {
        self.killed.set(true);
        let renewed = match remove(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Group::make(self.path.clone()),
        };
        match renewed {
            Ok(group) => *self = group,
            Err(error) => tracing::debug!(path = %self.path.display(), %error, "cannot replace cgroup"),
        }
    }

    fn tell(&self, file: &str, value: &[u8]) {
        let done = openat(&self.directory, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|fd| write(&fd, value));
        if let Err(error) = done {
            tracing::warn!(path = %self.path.display(), file, %error, "cannot write to cgroup");
        }
    }
}

fn collect_members(group: &Path, members: &mut Vec<u32>) {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    members.extend(list.lines().filter_map(|pid| pid.parse::<u32>().ok()).filter(|&pid| pid != 0));
    for below in subgroups(group) {
        collect_members(&below, members);
    }
}

fn subgroups(group: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path())
}

/// Removes a group with all groups below it; they must be empty of processes.
fn remove(group: &Path) -> io::Result<()> {
    for below in subgroups(group) {
        remove(&below)?;
    }
    fs::remove_dir(group)
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

// === finding our group ===

fn our_group() -> Result<PathBuf, NoCgroup> {
    let read = |path: &str| {
        fs::read_to_string(path).map_err(|error| NoCgroup::NoHierarchy(format!("read {path}: {error}")))
    };
    locate(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
}

/// The directory of our group: hybrid mounts put the hierarchy in odd places, and in a container the mount
/// may show only a part of it.
fn locate(mountinfo: &str, membership: &str) -> Result<PathBuf, NoCgroup> {
    let Some(group) = membership.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Err(NoCgroup::NoHierarchy("/proc/self/cgroup has no `0::` line".into()));
    };
    let mut refusal = NoCgroup::NoHierarchy("no cgroup2 mount".into());
    for line in mountinfo.lines() {
        let Some((mount, rest)) = line.split_once(" - ") else { continue };
        if rest.split(' ').next() != Some("cgroup2") {
            continue;
        }
        let fields: Vec<&str> = mount.split(' ').collect();
        let [_, _, _, root, point, options, ..] = fields[..] else { continue };
        let point = unescape(point);
        if options.split(',').any(|option| option == "ro") {
            refusal = NoCgroup::NotWritable { path: point, why: "mounted read-only".into() };
            continue;
        }
        let below = if root == "/" { Some(group) } else { group.strip_prefix(root) };
        match below {
            Some(below) if !below.split('/').any(|part| part == "..") => {
                return Ok(point.join(below.trim_start_matches('/')));
            }
            _ => {
                let shown = point.display();
                refusal =
                    NoCgroup::NoHierarchy(format!("our group {group} is not below the mount at {shown}"));
            }
        }
    }
    Err(refusal)
}

/// mountinfo writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut out = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                out.push(char::from(code));
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    PathBuf::from(out)
}

// === sweeping after dead executors ===

fn sweep(ours: &Path) {
    let limit = Instant::now() + SWEEP_LIMIT;
    for group in subgroups(ours) {
        let Some(name) = group.file_name().and_then(|name| name.to_str()) else { continue };
        let mut parts = name.strip_prefix("weft-").unwrap_or_default().split('-');
        let pid = parts.next().and_then(|pid| pid.parse::<u32>().ok());
        let start = parts.next().and_then(|start| start.parse::<u64>().ok());
        let (Some(pid), Some(start)) = (pid, start) else { continue };
        if proc::stat(pid).is_some_and(|stat| stat.start == start && !stat.is_dead()) {
            continue;
        }
        // The pid may count in another namespace that shares this group; the lock is the same everywhere.
        let Ok(directory) = open_directory(&group) else { continue };
        if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        match clear(&group, limit) {
            Ok(()) => tracing::info!(path = %group.display(), "removed cgroup of a dead executor"),
            Err(error) => {
                tracing::warn!(path = %group.display(), %error, "cannot remove cgroup of a dead executor")
            }
        }
    }
}

fn clear(group: &Path, limit: Instant) -> io::Result<()> {
    fs::write(group.join("cgroup.kill"), "1")?;
    // A process whose first thread has ended while others run is not reached by that: the signal stays with the dead
    // thread.
    let mut members = Vec::new();
    collect_members(group, &mut members);
    for pid in members.into_iter().filter_map(|pid| i32::try_from(pid).ok().and_then(Pid::from_raw)) {
        let _ = kill_process(pid, Signal::KILL);
    }
    while fs::read_to_string(group.join("cgroup.events"))?.contains("populated 1") {
        if Instant::now() > limit {
            return Err(io::Error::other("its processes do not die"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    remove(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                          41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn hybrid_mount_is_found() {
        let found = locate(HYBRID, "4:memory:/x\n0::/\n").unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/"));
    }

    #[test]
    fn mount_of_a_part_is_found() {
        let mounts = "41 31 0:38 /pod/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(locate(mounts, "0::/pod/abc/inner\n").unwrap(), Path::new("/sys/fs/cgroup/inner"));
        assert!(matches!(locate(mounts, "0::/elsewhere\n"), Err(NoCgroup::NoHierarchy(_))));
        assert!(matches!(locate(mounts, "0::/pod/abc/../x\n"), Err(NoCgroup::NoHierarchy(_))));
    }

    #[test]
    fn read_only_mount_is_refused_with_its_path() {
        let mounts = "41 31 0:38 / /sys/fs/cgroup ro,nosuid shared:9 - cgroup2 cgroup rw\n";
        let refusal = locate(mounts, "0::/\n").unwrap_err();
        assert_eq!(refusal.to_string(), "cannot make a group below `/sys/fs/cgroup`: mounted read-only");
    }

    #[test]
    fn pure_v1_is_refused() {
        assert!(locate(HYBRID, "4:memory:/x\n").is_err());
        assert!(locate("1 2 0:3 / / rw - ext4 x rw\n", "0::/\n").is_err());
    }

    #[test]
    fn escaped_mount_points_are_read() {
        assert_eq!(unescape(r"/a\040b\134c"), Path::new(r"/a b\c"));
    }
}
