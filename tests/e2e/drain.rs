//! SIGTERM ends a process in order: what runs may finish, nothing new is taken, nothing is lost.

use std::{fs, time::Duration};

use rustix::process::Signal;
use weft_testkit::{Skill, Spec, eventually, process::processes_with};

use crate::{fabric, unique_sleep};

#[test]
fn a_node_that_is_told_to_stop_finishes_what_it_runs() {
    let fabric = fabric();
    let go = fabric.path("go");
    let script = format!("echo up >&2; while [ ! -e {} ]; do sleep 0.02; done; echo '{{}}'", go.display());
    let mut node = fabric.node("host", &[Skill::sh("steady", &script)], &Spec::new());
    let mut call = fabric.spawn(&["call", "steady"]);
    call.wait_for_line("up", Duration::from_secs(20));
    node.signal(Signal::TERM);
    eventually("draining in the fleet", Duration::from_secs(20), || {
        (fabric.json(&["nodes"])?[0]["state"] == "NODE_STATE_DRAINING").then_some(())
    });
    let refused = fabric.weft(&["call", "steady"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("draining"), "{}", refused.stderr);
    fs::write(&go, "").unwrap();
    assert_eq!(call.finish(Duration::from_secs(20)).code, 0);
    assert!(node.wait(Duration::from_secs(20)).success());
}

#[test]
fn a_second_signal_ends_what_runs_and_its_caller_is_told() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let skill = Skill::sh("long", &format!("echo up >&2; exec {sleep}"));
    let mut node = fabric.node("host", &[skill], &Spec::new());
    let mut call = fabric.spawn(&["call", "long"]);
    call.wait_for_line("up", Duration::from_secs(20));
    node.signal(Signal::TERM);
    node.wait_for_line("draining", Duration::from_secs(20));
    node.signal(Signal::TERM);
    let finished = call.finish(Duration::from_secs(20));
    // Nobody at the caller's end interrupted it, so it is a failure there.
    assert_eq!(finished.code, 1, "{finished:?}");
    assert!(finished.stderr.contains("the node is shutting down"), "{}", finished.stderr);
    assert!(node.wait(Duration::from_secs(20)).success());
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
}

#[test]
fn a_coordinator_that_is_told_to_stop_lets_running_invocations_end() {
    let mut fabric = fabric();
    let go = fabric.path("go");
    let script = format!("echo up >&2; while [ ! -e {} ]; do sleep 0.02; done; echo '{{}}'", go.display());
    let _node = fabric.node("host", &[Skill::sh("steady", &script)], &Spec::new());
    let mut call = fabric.spawn(&["call", "steady"]);
    call.wait_for_line("up", Duration::from_secs(20));
    fabric.coordinator().signal(Signal::TERM);
    fabric.coordinator().wait_for_line("draining", Duration::from_secs(20));
    let refused = fabric.weft(&["call", "steady"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    fs::write(&go, "").unwrap();
    assert_eq!(call.finish(Duration::from_secs(20)).code, 0);
    assert!(fabric.coordinator().wait(Duration::from_secs(20)).success());
}

#[test]
fn a_drain_ends_while_hundreds_of_invocations_do() {
    let mut fabric = fabric();
    let go = fabric.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.1; done; echo '{{}}'", go.display());
    let spec = Spec::new().arg("--slots", "64").arg("--queue", "400");
    let _node = fabric.node("host", &[Skill::sh("wait", &script)], &spec);
    crate::runtime().block_on(async {
        let client = fabric.client();
        for _ in 0..300 {
            client.create(&crate::request("wait", "{}")).await.unwrap();
        }
    });
    fabric.coordinator().signal(Signal::TERM);
    fabric.coordinator().wait_for_line("draining", Duration::from_secs(20));
    fs::write(&go, "").unwrap();
    assert!(fabric.coordinator().wait(Duration::from_secs(60)).success());
}
