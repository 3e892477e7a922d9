//! The catalog as it stands: the adverts of listed nodes, their definitions, and the merge of both.

mod changes;
mod definitions;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use weft_core::{
    advert::{Advert, Row, Scope},
    catalog::{Catalog, Map, Offer, Skill, Variant},
    ids::{AgentId, Digest, NodeId, SkillKey},
    node::Labels,
    skill::{Class, Definition, Diagnostic, Severity},
};
use weft_proto::convert::Malformed;

pub(crate) use self::definitions::Compiled;
use self::{changes::Changes, definitions::Definitions};
use crate::settings::Settings;

/// Shortest time between two merges: a burst of adverts costs one.
const MERGE_PAUSE: Duration = Duration::from_millis(20);
/// Most rows that are merged before others may look and tell again. In a fleet of thousands a row takes some ten
/// microseconds, and what waits for the thread waits that long.
const MERGED_AT_ONCE: usize = 256;

/// The merged catalog of one moment, and all that is needed to judge a call by it.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    catalog: Catalog,
    compiled: Map<Digest, Arc<Compiled>>,
    accepted: Map<(Scope, SkillKey), Class>,
    diagnosed: Map<NodeId, Arc<Advert>>,
    settings: Arc<Settings>,
    /// Grows with every change of the settings.
    settings_revision: u64,
    /// Grows with every change.
    revision: u64,
}

impl Merged {
    /// The compiled definition of a variant of this catalog.
    pub(crate) fn compiled(&self, variant: &Variant) -> Option<&Arc<Compiled>> {
        self.compiled.get(&variant.definition_digest)
    }

    /// The class that the policy judges when this variant is to be run.
    pub(crate) fn class_of(&self, skill: &Skill, variant: &Variant) -> Class {
        let accepted = |scope: &Scope| self.accepted.get(&(scope.clone(), skill.key.clone())).copied();
        // An agent's own copy raises nobody else's class, and lowers neither that of the common copy nor its own.
        let own = if skill.scope == Scope::All { None } else { accepted(&skill.scope) };
        skill.class_of(variant, accepted(&Scope::All).max(own))
    }

    /// What the nodes offer that have something to complain about.
    pub(crate) fn diagnosed(&self) -> &Map<NodeId, Arc<Advert>> {
        &self.diagnosed
    }

    /// What the operator decided.
    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Which of the operator's decisions they are.
    pub(crate) fn settings_revision(&self) -> u64 {
        self.settings_revision
    }

    /// Which moment it is.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }
}

impl std::ops::Deref for Merged {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        &self.catalog
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Keeper {
    merged: ArcSwap<Merged>,
    changed: Notify,
    revisions: watch::Sender<u64>,
    told: watch::Sender<u64>,
    /// Names this life of the coordinator, in which revisions count.
    life: String,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    nodes: HashMap<NodeId, Told>,
    /// What each node brought into the catalog at the last merge.
    offers: HashMap<NodeId, Offer>,
    /// Nodes that may bring something else by now.
    dirty: HashSet<NodeId>,
    definitions: Definitions,
    /// What rows named that are gone: forgotten once the catalog names it no more.
    released: Vec<Digest>,
    /// Rows that are the same on many nodes are held once.
    rows: HashSet<Arc<Row>>,
    /// Beyond this many, rows that no advert holds any more are dropped.
    rows_limit: usize,
    /// The class under which each skill was first seen: a node cannot lower it later, also not by withdrawing the
    /// skill for a moment.
    accepted: Map<(Scope, SkillKey), Class>,
    settings: Arc<Settings>,
    settings_revision: u64,
    catalog: Catalog,
    /// The adverts with diagnostics: mostly few, and looked at with every list of skills.
    diagnosed: Map<NodeId, Arc<Advert>>,
    revision: u64,
    changes: Changes,
}

impl Held {
    /// Some of the nodes that may bring something else by now: at least one, if there is any.
    fn next_dirty(&self) -> Vec<NodeId> {
        let mut rows = 0;
        let fits = |node: &&NodeId| {
            let told = self.nodes.get(*node).map_or(0, |told| told.advert.rows.len());
            let before = self.offers.get(*node).map_or(0, Offer::copies);
            let first = rows == 0;
            rows += told.max(before).max(1);
            first || rows <= MERGED_AT_ONCE
        };
        self.dirty.iter().take_while(fits).cloned().collect()
    }

