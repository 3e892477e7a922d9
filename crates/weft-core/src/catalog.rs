//! The merged catalog: what a whole fleet offers, as a pure function of what its nodes offer.
//!
//! The same offers in any order give the same catalog; how it came about leaves no trace in it. Layers rank copies
//! within a node, which the node has done already; across nodes a skill has *variants*, one for each digest, each with
//! the nodes that provide it. Copies from an agent's workspace stand apart: for that agent they come before all others
//! of the same key, also when they cannot run.
//!
//! A catalog is changed one node at a time, at the cost of what that node changed, and its clone costs nothing: that
//! keeps ten thousand nodes cheap of which some always come and go.

mod offer;

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
    iter,
    ops::Bound,
    sync::Arc,
};

use rpds::RedBlackTreeMapSync;

use self::offer::Copy;
pub use self::offer::Offer;
use crate::{
    advert::{Row, Scope},
    ids::{AgentId, Digest, NodeId, SkillKey},
    skill::{Class, Definition, Diagnostic},
};

/// A sorted map that shares with its clones all in which they do not differ.
pub type Map<K, V> = RedBlackTreeMapSync<K, V>;

/// A list for each node that has one.
type PerNode<T> = Map<NodeId, Arc<[T]>>;

/// Diagnostics of one skill, per node.
pub type Invalid = PerNode<Diagnostic>;

/// All skills of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    /// For every agent.
    all: Level,
    /// From workspaces.
    agents: Map<AgentId, Level>,
}

/// The skills of one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Level {
    skills: Map<SkillKey, Arc<Skill>>,
    /// Copies that another copy on the same node wins over.
    shadowed: Map<SkillKey, PerNode<Arc<Row>>>,
    /// What did not load, for those skills whose name could be read.
    invalid: Map<SkillKey, Invalid>,
}

/// One skill and its variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The key.
    pub key: SkillKey,
    /// For whom it is.
    pub scope: Scope,
    /// At least one; the first is the one shown: it has the most eligible providers, then the lowest digest.
    pub variants: Vec<Variant>,
    /// The variants take different args.
    pub schema_conflict: bool,
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
    pub providers: Map<NodeId, Provider>,
    /// How many providers hold every gate.
    pub eligible: usize,
    /// How many of those take work now.
    pub ready: usize,
}

/// A node that has the files of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// What the node says of its copy.
    pub row: Arc<Row>,
    /// The node is connected and takes work.
    pub ready: bool,
}

impl Provider {
    /// Whether it can run (or read out) its copy now.
    pub fn is_usable(&self) -> bool {
        self.ready && self.row.eligible()
    }
}

impl Variant {
    fn of(copy: &Copy) -> Self {
        Self {
            digest: copy.row.digest,
            definition_digest: copy.row.definition,
            definition: Arc::clone(&copy.definition),
            providers: Map::new_sync(),
            eligible: 0,
            ready: 0,
        }
    }

    fn is_of(&self, row: &Row) -> bool {
        (self.digest, self.definition_digest) == (row.digest, row.definition)
    }

    fn rank(&self) -> (Reverse<usize>, Digest, Digest) {
        (Reverse(self.eligible), self.digest, self.definition_digest)
    }

    /// Puts a provider in, or in the place of what the same node was before. Of ten thousand providers each look costs,
    /// so there is one.
    fn put(&mut self, node: &NodeId, old: Option<(&Copy, bool)>, new: (&Copy, bool)) {
        if let Some(old) = old {
            self.uncount(old);
        }
        let (row, ready) = (&new.0.row, new.1);
        let eligible = row.eligible();
        self.eligible += usize::from(eligible);
        self.ready += usize::from(eligible && ready);
        self.providers.insert_mut(node.clone(), Provider { row: Arc::clone(row), ready });
    }

    fn remove(&mut self, node: &NodeId, old: (&Copy, bool)) {
        if self.providers.remove_mut(node) {
            self.uncount(old);
        }
    }

    fn uncount(&mut self, (copy, ready): (&Copy, bool)) {
        let eligible = copy.row.eligible();
        self.eligible -= usize::from(eligible);
        self.ready -= usize::from(eligible && ready);
    }
}

impl Skill {
    /// The variant that catalogs show.
    pub fn shown(&self) -> &Variant {
        &self.variants[0]
    }

