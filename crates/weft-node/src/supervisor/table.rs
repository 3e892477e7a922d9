//! The table of attempts.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use indexmap::IndexMap;
use tokio::time::Instant;
use weft_core::{
    credit::Credit,
    event::{EventKind, News},
    ids::{Digest, SkillKey},
    outcome::Final,
    schema::Schema,
    skill::Class,
};

use weft_telemetry::Metrics;

use crate::attempt::{Attempt, Key, Order, Payload, Phase};

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
    /// What is under way in this session.
    pub(super) credit: Credit,
    /// Something waits for credit and nothing else.
    pub(super) wants_credit: bool,
    /// The attempt whose large result waits in memory. There is one at a time; others wait in the spool.
    pub(super) large_in_memory: Option<Key>,
    pub(super) draining: bool,
}

/// An attempt that is over.
pub(super) struct Remembered {
    pub(super) content: Digest,
    pub(super) ended: Instant,
}

impl Table {
    pub(super) fn finish(
        &mut self,
        metrics: &Metrics,
        key: Key,
        chunks: Vec<(u64, Payload)>,
        mut last: Final,
    ) {
        let Some(attempt) = self.attempts.get_mut(&key) else { return };
        attempt.phase = Phase::Finished;
        // The files are not needed any more.
        attempt.copy = None;
        attempt.filling = None;
        for (offset, chunk) in chunks {
            attempt.tell_chunk(offset, chunk);
        }
        last.dropped_bytes += attempt.dropped;
        attempt.active = None;
        let Order { skill, class, .. } = &*attempt.order;
        metrics.invocation_ended(skill, *class, last.outcome, attempt.came.elapsed());
        if let Some(spans) = attempt.spans.take() {
            spans.end(&last);
        }
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
        if self.large_in_memory == Some(key) {
            self.large_in_memory = None;
        }
        self.attempts.remove(&key);
    }
}
