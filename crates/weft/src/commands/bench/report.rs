//! What was measured, for people and for programs.

use std::{fs, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    Cells, Subject,
    bare::Starter,
    cell::{Cell, Cpu, Spread, Way},
    fabric::Resident,
    samples::{ARGS, Sample},
};
use crate::output;

/// Where it was measured.
#[derive(Debug)]
pub(super) struct Host {
    cores: usize,
    processor: String,
    kernel: String,
}

impl Host {
    /// Looks at this host.
    pub(super) fn look() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: model.map_or(std::env::consts::ARCH, |(_, model)| model).to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }
}

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) host: Host,
    /// Cores that were kept busy by what was not measured.
    pub(super) others: f64,
    pub(super) rounds: usize,
    pub(super) time: Duration,
    pub(super) cells: Cells,
    pub(super) idle: Resident,
    pub(super) after: Resident,
}

/// One thing that was compared pair by pair.
struct Comparison {
    key: String,
    title: String,
    spread: Spread,
}

/// A lone caller who waits longer than this at the median, in milliseconds, beside the life of the process, waits for
/// something that should not be: an acknowledgement that the other side delays takes 40 ms.
const SUSPICIOUS: f64 = 20.0;

/// The share of the cores that others may use before the report says so.
const QUIET: f64 = 0.1;

impl Report {
    /// For programs. The names are stable.
    pub(super) fn json(&self) -> Value {
        let (ratios, added) = (self.ratios(), self.added());
        let medians = |of: &[Comparison]| -> Map<String, Value> {
            of.iter().map(|it| (it.key.clone(), rounded(it.spread.median))).collect()
        };
        let spread: Map<String, Value> = ratios.iter().map(|it| (it.key.clone(), it.spread.json())).collect();
        let figures: Map<String, Value> = self
            .cells
            .iter()
            .map(|(subject, cells)| {
                (format!("{}_{}", subject.name(), subject.way.name()), subject.figures(cells))
            })
            .collect();
        let Host { cores, processor, kernel } = &self.host;
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "build": build(),
            "host": {"cores": cores, "processor": processor, "kernel": kernel, "busy_with_others": rounded(self.others)},
            "settings": {"rounds": self.rounds, "seconds": self.time.as_secs_f64(), "args_bytes": ARGS.len()},
            "ratios": medians(&ratios),
            "spread": spread,
            "added_p50_ms": medians(&added),
            "figures": figures,
            "resident_mib": {
                "coordinator": {
                    "idle": rounded(mib(self.idle.coordinator)), "after": rounded(mib(self.after.coordinator)),
                },
                "node": {"idle": rounded(mib(self.idle.node)), "after": rounded(mib(self.after.node))},
            },
        })
    }

    /// For people.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let Host { cores, processor, kernel } = &self.host;
        output::print(&format!(
            "weft {} ({} build) on {cores} cores of {processor}, Linux {kernel}",
            env!("CARGO_PKG_VERSION"),
            build(),
        ))?;
        output::print(&format!(
            "{} rounds, {} s a cell, args of {} bytes\n",
            self.rounds,
            self.time.as_secs_f64(),
            ARGS.len()
        ))?;
        if self.others > QUIET * *cores as f64 {
            output::print(&format!(
                "other processes kept {:.1} of {cores} cores busy: waiting for them is in every rate and latency below\n",
                self.others
            ))?;
        }
        output::print_table(
            &[
                "skill",
                "callers",
                "way",
                "calls",
                "calls/s",
                "p50 ms",
                "p99 ms",
                "outside p50",
                "outside p99",
            ],
            self.cells.iter().map(|(subject, cells)| {
                let all = Cell::merged(cells);
                let mut row = subject.row();
                row.push(all.calls().to_string());
                row.push(format!("{:.0}", median_rate(cells)));
                row.extend([0.5, 0.99].map(|share| format!("{:.2}", all.latency(share))));
                if subject.way == Way::Weft {
                    row.extend([0.5, 0.99].map(|share| format!("{:.2}", all.outside(share))));
                }
                row
            }),
        )?;
        output::print("\nprocessor time, in seconds for 1000 calls:\n")?;
        output::print_table(
            &["skill", "callers", "way", "all", "client", "coordinator", "node", "skills"],
            self.cells.iter().map(|(subject, cells)| {
                let all = Cell::merged(cells);
                let Cpu { client, coordinator, node, skills } = all.cpu;
                let parties = [client, coordinator, node, skills].map(|time| all.per_1000(time));
                let mut row = subject.row();
                row.extend([all.cpu_per_1000()].into_iter().chain(parties).map(|time| format!("{time:.3}")));
                row
            }),
        )?;
        output::print("\nweft against a bare loop, pair by pair:\n")?;
        output::print_table(
            &["ratio", "median", "quartiles", "least, most", "key"],
            self.ratios().into_iter().map(|Comparison { key, title, spread }| {
                let Spread { least, lower_quartile, median, upper_quartile, most } = spread;
                vec![
                    title,
                    format!("{median:.2}"),
                    format!("{lower_quartile:.2}, {upper_quartile:.2}"),
                    format!("{least:.2}, {most:.2}"),
                    key,
                ]
            }),
        )?;
        output::print("")?;
        for Comparison { title, spread, .. } in self.added() {
            output::print(&format!("{title}: {:.2} ms", spread.median))?;
        }
        for (subject, cells) in self.cells.iter().filter(|(subject, _)| subject.callers == 1) {
            let outside = Cell::merged(cells).outside(0.5);
            if outside > SUSPICIOUS {
                output::print(&format!(
                    "{}: {outside:.0} ms outside its process: something waits, for a core or for a delayed acknowledgement",
                    subject.sample.name()
                ))?;
            }
        }
        for (who, idle, after) in [
            ("coordinator", self.idle.coordinator, self.after.coordinator),
            ("node", self.idle.node, self.after.node),
        ] {
            output::print(&format!(
                "memory of the {who}: {:.1} MiB idle, {:.1} MiB after",
                mib(idle),
                mib(after)
            ))?;
        }
        Ok(())
    }

    /// Compares what was measured through weft with a bare loop of the same rounds. `None` when one of them was not
    /// measured.
    fn compare(
        &self,
        weft: &Subject,
        bare: &Subject,
        suffix: &str,
        what: &str,
        value: impl Fn(&Cell, &Cell) -> f64,
    ) -> Option<Comparison> {
        let cells = |subject| self.cells.get(subject).map(Vec::as_slice).unwrap_or_default();
        let pairs = cells(weft).iter().zip(cells(bare));
        let spread = Spread::of(pairs.map(|(weft, bare)| value(weft, bare)))?;
        let key = format!("{}{suffix}", weft.name());
        let callers = if weft.callers == 1 { "caller" } else { "callers" };
        let title = format!("{}, {} {callers}: {what}", weft.sample.name(), weft.callers);
        Some(Comparison { key, title, spread })
    }

    fn through_weft(&self) -> impl Iterator<Item = &Subject> {
        self.cells.keys().filter(|subject| subject.way == Way::Weft)
    }

    fn ratios(&self) -> Vec<Comparison> {
        let rate = |weft: &Cell, bare: &Cell| weft.rate() / bare.rate();
        let p50 = |weft: &Cell, bare: &Cell| weft.latency(0.5) / bare.latency(0.5);
        let cpu = |weft: &Cell, bare: &Cell| weft.cpu_per_1000() / bare.cpu_per_1000();
        let mut all = Vec::new();
        for weft in self.through_weft() {
            let (vfork, std) = (weft.bare(Starter::Vfork), weft.bare(Starter::Std));
            if weft.sample == Sample::Echo {
                // Nothing is started, so the shell skill stands in: how often the way can be gone for one start.
                let shell = Subject { sample: Sample::Shell, ..vfork };
                all.extend(self.compare(weft, &shell, "", "rate against vfork of shell", rate));
                continue;
            }
            all.extend(self.compare(weft, &vfork, "", "rate against vfork", rate));
            all.extend(self.compare(weft, &vfork, "_p50", "p50 against vfork", p50));
            all.extend(self.compare(weft, &vfork, "_cpu", "processor time against vfork", cpu));
            all.extend(self.compare(weft, &std, "_std", "rate against std", rate));
        }
        all
    }

    /// What weft adds to the median latency of a lone caller, in milliseconds. With more callers than cores latency is
    /// mostly waiting for a core.
    fn added(&self) -> Vec<Comparison> {
        let added = |weft: &Cell, bare: &Cell| weft.latency(0.5) - bare.latency(0.5);
        self.through_weft()
            .filter(|weft| weft.callers == 1)
            .filter_map(|weft| self.compare(weft, &weft.bare(Starter::Vfork), "", "added at p50", added))
            .collect()
    }
}

