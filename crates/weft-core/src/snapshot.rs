//! What a session holds still: the skills that an agent could use at one moment.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::{
    ids::{Digest, SkillKey},
    skill::{Class, Definition, Kind, Layer},
};

/// A snapshot, named by its content: the same skills have the same digest, whoever looked at them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    digest: Digest,
    skills: Vec<Pinned>,
}

/// A skill in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// What the variant shown said of it.
    pub definition: Arc<Definition>,
    /// The digest of that definition.
    pub definition_digest: Digest,
    /// The class that the policy judged.
    pub class: Class,
    /// The digests of all variants, that of the one shown first: an invocation may run any of these files.
    pub digests: Arc<[Digest]>,
    /// The highest layer that a copy was found in.
    pub layer: Layer,
}

impl Pinned {
    /// The key.
    pub fn key(&self) -> &SkillKey {
        &self.definition.key
    }
}

impl Snapshot {
    /// A snapshot of these skills.
    pub fn new(mut skills: Vec<Pinned>) -> Self {
        skills.sort_by(|a, b| a.key().cmp(b.key()));
        let mut hash = Sha256::new();
        hash.update(b"weft-snapshot-v1");
        for skill in &skills {
            // The definition's digest covers its key and all that it says.
            hash.update(skill.definition_digest.as_bytes());
            hash.update([class_byte(skill.class), skill.layer as u8]);
            hash.update((skill.digests.len() as u64).to_be_bytes());
            skill.digests.iter().for_each(|digest| hash.update(digest.as_bytes()));
        }
        Self { digest: Digest::from_bytes(hash.finalize().into()), skills }
    }

    /// Its name.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The skills by key.
    pub fn skills(&self) -> &[Pinned] {
        &self.skills
    }

    /// A skill by its key.
    pub fn get(&self, key: &SkillKey) -> Option<&Pinned> {
        self.skills.binary_search_by(|skill| skill.key().cmp(key)).ok().map(|at| &self.skills[at])
    }

    /// The skills that a prompt lists, unless there is no room: all but those that hide from it.
    pub fn prompted(&self) -> impl Iterator<Item = &Pinned> {
        self.skills.iter().filter(|skill| !skill.definition.hidden_from_prompts)
    }

    /// The skills that can be run.
    pub fn executables(&self) -> impl Iterator<Item = &Pinned> {
        self.skills.iter().filter(|skill| skill.definition.kind == Kind::Executable)
    }
}

fn class_byte(class: Class) -> u8 {
    match class {
        Class::Safe => 0,
        Class::Mutating => 1,
        Class::Dangerous => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(name: &str, digests: &[&[u8]], class: Class) -> Pinned {
        let key = SkillKey::normalise(name).unwrap();
        Pinned {
            definition_digest: Digest::of(name.as_bytes()),
            definition: Arc::new(Definition::new(key, Kind::Executable)),
            class,
            digests: digests.iter().map(|bytes| Digest::of(bytes)).collect(),
            layer: Layer::Managed,
        }
    }

    #[test]
    fn the_same_skills_have_the_same_name_and_any_difference_another() {
        let one = || pinned("a", &[b"1"], Class::Safe);
        let two = || pinned("b", &[b"2"], Class::Safe);
        let name = |skills| Snapshot::new(skills).digest();
        let first = name(vec![one(), two()]);
        assert_eq!(first, name(vec![two(), one()]));
        let others = [
            name(vec![]),
            name(vec![one()]),
            name(vec![one(), pinned("b", &[b"3"], Class::Safe)]),
            name(vec![one(), pinned("b", &[b"2", b"3"], Class::Safe)]),
            name(vec![one(), pinned("b", &[b"2"], Class::Mutating)]),
            name(vec![one(), pinned("c", &[b"2"], Class::Safe)]),
            name(vec![one(), Pinned { layer: Layer::Workspace, ..two() }]),
        ];
        for (index, other) in others.iter().enumerate() {
            assert!(*other != first && !others[..index].contains(other), "{index}");
        }
    }

    #[test]
    fn a_skill_is_found_by_its_key() {
        let snapshot = Snapshot::new(["c", "a", "b"].map(|name| pinned(name, &[b"1"], Class::Safe)).into());
        let key = |name| SkillKey::normalise(name).unwrap();
        assert_eq!(snapshot.get(&key("b")).unwrap().key(), &key("b"));
        assert!(snapshot.get(&key("d")).is_none());
    }
}
