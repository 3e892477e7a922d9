//! Credit on a node's link: how much news may be under way without being recorded.
//!
//! HTTP/2 gives one window to the whole stream, and the coordinator never stops reading it. So the node counts what it
//! sends, and the coordinator counts what it has not recorded yet; both by this one rule.

use std::collections::HashMap;

use crate::{
    event::{EventKind, News},
    ids::InvocationId,
    limits,
};

/// What a piece of news costs beyond its payload, in bytes.
const NEWS_COST: u64 = 128;

/// Names an attempt.
pub type AttemptKey = (InvocationId, u32);

/// What is under way on one link, by attempt.
#[derive(Debug)]
pub struct Credit {
    of_attempt: u64,
    of_link: u64,
    under_way: u64,
    attempts: HashMap<AttemptKey, u64>,
    /// The attempt whose large result is in flight, which only the link's credit bounds.
    large: Option<AttemptKey>,
}

/// What one piece of news costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    bytes: u64,
    chunk: bool,
}

impl Cost {
    /// Of a piece of news; `None` is one of a kind that this side does not know.
    pub fn of(news: Option<&News>) -> Self {
        let (payload, chunk) = match news {
            Some(News::Event(kind)) => (kind.payload() as u64, matches!(kind, EventKind::OutputChunk { .. })),
            Some(News::Accepted { .. }) | None => (0, false),
        };
        Self { bytes: NEWS_COST + payload, chunk }
    }

    /// The same with this many bytes of payload beside it.
    #[must_use]
    pub fn with_payload(self, bytes: u64) -> Self {
        Self { bytes: self.bytes + bytes, ..self }
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.bytes
    }
}

impl Default for Credit {
    fn default() -> Self {
        Self::new(limits::INVOCATION_CREDIT, limits::LINK_CREDIT)
    }
}

impl Credit {
    /// Nothing is under way yet.
    pub fn new(of_attempt: u64, of_link: u64) -> Self {
        Self { of_attempt, of_link, under_way: 0, attempts: HashMap::new(), large: None }
    }

    /// Whether a piece of news may be sent. One piece always may when nothing of its attempt is under way, however
    /// large it is; and one attempt at a time may send a large result as fast as the link takes it.
    pub fn allows(&self, key: AttemptKey, cost: Cost) -> bool {
        let may_be_large = cost.chunk && self.large.is_none_or(|large| large == key);
        self.fits_link(cost) && (self.fits_attempt(key, cost) || may_be_large)
    }

    /// Whether a sender that keeps to the rule can have sent this. The receiver hears of everything earlier than the
    /// sender hears that it is recorded, so it cannot tell whose large result has the link; the link's bound holds.
    pub fn is_sound(&self, key: AttemptKey, cost: Cost) -> bool {
        self.fits_link(cost) && (cost.chunk || self.fits_attempt(key, cost))
    }

    fn fits_link(&self, cost: Cost) -> bool {
        self.under_way == 0 || self.under_way + cost.bytes <= self.of_link
    }

    fn fits_attempt(&self, key: AttemptKey, cost: Cost) -> bool {
        let own = self.attempts.get(&key).copied().unwrap_or(0);
        own == 0 || own + cost.bytes <= self.of_attempt
    }

    /// Notes that a piece of news is under way.
    pub fn take(&mut self, key: AttemptKey, cost: Cost) {
        let own = self.attempts.entry(key).or_default();
        *own += cost.bytes;
        self.under_way += cost.bytes;
        if cost.chunk && *own > self.of_attempt && self.large.is_none() {
            self.large = Some(key);
        }
    }

    /// Notes that a piece of news is recorded.
    pub fn give_back(&mut self, key: AttemptKey, cost: Cost) {
        let Some(own) = self.attempts.get_mut(&key) else { return };
        *own = own.saturating_sub(cost.bytes);
        self.under_way = self.under_way.saturating_sub(cost.bytes);
        if *own <= self.of_attempt && self.large == Some(key) {
            self.large = None;
        }
        if *own == 0 {
            self.attempts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn stderr(len: usize) -> Cost {
        let bytes = Bytes::from(vec![b'x'; len]);
        Cost::of(Some(&News::Event(EventKind::Stderr { offset: 0, bytes })))
    }

    fn chunk() -> Cost {
        let bytes = Bytes::from(vec![b'x'; limits::CHUNK_BYTES]);
        Cost::of(Some(&News::Event(EventKind::OutputChunk { offset: 0, bytes })))
    }

    fn keys() -> [AttemptKey; 2] {
        [(InvocationId::generate(), 1), (InvocationId::generate(), 1)]
    }

    #[test]
    fn an_attempt_stops_at_its_credit_and_goes_on_when_some_comes_back() {
        let (mut credit, [key, other]) = (Credit::default(), keys());
        let cost = stderr(60 * 1024);
        for _ in 0..4 {
            assert!(credit.allows(key, cost));
            credit.take(key, cost);
        }
        assert!(!credit.allows(key, cost));
        assert!(credit.allows(other, cost));
        credit.give_back(key, cost);
        assert!(credit.allows(key, cost));
    }

    #[test]
    fn one_large_result_at_a_time_has_the_whole_link() {
        let (mut credit, [key, other]) = (Credit::default(), keys());
        let mut sent = 0;
        while credit.allows(key, chunk()) {
            credit.take(key, chunk());
            sent += 1;
        }
        assert_eq!(sent as u64, limits::LINK_CREDIT / chunk().bytes());
        for _ in 0..10 {
            credit.give_back(key, chunk());
        }
        // Another one goes piece by piece.
        credit.take(other, chunk());
        assert!(!credit.allows(other, chunk()));
        for _ in 10..sent {
            credit.give_back(key, chunk());
        }
        assert!(credit.allows(other, chunk()));
    }

    proptest! {
        #[test]
        fn what_is_under_way_stays_within_the_link_and_one_piece(
            steps in proptest::collection::vec((0usize..2, 0usize..300_000, any::<bool>(), any::<bool>()), 0..200)
        ) {
            let (mut credit, keys) = (Credit::new(100_000, 1_000_000), keys());
            let mut sent: Vec<(AttemptKey, Cost)> = Vec::new();
            for (who, len, is_chunk, back) in steps {
                let cost = Cost { bytes: NEWS_COST + len as u64, chunk: is_chunk };
                if back {
                    if let Some((key, cost)) = sent.pop() {
                        credit.give_back(key, cost);
                    }
                } else if credit.allows(keys[who], cost) {
                    credit.take(keys[who], cost);
                    sent.push((keys[who], cost));
                }
                let under_way: u64 = sent.iter().map(|(_, cost)| cost.bytes).sum();
                prop_assert_eq!(credit.under_way, under_way);
                prop_assert!(under_way <= 1_000_000 || sent.len() == 1);
                let over = keys.iter().filter(|key| {
                    let own = sent.iter().filter(|(k, _)| k == *key);
                    own.clone().count() > 1 && own.map(|(_, cost)| cost.bytes).sum::<u64>() > 100_000
                });
                prop_assert!(over.count() <= 1);
            }
        }
    }
}
