//! What the event log in memory costs one invocation: created, told of, read and ended.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use bytes::Bytes;
use divan::Bencher;
use futures::FutureExt as _;
use jiff::Timestamp;
use weft_core::{
    event::{Event, EventKind},
    ids::{Digest, InvocationId, SkillKey},
    invocation::{Invocation, Request, State},
    node::Target,
    outcome::{Final, Outcome},
    skill::Class,
};
use weft_store::{Memory, Store as _};

fn main() {
    divan::main();
}

fn invocation() -> Invocation {
    let args = Bytes::from_static(b"{}");
    let request = Request {
        caller: "local".parse().unwrap(),
        request_id: Some(InvocationId::generate().to_string().parse().unwrap()),
        agent: None,
        skill: SkillKey::normalise("echo").unwrap(),
        pinned: None,
        session: None,
        among: [].into(),
        args_digest: Digest::of(&args),
        args,
        target: Target::Any,
        budget: None,
        detach: false,
    };
    Invocation {
        id: InvocationId::generate(),
        request,
        class: Class::Safe,
        state: State::Routing,
        node: None,
        digest: None,
        attempts: 1,
        created: Timestamp::now(),
        finished: None,
        last_sequence: 0,
    }
}

/// With a log that is full of invocations that have ended, as it is in a coordinator that has run for a while.
#[divan::bench]
fn one_invocation(bencher: Bencher<'_, '_>) {
    let store = Memory::new(16 * 1024 * 1024);
    let one = || {
        let mut invocation = invocation();
        let mut event = |kind| {
            invocation.last_sequence += 1;
            Event { sequence: invocation.last_sequence, time: Timestamp::now(), kind }
        };
        let admitted =
            EventKind::Admitted { skill: SkillKey::normalise("echo").unwrap(), class: Class::Safe };
        let first = vec![event(admitted)];
        let started = vec![event(EventKind::Started { attempt: 1, pid: 1 })];
        let last = Box::new(Final::without_run(Outcome::Succeeded, ""));
        let finished = vec![event(EventKind::Finished(last))];
        drop(store.create(&invocation, first).unwrap());
        store.append(&invocation, started).unwrap().now_or_never().unwrap().unwrap();
        invocation.state = State::Finished { outcome: Outcome::Succeeded, resolved: false };
        store.append(&invocation, finished).unwrap().now_or_never().unwrap().unwrap();
        store.read(invocation.id, 0, 1 << 20).now_or_never().unwrap().unwrap().len()
    };
    for _ in 0..20_000 {
        one();
    }
    bencher.bench(one);
}
