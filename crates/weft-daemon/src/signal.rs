//! The signals that end a process: the first one drains, a second one hurries.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Drain;

/// SIGTERM, SIGINT and SIGHUP (the terminal is gone, or a file is to be read again), caught from the moment this is made.
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
    pub async fn drive(self, drain: Drain) {
        self.drive_with(drain, None).await;
    }

    /// Like [`Signals::drive`], but SIGHUP does what `reload` says and ends nothing.
    pub async fn drive_reloading(self, drain: Drain, reload: impl Fn() + Send) {
        self.drive_with(drain, Some(&reload)).await;
    }

    async fn drive_with(mut self, drain: Drain, reload: Option<&(dyn Fn() + Send)>) {
        let first = self.next_end(reload).await;
        tracing::info!(signal = first, "draining; a second signal stops at once");
        drain.begin();
        let second = self.next_end(reload).await;
        tracing::warn!(signal = second, "stopping at once");
        drain.stop();
        std::future::pending().await
    }

    /// Resolves with the name of the next signal that is not for `reload`.
    async fn next_end(&mut self, reload: Option<&(dyn Fn() + Send)>) -> &'static str {
        loop {
            match (self.next().await, reload) {
                ("SIGHUP", Some(reload)) => reload(),
                (signal, _) => return signal,
            }
        }
    }
}
