//! What an agent sees and may run is what the operator's files say, whoever asks and by whichever way.

mod unseen;

use std::{fs, path::Path};

use serde_json::json;
use weft_testkit::{Daemon, Fabric, Skill, Spec, eventually, skill::put};

use crate::operator::{
    Operator, SECONDS, refused, seen_by, wait_for_result, wait_for_skills, wait_until_seen, why,
};

/// The practical configuration of the seed, as it stands there.
const PRACTICAL: &str = r#"{
  "agents": {
    "defaults": {
      "skills": ["weather", "search", "summarizer"]
    },
    "list": [
      {
        "id": "main",
        "workspace": "~/.openclaw/workspace-main"
      },
      {
        "id": "coding",
        "workspace": "~/.openclaw/workspace-coding",
        "skills": ["github", "coding-agent", "summarizer"]
      },
      {
        "id": "family",
        "workspace": "~/.openclaw/workspace-family",
        "skills": ["weather"],
        "sandbox": { "mode": "all" }
      }
    ]
  }
}"#;

/// Its skills, and one that nobody lists.
const SKILLS: [&str; 6] = ["coding_agent", "github", "healthcheck", "search", "summarizer", "weather"];

/// One file, verbatim, for the coordinator and for the node.
fn practical(operator: &Operator) -> (Fabric, Daemon) {
    let fabric = operator.coordinator(PRACTICAL);
    let node = fabric.node("host", &SKILLS.map(Skill::echo), &operator.node(PRACTICAL));
    wait_for_skills(&fabric, SKILLS.len());
    (fabric, node)
}

/// Instructions with this text, in a directory of skills.
fn instructions(root: &Path, name: &str, text: &str) {
    let front = format!("---\nname: {name}\ndescription: how to do {name}\n---\n\n{text}\n");
    put(&root.join(name).join("SKILL.md"), front);
}

#[test]
fn the_practical_configuration_gives_each_agent_exactly_its_skills() {
    let operator = Operator::new();
    let (fabric, _node) = practical(&operator);
    for (agent, keys) in [
        ("main", &["search", "summarizer", "weather"][..]),
        ("coding", &["coding_agent", "github", "summarizer"]),
        ("family", &["weather"]),
        // Nobody speaks of it, so the defaults do.
        ("guest", &["search", "summarizer", "weather"]),
    ] {
        assert_eq!(seen_by(&fabric, agent), keys, "{agent}");
        for skill in SKILLS {
            match (keys.contains(&skill), agent) {
                (true, "family") => {
                    refused(&fabric, &[skill, "--agent", agent], 3, "NO_ELIGIBLE_NODE");
                }
                (true, _) => {
                    assert_eq!(fabric.call(&[skill, "--agent", agent, "a=b"]), json!({"a": "b"}));
                }
                (false, _) => {
                    refused(&fabric, &[skill, "--agent", agent], 3, "SKILL_NOT_FOUND");
                }
            }
        }
    }
    // As the lists write it.
    assert_eq!(fabric.call(&["coding-agent", "--agent", "coding", "a=b"]), json!({"a": "b"}));
}

#[test]
fn an_agent_in_a_sandbox_reads_what_no_node_can_run_for_it() {
    let operator = Operator::new();
    let (fabric, _node) = practical(&operator);
    let explained = fabric.weft(&["why", "--agent", "family", "weather"]);
    assert_eq!(explained.code, 3, "{explained:?}");
    assert!(explained.stdout.contains("sandbox"), "{}", explained.stdout);
    let listed = || fabric.json(&["skills", "--agent", "family"]).unwrap()["skills"][0].clone();
    assert_eq!(listed()["eligibleNodes"], 0);
    let usable = fabric.json(&["skills", "--agent", "family", "--eligible"]).unwrap();
    assert_eq!(usable["skills"], json!([]), "what it cannot run is not usable");
    let read = fabric.weft(&["skills", "weather", "--file", "SKILL.md", "--agent", "family"]);
    assert!(read.stdout.contains("fixture weather"), "{read:?}");

    // Its own copy, in the workspace that both files name, has nothing to run.
    let workspace = operator.path("home/.openclaw/workspace-family/skills");
    instructions(&workspace, "weather", "Look out of the window.");
    eventually("its own copy", SECONDS, || {
        (listed()["definition"]["kind"] == "SKILL_KIND_INSTRUCTIONS").then_some(())
    });
    let read = fabric.weft(&["skills", "weather", "--file", "SKILL.md", "--agent", "family"]);
    assert!(read.stdout.contains("Look out of the window."), "{read:?}");
    let usable = fabric.json(&["skills", "--agent", "family", "--eligible"]).unwrap();
    assert_eq!(usable["skills"][0]["key"], "weather");
    refused(&fabric, &["weather", "--agent", "family"], 3, "SKILL_NOT_EXECUTABLE");
    // Nobody else's.
    assert_eq!(fabric.call(&["weather", "--agent", "main", "a=b"]), json!({"a": "b"}));
}

