//! Processes of the real binary.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
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

    /// The time for which it has had a core so far.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        // After the name, which is in parentheses: user and system time in ticks are the 12th and 13th field.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
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

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// How many directories and files a process watches.
pub fn watches(pid: u32) -> usize {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    infos
        .filter_map(|info| fs::read_to_string(info.path()).ok())
        .map(|info| info.lines().filter(|line| line.starts_with("inotify ")).count())
        .sum()
}

/// The number in a line of `/proc/PID/status`; sizes are in bytes.
fn status(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    let number: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    if line.ends_with("kB") { number * 1024 } else { number }
}

/// How many threads a process has.
pub fn threads(pid: u32) -> u64 {
    status(pid, "Threads")
}

/// How much memory of a process is resident, in bytes.
pub fn resident(pid: u32) -> u64 {
    status(pid, "VmRSS")
}

/// The most memory of a process that was resident at a time since [`forget_peak`], in bytes.
pub fn peak_resident(pid: u32) -> u64 {
    status(pid, "VmHWM")
}

/// Starts [`peak_resident`] again from what is resident now.
pub fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// The children of a process, also those that have ended and were not reaped.
pub fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // PID (NAME) STATE PARENT …, and a name may hold anything.
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        if parent == Some(pid) {
            found.extend(stat.split(' ').next().and_then(|pid| pid.parse::<u32>().ok()));
        }
    }
    found
}

/// The control groups that a node made for its slots, below every unified hierarchy that is mounted.
pub fn groups_of(pid: u32) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut pending: Vec<PathBuf> = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields.get(2) == Some(&"cgroup2"))
        .map(|fields| PathBuf::from(fields[1]))
        .collect();
    let own = format!("weft-{pid}-");
    let mut found = Vec::new();
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(&own) {
                    found.push(entry.path());
                }
                pending.push(entry.path());
            }
        }
    }
    found
}

/// The processes in a control group and those below it.
pub fn members(group: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    let mut pending = vec![group.to_owned()];
    while let Some(dir) = pending.pop() {
        let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        found.extend(listed.lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = fs::read_dir(dir).into_iter().flatten().flatten();
        pending.extend(below.filter(|entry| entry.path().is_dir()).map(|entry| entry.path()));
    }
    found
}
