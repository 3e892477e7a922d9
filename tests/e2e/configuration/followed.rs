//! A file is followed while a daemon runs: a change holds without a restart, a mistake changes nothing and is told.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use weft_testkit::{Daemon, Fabric, Skill, eventually, skill::put};

use crate::operator::{
    Operator, SECONDS, refused, seen_by, wait_for_result, wait_for_skills, wait_until_seen, with_file,
};

const READ: &str = "configuration read anew";

fn list(skills: &[&str]) -> Value {
    json!({"agents": {"list": [{"id": "a", "skills": skills}]}})
}

/// How often a daemon has told something.
fn told(daemon: &Daemon, text: &str) -> usize {
    daemon.stderr().matches(text).count()
}

/// What the coordinator shows as wrong with the only node's configuration.
fn complaint(fabric: &Fabric) -> Option<Value> {
    let nodes = fabric.json(&["nodes"])?;
    nodes[0]["diagnostics"].as_array()?.iter().find(|one| one["rule"] == "config").cloned()
}

#[test]
fn an_agents_list_that_is_edited_holds_without_a_restart_and_a_mistake_changes_nothing() {
    let operator = Operator::new();
    let mut fabric = operator.coordinator(list(&["one"]));
    let _node = fabric.node("host", &["one", "two"].map(Skill::echo), &operator.node("{}"));
    wait_for_skills(&fabric, 2);
    assert_eq!(seen_by(&fabric, "a"), ["one"]);
    operator.say(list(&["two"]));
    wait_until_seen(&fabric, "a", &["two"]);
    refused(&fabric, &["one", "--agent", "a"], 3, "SKILL_NOT_FOUND");
    assert_eq!(fabric.call(&["two", "--agent", "a"]), json!({}));

    operator.say("agents: { list: [ { id: a, skils: [one, two] } ] }");
    let refusal = fabric.coordinator().wait_for_line("configuration is refused", SECONDS);
    assert!(refusal.contains("did you mean skills?"), "{refusal}");
    assert_eq!(seen_by(&fabric, "a"), ["two"]);

    operator.say(list(&["one", "two"]));
    wait_until_seen(&fabric, "a", &["one", "two"]);
    assert_eq!(told(fabric.coordinator(), "coordinator ready"), 1);
    assert_eq!(told(fabric.coordinator(), "node connected"), 1);
}

#[test]
fn a_nodes_file_that_is_edited_holds_without_a_restart_and_a_mistake_is_shown_until_mended() {
    let operator = Operator::new();
    let mut fabric = operator.coordinator("{}");
    let _node = fabric.node("host", &["plain", "switched"].map(Skill::echo), &operator.node("{}"));
    wait_for_skills(&fabric, 2);
    Skill::echo("further").write(&operator.path("extra"));
    operator.say_to_node(json!({
        "skills": {"entries": {"switched": {"enabled": false}}, "load": {"extraDirs": [operator.path("extra")]}},
    }));
    wait_for_result(&fabric, &["further"], &json!({}));
    refused(&fabric, &["switched"], 3, "switched off in skills.entries.switched");

    let file = operator.say_to_node("skills:\n  entries:\n    switched:\n      enabled: maybe\n");
    let shown = eventually("the mistake at the coordinator", SECONDS, || complaint(&fabric));
    assert_eq!(shown["path"], file.display().to_string());
    let message = shown["message"].as_str().unwrap();
    assert!(message.contains(":4: skills.entries.switched.enabled: must be true or false"), "{message}");
    // What held holds on.
    assert_eq!(fabric.call(&["further"]), json!({}));
    refused(&fabric, &["switched"], 3, "switched off in skills.entries.switched");
    assert!(fabric.diagnostics().iter().any(|one| one.contains("not in force")));

    operator.say_to_node("{}");
    wait_for_result(&fabric, &["switched"], &json!({}));
    eventually("the mistake gone", SECONDS, || complaint(&fabric).is_none().then_some(()));
    eventually("what is not named any more gone", SECONDS, || {
        fabric.skill("further").is_none().then_some(())
    });
    assert_eq!(told(fabric.coordinator(), "node connected"), 1);
}

