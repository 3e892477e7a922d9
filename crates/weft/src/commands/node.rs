//! `weft node`.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use weft_core::{limits, skill::Class};
use weft_daemon::{Drain, Readiness, signal::Signals};
use weft_node::Config;

use crate::{
    compat::CompatOptions,
    exit::{self, Failure},
    health::HealthOptions,
    target::Connection,
};

/// Where a node finds its skills, how it reads them, and where it keeps its identity.
#[derive(Debug, Args)]
pub(crate) struct Directories {
    /// Directory whose skills are offered; may be given several times, the first wins. Also WEFT_SKILLS_DIRS and
    /// ONGRID_SKILLS_EXTERNAL_DIRS: absolute paths separated by ':' or ','
    #[arg(long = "skills", value_name = "DIR")]
    skill_dirs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) compat: CompatOptions,
    /// Directory that keeps the node's identity; one node at a time [default: /var/lib/weft/node for root, else
    /// ~/.local/state/weft/node]
    #[arg(long, env = "WEFT_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl Directories {
    /// The directories of skills, in order of precedence.
    pub(crate) fn skills(&self) -> anyhow::Result<Vec<PathBuf>> {
        match self.skill_dirs.is_empty() {
            // One in a variable stays as it is, and the loader skips it unless it is absolute.
            true => Ok(dirs_from_environment()),
            false => absolute(self.skill_dirs.clone()),
        }
    }

    /// The state directory; `None` when there is no home directory either.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        self.state_dir.clone().or_else(default_state_dir)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    directories: Directories,
    /// What people call this node [default: the host's name]
    #[arg(long, env = "WEFT_NODE_NAME")]
    name: Option<String>,
    /// A label, name=value; may be given several times
    #[arg(long = "label", env = "WEFT_NODE_LABELS", value_name = "NAME=VALUE", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// Invocations that run at the same time [default: two for each core]
    #[arg(long, env = "WEFT_SLOTS", value_parser = clap::value_parser!(u16).range(1..=4096))]
    slots: Option<u16>,
    /// Invocations that may wait for a slot
    #[arg(long, env = "WEFT_QUEUE", default_value_t = limits::QUEUE_LENGTH)]
    queue: usize,
    /// Seconds between SIGTERM and SIGKILL
    #[arg(long, env = "WEFT_STOP_GRACE", value_name = "SECONDS", default_value_t = 5)]
    stop_grace: u64,
    /// Seconds that running invocations may take once the node is told to stop
    #[arg(long, env = "WEFT_DRAIN", value_name = "SECONDS", default_value_t = 120)]
    drain: u64,
    /// The highest class that ever runs on this node: safe, mutating or dangerous
    #[arg(long, env = "WEFT_MAX_CLASS", default_value_t = Class::Dangerous)]
    max_class: Class,
    /// Forward variables that make programs load code, such as LD_PRELOAD or PYTHONPATH, when a manifest lists them
    #[arg(long, env = "WEFT_ALLOW_LOADER_VARIABLES")]
    allow_loader_variables: bool,
    /// Seconds that a manifest may ask for at most
    #[arg(long, env = "WEFT_MAX_TIMEOUT", value_name = "SECONDS", default_value_t = limits::MAX_TIMEOUT.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=limits::MAX_OPERATOR_TIMEOUT.as_secs()))]
    max_timeout: u64,
    #[command(flatten)]
    health: HealthOptions,
}

/// Parses `name=value`.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

impl Node {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let signals = Signals::catch().context("catch signals")?;
        let (config, health) = self.config()?;
        let node = tokio::task::spawn_blocking(move || weft_node::Node::build(config))
            .await
            .context("build the node")?
            .context("cannot start the node")?;
        let drain = Drain::new();
        let readiness = Readiness::new(drain.clone());
        let run = node.run(drain.clone(), &readiness);
        let health = health.serve(readiness, drain.clone()).await?;
        tokio::select! {
            () = run => {}
            () = signals.drive(drain) => {}
            () = health => {}
        }
        Ok(exit::OK)
    }

    fn config(self) -> Result<(Config, HealthOptions), Failure> {
        let state_dir = self.directories.state().ok_or_else(|| {
            Failure::usage(
                "there is no home directory to keep the node's identity in; name one with --state-dir",
            )
        })?;
        let mut config = Config::new(state_dir, self.directories.skills()?);
        config.coordinator = self.connection.coordinator;
        config.labels = self.labels.into_iter().collect();
        config.slots = self.slots.map(usize::from);
        config.queue = self.queue;
        config.stop_grace = Duration::from_secs(self.stop_grace);
        config.drain = Duration::from_secs(self.drain);
        config.max_class = self.max_class;
        config.allow_loader_variables = self.allow_loader_variables;
        config.max_timeout = Duration::from_secs(self.max_timeout);
        config.compat = self.directories.compat.switches();
        if let Some(name) = self.name {
            config.name = name;
        }
        Ok((config, self.health))
    }
}

/// A directory on the command line is relative to where the person stands.
pub(crate) fn absolute(dirs: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    dirs.into_iter().map(|dir| std::path::absolute(&dir).with_context(|| dir.display().to_string())).collect()
}

fn dirs_from_environment() -> Vec<PathBuf> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    variable("WEFT_SKILLS_DIRS")
        .or_else(|| variable("ONGRID_SKILLS_EXTERNAL_DIRS"))
        .map(|list| weft_skills::parse_dirs(&list))
        .unwrap_or_default()
}

fn default_state_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Some(state.join("weft/node"));
    }
    let home = absolute("HOME")?;
    if home.as_os_str() == "/root" {
        return Some("/var/lib/weft/node".into());
    }
    Some(home.join(".local/state/weft/node"))
}
