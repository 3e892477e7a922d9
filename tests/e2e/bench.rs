//! `weft bench` measures weft beside a bare loop, tells programs what it found, and leaves nothing behind.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use weft_testkit::{Daemon, eventually, fabric::SOON, fabric::isolate};

use crate::WEFT;

/// How long a short run may take on a machine that does much else.
const LONG: Duration = Duration::from_secs(120);

/// Starts it with a directory of its own for whatever it writes, and with settings that are not meant for it.
fn bench(temporary: &TempDir, args: &[&str]) -> Daemon {
    let mut all = vec!["bench"];
    all.extend(args);
    Daemon::start(Path::new(WEFT), &all, |command| {
        isolate(command);
        command.env("TMPDIR", temporary.path()).env("WEFT_SLOTS", "none").env("WEFT_LOG", "off");
    })
}

fn nothing_is_left(temporary: &TempDir) {
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "files");
    let path = temporary.path().to_str().unwrap();
    let mut left = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
        // What it starts has the directory in its environment, in its arguments, or runs in it.
        let text = |name| fs::read(process.join(name)).unwrap_or_default();
        let mut about = [text("environ"), text("cmdline")].concat();
        about.extend(fs::read_link(process.join("cwd")).unwrap_or_default().as_os_str().as_bytes());
        if String::from_utf8_lossy(&about).contains(path) {
            left.push(process);
        }
    }
    assert_eq!(left, Vec::<PathBuf>::new(), "processes");
}

#[track_caller]
fn positive(value: &Value, what: &str) {
    assert!(value.as_f64().is_some_and(|number| number > 0.0), "{what}: {value}");
}

#[test]
fn every_figure_and_ratio_has_its_name_and_nothing_is_left_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut bench = bench(&temporary, &["--rounds", "1", "--seconds", "0.1", "-o", "json"]);
    let finished = bench.finish(LONG);
    assert_eq!(finished.code, 0, "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    for callers in ["c1", "c32"] {
        for skill in ["native", "shell", "python"] {
            for ratio in ["", "_p50", "_std"] {
                let key = format!("{skill}_{callers}{ratio}");
                positive(&report["ratios"][&key], &key);
                positive(&report["spread"][&key]["lower_quartile"], &key);
            }
            for way in ["std", "vfork", "weft"] {
                let key = format!("{skill}_{callers}_{way}");
                let figures = &report["figures"][&key];
                for figure in ["calls", "per_second", "p50_ms", "p99_ms"] {
                    positive(&figures[figure], &format!("{key} {figure}"));
                }
                for party in ["all", "client", "coordinator", "node", "skills"] {
                    assert!(figures["cpu_s_per_1000"][party].is_f64(), "{key} {party}");
                }
            }
        }
        let echo = format!("echo_{callers}");
        positive(&report["ratios"][&echo], &echo);
        positive(&report["figures"][format!("{echo}_weft")]["per_second"], &echo);
    }
    // Of the others, so short a cell may take less than a tick.
    positive(&report["ratios"]["python_c32_cpu"], "python_c32_cpu");
    positive(&report["figures"]["echo_c1_weft"]["outside_p50_ms"], "echo");
    for skill in ["native", "shell"] {
        assert!(report["added_p50_ms"][format!("{skill}_c1")].is_f64(), "{skill}");
        // A result that waits for a delayed acknowledgement comes 40 ms late. On a busy machine everything does, which
        // the bare loop shows as well.
        let outside = report["figures"][format!("{skill}_c1_weft")]["outside_p50_ms"].as_f64().unwrap();
        let bare = report["figures"][format!("{skill}_c1_vfork")]["p50_ms"].as_f64().unwrap();
        assert!(outside < 25.0 + 10.0 * bare, "{skill}: {outside} ms, a bare start takes {bare} ms");
    }
    for process in ["coordinator", "node"] {
        for moment in ["idle", "after"] {
            positive(&report["resident_mib"][process][moment], &format!("{process} {moment}"));
        }
    }
    assert_eq!(report["build"], if cfg!(debug_assertions) { "debug" } else { "release" });
    assert_eq!(finished.stderr.contains("debug build"), cfg!(debug_assertions), "{}", finished.stderr);
    nothing_is_left(&temporary);
}

#[test]
fn people_get_a_table_of_what_they_asked_for() {
    let temporary = tempfile::tempdir().unwrap();
    let args = ["--rounds", "1", "--seconds", "0.1", "--skills", "shell,echo", "--concurrency", "2"];
    let finished = bench(&temporary, &args).finish(LONG);
    assert_eq!(finished.code, 0, "{finished:?}");
    for expected in ["shell_c2 ", "echo_c2 ", "memory of the node: "] {
        assert!(format!("{} ", finished.stdout.replace('\n', " \n")).contains(expected), "{finished:?}");
    }
    assert!(!finished.stdout.contains("python"), "{finished:?}");
    assert!(finished.stderr.contains("not to be relied on"), "{finished:?}");
    nothing_is_left(&temporary);
}

#[test]
fn interrupted_it_ends_what_it_started() {
    for round in ["round 1 of", ""] {
        let temporary = tempfile::tempdir().unwrap();
        let mut bench = bench(&temporary, &["--seconds", "600", "--skills", "shell,echo"]);
        match round {
            // Before or while its processes start.
            "" => eventually("a scratch directory", SOON, || {
                fs::read_dir(temporary.path()).unwrap().next().map(drop)
            }),
            round => drop(bench.wait_for_line(round, SOON)),
        }
        bench.signal(Signal::INT);
        let finished = bench.finish(SOON);
        assert_eq!(finished.code, 130, "{finished:?}");
        nothing_is_left(&temporary);
    }
}
