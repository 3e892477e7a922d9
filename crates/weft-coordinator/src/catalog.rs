//! The catalog as it stands: the adverts of listed nodes, their definitions, and the merge of both.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::Notify;
use weft_core::{
    advert::{Advert, Row},
    catalog::{self, Catalog, Skill, Variant},
    ids::{Digest, NodeId, SkillKey},
    schema::Schema,
    skill::{Class, Definition, Diagnostic, Kind, Severity},
};
use weft_proto::convert::{Malformed, decode_definition};

/// Shortest time between two merges: a burst of adverts costs one.
const MERGE_PAUSE: Duration = Duration::from_millis(20);

/// A definition and what calls need of it, worked out once.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) definition: Arc<Definition>,
    pub(crate) schema: Schema,
}

/// The merged catalog, and the compiled definitions that it names.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    catalog: Catalog,
    compiled: HashMap<Digest, Arc<Compiled>>,
}

impl Merged {
    /// The compiled definition of a variant of this catalog.
    pub(crate) fn compiled(&self, variant: &Variant) -> Option<&Arc<Compiled>> {
        self.compiled.get(&variant.definition_digest)
    }
}

impl std::ops::Deref for Merged {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        &self.catalog
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    merged: ArcSwap<Merged>,
    changed: Notify,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    offers: HashMap<NodeId, Offer>,
    definitions: HashMap<Digest, Arc<Compiled>>,
    /// The class under which each skill was first seen: a node cannot lower it later, also not by withdrawing the
    /// skill for a moment.
    accepted: HashMap<SkillKey, Class>,
}

/// What one node offers.
#[derive(Debug)]
struct Offer {
    /// The session that it was told in.
    epoch: u64,
    advert: Arc<Advert>,
    /// Rows of the advert before, for keys whose new definition has not arrived: a changed skill does not vanish
    /// while its definition is on its way.
    previous: HashMap<SkillKey, Row>,
    /// Definitions that were asked of the node.
    asked: HashSet<Digest>,
}

impl Offer {
    /// The advert as far as its definitions are known.
    fn effective(&self, definitions: &HashMap<Digest, Arc<Compiled>>) -> Arc<Advert> {
        if self.asked.is_empty() || self.previous.is_empty() {
            return self.advert.clone();
        }
        let mut advert = (*self.advert).clone();
        for row in &mut advert.rows {
            if let (false, Some(previous)) =
                (definitions.contains_key(&row.definition), self.previous.get(&row.key))
            {
                row.clone_from(previous);
            }
        }
        Arc::new(advert)
    }
}

/// Most skills whose first class is remembered; beyond them a new skill counts as it is declared.
const MAX_ACCEPTED: usize = 100_000;

impl Keeper {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The catalog of this moment.
    pub(crate) fn current(&self) -> Arc<Merged> {
        self.merged.load_full()
    }

    /// What a node offers.
    pub(crate) fn advert_of(&self, node: &NodeId) -> Option<Arc<Advert>> {
        self.held().offers.get(node).map(|offer| offer.advert.clone())
    }

    /// The class that the policy judges when this variant is to be run.
    pub(crate) fn class_of(&self, skill: &Skill, variant: &Variant) -> Class {
        skill.class_of(variant, self.held().accepted.get(&skill.key).copied())
    }

    /// Replaces what a node offers. Returns the definitions that nobody has sent yet.
    pub(crate) fn advertise(&self, node: &NodeId, epoch: u64, advert: Advert) -> Vec<Digest> {
        let mut held = self.held();
        let missing: HashSet<Digest> = advert
            .rows
            .iter()
            .map(|row| row.definition)
            .filter(|digest| !held.definitions.contains_key(digest))
            .collect();
        let mut previous = HashMap::new();
        if let Some(old) = held.offers.get(node)
            && !missing.is_empty()
        {
            let known =
                |row: &&Row| row.shadowed_by.is_none() && held.definitions.contains_key(&row.definition);
            let rows = old.effective(&held.definitions);
            previous.extend(rows.rows.iter().filter(known).map(|row| (row.key.clone(), row.clone())));
        }
        let offer = Offer { epoch, advert: Arc::new(advert), previous, asked: missing.clone() };
        held.offers.insert(node.clone(), offer);
        drop(held);
        self.changed.notify_one();
        missing.into_iter().collect()
    }

