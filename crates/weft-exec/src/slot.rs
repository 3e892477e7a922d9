//! One slot: a thread that runs one invocation at a time, from the start of the child to the proof that it is
//! gone.
//!
//! Here: what a slot does before and after. The invocation itself, once there is a child, is `slot/run.rs`.

mod run;

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, read};

use crate::command::Command;
use crate::executor::{Control, Job, Shared};
use crate::linux::cgroup::Group;
use crate::linux::clone::{self, Child, Failure, Image, Recipe, Stack, Step};
use crate::linux::tag::Lease;
use crate::linux::tree::{Known, Tree};
use crate::linux::{self, reap};
use crate::output::{Audience, Stderr, Stdout};
use crate::pipes::Pipes;
use crate::report::{Ending, Report};
use crate::start_error::StartError;

use run::{Phase, REAP_EVERY, Run, poll_for};

/// What one read takes at most; the size of a pipe.
const READ_BYTES: usize = 64 * 1024;
/// How long a busy program file is tried again.
const BUSY_LIMIT: Duration = Duration::from_secs(1);
/// How often a quarantined tree is killed and looked at again.
const QUARANTINE_LOOK: Duration = Duration::from_millis(500);

// === impl Slot ===

/// What a slot's thread keeps from one invocation to the next.
pub(crate) struct Slot<'a> {
    shared: &'a Shared,
    wake: &'a OwnedFd,
    group: Option<Group>,
    stack: Stack,
    buffer: Box<[u8]>,
}

/// A tree that would not go, and all that is needed to ask for it again.
struct Stuck {
    child: Child,
    lease: Lease,
    known: Known,
    leader_ended: bool,
}

