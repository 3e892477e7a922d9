//! A node that lies, breaks rules or keeps silent harms nobody but itself.

use std::time::Duration;

use weft_core::skill::Class;
use weft_proto::{
    link::{self, connect_request::Message, connect_response::Message as Response, node_event},
    v1::{self, Outcome},
};
use weft_testkit::{
    Fabric, Skill, Spec, StubNode, eventually,
    stub_node::{begun, definition, finished, hello},
};

use crate::{WEFT, fabric, request, runtime};

const SOON: Duration = Duration::from_secs(20);

/// Waits until a skill is offered by so many nodes.
fn offered(fabric: &Fabric, skill: &str, nodes: u64) {
    eventually("the skill in the catalog", SOON, || {
        (fabric.json(&["skills", skill])?["nodes"].as_u64()? >= nodes).then_some(())
    });
}

fn state(fabric: &Fabric, id: &str) -> String {
    let listed = fabric.json(&["invocations"]).unwrap();
    let one = listed.as_array().unwrap().iter().find(|one| one["id"] == id).unwrap().clone();
    format!("{} {}", one["state"].as_str().unwrap(), one["outcome"].as_str().unwrap())
}

fn ended(fabric: &Fabric, id: &str, outcome: &str) {
    let expected = format!("INVOCATION_STATE_FINISHED OUTCOME_{outcome}");
    eventually(&expected, SOON, || (state(fabric, id) == expected).then_some(()));
}

#[test]
fn a_skill_that_started_is_never_started_again_on_a_nodes_word() {
    let fabric = Fabric::start(WEFT, &["--allow", "mutating"]);
    runtime().block_on(async {
        let mut first = StubNode::connect(fabric.address(), hello("first")).await.unwrap();
        first.offer(&[definition("change", Class::Mutating)]).await;
        offered(&fabric, "change", 1);
        let id = fabric.client().create(&request("change", "{}")).await.unwrap().id;
        let dispatch = first.dispatch().await;
        // Another node stands ready to start it a second time.
        let second = StubNode::connect(fabric.address(), hello("second")).await.unwrap();
        second.send(Message::Advert(first_advert())).await;
        let mut news = begun(1);
        news.push(finished(Outcome::NotStarted, None));
        first.tell(&dispatch, 1, news).await;
        ended(&fabric, &id, "UNKNOWN");
    });

    fn first_advert() -> link::Advert {
        use weft_core::advert::{Advert, Row, Scope};
        use weft_core::{ids::Digest, skill::Layer};
        let definition = definition("change", Class::Mutating);
        let row = Row {
            scope: Scope::All,
            key: definition.key.clone(),
            layer: Layer::Managed,
            path: "/stub".into(),
            digest: Digest::of(b"change"),
            partial: false,
            definition: weft_proto::convert::encode_definition(&definition).1,
            verdicts: vec![],
            shadowed_by: None,
        };
        (&Advert { revision: 1, rows: vec![row.into()], diagnostics: vec![] }).into()
    }
}

#[test]
fn what_provably_never_started_goes_to_another_node() {
    let fabric = Fabric::start(WEFT, &["--allow", "mutating"]);
    runtime().block_on(async {
        let mut refuser = StubNode::connect(fabric.address(), hello("refuser")).await.unwrap();
        refuser.offer(&[definition("change", Class::Mutating)]).await;
        offered(&fabric, "change", 1);
        let id = fabric.client().create(&request("change", "{}")).await.unwrap().id;
        let dispatch = refuser.dispatch().await;
        refuser.tell(&dispatch, 1, vec![finished(Outcome::NotStarted, None)]).await;
        // There is no other, so it ends, and says that it never started.
        ended(&fabric, &id, "NOT_STARTED");
        assert_eq!(fabric.weft(&["watch", &id]).code, 3);
    });
}

#[test]
fn a_result_that_is_none_is_not_passed_on() {
    let fabric = fabric();
    runtime().block_on(async {
        let mut node = StubNode::connect(fabric.address(), hello("liar")).await.unwrap();
        node.offer(&[definition("lie", Class::Safe)]).await;
        offered(&fabric, "lie", 1);
        let id = fabric.client().create(&request("lie", "{}")).await.unwrap().id;
        let dispatch = node.dispatch().await;
        let mut news = begun(1);
        news.push(finished(Outcome::Succeeded, Some(b"not json at all")));
        node.tell(&dispatch, 1, news).await;
        ended(&fabric, &id, "INVALID_OUTPUT");
        assert_eq!(fabric.weft(&["watch", &id]).stdout, "");
    });
}

#[test]
fn a_cancel_of_what_never_arrived_ends_it() {
    let fabric = fabric();
    runtime().block_on(async {
        let mut node = StubNode::connect(fabric.address(), hello("silent")).await.unwrap();
        node.offer(&[definition("wait", Class::Safe)]).await;
        offered(&fabric, "wait", 1);
        let id = fabric.client().create(&request("wait", "{}")).await.unwrap().id;
        node.dispatch().await;
        assert_eq!(fabric.weft(&["cancel", &id]).code, 0);
        let Some(Response::Cancel(cancel)) = node.next().await else { panic!("no cancel") };
        node.send(Message::CancelAcknowledged(link::CancelAcknowledged {
            invocation_id: cancel.invocation_id,
            attempt: cancel.attempt,
            in_hand: false,
        }))
        .await;
        ended(&fabric, &id, "CANCELLED");
    });
}

