//! What an operator decides about a coordinator.

use std::{path::PathBuf, time::Duration};

use weft_core::{limits, policy::Allowed};

use crate::settings::Settings;

/// The configuration of a coordinator.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, for logs of nodes.
    pub name: String,
    /// The class that may run without a person, beyond safe ones. `None` until the operator says otherwise.
    pub allow: Option<Allowed>,
    /// What can be changed while it runs.
    pub settings: Settings,
    /// Where it keeps what its next life should know. `None`: it keeps nothing.
    pub state_dir: Option<PathBuf>,
    /// Bytes that the event log may hold.
    pub log_capacity: usize,
    /// Its clocks.
    pub timings: Timings,
}

/// The clocks of a coordinator. Tests shorten them; the defaults are the design's.
#[derive(Debug, Clone)]
pub struct Timings {
    /// Between two heartbeats on a node's link.
    pub heartbeat: Duration,
    /// Without a message, until a node counts as lost.
    pub lease: Duration,
    /// From the loss of a node until its invocations are `UNKNOWN`.
    pub unknown_after: Duration,
    /// Between two heartbeats on an idle event stream.
    pub watch_heartbeat: Duration,
    /// Without a watcher, until a safe invocation that is not detached is cancelled.
    pub unwatched: Duration,
    /// For which an invocation may wait for a node or a slot.
    pub queue_wait: Duration,
    /// For which running invocations may go on once the coordinator is told to stop.
    pub drain: Duration,
    /// After its start, for which the catalog counts as warming.
    pub warming: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "coordinator".into(),
            allow: None,
            settings: Settings::default(),
            state_dir: None,
            log_capacity: 256 * 1024 * 1024,
            timings: Timings::default(),
        }
    }
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            heartbeat: limits::LINK_HEARTBEAT,
            lease: limits::LEASE,
            unknown_after: limits::UNKNOWN_AFTER,
            watch_heartbeat: limits::WATCH_HEARTBEAT,
            unwatched: limits::UNWATCHED,
            queue_wait: limits::QUEUE_WAIT,
            drain: Duration::from_secs(30),
            warming: Duration::from_secs(10),
        }
    }
}
