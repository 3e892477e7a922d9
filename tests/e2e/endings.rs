//! However an invocation ends early, nothing of it is left on the node.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use weft_testkit::{Skill, Spec, eventually, process::processes_with};

use crate::{fabric, unique_sleep};

/// A skill that leaves descendants in every way there is.
fn stubborn(name: &str, sleep: &str) -> Skill {
    Skill::sh(
        name,
        &format!(
            "{sleep}.1 &\nsetsid {sleep}.2 &\n( setsid sh -c '{sleep}.3 & exec {sleep}.4' & )\necho started >&2\nwait"
        ),
    )
}

#[test]
fn ctrl_c_ends_the_whole_tree_on_the_node() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let _node = fabric.node("host", &[stubborn("stubborn", &sleep)], &Spec::new().arg("--stop-grace", "1"));
    let mut call = fabric.spawn(&["call", "stubborn"]);
    call.wait_for_line("started", Duration::from_secs(20));
    eventually("its descendants", Duration::from_secs(10), || {
        (processes_with(&sleep).len() >= 4).then_some(())
    });
    call.signal(Signal::INT);
    let finished = call.finish(Duration::from_secs(20));
    assert_eq!(finished.code, 130, "{finished:?}");
    assert!(finished.stderr.contains("CANCELLED"), "{}", finished.stderr);
    assert_eq!(processes_with(&sleep), Vec::<u32>::new(), "left behind when CANCELLED was said");
}

#[test]
fn a_timed_out_skill_with_setsid_descendants_leaves_nothing_behind() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let skill = stubborn("overdue", &sleep).with("timeout_seconds", json!(1));
    let _node = fabric.node("host", &[skill], &Spec::new().arg("--stop-grace", "1"));
    let finished = fabric.weft(&["call", "overdue"]);
    assert_eq!(finished.code, 124, "{finished:?}");
    assert!(finished.stderr.starts_with("started\n"), "{}", finished.stderr);
    assert_eq!(processes_with(&sleep), Vec::<u32>::new(), "left behind when TIMED_OUT was said");
}

#[test]
fn a_background_process_neither_delays_nor_survives_its_skill() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let skill = Skill::sh("leaver", &format!("{sleep} &\nprintf '{{\"started\":true}}'"));
    let _node = fabric.node("host", &[skill], &Spec::new());
    let finished = fabric.weft(&["call", "leaver"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (0, r#"{"started":true}"#));
    assert!(finished.stderr.contains("a process that it left behind was killed"), "{}", finished.stderr);
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
}

#[test]
fn a_cancel_that_comes_twice_or_too_late_says_how_it_ended() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let skills = [Skill::sh("long", &format!("exec {sleep}")), Skill::echo("quick")];
    let _node = fabric.node("host", &skills, &Spec::new());
    let id = fabric.weft(&["call", "long", "--detach"]).stdout.trim().to_owned();
    eventually("its process", Duration::from_secs(20), || (processes_with(&sleep).len() == 1).then_some(()));
    assert_eq!(fabric.weft(&["cancel", &id]).code, 0);
    assert_eq!(fabric.weft(&["watch", &id]).code, 130);
    assert!(fabric.weft(&["cancel", &id]).stderr.contains("has ended: CANCELLED"));
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());

    let done = fabric.weft(&["call", "quick", "--detach"]).stdout.trim().to_owned();
    assert_eq!(fabric.weft(&["watch", &done]).code, 0);
    assert!(fabric.weft(&["cancel", &done]).stderr.contains("has ended: SUCCEEDED"));
    assert_eq!(fabric.weft(&["cancel", "01a22e1f-f45c-745e-b2bd-8d8c3843e215"]).code, 3);
}

#[test]
fn a_safe_invocation_that_nobody_watches_is_ended_and_a_detached_one_is_not() {
    let fabric = fabric();
    let (watched, detached) = (unique_sleep(), unique_sleep());
    let skills = [
        Skill::sh("watched", &format!("echo up >&2; exec {watched}")),
        Skill::sh("detached", &format!("exec {detached}")),
    ];
    let _node = fabric.node("host", &skills, &Spec::new());
    fabric.weft(&["call", "detached", "--detach"]);
    let mut call = fabric.spawn(&["call", "watched"]);
    call.wait_for_line("up", Duration::from_secs(20));
    call.kill();
    eventually("its end, 15 s after its watcher", Duration::from_secs(40), || {
        processes_with(&watched).is_empty().then_some(())
    });
    assert_eq!(processes_with(&detached).len(), 1);
}