    /// Puts what a node told into the catalog. Returns what changed.
    fn take_in(&mut self, node: &NodeId) -> BTreeSet<(Scope, SkillKey)> {
        let old = self.offers.remove(node).unwrap_or_default();
        let told = self.nodes.get(node);
        let new = told.map(|told| told.offer(&self.definitions, &self.settings)).unwrap_or_default();
        let changed = self.catalog.replace(node, &old, &new);
        if told.is_some() {
            self.offers.insert(node.clone(), new);
        }
        changed
    }

    /// Notes whether a node has something to complain about. Returns whether that is something else than before.
    fn diagnose(&mut self, node: &NodeId) -> bool {
        let advert = self.nodes.get(node).map(|told| &told.advert);
        match advert.filter(|advert| !advert.diagnostics.is_empty()) {
            None => self.diagnosed.remove_mut(node),
            Some(advert) if self.diagnosed.get(node).is_some_and(|old| Arc::ptr_eq(old, advert)) => false,
            Some(advert) => {
                self.diagnosed.insert_mut(node.clone(), advert.clone());
                true
            }
        }
    }
}

/// What one node told.
#[derive(Debug)]
struct Told {
    /// The session that it was told in.
    epoch: u64,
    /// The node is connected and takes work.
    ready: bool,
    labels: Labels,
    advert: Arc<Advert>,
    /// Rows of the advert before, for keys whose new definition has not arrived: a changed skill does not vanish
    /// while its definition is on its way.
    previous: HashMap<(Scope, SkillKey), Arc<Row>>,
}

impl Told {
    /// The rows that count now: the earlier one where the definition of the new one has not arrived.
    fn rows(&self, definitions: &Definitions) -> Vec<Arc<Row>> {
        let effective = |row: &Arc<Row>| {
            let earlier = || self.previous.get(&(row.scope.clone(), row.key.clone()));
            let waits = row.shadowed_by.is_none() && !self.previous.is_empty();
            match waits && definitions.is_missing(&row.definition) {
                true => earlier().unwrap_or(row).clone(),
                false => row.clone(),
            }
        };
        self.advert.rows.iter().map(effective).collect()
    }

    /// Every definition that it names, as often as it does.
    fn names(&self) -> Vec<Digest> {
        self.advert.rows.iter().chain(self.previous.values()).map(|row| row.definition).collect()
    }

    fn offer(&self, definitions: &Definitions, settings: &Settings) -> Offer {
        let rows = self.rows(definitions);
        let advert = Advert { revision: 0, rows, diagnostics: self.advert.diagnostics.clone() };
        let definition = |digest: &Digest| Some(definitions.known().get(digest)?.definition.clone());
        Offer::of(&advert, self.ready, definition, |agent| {
            settings.agents.admits_workspace(agent, &self.labels)
        })
    }

    fn has_workspaces(&self) -> bool {
        self.advert.rows.iter().any(|row| row.scope != Scope::All)
    }
}

/// What is worth keeping for the next life.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) adverts: Vec<(NodeId, Arc<Advert>)>,
    pub(crate) definitions: Vec<Arc<Definition>>,
    pub(crate) accepted: Map<(Scope, SkillKey), Class>,
}

/// Definitions to be asked of one node in one session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) node: NodeId,
    pub(crate) epoch: u64,
    pub(crate) digests: Vec<Digest>,
}

/// Most skills whose first class is remembered; beyond them a new skill counts as it is declared.
const MAX_ACCEPTED: usize = 100_000;
/// Fewest rows among which it is worth looking for those that nobody holds.
const FEW_ROWS: usize = 4096;

