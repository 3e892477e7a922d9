//! Everything that is bound to Linux: how a child starts, how its tree is held together, how `/proc` is read.

pub(crate) mod cgroup;
pub(crate) mod clone;
pub(crate) mod proc;
pub(crate) mod tag;
pub(crate) mod tree;

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use weft_core::outcome::Exit;

/// Waits for the child behind the pidfd and takes it out of the process table. `None` when somebody else in
/// this process reaped it first (a `waitpid(-1)`, which nothing in a process with an executor may call).
pub(crate) fn reap(pidfd: &OwnedFd) -> Option<Exit> {
    look(pidfd, WaitIdOptions::EXITED)
}

/// How the child behind the pidfd ended, if it has; it stays in the process table.
pub(crate) fn peek(pidfd: &OwnedFd) -> Option<Exit> {
    look(pidfd, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG)
}

fn look(pidfd: &OwnedFd, options: WaitIdOptions) -> Option<Exit> {
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), options) {
            Ok(status) => {
                let status = status?;
                let code = status.exit_status().map(Exit::Code);
                return code.or_else(|| status.terminating_signal().map(Exit::Signal));
            }
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
