//! Processes that are killed and come back: the fabric is whole again within seconds, and says what happened.

use std::time::{Duration, Instant};

use serde_json::json;
use weft_testkit::{Proxy, Skill, Spec, eventually, process::processes_with};

use crate::{WEFT, fabric, unique_sleep};

/// The promise.
const WHOLE: Duration = Duration::from_secs(10);

#[test]
fn a_killed_node_is_back_within_ten_seconds_and_leaves_no_orphan() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let skills = [Skill::echo("echo"), Skill::sh("long", &format!("echo up >&2; setsid {sleep} & wait"))];
    let mut node = fabric.node("host", &skills, &Spec::new());
    let call = fabric.spawn(&["call", "long"]);
    call.wait_for_line("up", Duration::from_secs(20));
    eventually("its process", Duration::from_secs(10), || (!processes_with(&sleep).is_empty()).then_some(()));
    let before = processes_with(&sleep);
    node.kill();

    let begun = Instant::now();
    let _node = fabric.start_node("host", &Spec::new());
    eventually("a call on the new life", WHOLE, || (fabric.weft(&["call", "echo"]).code == 0).then_some(()));
    assert!(begun.elapsed() < WHOLE);
    // A safe skill is run again, and its caller is told why.
    call.wait_for_line("is lost", Duration::from_secs(20));
    eventually("the end of what the first life left", Duration::from_secs(20), || {
        processes_with(&sleep).iter().all(|pid| !before.contains(pid)).then_some(())
    });
    eventually("the second attempt", Duration::from_secs(20), || {
        (call.stderr().matches("up\n").count() == 2).then_some(())
    });
    let listed = fabric.json(&["invocations", "long"]).unwrap();
    assert_eq!(listed[0]["attempts"], 2);
}

#[test]
fn a_mutating_skill_on_a_killed_node_is_unknown_and_never_run_twice() {
    let fabric = weft_testkit::Fabric::start(WEFT, &["--allow", "mutating"]);
    let log = fabric.path("starts");
    let sleep = unique_sleep();
    let script = format!("echo start >> {}; echo up >&2; exec {sleep}", log.display());
    let skill = Skill::sh("change", &script).with("class", json!("mutating"));
    let mut node = fabric.node("host", &[skill], &Spec::new());
    let mut call = fabric.spawn(&["call", "change"]);
    call.wait_for_line("up", Duration::from_secs(20));
    node.kill();
    let _node = fabric.start_node("host", &Spec::new());
    let finished = call.finish(WHOLE);
    assert_eq!(finished.code, 7, "{finished:?}");
    assert!(
        finished.stderr.contains("UNKNOWN") && finished.stderr.contains("may have run"),
        "{}",
        finished.stderr
    );
    eventually("the end of the orphan", Duration::from_secs(10), || {
        processes_with(&sleep).is_empty().then_some(())
    });
    assert_eq!(std::fs::read_to_string(log).unwrap(), "start\n");
}

#[test]
fn a_killed_coordinator_is_whole_again_within_ten_seconds_and_callers_are_told() {
    let mut fabric = fabric();
    let sleep = unique_sleep();
    let skills = [Skill::echo("echo"), Skill::sh("long", &format!("echo up >&2; exec {sleep}"))];
    let nodes = ["one", "two", "three"].map(|name| fabric.node(name, &skills, &Spec::new()));
    let mut call = fabric.spawn(&["call", "long"]);
    call.wait_for_line("up", Duration::from_secs(20));
    fabric.kill_coordinator();
    for node in &nodes {
        node.wait_for_line("no coordinator", Duration::from_secs(20));
    }
    let begun = Instant::now();
    fabric.restart_coordinator();
    eventually("all three nodes", WHOLE, || {
        let listed = fabric.json(&["nodes"])?;
        (listed.as_array()?.iter().filter(|node| node["state"] == "NODE_STATE_CONNECTED").count() == 3)
            .then_some(())
    });
    assert!(begun.elapsed() < WHOLE);
    assert_eq!(fabric.call(&["echo", "n=1"]), json!({"n": "1"}));

    // The log was in memory, so the caller is told that nobody knows, and the safe invocation is ended.
    let finished = call.finish(Duration::from_secs(30));
    assert_eq!(finished.code, 7, "{finished:?}");
    assert!(finished.stderr.contains("lost sight"), "{}", finished.stderr);
    eventually("the end of what nobody knows", Duration::from_secs(20), || {
        processes_with(&sleep).is_empty().then_some(())
    });
}

