//! The coordinator under measurement: the real binary, in a process of its own.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::offer;

/// How long it may take until it listens.
const START: Duration = Duration::from_secs(30);

/// The agent that lists skills.
pub(crate) const AGENT: &str = "writer";

/// See the module. Killed when dropped.
pub(crate) struct Process {
    program: PathBuf,
    address: SocketAddr,
    dir: TempDir,
    keep: bool,
    child: Child,
}

impl Process {
    /// Starts one whose agent sees half of the skills; with a state directory, it keeps what the fleet offers.
    pub(crate) fn start(program: &Path, keep: bool, skills: usize) -> Self {
        let dir = TempDir::new().unwrap();
        let seen: Vec<String> = (0..skills.div_ceil(2)).map(|skill| offer::key(2 * skill)).collect();
        let config = serde_json::json!({"agents": {"list": [{"id": AGENT, "skills": seen}]}});
        fs::write(dir.path().join("coordinator.yaml"), config.to_string()).unwrap();
        // Free a moment ago; nobody else is given it so soon.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = spawn(program, address, dir.path(), keep);
        let started = Self { program: program.to_owned(), address, dir, keep, child };
        started.listening();
        started
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again at the same address.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.program, self.address, self.dir.path(), self.keep);
    }

    fn listening(&self) {
        let begun = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            assert!(begun.elapsed() < START, "the coordinator does not listen; see what it says on stderr");
            sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> weft_client::Coordinator {
        self.address.to_string().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // What it logged says why.
            let kept = std::mem::replace(&mut self.dir, TempDir::new().unwrap()).keep();
            crate::report::note(&format!("the coordinator's log is in {}", kept.display()));
        }
    }
}

fn spawn(program: &Path, address: SocketAddr, dir: &Path, keep: bool) -> Child {
    // Written as an operator would have it, which is a part of what a connection costs.
    let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
    let mut command = Command::new(program);
    command.arg("coordinator").arg("--config").arg(dir.join("coordinator.yaml"));
    command.arg("--listen").arg(address.to_string());
    if keep {
        command.arg("--state-dir").arg(dir.join("state"));
    }
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("WEFT_") || text.starts_with("OTEL_") {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().unwrap()
}
