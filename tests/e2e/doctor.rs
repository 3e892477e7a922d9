//! `weft doctor` says what a node would find on this host, and what to do where that is not enough.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Value, json};
use weft_testkit::{Daemon, Fabric, Finished, Skill, Spec, fabric::SOON, fabric::isolate};

use crate::{WEFT, fabric};

/// The checks of a doctor that looks at the same coordinator, and its exit code.
fn doctor(fabric: &Fabric, args: &[&str]) -> (Vec<Value>, i32) {
    let mut all = vec!["doctor", "-o", "json"];
    all.extend(args);
    let finished = fabric.weft(&all);
    (serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{finished:?}")), finished.code)
}

fn find<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{name}: {checks:?}"))
}

fn found<'a>(checks: &'a [Value], name: &str) -> &'a str {
    find(checks, name)["found"].as_str().unwrap()
}

#[test]
fn doctor_names_the_containment_that_a_node_uses() {
    let fabric = fabric();
    let node = fabric.node("host", &[Skill::echo("echo")], &Spec::new().env("WEFT_LOG", "debug"));
    let built = node.wait_for_line("executor built", SOON);
    let (checks, _) = doctor(&fabric, &[]);
    let containment = find(&checks, "containment");
    let said = found(&checks, "containment");
    match built.contains("containment cgroup") {
        true => {
            assert!(said.starts_with("cgroup") && containment["verdict"] == "ok", "{built}: {containment}")
        }
        false => {
            assert!(said.starts_with("tag") && said.contains("no cgroup: "), "{built}: {containment}");
            assert!(containment["advice"].as_str().unwrap().contains("Delegate"), "{containment}");
        }
    }
    for check in ["kernel", "cgroup", "start", "sub-reaper", "inotify"] {
        assert_ne!(find(&checks, check)["verdict"], "fail", "{checks:?}");
    }
}

#[test]
fn all_is_well_beside_a_coordinator_and_says_so() {
    let mut fabric = fabric();
    let dir = fabric.skills_of("host");
    Skill::echo("echo").write(&dir);
    let state = fabric.path("state");
    let args = ["--skills", dir.to_str().unwrap(), "--state-dir", state.to_str().unwrap()];
    let (checks, code) = doctor(&fabric, &args);
    assert_eq!(code, 0, "{checks:?}");
    for check in ["coordinator", "link", "clock", "state", "skills"] {
        assert_eq!(find(&checks, check)["verdict"], "ok", "{checks:?}");
    }
    assert!(found(&checks, "skills").starts_with("1 loaded"), "{checks:?}");
    assert!(!state.exists(), "a look changes nothing");
    assert_eq!(fabric.json(&["nodes"]).unwrap(), json!([]), "and is no node");
    fabric.kill_coordinator();
    let (checks, code) = doctor(&fabric, &args);
    assert_eq!((code, &find(&checks, "coordinator")["verdict"]), (1, &json!("fail")), "{checks:?}");
    let shown = fabric.weft(&["doctor"]).stdout;
    assert!(shown.contains("fail  coordinator") && shown.contains("→ start it"), "{shown}");
}

#[test]
fn directories_that_others_can_write_and_skills_that_do_not_load_are_warnings() {
    let fabric = fabric();
    let dir = fabric.skills_of("host");
    let open = Skill::echo("open").write(&dir);
    fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
    Skill::echo("broken").with("class", json!("harmless")).write(&dir);
    let needs = json!({"requires": {"bins": ["no_such_program"]}});
    Skill::echo("needy").with("metadata", needs).write(&dir);
    let missing = fabric.path("missing");
    let list = format!("{}:{}:relative", dir.display(), missing.display());
    let environment = |command: &mut std::process::Command| {
        isolate(command);
        command.env("WEFT_COORDINATOR", fabric.address()).env("WEFT_SKILLS_DIRS", &list);
    };
    let finished: Finished =
        Daemon::start(Path::new(WEFT), &["doctor", "-o", "json"], environment).finish(SOON);
    assert_eq!(finished.code, 0, "warnings are no failure: {finished:?}");
    let checks: Vec<Value> = serde_json::from_str(&finished.stdout).unwrap();
    let sources: Vec<_> = checks.iter().filter(|check| check["check"] == "source").collect();
    assert_eq!(sources.len(), 3, "{finished:?}");
    for (source, word) in
        sources.iter().zip(["can be written by everybody", "is not a directory", "not absolute"])
    {
        assert_eq!(source["verdict"], "warn");
        assert!(source["found"].as_str().unwrap().contains(word), "{word}: {source}");
    }
    assert_eq!(found(&checks, "skills"), "2 loaded, 1 of them cannot run here, 2 errors");
    assert!(find(&checks, "skills")["advice"].as_str().unwrap().contains("skill lint"), "{checks:?}");
}
