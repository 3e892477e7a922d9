//! The signals that end a process: the first one drains, a second one hurries.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Drain;

/// SIGTERM, SIGINT and SIGHUP (the terminal is gone), caught from the moment this is made.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts to catch the signals.
    ///
    /// # Errors
    /// When the operating system refuses the handlers.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Resolves with the name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }

    /// Turns signals into a drain: the first begins it, the second ends what is left. Runs for ever.
    pub async fn drive(mut self, drain: Drain) {
        let first = self.next().await;
        tracing::info!(signal = first, "draining; a second signal stops at once");
        drain.begin();
        let second = self.next().await;
        tracing::warn!(signal = second, "stopping at once");
        drain.stop();
        std::future::pending().await
    }
}
