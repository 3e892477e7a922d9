//! Reading `/proc`: who our children are, and who carries a tag.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;

use rustix::io::{Errno, pread};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::clone;
use super::tag::{self, Marks, Tag};

/// How often the list of children is read until two looks agree; then the caller has to come back.
const LIST_TRIES: usize = 8;

/// One line of `/proc/PID/stat`, as much as is needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) threads: u32,
    /// Clock ticks since boot; with the pid it names a process for good.
    pub(crate) start: u64,
}

impl Stat {
    /// A process whose main thread alone has ended shows as a zombie and lives on in its other threads.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

/// The state of a process, or `None` when there is none of that pid.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    // The name, in parentheses, may itself hold spaces and parentheses; the last one closes it.
    let name_end = line.iter().rposition(|&b| b == b')')?;
    let mut fields = std::str::from_utf8(line.get(name_end + 2..)?).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let threads = fields.nth(14)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    Some(Stat { state, parent, group, threads, start })
}

/// The marks a process carries, dead or alive.
pub(crate) fn marks(pid: u32) -> Option<Marks> {
    match clone::marks(Some(pid)) {
        Ok(marks) => Some(marks),
        // Of another user, which a setuid program among the descendants can be. This file is open to
        // everyone.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            parse_limits(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
        }
        Err(_) => None,
    }
}

fn parse_limits(limits: &str) -> Option<Marks> {
    let hard = |name| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_ascii_whitespace().nth(1)? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    };
    Some(Marks { rttime: hard("Max realtime timeout")?, locks: hard("Max file locks")? })
}

/// Every pid there is.
pub(crate) fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The process and those above it, up to the first of the pid namespace.
pub(crate) fn and_above(pid: u32) -> Vec<u32> {
    let mut chain = Vec::new();
    let mut at = pid;
    while at != 0 && !chain.contains(&at) {
        chain.push(at);
        at = stat(at).map_or(0, |stat| stat.parent);
    }
    chain
}

/// The children of this process's main thread, which is where the kernel hangs orphans when we are the
/// sub-reaper: on the first thread of the process that is not exiting.
///
/// Leaders are not among them: they belong to the slot thread that started them. (Only a process whose main
/// thread has exited gets its orphans elsewhere; no weft program does that.) Children that another part of
/// this process started are, when its main thread started them or the thread that did has ended.
#[derive(Debug)]
pub(crate) struct Orphans {
    children: File,
}

impl Orphans {
    pub(crate) fn open() -> io::Result<Orphans> {
        let pid = std::process::id();
        Ok(Orphans { children: File::open(format!("/proc/self/task/{pid}/children"))? })
    }

