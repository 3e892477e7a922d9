//! What was measured, for people and for programs.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use crate::{
    caller::{Calls, Latencies},
    phases::{self, Phase, Run},
    usage::Memory,
};

/// The share of the cores that others may use before the report says so.
const QUIET: f64 = 0.1;

/// For people.
pub(crate) fn print(run: &Run) {
    let size = run.size;
    say(&format!(
        "{} nodes × {} skills, {} cores for coordinator and simulator together; each node has a TCP connection of its own\n",
        size.nodes,
        size.skills,
        cores()
    ));
    let cores = cores() as f64;
    for phase in run.phases.iter().filter(|phase| busy_with_others(phase) > QUIET * cores) {
        say(&format!(
            "other processes kept {:.1} of {cores} cores busy in {:?}: waiting for them is in its times",
            busy_with_others(phase),
            phase.name
        ));
    }
    table(
        &["what", "measured", "aim", "how"],
        [
            [
                "a complete catalog",
                &seconds(run.phase(phases::ARRIVE).took),
                "",
                "from the first connection until every skill is listed on every node",
            ],
            [
                "coordinator, resident",
                &mib(run.memory().resident),
                "< 1024 MiB",
                "most at the end of a phase, /proc/PID/smaps_rollup",
            ],
            ["coordinator, anonymous", &mib(run.memory().anonymous), "", "the same without pages of files"],
            [
                "ListSkills p50, p99, most",
                &spread(&run.calm.list),
                "",
                &listing(&run.calm, "nothing else happens"),
            ],
            [
                "… while 1 % flap",
                &spread(&run.flapping.list),
                "p99 < 5 ms",
                &listing(&run.flapping, &format!("{} links closed and came back", run.flaps)),
            ],
            [
                "a health check p50, p99, most",
                &spread(&run.calm.check),
                "",
                "before each list: the same way, and nothing done",
            ],
            [
                "… while 1 % flap",
                &spread(&run.flapping.check),
                "",
                "what this is, is the machine's and the transport's",
            ],
            [
                "half of the nodes back",
                &seconds(run.back.half),
                "",
                &format!("from the second start; kill -9 was {} before", seconds(run.away)),
            ],
            [
                "99 % of the nodes back",
                &seconds(run.back.most),
                "",
                "back-off 0.25 to 30 s with full jitter, as real nodes",
            ],
            ["all nodes back", &seconds(run.back.all), "", ""],
            ["all nodes in the catalog", &seconds(run.back.in_catalog), "≤ 60 s", ""],
        ]
        .map(|row| row.map(str::to_owned).to_vec()),
    );
    say("\nprocessor time:\n");
    table(
        &[
            "phase",
            "took",
            "coordinator",
            "simulator",
            "others",
            "sessions",
            "failed tries",
            "resident",
            "anonymous",
        ],
        run.phases.iter().map(|phase| {
            vec![
                phase.name.to_owned(),
                seconds(phase.took),
                seconds(phase.cpu.coordinator),
                seconds(phase.cpu.simulator),
                seconds(phase.cpu.others()),
                phase.opened.to_string(),
                phase.failed.to_string(),
                mib(phase.memory.resident),
                mib(phase.memory.anonymous),
            ]
        }),
    );
    say("");
}

/// For programs. The names are stable.
pub(crate) fn print_json(runs: &[Run]) {
    let runs: Vec<Value> = runs.iter().map(json).collect();
    let report = json!({"version": env!("CARGO_PKG_VERSION"), "cores": cores(), "runs": runs});
    say(&serde_json::to_string_pretty(&report).unwrap());
}

/// Says something on stderr.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "fleet: {text}");
}

fn json(run: &Run) -> Value {
    let phases: Vec<Value> = run
        .phases
        .iter()
        .map(|phase| {
            json!({
                "name": phase.name,
                "seconds": phase.took.as_secs_f64(),
                "cpu_s": {
                    "coordinator": phase.cpu.coordinator.as_secs_f64(),
                    "simulator": phase.cpu.simulator.as_secs_f64(),
                    "others": phase.cpu.others().as_secs_f64(),
                },
                "sessions": phase.opened,
                "failed_tries": phase.failed,
                "resident_mib": in_mib(phase.memory.resident),
                "anonymous_mib": in_mib(phase.memory.anonymous),
            })
        })
        .collect();
    let latencies = |of: &Latencies| {
        json!({
            "calls": of.count(),
            "p50_ms": in_ms(of.percentile(50)),
            "p99_ms": in_ms(of.percentile(99)),
            "most_ms": in_ms(of.most()),
        })
    };
    json!({
        "nodes": run.size.nodes,
        "skills": run.size.skills,
        "complete_s": run.phase(phases::ARRIVE).took.as_secs_f64(),
        "resident_mib": in_mib(run.memory().resident),
        "anonymous_mib": in_mib(run.memory().anonymous),
        "list_skills": {"calm": latencies(&run.calm.list), "flapping": latencies(&run.flapping.list)},
        "health_check": {"calm": latencies(&run.calm.check), "flapping": latencies(&run.flapping.check)},
        "flaps": run.flaps,
        "away_s": run.away.as_secs_f64(),
        "back_s": {
            "half": run.back.half.as_secs_f64(),
            "99_percent": run.back.most.as_secs_f64(),
            "all": run.back.all.as_secs_f64(),
            "in_catalog": run.back.in_catalog.as_secs_f64(),
        },
        "phases": phases,
    })
}

impl Run {
    fn phase(&self, name: &str) -> &Phase {
        self.phases.iter().find(|phase| phase.name == name).unwrap()
    }

    /// The most at the end of a phase.
    fn memory(&self) -> Memory {
        self.phases.iter().map(|phase| phase.memory).max_by_key(|memory| memory.resident).unwrap()
    }
}

fn listing(calls: &Calls, meanwhile: &str) -> String {
    format!("{} calls for an agent that sees {} skills; {meanwhile}", calls.list.count(), calls.listed)
}

fn spread(latencies: &Latencies) -> String {
    let [p50, p99, most] = [50, 99, 100].map(|percent| in_ms(latencies.percentile(percent)));
    format!("{p50:.2}, {p99:.2}, {most:.2} ms")
}

fn busy_with_others(phase: &Phase) -> f64 {
    phase.cpu.others().as_secs_f64() / phase.took.as_secs_f64()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", in_mib(bytes))
}

fn in_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn in_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|title| title.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    say(table.trim_fmt().as_str());
}

fn say(line: &str) {
    writeln!(io::stdout().lock(), "{line}").unwrap();
}
