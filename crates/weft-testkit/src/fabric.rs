//! A coordinator and nodes as processes.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::TempDir;
use weft_client::{Client, Coordinator};

use crate::{
    process::{Daemon, Finished},
    skill::Skill,
    wait::eventually,
};

/// How long anything that happens in a moment may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// A fleet of processes in a scratch directory.
pub struct Fabric {
    binary: PathBuf,
    scratch: TempDir,
    address: String,
    coordinator: Daemon,
    coordinator_args: Vec<OsString>,
    coordinator_environment: Vec<(OsString, OsString)>,
}

/// A node to be started.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    args: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    via: Option<String>,
}

impl Spec {
    /// A node without further options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an option.
    #[must_use]
    pub fn arg(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.args.extend([name.into(), value.into()]);
        self
    }

    /// Reaches the coordinator at another address, such as a proxy's.
    #[must_use]
    pub fn via(mut self, address: String) -> Self {
        self.via = Some(address);
        self
    }

    /// Sets a variable of the node.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

impl Fabric {
    /// Starts a coordinator.
    pub fn start(binary: impl Into<PathBuf>, args: &[&str]) -> Self {
        Self::start_with(binary, args, &[])
    }

    /// Starts a coordinator that has these variables besides the usual ones.
    pub fn start_with(binary: impl Into<PathBuf>, args: &[&str], environment: &[(&str, &OsStr)]) -> Self {
        let binary = binary.into();
        let scratch = tempfile::tempdir().unwrap();
        let coordinator_args: Vec<OsString> = args.iter().map(Into::into).collect();
        let coordinator_environment: Vec<(OsString, OsString)> =
            environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let (coordinator, address) =
            start_coordinator(&binary, "127.0.0.1:0", &coordinator_args, &coordinator_environment);
        Self { binary, scratch, address, coordinator, coordinator_args, coordinator_environment }
    }

    /// Where the coordinator is: HOST:PORT.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process of the coordinator.
    pub fn coordinator(&mut self) -> &mut Daemon {
        &mut self.coordinator
    }

    /// Kills the coordinator as a crash would.
    pub fn kill_coordinator(&mut self) {
        self.coordinator.kill();
    }

    /// Starts the coordinator again at the same address.
    pub fn restart_coordinator(&mut self) {
        self.coordinator = start_coordinator(
            &self.binary,
            &self.address,
            &self.coordinator_args,
            &self.coordinator_environment,
        )
        .0;
    }

    /// A scratch path.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The skill directory of a node.
    pub fn skills_of(&self, node: &str) -> PathBuf {
        let dir = self.path(&format!("{node}-skills"));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Starts a node with these skills, and waits until the coordinator has heard of it.
    #[track_caller]
    pub fn node(&self, name: &str, skills: &[Skill], spec: &Spec) -> Daemon {
        let dir = self.skills_of(name);
        for skill in skills {
            skill.write(&dir);
        }
        let node = self.start_node(name, spec);
        self.wait_for_node(name);
        node
    }

    /// Starts a node without waiting for anything.
    pub fn start_node(&self, name: &str, spec: &Spec) -> Daemon {
        let coordinator = spec.via.as_deref().unwrap_or(&self.address);
        let mut args: Vec<OsString> = ["node", "--name", name].map(Into::into).into();
        args.extend(["--coordinator".into(), coordinator.into()]);
        args.extend(["--state-dir".into(), self.path(&format!("{name}-state")).into()]);
        args.extend(["--skills".into(), self.skills_of(name).into()]);
        args.extend(spec.args.clone());
        Daemon::start(&self.binary, &args, |command| {
            isolate(command);
            command.envs(spec.environment.clone());
        })
    }

    /// Waits until a node is connected and has advertised.
    #[track_caller]
    pub fn wait_for_node(&self, name: &str) {
        let loadable = std::fs::read_dir(self.skills_of(name)).map_or(0, Iterator::count);
        eventually(&format!("node {name} in the fleet"), SOON, || {
            let nodes = self.json(&["nodes"])?;
            let node = nodes.as_array()?.iter().find(|node| node["name"] == name)?.clone();
            let known =
                node["skills"].as_u64()? > 0 || loadable == 0 || !node["diagnostics"].as_array()?.is_empty();
            (node["state"] == "NODE_STATE_CONNECTED" && known).then_some(())
        });
        if loadable > 0 {
            // The definitions come a moment after the advert.
            eventually(&format!("the skills of {name} in the catalog"), SOON, || {
                let skills = self.json(&["skills", "--node", name])?;
                let any =
                    !skills["skills"].as_array()?.is_empty() || !skills["diagnostics"].as_array()?.is_empty();
                any.then_some(())
            });
        }
    }

    /// Runs a command of weft against this coordinator, to its end.
    #[track_caller]
    pub fn weft(&self, args: &[&str]) -> Finished {
        self.spawn(args).finish(Duration::from_secs(60))
    }

    /// Starts a command of weft against this coordinator.
    pub fn spawn(&self, args: &[&str]) -> Daemon {
        Daemon::start(&self.binary, args, |command| {
            isolate(command);
            command.env("WEFT_COORDINATOR", &self.address);
        })
    }

    /// Runs a listing and reads its JSON; `None` when it fails.
    pub fn json(&self, args: &[&str]) -> Option<serde_json::Value> {
        let mut all = args.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.weft(&all).stdout).ok()
    }

