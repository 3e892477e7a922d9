//! What to run, and who is told about it while it runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

/// One invocation of a skill: a program, never a shell line; it gets no arguments.
#[derive(Debug, Clone)]
pub struct Command {
    /// The entry, absolute or relative to `directory`. It is also `argv[0]`, and the only argument.
    pub program: PathBuf,
    /// Working directory of the child.
    pub directory: PathBuf,
    /// The whole environment; nothing is inherited and nothing is added.
    pub environment: Vec<(OsString, OsString)>,
    /// Written to stdin as it is, then EOF. A child that does not read it is no error.
    pub stdin: Bytes,
    /// How long it may run, on the monotonic clock, before it is stopped.
    pub budget: Duration,
    /// Time between SIGTERM and SIGKILL; the executor's own when absent.
    pub stop_grace: Option<Duration>,
}

/// Hears about a running invocation, on the slot's own thread: whatever it does delays the child, so it must
/// not block. An observer that panics is dropped and hears no more.
pub trait Observer: Send {
    /// The program was executed as process `pid`.
    fn started(&mut self, pid: u32, at: SystemTime);

    /// Bytes of stderr, exact and in order, at most 64 KiB; as many whole lines as there were. A chunk ends
    /// inside a line only when the line is longer than 8 KiB or has been without an end for 100 ms.
    fn stderr(&mut self, chunk: Bytes);

    /// That many further bytes of stderr were not passed on, because the limit was reached.
    fn stderr_dropped(&mut self, bytes: u64);
}

/// Why somebody ends an invocation early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The caller no longer wants it.
    Cancelled,
    /// The node shuts down and cannot wait for it.
    Draining,
    /// It produced more than someone downstream accepts. Killed without grace.
    OutputTooLarge,
    /// The executor was closed. Killed without grace.
    Closed,
}

impl StopReason {
    /// These have nothing to wait for.
    pub(crate) fn is_immediate(self) -> bool {
        matches!(self, StopReason::OutputTooLarge | StopReason::Closed)
    }
}
