//! Limits and policy of an executor, and what can keep one from being built.

use std::time::Duration;

/// Limits and policy of an executor.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many invocations run at once; one thread each.
    pub slots: usize,
    /// Time between SIGTERM and SIGKILL, unless the command names its own.
    pub stop_grace: Duration,
    /// How long stderr is still read after the leader has ended while others hold it open.
    pub output_drain: Duration,
    /// How long a killed tree may take to be gone before that is given up as unconfirmed.
    pub kill_confirm: Duration,
    /// Bytes of stdout an invocation may write; one more ends it.
    pub stdout_limit: u64,
    /// Bytes of stderr that are passed on to the observer; what follows is read, counted and dropped.
    pub stderr_limit: u64,
    /// How process trees are held together.
    pub containment: ContainmentChoice,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            slots: std::thread::available_parallelism().map_or(4, |cores| 2 * cores.get()),
            stop_grace: Duration::from_secs(5),
            output_drain: Duration::from_secs(2),
            kill_confirm: Duration::from_secs(10),
            stdout_limit: 16 << 20,
            stderr_limit: 64 << 20,
            containment: ContainmentChoice::Auto,
        }
    }
}

/// Which containment to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ContainmentChoice {
    /// A cgroup where one can be made, else tags.
    #[default]
    Auto,
    /// A cgroup, or no executor.
    Cgroup,
    /// Tags, also where a cgroup could be made.
    Tag,
}

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// `slots` is zero.
    #[error("an executor needs at least one slot")]
    NoSlots,
    /// A cgroup was asked for and cannot be had.
    #[error("no cgroup for the children")]
    Cgroup(#[source] crate::NoCgroup),
    /// The system refuses something every start needs; `what` says which part of it.
    #[error("this system cannot run skills: {what}")]
    Unsupported {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A slot's thread could not be started.
    #[error("start the thread of a slot")]
    Thread(#[source] std::io::Error),
}
