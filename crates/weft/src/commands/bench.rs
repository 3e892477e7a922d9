//! `weft bench`: what weft adds to the mere start of a process, on this machine, now.
//!
//! Every figure is taken beside a bare loop that starts the same skill without weft, a short cell of one and a short
//! cell of the other, so that what else the machine does strikes both. What counts are the ratios.

mod bare;
mod cell;
mod daemon;
mod fabric;
mod link;
mod report;
mod samples;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use weft_client::Coordinator;
use weft_daemon::signal::Signals;

use self::{
    bare::Starter,
    cell::{Cell, Cpu, Way},
    fabric::{Fabric, Parties},
    report::{Host, Report},
    samples::{Installed, Sample},
    usage::{cpu_time, host_cpu_time},
};
use super::call::seconds;
use crate::{
    exit::{self, Failure},
    output::{self, Format},
};

/// With fewer pairs than this, one that was disturbed moves the median.
const SOUND_PAIRS: usize = 7;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Pairs that are measured of everything: a cell of the bare loop, a cell of weft
    #[arg(long, default_value_t = SOUND_PAIRS, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
    /// Seconds that a cell takes
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: Duration,
    /// What is called
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Sample::Native, Sample::Shell, Sample::Python, Sample::Echo])]
    skills: Vec<Sample>,
    /// How many callers there are at the same time
    #[arg(long, value_name = "CALLERS", value_delimiter = ',', default_values_t = [1, 32], value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: Vec<u16>,
    /// json: every figure, under stable names
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Be the node that answers by itself; for `weft bench` alone
    #[arg(long, hide = true, value_name = "URL")]
    echo_node: Option<Coordinator>,
}

/// Set when the person does not want to wait any more.
#[derive(Debug, Clone, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails once it is set.
    fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// What a cell measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    sample: Sample,
    callers: usize,
    way: Way,
}

/// The cells of each subject, one a round.
type Cells = BTreeMap<Subject, Vec<Cell>>;

impl Bench {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        if let Some(coordinator) = &self.echo_node {
            link::serve(coordinator).await?;
            return Ok(exit::OK);
        }
        if cfg!(debug_assertions) {
            output::note(
                "this is a debug build: its figures say nothing; measure with `cargo build --release`",
            );
        }
        if self.rounds < SOUND_PAIRS {
            output::note(&format!("fewer than {SOUND_PAIRS} rounds: the ratios are not to be relied on"));
        }
        let mut signals = Signals::catch().context("catch signals")?;
        let scratch =
            tempfile::Builder::new().prefix("weft-bench-").tempdir().context("make a scratch directory")?;
        let stop = Stop::default();
        let work = self.measure(scratch.path(), &stop);
        tokio::pin!(work);
        let report = tokio::select! {
            report = &mut work => report?,
            signal = signals.next() => {
                output::note(&format!("{signal}: ending what was started; once more to leave sooner"));
                stop.set();
                tokio::select! {
                    _ = &mut work => {}
                    _ = signals.next() => {}
                }
                return Ok(exit::INTERRUPTED);
            }
        };
        match self.output {
            Format::Json => output::print_json(&report.json())?,
            Format::Table => report.print()?,
        }
        Ok(exit::OK)
    }

    async fn measure(&self, scratch: &Path, stop: &Stop) -> anyhow::Result<Report> {
        let host = Host::look();
        let source = scratch.join("skills");
        fs::create_dir(&source)?;
        let mut bench = Measuring { installed: BTreeMap::new(), time: self.seconds, stop: stop.clone() };
        let mut samples = Vec::new();
        for sample in self.skills.iter().copied().collect::<BTreeSet<_>>() {
            match samples::install(sample, &source)? {
                Some(installed) => {
                    bench.installed.insert(sample, installed);
                }
                None if sample == Sample::Echo => {}
                None => {
                    output::note(&format!(
                        "{} is left out: this host has no interpreter for it",
                        sample.name()
                    ));
                    continue;
                }
            }
            samples.push(sample);
        }
        if samples.is_empty() {
            bail!("nothing is left to measure");
        }
        let fabric = Fabric::start(scratch, &samples, stop).await?;
        let measured = async {
            let idle = fabric.resident()?;
            let plan = plan(&samples, &self.concurrency.iter().copied().collect());
            let (cells, others) = bench.rounds(&fabric, &plan, self.rounds).await?;
            let after = fabric.resident()?;
            anyhow::Ok(Report { host, others, rounds: self.rounds, time: self.seconds, cells, idle, after })
        }
        .await;
        fabric.end().await;
        measured
    }
}

