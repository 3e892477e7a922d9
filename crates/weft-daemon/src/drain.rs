//! Ending in two steps: first nothing new is taken, then what is left is ended.

use tokio_util::sync::CancellationToken;

/// The two steps of an orderly end. Cheap to clone; all clones speak of the same end.
#[derive(Debug, Clone, Default)]
pub struct Drain {
    draining: CancellationToken,
    stopping: CancellationToken,
}

impl Drain {
    /// A drain that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins: nothing new is taken from now on.
    pub fn begin(&self) {
        self.draining.cancel();
    }

    /// Ends what is left, at once. Implies [`Drain::begin`].
    pub fn stop(&self) {
        self.draining.cancel();
        self.stopping.cancel();
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Resolves when it begins.
    pub async fn begun(&self) {
        self.draining.cancelled().await;
    }

    /// Resolves when what is left is to be ended.
    pub async fn stopped(&self) {
        self.stopping.cancelled().await;
    }

    /// The token of the second step, for tasks that take one.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stopping
    }
}
