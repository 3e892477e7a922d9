//! Definitions by the digest of their bytes: what is known, what is asked for and of whom.
//!
//! A definition travels once: of all nodes that name it one is asked, and another when that one does not answer.

use std::{collections::HashMap, sync::Arc, time::Duration};

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

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    known: Map<Digest, Arc<Compiled>>,
    refused: HashMap<Digest, Malformed>,
    asked: HashMap<Digest, (NodeId, Instant)>,
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
        let busy = self
            .asked
            .get(&digest)
            .is_some_and(|(other, since)| other != node && now.duration_since(*since) < PATIENCE);
        let ask = self.is_missing(&digest) && !busy;
        if ask {
            self.asked.insert(digest, (node.clone(), now));
        }
        ask
    }

    /// Definitions for which a node was asked that has not answered, and that node.
    pub(super) fn overdue(&self, now: Instant) -> Vec<(Digest, NodeId)> {
        let late = |(_, (_, since)): &(&Digest, &(NodeId, Instant))| now.duration_since(*since) >= PATIENCE;
        self.asked.iter().filter(late).map(|(digest, (node, _))| (*digest, node.clone())).collect()
    }

    /// Takes the answer.
    pub(super) fn settle(&mut self, digest: Digest, compiled: Result<Compiled, Malformed>) {
        self.asked.remove(&digest);
        match compiled {
            Ok(compiled) => self.known.insert_mut(digest, Arc::new(compiled)),
            Err(malformed) => drop(self.refused.insert(digest, malformed)),
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.uses.is_empty() && self.asked.is_empty() && self.refused.is_empty()
    }
}
