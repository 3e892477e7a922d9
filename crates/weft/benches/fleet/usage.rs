//! What processes and the host use, as `/proc` tells it.

use std::{fs, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process and its children open as many descriptors as the system allows: each node needs one on both
/// sides.
pub(crate) fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Processor time so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) coordinator: Duration,
    pub(crate) simulator: Duration,
    /// Of all processes of this host.
    pub(crate) host: Duration,
}

impl Cpu {
    /// Looks at a coordinator, this process and the host.
    pub(crate) fn look(coordinator: u32) -> Self {
        // cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let fields: Vec<u64> =
            stat.lines().next().unwrap().split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
        Self {
            coordinator: of_process(coordinator),
            simulator: of_process(std::process::id()),
            host: ticks(fields[0] + fields[1] + fields[2] + fields[7]),
        }
    }

    /// What was used since an earlier look.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            coordinator: self.coordinator.saturating_sub(earlier.coordinator),
            simulator: self.simulator.saturating_sub(earlier.simulator),
            host: self.host.saturating_sub(earlier.host),
        }
    }

    /// What neither the coordinator nor the simulator used.
    pub(crate) fn others(&self) -> Duration {
        self.host.saturating_sub(self.coordinator + self.simulator)
    }
}

fn of_process(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // After the name, which is in parentheses: user and system time are the 12th and 13th field.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    ticks(fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

fn ticks(ticks: u64) -> Duration {
    Duration::from_secs(ticks).div_f64(rustix::param::clock_ticks_per_second() as f64)
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Resident now, pages of the program's file among it.
    pub(crate) resident: u64,
    /// Resident and no file's.
    pub(crate) anonymous: u64,
}

impl Memory {
    /// Looks at a process.
    pub(crate) fn look(pid: u32) -> Self {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let bytes = |name: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
        };
        Self { resident: bytes("Rss:"), anonymous: bytes("Anonymous:") }
    }
}
