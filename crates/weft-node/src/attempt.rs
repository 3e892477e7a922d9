//! One attempt on this node: what it is, and its news until they are acknowledged.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::time::Instant;
use weft_core::{
    event::{EventKind, News},
    ids::{AgentId, Digest, InvocationId, SkillKey},
    limits,
    skill::Class,
    trace::TraceContext,
};
use weft_exec::Stopper;
use weft_proto::{convert::timestamp_to_wire, link};
use weft_skills::Copy;

/// Names an attempt.
pub(crate) type Key = (InvocationId, u32);

/// Bytes of stderr that are kept in memory for one attempt until they are acknowledged. Beyond them the oldest that
/// has not been sent is dropped, and a gap says so. State changes and results are never dropped.
const KEPT_STDERR: u64 = 4 * 1024 * 1024;
/// What a piece of news costs beyond its payload.
const NEWS_COST: u64 = 128;

/// What is to be run.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) key: Key,
    pub(crate) skill: SkillKey,
    pub(crate) digest: Digest,
    pub(crate) pinned: bool,
    pub(crate) agent: Option<AgentId>,
    pub(crate) args: Bytes,
    pub(crate) class: Class,
    pub(crate) budget: std::time::Duration,
    /// After this moment it is never started.
    pub(crate) start_by: Instant,
    pub(crate) trace: Option<TraceContext>,
}

impl Order {
    /// What it asks for, as one digest: a second dispatch under the same name must ask for the same.
    pub(crate) fn content(&self) -> Digest {
        let agent = self.agent.as_ref().map(AgentId::as_str).unwrap_or_default();
        let args = Digest::of(&self.args);
        Digest::of(format!("{}\n{}\n{args}\n{agent}\n{}", self.skill, self.digest, self.class).as_bytes())
    }
}

/// Where an attempt is.
#[derive(Clone)]
pub(crate) enum Phase {
    /// It waits for a slot.
    Waiting,
    /// It is being started; a cancel that comes now is kept.
    Starting { cancelled: bool },
    /// The process runs.
    Running { stopper: Stopper },
    /// It has ended.
    Finished,
}

/// See the module.
pub(crate) struct Attempt {
    pub(crate) order: Arc<Order>,
    /// The files that are to be started, as they were when it was accepted.
    pub(crate) copy: Option<Arc<Copy>>,
    pub(crate) phase: Phase,
    /// It stands in the line of attempts that have something to send.
    pub(crate) in_line: bool,
    /// Bytes of stderr that were dropped here.
    pub(crate) dropped: u64,
    stderr_offset: u64,
    news: VecDeque<Item>,
    next_sequence: u64,
    acknowledged: u64,
    /// Items at the front of `news` that were sent in this session.
    sent: usize,
    sent_bytes: u64,
    /// Bytes of stderr in `news`.
    kept_stderr: u64,
}

struct Item {
    sequence: u64,
    time: Timestamp,
    news: News,
    cost: u64,
}

impl Item {
    fn new(sequence: u64, news: News) -> Self {
        let payload = match &news {
            News::Accepted { .. } => 0,
            News::Event(kind) => kind.payload() as u64,
        };
        Self { sequence, time: Timestamp::now(), news, cost: NEWS_COST + payload }
    }

    /// What it costs to keep as stderr: many small pieces cost more than their bytes.
    fn kept(&self) -> u64 {
        if self.stderr() > 0 { self.cost } else { 0 }
    }

    /// Bytes of stderr that it carries.
    fn stderr(&self) -> u64 {
        match &self.news {
            News::Event(EventKind::Stderr { bytes, .. }) => bytes.len() as u64,
            News::Accepted { .. } | News::Event(_) => 0,
        }
    }
}

impl Attempt {
    pub(crate) fn new(order: Arc<Order>, copy: Option<Arc<Copy>>) -> Self {
        Self {
            order,
            copy,
            phase: Phase::Waiting,
            in_line: false,
            dropped: 0,
            stderr_offset: 0,
            news: VecDeque::new(),
            next_sequence: 1,
            acknowledged: 0,
            sent: 0,
            sent_bytes: 0,
            kept_stderr: 0,
        }
    }