    /// Usually empty, and then this is a single small read.
    fn list(&self) -> Vec<u32> {
        let mut text = Vec::new();
        let mut buffer = [0_u8; 1024];
        loop {
            match pread(self.children.as_fd(), &mut buffer[..], text.len() as u64) {
                Ok(0) => break,
                Ok(n) => text.extend_from_slice(&buffer[..n]),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let text = String::from_utf8_lossy(&text);
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Reaps the orphans of one tree that have ended and says whether one still lives.
    ///
    /// When none lives, and the leader has ended, the tree is gone: every living descendant has a chain of
    /// living parents that ends here, and it begins with an orphan.
    pub(crate) fn reap(&self, tag: Tag, leader: u32) -> bool {
        let mut before = None;
        for _ in 0..LIST_TRIES {
            let list = self.list();
            let (mut reaped, mut alive) = (false, false);
            for &pid in &list {
                if !belongs(pid, tag, leader) {
                    continue;
                }
                if reap_orphan(pid) { reaped = true } else { alive = true }
            }
            if alive || list.is_empty() {
                return alive;
            }
            // An orphan that ended handed its own children on to us, so look again. Also when another child
            // of ours may have been reaped during the look: the kernel then leaves out some that are still
            // there.
            if !reaped && before.as_ref() == Some(&list) {
                return false;
            }
            before = Some(list);
        }
        true
    }
}

fn belongs(pid: u32, wanted: Tag, leader: u32) -> bool {
    marks(pid).is_some_and(|marks| marks.carry(wanted)) || stat(pid).is_some_and(|stat| stat.group == leader)
}

/// Orphans that no running invocation answers for: of one that has ended, or without a mark.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    pub(crate) alive: Vec<(u32, Stat)>,
    /// How many had ended and are out of the process table now.
    pub(crate) reaped: u32,
}

/// Looks at our children, reaps the strays among them that have ended and returns those that live.
///
/// What makes a child a stray is said at [`tag::is_stray`]. When none lives, none of their descendants does,
/// by the argument at [`Orphans::reap`].
pub(crate) fn strays(orphans: Option<&Orphans>) -> Strays {
    let us = std::process::id();
    let mut strays = Strays::default();
    let mut before = None;
    for _ in 0..LIST_TRIES {
        let list = match orphans {
            Some(orphans) => orphans.list(),
            None => all().filter(|&pid| stat(pid).is_some_and(|stat| stat.parent == us)).collect(),
        };
        strays.alive.clear();
        if list.is_empty() {
            break;
        }
        // After the list: whatever is on it, its invocation had begun.
        let running = tag::running();
        let Ok(ours) = clone::marks(None) else { break };
        let mut reaped = false;
        for &pid in &list {
            let Some((seen, marks)) = stat(pid).zip(marks(pid)) else { continue };
            if seen.parent != us || !tag::is_stray(pid, seen.group, marks, ours, &running) {
                continue;
            }
            if reap_orphan(pid) {
                reaped = true;
                strays.reaped += 1;
            } else {
                strays.alive.push((pid, seen));
            }
        }
        if !strays.alive.is_empty() || (!reaped && before.as_ref() == Some(&list)) {
            break;
        }
        before = Some(list);
    }
    strays
}

/// True when the orphan has ended and is out of the process table.
pub(super) fn reap_orphan(pid: u32) -> bool {
    let Some(pid) = Pid::from_raw(pid as i32) else { return false };
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(None) => return false,
            Ok(Some(_)) => return true,
            Err(Errno::INTR) => {}
            // Not our child any more: another slot looked at the same moment.
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_a_hostile_name() {
        let line = b"42 (a) R 7 (b) S 17 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 998877 1 2";
        let expected = Stat { state: b'S', parent: 17, group: 42, threads: 1, start: 998_877 };
        assert_eq!(parse_stat(line), Some(expected));
    }

    #[test]
    fn marks_of_another_user_are_read_from_the_file() {
        let of_us = fs::read_to_string("/proc/self/limits").unwrap();
        assert_eq!(parse_limits(&of_us), marks(std::process::id()));
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max file locks            7                    8                    locks     \n\
                      Max realtime timeout      unlimited            unlimited            us        \n";
        assert_eq!(parse_limits(limits), Some(Marks { rttime: u64::MAX, locks: 8 }));
    }

    #[test]
    fn zombie_with_living_threads_is_not_dead() {
        let stat = |threads| Stat { state: b'Z', parent: 1, group: 1, threads, start: 1 };
        assert!(stat(1).is_dead() && !stat(2).is_dead());
    }

    #[test]
    fn strays_are_found_with_and_without_child_lists() {
        rustix::process::set_child_subreaper(Pid::from_raw(1)).unwrap();
        let orphans = Orphans::open().unwrap();
        let line = "prlimit --rttime=5:5 --locks=5:5 setsid sleep 98737.1 >/dev/null 2>&1 & echo $!";
        let shell = std::process::Command::new("/bin/sh").args(["-c", line]).output().unwrap();
        let pid: u32 = String::from_utf8(shell.stdout).unwrap().trim().parse().unwrap();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let listed = |orphans| strays(orphans).alive.iter().any(|(stray, _)| *stray == pid);
        while !(listed(Some(&orphans)) && listed(None)) {
            assert!(std::time::Instant::now() < limit, "never a stray");
        }
        rustix::process::kill_process(Pid::from_raw(pid as i32).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
        while strays(None).reaped == 0 {
            assert!(std::time::Instant::now() < limit, "never reaped");
        }
        assert!(stat(pid).is_none());
    }

    #[test]
    fn chain_upwards_begins_with_the_process() {
        let us = std::process::id();
        let chain = and_above(us);
        assert_eq!(chain[..2], [us, std::os::unix::process::parent_id()]);
    }

    #[test]
    fn stat_of_this_process_is_found() {
        let stat = stat(std::process::id()).unwrap();
        assert!(!stat.is_dead());
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
    }
}
