//! How an invocation ended.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use weft_core::outcome::Exit;

use crate::command::StopReason;
use crate::start_error::StartError;

/// The whole story of one invocation. There is always one, whatever happened.
#[derive(Debug, Clone)]
pub struct Report {
    /// What ended it.
    pub ending: Ending,
    /// Process id of the leader; absent when nothing was started.
    pub pid: Option<u32>,
    /// When the leader was started, on the wall clock; absent when nothing was started.
    pub started_at: Option<SystemTime>,
    /// From the start to the end of the leader, on the monotonic clock.
    pub duration: Duration,
    /// How the leader ended. Absent when nothing was started, when it is not known to have ended, or when
    /// another part of this process took its exit status away.
    pub exit: Option<Exit>,
    /// All of stdout when it was within the limit; otherwise the last 64 KiB before the limit, for a
    /// diagnosis only.
    pub stdout: Bytes,
    /// Bytes of stdout that were read.
    pub stdout_bytes: u64,
    /// Bytes of stderr that were read, dropped ones included.
    pub stderr_bytes: u64,
    /// Bytes of stderr that were not passed on.
    pub stderr_dropped: u64,
    /// Processes that outlived the leader and were killed.
    pub leftovers_killed: u32,
    /// The last 64 KiB of stderr, whether passed on or not.
    pub stderr_tail: Bytes,
}

/// What ended an invocation. All but the last are said only when no process of it is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The leader ended by itself; `Report::exit` says how.
    Exited,
    /// No program of the skill ever ran.
    CannotStart(StartError),
    /// Its budget was used up, also when it then exited with 0 during the grace.
    TimedOut,
    /// Somebody stopped it; without a pid in the report it was never started.
    Stopped(StopReason),
    /// It wrote more to stdout than the limit and was killed at once.
    OutputTooLarge,
    /// Something of it was still there a long time after SIGKILL. Its slot stays out of use until that is
    /// gone.
    KillUnconfirmed {
        /// What was to be ended and which processes are left.
        what: String,
    },
}
