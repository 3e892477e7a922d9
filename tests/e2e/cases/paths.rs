//! Links and names: what is listed is what can be called, and it is always the same copy.

use std::{fs, os::unix::fs::symlink};

use serde_json::json;
use weft_testkit::{Skill, eventually};

use super::{SOON, mk, plain, wait_for_diagnostic};
use crate::fabric;

fn from(name: &str, place: &str) -> Skill {
    mk(name, &format!("#!/bin/sh\necho '{{\"from\":\"{place}\"}}'\n"))
}

#[test]
fn s07_links_inside_a_root_are_one_skill_and_links_out_of_it_none() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    let outside = fabric.path("outside");
    from("in_root", "inside").in_directory("_store/in_root").write(&root);
    from("outside", "outside").write(fabric.path("").as_path());
    symlink("_store/in_root", root.join("in_link")).unwrap();
    symlink(&outside, root.join("out_link")).unwrap();
    symlink(".", root.join("loop")).unwrap();
    symlink("missing", root.join("dangling")).unwrap();
    let _node = fabric.node("host", &[], &plain());
    fabric.wait_for_skill("in_root", SOON, |_| true);

    let listed = fabric.json(&["skills"]).unwrap();
    let keys: Vec<_> = listed["skills"].as_array().unwrap().iter().map(|skill| &skill["key"]).collect();
    assert_eq!(json!(keys), json!(["in_root"]));
    let full = fabric.json(&["skills", "in_root"]).unwrap();
    assert_eq!(full["variants"][0]["providers"].as_array().unwrap().len(), 1);
    assert_eq!(fabric.call(&["in_root"]), json!({"from": "inside"}));
    for key in ["outside", "in_link", "out_link"] {
        let refused = fabric.weft(&["call", key]);
        assert_eq!(refused.code, 3, "{key}: {refused:?}");
    }
    wait_for_diagnostic(&fabric, &["out_link", "leaves the root"]);
    let diagnostics = fabric.diagnostics();
    for link in ["/loop:", "/dangling:", "/out_link:"] {
        let said = diagnostics.iter().filter(|line| line.contains(link)).count();
        assert_eq!(said, 1, "{link}: {diagnostics:#?}");
    }
}

#[test]
fn s08_the_winner_of_a_name_is_the_same_on_every_start() {
    let fabric = fabric();
    let first = fabric.skills_of("host");
    let second = fabric.path("second-root");
    let reviewed = from("dup", "R1").write(&first);
    from("dup", "R2").write(&second);
    from("twin", "b_dir").in_directory("b_dir").write(&first);
    from("twin", "a_dir").in_directory("a_dir").write(&first);
    let spec = plain().arg("--skills", &second);
    let mut node = fabric.node("host", &[], &spec);
    fabric.wait_for_skill("dup", SOON, |_| true);
    let epoch = || fabric.json(&["nodes"])?[0]["sessionEpoch"].as_str().map(str::to_owned);
    let mut before = epoch();
    for start in 0..=20 {
        assert_eq!(fabric.call(&["dup"]), json!({"from": "R1"}), "start {start}");
        assert_eq!(fabric.call(&["twin"]), json!({"from": "a_dir"}), "start {start}");
        if start < 20 {
            node.kill();
            node = fabric.start_node("host", &spec);
            before = eventually("the next life of the node", SOON, || {
                let now = epoch().filter(|now| before.as_ref() != Some(now))?;
                let node = &fabric.json(&["nodes"])?[0];
                (node["state"] == "NODE_STATE_CONNECTED" && node["skills"] == 2).then_some(Some(now))
            });
        }
    }
    let winner = reviewed.to_str().unwrap();
    let loser = second.join("dup");
    wait_for_diagnostic(&fabric, &[loser.to_str().unwrap(), "shadowed by", winner]);
    let why = fabric.weft(&["why", "dup"]).stdout;
    assert!(why.contains(&format!("{} is shadowed by {winner}", loser.display())), "{why}");
    assert!(node.stderr().contains("already registered, skipping"), "{}", node.stderr());

    fs::remove_dir_all(reviewed).unwrap();
    eventually("the copy of the second root", SOON, || {
        (fabric.weft(&["call", "dup"]).stdout.trim() == r#"{"from":"R2"}"#).then_some(())
    });
}