impl Keeper {
    /// An empty catalog under these settings.
    pub(crate) fn new(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let merged = Merged { settings: settings.clone(), ..Merged::default() };
        Self {
            merged: ArcSwap::from_pointee(merged),
            changed: Notify::new(),
            revisions: watch::Sender::new(0),
            told: watch::Sender::new(0),
            life: uuid::Uuid::now_v7().simple().to_string(),
            held: Mutex::new(Held { settings, ..Held::default() }),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The catalog of this moment.
    pub(crate) fn current(&self) -> Arc<Merged> {
        self.merged.load_full()
    }

    /// Names the life of the coordinator in which revisions count.
    pub(crate) fn life(&self) -> &str {
        &self.life
    }

    /// The revision of the catalog, as it grows.
    pub(crate) fn revisions(&self) -> watch::Receiver<u64> {
        self.revisions.subscribe()
    }

    /// The keys that changed for an agent from one moment to another. `None` when that is not remembered.
    pub(crate) fn changed_between(
        &self,
        revision: u64,
        now: &Merged,
        agent: Option<&AgentId>,
    ) -> Option<BTreeSet<SkillKey>> {
        self.held().changes.since(revision, now.revision, agent)
    }

    /// Counts what nodes told and what is kept of it, but not who is connected.
    pub(crate) fn told(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    fn tell(&self) {
        self.told.send_modify(|told| *told += 1);
        self.changed.notify_one();
    }

    /// What is worth keeping for the next life.
    pub(crate) fn kept(&self) -> Kept {
        let held = self.held();
        Kept {
            adverts: held.nodes.iter().map(|(node, told)| (node.clone(), told.advert.clone())).collect(),
            definitions: held.definitions.known().values().map(|one| one.definition.clone()).collect(),
            accepted: held.accepted.clone(),
        }
    }

    /// Takes up a class of the last life.
    pub(crate) fn accept(&self, place: (Scope, SkillKey), class: Class) {
        let mut held = self.held();
        if held.accepted.size() < MAX_ACCEPTED {
            held.accepted.insert_mut(place, class);
        }
    }

    /// Lists what a node offered in the last life, as if it were there: it is on its way, and calls wait for it.
    pub(crate) fn expect(&self, node: &NodeId, labels: &Labels, advert: Advert) {
        self.advertise(node, 0, labels, advert);
    }

    /// Takes a definition of the last life. Compiles the schema: blocks.
    pub(crate) fn remember(&self, bytes: &Bytes) {
        let digest = Digest::of(bytes);
        // One that does not compile any more is asked for again, and refused where people look.
        if let Ok(compiled) = Compiled::of(bytes) {
            let mut held = self.held();
            if held.definitions.is_missing(&digest) && held.definitions.is_named(&digest) {
                let waiting = held.definitions.settle(digest, Ok(compiled));
                held.dirty.extend(waiting);
            }
        }
    }

    /// What a node offers.
    pub(crate) fn advert_of(&self, node: &NodeId) -> Option<Arc<Advert>> {
        self.held().nodes.get(node).map(|told| told.advert.clone())
    }

    /// Replaces what a node offers. Returns the definitions to ask of it.
    pub(crate) fn advertise(
        &self,
        node: &NodeId,
        epoch: u64,
        labels: &Labels,
        advert: Advert,
    ) -> Vec<Digest> {
        let mut held = self.held();
        let held = &mut *held;
        // A session that is superseded says nothing any more.
        if held.nodes.get(node).is_some_and(|told| told.epoch > epoch) {
            return Vec::new();
        }
        let mut advert = advert;
        for row in &mut advert.rows {
            match held.rows.get(row) {
                Some(same) => *row = same.clone(),
                None => drop(held.rows.insert(row.clone())),
            }
        }
        let missing: BTreeSet<Digest> = advert
            .rows
            .iter()
            .map(|row| row.definition)
            .filter(|digest| held.definitions.is_missing(digest))
            .collect();
        let old = held.nodes.remove(node);
        // It may be draining already.
        let ready = old.as_ref().is_none_or(|old| old.epoch != epoch || old.ready);
        let mut previous = HashMap::new();
        if let Some(old) = old.as_ref().filter(|_| !missing.is_empty()) {
            let place = |row: &Arc<Row>| (row.scope.clone(), row.key.clone());
            let waiting = advert.rows.iter().filter(|row| missing.contains(&row.definition));
            let waiting: HashSet<_> = waiting.map(place).collect();
            let known = |row: &Arc<Row>| {
                row.shadowed_by.is_none() && held.definitions.known().contains_key(&row.definition)
            };
            let rows = old.rows(&held.definitions).into_iter().filter(known);
            previous.extend(rows.map(|row| (place(&row), row)).filter(|(place, _)| waiting.contains(place)));
        }
        let mut told = Told { epoch, ready, labels: labels.clone(), advert: Arc::new(advert), previous };
        let refused: BTreeSet<Digest> = told.advert.rows.iter().map(|row| row.definition).collect();
        for digest in refused {
            if let Some(malformed) = held.definitions.refusal(&digest) {
                refuse_rows(Arc::make_mut(&mut told.advert), digest, malformed);
            }
        }
        held.definitions.use_all(told.names());
        if let Some(old) = old {
            held.definitions.wait_no_more(node);
            held.released.extend(old.names());
        }
        held.definitions.wait(node, missing.iter().copied());
        held.nodes.insert(node.clone(), told);
        held.dirty.insert(node.clone());
        let now = Instant::now();
        let ask = missing.into_iter().filter(|digest| held.definitions.ask(*digest, node, now)).collect();
        self.tell();
        ask
    }

    /// Notes whether a node is connected and takes work.
    pub(crate) fn set_ready(&self, node: &NodeId, epoch: u64, ready: bool) {
        let mut held = self.held();
        if let Some(told) = held.nodes.get_mut(node)
            && told.epoch <= epoch
        {
            told.epoch = epoch;
            if told.ready != ready {
                told.ready = ready;
                held.dirty.insert(node.clone());
                self.changed.notify_one();
            }
        }
    }

    /// Takes a definition that a node named. Its bytes name it, so a node can only speak for itself. Compiles the
    /// schema: blocks.
    ///
    /// # Errors
    /// When nobody misses it, it is malformed, or its schema does not compile here either. Then the rows that name it
    /// say so where people look.
    pub(crate) fn define(&self, node: &NodeId, bytes: &Bytes) -> Result<(), Malformed> {
        let digest = Digest::of(bytes);
        let names = |told: &Told| told.advert.rows.iter().any(|row| row.definition == digest);
        {
            let held = self.held();
            if !held.nodes.get(node).is_some_and(names) {
                return Err(Malformed::new("definitions", "this definition was not asked for"));
            }
            if !held.definitions.is_missing(&digest) {
                return Ok(());
            }
        }
        let compiled = Compiled::of(bytes);
        let refused = compiled.as_ref().err().cloned();
        let mut held = self.held();
        let held = &mut *held;
        // Somebody else may have been faster, or all who named it are gone.
        if !held.definitions.is_missing(&digest) || held.definitions.waiting(&digest).next().is_none() {
            return Ok(());
        }
        for node in held.definitions.settle(digest, compiled) {
            if let (Some(malformed), Some(told)) = (&refused, held.nodes.get_mut(&node)) {
                refuse_rows(Arc::make_mut(&mut told.advert), digest, malformed);
            }
            held.dirty.insert(node);
        }
        self.tell();
        refused.map_or(Ok(()), Err)
    }

    /// Definitions that a node owes for too long, to be asked of another that names them, if there is one.
    pub(crate) fn overdue(&self) -> Vec<Ask> {
        self.overdue_at(Instant::now())
    }

    pub(crate) fn overdue_at(&self, now: Instant) -> Vec<Ask> {
        let mut held = self.held();
        let held = &mut *held;
        let mut asks: HashMap<NodeId, Ask> = HashMap::new();
        for digest in held.definitions.overdue(now) {
            // One that is only on its way has no session to be asked in.
            let able = |node: &NodeId| held.nodes.get(node).is_some_and(|told| told.ready && told.epoch > 0);
            let Some(node) = held.definitions.next(&digest, able).cloned() else { continue };
            let Some(epoch) = held.nodes.get(&node).map(|told| told.epoch) else { continue };
            held.definitions.turn_to(digest, &node, now);
            asks.entry(node.clone()).or_insert(Ask { node, epoch, digests: Vec::new() }).digests.push(digest);
        }
        asks.into_values().collect()
    }

    /// Forgets what a node offered in a session, unless a newer one has told more.
    pub(crate) fn withdraw(&self, node: &NodeId, epoch: u64) {
        let mut held = self.held();
        if held.nodes.get(node).is_some_and(|told| told.epoch <= epoch)
            && let Some(told) = held.nodes.remove(node)
        {
            held.definitions.wait_no_more(node);
            held.released.extend(told.names());
            held.dirty.insert(node.clone());
            self.tell();
        }
    }

    /// Puts other settings into effect. A call that is judged after it returned is judged by them.
    pub(crate) fn configure(&self, settings: Settings) {
        let mut held = self.held();
        if *held.settings == settings {
            return;
        }
        held.settings = Arc::new(settings);
        held.settings_revision += 1;
        let with_workspaces: Vec<NodeId> = held
            .nodes
            .iter()
            .filter(|(_, told)| told.has_workspaces())
            .map(|(node, _)| node.clone())
            .collect();
        let mut changed = BTreeSet::new();
        for node in with_workspaces {
            changed.append(&mut held.take_in(&node));
        }
        self.publish(&mut held, changed);
    }

    /// Merges whenever something changed and tells `merged` afterwards. Runs for ever.
    pub(crate) async fn keep_merged(&self, merged: impl Fn()) {
        loop {
            self.changed.notified().await;
            while self.merge() {
                tokio::task::yield_now().await;
            }
            merged();
            tokio::time::sleep(MERGE_PAUSE).await;
        }
    }

    /// Merges what some nodes told. Returns whether there is more.
    fn merge(&self) -> bool {
        let mut held = self.held();
        let some = held.next_dirty();
        let mut changed = BTreeSet::new();
        let mut diagnosed = false;
        for node in some {
            held.dirty.remove(&node);
            diagnosed |= held.diagnose(&node);
            changed.append(&mut held.take_in(&node));
        }
        if !changed.is_empty() {
            self.publish(&mut held, changed);
        } else if diagnosed {
            self.show(&held);
        }
        if held.rows.len() > held.rows_limit.max(FEW_ROWS) {
            held.rows.retain(|row| Arc::strong_count(row) > 1);
            held.rows_limit = 2 * held.rows.len();
        }
        if held.dirty.is_empty() {
            let released = std::mem::take(&mut held.released);
            held.definitions.release_all(released);
        }
        !held.dirty.is_empty()
    }

    /// Merges all there is. Blocks others meanwhile.
    pub(crate) fn merge_all(&self) {
        while self.merge() {}
    }

    /// Lets everybody see what is held now.
    fn publish(&self, held: &mut Held, changed: BTreeSet<(Scope, SkillKey)>) {
        for (scope, key) in &changed {
            let agent = match scope {
                Scope::All => None,
                Scope::Agent(agent) => Some(agent),
            };
            let skill = held.catalog.find(agent, key).filter(|skill| skill.scope == *scope);
            let Some(skill) = skill else { continue };
            let class = skill.shown().definition.class;
            let place = (scope.clone(), key.clone());
            if !held.accepted.contains_key(&place) && held.accepted.size() < MAX_ACCEPTED {
                held.accepted.insert_mut(place, class);
            }
        }
        held.revision += 1;
        held.changes.note(held.revision, changed);
        self.show(held);
        self.revisions.send_replace(held.revision);
    }

    /// The same for what is of no concern to those who follow the catalog.
    fn show(&self, held: &Held) {
        self.merged.store(Arc::new(Merged {
            catalog: held.catalog.clone(),
            compiled: held.definitions.known().clone(),
            accepted: held.accepted.clone(),
            diagnosed: held.diagnosed.clone(),
            settings: held.settings.clone(),
            settings_revision: held.settings_revision,
            revision: held.revision,
        }));
    }
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
            scope: row.scope.clone(),
        })
        .collect();
    advert.diagnostics.extend(said);
}

#[cfg(test)]
mod tests {
    use weft_core::skill::{Definition, Kind, Layer};
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
        Advert { revision: 1, rows: vec![Arc::new(row)], diagnostics: vec![] }
    }

