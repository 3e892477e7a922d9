//! What a skill asks of a node's configuration, and what its operator says of that.

use serde_json::{Value, json};
use weft_testkit::{Fabric, Skill, eventually};

use crate::operator::{Operator, SECONDS, refused};

/// A fleet of one node with this skill and this file.
fn one(operator: &Operator, skill: Skill, file: &Value) -> (Fabric, weft_testkit::Daemon) {
    let fabric = operator.coordinator("{}");
    let node = fabric.node("host", &[skill], &operator.node(file));
    (fabric, node)
}

/// Waits until `weft why` says this, and asserts with which exit code.
#[track_caller]
fn wait_for_why(fabric: &Fabric, skill: &str, code: i32, text: &str) {
    let told = eventually(&format!("{text:?} from why"), SECONDS, || {
        Some(fabric.weft(&["why", skill])).filter(|told| told.stdout.contains(text))
    });
    assert_eq!(told.code, code, "{told:?}");
}

#[test]
fn a_path_into_the_configuration_must_be_there_and_true_now() {
    let operator = Operator::new();
    let gates = json!({"requires": {"config": ["browser.enabled"]}});
    let (fabric, _node) = one(&operator, Skill::echo("browse").with("metadata", gates), &json!({}));
    wait_for_why(&fabric, "browse", 3, "FAIL requires.config browser.enabled: not in the configuration");
    refused(&fabric, &["browse"], 3, "browser.enabled");
    operator.say_to_node(json!({"config": {"browser": {"enabled": true}}}));
    wait_for_why(&fabric, "browse", 0, "pass requires.config browser.enabled");
    assert_eq!(fabric.call(&["browse"]), json!({}));
    operator.say_to_node(json!({"config": {"browser": {"enabled": false}}}));
    wait_for_why(&fabric, "browse", 3, "FAIL requires.config browser.enabled: switched off");
}

#[test]
fn always_waives_what_a_skill_requires_only_where_the_operator_allows_that() {
    let operator = Operator::new();
    let gates = json!({"always": true, "requires": {"bins": ["weft_no_such_tool"]}});
    let (fabric, _node) = one(&operator, Skill::echo("eager").with("metadata", gates), &json!({}));
    wait_for_why(&fabric, "eager", 3, "FAIL requires.bins weft_no_such_tool");
    operator.say_to_node(json!({"skills": {"allowAlways": true}}));
    wait_for_why(&fabric, "eager", 0, "the operator of this node allows that");
    assert_eq!(fabric.call(&["eager"]), json!({}));
    // Another system it is not made for stays another system.
    let gates = json!({"always": true, "os": ["darwin"], "requires": {"bins": ["weft_no_such_tool"]}});
    Skill::echo("eager").with("metadata", gates).write(&fabric.skills_of("host"));
    wait_for_why(&fabric, "eager", 3, "FAIL os");
}
