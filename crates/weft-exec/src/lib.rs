//! Runs one skill as a subprocess: start, feed, read, limit, stop, and prove that nothing of it is left.
//!
//! This crate owns the child's contract. A child gets exactly the environment, directory and stdin of its
//! [`Command`], descriptors 0 to 2, default signal actions, umask 077, its own process group, no core dump
//! and no argument. Its stdout is collected up to a limit, its stderr is passed on as it comes, and when it
//! ends, is stopped or uses up its budget, every process it made is gone before the [`Report`] says so (or
//! the report says that this is not certain).
//!
//! It never knows what a skill is, parses nothing a child writes, substitutes nothing, retries nothing that
//! ran, starts no shell, and speaks no gRPC. It has no async runtime: one thread per slot runs one child at a
//! time, and a report is handed over through a channel that any runtime can await.
//!
//! What it asks of the process it lives in: nobody may reap children that are not theirs (`waitpid(-1)`), and a
//! child that somebody else starts does not lower both its RLIMIT_RTTIME and its RLIMIT_LOCKS.
//! What it does to that process: makes it a sub-reaper, undoes an ignored SIGCHLD, and nothing else.
//!
//! Read `slot/run.rs` first, the story of one invocation. Then `linux/clone.rs` (how a child is made, the only
//! `unsafe` code), `linux/tree.rs` (how its descendants are found and ended) and `output.rs` (how its output is
//! cut). `executor.rs` and `slot.rs` are the handles and threads around it.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "weft-exec runs skills on Linux on x86_64 and aarch64; another system needs a module beside `linux`"
);

mod bare;
mod command;
mod config;
mod executor;
mod linux;
mod output;
mod pipes;
mod probe;
mod report;
mod slot;
mod start_error;

pub use bare::{BareOutput, Spawner, run_with_std};
pub use command::{Command, Observer, StopReason};
pub use config::{BuildError, Config, ContainmentChoice};
pub use executor::{Executor, NoFreeSlot, Reaped, Running, Stopper};
pub use linux::cgroup::NoCgroup;
pub use linux::tag::{InvalidMark, Mark, Swept};
pub use probe::{Containment, Probe};
pub use report::{Ending, Report};
pub use start_error::StartError;
pub use weft_core::outcome::Exit;
