//! The last changes of the catalog, so that a watch can go on where it was.

use std::collections::{BTreeSet, VecDeque};

use weft_core::{
    advert::Scope,
    ids::{AgentId, SkillKey},
};

/// Most changes that are remembered, over all revisions.
const MOST: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// What each revision changed, the oldest first and without a gap.
    revisions: VecDeque<(u64, BTreeSet<(Scope, SkillKey)>)>,
    held: usize,
}

impl Changes {
    /// Notes what a revision changed. Revisions come one after the other.
    pub(super) fn note(&mut self, revision: u64, changed: BTreeSet<(Scope, SkillKey)>) {
        self.held += changed.len();
        self.revisions.push_back((revision, changed));
        while self.held > MOST || self.revisions.len() > MOST {
            match self.revisions.pop_front() {
                Some((_, changed)) => self.held -= changed.len(),
                None => break,
            }
        }
    }

    /// The keys that changed for an agent after a revision. `None` when that is not remembered any more.
    pub(super) fn since(
        &self,
        revision: u64,
        now: u64,
        agent: Option<&AgentId>,
    ) -> Option<BTreeSet<SkillKey>> {
        let concerns = |scope: &Scope| match scope {
            Scope::All => true,
            Scope::Agent(other) => agent == Some(other),
        };
        let oldest = self.revisions.front().map_or(now + 1, |(oldest, _)| *oldest);
        if revision > now || revision + 1 < oldest {
            return None;
        }
        // Revisions have no gaps.
        let known = usize::try_from((revision + 1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        let newer = self.revisions.range(known.min(self.revisions.len())..);
        let changed = newer.flat_map(|(_, changed)| changed).filter(|(scope, _)| concerns(scope));
        Some(changed.map(|(_, key)| key.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SkillKey {
        SkillKey::normalise(name).unwrap()
    }

    #[test]
    fn what_changed_since_is_known_as_far_as_it_is_remembered() {
        let agent: AgentId = "x".parse().unwrap();
        let mut changes = Changes::default();
        for (revision, scope, name) in
            [(4, Scope::All, "a"), (5, Scope::Agent(agent.clone()), "b"), (6, Scope::All, "c")]
        {
            changes.note(revision, [(scope, key(name))].into());
        }
        let since = |revision, agent: Option<&AgentId>| changes.since(revision, 6, agent);
        assert_eq!(since(3, None), Some([key("a"), key("c")].into()));
        assert_eq!(since(4, Some(&agent)), Some([key("b"), key("c")].into()));
        assert_eq!(since(6, None), Some([].into()));
        assert_eq!(since(2, None), None, "revision 3 is not remembered");
        assert_eq!(since(7, None), None, "it has not been");
        assert_eq!(Changes::default().since(3, 3, None), Some([].into()));
        assert_eq!(Changes::default().since(2, 3, None), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut changes = Changes::default();
        for revision in 1..=MOST as u64 {
            changes.note(revision, [(Scope::All, key("a")), (Scope::All, key("b"))].into());
        }
        assert!(changes.held <= MOST);
        assert_eq!(changes.revisions.len(), MOST / 2);
    }
}
