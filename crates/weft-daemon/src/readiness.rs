//! Readiness: a process is ready when everything that it waits for at its start has happened.

use std::sync::Arc;

use tokio::sync::watch;

/// A set of named conditions; the process is ready once the guard of the last one is dropped.
#[derive(Debug, Clone)]
pub struct Readiness {
    waiting: Arc<watch::Sender<Vec<&'static str>>>,
}

/// One condition that is not met yet. Drop it when it is.
#[derive(Debug)]
pub struct NotReady {
    name: &'static str,
    waiting: Arc<watch::Sender<Vec<&'static str>>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { waiting: Arc::new(watch::channel(Vec::new()).0) }
    }
}

impl Readiness {
    /// Adds a condition.
    pub fn wait_for(&self, name: &'static str) -> NotReady {
        self.waiting.send_modify(|waiting| waiting.push(name));
        NotReady { name, waiting: self.waiting.clone() }
    }

    /// Resolves when no condition is left.
    pub async fn ready(&self) {
        let mut waiting = self.waiting.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = waiting.wait_for(Vec::is_empty).await;
    }
}

impl Drop for NotReady {
    fn drop(&mut self) {
        self.waiting.send_modify(|waiting| {
            if let Some(index) = waiting.iter().position(|name| *name == self.name) {
                waiting.swap_remove(index);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_guard_makes_the_process_ready() {
        let readiness = Readiness::default();
        let (one, two) = (readiness.wait_for("one"), readiness.wait_for("two"));
        drop(one);
        assert_eq!(*readiness.waiting.borrow(), ["two"]);
        drop(two);
        readiness.ready().await;
    }
}
