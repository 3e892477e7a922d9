//! A skill that is dropped, changed or removed on a host shows within seconds.

use std::{fs, time::Duration};

use serde_json::json;
use weft_proto::v1::{WatchCatalogRequest, WatchCatalogResponse, watch_catalog_response::Message};
use weft_testkit::{Fabric, Skill, Spec, eventually};

use crate::{fabric, operator::Operator, runtime};

/// Within seconds, on a busy machine.
const SECONDS: Duration = Duration::from_secs(10);

fn description(fabric: &Fabric, key: &str) -> Option<String> {
    let skills = fabric.json(&["skills"])?;
    let skill = skills["skills"].as_array()?.iter().find(|skill| skill["key"] == key)?.clone();
    Some(skill["definition"]["description"].as_str()?.to_owned())
}

#[test]
fn a_dropped_skill_appears_changes_and_goes_within_seconds() {
    let fabric = fabric();
    let _node = fabric.node("host", &[Skill::echo("first")], &Spec::new());
    let dir = Skill::echo("second").write(&fabric.skills_of("host"));
    eventually("the new skill", SECONDS, || description(&fabric, "second"));
    assert_eq!(fabric.call(&["second", "--args", r#"{"n":1}"#]), json!({"n": 1}));

    Skill::echo("second").with("description", json!("changed")).write(&fabric.skills_of("host"));
    eventually("the change", SECONDS, || {
        description(&fabric, "second").filter(|description| description == "changed")
    });

    fs::remove_dir_all(dir).unwrap();
    eventually("its absence", SECONDS, || description(&fabric, "second").is_none().then_some(()));
    assert_eq!(fabric.weft(&["call", "second"]).code, 3);
    assert!(description(&fabric, "first").is_some());
}

#[test]
fn a_skill_that_does_not_load_says_why_where_people_look() {
    let fabric = fabric();
    let broken = Skill::echo("broken").with("class", json!("SAFE"));
    let _node = fabric.node("host", &[Skill::echo("good"), broken], &Spec::new());
    assert_eq!(fabric.call(&["good", "a=b"]), json!({"a": "b"}));

    let skills = fabric.weft(&["skills"]);
    assert!(
        skills.stderr.contains("broken/skill.json") && skills.stderr.contains("SAFE"),
        "{}",
        skills.stderr
    );
    let why = fabric.weft(&["why", "broken"]);
    assert!(why.stdout.contains("class") && why.stdout.contains("SAFE"), "{}", why.stdout);
    let call = fabric.weft(&["call", "broken"]);
    assert_eq!(call.code, 3);
    assert!(call.stderr.contains("SKILL_INVALID"), "{}", call.stderr);
}

#[test]
fn files_swapped_between_listing_and_start_are_never_run_unseen() {
    let fabric = fabric();
    let node = fabric.node("host", &[Skill::sh("swapped", "echo '{\"v\":1}'")], &Spec::new());
    let before = fabric.json(&["skills", "swapped"]).unwrap()["digest"].as_str().unwrap().to_owned();
    Skill::sh("swapped", "echo '{\"v\":2}'").write(&fabric.skills_of("host"));
    // Whatever the moment: the old files are gone, so the old digest is never run.
    let call = fabric.weft(&["call", "swapped", "--digest", &before]);
    assert_ne!(call.code, 0, "{call:?}");
    assert!(call.stdout.is_empty(), "{call:?}");
    eventually("the new files", SECONDS, || {
        (fabric.weft(&["call", "swapped"]).stdout.trim() == r#"{"v":2}"#).then_some(())
    });
    drop(node);
}

/// The keys of each change up to the next bookmark.
async fn changes(stream: &mut tonic::Streaming<WatchCatalogResponse>) -> Vec<Vec<String>> {
    let mut changes = Vec::new();
    loop {
        let next = tokio::time::timeout(SECONDS, stream.message()).await.expect("a message in time");
        match next.unwrap().unwrap().message.unwrap() {
            Message::Change(change) => {
                assert!(change.removed.is_empty(), "{change:?}");
                changes.push(change.upserted.into_iter().map(|skill| skill.key).collect());
            }
            Message::Bookmark(_) => return changes,
            Message::Reset(_) | Message::Heartbeat(_) => {}
        }
    }
}

#[test]
fn a_burst_of_a_thousand_file_events_is_one_change_of_the_catalog() {
    let operator = Operator::new();
    let mut fabric = fabric();
    // Quiet for so long only when the burst is over, however busy the machine.
    let spec = operator.node(json!({"skills": {"load": {"watchDebounceMs": 1500}}}));
    let _node = fabric.node("host", &["bursting", "still"].map(Skill::echo), &spec);
    let dir = fabric.skills_of("host").join("bursting");
    runtime().block_on(async {
        let mut stream = fabric.client().watch_catalog(WatchCatalogRequest::default()).await.unwrap();
        assert_eq!(changes(&mut stream).await, [["bursting", "still"]]);
        let adverts = |coordinator: String| coordinator.matches("node advertised").count();
        let before = adverts(fabric.coordinator().stderr());
        for number in 0..1000 {
            fs::write(dir.join(format!("data-{}.txt", number % 50)), number.to_string()).unwrap();
        }
        assert_eq!(changes(&mut stream).await, [["bursting"]]);
        // And nothing comes after it: the next thing that is told is the next thing that happens.
        Skill::echo("still").with("description", json!("changed")).write(&fabric.skills_of("host"));
        assert_eq!(changes(&mut stream).await, [["still"]]);
        assert_eq!(adverts(fabric.coordinator().stderr()), before + 2);
    });
}
