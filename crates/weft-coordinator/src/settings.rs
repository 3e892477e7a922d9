//! What an operator can change while a coordinator runs.

use weft_core::{agents::Agents, prompt::Limits};

/// The part of the configuration that takes effect without a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Which skills each agent sees, and how far it may go.
    pub agents: Agents,
    /// The bounds of a prompt; an agent may have its own.
    pub prompt: Limits,
    /// Sessions take a new snapshot at the beginning of a turn when what their agent sees has changed. Otherwise only a
    /// new session sees changes.
    pub sessions_follow: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { agents: Agents::default(), prompt: Limits::default(), sessions_follow: true }
    }
}
