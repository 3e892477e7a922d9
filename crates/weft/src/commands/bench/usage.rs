//! What processes use, as `/proc` tells it.

use std::{fs, time::Duration};

use anyhow::{Context as _, anyhow};

/// Processor time of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CpuTime {
    /// Its own.
    pub(super) own: Duration,
    /// Of the children that it has reaped.
    pub(super) children: Duration,
}

/// The processor time of a process so far. The system counts it in ticks, mostly of 10 ms.
pub(super) fn cpu_time(pid: u32) -> anyhow::Result<CpuTime> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    parse_stat(&stat, rustix::param::clock_ticks_per_second()).ok_or_else(|| anyhow!("{path} is odd: {stat}"))
}

fn parse_stat(stat: &str, ticks_per_second: u64) -> Option<CpuTime> {
    // PID (NAME) STATE …, and a name may hold anything. User and system time are the 14th and 15th field, those of
    // the children follow.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut ticks = rest.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
    let mut time = || {
        Some(Duration::from_secs(ticks.next()?) + Duration::from_secs(ticks.next()?))
            .map(|sum| sum.div_f64(ticks_per_second as f64))
    };
    Some(CpuTime { own: time()?, children: time()? })
}

/// The processor time that all processes of this host have used so far, and what a hypervisor took away. Time in
/// interrupts is nobody's.
pub(super) fn host_cpu_time() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    parse_host_stat(&stat, ticks_per_second).ok_or_else(|| anyhow!("/proc/stat is odd: {stat}"))
}

fn parse_host_stat(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    // cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _, _, _, _, steal, ..] = ticks[..] else { return None };
    Some(Duration::from_secs(user + nice + system + steal).div_f64(ticks_per_second as f64))
}

/// How much memory of a process is resident, in bytes.
pub(super) fn resident(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| anyhow!("{path} has no VmRSS"))? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) (b) c) S 1 7 7 0 -1 4194560 93 0 0 0 150 50 30 20 20 0 1 0 100 1000 200";
        let expected = CpuTime { own: Duration::from_secs(2), children: Duration::from_millis(500) };
        assert_eq!(parse_stat(stat, 100), Some(expected));
        assert_eq!(parse_stat("7 (a) S 1", 100), None);
    }

    #[test]
    fn time_of_the_host_is_what_was_not_idle() {
        let stat = "cpu  100 20 70 1000 50 3 4 10 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(parse_host_stat(stat, 100), Some(Duration::from_secs(2)));
        assert_eq!(parse_host_stat("cpu 1 2", 100), None);
    }

    #[test]
    fn this_process_uses_something() {
        let own = std::process::id();
        assert!(resident(own).unwrap() > 100_000);
        assert_eq!(cpu_time(own).unwrap().children, Duration::ZERO);
        assert!(host_cpu_time().unwrap() > Duration::ZERO);
    }
}
