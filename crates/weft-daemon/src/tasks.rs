//! Tasks that somebody owns.

use std::{future::Future, time::Duration};

use tokio_util::task::TaskTracker;

/// A group of tasks that ends together. Cheap to clone; all clones share the group.
#[derive(Debug, Clone, Default)]
pub struct TaskGroup {
    tracker: TaskTracker,
}

impl TaskGroup {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task in the group. It must end by itself once its owner drains.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Waits until every task has ended, but no longer than `most`. Returns how many are left.
    pub async fn join(&self, most: Duration) -> usize {
        self.tracker.close();
        let _ = tokio::time::timeout(most, self.tracker.wait()).await;
        self.tracker.len()
    }
}