    /// Adds a piece of news.
    pub(crate) fn tell(&mut self, news: News) {
        let item = Item::new(self.next_sequence, news);
        self.next_sequence += 1;
        self.kept_stderr += item.kept();
        self.news.push_back(item);
        while self.kept_stderr > KEPT_STDERR && self.drop_oldest_stderr() {}
    }

    /// Adds bytes of stderr.
    pub(crate) fn tell_stderr(&mut self, bytes: Bytes) {
        let offset = self.stderr_offset;
        self.stderr_offset += bytes.len() as u64;
        self.tell(News::Event(EventKind::Stderr { offset, bytes }));
    }

    /// Says that bytes of stderr were dropped before they came here.
    pub(crate) fn tell_dropped(&mut self, bytes: u64) {
        self.stderr_offset += bytes;
        let sequence = self.next_sequence;
        self.tell(News::Event(EventKind::Gap { node_from: sequence, node_to: sequence, bytes }));
    }

    /// Turns the oldest stderr that has not been sent into a gap. `false` when there is none.
    fn drop_oldest_stderr(&mut self) -> bool {
        let Some(at) = (self.sent..self.news.len()).find(|at| self.news[*at].stderr() > 0) else {
            return false;
        };
        let (sequence, bytes) = (self.news[at].sequence, self.news[at].stderr());
        self.dropped += bytes;
        self.kept_stderr -= self.news[at].kept();
        // Joins the gap before it, so that a flood costs one item.
        if at > self.sent
            && let Item {
                sequence: before,
                news: News::Event(EventKind::Gap { node_to, bytes: missing, .. }),
                ..
            } = &mut self.news[at - 1]
            && *node_to + 1 == sequence
        {
            *node_to = sequence;
            *missing += bytes;
            *before = sequence;
            self.news.remove(at);
        } else {
            let gap = EventKind::Gap { node_from: sequence, node_to: sequence, bytes };
            self.news[at] = Item::new(sequence, News::Event(gap));
        }
        true
    }

