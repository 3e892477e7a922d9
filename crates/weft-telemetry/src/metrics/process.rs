//! What the operating system says about this process.

use opentelemetry::metrics::Meter;

/// Registers the figures; each is read when somebody asks.
#[cfg(target_os = "linux")]
pub(super) fn register(meter: &Meter) {
    meter
        .f64_observable_counter("process.cpu.time")
        .with_unit("s")
        .with_description("Processor time that the process has used.")
        .with_callback(|observer| observer.observe(linux::cpu_seconds(), &[]))
        .build();
    meter
        .i64_observable_up_down_counter("process.memory.usage")
        .with_unit("By")
        .with_description("Memory that is resident.")
        .with_callback(|observer| {
            if let Some(kibibytes) = linux::status("VmRSS:") {
                observer.observe(kibibytes * 1024, &[]);
            }
        })
        .build();
    meter
        .i64_observable_up_down_counter("process.thread.count")
        .with_unit("{thread}")
        .with_description("Threads of the process.")
        .with_callback(|observer| {
            if let Some(threads) = linux::status("Threads:") {
                observer.observe(threads, &[]);
            }
        })
        .build();
    meter
        .i64_observable_up_down_counter("process.unix.file_descriptor.count")
        .with_unit("{file_descriptor}")
        .with_description("File descriptors that are open.")
        .with_callback(|observer| {
            if let Some(count) = linux::open_files() {
                observer.observe(count, &[]);
            }
        })
        .build();
}

/// Nothing is known on this platform yet.
#[cfg(not(target_os = "linux"))]
pub(super) fn register(_: &Meter) {}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use rustix::time::{ClockId, clock_gettime};

    /// In user and kernel mode.
    pub(super) fn cpu_seconds() -> f64 {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
    }

    /// A number of `/proc/self/status`.
    pub(super) fn status(name: &str) -> Option<i64> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// The one that reads the directory does not count.
    pub(super) fn open_files() -> Option<i64> {
        let count = fs::read_dir("/proc/self/fd").ok()?.count();
        i64::try_from(count).ok().map(|count| count - 1)
    }
}
