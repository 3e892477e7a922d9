//! `weft node`.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use weft_client::Coordinator;
use weft_config::NodeFile;
use weft_core::{limits, skill::Class};
use weft_daemon::{Drain, Readiness, signal::Signals};
use weft_node::Config;

use crate::{
    compat::CompatOptions,
    configuration::{self, ConfigOption},
    exit::{self, Failure},
    health::HealthOptions,
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
    /// The allow-list directories, in order of precedence: those of flags, else of variables, else of the file.
    pub(crate) fn skills(&self, file: &NodeFile) -> anyhow::Result<Vec<PathBuf>> {
        if !self.skill_dirs.is_empty() {
            return absolute(self.skill_dirs.clone());
        }
        // One that is written down stays as it is, and the loader skips it unless it is absolute.
        Ok(dirs_from_environment().or_else(|| file.skills.dirs.clone()).unwrap_or_default())
    }

    /// The state directory; `None` when there is no home directory either.
    pub(crate) fn state(&self, file: &NodeFile) -> Option<PathBuf> {
        self.state_dir.clone().or_else(|| file.state_dir.clone()).or_else(default_state_dir)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(flatten)]
    file: ConfigOption,
    /// Address of the coordinator: http://HOST:PORT [default: http://127.0.0.1:9338]
    #[arg(long, env = "WEFT_COORDINATOR", value_name = "URL")]
    coordinator: Option<Coordinator>,
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
    /// Invocations that may wait for a slot [default: 256]
    #[arg(long, env = "WEFT_QUEUE")]
    queue: Option<usize>,
    /// Seconds between SIGTERM and SIGKILL [default: 5]
    #[arg(long, env = "WEFT_STOP_GRACE", value_name = "SECONDS")]
    stop_grace: Option<u64>,
    /// Seconds that running invocations may take once the node is told to stop [default: 120]
    #[arg(long, env = "WEFT_DRAIN", value_name = "SECONDS")]
    drain: Option<u64>,
    /// The highest class that ever runs on this node: safe, mutating or dangerous [default: dangerous]
    #[arg(long, env = "WEFT_MAX_CLASS")]
    max_class: Option<Class>,
    /// Forward variables that make programs load code, such as LD_PRELOAD or PYTHONPATH, when a manifest lists them
    #[arg(long, env = "WEFT_ALLOW_LOADER_VARIABLES")]
    allow_loader_variables: bool,
    /// Seconds that a manifest may ask for at most [default: 3600]
    #[arg(long, env = "WEFT_MAX_TIMEOUT", value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=limits::MAX_OPERATOR_TIMEOUT.as_secs()))]
    max_timeout: Option<u64>,
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
        let followed = self.file.open::<NodeFile>()?;
        let file = followed.first();
        let config = self.config(&file)?;
        let node = tokio::task::spawn_blocking(move || weft_node::Node::build(config))
            .await
            .context("build the node")?
            .context("cannot start the node")?;
        let (handle, reload) = (node.handle(), followed.reload());
        let drain = Drain::new();
        let readiness = Readiness::new(drain.clone());
        let run = node.run(drain.clone(), &readiness);
        let health = self.health.serve(file.health, readiness, drain.clone()).await?;
        let follow = followed.follow(|path, loaded| {
            handle.complain(loaded.broken.as_deref().map(|why| (path, why)));
            match self.config(&loaded.value) {
                Ok(config) => handle.configure(&config),
                Err(failure) => exit::report(&failure),
            }
            if needs_restart(&file, &loaded.value) {
                tracing::warn!(file = %path.display(), "beyond skills, plugins and agents a change needs a restart");
            }
        });
        let signals = async {
            match reload {
                None => signals.drive(drain).await,
                Some(reload) => {
                    let again = || {
                        reload.now();
                        handle.rescan();
                    };
                    signals.drive_reloading(drain, again).await;
                }
            }
        };
        tokio::select! {
            () = run => {}
            () = signals => {}
            () = health => {}
            () = follow => {}
        }
        Ok(exit::OK)
    }

    /// What flags, variables and the file say together.
    fn config(&self, file: &NodeFile) -> Result<Config, Failure> {
        let state_dir = self.directories.state(file).ok_or_else(|| {
            Failure::usage(
                "there is no home directory to keep the node's identity in; name one with --state-dir",
            )
        })?;
        let mut config = Config::new(state_dir, Vec::new());
        let written = file.coordinator.as_ref().map(|address| address.parse()).transpose();
        let written: Option<Coordinator> = written.map_err(Failure::usage)?;
        config.coordinator = self.coordinator.clone().or(written).unwrap_or_default();
        config.labels = file.labels.clone();
        config.labels.extend(self.labels.iter().cloned());
        config.slots = self.slots.or(file.slots).map(usize::from);
        let seconds = |flag: Option<u64>, file: Option<Duration>| flag.map(Duration::from_secs).or(file);
        config.queue = self.queue.or(file.queue).unwrap_or(config.queue);
        config.stop_grace = seconds(self.stop_grace, file.stop_grace).unwrap_or(config.stop_grace);
        config.drain = seconds(self.drain, file.drain).unwrap_or(config.drain);
        config.max_class = self.max_class.or(file.max_class).unwrap_or(config.max_class);
        config.allow_loader_variables =
            self.allow_loader_variables || file.allow_loader_variables.unwrap_or_default();
        config.max_timeout = seconds(self.max_timeout, file.max_timeout).unwrap_or(config.max_timeout);
        config.compat = self.directories.compat.switches();
        if let Some(name) = self.name.as_ref().or(file.name.as_ref()) {
            config.name.clone_from(name);
        }
        configuration::say_of_skills(file, self.directories.skills(file)?, &mut config);
        Ok(config)
    }
}

/// Whether something differs that holds for a node's life.
fn needs_restart(old: &NodeFile, new: &NodeFile) -> bool {
    let reloaded = NodeFile {
        skills: new.skills.clone(),
        plugins: new.plugins.clone(),
        agents: new.agents.clone(),
        compat: new.compat.clone(),
        document: new.document.clone(),
        ..old.clone()
    };
    reloaded != *new
}

/// A directory on the command line is relative to where the person stands.
pub(crate) fn absolute(dirs: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    dirs.into_iter().map(|dir| std::path::absolute(&dir).with_context(|| dir.display().to_string())).collect()
}

fn dirs_from_environment() -> Option<Vec<PathBuf>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    variable("WEFT_SKILLS_DIRS")
        .or_else(|| variable("ONGRID_SKILLS_EXTERNAL_DIRS"))
        .map(|list| weft_skills::parse_dirs(&list))
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
