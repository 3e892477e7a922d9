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
    advert::Advert,
    catalog::{self, Catalog, Skill, Variant},
    ids::{Digest, NodeId, SkillKey},
    schema::Schema,
    skill::{Class, Definition, Kind},
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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    merged: ArcSwap<Catalog>,
    changed: Notify,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    adverts: HashMap<NodeId, Arc<Advert>>,
    definitions: HashMap<Digest, Arc<Compiled>>,
    /// The class under which each skill was first seen: a node cannot lower it later.
    accepted: HashMap<SkillKey, Class>,
}

impl Keeper {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The catalog of this moment.
    pub(crate) fn current(&self) -> Arc<Catalog> {
        self.merged.load_full()
    }

    /// What a node offers.
    pub(crate) fn advert_of(&self, node: &NodeId) -> Option<Arc<Advert>> {
        self.held().adverts.get(node).cloned()
    }

    /// The compiled definition of a variant.
    pub(crate) fn compiled(&self, variant: &Variant) -> Option<Arc<Compiled>> {
        self.held().definitions.get(&variant.definition_digest).cloned()
    }

    /// The class that the policy judges when this variant is to be run.
    pub(crate) fn class_of(&self, skill: &Skill, variant: &Variant) -> Class {
        skill.class_of(variant, self.held().accepted.get(&skill.key).copied())
    }

    /// Replaces what a node offers. Returns the definitions that nobody has sent yet.
    pub(crate) fn advertise(&self, node: &NodeId, advert: Advert) -> Vec<Digest> {
        let mut held = self.held();
        let missing: HashSet<Digest> = advert
            .rows
            .iter()
            .map(|row| row.definition)
            .filter(|digest| !held.definitions.contains_key(digest))
            .collect();
        held.adverts.insert(node.clone(), Arc::new(advert));
        drop(held);
        self.changed.notify_one();
        missing.into_iter().collect()
    }

    /// Takes a definition that a node sent. Its bytes name it, so a node can only speak for itself.
    ///
    /// # Errors
    /// When it is malformed or its schema does not compile here either.
    pub(crate) fn define(&self, bytes: &Bytes) -> Result<(), Malformed> {
        let (digest, definition) = decode_definition(bytes)?;
        if self.held().definitions.contains_key(&digest) {
            return Ok(());
        }
        let text = match definition.kind {
            Kind::Executable => definition.schema.as_str(),
            Kind::Instructions => "{}",
        };
        let schema = Schema::compile(text).map_err(|error| Malformed::new("schema", error))?;
        let compiled = Compiled { definition: Arc::new(definition), schema };
        self.held().definitions.insert(digest, Arc::new(compiled));
        self.changed.notify_one();
        Ok(())
    }

    /// Forgets what a node offered.
    pub(crate) fn withdraw(&self, node: &NodeId) {
        if self.held().adverts.remove(node).is_some() {
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
        let (adverts, definitions) = {
            let mut held = self.held();
            let used: HashSet<Digest> =
                held.adverts.values().flat_map(|advert| &advert.rows).map(|row| row.definition).collect();
            held.definitions.retain(|digest, _| used.contains(digest));
            let definitions: HashMap<_, _> = held
                .definitions
                .iter()
                .map(|(digest, compiled)| (*digest, compiled.definition.clone()))
                .collect();
            (held.adverts.clone(), definitions)
        };
        let catalog = catalog::merge(adverts.iter().map(|(node, advert)| (node, &**advert)), &definitions);
        let mut held = self.held();
        held.accepted.retain(|key, _| catalog.skills.contains_key(key));
        for skill in catalog.skills.values() {
            let class = skill.shown().definition.class;
            held.accepted.entry(skill.key.clone()).or_insert(class);
        }
        drop(held);
        self.merged.store(Arc::new(catalog));
    }
}

#[cfg(test)]
mod tests {
    use weft_core::{
        advert::{Row, Scope},
        skill::{ClassSource, Layer},
    };
    use weft_proto::convert::encode_definition;

    use super::*;

    fn definition(class: Class) -> Definition {
        Definition {
            key: SkillKey::normalise("a").unwrap(),
            name: "a".into(),
            kind: Kind::Executable,
            description: "d".into(),
            schema: "{}".into(),
            output_schema: None,
            class,
            class_source: ClassSource::Declared,
            category: "external".into(),
            timeout: Duration::from_secs(30),
            env_allow: vec![],
            requirements: vec![],
            broken_requirements: None,
            idempotent: false,
            sensitive: vec![],
            max_concurrency: None,
            version: String::new(),
            when_to_use: String::new(),
            activation: String::new(),
            hidden_from_prompts: false,
            instructions: String::new(),
        }
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
        assert_eq!(keeper.advertise(&one, advert(digest)), [digest]);
        keeper.define(&bytes).unwrap();
        assert!(keeper.advertise(&two, advert(digest)).is_empty());
        keeper.merge();
        assert_eq!(keeper.current().skills.len(), 1);
        keeper.withdraw(&one);
        keeper.withdraw(&two);
        keeper.merge();
        assert!(keeper.current().skills.is_empty());
        assert!(keeper.held().definitions.is_empty());
    }

    #[test]
    fn a_node_that_comes_later_cannot_lower_the_class_of_a_skill() {
        let keeper = Keeper::default();
        let (dangerous, first) = encode_definition(&definition(Class::Dangerous));
        keeper.define(&dangerous).unwrap();
        keeper.advertise(&"n1".parse().unwrap(), advert(first));
        keeper.merge();
        let (safe, second) = encode_definition(&definition(Class::Safe));
        keeper.advertise(&"n2".parse().unwrap(), advert(second));
        keeper.define(&safe).unwrap();
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
        assert!(keeper.define(&encode_definition(&hostile).0).is_err());
        assert!(keeper.define(&Bytes::from_static(b"\xff\xff")).is_err());
    }
}
