//! Two nodes with one identity: the newer session wins, the older stops taking work, and somebody is told.

use std::{fs, time::Duration};

use weft_testkit::{Skill, Spec, eventually};

use crate::fabric;

#[test]
fn a_cloned_identity_does_not_fight_and_raises_an_alarm() {
    let fabric = fabric();
    let original = fabric.node("original", &[Skill::echo("echo")], &Spec::new());
    // A host image that was copied after the node had run.
    let clone_state = fabric.path("clone-state");
    fs::create_dir_all(&clone_state).unwrap();
    fs::copy(fabric.path("original-state").join("node-id"), clone_state.join("node-id")).unwrap();
    let clone = fabric.node("clone", &[Skill::echo("echo")], &Spec::new());

    original.wait_for_line("takes no more work", Duration::from_secs(20));
    let nodes = eventually("one node", Duration::from_secs(10), || {
        fabric.json(&["nodes"]).filter(|nodes| nodes.as_array().is_some_and(|nodes| nodes.len() == 1))
    });
    assert_eq!(nodes[0]["name"], "clone");
    assert!(nodes[0]["alarms"][0].as_str().unwrap().contains("second node"), "{nodes}");
    assert!(fabric.weft(&["nodes"]).stderr.contains("second node"));
    assert_eq!(fabric.weft(&["call", "echo"]).code, 0);
    assert!(!clone.stderr().contains("takes no more work"));
}

#[test]
fn one_state_directory_serves_one_node() {
    let fabric = fabric();
    let _first = fabric.node("host", &[], &Spec::new());
    let second = fabric.start_node("host", &Spec::new()).finish(Duration::from_secs(20));
    assert_ne!(second.code, 0);
    assert!(second.stderr.contains("--state-dir"), "{}", second.stderr);
}
