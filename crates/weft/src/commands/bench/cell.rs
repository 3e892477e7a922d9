//! What is measured at a time, and the statistics of it.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

use super::bare::Starter;

/// How a skill is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// By a bare loop.
    Bare(Starter),
    /// Through a coordinator and a node.
    Weft,
}

impl Way {
    /// Its name in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bare(Starter::Std) => "std",
            Self::Bare(Starter::Vfork) => "vfork",
            Self::Weft => "weft",
        }
    }
}

/// One call, or one start by a bare loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// Until its result was there.
    pub(super) latency: Duration,
    /// What of it was not the life of the process.
    pub(super) outside: Duration,
}

/// One kind of call for a short time.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    calls: Vec<Call>,
    /// From the first call to the end of the last.
    wall: Duration,
    pub(super) cpu: Cpu,
}

/// Processor time by who used it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cpu {
    /// This process: the caller, or the bare loop.
    pub(super) client: Duration,
    pub(super) coordinator: Duration,
    pub(super) node: Duration,
    /// The processes that were started.
    pub(super) skills: Duration,
}

impl Cpu {
    pub(super) fn all(self) -> Duration {
        self.client + self.coordinator + self.node + self.skills
    }
}

impl Add for Cpu {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            client: self.client + other.client,
            coordinator: self.coordinator + other.coordinator,
            node: self.node + other.node,
            skills: self.skills + other.skills,
        }
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            client: self.client.saturating_sub(earlier.client),
            coordinator: self.coordinator.saturating_sub(earlier.coordinator),
            node: self.node.saturating_sub(earlier.node),
            skills: self.skills.saturating_sub(earlier.skills),
        }
    }
}

impl Cell {
    pub(super) fn new(calls: Vec<Call>, wall: Duration, cpu: Cpu) -> Self {
        Self { calls, wall, cpu }
    }

    /// Several cells as one.
    pub(super) fn merged(cells: &[Self]) -> Self {
        Self::new(
            cells.iter().flat_map(|cell| cell.calls.iter().copied()).collect(),
            cells.iter().map(|cell| cell.wall).sum(),
            cells.iter().map(|cell| cell.cpu).fold(Cpu::default(), Add::add),
        )
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Calls per second.
    pub(super) fn rate(&self) -> f64 {
        self.calls() as f64 / self.wall.as_secs_f64()
    }

    /// The latency that this share of the calls stays below, in milliseconds.
    pub(super) fn latency(&self, share: f64) -> f64 {
        self.quantile(share, |call| call.latency)
    }

    /// The same of what was not the life of the process.
    pub(super) fn outside(&self, share: f64) -> f64 {
        self.quantile(share, |call| call.outside)
    }

    fn quantile(&self, share: f64, of: impl Fn(&Call) -> Duration) -> f64 {
        let mut times: Vec<Duration> = self.calls.iter().map(of).collect();
        times.sort_unstable();
        let at = (times.len().saturating_sub(1) as f64 * share).round() as usize;
        times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    }

    /// Seconds of processor time for 1000 calls, of everybody together.
    pub(super) fn cpu_per_1000(&self) -> f64 {
        self.per_1000(self.cpu.all())
    }

    /// Seconds for 1000 calls, of so much time for all of them.
    pub(super) fn per_1000(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1000.0 / self.calls() as f64
    }
}

/// How several measurements of one thing lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) lower_quartile: f64,
    pub(super) median: f64,
    pub(super) upper_quartile: f64,
    pub(super) most: f64,
}

impl Spread {
    /// `None` when nothing was measured, or not all of it is a number.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (values.len() - 1) as f64 * share;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self {
            least: at(0.0),
            lower_quartile: at(0.25),
            median: at(0.5),
            upper_quartile: at(0.75),
            most: at(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_lies_between_its_values() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.5, 4.0));
        assert_eq!((spread.lower_quartile, spread.upper_quartile), (1.75, 3.25));
        assert_eq!(Spread::of([5.0]).unwrap().upper_quartile, 5.0);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([1.0, f64::NAN]), None);
    }

    #[test]
    fn a_cell_knows_its_rate_and_its_latencies() {
        let call = |ms| Call { latency: Duration::from_millis(ms), outside: Duration::from_millis(ms / 2) };
        let calls = (1..=100).rev().map(call).collect();
        let cpu =
            Cpu { client: Duration::from_millis(20), skills: Duration::from_millis(180), ..Cpu::default() };
        let cell = Cell::new(calls, Duration::from_secs(2), cpu);
        assert_eq!((cell.calls(), cell.rate()), (100, 50.0));
        assert_eq!((cell.latency(0.0), cell.latency(0.99), cell.latency(1.0)), (1.0, 99.0, 100.0));
        assert_eq!(cell.outside(1.0), 50.0);
        assert_eq!(cell.cpu_per_1000(), 2.0);
    }
}
