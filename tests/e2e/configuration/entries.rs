//! What `skills.entries` gives a skill reaches that skill's process, and nobody else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use weft_core::ids::Digest;
use weft_proto::v1;
use weft_testkit::{Daemon, Fabric, Observed, Skill, Spec, eventually, request, skill::put};

use crate::{
    operator::{Operator, SECONDS, refused, wait_for_result, wait_for_skills},
    runtime,
};

/// Prints the environment that it was started with.
const ENVIRONMENT: &str = r#"printf '{"env":"%s"}' "$(tr '\0' ';' < /proc/$$/environ)""#;

/// The environment that a call of such a skill prints.
#[track_caller]
fn environment(fabric: &Fabric, skill: &str) -> BTreeMap<String, String> {
    let result = fabric.call(&[skill]);
    let variables = result["env"].as_str().unwrap().split(';').filter_map(|one| one.split_once('='));
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn names(environment: &BTreeMap<String, String>) -> BTreeSet<&str> {
    environment.keys().map(String::as_str).collect()
}

/// A fleet of one node with these skills, entries and further variables.
fn fleet(
    operator: &Operator,
    skills: &[Skill],
    entries: Value,
    variables: &[(&str, &str)],
) -> (Fabric, Daemon) {
    let fabric = operator.coordinator("{}");
    let file = json!({"skills": {"entries": entries}});
    let spec = variables.iter().fold(operator.node(file), |spec: Spec, (name, value)| spec.env(name, *value));
    let node = fabric.node("host", skills, &spec);
    wait_for_skills(&fabric, skills.len());
    (fabric, node)
}

#[test]
fn an_entry_reaches_the_process_of_its_skill_and_of_no_other() {
    let operator = Operator::new();
    put(&operator.path("secret"), "from-a-file\n");
    let keyed = Skill::sh("keyed", ENVIRONMENT)
        .with("env_allow", json!(["PATH", "PRESET"]))
        .with("metadata", json!({"primaryEnv": "API_KEY", "requires": {"env": ["API_KEY"]}}));
    let bystander = Skill::sh("bystander", ENVIRONMENT);
    let entries = json!({
        "Keyed": {
            "apiKey": "the-key",
            "env": {
                "FROM_FILE": {"source": "file", "id": operator.path("secret")},
                "FROM_NODE": {"source": "env", "id": "OF_THE_NODE"},
                "PRESET": "of-the-entry",
                "BLANK": " ",
                "LD_PRELOAD": "/evil.so",
            },
        },
    });
    let variables = [("OF_THE_NODE", "from-the-node"), ("PRESET", "of-the-node")];
    let (fabric, _node) = fleet(&operator, &[keyed, bystander], entries, &variables);

    let given = environment(&fabric, "keyed");
    assert_eq!(names(&given), ["API_KEY", "FROM_FILE", "FROM_NODE", "PATH", "PRESET"].into());
    for (name, value) in [
        ("API_KEY", "the-key"),
        ("FROM_FILE", "from-a-file"),
        ("FROM_NODE", "from-the-node"),
        // What the node has and the manifest lists stays as it is.
        ("PRESET", "of-the-node"),
    ] {
        assert_eq!(given[name], value, "{name}");
    }
    assert_eq!(names(&environment(&fabric, "bystander")), ["PATH"].into());
    let loader = fabric.diagnostics().into_iter().find(|one| one.contains("LD_PRELOAD"));
    assert!(loader.is_some_and(|one| one.starts_with("entries skills.entries.keyed")));
}

#[test]
fn a_secret_in_a_file_is_read_at_each_start() {
    let operator = Operator::new();
    let file = operator.write("token", "first");
    let skill = Skill::sh("keyed", ENVIRONMENT);
    let entries = json!({"keyed": {"env": {"TOKEN": {"source": "file", "id": file}}}});
    let (fabric, _node) = fleet(&operator, &[skill], entries, &[]);
    for value in ["first", "second", "third"] {
        operator.write("token", value);
        assert_eq!(environment(&fabric, "keyed")["TOKEN"], value);
    }
    // Without it the skill does not run half-equipped.
    std::fs::remove_file(&file).unwrap();
    let ended = fabric.weft(&["call", "keyed"]);
    assert_eq!(ended.code, 3, "{ended:?}");
    let message = "skills.entries.keyed.env gives TOKEN no value";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
    operator.write("token", "fourth");
    eventually("the skill with its token again", SECONDS, || {
        fabric.weft(&["call", "keyed"]).stdout.contains("TOKEN=fourth").then_some(())
    });
}

#[test]
fn a_skill_that_is_switched_off_stays_listed_with_the_reason() {
    let operator = Operator::new();
    let entries = json!({"off": {"enabled": false}, "on": {"enabled": true}});
    let (fabric, _node) = fleet(&operator, &["off", "on"].map(Skill::echo), entries, &[]);
    let told = fabric.weft(&["why", "off"]);
    assert_eq!(told.code, 3);
    let reason = "FAIL enabled off: switched off in skills.entries.off of this node";
    assert!(told.stdout.contains(reason), "{}", told.stdout);
    refused(&fabric, &["off"], 3, "switched off in skills.entries.off");
    assert_eq!(fabric.call(&["on"]), json!({}));
    operator.say_to_node(json!({"skills": {"entries": {"off": {"enabled": true}}}}));
    wait_for_result(&fabric, &["off"], &json!({}));
}

#[test]
fn two_skills_that_run_at_once_have_each_its_own_value() {
    let operator = Operator::new();
    // Each waits until the other runs too.
    let meets = |own: &str, other: &str| {
        let (own, other) = (operator.path(own), operator.path(other));
        format!(
            ": > {}; while [ ! -e {} ]; do sleep 0.02; done\n{ENVIRONMENT}",
            own.display(),
            other.display()
        )
    };
    let skills = [Skill::sh("one", &meets("one", "two")), Skill::sh("two", &meets("two", "one"))];
    let entries = json!({"one": {"env": {"TOKEN": "of-one"}}, "two": {"env": {"TOKEN": "of-two"}}});
    let (fabric, _node) = fleet(&operator, &skills, entries, &[]);
    let calls = ["one", "two"].map(|skill| (skill, fabric.spawn(&["call", skill])));
    for (skill, mut call) in calls {
        let finished = call.finish(SECONDS);
        assert!(finished.stdout.contains(&format!("TOKEN=of-{skill};")), "{finished:?}");
    }
}

/// Values that must be in no text but the operator's own files.
const SECRETS: [&str; 3] = ["hunter2-in-the-file", "hunter2-of-the-node", "hunter2-beside-it"];

#[test]
fn a_secret_is_in_no_log_no_listing_no_event_and_no_advert() {
    let operator = Operator::new();
    let file = operator.write("secret", SECRETS[2]);
    let sum = r#"printf '{"sum":"%s"}' "$(printf '%s %s %s' "$API_KEY" "$FROM_NODE" "$FROM_FILE" | sha256sum | cut -d' ' -f1)""#;
    let keyed = Skill::sh("keyed", &format!("echo 'a key of '${{#API_KEY}}' characters' >&2\n{sum}"))
        .with("metadata", json!({"primaryEnv": "API_KEY", "requires": {"env": ["API_KEY", "FROM_NODE"], "config": ["skills.entries.keyed.apiKey"]}}));
    let entries = json!({
        "keyed": {
            "apiKey": SECRETS[0],
            "env": {
                "FROM_NODE": {"source": "env", "id": "OF_THE_NODE"},
                "FROM_FILE": {"source": "file", "id": file},
                "LD_PRELOAD": SECRETS[0],
            },
        },
    });
    let coordinator_file = operator.say("{}");
    let mut fabric = Fabric::start_with(
        crate::WEFT,
        &["--config", coordinator_file.to_str().unwrap()],
        &[("WEFT_LOG", "trace".as_ref())],
    );
    let spec = operator.node(json!({"skills": {"entries": entries}}));
    let spec = spec.env("OF_THE_NODE", SECRETS[1]).env("WEFT_LOG", "trace");
    let node = fabric.node("host", &[keyed], &spec);

    // It is given them all the same.
    let digest = Digest::of(SECRETS.join(" ").as_bytes()).to_string();
    let expected = json!({"sum": digest.strip_prefix("sha256:").unwrap()});
    assert_eq!(fabric.call(&["keyed"]), expected);

    let mut said = Vec::new();
    for args in [&["skills"][..], &["skills", "keyed"], &["why", "keyed"], &["nodes"], &["invocations"]] {
        for format in ["json", "table"] {
            let mut all = args.to_vec();
            all.extend(["-o", format]);
            let finished = fabric.weft(&all);
            assert_eq!(finished.code, 0, "{finished:?}");
            said.push((all.join(" "), format!("{finished:?}")));
        }
    }
    runtime().block_on(async {
        let client = fabric.client();
        said.push(("GetSkill".into(), format!("{:?}", client.get_skill("keyed", "").await.unwrap())));
        let events = Observed::of(client.invoke(&request("keyed", "{}"))).await.unwrap();
        said.push(("events".into(), format!("{events:?}")));
        let watch = v1::WatchCatalogRequest { include_ineligible: true, ..Default::default() };
        let mut stream = client.watch_catalog(watch).await.unwrap();
        for _ in 0..2 {
            said.push(("WatchCatalog".into(), format!("{:?}", stream.message().await.unwrap())));
        }
    });
    // A mistake in the file is told without what stands beside it.
    operator.say_to_node(
        json!({"skills": {"entries": {"keyed": {"apiKey": SECRETS[0], "enabled": SECRETS[0]}}}}),
    );
    node.wait_for_line("configuration is refused", SECONDS);
    said.push(("the node's log".into(), node.stderr()));
    said.push(("the coordinator's log".into(), fabric.coordinator().stderr()));
    said.push(("nodes with a complaint".into(), fabric.weft(&["nodes", "-o", "json"]).stdout));
    for (what, text) in said {
        assert!(!text.contains("hunter2"), "{what}: {text}");
    }
}
