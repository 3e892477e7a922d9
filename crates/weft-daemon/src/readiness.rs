//! Whether a process can do its work, and if not, what is missing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::Drain;

/// What is missing while a process drains.
const DRAINING: &str = "draining";

/// A process is ready when nothing is missing. Cheap to clone; all clones speak of the same process.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// How many guards of each name live.
    missing: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    drain: Drain,
}

impl Readiness {
    /// A process that is ready until something is missing or this drain begins.
    pub fn new(drain: Drain) -> Self {
        Self { missing: Arc::default(), drain }
    }

    /// Says that something is missing until what is returned is dropped. It may be said again later.
    pub fn waits_for(&self, name: &'static str) -> Missing {
        *self.names().entry(name).or_default() += 1;
        Missing { name, of: self.clone() }
    }

    /// What is missing; nothing when the process is ready.
    pub fn missing(&self) -> Vec<&'static str> {
        let draining = self.drain.has_begun().then_some(DRAINING);
        self.names().keys().copied().chain(draining).collect()
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<&'static str, usize>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thing that is missing for as long as this lives.
#[derive(Debug)]
#[must_use = "it is missing until this is dropped"]
pub struct Missing {
    name: &'static str,
    of: Readiness,
}

impl Drop for Missing {
    fn drop(&mut self) {
        let mut names = self.of.names();
        if let Some(count) = names.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_guard_makes_it_ready() {
        let readiness = Readiness::new(Drain::new());
        assert!(readiness.missing().is_empty());
        let (catalog, link, again) =
            (readiness.waits_for("catalog"), readiness.waits_for("link"), readiness.waits_for("link"));
        assert_eq!(readiness.missing(), ["catalog", "link"]);
        drop((catalog, link));
        assert_eq!(readiness.missing(), ["link"]);
        drop(again);
        assert!(readiness.missing().is_empty());
        let _lost = readiness.waits_for("link");
        assert_eq!(readiness.missing(), ["link"]);
    }

    #[test]
    fn a_process_that_drains_is_not_ready() {
        let drain = Drain::new();
        let readiness = Readiness::new(drain.clone());
        drain.begin();
        assert_eq!(readiness.missing(), ["draining"]);
    }
}
