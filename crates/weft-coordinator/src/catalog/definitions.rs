//! Definitions by the digest of their bytes: what is known, what is asked for and of whom.
//!
//! A definition travels once: of all nodes that name it one is asked, and another when that one does not answer.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;
use weft_core::{
    catalog::Map,
    ids::{Digest, NodeId},
    schema::Schema,
    skill::{Definition, Kind},
};
use weft_proto::convert::{Malformed, decode_definition};

/// How long a node may take to answer before another is asked.
const PATIENCE: Duration = Duration::from_secs(3);

/// A definition and what calls need of it, worked out once.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) definition: Arc<Definition>,
    pub(crate) schema: Schema,
}

impl Compiled {
    /// Decodes a definition and compiles its schema, which a hostile one makes slow within its bounds.
    pub(super) fn of(bytes: &Bytes) -> Result<Self, Malformed> {
        let (_, definition) = decode_definition(bytes)?;
        let text = match definition.kind {
            Kind::Executable => definition.schema.as_str(),
            Kind::Instructions => "{}",
        };
        let schema = Schema::compile(text).map_err(|error| Malformed::new("schema", error))?;
        Ok(Self { definition: Arc::new(definition), schema })
    }
}

/// Who is asked for a definition.
#[derive(Debug)]
struct Asked {
    node: NodeId,
    since: Instant,
    /// All that have been.
    tried: HashSet<NodeId>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    known: Map<Digest, Arc<Compiled>>,
    refused: HashMap<Digest, Malformed>,
    asked: HashMap<Digest, Asked>,
    /// The nodes that name each of those that nobody knows.
    waiting: HashMap<Digest, HashSet<NodeId>>,
    /// How many rows name each.
    uses: HashMap<Digest, usize>,
}

impl Definitions {
    /// What is known. A clone of it costs nothing.
    pub(super) fn known(&self) -> &Map<Digest, Arc<Compiled>> {
        &self.known
    }

    /// Why a definition was not taken.
    pub(super) fn refusal(&self, digest: &Digest) -> Option<&Malformed> {
        self.refused.get(digest)
    }

    /// Whether nobody knows yet what a definition says.
    pub(super) fn is_missing(&self, digest: &Digest) -> bool {
        !self.known.contains_key(digest) && !self.refused.contains_key(digest)
    }

    /// Whether some row names a definition.
    pub(super) fn is_named(&self, digest: &Digest) -> bool {
        self.uses.contains_key(digest)
    }

    /// Notes what a node names that nobody knows.
    pub(super) fn wait(&mut self, node: &NodeId, missing: impl IntoIterator<Item = Digest>) {
        for digest in missing {
            self.waiting.entry(digest).or_default().insert(node.clone());
        }
    }

    /// Forgets what a node named.
    pub(super) fn wait_no_more(&mut self, node: &NodeId) {
        // Mostly everything is known.
        self.waiting.retain(|_, nodes| {
            nodes.remove(node);
            !nodes.is_empty()
        });
    }

    /// The nodes that name a definition which nobody knows.
    pub(super) fn waiting(&self, digest: &Digest) -> impl Iterator<Item = &NodeId> {
        self.waiting.get(digest).into_iter().flatten()
    }

    /// Counts rows that name a definition.
    pub(super) fn use_all(&mut self, digests: impl IntoIterator<Item = Digest>) {
        for digest in digests {
            *self.uses.entry(digest).or_default() += 1;
        }
    }

    /// Forgets rows that name a definition, and the definition with the last of them.
    pub(super) fn release_all(&mut self, digests: impl IntoIterator<Item = Digest>) {
        for digest in digests {
            let Some(uses) = self.uses.get_mut(&digest) else { continue };
            *uses -= 1;
            if *uses == 0 {
                self.uses.remove(&digest);
                self.known.remove_mut(&digest);
                self.refused.remove(&digest);
                self.asked.remove(&digest);
            }
        }
    }

    /// Whether a node has to be asked for a definition now: nobody knows it, and no other node is being asked.
    pub(super) fn ask(&mut self, digest: Digest, node: &NodeId, now: Instant) -> bool {
        let busy = |asked: &Asked| asked.node != *node && now.duration_since(asked.since) < PATIENCE;
        let ask = self.is_missing(&digest) && !self.asked.get(&digest).is_some_and(busy);
        if ask {
            self.turn_to(digest, node, now);
        }
        ask
    }

    /// Notes that a node is asked from now on.
    pub(super) fn turn_to(&mut self, digest: Digest, node: &NodeId, now: Instant) {
        let mut tried = self.asked.remove(&digest).map(|asked| asked.tried).unwrap_or_default();
        tried.insert(node.clone());
        self.asked.insert(digest, Asked { node: node.clone(), since: now, tried });
    }

    /// Definitions for which a node was asked that has not answered. Each is told once in a while.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Digest> {
        let late = self.asked.iter_mut().filter(|(_, asked)| now.duration_since(asked.since) >= PATIENCE);
        late.map(|(digest, asked)| {
            // Until then nobody is able either.
            asked.since = now;
            *digest
        })
        .collect()
    }

    /// Which of the nodes that name a definition is to be asked next: one that has not been, as long as there is one.
    pub(super) fn next<'a>(&'a self, digest: &Digest, able: impl Fn(&NodeId) -> bool) -> Option<&'a NodeId> {
        let tried = |node: &NodeId| self.asked.get(digest).is_some_and(|asked| asked.tried.contains(node));
        let mut fresh = self.waiting(digest).filter(|node| !tried(node) && able(node));
        fresh.next().or_else(|| self.waiting(digest).find(|node| able(node)))
    }

    /// Takes the answer. Returns the nodes that waited for it.
    pub(super) fn settle(
        &mut self,
        digest: Digest,
        compiled: Result<Compiled, Malformed>,
    ) -> HashSet<NodeId> {
        self.asked.remove(&digest);
        match compiled {
            Ok(compiled) => self.known.insert_mut(digest, Arc::new(compiled)),
            Err(malformed) => drop(self.refused.insert(digest, malformed)),
        }
        self.waiting.remove(&digest).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
            && self.uses.is_empty()
            && self.asked.is_empty()
            && self.refused.is_empty()
            && self.waiting.is_empty()
    }
}