    /// The variants that a call means which names neither a node nor a digest: those that take the same args as the
    /// one shown.
    pub fn meant(&self) -> impl Iterator<Item = &Variant> {
        let shown = self.shown();
        self.variants.iter().filter(|variant| variant.definition.schema == shown.definition.schema)
    }

    /// The variant that a node provides.
    pub fn on_node(&self, node: &NodeId) -> Option<(&Variant, &Arc<Row>)> {
        self.variants.iter().find_map(|variant| Some((variant, &variant.providers.get(node)?.row)))
    }

    /// The class that the policy judges when this variant is to be run: never lower than any the operator
    /// accepted for the key.
    pub fn class_of(&self, variant: &Variant, accepted: Option<Class>) -> Class {
        accepted.map_or(variant.definition.class, |accepted| accepted.max(variant.definition.class))
    }

    fn variant_of(&self, row: &Row) -> Option<usize> {
        self.variants.iter().position(|variant| variant.is_of(row))
    }

    /// Replaces the copy of one node.
    fn replace(&mut self, node: &NodeId, old: Option<(&Copy, bool)>, new: Option<(&Copy, bool)>) {
        let same_variant = |(copy, _): &(&Copy, bool)| new.is_some_and(|(new, _)| new.is_of_variant(copy));
        let stays = old.filter(same_variant);
        if let (Some(old), None) = (old, stays)
            && let Some(at) = self.variant_of(&old.0.row)
        {
            self.variants[at].remove(node, old);
            if self.variants[at].providers.is_empty() {
                self.variants.remove(at);
            }
        }
        if let Some(new) = new {
            let at = self.variant_of(&new.0.row).unwrap_or_else(|| {
                self.variants.push(Variant::of(new.0));
                self.variants.len() - 1
            });
            self.variants[at].put(node, stays, new);
        }
    }

    /// Brings back the order of the variants after they changed.
    fn settle(&mut self) {
        if self.variants.len() > 1 {
            self.variants.sort_by_key(Variant::rank);
        }
        let meant = self.meant().count();
        self.schema_conflict = meant < self.variants.len();
    }
}

impl Level {
    fn is_empty(&self) -> bool {
        self.skills.is_empty() && self.shadowed.is_empty() && self.invalid.is_empty()
    }

    /// Replaces the copy of one key that one node has.
    fn place(&mut self, node: &NodeId, old: Option<(&Copy, bool)>, new: Option<(&Copy, bool)>) {
        let Some(row) = new.or(old).map(|(copy, _)| &copy.row) else { return };
        let key = &row.key;
        if !self.skills.contains_key(key) {
            let (key, scope) = (key.clone(), row.scope.clone());
            let skill = Skill { key: key.clone(), scope, variants: Vec::new(), schema_conflict: false };
            self.skills.insert_mut(key, Arc::new(skill));
        }
        let Some(skill) = self.skills.get_mut(key).map(Arc::make_mut) else { return };
        skill.replace(node, old, new);
        match skill.variants.is_empty() {
            true => drop(self.skills.remove_mut(key)),
            false => skill.settle(),
        }
    }

    fn shadow(&mut self, node: &NodeId, key: &SkillKey, rows: &[Arc<Row>]) {
        put(&mut self.shadowed, key, node, rows);
    }
}

/// Puts a list of a node below a key, or removes it when it is empty, so that what is empty leaves nothing behind.
fn put<T: Clone>(map: &mut Map<SkillKey, PerNode<T>>, key: &SkillKey, node: &NodeId, list: &[T]) {
    let mut nodes = map.get(key).cloned().unwrap_or_else(Map::new_sync);
    match list.is_empty() {
        true => drop(nodes.remove_mut(node)),
        false => nodes.insert_mut(node.clone(), list.into()),
    }
    match nodes.is_empty() {
        true => drop(map.remove_mut(key)),
        false => map.insert_mut(key.clone(), nodes),
    }
}