#[test]
fn the_four_rules_of_a_list_hold_for_what_is_listed_and_for_what_is_run() {
    let operator = Operator::new();
    // The other block of the seed.
    let fabric = operator.coordinator(
        r#"{
  "agents": {
    "defaults": {
      "skills": ["github", "weather"]
    },
    "list": [
      { "id": "writer" },
      { "id": "docs", "skills": ["docs-search"] },
      { "id": "locked-down", "skills": [] },
      { "id": "blank", "skills": [" "] }
    ]
  }
}"#,
    );
    let skills = ["docs_search", "github", "healthcheck", "weather"];
    let _node = fabric.node("host", &skills.map(Skill::echo), &Spec::new());
    wait_for_skills(&fabric, skills.len());
    let holds = |agent: &str, keys: &[&str]| {
        assert_eq!(seen_by(&fabric, agent), keys, "{agent}");
        for skill in skills {
            match keys.contains(&skill) {
                true => assert_eq!(fabric.call(&[skill, "--agent", agent]), json!({})),
                false => drop(refused(&fabric, &[skill, "--agent", agent], 3, "SKILL_NOT_FOUND")),
            }
        }
    };
    holds("writer", &["github", "weather"]);
    holds("nobody-listed", &["github", "weather"]);
    holds("docs", &["docs_search"]);
    holds("locked-down", &[]);
    holds("blank", &[]);

    // Without defaults who has no list sees everything.
    operator.say(json!({"agents": {"list": [{"id": "writer"}, {"id": "locked-down", "skills": []}]}}));
    wait_until_seen(&fabric, "writer", &skills);
    holds("writer", &skills);
    holds("docs", &skills);
    holds("locked-down", &[]);
}

#[test]
fn a_list_and_a_gate_are_two_conditions_and_both_must_hold() {
    let operator = Operator::new();
    let fabric = operator.coordinator(json!({"agents": {"defaults": {"skills": ["gated"]}}}));
    let gated = Skill::echo("gated").with("metadata", json!({"requires": {"bins": ["weft_no_such_tool"]}}));
    let _node = fabric.node("host", &[gated, Skill::echo("open")], &Spec::new());
    wait_for_skills(&fabric, 2);
    let usable = fabric.json(&["skills", "--agent", "a", "--eligible"]).unwrap();
    assert_eq!(usable["skills"], json!([]));
    let prompt = fabric.weft(&["prompt", "--agent", "a"]);
    assert_eq!((prompt.code, prompt.stdout.as_str()), (0, ""), "{prompt:?}");
    refused(&fabric, &["gated", "--agent", "a"], 3, "NO_ELIGIBLE_NODE");
    refused(&fabric, &["open", "--agent", "a"], 3, "SKILL_NOT_FOUND");
}

