//! Waiting for a condition.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Looks until the closure gives a value, for at most `most`; then fails the test and says what was awaited.
#[track_caller]
pub fn eventually<T>(what: &str, most: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(begun.elapsed() < most, "not within {most:?}: {what}");
        thread::sleep(Duration::from_millis(15));
    }
}
