//! The three pipes of a child.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};

/// Our ends and the child's, all of them close-on-exec.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// The child's 0, 1 and 2, none of them numbered below 3.
    pub(crate) child: [OwnedFd; 3],
}

impl Pipes {
    /// Our ends never block. That a poll says "ready" is no promise: a child can open the other side of its own
    /// pipes through `/proc/self/fd` and take what was there, or fill the room that was there. The flag belongs
    /// to the open file description of each end, so the child's ends stay blocking ones, and what the child
    /// does to its own does nothing to ours.
    pub(crate) fn make() -> Result<Pipes, Errno> {
        let pipes = Pipes::blocking()?;
        for ours in [&pipes.stdin, &pipes.stdout, &pipes.stderr] {
            fcntl_setfl(ours, OFlags::NONBLOCK)?;
        }
        Ok(pipes)
    }

    /// For whoever reads and writes without a poll and trusts the child.
    pub(crate) fn blocking() -> Result<Pipes, Errno> {
        let (child_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, child_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, child_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let child = [above_stdio(child_stdin)?, above_stdio(child_stdout)?, above_stdio(child_stderr)?];
        Ok(Pipes { stdin, stdout, stderr, child })
    }
}

/// A daemon may have been started with 0, 1 or 2 closed; a pipe that got such a number would be overwritten
/// while the child puts its descriptors in place.
fn above_stdio(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() > 2 { Ok(fd) } else { fcntl_dupfd_cloexec(&fd, 3) }
}

#[cfg(test)]
mod tests {
    use rustix::fs::fcntl_getfl;
    use rustix::io::{read, write};

    use super::*;

    #[test]
    fn only_our_ends_do_not_block() {
        let pipes = Pipes::make().unwrap();
        for ours in [&pipes.stdin, &pipes.stdout, &pipes.stderr] {
            assert!(fcntl_getfl(ours).unwrap().contains(OFlags::NONBLOCK));
        }
        for theirs in &pipes.child {
            assert!(!fcntl_getfl(theirs).unwrap().contains(OFlags::NONBLOCK));
        }
        assert_eq!(read(&pipes.stdout, &mut [0_u8; 8]), Err(Errno::AGAIN));
        while write(&pipes.stdin, &[0_u8; 4096]).is_ok() {}
        assert_eq!(write(&pipes.stdin, &[0_u8; 1]), Err(Errno::AGAIN));
    }
}
