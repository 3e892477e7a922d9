//! What one merge of the catalog costs, by nodes and skills, and what the check of args costs a call.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use divan::{Bencher, black_box};
use weft_core::{
    advert::{Advert, Row, Scope},
    args::Args,
    catalog,
    ids::{Digest, NodeId, SkillKey},
    schema::Schema,
    skill::{Definition, Gate, Kind, Layer, Verdict},
};

fn main() {
    divan::main();
}

type Adverts = Vec<(NodeId, Advert)>;
type Definitions = HashMap<Digest, Arc<Definition>>;

/// The adverts of so many nodes that all offer the same skills, and the definitions that they name.
fn fleet(nodes: usize, skills: usize) -> (Adverts, Definitions) {
    let definitions: Vec<(Digest, Arc<Definition>)> = (0..skills)
        .map(|skill| {
            let key = SkillKey::normalise(&format!("skill_{skill}")).unwrap();
            (Digest::of(key.as_str().as_bytes()), Arc::new(Definition::new(key, Kind::Executable)))
        })
        .collect();
    let rows = |definitions: &[(Digest, Arc<Definition>)]| {
        let row = |(digest, definition): &(Digest, Arc<Definition>)| Row {
            scope: Scope::All,
            key: definition.key.clone(),
            layer: Layer::Managed,
            path: format!("/srv/skills/{}", definition.key),
            digest: *digest,
            partial: false,
            definition: *digest,
            verdicts: vec![Verdict {
                gate: Gate::Bin,
                subject: "curl".into(),
                passed: true,
                reason: "found at /usr/bin/curl".into(),
            }],
            shadowed_by: None,
        };
        definitions.iter().map(row).collect()
    };
    let adverts = (0..nodes)
        .map(|node| {
            let advert = Advert { revision: 1, rows: rows(&definitions), diagnostics: vec![] };
            (format!("n-{node:032x}").parse().unwrap(), advert)
        })
        .collect();
    (adverts, definitions.into_iter().collect())
}

#[divan::bench(args = [(1, 100), (100, 50), (1000, 50)], max_time = 3)]
fn merge(bencher: Bencher<'_, '_>, (nodes, skills): (usize, usize)) {
    let (adverts, definitions) = fleet(nodes, skills);
    bencher.bench(|| {
        catalog::merge(black_box(&adverts).iter().map(|(node, advert)| (node, advert)), &definitions)
    });
}

#[divan::bench]
fn args(bencher: Bencher<'_, '_>) {
    let schema = r#"{"type":"object","properties":{"path":{"type":"string"},"top":{"type":"integer","minimum":1}},
                     "required":["path"],"additionalProperties":false}"#;
    let schema = Schema::compile(schema).unwrap();
    let bytes = Bytes::from_static(br#"{"path":"/var/log","top":10}"#);
    bencher.bench(|| Args::parse(black_box(&bytes).clone()).unwrap().validate(&schema).unwrap());
}
