//! Who watches the catalog is told everything once, then what changes, and goes on where it was.

use std::{collections::BTreeMap, fs};

use rustix::process::Signal;
use serde_json::json;
use tonic::{Code, Streaming};
use weft_core::skill::{Class, Definition};
use weft_proto::v1::{WatchCatalogRequest, WatchCatalogResponse, watch_catalog_response::Message};
use weft_testkit::{Fabric, Skill, Spec, StubNode, stub_node};

use crate::{
    caller::{Caller, Told as _},
    fabric,
    operator::{Operator, SECONDS, wait_for_skills, wait_until_seen},
};

/// What a watch says up to a bookmark.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    resets: usize,
    upserted: Vec<String>,
    removed: Vec<String>,
}

/// What is said of skills that are new or changed.
fn upserted(keys: &[&str]) -> Said {
    Said { upserted: keys.iter().map(ToString::to_string).collect(), ..Said::default() }
}

/// What is said of skills that are gone.
fn removed(keys: &[&str]) -> Said {
    Said { removed: keys.iter().map(ToString::to_string).collect(), ..Said::default() }
}

/// What is said to who is told everything.
fn everything(keys: &[&str]) -> Said {
    Said { resets: 1, ..upserted(keys) }
}

/// A client that keeps what it is told.
struct Watcher<'a> {
    caller: &'a Caller,
    stream: Streaming<WatchCatalogResponse>,
    agent: String,
    /// From the last bookmark.
    token: String,
    /// The description of each skill.
    mirror: BTreeMap<String, String>,
    /// Skills that it was told of, each as often as that.
    told: usize,
}

fn open(caller: &Caller, agent: &str, token: &str) -> Streaming<WatchCatalogResponse> {
    let request = WatchCatalogRequest {
        agent: agent.into(),
        resume_token: token.into(),
        ..WatchCatalogRequest::default()
    };
    caller.wait(caller.client.watch_catalog(request)).unwrap()
}

impl<'a> Watcher<'a> {
    fn of(caller: &'a Caller, agent: &str) -> Self {
        Self::from(caller, agent, "")
    }

    fn from(caller: &'a Caller, agent: &str, token: &str) -> Self {
        let (agent, token) = (agent.to_owned(), token.to_owned());
        let stream = open(caller, &agent, &token);
        Self { caller, stream, agent, token, mirror: BTreeMap::new(), told: 0 }
    }

    /// Goes on in another stream.
    fn resume(&mut self) {
        self.stream = open(self.caller, &self.agent, &self.token);
    }

    /// What is said up to the next bookmark.
    #[track_caller]
    fn step(&mut self) -> Said {
        let mut said = Said::default();
        loop {
            let message = self.caller.wait(self.stream.message()).unwrap();
            match message.expect("a watch has no end").message.unwrap() {
                Message::Reset(_) => {
                    said.resets += 1;
                    self.mirror.clear();
                }
                Message::Change(change) => {
                    self.told += change.upserted.len();
                    for skill in change.upserted {
                        said.upserted.push(skill.key.clone());
                        self.mirror.insert(skill.key, skill.definition.unwrap().description);
                    }
                    for key in change.removed {
                        self.mirror.remove(&key);
                        said.removed.push(key);
                    }
                }
                Message::Bookmark(bookmark) => {
                    self.token = bookmark.resume_token;
                    return said;
                }
                Message::Heartbeat(_) => {}
            }
        }
    }

    /// What is said next: places to go on from at which nothing changed for this watcher say nothing.
    #[track_caller]
    fn next(&mut self) -> Said {
        loop {
            let said = self.step();
            if said != Said::default() {
                return said;
            }
        }
    }
}

/// Another description, so that it can be told which version somebody has.
fn described(name: &str, text: &str) -> Skill {
    Skill::echo(name).with("description", json!(text))
}

/// Takes a skill away at once.
fn take_away(fabric: &Fabric, node: &str, name: &str) {
    fs::rename(fabric.skills_of(node).join(name), fabric.path(&format!("taken-{name}"))).unwrap();
}