impl Catalog {
    /// Replaces what a node offers. `old` must be what was last put in for it; [`Offer::default`] stands for nothing.
    /// Returns the skills that are not what they were, each once.
    pub fn replace(&mut self, node: &NodeId, old: &Offer, new: &Offer) -> BTreeSet<(Scope, SkillKey)> {
        let mut changed = BTreeSet::new();
        for (old_copy, new_copy) in offer::pairs(&old.copies, &new.copies) {
            if old_copy == new_copy && old.ready == new.ready {
                continue;
            }
            let Some(row) = new_copy.or(old_copy).map(|copy| &copy.row) else { continue };
            self.level(&row.scope, |level| {
                let was = old_copy.map(|copy| (copy, old.ready));
                level.place(node, was, new_copy.map(|copy| (copy, new.ready)));
            });
            changed.insert((row.scope.clone(), row.key.clone()));
        }
        for (place, rows) in offer::changes(&old.shadowed, &new.shadowed) {
            self.level(&place.0, |level| level.shadow(node, &place.1, rows));
            changed.insert(place.clone());
        }
        for (place, diagnostics) in offer::changes(&old.invalid, &new.invalid) {
            self.level(&place.0, |level| put(&mut level.invalid, &place.1, node, diagnostics));
            changed.insert(place.clone());
        }
        changed
    }

    fn level(&mut self, scope: &Scope, change: impl FnOnce(&mut Level)) {
        let Scope::Agent(agent) = scope else { return change(&mut self.all) };
        let mut level = self.agents.get(agent).cloned().unwrap_or_default();
        change(&mut level);
        match level.is_empty() {
            true => drop(self.agents.remove_mut(agent)),
            false => self.agents.insert_mut(agent.clone(), level),
        }
    }

    /// The skill that a key means for an agent: its own copy where it has one.
    pub fn find(&self, agent: Option<&AgentId>, key: &SkillKey) -> Option<&Arc<Skill>> {
        agent.and_then(|agent| self.agents.get(agent)?.skills.get(key)).or_else(|| self.all.skills.get(key))
    }

