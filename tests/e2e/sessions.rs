//! A session holds still what its agent sees until its next turn, and runs those files and no others.

use std::fs;

use serde_json::json;
use tonic::Code;
use weft_core::limits::SESSIONS_PER_CALLER;
use weft_proto::v1::{self, catalog_service_client::CatalogServiceClient};
use weft_testkit::{Fabric, Skill, Spec, eventually};

use crate::{
    caller::{Caller, Told},
    fabric,
    operator::{Operator, SECONDS, refused, wait_for_result, wait_for_skills, wait_until_seen},
};

/// A version of a skill.
fn version(number: u32) -> Skill {
    Skill::sh("tool", &format!("echo '{{\"v\":{number}}}'"))
}

/// Puts another version in its place and waits until whoever has no session gets it.
fn change_to(fabric: &Fabric, node: &str, number: u32) {
    version(number).write(&fabric.skills_of(node));
    wait_for_result(fabric, &["tool", "--node", node], &json!({"v": number}));
}

fn keys(snapshot: &v1::Snapshot) -> Vec<&str> {
    snapshot.skills.iter().map(|skill| skill.key.as_str()).collect()
}

#[test]
fn a_session_holds_still_while_a_skill_changes_until_its_turn_begins() {
    let fabric = fabric();
    let _node = fabric.node("host", &[version(1)], &Spec::new());
    let caller = Caller::of(&fabric);
    let (id, opened) = caller.open_session("a");
    assert_eq!(opened.skills[0].digests, [fabric.skill("tool").unwrap()["digest"].as_str().unwrap()]);
    let call = ["tool", "--session", &id];
    assert_eq!(fabric.call(&call), json!({"v": 1}));

    change_to(&fabric, "host", 2);
    let within = caller.session(&id);
    assert_eq!((within.snapshot.as_ref(), within.refreshed), (Some(&opened), false));
    let refusal = refused(&fabric, &call, 3, "DIGEST_MISMATCH");
    assert!(refusal.stderr.contains(&opened.skills[0].digests[0]), "{}", refusal.stderr);

    let turn = caller.begin_turn(&id);
    assert!(turn.refreshed);
    assert_ne!(turn.session.unwrap().snapshot_digest, opened.digest);
    assert_eq!(fabric.call(&call), json!({"v": 2}));
    assert!(!caller.begin_turn(&id).refreshed);
}

#[test]
fn where_sessions_do_not_follow_only_a_new_one_sees_a_change() {
    let operator = Operator::new();
    let fabric = operator.coordinator(json!({"skills": {"load": {"watch": false}}}));
    let _node = fabric.node("host", &[version(1)], &Spec::new());
    let caller = Caller::of(&fabric);
    let (id, opened) = caller.open_session("a");
    change_to(&fabric, "host", 2);
    let turn = caller.begin_turn(&id);
    assert_eq!((turn.snapshot.as_ref(), turn.refreshed), (Some(&opened), false));
    refused(&fabric, &["tool", "--session", &id], 3, "DIGEST_MISMATCH");
    let (other, _) = caller.open_session("a");
    assert_eq!(fabric.call(&["tool", "--session", &other]), json!({"v": 2}));

    // The operator lets them follow, so the next turn of the old one does.
    operator.say("{}");
    eventually("a turn that follows", SECONDS, || caller.begin_turn(&id).refreshed.then_some(()));
    assert_eq!(fabric.call(&["tool", "--session", &id]), json!({"v": 2}));
}