/// The description of each skill, as a list has it.
fn listed(fabric: &Fabric) -> BTreeMap<String, String> {
    let listed = fabric.json(&["skills"]).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let skills = listed["skills"].as_array().unwrap().iter();
    skills.map(|skill| (text(&skill["key"]), text(&skill["definition"]["description"]))).collect()
}

#[test]
fn a_watch_tells_everything_and_then_each_change_by_itself() {
    let fabric = fabric();
    let _node = fabric.node("host", &["first", "second"].map(Skill::echo), &Spec::new());
    wait_for_skills(&fabric, 2);
    let caller = Caller::of(&fabric);
    let mut watcher = Watcher::of(&caller, "");
    assert_eq!(watcher.step(), everything(&["first", "second"]));

    Skill::echo("third").write(&fabric.skills_of("host"));
    assert_eq!(watcher.next(), upserted(&["third"]));
    described("first", "changed").write(&fabric.skills_of("host"));
    assert_eq!(watcher.next(), upserted(&["first"]));
    assert_eq!(watcher.mirror["first"], "changed");
    take_away(&fabric, "host", "second");
    assert_eq!(watcher.next(), removed(&["second"]));

    let mut other = fabric.node("other", &[Skill::echo("fourth")], &Spec::new());
    assert_eq!(watcher.next(), upserted(&["fourth"]));
    other.kill();
    assert_eq!(watcher.next(), removed(&["fourth"]));
}

#[test]
fn what_no_node_can_run_is_told_to_those_who_ask_for_it() {
    let fabric = fabric();
    let gated = Skill::echo("gated").with("metadata", json!({"requires": {"bins": ["weft_e2e_gate"]}}));
    let _node = fabric.node("host", &[gated, Skill::echo("open")], &Spec::new());
    wait_for_skills(&fabric, 2);
    let caller = Caller::of(&fabric);
    let mut usable = Watcher::of(&caller, "");
    assert_eq!(usable.step(), everything(&["open"]));
    let request = WatchCatalogRequest { include_ineligible: true, ..WatchCatalogRequest::default() };
    let stream = caller.wait(caller.client.watch_catalog(request.clone())).unwrap();
    let mut all = Watcher { stream, ..Watcher::of(&caller, "") };
    assert_eq!(all.step(), everything(&["gated", "open"]));
    // A token is good for the same question only.
    let resumed = WatchCatalogRequest { resume_token: usable.token.clone(), ..request };
    all.stream = caller.wait(caller.client.watch_catalog(resumed)).unwrap();
    assert_eq!(all.step(), everything(&["gated", "open"]));
}

#[test]
fn a_watch_that_is_taken_up_again_tells_only_what_changed_meanwhile() {
    let fabric = fabric();
    let _node = fabric.node("host", &["gone", "other", "same"].map(Skill::echo), &Spec::new());
    wait_for_skills(&fabric, 3);
    let caller = Caller::of(&fabric);
    let mut watcher = Watcher::of(&caller, "");
    watcher.step();
    let first = watcher.token.clone();
    watcher.resume();
    assert_eq!(watcher.step(), Said::default(), "nothing has changed");

    let skills = fabric.skills_of("host");
    take_away(&fabric, "host", "gone");
    described("other", "changed").write(&skills);
    Skill::echo("fresh").write(&skills);
    fabric.wait_for_skill("other", SECONDS, |skill| skill["definition"]["description"] == "changed");
    fabric.wait_for_skill("fresh", SECONDS, |_| true);
    watcher.resume();
    let said = watcher.step();
    assert_eq!(said, Said { removed: vec!["gone".into()], ..upserted(&["fresh", "other"]) });
    assert_eq!(watcher.mirror["other"], "changed");
    // And it goes on from there.
    described("same", "changed").write(&skills);
    assert_eq!(watcher.next(), upserted(&["same"]));

    // Changes that come one after the other are told as one, however far back the token lies.
    let mut late = Watcher::from(&caller, "", &first);
    let said = late.step();
    assert_eq!(said, Said { removed: vec!["gone".into()], ..upserted(&["fresh", "other", "same"]) });

    for stranger in ["x", "...", &format!("{first}.1"), &first.replace('.', ":")] {
        let mut lost = Watcher::from(&caller, "", stranger);
        assert_eq!(lost.step(), everything(&["fresh", "other", "same"]), "{stranger}");
    }
    let mut somebody = Watcher::from(&caller, "somebody", &first);
    assert_eq!(somebody.step(), everything(&["fresh", "other", "same"]), "a token of another view");
}

