//! What one merge of the catalog costs, by nodes and skills, and what the check of args costs a call.

#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use divan::{Bencher, black_box};
use weft_core::{
    advert::{Advert, Row, Scope},
    args::Args,
    catalog::{Catalog, Offer},
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
        let row = |(digest, definition): &(Digest, Arc<Definition>)| {
            Arc::new(Row {
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
            })
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

fn offers(adverts: &Adverts, definitions: &Definitions, ready: bool) -> Vec<Offer> {
    let definition = |digest: &Digest| definitions.get(digest).cloned();
    adverts.iter().map(|(_, advert)| Offer::of(advert, ready, definition, |_| true)).collect()
}

/// A whole fleet, node by node, into an empty catalog.
#[divan::bench(args = [(1, 100), (100, 50), (1000, 50)], max_time = 3)]
fn merge(bencher: Bencher<'_, '_>, (nodes, skills): (usize, usize)) {
    let (adverts, definitions) = fleet(nodes, skills);
    let offers = offers(&adverts, &definitions, true);
    bencher.bench(|| {
        let mut catalog = Catalog::default();
        for ((node, _), offer) in black_box(&adverts).iter().zip(&offers) {
            catalog.replace(node, &Offer::default(), offer);
        }
        catalog
    });
}

/// One node of a fleet goes, or comes back, while somebody looks at the catalog before.
#[divan::bench(args = [(100, 50), (1000, 50), (10_000, 20)], max_time = 3)]
fn flap(bencher: Bencher<'_, '_>, (nodes, skills): (usize, usize)) {
    let (adverts, definitions) = fleet(nodes, skills);
    let (up, down) = (offers(&adverts, &definitions, true), offers(&adverts, &definitions, false));
    let mut catalog = Catalog::default();
    for ((node, _), offer) in adverts.iter().zip(&up) {
        catalog.replace(node, &Offer::default(), offer);
    }
    let node = &adverts[nodes / 2].0;
    let (up, down) = (&up[nodes / 2], &down[nodes / 2]);
    bencher.bench_local(|| {
        let before = catalog.clone();
        catalog.replace(node, up, down);
        catalog.replace(node, down, up);
        before
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
