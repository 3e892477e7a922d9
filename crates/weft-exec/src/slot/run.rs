//! One invocation from the moment its child exists until its tree is gone.
//!
//! The loop waits in `poll` for the pipes, the end of the leader, a wish to stop and the next point in time,
//! and moves through these phases; each arm of [`Run::step`] has the rule above it:
//!
//! ```text
//! Running      leader ended         -> Draining
//!              stop, budget used up -> Terminating
//!              too much stdout      -> Killing      (from every phase)
//! Draining     stderr at its end, drain used up, stop -> Settling
//! Settling     tree gone            -> Gone
//!              something lives on   -> Killing
//! Terminating  tree gone            -> Gone
//!              grace used up        -> Killing
//! Killing      tree gone            -> Gone
//!              too long             -> Unconfirmed
//! ```

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, read, write};

use crate::config::Config;
use crate::executor::Control;
use crate::linux::proc::Stat;
use crate::linux::tag;
use crate::linux::tree::{Known, Tree, kill_strays};
use crate::output::{Audience, Stderr, Stdout};
use crate::report::Ending;

/// Descendants that end together with the leader get this long before they count as left behind.
const SETTLE: Duration = Duration::from_millis(10);
/// How often a tree whose leader is gone is looked at during the grace.
const GRACE_LOOK: Duration = Duration::from_millis(20);
/// How often ended orphans of a running leader are reaped.
pub(super) const REAP_EVERY: Duration = Duration::from_secs(1);
/// Strays that may be of another invocation are waited for no longer than this.
const STRAYS_HOLD: Duration = Duration::from_millis(500);
/// Kills are repeated with growing pauses up to this.
const KILL_PAUSE: Duration = Duration::from_millis(50);

/// One invocation with a child.
pub(super) struct Run<'a> {
    pub(super) config: &'a Config,
    pub(super) tree: Tree<'a>,
    pub(super) wake: &'a OwnedFd,
    pub(super) buffer: &'a mut [u8],
    pub(super) control: &'a Control,
    pub(super) audience: Audience,
    pub(super) pidfd: &'a OwnedFd,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) input: Bytes,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    pub(super) out: Stdout,
    pub(super) err: Stderr,
    pub(super) deadline: Option<Instant>,
    pub(super) grace: Duration,
    pub(super) reap_at: Instant,
    pub(super) leader_ended: Option<Instant>,
    pub(super) known: Known,
    pub(super) leftovers: HashSet<u32>,
    /// Since when there are strays while other invocations run.
    pub(super) strays_since: Option<Instant>,
    pub(super) count_leftovers: bool,
    pub(super) ending: Option<Ending>,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    Running,
    Draining { until: Instant },
    Settling { until: Instant },
    Terminating { kill_at: Instant },
    Killing { give_up: Instant, again: Instant, pause: Duration },
    Gone,
    Unconfirmed,
}

