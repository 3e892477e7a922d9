//! The tree of one invocation: the leader and every descendant, also one that called `setsid` or
//! double-forked.
//!
//! Two marks hold it together. In a cgroup, membership; `cgroup.kill` ends it and `cgroup.events` proves it
//! empty. Always, the [tag](super::tag) plus this process being a sub-reaper: an orphan comes to us instead
//! of to init, so a tree that is gone leaves no orphan with its tag. The second mark is also set when there
//! is a cgroup: orphans must be reaped by somebody (in a container weft may be process 1), and a root skill
//! can move itself to another group.
//!
//! An orphan that has no mark left belongs to no tree any more, only to weft: [strays](proc::strays) are ended
//! by whichever invocation ends next, and by `Executor::reap_orphans`.
//!
//! What a clean end costs: one read of `cgroup.events`, if there is a group, and two reads of our own list of
//! children, which is empty. Only a tree that left something behind, or must be ended, pays for more: a scan
//! of `/proc` (about 10 µs per process on the machine) or of `cgroup.procs`.

use std::collections::{HashMap, HashSet};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::cgroup::Group;
use super::proc::{self, Orphans, Stat};
use super::tag::Tag;

/// The marks of one running or ending tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree<'a> {
    pub(crate) leader: u32,
    pub(crate) tag: Tag,
    pub(crate) group: Option<&'a Group>,
    /// `None` where the kernel offers no list of children: then every look is a scan of `/proc`.
    pub(crate) orphans: Option<&'a Orphans>,
}

impl Tree<'_> {
    /// Asks every process of the tree to end; each gets one SIGTERM, and none that starts later does, so that
    /// a handler may still run programs. Returns whom it saw.
    pub(crate) fn terminate(&self) -> Vec<(u32, Stat)> {
        let Some(group) = self.group else {
            let seen = self.scan();
            if let Some(group) = Pid::from_raw(self.leader as i32) {
                let _ = kill_process_group(group, Signal::TERM);
            }
            for (pid, stat) in seen.iter().filter(|(_, stat)| stat.group != self.leader) {
                send(*pid, stat, Signal::TERM);
            }
            return seen;
        };
        let open: Vec<_> = members(group).into_iter().filter_map(|m| Some((m, open(m.0)?))).collect();
        // Still a member after its pidfd was opened: the pidfd is of that member and of no successor of its
        // pid.
        let still: HashSet<u32> = group.members().into_iter().collect();
        open.into_iter()
            .map(|((pid, stat), pidfd)| {
                if still.contains(&pid) {
                    let _ = pidfd_send_signal(pidfd, Signal::TERM);
                }
                (pid, stat)
            })
            .collect()
    }

    /// Kills whatever of the tree is alive now, and returns who that was. To be repeated until
    /// [`Tree::is_gone`]: a process can fork between the look and the signal.
    pub(crate) fn kill(&self) -> Vec<(u32, Stat)> {
        if let Some(group) = self.group
            && group.is_populated()
        {
            let killed = members(group);
            group.kill();
            return killed;
        }
        let mut seen = self.scan();
        // The leader first: it must not go on, and end as if nothing had happened, because its child was killed.
        seen.sort_by_key(|(pid, _)| *pid != self.leader);
        seen.into_iter().filter(|(pid, stat)| send(*pid, stat, Signal::KILL)).collect()
    }

    /// True when no process of the tree but the leader is left, not even as a zombie. To be asked once the
    /// leader has ended, and before it is reaped: its zombie keeps its pid, and so the number of its process
    /// group, from being given to a stranger.
    pub(crate) fn is_gone(&self) -> bool {
        if self.group.is_some_and(Group::is_populated) {
            return false;
        }
        match self.orphans {
            Some(orphans) => !orphans.reap(self.tag, self.leader),
            None => self.scan_and_reap(),
        }
    }

    /// Orphans that nobody answers for. Empty means that none of their descendants lives either.
    pub(crate) fn strays(&self) -> Vec<(u32, Stat)> {
        proc::strays(self.orphans).alive
    }

    /// Takes orphans that ended out of the process table while the leader still runs.
    pub(crate) fn reap_orphans(&self) {
        if let Some(orphans) = self.orphans {
            orphans.reap(self.tag, self.leader);
        }
    }

    /// The pids still alive, for a message.
    pub(crate) fn survivors(&self) -> Vec<u32> {
        match self.group {
            Some(group) if group.is_populated() => group.members(),
            _ => self.scan().into_iter().chain(self.strays()).map(|(pid, _)| pid).collect(),
        }
    }

    /// Every living process of the tree that `/proc` shows, the leader included: those with the tag or in the
    /// leader's process group, and all their descendants.
    fn scan(&self) -> Vec<(u32, Stat)> {
        scan(|pid, stat| self.holds(pid, stat), Some(self.leader)).0
    }

    fn holds(&self, pid: u32, stat: &Stat) -> bool {
        pid == self.leader
            || stat.group == self.leader
            || proc::marks(pid).is_some_and(|marks| marks.carry(self.tag))
    }

    fn scan_and_reap(&self) -> bool {
        loop {
            let (alive, dead) = scan(|pid, stat| self.holds(pid, stat), Some(self.leader));
            let reaped = dead.into_iter().filter(|&pid| proc::reap_orphan(pid)).count();
            if reaped == 0 {
                return alive.is_empty();
            }
        }
    }
}