/// Everything that is measured in a round, in its order. What is compared stands side by side.
fn plan(samples: &[Sample], concurrency: &BTreeSet<u16>) -> Vec<Subject> {
    let mut plan = Vec::new();
    for &callers in concurrency {
        for &sample in samples {
            let ways: &[Way] = match sample {
                Sample::Echo => &[Way::Weft],
                Sample::Native | Sample::Shell | Sample::Python => {
                    &[Way::Bare(Starter::Vfork), Way::Weft, Way::Bare(Starter::Std)]
                }
            };
            plan.extend(ways.iter().map(|&way| Subject { sample, callers: callers.into(), way }));
        }
    }
    plan
}

/// What cells need.
struct Measuring {
    installed: BTreeMap<Sample, Installed>,
    time: Duration,
    stop: Stop,
}

impl Measuring {
    /// Returns, beside the cells, how many cores others than the measured processes kept busy.
    async fn rounds(&self, fabric: &Fabric, plan: &[Subject], rounds: usize) -> anyhow::Result<(Cells, f64)> {
        // Not counted: what is done for the first time is slower.
        for subject in plan {
            self.cell(fabric, *subject, Duration::ZERO).await?;
        }
        let each = self.time * u32::try_from(plan.len()).unwrap_or(u32::MAX);
        let mut cells = Cells::new();
        let (before, begun) = (host_cpu_time()?, Instant::now());
        for round in 0..rounds {
            output::note(&format!("round {} of {rounds}, {} s each or more", round + 1, each.as_secs()));
            // Every other round goes backwards, so that a machine that becomes slower or faster favours neither side.
            let order: Vec<Subject> = match round % 2 {
                0 => plan.to_vec(),
                _ => plan.iter().rev().copied().collect(),
            };
            for subject in order {
                let cell = self.cell(fabric, subject, self.time).await?;
                cells.entry(subject).or_default().push(cell);
            }
        }
        let measured: Duration = cells.values().flatten().map(|cell| cell.cpu.all()).sum();
        let others = host_cpu_time()?.saturating_sub(before).saturating_sub(measured);
        Ok((cells, others.as_secs_f64() / begun.elapsed().as_secs_f64()))
    }

    async fn cell(&self, fabric: &Fabric, subject: Subject, time: Duration) -> anyhow::Result<Cell> {
        let Subject { sample, callers, way } = subject;
        let parties = match way {
            Way::Bare(_) => None,
            Way::Weft => Some(fabric.parties(sample)),
        };
        let (before, begun) = (processor(parties)?, Instant::now());
        let calls = match way {
            Way::Weft => fabric.calls(sample, callers, time, &self.stop).await?,
            Way::Bare(starter) => {
                let installed = self.installed.get(&sample).cloned().context("a skill without a program")?;
                let stop = self.stop.clone();
                let bare = move || bare::calls(starter, &installed, callers, time, &stop);
                tokio::task::spawn_blocking(bare).await??
            }
        };
        let wall = begun.elapsed();
        Ok(Cell::new(calls, wall, processor(parties)? - before))
    }
}

/// Who has used how much processor time so far. Without other parties, it is this process that starts skills.
fn processor(parties: Option<Parties>) -> anyhow::Result<Cpu> {
    let own = cpu_time(std::process::id())?;
    Ok(match parties {
        None => Cpu { client: own.own, skills: own.children, ..Cpu::default() },
        Some(Parties { coordinator, node }) => {
            let node = cpu_time(node)?;
            let coordinator = cpu_time(coordinator)?.own;
            Cpu { client: own.own, coordinator, node: node.own, skills: node.children }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_is_measured_side_by_side() {
        let plan = plan(&[Sample::Shell, Sample::Echo], &BTreeSet::from([1, 32]));
        let at = |callers, way| {
            plan.iter().position(|it| *it == Subject { sample: Sample::Shell, callers, way }).unwrap()
        };
        for callers in [1, 32] {
            let weft = at(callers, Way::Weft);
            for starter in [Starter::Std, Starter::Vfork] {
                assert_eq!(at(callers, Way::Bare(starter)).abs_diff(weft), 1);
            }
        }
        assert_eq!(plan.len(), 8);
    }
}
