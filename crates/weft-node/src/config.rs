//! What an operator decides about a node.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use weft_client::Coordinator;
use weft_core::{agents::Agents, entries::Entries, ids::SkillKey, limits, node::Labels, skill::Class};
use weft_skills::{Compat, Host, Plugins, Source, WatchOptions};

/// The configuration of a node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where its coordinator is.
    pub coordinator: Coordinator,
    /// What people call it.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Where it keeps its identity; one node at a time.
    pub state_dir: PathBuf,
    /// The directories that skills are loaded from; within a layer the first wins.
    pub sources: Vec<Source>,
    /// Where plugins are looked for, whose skills come last.
    pub plugins: Plugins,
    /// Whether, how soon and how often it is looked for changes of skills.
    pub watch: WatchOptions,
    /// The host as gates see it, and whose environment is forwarded to children.
    pub host: Host,
    /// What the operator says of single skills.
    pub entries: Entries,
    /// The bundled skills that can be used; `None`: all of them.
    pub allow_bundled: Option<BTreeSet<SkillKey>>,
    /// A skill may waive its own conditions by `always: true`.
    pub allow_always: bool,
    /// Whose workspaces are here, and which skills each agent may use on this node, whatever the coordinator says.
    pub agents: Agents,
    /// Invocations that run at the same time. `None`: two for each core.
    pub slots: Option<usize>,
    /// Invocations that may wait for a slot.
    pub queue: usize,
    /// Between SIGTERM and SIGKILL.
    pub stop_grace: Duration,
    /// The highest class that ever runs here, whatever the coordinator says.
    pub max_class: Class,
    /// Loader variables such as `LD_PRELOAD` may be forwarded when a manifest names them, and set by entries.
    pub allow_loader_variables: bool,
    /// How long running invocations may go on once the node is told to stop.
    pub drain: Duration,
    /// The longest time-out that a manifest may ask for.
    pub max_timeout: Duration,
    /// Leniency for manifests that were valid before weft.
    pub compat: Compat,
}

impl Config {
    /// A node with this state directory and these allow-list directories, and every other setting at its default.
    pub fn new(state_dir: PathBuf, skill_dirs: Vec<PathBuf>) -> Self {
        Self {
            coordinator: Coordinator::default(),
            name: hostname::get().map_or_else(|_| "node".into(), |name| name.to_string_lossy().into_owned()),
            labels: Labels::new(),
            state_dir,
            sources: skill_dirs.into_iter().map(Source::managed).collect(),
            plugins: Plugins::default(),
            watch: WatchOptions::default(),
            host: Host::current(),
            entries: Entries::new(),
            allow_bundled: None,
            allow_always: false,
            agents: Agents::default(),
            slots: None,
            queue: limits::QUEUE_LENGTH,
            stop_grace: limits::STOP_GRACE,
            max_class: Class::Dangerous,
            allow_loader_variables: false,
            drain: Duration::from_secs(120),
            max_timeout: limits::MAX_TIMEOUT,
            compat: Compat::default(),
        }
    }

    /// What the loader of skills works from.
    pub fn skills(&self) -> weft_skills::Config {
        weft_skills::Config {
            sources: self.sources.clone(),
            plugins: self.plugins.clone(),
            host: self.host.clone(),
            max_timeout: self.max_timeout,
            compat: self.compat,
            entries: self.entries.clone(),
            allow_bundled: self.allow_bundled.clone(),
            allow_always: self.allow_always,
            allow_loader_variables: self.allow_loader_variables,
        }
    }
}