/// Processes of a tree that were seen and signalled. What took its tag off and then lost its parent belongs
/// to the tree by no mark any more; only this memory leads to it.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<u32, Stat>);

impl Known {
    pub(crate) fn note(&mut self, seen: impl IntoIterator<Item = (u32, Stat)>) {
        self.0.extend(seen);
    }

    pub(crate) fn kill(&self) {
        for (&pid, stat) in &self.0 {
            send(pid, stat, Signal::KILL);
        }
    }

    /// Reaps those that are ours to reap; true when none of them is left.
    pub(crate) fn is_gone(&mut self) -> bool {
        let us = std::process::id();
        self.0.retain(|&pid, seen| match proc::stat(pid) {
            Some(now) if now.start != seen.start => false,
            Some(now) if now.is_dead() => now.parent == us && !proc::reap_orphan(pid),
            Some(_) => true,
            None => false,
        });
        self.0.is_empty()
    }
}

fn members(group: &Group) -> Vec<(u32, Stat)> {
    let living = |pid| proc::stat(pid).filter(|stat| !stat.is_dead()).map(|stat| (pid, stat));
    group.members().into_iter().filter_map(living).collect()
}

/// Kills strays with all their descendants; returns whom it killed.
pub(crate) fn kill_strays(strays: &[(u32, Stat)]) -> Vec<(u32, Stat)> {
    let is_one =
        |pid, now: &Stat| strays.iter().any(|(stray, seen)| *stray == pid && seen.start == now.start);
    let alive = scan(is_one, None).0.into_iter();
    alive.filter(|(pid, stat)| send(*pid, stat, Signal::KILL)).collect()
}

/// Kills every process on the machine that is marked, and their descendants; returns those it saw alive.
pub(crate) fn kill_marked(marked: impl Fn(u32, &Stat) -> bool) -> Vec<u32> {
    let seen = scan(marked, None).0.into_iter();
    seen.map(|(pid, stat)| {
        send(pid, &stat, Signal::KILL);
        pid
    })
    .collect()
}

/// The living processes of a tree, and those of its zombies that are our own children.
fn scan(marked: impl Fn(u32, &Stat) -> bool, leader: Option<u32>) -> (Vec<(u32, Stat)>, Vec<u32>) {
    let us = std::process::id();
    let seen: HashMap<u32, Stat> = proc::all().filter_map(|pid| Some((pid, proc::stat(pid)?))).collect();
    let mut inside: HashMap<u32, bool> = HashMap::with_capacity(seen.len());
    inside.insert(us, false);
    for &pid in seen.keys() {
        // Walk up until something is known, then carry the answer down again.
        let mut path = Vec::new();
        let mut at = pid;
        let found = loop {
            if let Some(&known) = inside.get(&at) {
                break known;
            }
            let Some(stat) = seen.get(&at) else { break false };
            if path.contains(&at) {
                break false;
            }
            if marked(at, stat) {
                inside.insert(at, true);
                break true;
            }
            path.push(at);
            at = stat.parent;
        };
        for pid in path {
            inside.insert(pid, found);
        }
    }
    let (mut alive, mut dead) = (Vec::new(), Vec::new());
    for (pid, stat) in seen {
        if pid == us || !inside.get(&pid).copied().unwrap_or_default() {
            continue;
        }
        if !stat.is_dead() {
            alive.push((pid, stat));
        } else if stat.parent == us && leader != Some(pid) {
            dead.push(pid);
        }
    }
    (alive, dead)
}

/// Signals the process that was seen, and no other that got its pid since.
fn send(pid: u32, seen: &Stat, signal: Signal) -> bool {
    let Some(pidfd) = open(pid) else { return false };
    match proc::stat(pid) {
        Some(now) if now.start == seen.start && !now.is_dead() => pidfd_send_signal(pidfd, signal).is_ok(),
        _ => false,
    }
}

fn open(pid: u32) -> Option<rustix::fd::OwnedFd> {
    loop {
        match pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()) {
            Err(Errno::INTR) => {}
            other => return other.ok(),
        }
    }
}
