//! The executor: a fixed set of slots and the handles to what runs in them.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use crate::command::{Command, Observer, StopReason};
use crate::config::{BuildError, Config};
use crate::linux::clone::Stack;
use crate::linux::proc;
use crate::linux::tag::Mark;
use crate::linux::tree::kill_strays;
use crate::output::Audience;
use crate::probe::{Containment, Ground, Probe};
use crate::report::{Ending, Report};
use crate::slot::Slot;

/// Enough for the loop of a slot and an observer in a debug build; only touched pages count.
const THREAD_STACK_BYTES: usize = 512 * 1024;

/// Runs commands, as many at once as it has slots. A cheap handle: clones speak to the same executor, and the
/// last one to go closes it.
#[derive(Clone)]
pub struct Executor(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the handles and the slots' threads share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) ground: Ground,
    state: Mutex<State>,
    /// How many slots are out of use.
    quarantined: AtomicUsize,
    /// One per slot: mail has come, or the executor was closed.
    ready: Vec<Condvar>,
    wakes: Vec<Arc<OwnedFd>>,
}

struct State {
    free: Vec<usize>,
    closed: bool,
    mail: Vec<Option<Job>>,
    current: Vec<Option<Arc<Control>>>,
}

/// One command on its way to a slot.
pub(crate) struct Job {
    pub(crate) command: Command,
    pub(crate) audience: Audience,
    pub(crate) control: Arc<Control>,
    pub(crate) reply: oneshot::Sender<Report>,
}

// === impl Executor ===

impl Executor {
    /// Looks at what the system offers, makes the cgroups if it offers them, and starts one thread per slot.
    ///
    /// # Errors
    ///
    /// When this system cannot run skills, or cannot hold them together in the way the configuration insists
    /// on.
    pub fn build(config: Config) -> Result<Executor, BuildError> {
        if config.slots == 0 {
            return Err(BuildError::NoSlots);
        }
        let ground = Ground::survey(config.containment)?;
        Executor::build_on(config, ground)
    }

