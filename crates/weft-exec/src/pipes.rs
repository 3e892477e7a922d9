//! The three pipes of a child.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};

/// A write of this size to a fresh pipe never blocks, however small the system made the pipe.
const NEVER_BLOCKS: usize = 4096;

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
    /// `stdin_bytes` is how much is going to be written.
    pub(crate) fn make(stdin_bytes: usize) -> Result<Pipes, Errno> {
        let (child_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, child_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, child_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        // Reading follows a poll and has no competitor, so it cannot block; a large write can. The flag
        // belongs to the end, not to the pipe: the child's own end stays a blocking one.
        if stdin_bytes > NEVER_BLOCKS {
            fcntl_setfl(&stdin, OFlags::NONBLOCK)?;
        }
        let child = [above_stdio(child_stdin)?, above_stdio(child_stdout)?, above_stdio(child_stderr)?];
        Ok(Pipes { stdin, stdout, stderr, child })
    }
}

/// A daemon may have been started with 0, 1 or 2 closed; a pipe that got such a number would be overwritten
/// while the child puts its descriptors in place.
fn above_stdio(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() > 2 { Ok(fd) } else { fcntl_dupfd_cloexec(&fd, 3) }
}