    /// Takes a definition that a node was asked for. Its bytes name it, so a node can only speak for itself.
    ///
    /// # Errors
    /// When it was not asked for, is malformed, or its schema does not compile here either. Then the node's rows say
    /// so where people look.
    pub(crate) fn define(&self, node: &NodeId, bytes: &Bytes) -> Result<(), Malformed> {
        let digest = Digest::of(bytes);
        if !self.held().offers.get(node).is_some_and(|offer| offer.asked.contains(&digest)) {
            return Err(Malformed::new("definitions", "this definition was not asked for"));
        }
        let compiled = compile(bytes);
        let mut held = self.held();
        let refused = compiled.as_ref().err().cloned();
        if let Ok(compiled) = compiled {
            held.definitions.insert(digest, Arc::new(compiled));
        }
        if let Some(offer) = held.offers.get_mut(node) {
            offer.asked.remove(&digest);
            if let Some(malformed) = &refused {
                refuse_rows(Arc::make_mut(&mut offer.advert), digest, malformed);
            }
        }
        drop(held);
        self.changed.notify_one();
        refused.map_or(Ok(()), Err)
    }

    /// Forgets what a node offered in a session, unless a newer one has told more.
    pub(crate) fn withdraw(&self, node: &NodeId, epoch: u64) {
        let mut held = self.held();
        if held.offers.get(node).is_some_and(|offer| offer.epoch <= epoch) {
            held.offers.remove(node);
            drop(held);
            self.changed.notify_one();
        }
    }

    /// Merges whenever something changed and tells `merged` afterwards. Runs for ever.
    pub(crate) async fn keep_merged(&self, merged: impl Fn()) {
        loop {
            self.changed.notified().await;
            self.merge();
            merged();
            tokio::time::sleep(MERGE_PAUSE).await;
        }
    }

    fn merge(&self) {
        let (adverts, compiled) = {
            let held = self.held();
            let adverts: Vec<(NodeId, Arc<Advert>)> = held
                .offers
                .iter()
                .map(|(node, offer)| (node.clone(), offer.effective(&held.definitions)))
                .collect();
            (adverts, held.definitions.clone())
        };
        let definitions = compiled.iter().map(|(digest, one)| (*digest, one.definition.clone())).collect();
        let catalog = catalog::merge(adverts.iter().map(|(node, advert)| (node, &**advert)), &definitions);
        let mut held = self.held();
        for skill in catalog.skills.values() {
            let class = skill.shown().definition.class;
            if held.accepted.len() < MAX_ACCEPTED {
                held.accepted.entry(skill.key.clone()).or_insert(class);
            }
        }
        drop(held);
        self.merged.store(Arc::new(Merged { catalog, compiled }));
        self.forget_unused();
    }

    /// Drops definitions that no offer names any more: after the catalog that names them is gone.
    fn forget_unused(&self) {
        let mut held = self.held();
        let used: HashSet<Digest> = held
            .offers
            .values()
            .flat_map(|offer| offer.advert.rows.iter().chain(offer.previous.values()))
            .map(|row| row.definition)
            .collect();
        held.definitions.retain(|digest, _| used.contains(digest));
    }
}

fn compile(bytes: &Bytes) -> Result<Compiled, Malformed> {
    let (_, definition) = decode_definition(bytes)?;
    let text = match definition.kind {
        Kind::Executable => definition.schema.as_str(),
        Kind::Instructions => "{}",
    };
    let schema = Schema::compile(text).map_err(|error| Malformed::new("schema", error))?;
    Ok(Compiled { definition: Arc::new(definition), schema })
}

/// Says beside each row whose definition was refused why it is not in the catalog.
fn refuse_rows(advert: &mut Advert, definition: Digest, malformed: &Malformed) {
    let said: Vec<_> = advert
        .rows
        .iter()
        .filter(|row| row.definition == definition)
        .map(|row| Diagnostic {
            severity: Severity::Error,
            path: row.path.clone(),
            line: None,
            rule: malformed.field.to_owned(),
            message: format!("the coordinator refused the definition: {}", malformed.message),
            key: Some(row.key.clone()),
        })
        .collect();
    advert.diagnostics.extend(said);
}

#[cfg(test)]
mod tests {
    use weft_core::{
        advert::{Row, Scope},
        skill::Layer,
    };
    use weft_proto::convert::encode_definition;

    use super::*;

    fn definition(class: Class) -> Definition {
        Definition { class, ..Definition::new(SkillKey::normalise("a").unwrap(), Kind::Executable) }
    }