#[test]
fn a_node_that_joins_or_leaves_shows_at_the_boundary_of_a_turn() {
    let fabric = fabric();
    let _one = fabric.node("one", &[Skill::echo("common")], &Spec::new());
    let caller = Caller::of(&fabric);
    let (id, opened) = caller.open_session("a");
    let call = ["extra", "--session", &id];
    assert_eq!(keys(&opened), ["common"]);

    let mut two = fabric.node("two", &[Skill::echo("extra")], &Spec::new());
    assert_eq!(fabric.call(&["extra"]), json!({}));
    assert_eq!(caller.session(&id).snapshot, Some(opened.clone()));
    refused(&fabric, &call, 3, "SKILL_NOT_FOUND");
    assert_eq!(keys(&caller.begin_turn(&id).snapshot.unwrap()), ["common", "extra"]);
    assert_eq!(fabric.call(&call), json!({}));

    two.kill();
    eventually("its absence", SECONDS, || {
        (fabric.json(&["skills", "--eligible"])?["skills"].as_array()?.len() == 1).then_some(())
    });
    assert_eq!(keys(&caller.session(&id).snapshot.unwrap()), ["common", "extra"]);
    refused(&fabric, &call, 3, "NODE_OFFLINE");
    let turn = caller.begin_turn(&id);
    // The same skills as at first, so the same snapshot.
    assert_eq!((turn.snapshot, turn.refreshed), (Some(opened), true));
    refused(&fabric, &call, 3, "SKILL_NOT_FOUND");
}

#[test]
fn an_unchanged_view_is_the_same_snapshot_and_is_not_sent_again() {
    let fabric = fabric();
    let _node = fabric.node("host", &[version(1)], &Spec::new());
    let caller = Caller::of(&fabric);
    let (id, opened) = caller.open_session("a");
    for agent in ["a", "b", ""] {
        assert_eq!(caller.open_session(agent).1, opened, "{agent}");
    }
    let ask = |begin_turn, known_snapshot: &str| {
        let (session_id, known_snapshot) = (id.clone(), known_snapshot.to_owned());
        let request = v1::GetSessionRequest { session_id, begin_turn, known_snapshot };
        caller.wait(caller.sessions().get_session(request)).unwrap().into_inner()
    };
    for begin_turn in [false, true] {
        let known = ask(begin_turn, &opened.digest);
        assert_eq!((known.snapshot, known.refreshed), (None, false));
        assert_eq!(known.session.unwrap().snapshot_digest, opened.digest);
        assert_eq!(ask(begin_turn, "").snapshot, Some(opened.clone()));
        assert_eq!(ask(begin_turn, "something else").snapshot, Some(opened.clone()));
    }

    change_to(&fabric, "host", 2);
    assert_eq!(ask(false, &opened.digest).snapshot, None, "the turn goes on");
    let turn = ask(true, &opened.digest);
    let changed = turn.snapshot.unwrap();
    assert!(turn.refreshed && changed.digest != opened.digest);
    assert_eq!(ask(true, &changed.digest).snapshot, None);
    // The files of before are the snapshot of before.
    change_to(&fabric, "host", 1);
    let turn = ask(true, &changed.digest);
    assert_eq!((turn.snapshot, turn.refreshed), (Some(opened), true));
}

#[test]
fn a_name_taken_off_the_list_bites_at_once_although_the_snapshot_has_it() {
    let list = |skills: &[&str]| json!({"agents": {"list": [{"id": "a", "skills": skills}]}});
    let operator = Operator::new();
    let fabric = operator.coordinator(list(&["one", "two"]));
    let _node = fabric.node("host", &["one", "two", "three"].map(Skill::echo), &Spec::new());
    wait_for_skills(&fabric, 3);
    let caller = Caller::of(&fabric);
    let (id, opened) = caller.open_session("a");
    let call = ["two", "--session", &id];
    assert_eq!(fabric.call(&call), json!({}));

    operator.say(list(&["one"]));
    wait_until_seen(&fabric, "a", &["one"]);
    assert_eq!(caller.session(&id).snapshot, Some(opened.clone()));
    refused(&fabric, &call, 3, "SKILL_NOT_FOUND");
    let prompt = fabric.weft(&["prompt", "--session", &id]);
    assert!(prompt.stdout.contains("<name>one<") && !prompt.stdout.contains("two"), "{prompt:?}");
    let tools = fabric.weft(&["tools", "--dialect", "mcp", "--session", &id]);
    assert!(tools.stdout.contains("\"one\"") && !tools.stdout.contains("two"), "{tools:?}");

    // The turn has not ended: what is given back is there again.
    operator.say(list(&["two", "three"]));
    wait_until_seen(&fabric, "a", &["three", "two"]);
    assert_eq!(fabric.call(&call), json!({}));
    // What is given for the first time is there with the next one.
    refused(&fabric, &["three", "--session", &id], 3, "SKILL_NOT_FOUND");
    assert_eq!(keys(&caller.begin_turn(&id).snapshot.unwrap()), ["three", "two"]);
    assert_eq!(fabric.call(&["three", "--session", &id]), json!({}));
}