impl Slot<'_> {
    /// Runs what is sent to this slot until the executor is closed.
    pub(crate) fn serve(shared: &Shared, index: usize, wake: &OwnedFd, group: Option<Group>, stack: Stack) {
        clone::block_signals_in_this_thread();
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        let mut slot = Slot { shared, wake, group, stack, buffer };
        while let Some(Job { command, audience, control, reply }) = shared.next_job(index) {
            let (report, stuck) = slot.run(command, audience, &control);
            if stuck.is_none() {
                slot.renew_group();
            }
            // Free before the report is out: whoever reads the report may count on the slot.
            shared.end(index, stuck.is_none());
            let _ = reply.send(report);
            if let Some(stuck) = stuck {
                if !slot.quarantine(index, stuck) {
                    return;
                }
                slot.renew_group();
                shared.end_quarantine(index);
            }
        }
    }

    fn run(
        &mut self,
        command: Command,
        mut audience: Audience,
        control: &Control,
    ) -> (Report, Option<Stuck>) {
        let (child, pipes, lease) = match self.start(&command, control) {
            Ok(started) => started,
            Err(ending) => return (never_started(ending), None),
        };
        let started_at = SystemTime::now();
        let started = Instant::now();
        audience.started(child.pid, started_at);
        let Pipes { stdin, stdout, stderr, child: theirs } = pipes;
        drop(theirs);
        let config = &self.shared.config;
        let mut run = Run {
            config,
            tree: Tree {
                leader: child.pid,
                tag: lease.tag(),
                group: self.group.as_ref(),
                orphans: self.shared.ground.orphans.as_ref(),
            },
            wake: self.wake,
            buffer: &mut self.buffer,
            control,
            audience,
            pidfd: &child.pidfd,
            stdin: Some(stdin),
            input: command.stdin,
            stdout: Some(stdout),
            stderr: Some(stderr),
            out: Stdout::new(config.stdout_limit),
            err: Stderr::new(config.stderr_limit),
            deadline: started.checked_add(command.budget),
            grace: command.stop_grace.unwrap_or(config.stop_grace),
            reap_at: started + REAP_EVERY,
            leader_ended: None,
            known: Known::default(),
            leftovers: HashSet::new(),
            strays_since: None,
            count_leftovers: false,
            ending: None,
            phase: Phase::Running,
        };
        run.feed();
        run.drive();
        run.finish_output();
        let Run { out, err, leader_ended, known, leftovers, ending, phase, .. } = run;
        let unconfirmed = matches!(phase, Phase::Unconfirmed);
        // The leader is reaped last: until then its pid, and with it its process group, can belong to nobody
        // else.
        let exit = match leader_ended {
            Some(_) if unconfirmed => linux::peek(&child.pidfd),
            Some(_) => reap(&child.pidfd),
            None => None,
        };
        let report = Report {
            ending: ending.unwrap_or(Ending::Exited),
            pid: Some(child.pid),
            started_at: Some(started_at),
            duration: leader_ended.unwrap_or_else(Instant::now).saturating_duration_since(started),
            exit,
            stdout_bytes: out.total(),
            stdout: out.into_bytes(),
            stderr_bytes: err.total(),
            stderr_dropped: err.dropped(),
            leftovers_killed: u32::try_from(leftovers.len()).unwrap_or(u32::MAX),
            stderr_tail: err.into_tail(),
        };
        (report, unconfirmed.then(|| Stuck { child, lease, known, leader_ended: leader_ended.is_some() }))
    }

    /// Starts the child; with another try while its file is open for writing somewhere. (Often in this very
    /// process: a child of another thread holds a copy of every descriptor for the moment before it
    /// executes.)
    fn start(&mut self, command: &Command, control: &Control) -> Result<(Child, Pipes, Lease), Ending> {
        let Command { program, directory, environment, .. } = command;
        let image = Image::new(program, directory, environment)
            .map_err(|what| Ending::CannotStart(StartError::InvalidCommand { what }))?;
        let give_up = Instant::now() + BUSY_LIMIT;
        let mut pause = Duration::from_millis(2);
        let mut group_renewed = false;
        loop {
            if let Some(reason) = control.reason() {
                return Err(Ending::Stopped(reason));
            }
            let cannot = |errno: Errno| Ending::CannotStart(StartError::descriptors(errno.raw_os_error()));
            let pipes = Pipes::make().map_err(cannot)?;
            let lease = Lease::next().map_err(|error| {
                let errno = error.raw_os_error().unwrap_or_default();
                Ending::CannotStart(StartError::Other { step: "read our own limits", errno })
            })?;
            let [a, b, c] = &pipes.child;
            let recipe = Recipe {
                image: Some(&image),
                stdio: Some([a.as_fd(), b.as_fd(), c.as_fd()]),
                placement: self.shared.ground.placement(self.group.as_ref()),
                marks: Some(lease.marks()),
            };
            match clone::start(self.shared.ground.call, &mut self.stack, &recipe) {
                Ok(child) => {
                    lease.led_by(child.pid);
                    return Ok((child, pipes, lease));
                }
                Err(Failure { step: Step::Exec, errno: libc::ETXTBSY }) if Instant::now() < give_up => {
                    let jitter = RandomState::new().hash_one(lease.tag()) % 1024;
                    wait_for(self.wake, pause + pause * jitter as u32 / 1024);
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                // The last skill had the right to write to its group, and did.
                Err(Failure { step: Step::Clone | Step::Cgroup, errno })
                    if errno != libc::EAGAIN && !group_renewed && self.group.is_some() =>
                {
                    group_renewed = true;
                    self.group.iter_mut().for_each(Group::replace);
                }
                Err(failure) => {
                    return Err(Ending::CannotStart(StartError::diagnose(failure, program, directory)));
                }
            }
        }
    }

    fn renew_group(&mut self) {
        // See `Group::was_killed`.
        self.group.iter_mut().filter(|group| group.was_killed()).for_each(Group::replace);
    }

    /// Keeps the slot out of use until the tree is gone; false when the executor was closed first.
    fn quarantine(&self, index: usize, mut stuck: Stuck) -> bool {
        let tree = Tree {
            leader: stuck.child.pid,
            tag: stuck.lease.tag(),
            group: self.group.as_ref(),
            orphans: self.shared.ground.orphans.as_ref(),
        };
        tracing::error!(
            slot = index,
            pid = tree.leader,
            "slot quarantined: its processes do not die after SIGKILL"
        );
        let mut leader_ended = stuck.leader_ended;
        loop {
            stuck.known.kill();
            let killed = tree.kill();
            stuck.known.note(killed.into_iter().filter(|(pid, _)| *pid != tree.leader));
            leader_ended = leader_ended || linux::peek(&stuck.child.pidfd).is_some();
            if leader_ended && tree.is_gone() && stuck.known.is_gone() {
                reap(&stuck.child.pidfd);
                tracing::info!(slot = index, pid = tree.leader, "slot is free again: its processes are gone");
                return true;
            }
            if self.shared.pause(index, QUARANTINE_LOOK) {
                return false;
            }
        }
    }
}

fn never_started(ending: Ending) -> Report {
    Report {
        ending,
        pid: None,
        started_at: None,
        duration: Duration::ZERO,
        exit: None,
        stdout: Bytes::new(),
        stdout_bytes: 0,
        stderr_bytes: 0,
        stderr_dropped: 0,
        leftovers_killed: 0,
        stderr_tail: Bytes::new(),
    }
}

/// Waits for the descriptor to become readable, at most for the time given.
fn wait_for(fd: &OwnedFd, timeout: Duration) {
    poll_for(&mut [PollFd::new(fd, PollFlags::IN)], Some(timeout));
    let _ = read(fd, &mut [0_u8; 8]);
}
