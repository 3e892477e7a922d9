//! What the messages of a link cost: an advert, and the news of one invocation, each from one side to the other.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use bytes::Bytes;
use divan::{Bencher, black_box};
use prost::Message as _;
use weft_core::{
    advert::{Advert, Row, Scope},
    event::{EventKind, News},
    ids::{Digest, InvocationId, SkillKey},
    outcome::{Final, Outcome, ResultBody},
    skill::{Gate, Layer, Verdict},
};
use weft_proto::{convert, link};

fn main() {
    divan::main();
}

fn row(skill: usize) -> Row {
    Row {
        scope: Scope::All,
        key: SkillKey::normalise(&format!("skill_{skill}")).unwrap(),
        layer: Layer::Managed,
        path: format!("/srv/skills/skill_{skill}"),
        digest: Digest::of(&skill.to_le_bytes()),
        partial: false,
        definition: Digest::of(&skill.to_le_bytes()),
        verdicts: vec![Verdict {
            gate: Gate::Bin,
            subject: "curl".into(),
            passed: true,
            reason: "found at /usr/bin/curl".into(),
        }],
        shadowed_by: None,
    }
}

#[divan::bench(args = [10, 100, 1000])]
fn advert(bencher: Bencher<'_, '_>, skills: usize) {
    let advert =
        Advert { revision: 1, rows: (0..skills).map(row).map(Into::into).collect(), diagnostics: vec![] };
    bencher.bench(|| {
        let bytes = Bytes::from(link::Advert::from(black_box(&advert)).encode_to_vec());
        Advert::try_from(link::Advert::decode(bytes).unwrap()).unwrap()
    });
}

/// Accepted, started and finished with a small result: what most invocations say.
#[divan::bench]
fn news(bencher: Bencher<'_, '_>) {
    let invocation = InvocationId::generate();
    let last = Final {
        started: Some(true),
        result: ResultBody::Inline(Bytes::from_static(br#"{"ok":true}"#)),
        ..Final::without_run(Outcome::Succeeded, "")
    };
    let told = [
        News::Accepted { queued_before: 0 },
        News::Event(EventKind::Started { attempt: 1, pid: 4242 }),
        News::Event(EventKind::Finished(Box::new(last))),
    ];
    bencher.bench(|| {
        let events = black_box(&told)
            .iter()
            .zip(1..)
            .map(|(news, node_sequence)| link::NodeEvent {
                invocation_id: invocation.to_string(),
                attempt: 1,
                node_sequence,
                time: Some(convert::timestamp_to_wire(jiff::Timestamp::now())),
                event: Some(news.into()),
            })
            .collect();
        let bytes = Bytes::from(link::NodeEvents { events }.encode_to_vec());
        for event in link::NodeEvents::decode(bytes).unwrap().events {
            let _: InvocationId = event.invocation_id.parse().unwrap();
            black_box(convert::news_from_wire(event.event).unwrap());
        }
    });
}