#[test]
fn news_of_another_nodes_attempt_change_nothing() {
    let fabric = fabric();
    runtime().block_on(async {
        let mut owner = StubNode::connect(fabric.address(), hello("owner")).await.unwrap();
        owner.offer(&[definition("work", Class::Safe)]).await;
        offered(&fabric, "work", 1);
        let thief = StubNode::connect(fabric.address(), hello("thief")).await.unwrap();
        let id = fabric.client().create(&request("work", "{}")).await.unwrap().id;
        let dispatch = owner.dispatch().await;
        thief.tell(&dispatch, 1, vec![finished(Outcome::Succeeded, Some(b"{\"from\":\"thief\"}"))]).await;
        let mut news = begun(1);
        news.push(finished(Outcome::Succeeded, Some(b"{\"from\":\"owner\"}")));
        owner.tell(&dispatch, 1, news).await;
        ended(&fabric, &id, "SUCCEEDED");
        assert_eq!(fabric.weft(&["watch", &id]).stdout, r#"{"from":"owner"}"#);
    });
}

#[test]
fn a_result_and_an_immediate_half_close_is_a_result() {
    let fabric = fabric();
    runtime().block_on(async {
        for round in 0..20 {
            let mut node = StubNode::connect(fabric.address(), hello("hasty")).await.unwrap();
            if round == 0 {
                node.offer(&[definition("hasty", Class::Safe)]).await;
            } else {
                node.send(Message::Heartbeat(link::Heartbeat::default())).await;
            }
            offered(&fabric, "hasty", 1);
            let id = eventually("a session that takes it", SOON, || {
                let created = fabric.weft(&["call", "hasty", "--detach"]);
                (created.code == 0).then(|| created.stdout.trim().to_owned())
            });
            let dispatch = node.dispatch().await;
            let mut news = begun(1);
            news.push(finished(Outcome::Succeeded, Some(b"{}")));
            node.tell(&dispatch, 1, news).await;
            node.half_close().await;
            ended(&fabric, &id, "SUCCEEDED");
        }
    });
}

#[test]
fn absurd_hellos_are_refused_or_bounded_and_others_go_on() {
    let fabric = fabric();
    runtime().block_on(async {
        let far = link::Hello { previous_epoch: u64::MAX, ..hello("far") };
        StubNode::connect(fabric.address(), far).await.unwrap();
        let skew = link::ProtocolVersions { current: 99, oldest: 98 };
        let refused =
            StubNode::connect(fabric.address(), link::Hello { protocol: Some(skew), ..hello("new") }).await;
        assert!(refused.err().unwrap().message().contains("98 to 99"));
        let refused =
            StubNode::connect(fabric.address(), link::Hello { node_id: "../x".into(), ..hello("x") }).await;
        assert!(refused.err().unwrap().message().contains("node_id"));
    });
    let _node = fabric.node("host", &[Skill::echo("echo")], &Spec::new());
    assert_eq!(fabric.weft(&["call", "echo"]).code, 0);
}

#[test]
fn a_hostile_definition_is_refused_and_said_where_people_look() {
    let fabric = fabric();
    runtime().block_on(async {
        let mut node = StubNode::connect(fabric.address(), hello("hostile")).await.unwrap();
        let mut bad = definition("bad", Class::Safe);
        bad.schema = r#"{"$ref":"http://example.invalid/x"}"#.into();
        node.offer(&[bad, definition("good", Class::Safe)]).await;
        offered(&fabric, "good", 1);
        let why = eventually("the refusal", SOON, || {
            let why = fabric.weft(&["why", "bad"]);
            why.stdout.contains("refused the definition").then_some(why)
        });
        assert_eq!(why.code, 3);
        assert!(fabric.weft(&["call", "bad"]).stderr.contains("SKILL_INVALID"));
    });
}

#[test]
fn a_node_that_sends_more_than_its_credit_is_sent_away() {
    let fabric = fabric();
    runtime().block_on(async {
        let mut flooding = StubNode::connect(fabric.address(), hello("flooding")).await.unwrap();
        flooding.offer(&[definition("look", Class::Safe)]).await;
        offered(&fabric, "look", 1);
        fabric.client().create(&request("look", "{}")).await.unwrap();
        let dispatch = flooding.dispatch().await;
        let data = bytes::Bytes::from(vec![b'x'; 60 * 1024]);
        let piece =
            |n: u64| node_event::Event::Stderr(v1::Stderr { offset: n * 60 * 1024, data: data.clone() });
        let flood = begun(1).into_iter().chain((0..10).map(piece)).collect();
        flooding.tell(&dispatch, 1, flood).await;
        let told = loop {
            if let Response::Goodbye(goodbye) = flooding.next().await.expect("a goodbye") {
                break goodbye;
            }
        };
        assert_eq!(told.reason(), link::goodbye::Reason::Refused);
        assert!(told.message.contains("credit"), "{}", told.message);
    });
}