    /// The result of a call that must succeed.
    #[track_caller]
    pub fn call(&self, args: &[&str]) -> serde_json::Value {
        let mut all = vec!["call"];
        all.extend(args);
        let finished = self.weft(&all);
        assert_eq!(finished.code, 0, "{args:?}: {finished:?}");
        serde_json::from_str(&finished.stdout).unwrap()
    }

    /// A skill as the list shows it; `None` when it is not there.
    pub fn skill(&self, key: &str) -> Option<serde_json::Value> {
        let listed = self.json(&["skills"])?;
        listed["skills"].as_array()?.iter().find(|skill| skill["key"] == key).cloned()
    }

    /// What the coordinator shows as wrong or odd, each as `RULE PATH:LINE: MESSAGE`.
    pub fn diagnostics(&self) -> Vec<String> {
        let listed = self.json(&["skills"]).unwrap_or_default();
        let list = listed["diagnostics"].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|one| {
                let one = &one["diagnostic"];
                let text = |member: &str| one[member].as_str().unwrap_or_default().to_owned();
                let line = one["line"].as_u64().unwrap_or_default();
                format!("{} {}:{line}: {}", text("rule"), text("path"), text("message"))
            })
            .collect()
    }

    /// Waits until a skill is listed and this is true of it.
    #[track_caller]
    pub fn wait_for_skill(
        &self,
        key: &str,
        most: Duration,
        holds: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        eventually(&format!("{key} as expected"), most, || self.skill(key).filter(|skill| holds(skill)))
    }

    /// A client of the coordinator.
    pub fn client(&self) -> Client {
        Client::new(self.address.parse::<Coordinator>().unwrap())
    }
}

fn start_coordinator(
    binary: &Path,
    listen: &str,
    args: &[OsString],
    environment: &[(OsString, OsString)],
) -> (Daemon, String) {
    let mut all: Vec<OsString> = ["coordinator", "--listen", listen].map(Into::into).into();
    all.extend(args.iter().cloned());
    let coordinator = Daemon::start(binary, &all, |command| {
        isolate(command);
        command.envs(environment.iter().cloned());
    });
    let line = coordinator.wait_for_line("coordinator ready", SOON);
    let address = line.split("address=").nth(1).unwrap().trim().to_owned();
    (coordinator, address)
}

/// Nothing of the environment that runs the tests reaches the processes, except what finds programs. Their home is a
/// directory that does not exist, so that nobody's own skills are loaded.
pub fn isolate(command: &mut Command) {
    command.env_clear();
    for name in ["PATH", "TMPDIR", "LLVM_PROFILE_FILE"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("HOME", "/nonexistent");
}
