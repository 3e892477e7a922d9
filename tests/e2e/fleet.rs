//! Three hosts with different skills, labels and PATHs are one catalog, and every call finds its node.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::json;
use weft_testkit::{Daemon, Fabric, Skill, Spec};

use crate::fabric;

/// A PATH with the usual programs, and one more when a directory is given.
fn path_with(extra: Option<&Path>) -> String {
    let usual = std::env::var("PATH").unwrap();
    extra.map_or(usual.clone(), |dir| format!("{}:{usual}", dir.display()))
}

fn tool(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let path = dir.join("weft_e2e_tool");
    fs::write(&path, "#!/bin/sh\necho '{\"tool\":true}'\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Skills: `common` everywhere, `needs_tool` everywhere but with the tool on `one` only, `for_mac` for another
/// system, `only_two` on `two`.
fn three_nodes(fabric: &Fabric) -> [Daemon; 3] {
    let whoami = |name: &str| {
        Skill::sh(name, r#"printf '{"node":"%s"}' "$WEFT_NODE""#)
            .with("env_allow", json!(["PATH", "WEFT_NODE"]))
    };
    let common = whoami("common");
    let needs_tool = whoami("needs_tool").with("metadata", json!({"requires": {"bins": ["weft_e2e_tool"]}}));
    let for_mac = whoami("for_mac").with("metadata", json!({"os": ["darwin"]}));
    let only_two = whoami("only_two");
    let bin = fabric.path("bin");
    tool(&bin);
    let all = [common, needs_tool, for_mac];
    let spec =
        |zone: &str, path: String| Spec::new().arg("--label", format!("zone={zone}")).env("PATH", path);
    [
        fabric.node("one", &all, &spec("a", path_with(Some(&bin)))),
        fabric.node("two", &[all.as_slice(), &[only_two]].concat(), &spec("b", path_with(None))),
        fabric.node("three", &all, &spec("b", path_with(None))),
    ]
}

#[test]
fn three_nodes_make_one_catalog_with_verdicts() {
    let fabric = fabric();
    let _nodes = three_nodes(&fabric);
    let listed = fabric.json(&["skills"]).unwrap();
    let counts: Vec<_> = listed["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| json!([skill["key"], skill["eligibleNodes"], skill["nodes"]]))
        .collect();
    assert_eq!(
        json!(counts),
        json!([["common", 3, 3], ["for_mac", 0, 3], ["needs_tool", 1, 3], ["only_two", 1, 1]])
    );
    let eligible = fabric.json(&["skills", "--eligible"]).unwrap();
    assert_eq!(eligible["skills"].as_array().unwrap().len(), 3);

    let full = fabric.json(&["skills", "needs_tool"]).unwrap();
    let providers = full["variants"][0]["providers"].as_array().unwrap();
    assert_eq!(providers.len(), 3);
    for provider in providers {
        let verdict = &provider["verdicts"][0];
        assert_eq!(verdict["gate"], "GATE_BIN");
        assert_eq!(verdict["subject"], "weft_e2e_tool");
        assert_eq!(verdict["passed"], provider["nodeName"] == "one");
    }
}

#[test]
fn a_call_goes_where_the_skill_can_run_and_where_the_caller_says() {
    let fabric = fabric();
    let _nodes = three_nodes(&fabric);
    for _ in 0..5 {
        assert_eq!(fabric.call(&["needs-tool"])["node"], "one");
    }
    assert_eq!(fabric.call(&["only_two"])["node"], "two");
    assert_eq!(fabric.call(&["common", "--node", "three"])["node"], "three");
    assert_eq!(fabric.call(&["common", "-l", "zone=a"])["node"], "one");
    assert_ne!(fabric.call(&["common", "-l", "zone!=a"])["node"], "one");

    let refused = fabric.weft(&["call", "needs_tool", "--node", "two"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("NO_ELIGIBLE_NODE"), "{}", refused.stderr);
    assert!(refused.stderr.contains("weft_e2e_tool"), "{}", refused.stderr);
    // By the name that people gave the node.
    assert!(refused.stderr.contains("\nweft:   two: requires.bins: "), "{}", refused.stderr);
    assert_eq!(fabric.weft(&["call", "common", "--node", "nobody"]).code, 3);
    assert_eq!(fabric.weft(&["call", "common", "-l", "zone=c"]).code, 3);
}

#[test]
fn why_names_on_each_node_every_gate_that_failed() {
    let fabric = fabric();
    let _nodes = three_nodes(&fabric);
    let why = fabric.weft(&["why", "needs_tool"]);
    assert_eq!(why.code, 0);
    let sections: Vec<_> = why.stdout.split("\none: ").collect();
    assert!(sections[1].starts_with("yes"), "{}", why.stdout);
    assert_eq!(why.stdout.matches("FAIL requires.bins weft_e2e_tool").count(), 2, "{}", why.stdout);
    assert_eq!(why.stdout.matches("pass requires.bins weft_e2e_tool").count(), 1, "{}", why.stdout);

    let mac = fabric.weft(&["why", "for_mac"]);
    assert_eq!(mac.code, 3);
    assert_eq!(mac.stdout.matches("FAIL os").count(), 3, "{}", mac.stdout);

    let absent = fabric.weft(&["why", "only_two"]);
    assert_eq!(absent.stdout.matches("absent").count(), 2, "{}", absent.stdout);
    assert_eq!(fabric.weft(&["why", "nothing"]).code, 3);
}
