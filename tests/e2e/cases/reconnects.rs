//! A node that ends its connection right behind a result.

use std::time::Duration;

use weft_client::Client;
use weft_core::{ids::InvocationId, skill::Class};
use weft_proto::{
    link, v1,
    v1::{InvocationState, Outcome},
};
use weft_testkit::{
    End, Fabric, Proxy, StubNode, request,
    stub_node::{begun, definition, finished, hello},
};

use crate::{WEFT, runtime};

const SOON: Duration = Duration::from_secs(20);
const ROUNDS: usize = 50;
/// What has arrived is read within this time.
const READ: Duration = Duration::from_secs(3);
/// Bytes that nothing but the result holds.
const RESULT: &[u8] = br#"{"the":"result-of-this-round"}"#;
const MARKER: &[u8] = b"result-of-this-round";

/// Creates an invocation as soon as a session takes it.
async fn create(client: &Client) -> InvocationId {
    let mut wanted = request("hasty", "{}");
    wanted.detach = true;
    let begun = std::time::Instant::now();
    loop {
        match client.create(&wanted).await {
            Ok(created) => return created.id.parse().unwrap(),
            Err(error) if begun.elapsed() < SOON => {
                assert!(
                    matches!(error.reason(), Some("SKILL_NOT_FOUND" | "NODE_OFFLINE" | "NO_ELIGIBLE_NODE")),
                    "{error}"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("no session takes it: {error}"),
        }
    }
}

/// Waits for the end of an invocation; returns what it is when it has none in time.
async fn settled(client: &Client, id: InvocationId, most: Duration) -> v1::Invocation {
    let begun = std::time::Instant::now();
    loop {
        let invocation = client.get(id).await.unwrap();
        if invocation.state() == InvocationState::Finished || begun.elapsed() > most {
            return invocation;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A session of the node, in the given life of its journal.
async fn session(address: &str, life: usize, first: bool) -> StubNode {
    let hello = link::Hello { journal_id: format!("journal-{life}"), ..hello("hasty") };
    let mut node = StubNode::connect(address, hello).await.unwrap();
    if first {
        node.offer(&[definition("hasty", Class::Mutating)]).await;
    } else {
        // It offers what it offered before.
        node.advertise(&[definition("hasty", Class::Mutating)]).await;
    }
    node
}

fn news() -> Vec<link::node_event::Event> {
    let mut news = begun(1);
    news.push(finished(Outcome::Succeeded, Some(RESULT)));
    news
}

fn mutating() -> Fabric {
    Fabric::start(WEFT, &["--allow", "mutating"])
}

#[test]
fn s21_a_result_before_a_half_close_is_a_result() {
    let fabric = mutating();
    runtime().block_on(async {
        let client = fabric.client();
        for round in 0..ROUNDS {
            let mut node = session(fabric.address(), 0, round == 0).await;
            let id = create(&client).await;
            let dispatch = node.dispatch().await;
            node.tell(&dispatch, 1, news()).await;
            node.half_close().await;
            let invocation = settled(&client, id, SOON).await;
            assert_eq!((invocation.outcome(), invocation.attempts), (Outcome::Succeeded, 1), "round {round}");
        }
    });
}

/// Rounds in which the node's connection ends right behind the bytes of its result.
fn rounds(end: End) -> Vec<v1::Invocation> {
    let fabric = mutating();
    let proxy = Proxy::ending(fabric.address(), MARKER, end);
    runtime().block_on(async {
        let client = fabric.client();
        let mut all = Vec::new();
        for round in 0..ROUNDS {
            // Each life has a journal of its own, so that it can say nothing of the one before.
            let mut node = session(&proxy.address(), round, round == 0).await;
            let id = create(&client).await;
            let dispatch = node.dispatch().await;
            assert_eq!(dispatch.invocation_id, id.to_string(), "a second dispatch of an earlier round");
            node.tell(&dispatch, 1, news()).await;
            while node.next().await.is_some() {}
            // A result that was read needs no further session; one that was not is settled by the next hello.
            let known = settled(&client, id, READ).await;
            let read = known.outcome() == Outcome::Succeeded && known.attempts == 1;
            assert!(read || end == End::Reset, "{end:?}, round {round}: {known:?}");
            all.push(id);
        }
        let _last = session(&proxy.address(), ROUNDS, false).await;
        let mut invocations = Vec::new();
        for id in all {
            invocations.push(settled(&client, id, SOON).await);
        }
        invocations
    })
}

#[test]
fn s21_a_result_before_a_close_is_a_result() {
    for end in [End::HalfClose, End::Close] {
        assert!(rounds(end).iter().all(|one| (one.outcome(), one.attempts) == (Outcome::Succeeded, 1)));
    }
}

#[test]
fn s21_a_result_before_a_reset_is_a_result_or_unknown_and_never_a_second_run() {
    let outcomes: Vec<_> = rounds(End::Reset).into_iter().map(|one| (one.outcome(), one.attempts)).collect();
    let known = outcomes.iter().filter(|outcome| **outcome == (Outcome::Succeeded, 1)).count();
    let unknown = outcomes.iter().filter(|outcome| **outcome == (Outcome::Unknown, 1)).count();
    assert_eq!(known + unknown, ROUNDS, "{outcomes:?}");
    // The bytes were acknowledged, so the coordinator has read them nearly always.
    assert!(known > 0, "{outcomes:?}");
}