    /// Whether there is news that was not sent in this session.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.news.len()
    }

    /// Whether there is news to send, and credit for it.
    pub(crate) fn can_send(&self, link_room: u64) -> bool {
        self.news.get(self.sent).is_some_and(|item| {
            let credit = limits::INVOCATION_CREDIT.saturating_sub(self.sent_bytes);
            // One item always fits an empty window, however large it is.
            (item.cost <= credit || self.sent_bytes == 0) && item.cost <= link_room
        })
    }

    /// The next piece of news to send, and what it costs.
    pub(crate) fn send_next(&mut self) -> Option<(link::NodeEvent, u64)> {
        let item = self.news.get(self.sent)?;
        let event = link::NodeEvent {
            invocation_id: self.order.key.0.to_string(),
            attempt: self.order.key.1,
            node_sequence: item.sequence,
            time: Some(timestamp_to_wire(item.time)),
            event: Some((&item.news).into()),
        };
        self.sent += 1;
        self.sent_bytes += item.cost;
        Some((event, item.cost))
    }

    /// Everything up to a sequence is recorded. Returns the link's bytes that are free again.
    pub(crate) fn acknowledge(&mut self, sequence: u64) -> u64 {
        let mut freed = 0;
        while self.sent > 0 && self.news.front().is_some_and(|item| item.sequence <= sequence) {
            if let Some(item) = self.news.pop_front() {
                self.acknowledged = item.sequence;
                self.sent -= 1;
                self.sent_bytes -= item.cost;
                self.kept_stderr -= item.kept();
                freed += item.cost;
            }
        }
        freed
    }

    /// A new session: everything that is not acknowledged is sent again.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
        self.sent_bytes = 0;
        self.in_line = false;
    }

    /// Whether everything it had to tell is recorded.
    pub(crate) fn is_told(&self) -> bool {
        self.news.is_empty()
    }

    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// How it introduces itself in a hello.
    pub(crate) fn in_hand(&self) -> link::AttemptInHand {
        link::AttemptInHand {
            invocation_id: self.order.key.0.to_string(),
            attempt: self.order.key.1,
            acknowledged_sequence: self.acknowledged,
            finished: self.is_finished(),
            class: weft_proto::v1::SkillClass::from(self.order.class).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn attempt() -> Attempt {
        let order = Order {
            key: (InvocationId::generate(), 1),
            skill: SkillKey::normalise("a").unwrap(),
            digest: Digest::of(b""),
            pinned: false,
            agent: None,
            args: Bytes::new(),
            class: Class::Safe,
            budget: Duration::from_secs(1),
            start_by: Instant::now(),
            trace: None,
        };
        Attempt::new(Arc::new(order), None)
    }

    fn drain(attempt: &mut Attempt) -> Vec<link::NodeEvent> {
        std::iter::from_fn(|| attempt.send_next().map(|(event, _)| event)).collect()
    }

    #[test]
    fn what_is_not_acknowledged_is_sent_again_in_a_new_session() {
        let mut attempt = attempt();
        attempt.tell(News::Accepted { queued_before: 0 });
        for _ in 0..3 {
            attempt.tell_stderr(Bytes::from_static(b"line\n"));
        }
        assert_eq!(drain(&mut attempt).len(), 4);
        assert!(attempt.acknowledge(2) > 0);
        attempt.rewind();
        let again: Vec<_> = drain(&mut attempt).iter().map(|event| event.node_sequence).collect();
        assert_eq!(again, [3, 4]);
        attempt.acknowledge(4);
        assert!(attempt.is_told());
    }

    #[test]
    fn a_flood_without_credit_becomes_one_gap_and_keeps_the_newest() {
        let mut attempt = attempt();
        attempt.tell(News::Accepted { queued_before: 0 });
        let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
        for _ in 0..1000 {
            attempt.tell_stderr(chunk.clone());
        }
        attempt.tell(News::Event(EventKind::Started { attempt: 1, pid: 1 }));
        assert!(attempt.kept_stderr <= KEPT_STDERR);
        let sent = drain(&mut attempt);
        let mut next = 1;
        let mut gaps = 0;
        let mut bytes = 0;
        for event in &sent {
            match &event.event {
                Some(link::node_event::Event::Gap(gap)) => {
                    assert_eq!(gap.node_from, next);
                    assert_eq!(gap.node_to, event.node_sequence);
                    gaps += 1;
                    bytes += gap.bytes;
                }
                Some(link::node_event::Event::Stderr(stderr)) => {
                    assert_eq!(stderr.offset, bytes);
                    bytes += stderr.data.len() as u64;
                    assert_eq!(event.node_sequence, next);
                }
                _ => assert_eq!(event.node_sequence, next),
            }
            next = event.node_sequence + 1;
        }
        assert_eq!((gaps, bytes), (1, 1000 * 64 * 1024));
        assert_eq!(attempt.dropped, 1000 * 64 * 1024 - (sent.len() as u64 - 3) * 64 * 1024);
    }

    #[test]
    fn a_large_result_costs_no_stderr() {
        let mut attempt = attempt();
        for _ in 0..32 {
            attempt.tell_stderr(Bytes::from(vec![b'x'; 64 * 1024]));
        }
        for n in 0..64 {
            let bytes = Bytes::from(vec![b'y'; 256 * 1024]);
            attempt.tell(News::Event(EventKind::OutputChunk { offset: n * 256 * 1024, bytes }));
        }
        assert_eq!((attempt.dropped, drain(&mut attempt).len()), (0, 96));
    }

    #[test]
    fn credit_bounds_what_is_under_way() {
        let mut attempt = attempt();
        for _ in 0..10 {
            attempt.tell_stderr(Bytes::from(vec![b'x'; 60 * 1024]));
        }
        let mut sent = 0;
        while attempt.can_send(u64::MAX) {
            attempt.send_next();
            sent += 1;
        }
        assert_eq!(sent, 4);
        attempt.acknowledge(1);
        assert!(attempt.can_send(u64::MAX));
        assert!(!attempt.can_send(100));
    }
}