    pub(crate) fn build_on(config: Config, ground: Ground) -> Result<Executor, BuildError> {
        let slots = config.slots;
        let mut wakes = Vec::with_capacity(slots);
        for _ in 0..slots {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|errno| BuildError::Unsupported { what: "make an eventfd", source: errno.into() })?;
            wakes.push(Arc::new(wake));
        }
        let shared = Arc::new(Shared {
            config,
            ground,
            quarantined: AtomicUsize::new(0),
            state: Mutex::new(State {
                free: (0..slots).rev().collect(),
                closed: false,
                mail: (0..slots).map(|_| None).collect(),
                current: vec![None; slots],
            }),
            ready: (0..slots).map(|_| Condvar::new()).collect(),
            wakes,
        });
        // From here on the drop of the executor ends the threads that were started.
        let executor = Executor(Arc::new(Owner { shared: shared.clone(), threads: Mutex::default() }));
        for index in 0..slots {
            let group = shared.ground.group(index)?;
            let stack = Stack::new()
                .map_err(|source| BuildError::Unsupported { what: "map a stack for children", source })?;
            let wake = shared.wakes[index].clone();
            let shared = shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("weft-slot-{index}"))
                .stack_size(THREAD_STACK_BYTES)
                .spawn(move || Slot::serve(&shared, index, &wake, group, stack))
                .map_err(BuildError::Thread)?;
            lock(&executor.0.threads).push(thread);
        }
        tracing::debug!(slots, probe = %shared.ground.probe, "executor built");
        Ok(executor)
    }

    /// How many commands can run at once.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.0.shared.config.slots
    }

    /// How many of the slots are not quarantined: none of those runs anything until the processes it could not
    /// kill are gone. One read of an atomic.
    #[must_use]
    pub fn usable_slots(&self) -> usize {
        self.slots().saturating_sub(self.0.shared.quarantined.load(Ordering::Acquire))
    }

    /// Ends and reaps orphans of skills that no running invocation answers for: those that took off every mark
    /// by which they could be known, or whose invocation ended without certainty. Children that another part
    /// of this process started are left alone.
    ///
    /// Every invocation does this when it ends; to be called now and then, such as four times a second, for
    /// what comes to light while none does. Does not wait: what is killed in one call is reaped in the next.
    /// One small read when this process has no children but leaders, else about a microsecond for each; a scan
    /// of `/proc` when there is something to kill, or where [`Probe::child_lists`] is false.
    pub fn reap_orphans(&self) -> Reaped {
        let strays = proc::strays(self.0.shared.ground.orphans.as_ref());
        let killed = if strays.alive.is_empty() { 0 } else { kill_strays(&strays.alive).len() };
        Reaped { reaped: strays.reaped, killed: u32::try_from(killed).unwrap_or(u32::MAX) }
    }

    /// What holds the process trees together.
    #[must_use]
    pub fn containment(&self) -> &Containment {
        &self.0.shared.ground.probe.containment
    }

    /// What was found when the executor was built.
    #[must_use]
    pub fn probe(&self) -> &Probe {
        &self.0.shared.ground.probe
    }

    /// What every process started by this process carries, to be written down for a sweep after a crash.
    ///
    /// # Errors
    ///
    /// When the system does not tell its boot id.
    pub fn mark(&self) -> std::io::Result<Mark> {
        Mark::ours()
    }

    /// Starts the command in a free slot, at once.
    ///
    /// # Errors
    ///
    /// Gives command and observer back when every slot is taken or the executor was closed.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the caller's own command, returned to be queued"
    )]
    pub fn try_start(&self, command: Command, observer: Box<dyn Observer>) -> Result<Running, NoFreeSlot> {
        let shared = &self.0.shared;
        let mut state = shared.state();
        let closed = state.closed;
        let Some(slot) = state.free.pop_if(|_| !closed) else {
            drop(state);
            return Err(NoFreeSlot { command, observer, closed });
        };
        let (reply, report) = oneshot::channel();
        let control = Arc::new(Control {
            reason: OnceLock::new(),
            immediate: AtomicBool::new(false),
            wake: shared.wakes[slot].clone(),
        });
        state.current[slot] = Some(control.clone());
        let audience = Audience::new(observer);
        state.mail[slot] = Some(Job { command, audience, control: control.clone(), reply });
        drop(state);
        shared.ready[slot].notify_one();
        Ok(Running { stopper: Stopper(control), report })
    }

    /// Accepts nothing more, kills what runs, waits for the slots' threads to end and removes the cgroups.
    /// Blocks for as long as the killed trees take to go, at most `kill_confirm`. What still ran reports
    /// `Stopped(Closed)`.
    pub fn close(&self) {
        self.0.close();
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("slots", &self.slots()).field("probe", self.probe()).finish()
    }
}

// === impl Owner ===

impl Owner {
    fn close(&self) {
        let mut state = self.shared.state();
        state.closed = true;
        let running: Vec<_> = state.current.iter().flatten().cloned().collect();
        drop(state);
        for control in running {
            control.stop(StopReason::Closed);
        }
        for ready in &self.shared.ready {
            ready.notify_one();
        }
        let us = std::thread::current().id();
        // Held while joining: a second closer returns only when everything has ended.
        let mut threads = lock(&self.threads);
        for thread in threads.drain(..) {
            // An observer may hold the last handle; its thread ends by itself once it is back in its loop.
            if thread.thread().id() != us && thread.join().is_err() {
                tracing::error!("the thread of a slot panicked");
            }
        }
        drop(threads);
        self.shared.ground.release();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close();
    }
}