impl Run<'_> {
    pub(super) fn drive(&mut self) {
        loop {
            let now = Instant::now();
            self.err.tick(now, &mut self.audience);
            let Some(wake_at) = self.step(now) else { return };
            let until = [wake_at, self.err.due()].into_iter().flatten().min();
            self.wait(until.map(|until| until.saturating_duration_since(now)));
        }
    }

    /// Moves on as far as `now` allows. Returns when to look again at the latest, or `None` when it is over.
    fn step(&mut self, now: Instant) -> Option<Option<Instant>> {
        loop {
            match self.phase {
                // A leader that has ended wins over a stop and over the budget: it did its work.
                Phase::Running => {
                    if self.leader_ended.is_some() {
                        self.ending = Some(Ending::Exited);
                        self.phase = Phase::Draining { until: later(now, self.config.output_drain) };
                    } else if let Some(reason) = self.control.reason() {
                        self.ending = Some(Ending::Stopped(reason));
                        self.terminate(now);
                    } else if self.deadline.is_some_and(|deadline| now >= deadline) {
                        self.ending = Some(Ending::TimedOut);
                        self.terminate(now);
                    } else {
                        if now >= self.reap_at {
                            self.tree.reap_orphans();
                            self.strays_are_gone();
                            self.reap_at = now + REAP_EVERY;
                        }
                        let reap_at = Some(self.reap_at);
                        return Some([self.deadline, reap_at].into_iter().flatten().min());
                    }
                }
                // Whoever still holds stderr may say something; nobody is waited for longer than the drain.
                Phase::Draining { until } => {
                    if self.stderr.is_none() {
                        self.phase = Phase::Settling { until: now + SETTLE };
                    } else if now >= until || self.control.reason().is_some() {
                        self.phase = Phase::Settling { until: now };
                    } else {
                        return Some(Some(until));
                    }
                }
                // What ends together with the leader was not left behind.
                Phase::Settling { until } => {
                    if self.tree.is_gone() && self.strays_are_gone() {
                        self.phase = Phase::Gone;
                    } else if now >= until {
                        self.kill(now);
                    } else {
                        return Some(Some(now + Duration::from_millis(1)));
                    }
                }
                // The whole tree has the grace, also when the leader uses less of it.
                Phase::Terminating { kill_at } => {
                    if self.is_gone() {
                        self.phase = Phase::Gone;
                    } else if now >= kill_at || self.control.is_immediate() {
                        self.kill(now);
                    } else if self.leader_ended.is_some() {
                        return Some(Some(kill_at.min(now + GRACE_LOOK)));
                    } else {
                        return Some(Some(kill_at));
                    }
                }
                Phase::Killing { give_up, again, pause } => {
                    if self.is_gone() {
                        self.phase = Phase::Gone;
                    } else if now >= give_up {
                        self.ending = Some(self.unconfirmed());
                        self.phase = Phase::Unconfirmed;
                    } else if now >= again {
                        self.kill_once();
                        let again = now + pause;
                        self.phase = Phase::Killing { give_up, again, pause: (pause * 2).min(KILL_PAUSE) };
                    } else {
                        return Some(Some(give_up.min(again)));
                    }
                }
                Phase::Gone | Phase::Unconfirmed => return None,
            }
        }
    }

    fn is_gone(&mut self) -> bool {
        self.leader_ended.is_some() && self.tree.is_gone() && self.known.is_gone() && self.strays_are_gone()
    }

    /// Ends orphans without a mark, and says whether none is left. They are this invocation's when no other
    /// one runs. Else nobody knows whose they are: then they are ended all the same, but one invocation must
    /// not be held up for long by another that makes more and more of them.
    fn strays_are_gone(&mut self) -> bool {
        let strays = self.tree.strays();
        if strays.is_empty() {
            self.strays_since = None;
            return true;
        }
        let killed = kill_strays(&strays);
        if tag::is_alone(self.tree.tag) {
            if self.leader_ended.is_some() {
                self.leftovers.extend(killed.iter().map(|(pid, _)| *pid));
            }
            self.note(killed);
            return false;
        }
        let now = Instant::now();
        now.duration_since(*self.strays_since.get_or_insert(now)) >= STRAYS_HOLD
    }

    fn note(&mut self, seen: Vec<(u32, Stat)>) {
        let leader = self.tree.leader;
        self.known.note(seen.into_iter().filter(|(pid, _)| *pid != leader));
    }

    fn terminate(&mut self, now: Instant) {
        if self.control.is_immediate() {
            return self.kill(now);
        }
        let seen = self.tree.terminate();
        self.note(seen);
        self.phase = Phase::Terminating { kill_at: later(now, self.grace) };
    }

    fn kill(&mut self, now: Instant) {
        self.count_leftovers = self.leader_ended.is_some();
        self.kill_once();
        let pause = Duration::from_millis(1);
        let give_up = later(now, self.config.kill_confirm);
        self.phase = Phase::Killing { give_up, again: now + pause, pause };
    }

    fn kill_once(&mut self) {
        self.known.kill();
        let killed = self.tree.kill();
        if self.count_leftovers {
            self.leftovers.extend(killed.iter().map(|(pid, _)| *pid));
        }
        self.note(killed);
    }

    fn unconfirmed(&self) -> Ending {
        let what = match &self.ending {
            Some(Ending::TimedOut) => "killed after its budget was used up",
            Some(Ending::Stopped(_)) => "killed when it was stopped",
            Some(Ending::OutputTooLarge) => "killed because of too much output",
            _ => "leftovers killed after its leader ended",
        };
        let confirm = self.config.kill_confirm;
        let left = self.tree.survivors();
        Ending::KillUnconfirmed { what: format!("{what}; not gone after {confirm:?}: processes {left:?}") }
    }

    // === pipes ===

    /// Waits for whatever comes first and deals with it.
    fn wait(&mut self, timeout: Option<Duration>) {
        const IN: PollFlags = PollFlags::IN;
        let mut fds: [Option<BorrowedFd<'_>>; 5] = [None; 5];
        fds[0] = Some(self.wake.as_fd());
        fds[1] = self.leader_ended.is_none().then(|| self.pidfd.as_fd());
        fds[2] = self.stdout.as_ref().map(AsFd::as_fd);
        fds[3] = self.stderr.as_ref().map(AsFd::as_fd);
        fds[4] = self.stdin.as_ref().map(AsFd::as_fd);
        let mut ready = [false; 5];
        {
            let mut polled = Vec::with_capacity(5);
            for (n, fd) in fds.iter().enumerate() {
                if let Some(fd) = fd {
                    polled.push(PollFd::from_borrowed_fd(*fd, if n == 4 { PollFlags::OUT } else { IN }));
                }
            }
            poll_for(&mut polled, timeout);
            let mut results = polled.iter().map(|fd| !fd.revents().is_empty());
            for (n, fd) in fds.iter().enumerate() {
                ready[n] = fd.is_some() && results.next().unwrap_or_default();
            }
        }
        let [wake, leader, stdout, stderr, stdin] = ready;
        if wake {
            let _ = read(self.wake, &mut [0_u8; 8]);
        }
        // Before stdout is read: what a leftover writes after the leader's end must not get into the result.
        if leader {
            self.stdin = None;
            self.take_last_stdout();
            self.leader_ended = Some(Instant::now());
        } else if stdout {
            self.read_stdout();
        }
        if stderr {
            self.read_stderr();
        }
        if stdin && self.leader_ended.is_none() {
            self.feed();
        }
    }

    /// Writes as much of the input as the pipe takes; closes it at the end or when nobody reads.
    pub(super) fn feed(&mut self) {
        let Some(stdin) = &self.stdin else { return };
        while !self.input.is_empty() {
            match write(stdin, &self.input) {
                Ok(written) => self.input.advance(written),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Mostly EPIPE. The child has its reasons; what it makes of its input is for its exit code to
                // say.
                Err(_) => break,
            }
        }
        self.stdin = None;
        self.input = Bytes::new();
    }

    fn read_stdout(&mut self) {
        let Some(stdout) = &self.stdout else { return };
        match read(stdout, &mut *self.buffer) {
            // Of a leftover: read, so that it is neither blocked nor struck by SIGPIPE, but no part of the
            // result.
            Ok(n) if n > 0 && self.leader_ended.is_some() => {}
            Ok(n) if n > 0 => self.accept_stdout(n),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(_) | Err(_) => self.stdout = None,
        }
    }

    /// Exactly what is in the pipe now, and nothing that comes later.
    fn take_last_stdout(&mut self) {
        let mut left = self.stdout.as_ref().map_or(0, |fd| ioctl_fionread(fd).unwrap_or_default());
        while left > 0
            && let Some(stdout) = &self.stdout
        {
            let room = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            match read(stdout, &mut self.buffer[..room]) {
                Ok(0) => break,
                Ok(n) => {
                    left -= n as u64;
                    self.accept_stdout(n);
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }

    fn accept_stdout(&mut self, n: usize) {
        if self.out.push(&self.buffer[..n]) || matches!(self.ending, Some(Ending::OutputTooLarge)) {
            return;
        }
        // An ending that is already decided stays; the excess only makes it faster.
        self.ending.get_or_insert(Ending::OutputTooLarge);
        self.stdout = None;
        self.kill(Instant::now());
    }

    fn read_stderr(&mut self) {
        let Some(stderr) = &self.stderr else { return };
        match read(stderr, &mut *self.buffer) {
            Ok(n) if n > 0 => self.err.push(&self.buffer[..n], Instant::now(), &mut self.audience),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(_) | Err(_) => self.stderr = None,
        }
    }

    /// Takes what the tree wrote to stderr before it was gone, and passes everything on.
    pub(super) fn finish_output(&mut self) {
        if self.leader_ended.is_none() {
            self.take_last_stdout();
        }
        let mut left = self.stderr.as_ref().map_or(0, |fd| ioctl_fionread(fd).unwrap_or_default());
        while left > 0
            && let Some(stderr) = &self.stderr
        {
            let room = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            match read(stderr, &mut self.buffer[..room]) {
                Ok(n) if n > 0 => {
                    left -= n as u64;
                    self.err.push(&self.buffer[..n], Instant::now(), &mut self.audience);
                }
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        self.stderr = None;
        self.err.finish(&mut self.audience);
    }
}

pub(super) fn poll_for(fds: &mut [PollFd<'_>], timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    if let Err(errno) = poll(fds, timeout.as_ref())
        && errno != Errno::INTR
    {
        // Out of kernel memory, if anything: without a pause this would be a busy loop.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A configured time beyond what the clock can hold counts as a day.
fn later(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or(now + Duration::from_secs(86_400))
}
