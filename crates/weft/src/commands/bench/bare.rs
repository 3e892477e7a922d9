//! The bare loop: what this machine can do when nothing stands between a caller and a skill's process.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use weft_exec::{BareOutput, Exit, Spawner};

use super::{
    Stop,
    cell::Call,
    samples::{ARGS, Installed},
};

/// How a bare loop starts a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Starter {
    /// By the means of the standard library.
    Std,
    /// By the call that a node uses, which is the fastest there is.
    Vfork,
}

/// Starts a skill again and again in as many threads as there are callers, each of them at least once. Blocks.
pub(super) fn calls(
    starter: Starter,
    skill: &Installed,
    callers: usize,
    time: Duration,
    stop: &Stop,
) -> anyhow::Result<Vec<Call>> {
    let until = Instant::now() + time;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..callers).map(|_| scope.spawn(|| one_caller(starter, skill, until, stop))).collect();
        let mut calls = Vec::new();
        for thread in threads {
            calls.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(calls)
    })
}

fn one_caller(starter: Starter, skill: &Installed, until: Instant, stop: &Stop) -> anyhow::Result<Vec<Call>> {
    let mut spawner = Spawner::new().context("make a stack for children")?;
    let mut calls = Vec::new();
    loop {
        stop.check()?;
        let begun = Instant::now();
        let output = start(starter, &mut spawner, skill)?;
        calls.push(Call { latency: begun.elapsed(), outside: Duration::ZERO });
        if output.exit != Some(Exit::Code(0)) || !output.stdout.starts_with(b"{") {
            bail!("{} does not answer: {output:?}", skill.program.display());
        }
        if Instant::now() >= until {
            return Ok(calls);
        }
    }
}

fn start(starter: Starter, spawner: &mut Spawner, skill: &Installed) -> anyhow::Result<BareOutput> {
    let Installed { program, directory } = skill;
    match starter {
        Starter::Std => weft_exec::run_with_std(program, directory, ARGS.as_bytes())
            .with_context(|| format!("start {}", program.display())),
        Starter::Vfork => Ok(spawner.run(program, directory, ARGS.as_bytes())?),
    }
}