// === impl Shared ===

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The next job for a slot; `None` when the executor was closed.
    pub(crate) fn next_job(&self, slot: usize) -> Option<Job> {
        let mut state = self.state();
        loop {
            // Mail first: whoever sent it waits for a report, also of a command that is stopped before it
            // starts.
            if let Some(job) = state.mail[slot].take() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.ready[slot].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The slot's invocation is over; with `reusable` the slot can take another one.
    pub(crate) fn end(&self, slot: usize, reusable: bool) {
        let mut state = self.state();
        state.current[slot] = None;
        if reusable {
            state.free.push(slot);
        } else {
            self.quarantined.fetch_add(1, Ordering::Release);
        }
    }

    /// The slot can take an invocation again.
    pub(crate) fn end_quarantine(&self, slot: usize) {
        let mut state = self.state();
        self.quarantined.fetch_sub(1, Ordering::Release);
        state.free.push(slot);
    }

    /// Waits a while; true when the executor was closed.
    pub(crate) fn pause(&self, slot: usize, time: Duration) -> bool {
        let state = self.state();
        if state.closed {
            return true;
        }
        let waited = self.ready[slot].wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
        waited.0.closed
    }
}

/// Nothing in here panics while it holds a lock, and a slot must go on if something does.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl NoFreeSlot ===

/// Every slot is taken, or the executor was closed.
pub struct NoFreeSlot {
    /// The command, as it was given.
    pub command: Command,
    /// The observer, which has heard nothing.
    pub observer: Box<dyn Observer>,
    /// The executor was closed: waiting for a slot is pointless.
    pub closed: bool,
}

impl fmt::Debug for NoFreeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoFreeSlot").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl fmt::Display for NoFreeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.closed { "the executor is closed" } else { "every slot is taken" })
    }
}

impl std::error::Error for NoFreeSlot {}

// === impl Control ===

/// The wish to stop one invocation.
pub(crate) struct Control {
    reason: OnceLock<StopReason>,
    immediate: AtomicBool,
    wake: Arc<OwnedFd>,
}

impl Control {
    fn stop(&self, why: StopReason) {
        // The first reason is the one reported; a later one may only make it faster.
        let _ = self.reason.set(why);
        if why.is_immediate() {
            self.immediate.store(true, Ordering::Release);
        }
        // The slot may have gone on to another invocation; then this is one wake-up for nothing.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    pub(crate) fn is_immediate(&self) -> bool {
        self.immediate.load(Ordering::Acquire)
    }
}

// === impl Running ===

/// An invocation that was given a slot. Dropping it before the report was taken stops the invocation.
pub struct Running {
    stopper: Stopper,
    report: oneshot::Receiver<Report>,
}

impl Running {
    /// Ends the invocation: SIGTERM to the whole tree, the grace, SIGKILL. The report still comes, when the
    /// tree is gone. The first reason counts; an invocation that has already ended keeps its own ending.
    pub fn stop(&self, why: StopReason) {
        self.stopper.stop(why);
    }

    /// A handle that can stop the invocation from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for the report. Cancel safe: waiting again after an unfinished wait loses nothing.
    ///
    /// # Panics
    ///
    /// When the report has already been taken.
    pub async fn wait(&mut self) -> Report {
        match (&mut self.report).await {
            Ok(report) => report,
            Err(_) => lost_report(),
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.report.is_terminated() {
            self.stopper.stop(StopReason::Cancelled);
        }
    }
}

// === Reaped ===

/// What [`Executor::reap_orphans`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Orphans that had ended and were taken out of the process table.
    pub reaped: u32,
    /// Processes that lived and were killed.
    pub killed: u32,
}

/// Only a defect in a slot's thread leads here, and then nothing is known about the child.
fn lost_report() -> Report {
    Report {
        ending: Ending::KillUnconfirmed { what: "the thread of the slot ended without a report".into() },
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

// === impl Stopper ===

/// Stops one invocation, from anywhere, at any time; does nothing once it has ended.
#[derive(Clone)]
pub struct Stopper(Arc<Control>);

impl Stopper {
    /// As [`Running::stop`].
    pub fn stop(&self, why: StopReason) {
        self.0.stop(why);
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").field("reason", &self.0.reason()).finish_non_exhaustive()
    }
}
