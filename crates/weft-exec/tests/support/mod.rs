//! What the tests of this crate share: skills written on the spot, an observer that keeps what it hears, and
//! looks at the process table.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tempfile::TempDir;
use weft_exec::{BuildError, Command, Config, ContainmentChoice, Executor, Observer, Report, Running};

/// Long enough for a machine that does many other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

// === executors ===

/// Runs a test under both containments; under tags only where no cgroup can be made.
pub fn in_both_modes(config: Config, test: impl Fn(&Executor)) {
    for containment in [ContainmentChoice::Cgroup, ContainmentChoice::Tag] {
        let executor = match Executor::build(Config { containment, ..config.clone() }) {
            Err(BuildError::Cgroup(_)) => continue,
            other => other.unwrap(),
        };
        test(&executor);
        executor.close();
    }
}

pub fn few_slots() -> Config {
    Config { slots: 2, ..Config::default() }
}

// === skills ===

/// A directory with programs in it.
pub struct Skills(pub TempDir);

impl Skills {
    pub fn new() -> Skills {
        Skills(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    pub fn sh(&self, body: &str) -> Command {
        let name = format!("s{}", fs::read_dir(self.0.path()).unwrap().count());
        self.command(self.file(&name, format!("#!/bin/sh\n{body}\n").as_bytes(), 0o755))
    }

    pub fn python(&self, body: &str) -> Command {
        let name = format!("p{}", fs::read_dir(self.0.path()).unwrap().count());
        self.command(self.file(&name, format!("#!/usr/bin/python3 -IS\n{body}\n").as_bytes(), 0o755))
    }

    pub fn command(&self, program: PathBuf) -> Command {
        Command {
            program,
            directory: self.0.path().to_owned(),
            environment: vec![(OsString::from("PATH"), OsString::from("/usr/bin:/bin"))],
            stdin: Bytes::new(),
            budget: PATIENCE,
            stop_grace: None,
        }
    }
}

// === observing ===

#[derive(Default)]
pub struct Heard {
    pub pid: Option<u32>,
    pub chunks: Vec<(Instant, Bytes)>,
    pub dropped: u64,
    pub drop_notices: usize,
}

impl Heard {
    pub fn stderr(&self) -> Vec<u8> {
        self.chunks.iter().flat_map(|(_, chunk)| chunk.iter().copied()).collect()
    }
}

#[derive(Clone, Default)]
pub struct Ear(pub Arc<Mutex<Heard>>);

impl Ear {
    pub fn stderr(&self) -> Vec<u8> {
        self.0.lock().unwrap().stderr()
    }

    pub fn hears(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.stderr()).contains(text)
    }
}

impl Observer for Ear {
    fn started(&mut self, pid: u32, _: SystemTime) {
        self.0.lock().unwrap().pid = Some(pid);
    }
    fn stderr(&mut self, chunk: Bytes) {
        self.0.lock().unwrap().chunks.push((Instant::now(), chunk));
    }
    fn stderr_dropped(&mut self, bytes: u64) {
        let mut heard = self.0.lock().unwrap();
        heard.dropped += bytes;
        heard.drop_notices += 1;
    }
}

pub fn start(executor: &Executor, command: Command) -> (Running, Ear) {
    let ear = Ear::default();
    (executor.try_start(command, Box::new(ear.clone())).unwrap(), ear)
}

pub fn run(executor: &Executor, command: Command) -> Report {
    block_on(start(executor, command).0.wait())
}

pub fn run_heard(executor: &Executor, command: Command) -> (Report, Vec<u8>) {
    let (mut running, ear) = start(executor, command);
    let report = block_on(running.wait());
    (report, ear.stderr())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// === waiting ===

/// No runtime is needed to await a report.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < limit, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

// === the process table ===

/// Living processes whose command line contains the text.
pub fn processes(with: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(with)
    })
    .collect()
}

/// Our own children of any state, zombies included.
pub fn children() -> Vec<u32> {
    let us = std::process::id().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        after_name.split(' ').nth(1) == Some(us.as_str())
    })
    .collect()
}

/// Names the processes that should not be there.
#[track_caller]
pub fn none_left(pids: &[u32]) {
    assert!(pids.is_empty(), "left: {pids:?}");
}

pub fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub fn subdirectories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}
