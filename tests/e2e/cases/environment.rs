//! A child's environment is its manifest's business alone.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};
use weft_core::outcome::{Exit, Outcome};
use weft_testkit::{Observed, request};

use super::{dump_env, echo_args, mk, observe, plain, stays_ready};
use crate::{fabric, runtime};

#[test]
fn s09_no_child_ever_sees_a_variable_of_another_skill() {
    let fabric = fabric();
    let skills = [
        dump_env("env_a").with("env_allow", json!(["A_TOKEN"])),
        dump_env("env_b").with("env_allow", json!(["B_TOKEN"])),
    ];
    let spec = plain().env("A_TOKEN", "aaa").env("B_TOKEN", "bbb").arg("--queue", "1000");
    let _node = fabric.node("host", &skills, &spec);
    let (succeeded, cancelled) = runtime().block_on(async {
        let client = fabric.client();
        let turns = Arc::new(Semaphore::new(16));
        let mut calls = JoinSet::new();
        for n in 0..400 {
            let (client, turns) = (client.clone(), turns.clone());
            calls.spawn(async move {
                let _turn = turns.acquire().await.unwrap();
                let (skill, expected) = [("env_a", "A_TOKEN=aaa"), ("env_b", "B_TOKEN=bbb")][n % 2];
                let mut request = request(skill, "{}");
                request.detach = true;
                let id = client.create(&request).await.unwrap().id.parse().unwrap();
                if n % 10 == 0 {
                    client.cancel(id).await.unwrap();
                }
                let seen = Observed::of(client.watch(id, 0)).await.unwrap();
                if seen.last().outcome == Outcome::Succeeded {
                    let result: Value = serde_json::from_slice(&seen.result()).unwrap();
                    assert_eq!(result, json!({"env": [expected]}), "call {n}");
                } else {
                    assert_eq!((seen.last().outcome, n % 10), (Outcome::Cancelled, 0), "{:?}", seen.last());
                }
                seen.last().outcome
            });
        }
        let outcomes = calls.join_all().await;
        let count = |outcome| outcomes.iter().filter(|one| **one == outcome).count();
        (count(Outcome::Succeeded), count(Outcome::Cancelled))
    });
    assert!(succeeded >= 360 && succeeded + cancelled == 400, "{succeeded} and {cancelled}");
    assert_eq!(fabric.call(&["env_a"]), json!({"env": ["A_TOKEN=aaa"]}));
}

#[test]
fn s10_a_program_that_cannot_be_found_says_which_and_why() {
    let fabric = fabric();
    let skills = [
        echo_args(),
        dump_env("bare"),
        dump_env("with_path").with("env_allow", json!(["PATH"])),
        mk("by_env", "#!/usr/bin/env weft_no_such_interp\n"),
        mk("by_path", "#!/weft/no/such/interp\n"),
        mk("headless", "echo '{}'\n"),
        mk("windows", "#!/bin/sh\r\necho {}\r\n"),
    ];
    let path = "/usr/local/bin:/usr/bin:/bin";
    let _node = fabric.node("host", &skills, &plain().env("PATH", path));
    assert_eq!(fabric.call(&["bare"]), json!({"env": []}));
    assert_eq!(fabric.call(&["with_path"]), json!({"env": [format!("PATH={path}")]}));

    let by_env = observe(&fabric, "by_env", "{}");
    assert_eq!((by_env.last().outcome, by_env.last().exit), (Outcome::Failed, Some(Exit::Code(127))));
    let stderr = String::from_utf8(by_env.stderr()).unwrap();
    assert!(stderr.contains("weft_no_such_interp"), "{stderr}");
    assert!(by_env.last().message.contains("PATH is not in env_allow"), "{}", by_env.last().message);

    for (skill, words) in [
        ("by_path", &["cannot start", "interpreter missing", "/weft/no/such/interp"][..]),
        ("windows", &["cannot start", "interpreter missing", r"/bin/sh\r", "carriage return"]),
        ("headless", &["cannot start", "not an executable format"]),
    ] {
        let seen = observe(&fabric, skill, "{}");
        let last = seen.last();
        assert_eq!((last.outcome, last.started), (Outcome::Failed, Some(false)), "{last:?}");
        for word in words {
            assert!(last.message.contains(word), "{skill}: no {word:?} in {:?}", last.message);
        }
    }
    stays_ready(&fabric);
}
