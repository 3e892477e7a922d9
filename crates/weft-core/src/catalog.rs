//! The merged catalog: what a whole fleet offers, as a pure function of the adverts.
//!
//! The same rows in any order give the same catalog. Layers rank copies within a node, which the node has done
//! already; across nodes a skill has *variants*, one for each digest, each with the nodes that provide it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    advert::{Advert, Row, Scope},
    ids::{Digest, NodeId, SkillKey},
    skill::{Class, Definition, Diagnostic},
};

/// All skills of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    /// The skills by key.
    pub skills: BTreeMap<SkillKey, Arc<Skill>>,
    /// What did not load, per node, for those skills whose name could be read.
    pub invalid: BTreeMap<SkillKey, Vec<(NodeId, Diagnostic)>>,
}

/// One skill and its variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The key.
    pub key: SkillKey,
    /// At least one; the first is the one shown: it has the most eligible providers, then the lowest digest.
    pub variants: Vec<Variant>,
    /// The variants take different args.
    pub schema_conflict: bool,
    /// Copies that another copy on the same node wins over.
    pub shadowed: Vec<(NodeId, Row)>,
}

/// One definition of a skill with one set of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// The digest of the files.
    pub digest: Digest,
    /// The digest of the encoded definition.
    pub definition_digest: Digest,
    /// What the manifest says.
    pub definition: Arc<Definition>,
    /// The nodes that have these files, by id.
    pub providers: BTreeMap<NodeId, Row>,
}

impl Variant {
    /// The nodes whose gates all hold.
    pub fn eligible(&self) -> impl Iterator<Item = &NodeId> {
        self.providers.iter().filter(|(_, row)| row.eligible()).map(|(node, _)| node)
    }

    fn rank(&self) -> (std::cmp::Reverse<usize>, Digest, Digest) {
        (std::cmp::Reverse(self.eligible().count()), self.digest, self.definition_digest)
    }
}

impl Skill {
    /// The variant that catalogs show.
    pub fn shown(&self) -> &Variant {
        &self.variants[0]
    }

    /// The variant that a node provides.
    pub fn on_node(&self, node: &NodeId) -> Option<(&Variant, &Row)> {
        self.variants.iter().find_map(|variant| Some((variant, variant.providers.get(node)?)))
    }

    /// The class that the policy judges when this variant is to be run: never lower than any the operator
    /// accepted for the key.
    pub fn class_of(&self, variant: &Variant, accepted: Option<Class>) -> Class {
        accepted.map_or(variant.definition.class, |accepted| accepted.max(variant.definition.class))
    }
}

/// Merges the adverts of all nodes that are listed. A row whose definition has not arrived yet, or speaks of
/// another key, is left out.
pub fn merge<'a>(
    adverts: impl IntoIterator<Item = (&'a NodeId, &'a Advert)>,
    definitions: &HashMap<Digest, Arc<Definition>>,
) -> Catalog {
    let mut rows: BTreeMap<SkillKey, Vec<(&NodeId, &Row)>> = BTreeMap::new();
    let mut invalid: BTreeMap<SkillKey, Vec<(NodeId, Diagnostic)>> = BTreeMap::new();
    for (node, advert) in adverts {
        for row in &advert.rows {
            rows.entry(row.key.clone()).or_default().push((node, row));
        }
        for diagnostic in &advert.diagnostics {
            if let (Some(key), crate::skill::Severity::Error) = (&diagnostic.key, diagnostic.severity) {
                invalid.entry(key.clone()).or_default().push((node.clone(), diagnostic.clone()));
            }
        }
    }
    for list in invalid.values_mut() {
        list.sort_by(|(a, x), (b, y)| (a, &x.path, x.line, &x.rule).cmp(&(b, &y.path, y.line, &y.rule)));
    }
    let skills = rows
        .into_iter()
        .filter_map(|(key, rows)| Some((key.clone(), Arc::new(merge_key(key, &rows, definitions)?))))
        .collect();
    Catalog { skills, invalid }
}

