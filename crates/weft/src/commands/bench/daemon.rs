//! One process of weft beside this one.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStderr, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use serde_json::Value;
use tokio::{sync::watch, time::timeout};

/// How long a daemon may take to say that it is ready.
const READY: Duration = Duration::from_secs(20);
/// How long it may take to end when it is told to.
const END: Duration = Duration::from_secs(10);
/// Lines of its log that are kept for an error message.
const KEPT_LINES: usize = 20;

/// A process of weft; it is told to end, and waited for, when this is dropped.
#[derive(Debug)]
pub(super) struct Daemon {
    name: &'static str,
    child: Child,
    /// The last lines that it logged; closed when it has ended.
    log: watch::Receiver<VecDeque<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts this very executable with these arguments. No setting in the environment reaches it, so that every run
    /// measures the same.
    pub(super) fn start(name: &'static str, args: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("find this executable")?);
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if ["WEFT_", "ONGRID_", "OTEL_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&variable);
            }
        }
        command.args(args).env("WEFT_LOG", "info").env("WEFT_LOG_FORMAT", "json");
        // A group of its own: Ctrl-C is for this process, which then ends the others in their order.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start the {name}"))?;
        let (lines, log) = watch::channel(VecDeque::new());
        let reader = child.stderr.take().map(|stderr| thread::spawn(move || read(stderr, &lines)));
        Ok(Self { name, child, log, reader })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it logs this message, and returns what it logged with it.
    pub(super) async fn logs(&mut self, message: &str) -> anyhow::Result<Value> {
        let mut found = None;
        let said = self.log.wait_for(|lines| {
            found = lines.iter().find_map(|line| {
                let line: Value = serde_json::from_str(line).ok()?;
                (line["message"] == message).then_some(line)
            });
            found.is_some()
        });
        let seen = timeout(READY, said).await.is_ok_and(|said| said.is_ok());
        match found {
            Some(line) if seen => Ok(line),
            _ => Err(self.failed(&format!("does not say {message:?}"))),
        }
    }

    /// Whether it has ended by itself, and what it said.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.log.has_changed().is_err() {
            bail!(self.failed("has ended"));
        }
        Ok(())
    }

    /// An error about it, with the end of its log.
    pub(super) fn failed(&self, how: &str) -> anyhow::Error {
        let lines = self.log.borrow();
        let log: Vec<&str> = lines.iter().map(String::as_str).collect();
        anyhow!("the {} {how}; its log ends with:\n{}", self.name, log.join("\n"))
    }
}

fn read(stderr: ChildStderr, lines: &watch::Sender<VecDeque<String>>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        lines.send_modify(|kept| {
            if kept.len() == KEPT_LINES {
                kept.pop_front();
            }
            kept.push_back(line);
        });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::TERM);
        let limit = Timespec { tv_sec: END.as_secs().cast_signed(), tv_nsec: 0 };
        let ended = pidfd_open(pid, PidfdFlags::empty())
            .and_then(|pidfd| poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)));
        if !matches!(ended, Ok(1)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