#[test]
fn what_a_watcher_keeps_is_what_a_list_says_whatever_came_and_went() {
    let fabric = fabric();
    let skills = fabric.skills_of("host");
    let _node = fabric.node("host", &[Skill::echo("s0")], &Spec::new());
    let caller = Caller::of(&fabric);
    let mut watcher = Watcher::of(&caller, "");
    watcher.step();
    for number in 1..=12 {
        let name = format!("s{}", number % 5);
        match number % 3 {
            0 if skills.join(&name).exists() => {
                fs::rename(skills.join(&name), fabric.path(&format!("taken-{number}"))).unwrap();
            }
            _ => drop(described(&name, &format!("version {number}")).write(&skills)),
        }
        if number % 4 == 0 {
            // It sees this stretch live, the others only when it comes back.
            let seen = format!("mark{number}");
            Skill::echo(&seen).write(&skills);
            watcher.resume();
            while !watcher.mirror.contains_key(&seen) {
                watcher.step();
            }
        }
    }
    // It may still be told of something; a list is never behind it.
    while watcher.mirror != listed(&fabric) {
        watcher.step();
    }
}

#[test]
fn a_token_of_another_life_of_the_coordinator_begins_anew() {
    let mut fabric = fabric();
    let _node = fabric.node("host", &[Skill::echo("tool")], &Spec::new());
    let token = {
        let caller = Caller::of(&fabric);
        let mut watcher = Watcher::of(&caller, "");
        watcher.step();
        watcher.token
    };
    fabric.kill_coordinator();
    fabric.restart_coordinator();
    fabric.wait_for_node("host");
    let caller = Caller::of(&fabric);
    let mut watcher = Watcher::from(&caller, "", &token);
    assert_eq!(watcher.step(), everything(&["tool"]));
}

#[test]
fn a_watch_follows_the_list_of_its_agent_and_names_nothing_else() {
    let list = |skills: &[&str]| json!({"agents": {"list": [{"id": "a", "skills": skills}]}});
    let operator = Operator::new();
    let fabric = operator.coordinator(list(&["one", "two"]));
    let _node = fabric.node("host", &["one", "two", "three"].map(Skill::echo), &Spec::new());
    wait_for_skills(&fabric, 3);
    let skills = fabric.skills_of("host");
    let caller = Caller::of(&fabric);
    let mut watcher = Watcher::of(&caller, "a");
    assert_eq!(watcher.step(), everything(&["one", "two"]));
    let before = watcher.token.clone();

    operator.say(list(&["two", "three"]));
    let said = watcher.next();
    assert_eq!((said.resets, said.removed), (0, vec!["one".to_owned()]));
    assert!(said.upserted.contains(&"three".to_owned()), "{:?}", said.upserted);
    assert!(watcher.mirror.keys().eq(["three", "two"]), "{:?}", watcher.mirror);

    // What it may not see changes unseen.
    described("one", "changed").write(&skills);
    fabric.wait_for_skill("one", SECONDS, |skill| skill["definition"]["description"] == "changed");
    described("three", "changed").write(&skills);
    assert_eq!(watcher.next(), upserted(&["three"]));
    take_away(&fabric, "host", "one");
    wait_for_skills(&fabric, 2);
    described("two", "changed").write(&skills);
    assert_eq!(watcher.next(), upserted(&["two"]));

    // Nobody knows what who comes back has from before, so it is told everything: at once or while it watches.
    let mut late = Watcher::from(&caller, "a", &before);
    assert_eq!(late.step(), everything(&["three", "two"]));
    late.resume();
    assert_eq!(late.step(), Said::default());
    operator.say(list(&["three"]));
    wait_until_seen(&fabric, "a", &["three"]);
    assert_eq!(late.next(), everything(&["three"]));
    assert_eq!(watcher.next().removed, ["two"]);
}

