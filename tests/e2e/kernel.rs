//! A kernel that is not ours: `examples/python` against the real binary, and the example skills with it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use weft_testkit::{Daemon, Fabric, Finished, Skill, Spec, fabric::isolate};

use crate::fabric;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A Python with grpcio.
pub(crate) fn python() -> PathBuf {
    let given = std::env::var_os("WEFT_TEST_PYTHON").map(PathBuf::from);
    let made = repository().join("target/check-venv/bin/python");
    given.or_else(|| made.exists().then_some(made)).expect(
        "this test needs a Python with examples/python/requirements.txt: run ./scripts/check once, or set WEFT_TEST_PYTHON",
    )
}

fn spawn(fabric: &Fabric, args: &[&str]) -> Daemon {
    let script = repository().join("examples/python/weft_kernel.py");
    let mut all = vec![script.to_str().unwrap()];
    all.extend(args);
    Daemon::start(&python(), &all, |command| {
        isolate(command);
        command.env("WEFT_COORDINATOR", format!("http://{}", fabric.address()));
        command.env("XDG_CACHE_HOME", fabric.path("cache"));
        command.env("PYTHONUNBUFFERED", "1");
    })
}

fn kernel(fabric: &Fabric, args: &[&str]) -> Finished {
    spawn(fabric, args).finish(Duration::from_secs(60))
}

#[test]
fn a_python_kernel_lists_tools_and_calls_one_with_live_stderr() {
    let fabric = fabric();
    let go = fabric.path("go");
    let script = format!(
        "echo working >&2; while [ ! -e {} ]; do sleep 0.02; done; echo '{{\"ok\":true}}'",
        go.display()
    );
    let _node = fabric.node("host", &[Skill::sh("work", &script)], &Spec::new());

    let tools = kernel(&fabric, &["tools"]);
    assert_eq!(tools.code, 0, "{tools:?}");
    let tools: Value = serde_json::from_str(&tools.stdout).unwrap();
    assert!(tools.to_string().contains("\"work\""), "{tools}");

    let mut call = spawn(&fabric, &["call", "work", "--args", "{}"]);
    call.wait_for_line("working", Duration::from_secs(60));
    assert!(call.stdout().is_empty());
    std::fs::write(&go, "").unwrap();
    let finished = call.finish(Duration::from_secs(60));
    assert_eq!(finished.code, 0, "{finished:?}");
    assert_eq!(serde_json::from_str::<Value>(&finished.stdout).unwrap(), serde_json::json!({"ok": true}));
    assert_eq!(kernel(&fabric, &["call", "nothing", "--args", "{}"]).code, 3);
}

#[test]
fn the_example_skills_load_clean_and_run_on_this_host() {
    let fabric = fabric();
    let examples = repository().join("examples/skills");
    let spec = Spec::new().arg("--skills", &examples);
    let _node = fabric.start_node("host", &spec);
    weft_testkit::eventually("the examples", Duration::from_secs(20), || {
        let listed = fabric.json(&["skills", "--eligible"])?.to_string();
        ["disk_usage", "listening_sockets", "http_probe"]
            .iter()
            .all(|name| listed.contains(name))
            .then_some(())
    });
    // The node's own directory is empty, which is told of too.
    let mut diagnostics = fabric.diagnostics();
    diagnostics.retain(|line| line.contains(examples.to_str().unwrap()));
    assert_eq!(diagnostics, Vec::<String>::new(), "an example with a warning is no example");
    let usage = fabric.call(&["disk_usage", "path=/"]);
    assert!(usage.to_string().contains("\"/\""), "{usage}");
    fabric.call(&["listening_sockets", "protocol=tcp"]);
    let port = fabric.address().rsplit(':').next().unwrap();
    let probe = fabric.call(&["http_probe", &format!("url=http://127.0.0.1:{port}/")]);
    assert!(probe.is_object());
}