#[test]
fn connections_that_break_lose_nothing_of_what_runs() {
    let fabric = fabric();
    let proxy = Proxy::to(fabric.address());
    let go = fabric.path("go");
    let script = format!(
        "for n in 1 2 3; do echo line $n >&2; while [ ! -e {}$n ]; do sleep 0.02; done; done; echo '{{}}'",
        go.display()
    );
    let node = fabric.node("host", &[Skill::sh("steady", &script)], &Spec::new().via(proxy.address()));
    let mut call = fabric.spawn(&["call", "steady", "--coordinator", &proxy.address()]);
    let mut session = json!(null);
    for n in 1..=3 {
        call.wait_for_line(&format!("line {n}"), Duration::from_secs(40));
        // The node's link and the caller's stream, both, and both are back before the next cut.
        session = eventually("both connections", Duration::from_secs(40), || {
            let node = fabric.json(&["nodes"])?[0].clone();
            let fresh = node["state"] == "NODE_STATE_CONNECTED" && node["sessionEpoch"] != session;
            let back = call.stderr().matches("the stream is back").count() == n - 1;
            (fresh && back).then(|| node["sessionEpoch"].clone())
        });
        let cut = proxy.cut();
        assert!(cut >= 2, "{cut} connections at line {n}");
        std::fs::write(format!("{}{n}", go.display()), "").unwrap();
    }
    let finished = call.finish(Duration::from_secs(60));
    assert_eq!((finished.code, finished.stdout.trim()), (0, "{}"), "{finished:?}");
    let lines: Vec<_> = finished.stderr.lines().filter(|line| line.starts_with("line")).collect();
    assert_eq!(lines, ["line 1", "line 2", "line 3"]);
    assert!(finished.stderr.contains("the stream is back"), "{}", finished.stderr);
    assert_eq!(fabric.json(&["invocations"]).unwrap()[0]["attempts"], 1);
    drop(node);
}

#[test]
fn a_restarted_coordinator_lists_what_it_knew_and_calls_wait_for_their_node() {
    let scratch = tempfile::tempdir().unwrap();
    let state = scratch.path().to_str().unwrap();
    let mut fabric = weft_testkit::Fabric::start(WEFT, &["--state-dir", state]);
    let mut node = fabric.node("host", &[Skill::echo("echo")], &Spec::new());
    eventually("the catalog on disk", Duration::from_secs(20), || {
        let kept = std::fs::read(scratch.path().join("catalog")).unwrap_or_default();
        kept.windows(12).any(|bytes| bytes == b"fixture echo").then_some(())
    });
    let before = fabric.json(&["skills"]).unwrap();
    node.kill();
    fabric.kill_coordinator();
    fabric.restart_coordinator();
    // Nobody is there, and still everything is known.
    let after = fabric.json(&["skills", "--eligible"]).unwrap();
    assert_eq!(after["skills"], before["skills"]);
    assert_eq!(after["warming"], true);
    assert_eq!(fabric.json(&["nodes"]).unwrap()[0]["state"], "NODE_STATE_DISCONNECTED");
    let mut call = fabric.spawn(&["call", "echo", "x=1"]);
    let unknown = fabric.weft(&["call", "nothing"]);
    assert!(unknown.stderr.contains("SKILL_NOT_FOUND"), "{unknown:?}");
    let _node = fabric.start_node("host", &Spec::new());
    let finished = call.finish(Duration::from_secs(20));
    assert_eq!((finished.code, finished.stdout.trim()), (0, r#"{"x":"1"}"#), "{finished:?}");
}