/// Merges the rows of one key; `None` when no row counts.
fn merge_key(
    key: SkillKey,
    rows: &[(&NodeId, &Row)],
    definitions: &HashMap<Digest, Arc<Definition>>,
) -> Option<Skill> {
    // A node offers a key once. If a broken one repeats itself, the row that sorts first counts.
    let mut offers: BTreeMap<&NodeId, (&Row, &Arc<Definition>)> = BTreeMap::new();
    let mut shadowed = Vec::new();
    for &(node, row) in rows {
        let Some(definition) = definitions.get(&row.definition).filter(|definition| definition.key == key)
        else {
            continue;
        };
        if row.scope != Scope::All {
            continue;
        }
        if row.shadowed_by.is_some() {
            shadowed.push((node.clone(), row.clone()));
            continue;
        }
        let offer = offers.entry(node).or_insert((row, definition));
        if row < offer.0 {
            *offer = (row, definition);
        }
    }
    let mut variants: BTreeMap<(Digest, Digest), Variant> = BTreeMap::new();
    for (node, (row, definition)) in offers {
        let variant = variants.entry((row.digest, row.definition)).or_insert_with(|| Variant {
            digest: row.digest,
            definition_digest: row.definition,
            definition: definition.clone(),
            providers: BTreeMap::new(),
        });
        variant.providers.insert(node.clone(), row.clone());
    }
    let mut variants: Vec<_> = variants.into_values().collect();
    variants.sort_by_key(Variant::rank);
    shadowed.sort();
    let first = variants.first()?;
    let schema_conflict = variants.iter().any(|variant| variant.definition.schema != first.definition.schema);
    Some(Skill { key, schema_conflict, variants, shadowed })
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;
    use crate::skill::{Gate, Kind, Layer, Severity, Verdict};

    fn definition(key: &str, variant: u8) -> Definition {
        let mut definition = Definition::new(SkillKey::normalise(key).unwrap(), Kind::Executable);
        definition.description = format!("variant {variant}");
        definition.schema = if variant > 1 { r#"{"type":"object"}"#.into() } else { "{}".into() };
        definition
    }

    fn row(key: &str, variant: u8, eligible: bool, shadowed: bool) -> Row {
        Row {
            scope: Scope::All,
            key: SkillKey::normalise(key).unwrap(),
            layer: Layer::Managed,
            path: format!("/skills/{key}/{variant}"),
            digest: Digest::of(&[variant]),
            partial: false,
            definition: definition_digest(key, variant),
            verdicts: vec![Verdict {
                gate: Gate::Bin,
                subject: "x".into(),
                passed: eligible,
                reason: String::new(),
            }],
            shadowed_by: shadowed.then(|| "/other".into()),
        }
    }

    fn definition_digest(key: &str, variant: u8) -> Digest {
        Digest::of(format!("{key}{variant}").as_bytes())
    }

    fn definitions() -> HashMap<Digest, Arc<Definition>> {
        ["a", "b", "c"]
            .into_iter()
            .flat_map(|key| (0..3).map(move |v| (definition_digest(key, v), Arc::new(definition(key, v)))))
            .collect()
    }

    fn fleet() -> impl Strategy<Value = Vec<(NodeId, Advert)>> {
        let row = (0..3usize, 0..3u8, any::<bool>(), any::<bool>()).prop_map(
            |(key, variant, eligible, shadowed)| row(["a", "b", "c"][key], variant, eligible, shadowed),
        );
        let rows = prop::collection::vec(row, 0..6);
        prop::collection::vec(rows, 0..6).prop_map(|nodes| {
            nodes
                .into_iter()
                .enumerate()
                .map(|(index, rows)| {
                    let node = format!("n{index}").parse().unwrap();
                    (node, Advert { revision: 1, rows, diagnostics: vec![] })
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn the_catalog_does_not_depend_on_the_order_of_rows_or_adverts(fleet in fleet(), seed in any::<u64>()) {
            let definitions = definitions();
            let one = merge(fleet.iter().map(|(node, advert)| (node, advert)), &definitions);
            let mut shuffled = fleet;
            let turn = |len: usize| if len == 0 { 0 } else { (seed % len as u64) as usize };
            for (_, advert) in &mut shuffled {
                let by = turn(advert.rows.len());
                advert.rows.rotate_left(by);
                advert.rows.reverse();
            }
            let by = turn(shuffled.len());
            shuffled.rotate_left(by);
            let other = merge(shuffled.iter().map(|(node, advert)| (node, advert)), &definitions);
            prop_assert_eq!(one, other);
        }

        #[test]
        fn the_shown_variant_has_the_most_eligible_providers(fleet in fleet()) {
            let catalog = merge(fleet.iter().map(|(node, advert)| (node, advert)), &definitions());
            for skill in catalog.skills.values() {
                let most = skill.variants.iter().map(|variant| variant.eligible().count()).max();
                prop_assert_eq!(Some(skill.shown().eligible().count()), most);
            }
        }
    }

    #[test]
    fn a_row_without_its_definition_is_not_shown_yet() {
        let advert = Advert { revision: 1, rows: vec![row("a", 0, true, false)], diagnostics: vec![] };
        let node = "n".parse().unwrap();
        assert!(merge([(&node, &advert)], &HashMap::new()).skills.is_empty());
        let lying = HashMap::from([(definition_digest("a", 0), Arc::new(definition("b", 0)))]);
        assert!(merge([(&node, &advert)], &lying).skills.is_empty());
    }

    #[test]
    fn a_skill_that_does_not_load_is_remembered_as_invalid() {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            path: "/skills/a/skill.json".into(),
            line: Some(3),
            rule: "class".into(),
            message: "no".into(),
            key: Some(SkillKey::normalise("a").unwrap()),
        };
        let advert = Advert { revision: 1, rows: vec![], diagnostics: vec![diagnostic] };
        let node = "n".parse().unwrap();
        assert_eq!(merge([(&node, &advert)], &HashMap::new()).invalid.len(), 1);
    }
}