    #[test]
    fn definitions_are_asked_for_once_and_forgotten_with_the_last_advert() {
        let keeper = Keeper::new(Settings::default());
        let (bytes, digest) = encode_definition(&definition(Class::Safe));
        let (one, two) = ("n1".parse().unwrap(), "n2".parse().unwrap());
        assert_eq!(keeper.advertise(&one, 1, &Labels::new(), advert(digest)), [digest]);
        keeper.define(&one, &bytes).unwrap();
        assert!(keeper.advertise(&two, 1, &Labels::new(), advert(digest)).is_empty());
        keeper.merge();
        assert_eq!(keeper.current().len(), 1);
        keeper.withdraw(&one, 1);
        keeper.withdraw(&two, 1);
        keeper.merge();
        assert!(keeper.current().is_empty());
        assert!(keeper.held().definitions.is_empty());
    }

    #[test]
    fn a_node_that_comes_later_cannot_lower_the_class_of_a_skill() {
        let keeper = Keeper::new(Settings::default());
        let (dangerous, first) = encode_definition(&definition(Class::Dangerous));
        let (one, two) = ("n1".parse().unwrap(), "n2".parse().unwrap());
        keeper.advertise(&one, 1, &Labels::new(), advert(first));
        keeper.define(&one, &dangerous).unwrap();
        keeper.merge();
        let (safe, second) = encode_definition(&definition(Class::Safe));
        keeper.advertise(&two, 1, &Labels::new(), advert(second));
        keeper.define(&two, &safe).unwrap();
        keeper.merge();
        let catalog = keeper.current();
        let skill = catalog.skills(None).next().unwrap();
        assert_eq!(skill.variants.len(), 2);
        for variant in &skill.variants {
            assert_eq!(catalog.class_of(skill, variant), Class::Dangerous);
        }
    }

