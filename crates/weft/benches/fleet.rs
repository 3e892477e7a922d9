//! What one coordinator does under a fleet: how long a fleet takes to arrive, what it costs in memory and processor
//! time, how long a list of skills takes while some nodes always come and go, and how long the fleet takes to come
//! back after the coordinator was killed.
//!
//! The coordinator is the real binary in a process of its own. The nodes are simulated: each has a connection of its
//! own and speaks the link protocol, and all of them live in this process, on one thread. Run it with
//! `cargo bench -p weft --bench fleet -- --help`.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "fleet/caller.rs"]
mod caller;
#[path = "fleet/coordinator.rs"]
mod coordinator;
#[path = "fleet/node.rs"]
mod node;
#[path = "fleet/offer.rs"]
mod offer;
#[path = "fleet/phases.rs"]
mod phases;
#[path = "fleet/report.rs"]
mod report;
#[path = "fleet/usage.rs"]
mod usage;

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};

use crate::phases::Size;

/// Measures one coordinator under a simulated fleet.
#[derive(Debug, Parser)]
struct Options {
    /// Simulated nodes; with --skills, instead of 2000 × 50 and 10 000 × 20
    #[arg(long, requires = "skills")]
    nodes: Option<usize>,
    /// Skills of each node
    #[arg(long, requires = "nodes")]
    skills: Option<usize>,
    /// Length of each phase in which skills are listed
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// How long the coordinator is away before it is started again
    #[arg(long, default_value_t = 5.0)]
    away: f64,
    /// Give the coordinator a state directory, in which it keeps what the fleet offers
    #[arg(long)]
    keep: bool,
    /// What is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Another binary than the one that was just built, to compare with
    #[arg(long, default_value = env!("CARGO_BIN_EXE_weft"))]
    program: PathBuf,
    /// What `cargo bench` adds; without it, as with --test, three nodes show that it works at all
    #[arg(long, hide = true)]
    bench: bool,
    #[arg(long, hide = true)]
    test: bool,
    #[arg(long, hide = true)]
    list: bool,
    /// What test runners add.
    #[arg(hide = true)]
    filters: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    #[default]
    Table,
    Json,
}

fn main() {
    let options = Options::parse();
    if options.list {
        return;
    }
    let sizes = match (options.nodes, options.skills) {
        (Some(nodes), Some(skills)) => vec![Size { nodes, skills }],
        _ if options.test || !options.bench => vec![Size { nodes: 3, skills: 2 }],
        _ => vec![Size { nodes: 2000, skills: 50 }, Size { nodes: 10_000, skills: 20 }],
    };
    let short = options.test || (!options.bench && options.nodes.is_none());
    let seconds = |seconds: f64| Duration::from_secs_f64(if short { 0.3 } else { seconds });
    let (length, away) = (seconds(options.seconds), seconds(options.away));
    usage::raise_descriptors();
    let runs: Vec<_> = sizes
        .into_iter()
        .map(|size| {
            let run = phases::run(&options.program, options.keep, size, length, away);
            if let Format::Table = options.output {
                report::print(&run);
            }
            run
        })
        .collect();
    if let Format::Json = options.output {
        report::print_json(&runs);
    }
}
