//! Waiting longer after each failure, at random, so that a fleet does not come back in step.

use std::time::Duration;

/// Exponential back-off with full jitter: each wait is drawn evenly from zero to the current ceiling.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    ceiling: Duration,
}

impl Backoff {
    /// A back-off whose ceiling grows from `first` to `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, ceiling: first }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.ceiling.mul_f64(rand::random());
        self.ceiling = (self.ceiling * 2).min(self.most);
        wait
    }

    /// Starts again after a success.
    pub fn reset(&mut self) {
        self.ceiling = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_below_a_ceiling_that_doubles() {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
        for ceiling in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            assert!(backoff.next_wait() <= Duration::from_secs_f64(ceiling));
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_millis(250));
    }
}
