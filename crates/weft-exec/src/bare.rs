//! The bare cost of a child, for measuring what the rest adds: start, write stdin, read stdout, reap.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::write;
use weft_core::outcome::Exit;

use crate::linux::clone::{self, Call, Failure, Image, Placement, Recipe, Stack, Step};
use crate::linux::reap;
use crate::pipes::Pipes;
use crate::start_error::StartError;

/// Starts children by the same mechanism as an executor, with no limit, no containment and no observer. For
/// benchmarks only: it hangs if the child writes a lot to stderr or a lot of input meets a lot of output.
#[derive(Debug)]
pub struct Spawner {
    call: Call,
    stack: Stack,
}

/// What a bare run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BareOutput {
    /// All of stdout.
    pub stdout: Vec<u8>,
    /// How the child ended.
    pub exit: Option<Exit>,
}

impl Spawner {
    /// Maps the stack its children use.
    ///
    /// # Errors
    ///
    /// When there is no memory for it.
    pub fn new() -> io::Result<Spawner> {
        Ok(Spawner { call: Call::Clone3, stack: Stack::new()? })
    }

    /// Runs the program to its end, with an empty environment.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn run(&mut self, program: &Path, directory: &Path, stdin: &[u8]) -> Result<BareOutput, StartError> {
        let image =
            Image::new(program, directory, &[]).map_err(|what| StartError::InvalidCommand { what })?;
        let pipes = Pipes::blocking().map_err(|errno| StartError::descriptors(errno.raw_os_error()))?;
        let [a, b, c] = &pipes.child;
        let recipe = Recipe {
            image: Some(&image),
            stdio: Some([a.as_fd(), b.as_fd(), c.as_fd()]),
            placement: Placement::Inherit,
            marks: None,
        };
        let child = match clone::start(self.call, &mut self.stack, &recipe) {
            Err(Failure { step: Step::Clone, errno: libc::ENOSYS }) => {
                self.call = Call::Clone;
                clone::start(self.call, &mut self.stack, &recipe)
            }
            other => other,
        };
        let child = child.map_err(|failure| StartError::diagnose(failure, program, directory))?;
        drop(pipes.child);
        let mut left = stdin;
        while let Ok(written) = write(&pipes.stdin, left)
            && written > 0
        {
            left = &left[written..];
        }
        drop(pipes.stdin);
        let mut stdout = Vec::new();
        let _ = File::from(pipes.stdout).read_to_end(&mut stdout);
        Ok(BareOutput { stdout, exit: reap(&child.pidfd) })
    }
}

/// Does what [`Spawner::run`] does by the means of the standard library, for comparison.
///
/// # Errors
///
/// When it cannot be started.
pub fn run_with_std(program: &Path, directory: &Path, stdin: &[u8]) -> io::Result<BareOutput> {
    let mut child = Command::new(program)
        .current_dir(directory)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // A child that does not want its input is no failure.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(stdin));
    let mut stdout = Vec::new();
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut stdout));
    let status = child.wait()?;
    let exit = status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal));
    Ok(BareOutput { stdout, exit })
}