#[test]
fn a_session_speaks_for_its_own_agent_only() {
    let fabric = fabric();
    let _node = fabric.node("host", &[Skill::echo("tool")], &Spec::new());
    let caller = Caller::of(&fabric);
    let mut catalog = CatalogServiceClient::new(caller.channel.clone());
    for (own, other) in [("a", "b"), ("", "a")] {
        let (id, _) = caller.open_session(own);
        assert_eq!(fabric.call(&["tool", "--session", &id]), json!({}));
        let refusal = refused(&fabric, &["tool", "--session", &id, "--agent", other], 2, "REQUEST_INVALID");
        assert!(refusal.stderr.contains("agent"), "{}", refusal.stderr);
        let (agent, session_id) = (other.to_owned(), id.clone());
        let prompt = v1::RenderPromptRequest { agent: agent.clone(), session_id: session_id.clone() };
        let tools = v1::ExportToolsRequest { agent, session_id, dialect: v1::ToolDialect::Mcp.into() };
        for refusal in [
            caller.wait(catalog.render_prompt(prompt)).map(drop).told(),
            caller.wait(catalog.export_tools(tools)).map(drop).told(),
        ] {
            assert_eq!((refusal.code, refusal.fields[0].0.as_str()), (Code::InvalidArgument, "agent"));
        }
    }
    let (id, _) = caller.open_session("a");
    assert_eq!(fabric.call(&["tool", "--session", &id, "--agent", "a"]), json!({}));
}

#[test]
fn a_session_that_is_over_is_known_to_nobody_and_ends_nothing_that_runs() {
    let mut fabric = fabric();
    let go = fabric.path("go");
    let script = format!("echo up >&2; while [ ! -e {} ]; do sleep 0.02; done; echo '{{}}'", go.display());
    let _node = fabric.node("host", &[Skill::sh("steady", &script)], &Spec::new());
    let caller = Caller::of(&fabric);
    let (id, _) = caller.open_session("a");
    let mut running = fabric.spawn(&["call", "steady", "--session", &id]);
    running.wait_for_line("up", SECONDS);
    caller.wait(caller.client.close_session(&id)).unwrap();

    for id in [id.as_str(), "s-0", "no id\n", ""] {
        for refusal in [
            caller.wait(caller.client.get_session(id, false)).map(drop).told(),
            caller.wait(caller.client.get_session(id, true)).map(drop).told(),
            caller.wait(caller.client.close_session(id)).told(),
        ] {
            assert_eq!(
                (refusal.code, refusal.reason.as_str()),
                (Code::NotFound, "SESSION_NOT_FOUND"),
                "{id:?}"
            );
        }
    }
    for command in [
        &["call", "steady", "--session", &id][..],
        &["call", "steady", "a=b", "--session", &id],
        &["prompt", "--session", &id],
        &["tools", "--dialect", "mcp", "--session", &id],
    ] {
        let refusal = fabric.weft(command);
        assert_eq!((refusal.code, refusal.stdout.as_str()), (3, ""), "{command:?}: {refusal:?}");
        assert!(refusal.stderr.contains("SESSION_NOT_FOUND"), "{command:?}: {}", refusal.stderr);
    }
    fs::write(&go, "").unwrap();
    assert_eq!(running.finish(SECONDS).code, 0);

    // The memory of a coordinator ends with it.
    let (id, _) = caller.open_session("a");
    fabric.kill_coordinator();
    fabric.restart_coordinator();
    fabric.wait_for_node("host");
    refused(&fabric, &["steady", "--session", &id], 3, "SESSION_NOT_FOUND");
}

