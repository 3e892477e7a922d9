//! Processes of the real binary.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

/// What a command did.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code.
    pub code: i32,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

/// A process that runs beside the test and is killed with it.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    stdout: Captured,
    stderr: Captured,
}

#[derive(Debug)]
struct Captured {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Captured {
    fn read(stream: impl Read + Send + 'static) -> Self {
        let text = Arc::<Mutex<String>>::default();
        let captured = text.clone();
        let reader = thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                captured.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Everything, once the stream has ended.
    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.text()
    }
}

impl Daemon {
    /// Starts a program. Its stdin is empty.
    pub fn start(program: &Path, args: &[impl AsRef<OsStr>], configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        configure(&mut command);
        let mut child = command.spawn().unwrap();
        let stdout = Captured::read(child.stdout.take().unwrap());
        let stderr = Captured::read(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whole lines that it has printed on stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Whole lines that it has printed on stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until a line on stderr contains a text, and returns that line.
    #[track_caller]
    pub fn wait_for_line(&self, text: &str, most: Duration) -> String {
        eventually(&format!("a line with {text:?} in:\n{}", self.stderr()), most, || {
            self.stderr().lines().find(|line| line.contains(text)).map(ToOwned::to_owned)
        })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self, most: Duration) -> ExitStatus {
        eventually(&format!("the end of process {}", self.pid()), most, || self.child.try_wait().unwrap())
    }

    /// Waits for its end and returns all that it did.
    #[track_caller]
    pub fn finish(&mut self, most: Duration) -> Finished {
        let status = self.wait(most);
        Finished {
            code: status.code().unwrap_or(-1),
            stdout: self.stdout.whole(),
            stderr: self.stderr.whole(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failing test shows what its processes said")]
            {
                eprintln!("--- process {} said:\n{}{}", self.pid(), self.stdout(), self.stderr());
            }
        }
    }
}

/// The processes whose command line contains a text.
pub fn processes_with(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if pid != std::process::id() && line.contains(text) {
            found.push(pid);
        }
    }
    found
}