#[test]
fn a_nodes_own_list_keeps_what_the_coordinator_would_let_run() {
    let operator = Operator::new();
    let fabric = operator.coordinator(json!({"agents": {"list": [{"id": "x", "skills": ["tool"]}]}}));
    let marker = operator.path("it-ran");
    let script = format!(": > {}; echo '{{}}'", marker.display());
    let spec = operator.node(json!({"agents": {"list": [{"id": "x", "skills": ["other"]}]}}));
    let _node = fabric.node("host", &[Skill::sh("tool", &script)], &spec);
    assert_eq!(seen_by(&fabric, "x"), ["tool"]);

    let ended = refused(&fabric, &["tool", "--agent", "x"], 3, "NOT_STARTED");
    let reason = "the operator of this node does not let agent x use tool";
    assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    let known = fabric.json(&["invocations"]).unwrap();
    assert_eq!(known[0]["outcome"], "OUTCOME_NOT_STARTED", "{known}");
    assert!(!marker.exists());
    // Whoever speaks for no agent is none of the list's business.
    assert_eq!(fabric.call(&["tool"]), json!({}));
    fs::remove_file(&marker).unwrap();

    operator.say_to_node(json!({"agents": {"list": [{"id": "x", "skills": ["Tool"]}]}}));
    wait_for_result(&fabric, &["tool", "--agent", "x"], &json!({}));
    assert!(marker.exists());
}

#[test]
fn a_nodes_own_file_keeps_an_agent_in_a_sandbox_whatever_the_coordinator_says() {
    let operator = Operator::new();
    let fabric = operator.coordinator("{}");
    let file = json!({"agents": {"list": [{"id": "family", "sandbox": {"mode": "all"}}]}});
    let _node = fabric.node("host", &[Skill::echo("tool")], &operator.node(file));
    let ended = refused(&fabric, &["tool", "--agent", "family"], 3, "NOT_STARTED");
    assert!(ended.stderr.contains("sandbox"), "{}", ended.stderr);
    assert_eq!(fabric.call(&["tool", "--agent", "main"]), json!({}));
}

/// Two nodes that both hold a copy in the workspace of `writer`, which says where it runs.
fn workspaces(operator: &Operator, fabric: &Fabric) -> [Daemon; 2] {
    let file = json!({"agents": {"list": [{"id": "writer", "workspace": operator.path("workspace")}]}});
    let own = Skill::sh("own", r#"printf '{"node":"%s"}' "$WEFT_NODE""#)
        .with("env_allow", json!(["PATH", "WEFT_NODE"]));
    own.write(&operator.path("workspace/skills"));
    ["a", "b"].map(|zone| {
        let spec = operator.node(&file).arg("--label", format!("zone={zone}"));
        fabric.node(zone, &[Skill::echo("common")], &spec)
    })
}

#[test]
fn a_workspace_counts_only_where_the_coordinator_admits_it() {
    let operator = Operator::new();
    let fabric = operator.coordinator(json!({"agents": {"list": [{"id": "writer"}]}}));
    let _nodes = workspaces(&operator, &fabric);
    let on = |node: &'static str| ["own", "--agent", "writer", "--node", node];
    let says = |agent: serde_json::Value| operator.say(json!({"agents": {"list": [agent]}}));

    // A node alone gives an agent nothing.
    assert_eq!(seen_by(&fabric, "writer"), ["common"]);
    refused(&fabric, &on("a"), 3, "SKILL_NOT_FOUND");

    says(json!({"id": "writer", "nodes": "zone=a"}));
    wait_until_seen(&fabric, "writer", &["common", "own"]);
    assert_eq!(fabric.call(&["own", "--agent", "writer"]), json!({"node": "a"}));
    refused(&fabric, &on("b"), 3, "NO_ELIGIBLE_NODE");
    assert_eq!(seen_by(&fabric, "reader"), ["common"], "it is one agent's");
    refused(&fabric, &["own"], 3, "SKILL_NOT_FOUND");

    says(json!({"id": "writer", "nodes": "zone=b"}));
    wait_for_result(&fabric, &["own", "--agent", "writer"], &json!({"node": "b"}));
    refused(&fabric, &on("a"), 3, "NO_ELIGIBLE_NODE");

    says(json!({"id": "writer", "workspace": "~/wherever"}));
    for node in ["a", "b"] {
        wait_for_result(&fabric, &on(node), &json!({"node": node}));
    }

    says(json!({"id": "reader", "workspace": "~/wherever"}));
    wait_until_seen(&fabric, "writer", &["common"]);
    assert!(why(&fabric, &["own", "--agent", "writer"]).is_none());
}
