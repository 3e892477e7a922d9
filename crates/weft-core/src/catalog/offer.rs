//! What of a node's advert counts.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    advert::{Advert, Row, Scope},
    ids::{AgentId, Digest, SkillKey},
    skill::{Definition, Diagnostic, Severity},
};

/// What one node brings into a catalog: its rows as far as their definitions are known and its agents are admitted,
/// each key once in each scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// In the order of scope and key. A list and not a map: there is one for each of thousands of nodes.
    pub(super) copies: Vec<Copy>,
    pub(super) shadowed: BTreeMap<(Scope, SkillKey), Vec<Arc<Row>>>,
    pub(super) invalid: BTreeMap<(Scope, SkillKey), Vec<Diagnostic>>,
    /// The node is connected and takes work.
    pub(super) ready: bool,
}

/// A copy that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) row: Arc<Row>,
    pub(super) definition: Arc<Definition>,
}

impl Copy {
    fn place(&self) -> (&Scope, &SkillKey) {
        (&self.row.scope, &self.row.key)
    }

    /// Both belong to the same variant of a skill.
    pub(super) fn is_of_variant(&self, other: &Self) -> bool {
        (self.row.digest, self.row.definition) == (other.row.digest, other.row.definition)
    }
}

impl Offer {
    /// What counts of an advert. A row whose definition is not known, or speaks of another key, is left out, and so is
    /// one of an agent that is not admitted.
    pub fn of(
        advert: &Advert,
        ready: bool,
        definition: impl Fn(&Digest) -> Option<Arc<Definition>>,
        admits: impl Fn(&AgentId) -> bool,
    ) -> Self {
        let mut offer = Self { ready, ..Self::default() };
        let counts = |scope: &Scope| match scope {
            Scope::All => true,
            Scope::Agent(agent) => admits(agent),
        };
        for row in advert.rows.iter().filter(|row| counts(&row.scope)) {
            let Some(definition) = definition(&row.definition).filter(|definition| definition.key == row.key)
            else {
                continue;
            };
            match row.shadowed_by {
                None => offer.copies.push(Copy { row: Arc::clone(row), definition }),
                Some(_) => {
                    let place = (row.scope.clone(), row.key.clone());
                    offer.shadowed.entry(place).or_default().push(Arc::clone(row));
                }
            }
        }
        // A node offers a key once. If a broken one repeats itself, the row that sorts first counts.
        offer.copies.sort_by(|a, b| a.place().cmp(&b.place()).then_with(|| a.row.cmp(&b.row)));
        offer.copies.dedup_by(|later, first| later.place() == first.place());
        offer.shadowed.values_mut().for_each(|rows| rows.sort());
        for diagnostic in advert.diagnostics.iter().filter(|diagnostic| counts(&diagnostic.scope)) {
            if let (Some(key), Severity::Error) = (&diagnostic.key, diagnostic.severity) {
                let place = (diagnostic.scope.clone(), key.clone());
                offer.invalid.entry(place).or_default().push(diagnostic.clone());
            }
        }
        for list in offer.invalid.values_mut() {
            list.sort_by(|x, y| (&x.path, x.line, &x.rule).cmp(&(&y.path, y.line, &y.rule)));
        }
        offer
    }

    /// How many copies count.
    pub fn copies(&self) -> usize {
        self.copies.len()
    }
}

/// The copies of two offers side by side, by scope and key.
pub(super) fn pairs<'a>(
    old: &'a [Copy],
    new: &'a [Copy],
) -> impl Iterator<Item = (Option<&'a Copy>, Option<&'a Copy>)> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.place().cmp(&new.place()),
        };
        Some((old.next_if(|_| order.is_le()), new.next_if(|_| order.is_ge())))
    })
}

/// What is different in the second map; an empty list stands for what is gone.
pub(super) fn changes<'a, K: Ord, T: PartialEq>(
    old: &'a BTreeMap<K, Vec<T>>,
    new: &'a BTreeMap<K, Vec<T>>,
) -> impl Iterator<Item = (&'a K, &'a [T])> {
    let keys: BTreeSet<&K> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(key) != new.get(key))
        .map(|key| (key, new.get(key).map_or(&[][..], Vec::as_slice)))
}
