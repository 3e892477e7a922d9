//! What an operator decides about a node.

use std::{path::PathBuf, time::Duration};

use weft_client::Coordinator;
use weft_core::{limits, node::Labels, skill::Class};
use weft_skills::Compat;

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
    /// The allow-list directories, in order of precedence.
    pub skill_dirs: Vec<PathBuf>,
    /// Invocations that run at the same time. `None`: two for each core.
    pub slots: Option<usize>,
    /// Invocations that may wait for a slot.
    pub queue: usize,
    /// Between SIGTERM and SIGKILL.
    pub stop_grace: Duration,
    /// The highest class that ever runs here, whatever the coordinator says.
    pub max_class: Class,
    /// Loader variables such as `LD_PRELOAD` may be forwarded when a manifest names them.
    pub allow_loader_variables: bool,
    /// How long running invocations may go on once the node is told to stop.
    pub drain: Duration,
    /// The longest time-out that a manifest may ask for.
    pub max_timeout: Duration,
    /// Leniency for manifests that were valid before weft.
    pub compat: Compat,
}

impl Config {
    /// A node with this state directory and these skills, and every other setting at its default.
    pub fn new(state_dir: PathBuf, skill_dirs: Vec<PathBuf>) -> Self {
        Self {
            coordinator: Coordinator::default(),
            name: hostname::get().map_or_else(|_| "node".into(), |name| name.to_string_lossy().into_owned()),
            labels: Labels::new(),
            state_dir,
            skill_dirs,
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
}