#[test]
fn an_agents_own_copy_comes_before_the_common_one_and_gives_way_to_it_when_it_goes() {
    let listed = |agent: &str| json!({"agents": {"list": [{"id": agent, "workspace": "~/w"}]}});
    let operator = Operator::new();
    let fabric = operator.coordinator(listed("writer"));
    let own = operator.path("workspace/skills");
    fs::create_dir_all(&own).unwrap();
    let file = json!({"agents": {"list": [{"id": "writer", "workspace": operator.path("workspace")}]}});
    let _node = fabric.node("host", &[described("tool", "common")], &operator.node(file));
    let caller = Caller::of(&fabric);
    let (mut writer, mut reader) = (Watcher::of(&caller, "writer"), Watcher::of(&caller, "reader"));
    for watcher in [&mut writer, &mut reader] {
        assert_eq!(watcher.step(), everything(&["tool"]));
    }
    described("tool", "own").write(&own);
    assert_eq!((writer.next(), writer.mirror["tool"].as_str()), (upserted(&["tool"]), "own"));
    fs::rename(own.join("tool"), operator.path("taken")).unwrap();
    assert_eq!((writer.next(), writer.mirror["tool"].as_str()), (upserted(&["tool"]), "common"));
    described("mine", "own").write(&own);
    assert_eq!(writer.next(), upserted(&["mine"]));

    // The operator takes the workspace back.
    operator.say(listed("somebody"));
    while writer.mirror.contains_key("mine") {
        writer.next();
    }
    assert!(writer.mirror.keys().eq(["tool"]), "{:?}", writer.mirror);
    // Nobody else was told of any of that.
    described("last", "common").write(&fabric.skills_of("host"));
    while !reader.mirror.contains_key("last") {
        reader.next();
    }
    assert!(reader.mirror.keys().eq(["last", "tool"]), "{:?}", reader.mirror);
    assert_eq!(reader.mirror["tool"], "common");
}

#[test]
fn a_coordinator_that_stops_ends_its_watches_by_name() {
    let mut fabric = fabric();
    let _node = fabric.node("host", &[Skill::echo("tool")], &Spec::new());
    let caller = Caller::of(&fabric);
    let mut watcher = Watcher::of(&caller, "");
    watcher.step();
    fabric.coordinator().signal(Signal::TERM);
    let last = caller.wait(async {
        loop {
            match watcher.stream.message().await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    });
    let end = last.told();
    assert_eq!((end.code, end.reason.as_str()), (Code::Aborted, "STREAM_MOVED"));
    assert!(fabric.coordinator().wait(SECONDS).success());
}

/// Definitions that are told in some 600 KB.
fn heavy(round: usize) -> Vec<Definition> {
    let schema = format!(r#"{{"type":"object","description":"{}"}}"#, "x".repeat(60_000));
    let one = |number| Definition {
        description: format!("round {round}"),
        schema: schema.clone(),
        ..stub_node::definition(&format!("heavy_{number}"), Class::Safe)
    };
    (0..HEAVY).map(one).collect()
}

const HEAVY: usize = 10;
const ROUNDS: usize = 25;

#[test]
fn a_watcher_that_does_not_read_holds_up_nobody_and_is_told_only_the_last_of_it() {
    let fabric = fabric();
    // Each has a connection of its own.
    let (reads, idles) = (Caller::of(&fabric), Caller::of(&fabric));
    let mut idle = Watcher::of(&idles, "");
    let mut reader = Watcher::of(&reads, "");
    reader.step();
    let is_told = |watcher: &Watcher<'_>, round: usize| {
        let text = format!("round {round}");
        watcher.mirror.len() == HEAVY && watcher.mirror.values().all(|description| *description == text)
    };
    let mut node = reads.wait(StubNode::connect(fabric.address(), stub_node::hello("stub"))).unwrap();
    for round in 1..=ROUNDS {
        reads.wait(node.offer(&heavy(round)));
        while !is_told(&reader, round) {
            reader.next();
        }
    }
    assert!(reader.told >= ROUNDS * HEAVY);
    while !is_told(&idle, ROUNDS) {
        idle.next();
    }
    // What found room on the way to it, and then the last.
    assert!(idle.told < ROUNDS * HEAVY / 2, "{} of {}", idle.told, ROUNDS * HEAVY);
}
