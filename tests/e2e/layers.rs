//! Where a copy of a skill lies decides whether it counts, on a node that runs while copies come and go.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use weft_testkit::{Daemon, Fabric, Skill, Spec, eventually, skill::put};

use crate::operator::{Operator, SECONDS, refused, wait_for_result, why};

/// The layers from the highest to the lowest, each with a directory of the operator that is one.
const LAYERS: [(&str, &str); 7] = [
    ("workspace", "workspace/skills"),
    ("project", "workspace/.agents/skills"),
    ("personal", "home/.agents/skills"),
    ("managed", "managed"),
    ("bundled", "bundled"),
    ("extra", "extra"),
    ("plugin", "plugin/skills"),
];

/// A node with all layers, and the one skill that lies in each of these.
fn layered(operator: &Operator, in_layers: &[(&str, &str)]) -> (Fabric, Daemon) {
    let fabric = operator
        .coordinator(json!({"agents": {"list": [{"id": "writer", "workspace": "~/w"}, {"id": "reader"}]}}));
    for (layer, directory) in in_layers {
        copy(layer).write(&operator.path(directory));
    }
    fs::create_dir_all(operator.path("extra")).unwrap();
    let manifest = json!({"id": "browser", "skills": ["skills"], "configSchema": {"type": "object"}});
    put(&operator.path("plugin/openclaw.plugin.json"), manifest.to_string());
    let spec = operator.node(json!({
        "skills": {"bundledDir": operator.path("bundled"), "load": {"extraDirs": [operator.path("extra")]}},
        "plugins": {"load": {"paths": [operator.path("plugin")]}},
        "agents": {"list": [{"id": "writer", "workspace": operator.path("workspace")}]},
    }));
    let managed = operator.path("managed");
    fs::create_dir_all(&managed).unwrap();
    let node = fabric.node("host", &[], &spec.arg("--skills", managed));
    (fabric, node)
}

/// A copy that says from where it is.
fn copy(layer: &str) -> Skill {
    Skill::sh("layered", &format!("echo '{{\"from\":\"{layer}\"}}'"))
}

fn from(layer: &str) -> Value {
    json!({ "from": layer })
}

fn call(agent: &str) -> [&str; 3] {
    ["layered", "--agent", agent]
}

/// The directory of the copy in a directory of skills, as a node writes it.
fn lies_in(operator: &Operator, directory: &str) -> PathBuf {
    operator.path(directory).join("layered")
}

#[test]
fn the_highest_copy_wins_and_each_that_goes_gives_way_to_the_next() {
    let operator = Operator::new();
    let (fabric, _node) = layered(&operator, &LAYERS);
    for (at, (layer, directory)) in LAYERS.into_iter().enumerate() {
        wait_for_result(&fabric, &call("writer"), &from(layer));
        // An agent without a workspace sees the highest copy that is for everyone.
        let (common, _) = LAYERS[at.max(2)];
        wait_for_result(&fabric, &call("reader"), &from(common));
        assert_eq!(fabric.call(&["layered"]), from(common));
        tells_of_the_copies_below(&operator, &fabric, at);
        fs::remove_dir_all(lies_in(&operator, directory)).unwrap();
    }
    eventually("its absence", SECONDS, || {
        (fabric.weft(&["why", "layered", "--agent", "writer"]).stderr.contains("SKILL_NOT_FOUND"))
            .then_some(())
    });
}

/// `weft why` names the copy that wins and every copy below it, each with the path of the one that wins over it.
#[track_caller]
fn tells_of_the_copies_below(operator: &Operator, fabric: &Fabric, at: usize) {
    let path = |at: usize| lies_in(operator, LAYERS[at].1).display().to_string();
    let node = why(fabric, &["layered", "--agent", "writer"]).unwrap();
    assert_eq!(node["path"], path(at), "{node}");
    let told = |copy: &Value| {
        (copy["path"].as_str().unwrap().to_owned(), copy["shadowedBy"].as_str().unwrap().to_owned())
    };
    let mut shadowed: Vec<_> = node["shadowed"].as_array().unwrap().iter().map(told).collect();
    shadowed.sort();
    // Among the copies for everyone the personal one wins, whatever an agent has of its own.
    let winner = |copy: usize| if copy > 2 && at < 2 { 2 } else { at };
    let mut expected: Vec<_> = (at + 1..LAYERS.len()).map(|copy| (path(copy), path(winner(copy)))).collect();
    expected.sort();
    assert_eq!(shadowed, expected, "{node}");
    let shown = fabric.weft(&["why", "layered", "--agent", "writer"]).stdout;
    for (copy, winner) in expected {
        assert!(shown.contains(&format!("{copy} is shadowed by {winner}")), "{shown}");
    }
}

