//! The table of attempts.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use indexmap::IndexMap;
use tokio::time::Instant;
use weft_core::{
    event::{EventKind, News},
    ids::{Digest, SkillKey},
    limits,
    outcome::Final,
    schema::Schema,
    skill::Class,
};

use crate::attempt::{Attempt, Key, Phase};

/// Most attempts that are remembered after their end; the oldest is forgotten first.
const MAX_REMEMBERED: usize = 100_000;

#[derive(Default)]
pub(super) struct Table {
    pub(super) attempts: HashMap<Key, Attempt>,
    /// Attempts that are over and told: what each asked for, the oldest first. Of skills that are not safe only:
    /// running a safe one again does no harm.
    pub(super) remembered: IndexMap<Key, Remembered>,
    /// Attempts that wait for a slot, the oldest first.
    pub(super) waiting: VecDeque<Key>,
    /// Attempts that have something to send, in turn.
    pub(super) line: VecDeque<Key>,
    pub(super) running: usize,
    pub(super) running_by_skill: HashMap<SkillKey, u32>,
    /// Schemas by their text, compiled once while a skill keeps it.
    pub(super) schemas: HashMap<String, Arc<Schema>>,
    pub(super) sent_bytes: u64,
    pub(super) draining: bool,
}

/// An attempt that is over.
pub(super) struct Remembered {
    pub(super) content: Digest,
    pub(super) ended: Instant,
}

impl Table {
    pub(super) fn finish(&mut self, key: Key, chunks: Vec<(u64, Bytes)>, mut last: Final) {
        let Some(attempt) = self.attempts.get_mut(&key) else { return };
        attempt.phase = Phase::Finished;
        // The files are not needed any more.
        attempt.copy = None;
        for (offset, bytes) in chunks {
            attempt.tell(News::Event(EventKind::OutputChunk { offset, bytes }));
        }
        last.dropped_bytes += attempt.dropped;
        attempt.tell(News::Event(EventKind::Finished(Box::new(last))));
        self.join_line(key);
    }

    pub(super) fn join_line(&mut self, key: Key) {
        if let Some(attempt) = self.attempts.get_mut(&key)
            && !attempt.in_line
        {
            attempt.in_line = true;
            self.line.push_back(key);
        }
    }

    /// Forgets an attempt that has ended and whose news are all recorded; one that must not run again leaves a trace.
    pub(super) fn forget_if_over(&mut self, key: Key) {
        let Some(attempt) = self.attempts.get(&key) else { return };
        if !(attempt.is_finished() && attempt.is_told()) {
            return;
        }
        if attempt.order.class > Class::Safe {
            if self.remembered.len() >= MAX_REMEMBERED {
                self.remembered.shift_remove_index(0);
            }
            let over = Remembered { content: attempt.order.content(), ended: Instant::now() };
            self.remembered.insert(key, over);
        }
        self.attempts.remove(&key);
    }

    pub(super) fn link_room(&self) -> u64 {
        limits::LINK_CREDIT.saturating_sub(self.sent_bytes)
    }
}