    /// The skills that keys after this one mean for an agent, by key; from the first one on when it is empty.
    pub fn after<'a>(
        &'a self,
        agent: Option<&AgentId>,
        after: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Skill>> + use<'a> {
        let from = || (Bound::Excluded(after), Bound::Unbounded);
        let own = agent.and_then(|agent| self.agents.get(agent));
        let mut own = own.map(|level| level.skills.range::<str, _>(from())).into_iter().flatten().peekable();
        let mut all = self.all.skills.range::<str, _>(from()).peekable();
        iter::from_fn(move || {
            let order = match (own.peek(), all.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((own, _)), Some((all, _))) => own.cmp(all),
            };
            let (own, all) = (own.next_if(|_| order.is_le()), all.next_if(|_| order.is_ge()));
            own.or(all).map(|(_, skill)| skill)
        })
    }

    /// Every skill that an agent has, whether or not it may see it.
    pub fn skills(&self, agent: Option<&AgentId>) -> impl Iterator<Item = &Arc<Skill>> {
        self.after(agent, "")
    }

    /// How many keys there are for every agent.
    pub fn len(&self) -> usize {
        self.all.skills.size()
    }

    /// Whether there is nothing for every agent.
    pub fn is_empty(&self) -> bool {
        self.all.skills.is_empty()
    }

    /// Copies of a key on a node that another copy there wins over, for an agent.
    pub fn shadowed<'a>(
        &'a self,
        agent: Option<&AgentId>,
        key: &'a SkillKey,
    ) -> impl Iterator<Item = (&'a NodeId, &'a Arc<Row>)> + use<'a> {
        let own = agent.and_then(|agent| self.agents.get(agent));
        own.into_iter()
            .chain([&self.all])
            .filter_map(move |level| level.shadowed.get(key))
            .flat_map(|nodes| nodes.iter())
            .flat_map(|(node, rows)| rows.iter().map(move |row| (node, row)))
    }

    /// Why a key does not load for an agent where it does not: in its workspace, else elsewhere.
    pub fn invalid(&self, agent: Option<&AgentId>, key: &SkillKey) -> Option<&Invalid> {
        agent.and_then(|agent| self.agents.get(agent)?.invalid.get(key)).or_else(|| self.all.invalid.get(key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        advert::Advert,
        skill::{Gate, Kind, Layer, Severity, Verdict},
    };

    fn key(name: &str) -> SkillKey {
        SkillKey::normalise(name).unwrap()
    }

    fn agent(name: &str) -> AgentId {
        name.parse().unwrap()
    }

    fn definition(name: &str, variant: u8) -> Definition {
        let mut definition = Definition::new(key(name), Kind::Executable);
        definition.description = format!("variant {variant}");
        definition.schema = if variant > 1 { r#"{"type":"object"}"#.into() } else { "{}".into() };
        definition
    }

    fn row(name: &str, scope: Scope, variant: u8, eligible: bool, shadowed: bool) -> Arc<Row> {
        Arc::new(Row {
            scope,
            key: key(name),
            layer: Layer::Managed,
            path: format!("/skills/{name}/{variant}"),
            digest: Digest::of(&[variant]),
            partial: false,
            definition: definition_digest(name, variant),
            verdicts: vec![Verdict {
                gate: Gate::Bin,
                subject: "x".into(),
                passed: eligible,
                reason: String::new(),
            }],
            shadowed_by: shadowed.then(|| "/other".into()),
        })
    }

    fn definition_digest(name: &str, variant: u8) -> Digest {
        Digest::of(format!("{name}{variant}").as_bytes())
    }

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn definitions() -> HashMap<Digest, Arc<Definition>> {
        let of = |name| (0..3).map(move |v| (definition_digest(name, v), Arc::new(definition(name, v))));
        NAMES.into_iter().flat_map(of).collect()
    }

    fn offer(advert: &Advert, ready: bool) -> Offer {
        let definitions = definitions();
        Offer::of(
            advert,
            ready,
            |digest| definitions.get(digest).cloned(),
            |agent| agent.as_str() != "stranger",
        )
    }

    fn advert() -> impl Strategy<Value = Advert> {
        let scope = prop_oneof![
            3 => Just(Scope::All),
            1 => prop::sample::select(vec!["x", "y", "stranger"]).prop_map(|name| Scope::Agent(agent(name))),
        ];
        let row = (0..3usize, scope, 0..3u8, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(name, scope, variant, eligible, shadowed)| row(NAMES[name], scope, variant, eligible, shadowed),
        );
        let broken = prop::collection::vec(0..3usize, 0..2);
        (prop::collection::vec(row, 0..7), broken).prop_map(|(rows, broken)| {
            let diagnostics = broken.into_iter().map(|name| diagnostic(NAMES[name])).collect();
            Advert { revision: 1, rows, diagnostics }
        })
    }

    fn diagnostic(name: &str) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            path: format!("/skills/{name}/skill.json"),
            line: Some(3),
            rule: "class".into(),
            message: "no".into(),
            key: Some(key(name)),
            scope: Scope::All,
        }
    }

    /// What a node offers, several times over: the last counts.
    type History = Vec<(usize, Advert, bool)>;

    fn history() -> impl Strategy<Value = History> {
        prop::collection::vec((0..4usize, advert(), any::<bool>()), 0..16)
    }

    fn node(index: usize) -> NodeId {
        format!("n{index}").parse().unwrap()
    }

    fn live(history: &History) -> (Catalog, Vec<Offer>) {
        let (mut catalog, mut offers) = (Catalog::default(), vec![Offer::default(); 4]);
        for (index, advert, ready) in history {
            let new = offer(advert, *ready);
            let before = catalog.clone();
            let changed = catalog.replace(&node(*index), &offers[*index], &new);
            assert_eq!(changed.is_empty(), before == catalog);
            offers[*index] = new;
        }
        (catalog, offers)
    }

    proptest! {
        #[test]
        fn the_catalog_is_a_function_of_the_offers_and_not_of_how_they_came(
            history in history(), seed in any::<u64>(),
        ) {
            let (catalog, offers) = live(&history);
            let mut order: Vec<usize> = (0..4).collect();
            order.rotate_left((seed % 4) as usize);
            let mut fresh = Catalog::default();
            for index in order {
                fresh.replace(&node(index), &Offer::default(), &offers[index]);
            }
            prop_assert_eq!(&catalog, &fresh);
            // Nothing stays of nodes that are gone.
            let mut empty = catalog;
            for (index, offer) in offers.iter().enumerate() {
                empty.replace(&node(index), offer, &Offer::default());
            }
            prop_assert_eq!(empty, Catalog::default());
        }

        #[test]
        fn an_offer_does_not_depend_on_the_order_of_rows(advert in advert(), by in 0..7usize) {
            let mut other = advert.clone();
            let len = other.rows.len().max(1);
            other.rows.rotate_left(by % len);
            other.rows.reverse();
            prop_assert_eq!(offer(&advert, true), offer(&other, true));
        }

        #[test]
        fn counts_are_those_of_the_providers_and_the_most_eligible_variant_is_shown(history in history()) {
            let (catalog, _) = live(&history);
            for agent in [None, Some(agent("x"))] {
                for skill in catalog.skills(agent.as_ref()) {
                    for variant in &skill.variants {
                        let eligible: Vec<_> =
                            variant.providers.values().filter(|provider| provider.row.eligible()).collect();
                        prop_assert_eq!(variant.eligible, eligible.len());
                        let ready = eligible.iter().filter(|provider| provider.ready).count();
                        prop_assert_eq!(variant.ready, ready);
                    }
                    let most = skill.variants.iter().map(|variant| variant.eligible).max();
                    prop_assert_eq!(Some(skill.shown().eligible), most);
                }
            }
        }

        #[test]
        fn a_list_and_a_look_up_say_the_same(history in history()) {
            let (catalog, _) = live(&history);
            for agent in [None, Some(agent("x")), Some(agent("nobody"))] {
                let agent = agent.as_ref();
                let listed: Vec<_> = catalog.skills(agent).cloned().collect();
                let found: Vec<_> =
                    NAMES.iter().filter_map(|name| catalog.find(agent, &key(name))).cloned().collect();
                prop_assert_eq!(&listed, &found);
                let after: Vec<_> = catalog.after(agent, "a").cloned().collect();
                prop_assert_eq!(after, listed.into_iter().filter(|skill| skill.key.as_str() > "a").collect::<Vec<_>>());
            }
        }
    }

    fn catalog(adverts: &[Advert]) -> Catalog {
        let mut catalog = Catalog::default();
        for (index, advert) in adverts.iter().enumerate() {
            catalog.replace(&node(index), &Offer::default(), &offer(advert, true));
        }
        catalog
    }

    fn of_rows(rows: Vec<Arc<Row>>) -> Advert {
        Advert { revision: 1, rows, diagnostics: vec![] }
    }

    #[test]
    fn an_agents_own_copy_comes_first_for_it_alone_also_when_it_cannot_run() {
        let mine = Scope::Agent(agent("x"));
        let catalog = catalog(&[
            of_rows(vec![row("a", mine.clone(), 1, false, false), row("a", Scope::All, 0, true, false)]),
            of_rows(vec![row("a", Scope::All, 0, true, false), row("b", Scope::All, 0, true, false)]),
        ]);
        let shown = |name: Option<&str>| {
            let skill = catalog.find(name.map(agent).as_ref(), &key("a")).unwrap();
            (skill.shown().digest, skill.variants.len(), skill.shown().ready)
        };
        assert_eq!(shown(Some("x")), (Digest::of(&[1]), 1, 0));
        assert_eq!(shown(Some("y")), (Digest::of(&[0]), 1, 2));
        assert_eq!(shown(None), (Digest::of(&[0]), 1, 2));
        let listed =
            |name| catalog.skills(Some(&agent(name))).map(|skill| skill.scope.clone()).collect::<Vec<_>>();
        assert_eq!(listed("x"), [mine, Scope::All]);
        assert_eq!(listed("y"), [Scope::All, Scope::All]);
    }

    #[test]
    fn the_copies_of_an_agent_that_is_not_admitted_do_not_count() {
        let stranger = agent("stranger");
        let catalog = catalog(&[of_rows(vec![row("a", Scope::Agent(stranger.clone()), 0, true, false)])]);
        assert!(catalog.find(Some(&stranger), &key("a")).is_none());
        assert_eq!(catalog, Catalog::default());
    }

    #[test]
    fn a_row_without_its_definition_is_not_shown_yet() {
        let advert = of_rows(vec![row("a", Scope::All, 0, true, false)]);
        assert_eq!(Offer::of(&advert, true, |_| None, |_| true), Offer { ready: true, ..Offer::default() });
        let lying = Arc::new(definition("b", 0));
        assert_eq!(Offer::of(&advert, true, |_| Some(lying.clone()), |_| true).copies.len(), 0);
    }

    #[test]
    fn a_skill_that_does_not_load_is_remembered_as_invalid() {
        let advert = Advert { revision: 1, rows: vec![], diagnostics: vec![diagnostic("a")] };
        assert_eq!(catalog(&[advert]).invalid(None, &key("a")).unwrap().size(), 1);
    }
}