#[test]
fn a_retry_finds_its_first_try_also_when_the_session_has_gone_on_or_ended() {
    let fabric = fabric();
    let _node = fabric.node("host", &[version(1)], &Spec::new());
    let caller = Caller::of(&fabric);
    let (id, _) = caller.open_session("a");
    let call = ["tool", "--session", &id, "--args", "{}", "--request-id", "r-1"];
    assert_eq!(fabric.call(&call), json!({"v": 1}));
    change_to(&fabric, "host", 2);
    assert!(caller.begin_turn(&id).refreshed);
    assert_eq!(fabric.call(&call), json!({"v": 1}));
    caller.wait(caller.client.close_session(&id)).unwrap();
    assert_eq!(fabric.call(&call), json!({"v": 1}));
    // What was never tried is not known, and what is not the same is not a retry.
    refused(
        &fabric,
        &["tool", "--session", &id, "--args", "{}", "--request-id", "r-2"],
        3,
        "SESSION_NOT_FOUND",
    );
    let other = ["tool", "--session", &id, "--args", "{\"x\":1}", "--request-id", "r-1"];
    refused(&fabric, &other, 2, "REQUEST_ID_REUSED");
}

#[test]
fn two_variants_run_in_a_session_each_on_its_node_and_a_third_does_not() {
    let fabric = fabric();
    let _one = fabric.node("one", &[version(1)], &Spec::new());
    let _two = fabric.node("two", &[version(2)], &Spec::new());
    let caller = Caller::of(&fabric);
    let (id, opened) = caller.open_session("a");
    assert_eq!(opened.skills[0].digests.len(), 2);
    let on = |node: &'static str| ["tool", "--session", &id, "--node", node];
    assert_eq!(fabric.call(&on("one")), json!({"v": 1}));
    assert_eq!(fabric.call(&on("two")), json!({"v": 2}));

    change_to(&fabric, "two", 3);
    let refusal = refused(&fabric, &on("two"), 3, "NO_ELIGIBLE_NODE");
    assert!(refusal.stderr.contains("which the session has not seen"), "{}", refusal.stderr);
    for _ in 0..5 {
        assert_eq!(fabric.call(&["tool", "--session", &id]), json!({"v": 1}));
    }
    caller.begin_turn(&id);
    assert_eq!(fabric.call(&on("two")), json!({"v": 3}));
}

#[test]
fn a_call_in_a_session_means_what_the_sessions_agent_has() {
    let operator = Operator::new();
    let fabric = operator.coordinator(json!({"agents": {"list": [{"id": "writer", "workspace": "~/w"}]}}));
    let schema = |kind: &str| json!({"type": "object", "properties": {"n": {"type": kind}}});
    Skill::echo("tool").with("schema", schema("integer")).write(&operator.path("workspace/skills"));
    let file = json!({"agents": {"list": [{"id": "writer", "workspace": operator.path("workspace")}]}});
    let common = Skill::echo("tool").with("schema", schema("string"));
    let _node = fabric.node("host", &[common], &operator.node(file));
    let caller = Caller::of(&fabric);
    let (id, opened) = eventually("its own copy", SECONDS, || {
        let (id, opened) = caller.open_session("writer");
        (opened.skills.first()?.layer() == v1::Layer::Workspace).then_some((id, opened))
    });
    assert_eq!(keys(&opened), ["tool"]);
    // The words are typed as its own copy wants them.
    assert_eq!(fabric.call(&["tool", "--session", &id, "n=3"]), json!({"n": 3}));
    assert_eq!(fabric.call(&["tool", "n=3"]), json!({"n": "3"}));
    let (id, _) = caller.open_session("reader");
    assert_eq!(fabric.call(&["tool", "--session", &id, "n=3"]), json!({"n": "3"}));
}

#[test]
fn a_caller_that_opens_too_many_is_told_so_and_may_go_on_with_those_it_has() {
    let fabric = fabric();
    let _node = fabric.node("host", &[version(1)], &Spec::new());
    let caller = Caller::of(&fabric);
    let (first, _) = caller.open_session("a");
    for _ in 1..SESSIONS_PER_CALLER {
        caller.open_session("a");
    }
    let refusal = caller.wait(caller.client.open_session("b")).told();
    assert_eq!((refusal.code, refusal.reason.as_str()), (Code::ResourceExhausted, "QUOTA"));
    assert!(refusal.retry_after.is_some() && refusal.message.contains("close"), "{refusal:?}");
    assert_eq!(fabric.call(&["tool", "--session", &first]), json!({"v": 1}));
    caller.wait(caller.client.close_session(&first)).unwrap();
    caller.open_session("b");
}