    fn advert(definition: Digest) -> Advert {
        let row = Row {
            scope: Scope::All,
            key: SkillKey::normalise("a").unwrap(),
            layer: Layer::Managed,
            path: "/skills/a".into(),
            digest: definition,
            partial: false,
            definition,
            verdicts: vec![],
            shadowed_by: None,
        };
        Advert { revision: 1, rows: vec![row], diagnostics: vec![] }
    }

    #[test]
    fn definitions_are_asked_for_once_and_forgotten_with_the_last_advert() {
        let keeper = Keeper::default();
        let (bytes, digest) = encode_definition(&definition(Class::Safe));
        let (one, two) = ("n1".parse().unwrap(), "n2".parse().unwrap());
        assert_eq!(keeper.advertise(&one, 1, advert(digest)), [digest]);
        keeper.define(&one, &bytes).unwrap();
        assert!(keeper.advertise(&two, 1, advert(digest)).is_empty());
        keeper.merge();
        assert_eq!(keeper.current().skills.len(), 1);
        keeper.withdraw(&one, 1);
        keeper.withdraw(&two, 1);
        keeper.merge();
        assert!(keeper.current().skills.is_empty());
        assert!(keeper.held().definitions.is_empty());
    }

    #[test]
    fn a_node_that_comes_later_cannot_lower_the_class_of_a_skill() {
        let keeper = Keeper::default();
        let (dangerous, first) = encode_definition(&definition(Class::Dangerous));
        let (one, two) = ("n1".parse().unwrap(), "n2".parse().unwrap());
        keeper.advertise(&one, 1, advert(first));
        keeper.define(&one, &dangerous).unwrap();
        keeper.merge();
        let (safe, second) = encode_definition(&definition(Class::Safe));
        keeper.advertise(&two, 1, advert(second));
        keeper.define(&two, &safe).unwrap();
        keeper.merge();
        let catalog = keeper.current();
        let skill = catalog.skills.values().next().unwrap();
        assert_eq!(skill.variants.len(), 2);
        for variant in &skill.variants {
            assert_eq!(keeper.class_of(skill, variant), Class::Dangerous);
        }
    }

    #[test]
    fn a_definition_with_a_hostile_schema_is_refused_here_too() {
        let keeper = Keeper::default();
        let hostile = Definition { schema: r#"{"$ref":"http://x/y"}"#.into(), ..definition(Class::Safe) };
        let (bytes, digest) = encode_definition(&hostile);
        let node = "n1".parse().unwrap();
        assert!(keeper.define(&node, &bytes).is_err(), "it was not asked for");
        keeper.advertise(&node, 1, advert(digest));
        assert!(keeper.define(&node, &bytes).is_err());
        keeper.merge();
        let catalog = keeper.current();
        assert!(catalog.skills.is_empty());
        let said = &catalog.invalid.values().next().unwrap()[0].1;
        assert!(said.message.contains("refused"), "{said}");
    }

    #[test]
    fn a_changed_skill_neither_vanishes_nor_loses_its_class_while_its_definition_is_on_its_way() {
        let keeper = Keeper::default();
        let node = "n1".parse().unwrap();
        let (dangerous, first) = encode_definition(&definition(Class::Dangerous));
        let (safe, second) = encode_definition(&definition(Class::Safe));
        keeper.advertise(&node, 1, advert(first));
        keeper.define(&node, &dangerous).unwrap();
        keeper.merge();
        keeper.advertise(&node, 1, advert(second));
        keeper.merge();
        assert_eq!(keeper.current().skills.values().next().unwrap().shown().digest, first);
        keeper.define(&node, &safe).unwrap();
        keeper.merge();
        let catalog = keeper.current();
        let skill = catalog.skills.values().next().unwrap();
        assert_eq!(skill.shown().digest, second);
        assert_eq!(keeper.class_of(skill, skill.shown()), Class::Dangerous);
    }

    #[test]
    fn the_end_of_an_old_session_does_not_withdraw_what_a_newer_one_told() {
        let keeper = Keeper::default();
        let node = "n1".parse().unwrap();
        let (_, digest) = encode_definition(&definition(Class::Safe));
        keeper.advertise(&node, 2, advert(digest));
        keeper.withdraw(&node, 1);
        assert!(keeper.advert_of(&node).is_some());
        keeper.withdraw(&node, 2);
        assert!(keeper.advert_of(&node).is_none());
    }
}