#[test]
fn a_copy_that_comes_in_a_higher_layer_takes_over() {
    let operator = Operator::new();
    let (fabric, _node) = layered(&operator, &LAYERS[6..]);
    for (layer, directory) in LAYERS.into_iter().rev() {
        copy(layer).write(&operator.path(directory));
        wait_for_result(&fabric, &call("writer"), &from(layer));
    }
    wait_for_result(&fabric, &call("reader"), &from("personal"));
}

#[test]
fn a_winner_that_cannot_run_hides_the_copies_below_it() {
    let operator = Operator::new();
    let (fabric, _node) = layered(&operator, &LAYERS[3..]);
    wait_for_result(&fabric, &call("writer"), &from("managed"));
    let gates = json!({"requires": {"bins": ["weft_no_such_tool"]}});
    copy("workspace").with("metadata", gates).write(&operator.path("workspace/skills"));
    eventually("the winner that cannot run", SECONDS, || {
        fabric
            .weft(&["call", "layered", "--agent", "writer"])
            .stderr
            .contains("weft_no_such_tool")
            .then_some(())
    });
    refused(&fabric, &call("writer"), 3, "NO_ELIGIBLE_NODE");
    // For that agent only.
    assert_eq!(fabric.call(&call("reader")), from("managed"));
}

/// A node with bundled skills, of which its file says this, and a managed one.
fn bundled(operator: &Operator, allowed: Option<&[&str]>) -> Value {
    let mut skills = json!({"bundledDir": operator.path("bundled")});
    if let Some(allowed) = allowed {
        skills["allowBundled"] = json!(allowed);
    }
    json!({ "skills": skills })
}

#[test]
fn of_the_bundled_skills_those_count_that_the_operator_allows() {
    let operator = Operator::new();
    let fabric = operator.coordinator("{}");
    for name in ["one", "two"] {
        Skill::echo(name).write(&operator.path("bundled"));
    }
    let spec = operator.node(bundled(&operator, Some(&[])));
    let _node = fabric.node("host", &[Skill::echo("managed")], &spec);
    let usable = |keys: &[&str]| {
        eventually(&format!("{keys:?}"), SECONDS, || {
            let listed = fabric.json(&["skills", "--eligible"])?;
            let skills = listed["skills"].as_array()?.iter();
            skills.map(|skill| skill["key"].as_str().unwrap()).eq(keys.iter().copied()).then_some(())
        });
    };
    // None is none; OpenClaw would take it for all.
    usable(&["managed"]);
    let told = fabric.weft(&["why", "one"]);
    assert!(told.code == 3 && told.stdout.contains("not in skills.allowBundled of this node"), "{told:?}");
    operator.say_to_node(bundled(&operator, Some(&["two"])));
    usable(&["managed", "two"]);
    operator.say_to_node(bundled(&operator, None));
    usable(&["managed", "one", "two"]);
}

#[test]
fn a_plugin_counts_until_it_is_switched_off_or_leaves_its_own_directory() {
    let operator = Operator::new();
    let (fabric, _node) = layered(&operator, &LAYERS[6..]);
    wait_for_result(&fabric, &call("reader"), &from("plugin"));
    let says = |enabled: bool| {
        json!({
            "plugins": {"load": {"paths": [operator.path("plugin")]}, "entries": {"browser": {"enabled": enabled}}},
        })
    };
    operator.say_to_node(says(false));
    gone(&fabric);
    operator.say_to_node(says(true));
    wait_for_result(&fabric, &call("reader"), &from("plugin"));
    // What it reaches for outside is not loaded.
    let outside = operator.path("outside");
    copy("outside").write(&outside);
    replace_by_link(&operator.path("plugin/skills"), &outside);
    gone(&fabric);
    eventually("the reason", SECONDS, || {
        fabric.diagnostics().iter().any(|one| one.contains("leaves the plugin")).then_some(())
    });
}

fn gone(fabric: &Fabric) {
    eventually("its absence", SECONDS, || {
        fabric.weft(&["call", "layered"]).stderr.contains("SKILL_NOT_FOUND").then_some(())
    });
}

fn replace_by_link(directory: &Path, target: &Path) {
    fs::remove_dir_all(directory).unwrap();
    std::os::unix::fs::symlink(target, directory).unwrap();
}

#[test]
fn nobodys_home_is_read_where_the_operator_says_so() {
    let operator = Operator::new();
    let fabric = operator.coordinator("{}");
    copy("personal").write(&operator.path("home/.agents/skills"));
    let spec: Spec = operator.node(json!({"skills": {"personal": false}}));
    let _node = fabric.node("host", &[Skill::echo("other")], &spec);
    refused(&fabric, &["layered"], 3, "SKILL_NOT_FOUND");
    operator.say_to_node("{}");
    wait_for_result(&fabric, &["layered"], &from("personal"));
}