#[test]
fn a_file_that_is_gone_changes_nothing_and_is_told() {
    let operator = Operator::new();
    let mut fabric = operator.coordinator(list(&["one"]));
    let node = fabric.node("host", &["one", "two"].map(Skill::echo), &operator.node("{}"));
    wait_for_skills(&fabric, 2);
    for file in ["coordinator.yaml", "node.yaml"] {
        fs::remove_file(operator.path(file)).unwrap();
    }
    for daemon in [fabric.coordinator(), &node] {
        daemon.wait_for_line("configuration is gone; the last one stays in force", SECONDS);
    }
    eventually("the complaint of the node", SECONDS, || complaint(&fabric));
    assert_eq!(seen_by(&fabric, "a"), ["one"]);
    operator.say_to_node("{}");
    eventually("the mistake gone", SECONDS, || complaint(&fabric).is_none().then_some(()));
}

#[test]
fn sighup_has_a_file_read_at_once() {
    // More edits than the periodic look would find in the time allowed: it takes more than a second for each.
    const EDITS: usize = 24;
    let operator = Operator::new();
    let mut fabric = operator.coordinator(list(&["start"]));
    let node = fabric.node("host", &[Skill::echo("one")], &operator.node("{}"));
    for (daemon, file) in [(fabric.coordinator() as &Daemon, "coordinator.yaml"), (&node, "node.yaml")] {
        let begun = Instant::now();
        for edit in 1..=EDITS {
            operator.write(file, list(&[&format!("skill_{edit}")]));
            daemon.signal(Signal::HUP);
            eventually("the file read", SECONDS, || (told(daemon, READ) == edit).then_some(()));
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(EDITS as u64), "{file}: {EDITS} edits took {took:?}");
    }
    operator.say(list(&["one"]));
    fabric.coordinator().signal(Signal::HUP);
    wait_until_seen(&fabric, "a", &["one"]);
}

#[test]
fn sighup_has_skills_read_where_nothing_watches_them() {
    let operator = Operator::new();
    let fabric = operator.coordinator("{}");
    let spec = operator.node(json!({"skills": {"load": {"watch": false}}}));
    let node = fabric.node("host", &[Skill::echo("first")], &spec);
    Skill::echo("second").write(&fabric.skills_of("host"));
    node.signal(Signal::HUP);
    wait_for_result(&fabric, &["second"], &json!({}));
}

#[test]
fn what_else_stands_in_a_file_is_said_to_need_a_restart() {
    let operator = Operator::new();
    let mut fabric = operator.coordinator("{}");
    let node = fabric.node("host", &[Skill::echo("one")], &operator.node("{}"));
    operator.say_to_node("slots: 3");
    node.wait_for_line("needs a restart", SECONDS);
    operator.say("name: other");
    fabric.coordinator().wait_for_line("needs a restart", SECONDS);
    assert_eq!(fabric.call(&["one"]), json!({}));
}

/// Gives a directory another content at once, as Kubernetes does for a ConfigMap.
fn swap(directory: &Path, version: &str, file: &str, text: &Value) {
    put(&directory.join(version).join(file), text.to_string());
    symlink(version, directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
}

#[test]
fn a_config_map_whose_links_are_swapped_is_followed() {
    let operator = Operator::new();
    let (at_coordinator, at_node) = (operator.path("coordinator"), operator.path("node"));
    for (directory, file, text) in
        [(&at_coordinator, "c.yaml", list(&["one"])), (&at_node, "n.yaml", json!({}))]
    {
        swap(directory, "..2026_01", file, &text);
        symlink(Path::new("..data").join(file), directory.join(file)).unwrap();
    }
    let fabric = Fabric::start(crate::WEFT, &["--config", at_coordinator.join("c.yaml").to_str().unwrap()]);
    let _node = fabric.node("host", &["one", "two"].map(Skill::echo), &with_file(&at_node.join("n.yaml")));
    wait_for_skills(&fabric, 2);
    assert_eq!(seen_by(&fabric, "a"), ["one"]);

    swap(&at_coordinator, "..2026_02", "c.yaml", &list(&["two"]));
    fs::remove_dir_all(at_coordinator.join("..2026_01")).unwrap();
    wait_until_seen(&fabric, "a", &["two"]);
    swap(&at_node, "..2026_02", "n.yaml", &json!({"skills": {"entries": {"two": {"enabled": false}}}}));
    eventually("the node's second version", SECONDS, || {
        fabric.weft(&["call", "two"]).stderr.contains("switched off").then_some(())
    });
}
