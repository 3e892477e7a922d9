//! What simulated nodes offer: the same skills everywhere, with other files here and there, and a program that some
//! nodes lack.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use weft_core::{
    advert::{Advert, Row, Scope},
    ids::{Digest, SkillKey},
    skill::{Definition, Gate, Kind, Layer, Verdict},
};
use weft_proto::{convert::encode_definition, link};

/// One copy in so many has other files.
const OTHER_FILES: usize = 100;
/// One node in so many lacks the program that every third skill needs.
const LACKING: usize = 20;

/// Everything that the nodes of a fleet offer.
pub(crate) struct Offer {
    /// For each skill: the row of a node that has all it needs, of one that lacks a program, and both with other files.
    rows: Vec<[link::AdvertRow; 4]>,
    definitions: HashMap<Digest, Bytes>,
}

/// The key of a skill.
pub(crate) fn key(skill: usize) -> String {
    format!("skill_{skill:03}")
}

impl Offer {
    pub(crate) fn new(skills: usize) -> Self {
        let mut definitions = HashMap::new();
        let rows = (0..skills)
            .map(|skill| {
                let mut define = |version| {
                    let (bytes, digest) = encode_definition(&definition(skill, version));
                    definitions.insert(digest, bytes);
                    digest
                };
                let (usual, other) = (define("1.0"), define("1.1"));
                [(usual, true), (usual, false), (other, true), (other, false)]
                    .map(|(definition, complete)| row(skill, definition, complete))
            })
            .collect();
        Self { rows, definitions }
    }

    /// What one node offers.
    pub(crate) fn advert(&self, node: usize) -> link::Advert {
        let rows = self.rows.iter().enumerate().map(|(skill, rows)| {
            rows[usize::from(is_lacking(node)) + 2 * usize::from(has_other_files(node, skill))].clone()
        });
        link::Advert { revision: 1, rows: rows.collect(), diagnostics: vec![] }
    }

    /// The definitions that a coordinator asks for.
    pub(crate) fn definitions(&self, asked: &[Bytes]) -> link::Definitions {
        let digest = |bytes: &Bytes| Digest::from_bytes(bytes[..].try_into().unwrap());
        link::Definitions {
            definitions: asked.iter().map(|it| self.definitions[&digest(it)].clone()).collect(),
        }
    }
}

/// How many of so many nodes can run the usual files of a skill.
pub(crate) fn able(nodes: usize, skill: usize) -> usize {
    let complete = |node| !(needs_program(skill) && is_lacking(node));
    (0..nodes).filter(|node| complete(*node) && !has_other_files(*node, skill)).count()
}

fn has_other_files(node: usize, skill: usize) -> bool {
    (node + skill * 7) % OTHER_FILES == OTHER_FILES - 1
}

fn is_lacking(node: usize) -> bool {
    node % LACKING == LACKING - 1
}

fn needs_program(skill: usize) -> bool {
    skill.is_multiple_of(3)
}

fn definition(skill: usize, version: &str) -> Definition {
    let mut definition = Definition::new(SkillKey::normalise(&key(skill)).unwrap(), Kind::Executable);
    definition.description = format!(
        "Looks at one thing of a host, number {skill}, and says what it found: sizes, counts and the oldest entry. \
         Use it before anything is changed there, and again afterwards to see what became of it."
    );
    definition.schema = r#"{"type":"object","properties":{"path":{"type":"string"},"top":{"type":"integer",
        "minimum":1,"maximum":1000},"unit":{"enum":["bytes","KiB","MiB"]}},"required":["path"],
        "additionalProperties":false}"#
        .into();
    definition.version = version.into();
    definition.instructions = "A paragraph about how the result is to be read.\n".repeat(30);
    definition
}

fn row(skill: usize, definition: Digest, complete: bool) -> link::AdvertRow {
    let verdict = |gate, subject: &str, passed, reason: &str| Verdict {
        gate,
        subject: subject.into(),
        passed,
        reason: reason.into(),
    };
    let mut verdicts = vec![
        verdict(Gate::Os, "linux", true, "this host runs linux"),
        verdict(Gate::Bin, "python3", true, "found at /usr/bin/python3"),
    ];
    if needs_program(skill) {
        let reason =
            if complete { "found at /usr/bin/jq" } else { "jq is not in the skill PATH /usr/bin:/bin" };
        verdicts.push(verdict(Gate::Bin, "jq", complete, reason));
    }
    let row = Row {
        scope: Scope::All,
        key: SkillKey::normalise(&key(skill)).unwrap(),
        layer: Layer::Managed,
        path: format!("/srv/weft/skills/{}", key(skill)),
        // Other files, other definition: of that, its digest is as good as any.
        digest: Digest::of(definition.as_bytes()),
        partial: false,
        definition,
        verdicts,
        shadowed_by: None,
    };
    let advert = Advert { revision: 1, rows: vec![Arc::new(row)], diagnostics: vec![] };
    link::Advert::from(&advert).rows.remove(0)
}
