//! A line on stderr reaches the caller when it is written, not when the skill ends.

use std::{fs, time::Duration};

use serde_json::json;
use weft_testkit::{Skill, Spec, eventually};

use crate::fabric;

#[test]
fn each_line_arrives_while_the_skill_still_runs() {
    let fabric = fabric();
    let go = fabric.path("go");
    // The next line is written only after the test has seen the one before.
    let script = format!(
        "for n in 1 2 3; do echo line $n >&2; while [ ! -e {0}$n ]; do sleep 0.02; done; done; echo '{{}}'",
        go.display()
    );
    let _node = fabric.node("host", &[Skill::sh("slow", &script)], &Spec::new());
    let mut call = fabric.spawn(&["call", "slow"]);
    for n in 1..=3 {
        call.wait_for_line(&format!("line {n}"), Duration::from_secs(20));
        assert!(call.stdout().is_empty());
        fs::write(format!("{}{n}", go.display()), "").unwrap();
    }
    let finished = call.finish(Duration::from_secs(20));
    assert_eq!((finished.code, finished.stdout.trim()), (0, "{}"));
    assert_eq!(finished.stderr, "line 1\nline 2\nline 3\n");
}

#[test]
fn many_lines_arrive_complete_and_in_order() {
    let fabric = fabric();
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i >&2; done; echo '{}'";
    let _node = fabric.node("host", &[Skill::sh("chatty", script)], &Spec::new());
    let finished = fabric.weft(&["call", "chatty"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr.lines().last().unwrap_or_default());
    let expected: String = (1..=20000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(finished.stderr, expected);
}

#[test]
fn bytes_that_are_no_text_arrive_as_they_are() {
    let fabric = fabric();
    let script =
        r"printf '\342' >&2; sleep 0.2; printf '\211' >&2; sleep 0.2; printf '\244\n' >&2; printf '{}'";
    let _node = fabric.node("host", &[Skill::sh("split", script)], &Spec::new());
    assert_eq!(fabric.weft(&["call", "split"]).stderr, "≤\n");
}

#[test]
fn a_watcher_that_comes_later_sees_the_same_events() {
    let fabric = fabric();
    let go = fabric.path("go");
    let script = format!(
        "echo early >&2; while [ ! -e {} ]; do sleep 0.02; done; echo late >&2; echo '{{\"n\":1}}'",
        go.display()
    );
    let _node = fabric.node("host", &[Skill::sh("told", &script)], &Spec::new());
    let id = fabric.weft(&["call", "told", "--detach"]).stdout.trim().to_owned();
    let mut first = fabric.spawn(&["watch", &id]);
    first.wait_for_line("early", Duration::from_secs(20));
    fs::write(&go, "").unwrap();
    let first = first.finish(Duration::from_secs(20));
    let second = fabric.weft(&["watch", &id]);
    for seen in [&first, &second] {
        assert_eq!((seen.code, seen.stderr.as_str()), (0, "early\nlate\n"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&seen.stdout).unwrap(), json!({"n": 1}));
    }
    let listed = eventually("the end in the list", Duration::from_secs(5), || fabric.json(&["invocations"]));
    assert_eq!(listed[0]["outcome"], "OUTCOME_SUCCEEDED");
}