    #[test]
    fn a_definition_with_a_hostile_schema_is_refused_here_too() {
        let keeper = Keeper::new(Settings::default());
        let hostile = Definition { schema: r#"{"$ref":"http://x/y"}"#.into(), ..definition(Class::Safe) };
        let (bytes, digest) = encode_definition(&hostile);
        let node = "n1".parse().unwrap();
        assert!(keeper.define(&node, &bytes).is_err(), "it was not asked for");
        keeper.advertise(&node, 1, &Labels::new(), advert(digest));
        assert!(keeper.define(&node, &bytes).is_err());
        keeper.merge();
        let catalog = keeper.current();
        assert!(catalog.is_empty());
        let said = &catalog.invalid(None, &SkillKey::normalise("a").unwrap()).unwrap().get(&node).unwrap()[0];
        assert!(said.message.contains("refused"), "{said}");
    }

    #[test]
    fn a_changed_skill_neither_vanishes_nor_loses_its_class_while_its_definition_is_on_its_way() {
        let keeper = Keeper::new(Settings::default());
        let node = "n1".parse().unwrap();
        let (dangerous, first) = encode_definition(&definition(Class::Dangerous));
        let (safe, second) = encode_definition(&definition(Class::Safe));
        keeper.advertise(&node, 1, &Labels::new(), advert(first));
        keeper.define(&node, &dangerous).unwrap();
        keeper.merge();
        keeper.advertise(&node, 1, &Labels::new(), advert(second));
        keeper.merge();
        assert_eq!(keeper.current().skills(None).next().unwrap().shown().digest, first);
        keeper.define(&node, &safe).unwrap();
        keeper.merge();
        let catalog = keeper.current();
        let skill = catalog.skills(None).next().unwrap();
        assert_eq!(skill.shown().digest, second);
        assert_eq!(catalog.class_of(skill, skill.shown()), Class::Dangerous);
    }

    #[test]
    fn the_end_of_an_old_session_does_not_withdraw_what_a_newer_one_told() {
        let keeper = Keeper::new(Settings::default());
        let node = "n1".parse().unwrap();
        let (_, digest) = encode_definition(&definition(Class::Safe));
        keeper.advertise(&node, 2, &Labels::new(), advert(digest));
        keeper.withdraw(&node, 1);
        assert!(keeper.advert_of(&node).is_some());
        keeper.withdraw(&node, 2);
        assert!(keeper.advert_of(&node).is_none());
    }

    #[test]
    fn one_node_is_asked_for_a_definition_and_another_when_it_is_silent() {
        let keeper = Keeper::new(Settings::default());
        let (bytes, digest) = encode_definition(&definition(Class::Safe));
        let (one, two) = ("n1".parse().unwrap(), "n2".parse().unwrap());
        assert_eq!(keeper.advertise(&one, 1, &Labels::new(), advert(digest)), [digest]);
        assert!(keeper.advertise(&two, 7, &Labels::new(), advert(digest)).is_empty());
        assert!(keeper.overdue().is_empty(), "it may still answer");
        keeper.held().definitions.ask(digest, &one, Instant::now() - Duration::from_secs(60));
        assert_eq!(keeper.overdue(), [Ask { node: two.clone(), epoch: 7, digests: vec![digest] }]);
        assert!(keeper.overdue().is_empty(), "the other may still answer");
        keeper.define(&two, &bytes).unwrap();
        keeper.merge();
        assert_eq!(keeper.current().skills(None).next().unwrap().shown().ready, 2);
    }

    #[test]
    fn what_is_refused_once_is_not_asked_for_again_and_said_for_every_node() {
        let keeper = Keeper::new(Settings::default());
        let hostile = Definition { schema: r#"{"$ref":"http://x/y"}"#.into(), ..definition(Class::Safe) };
        let (bytes, digest) = encode_definition(&hostile);
        let (one, two) = ("n1".parse().unwrap(), "n2".parse().unwrap());
        keeper.advertise(&one, 1, &Labels::new(), advert(digest));
        assert!(keeper.define(&one, &bytes).is_err());
        assert!(keeper.advertise(&two, 1, &Labels::new(), advert(digest)).is_empty());
        keeper.merge();
        let key = SkillKey::normalise("a").unwrap();
        assert_eq!(keeper.current().invalid(None, &key).unwrap().size(), 2);
    }

    #[test]
    fn a_node_that_leaves_is_not_ready_and_the_revision_says_that_something_changed() {
        let keeper = Keeper::new(Settings::default());
        let (bytes, digest) = encode_definition(&definition(Class::Safe));
        let node = "n1".parse().unwrap();
        keeper.advertise(&node, 1, &Labels::new(), advert(digest));
        keeper.define(&node, &bytes).unwrap();
        keeper.merge();
        let before = keeper.current();
        keeper.set_ready(&node, 1, false);
        keeper.merge();
        let after = keeper.current();
        assert_eq!(after.skills(None).next().unwrap().shown().ready, 0);
        assert!(after.revision() > before.revision());
        let changed = keeper.changed_between(before.revision(), &after, None).unwrap();
        assert_eq!(changed.len(), 1);
        keeper.set_ready(&node, 1, false);
        assert!(!keeper.merge() && keeper.current().revision() == after.revision(), "nothing changed");
    }

    #[test]
    fn other_settings_admit_other_workspaces_at_once() {
        let keeper = Keeper::new(Settings::default());
        let (bytes, digest) = encode_definition(&definition(Class::Safe));
        let node = "n1".parse().unwrap();
        let agent: AgentId = "writer".parse().unwrap();
        let mut own = advert(digest);
        Arc::make_mut(&mut own.rows[0]).scope = Scope::Agent(agent.clone());
        keeper.advertise(&node, 1, &Labels::new(), own);
        keeper.define(&node, &bytes).unwrap();
        keeper.merge();
        let key = SkillKey::normalise("a").unwrap();
        assert!(keeper.current().find(Some(&agent), &key).is_none());
        let mut settings = Settings::default();
        let entry = weft_core::agents::Agent { workspace: Some("/w".into()), ..Default::default() };
        settings.agents.list.insert(agent.clone(), entry);
        keeper.configure(settings);
        keeper.merge();
        assert!(keeper.current().find(Some(&agent), &key).is_some());
        assert!(keeper.current().find(None, &key).is_none());
    }

    #[test]
    fn an_agents_own_copy_raises_its_own_class_only_and_lowers_none() {
        let keeper = Keeper::new(Settings::default());
        let agent: AgentId = "writer".parse().unwrap();
        let mut settings = Settings::default();
        let entry = weft_core::agents::Agent { workspace: Some("/w".into()), ..Default::default() };
        settings.agents.list.insert(agent.clone(), entry);
        keeper.configure(settings);
        let (mutating, common) = encode_definition(&definition(Class::Mutating));
        let (one, two) = ("n1".parse().unwrap(), "n2".parse().unwrap());
        keeper.advertise(&one, 1, &Labels::new(), advert(common));
        keeper.define(&one, &mutating).unwrap();
        let key = SkillKey::normalise("a").unwrap();
        let class = |agent: Option<&AgentId>| {
            keeper.merge();
            let merged = keeper.current();
            let skill = merged.find(agent, &key).unwrap();
            merged.class_of(skill, skill.shown())
        };
        let own = |class, epoch| {
            let (bytes, digest) = encode_definition(&definition(class));
            let mut own = advert(digest);
            Arc::make_mut(&mut own.rows[0]).scope = Scope::Agent(agent.clone());
            keeper.advertise(&two, epoch, &Labels::new(), own);
            keeper.define(&two, &bytes).unwrap();
        };
        own(Class::Safe, 1);
        assert_eq!((class(Some(&agent)), class(None)), (Class::Mutating, Class::Mutating));
        keeper.withdraw(&two, 1);
        own(Class::Dangerous, 2);
        assert_eq!((class(Some(&agent)), class(None)), (Class::Dangerous, Class::Mutating));
    }

    #[test]
    fn only_nodes_with_something_to_complain_about_are_listed_for_it() {
        let keeper = Keeper::new(Settings::default());
        let (bytes, digest) = encode_definition(&definition(Class::Safe));
        let (one, two) = ("n1".parse().unwrap(), "n2".parse().unwrap());
        keeper.advertise(&one, 1, &Labels::new(), advert(digest));
        keeper.define(&one, &bytes).unwrap();
        keeper.merge();
        let before = keeper.current();
        assert!(before.diagnosed().is_empty());
        let mut complaining = advert(digest);
        refuse_rows(&mut complaining, digest, &Malformed::new("schema", "is odd"));
        complaining.diagnostics[0].severity = Severity::Warning;
        keeper.advertise(&one, 1, &Labels::new(), complaining);
        keeper.merge();
        let now = keeper.current();
        assert_eq!(now.diagnosed().keys().collect::<Vec<_>>(), [&one]);
        assert_eq!(now.revision(), before.revision(), "a warning changes no skill");
        keeper.advertise(&two, 1, &Labels::new(), advert(digest));
        keeper.withdraw(&one, 1);
        keeper.merge();
        assert!(keeper.current().diagnosed().is_empty());
    }

    #[test]
    fn rows_that_are_the_same_on_many_nodes_are_held_once() {
        let keeper = Keeper::new(Settings::default());
        let (_, digest) = encode_definition(&definition(Class::Safe));
        for number in 0..10 {
            let node = format!("n{number}").parse().unwrap();
            keeper.advertise(&node, 1, &Labels::new(), advert(digest));
        }
        assert_eq!(keeper.held().rows.len(), 1);
    }
}