impl Subject {
    /// The same by a bare loop.
    fn bare(&self, starter: Starter) -> Self {
        Self { way: Way::Bare(starter), ..*self }
    }

    /// Names it, whatever the way.
    fn name(&self) -> String {
        format!("{}_c{}", self.sample.name(), self.callers)
    }

    fn figures(&self, cells: &[Cell]) -> Value {
        let all = Cell::merged(cells);
        let Cpu { client, coordinator, node, skills } = all.cpu;
        let per_1000 = |time| rounded(all.per_1000(time));
        let mut figures = json!({
            "calls": all.calls(),
            "per_second": rounded(median_rate(cells)),
            "p50_ms": rounded(all.latency(0.5)),
            "p99_ms": rounded(all.latency(0.99)),
            "cpu_s_per_1000": {
                "all": rounded(all.cpu_per_1000()),
                "client": per_1000(client),
                "coordinator": per_1000(coordinator),
                "node": per_1000(node),
                "skills": per_1000(skills),
            },
        });
        if self.way == Way::Weft {
            figures["outside_p50_ms"] = rounded(all.outside(0.5));
            figures["outside_p99_ms"] = rounded(all.outside(0.99));
        }
        figures
    }

    fn row(&self) -> Vec<String> {
        vec![self.sample.name().into(), self.callers.to_string(), self.way.name().into()]
    }
}

impl Spread {
    fn json(&self) -> Value {
        let Self { least, lower_quartile, median, upper_quartile, most } = *self;
        json!({
            "least": rounded(least),
            "lower_quartile": rounded(lower_quartile),
            "median": rounded(median),
            "upper_quartile": rounded(upper_quartile),
            "most": rounded(most),
        })
    }
}

/// The median of the rounds: one that was disturbed does not move it.
fn median_rate(cells: &[Cell]) -> f64 {
    Spread::of(cells.iter().map(Cell::rate)).map_or(f64::NAN, |spread| spread.median)
}

/// A number with as many digits as mean something; `null` for what is none.
fn rounded(value: f64) -> Value {
    json!((value * 10_000.0).round() / 10_000.0)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

const fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "release" }
}
