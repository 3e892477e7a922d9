//! One attempt on this node: what it is, and its news until they are acknowledged.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::time::Instant;
use weft_core::{
    credit::{Cost, Credit},
    event::{EventKind, News},
    ids::{AgentId, Digest, SkillKey},
    limits,
    outcome::{Outcome, ResultBody},
    skill::Class,
    trace::TraceContext,
};
use weft_exec::Stopper;
use weft_proto::{convert::timestamp_to_wire, link};
use weft_skills::Copy;
use weft_telemetry::metrics::Active;

use crate::{
    spans::Spans,
    spool::{Extent, Filling, Spool},
};

pub(crate) use weft_core::credit::AttemptKey as Key;

/// Bytes of stderr that one attempt keeps in memory until they are acknowledged: what may be under way, and as much
/// again that waits. The rest waits in the spool.
const KEPT_STDERR: u64 = 2 * limits::INVOCATION_CREDIT;
/// Most bytes of stderr in one piece of news, so that it fits a frame.
const PIECE: u64 = limits::FRAME_BYTES as u64 - 1024;

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
    /// What the process goes on from.
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
    /// When it came.
    pub(crate) came: Instant,
    /// Until it has ended.
    pub(crate) spans: Option<Spans>,
    /// Counts it as active until it has ended.
    pub(crate) active: Option<Active>,
    /// It stands in the line of attempts that have something to send.
    pub(crate) in_line: bool,
    /// Bytes of stderr that were dropped here.
    pub(crate) dropped: u64,
    stderr_offset: u64,
    news: VecDeque<Item>,
    next_sequence: u64,
    acknowledged: u64,
    /// The last sequence that was sent in any session. What stands up to there may be recorded, and stays as it is.
    ever_sent: u64,
    /// Items at the front of `news` that were sent in this session.
    sent: usize,
    /// What the stderr in `news` costs in memory.
    kept_stderr: u64,
    /// The block of the spool that the next stderr goes to.
    pub(crate) filling: Option<Filling>,
}

/// Where bytes of stderr are to be kept.
pub(crate) enum Place {
    Memory,
    /// In the spool, where they are to be written before they are told.
    Spool(Extent),
    /// There is no room at all.
    Nowhere,
}

/// A payload of news that is told now.
pub(crate) enum Payload {
    Memory(Bytes),
    Spool(Extent),
}

/// A piece of news on its way out.
pub(crate) struct Outgoing {
    /// Without its payload when that is in the spool.
    pub(crate) event: link::NodeEvent,
    pub(crate) spooled: Option<Extent>,
    pub(crate) cost: Cost,
}

struct Item {
    sequence: u64,
    time: Timestamp,
    /// With an empty payload when that is in the spool.
    news: News,
    spooled: Option<Extent>,
}

impl Item {
    fn cost(&self) -> Cost {
        Cost::of(Some(&self.news)).with_payload(self.spooled.as_ref().map_or(0, Extent::len))
    }

    /// What its stderr costs in memory: many small pieces cost more than their bytes.
    fn kept(&self) -> u64 {
        if self.spooled.is_none() && self.stderr() > 0 { self.cost().bytes() } else { 0 }
    }

    /// Bytes of stderr that it carries.
    fn stderr(&self) -> u64 {
        match &self.news {
            News::Event(EventKind::Stderr { bytes, .. }) => {
                bytes.len() as u64 + self.spooled.as_ref().map_or(0, Extent::len)
            }
            News::Accepted { .. } | News::Event(_) => 0,
        }
    }

    fn is_chunk(&self) -> bool {
        matches!(self.news, News::Event(EventKind::OutputChunk { .. }))
    }

    /// Puts a gap in its place.
    fn become_gap(&mut self, bytes: u64) {
        let (node_from, node_to) = (self.sequence, self.sequence);
        self.news = News::Event(EventKind::Gap { node_from, node_to, bytes });
        self.spooled = None;
    }
}

impl Attempt {
    pub(crate) fn new(order: Arc<Order>, copy: Option<Arc<Copy>>) -> Self {
        Self {
            order,
            copy,
            phase: Phase::Waiting,
            came: Instant::now(),
            spans: None,
            active: None,
            in_line: false,
            dropped: 0,
            stderr_offset: 0,
            news: VecDeque::new(),
            next_sequence: 1,
            acknowledged: 0,
            ever_sent: 0,
            sent: 0,
            kept_stderr: 0,
            filling: None,
        }
    }

    /// Adds a piece of news.
    pub(crate) fn tell(&mut self, news: News) {
        self.push(news, None);
    }

    fn push(&mut self, news: News, spooled: Option<Extent>) {
        let item = Item { sequence: self.next_sequence, time: Timestamp::now(), news, spooled };
        self.next_sequence += 1;
        self.kept_stderr += item.kept();
        self.news.push_back(item);
    }

    /// Adds a chunk of a large result.
    pub(crate) fn tell_chunk(&mut self, offset: u64, chunk: Payload) {
        let (bytes, spooled) = match chunk {
            Payload::Memory(bytes) => (bytes, None),
            Payload::Spool(extent) => (Bytes::new(), Some(extent)),
        };
        self.push(News::Event(EventKind::OutputChunk { offset, bytes }), spooled);
    }

    /// Finds room for bytes of stderr, dropping the oldest that have not been sent when there is none.
    pub(crate) fn place(&mut self, len: usize, spool: &Spool) -> Place {
        let cost = Cost::of(None).with_payload(len as u64).bytes();
        loop {
            if self.kept_stderr + cost <= KEPT_STDERR {
                return Place::Memory;
            }
            if let Some(extent) = self.filling.as_mut().and_then(|filling| filling.reserve(len)) {
                return Place::Spool(extent);
            }
            // Its block is full: it is let go before another is asked for, which it may be.
            self.filling = None;
            self.filling = spool.block();
            if self.filling.is_none() && !self.drop_oldest_stderr() {
                return Place::Nowhere;
            }
        }
    }

    /// Adds bytes of stderr at the place that was found for them.
    pub(crate) fn tell_stderr(&mut self, stderr: Payload) {
        let (bytes, spooled, len) = match stderr {
            Payload::Memory(bytes) => {
                let len = bytes.len() as u64;
                (bytes, None, len)
            }
            Payload::Spool(extent) => {
                let len = extent.len();
                (Bytes::new(), Some(extent), len)
            }
        };
        let offset = self.stderr_offset;
        self.stderr_offset += len;
        // What waits in the spool grows by whole pieces, not by lines: each costs memory and a message.
        if let Some(extent) = &spooled
            && let Some(Item { news: News::Event(EventKind::Stderr { .. }), spooled: Some(last), .. }) =
                self.news.back_mut().filter(|item| item.sequence > self.ever_sent)
            && last.join(extent, PIECE)
        {
            return;
        }
        self.push(News::Event(EventKind::Stderr { offset, bytes }), spooled);
    }

    /// Says that bytes of stderr were dropped before they came here.
    pub(crate) fn tell_dropped(&mut self, bytes: u64) {
        self.stderr_offset += bytes;
        let sequence = self.next_sequence;
        self.tell(News::Event(EventKind::Gap { node_from: sequence, node_to: sequence, bytes }));
        self.join_gaps(self.news.len() - 1);
    }

    /// Turns the oldest stderr that was never sent into a gap. `false` when there is none.
    pub(crate) fn drop_oldest_stderr(&mut self) -> bool {
        let never_sent = |item: &Item| item.sequence > self.ever_sent && item.stderr() > 0;
        let Some(at) = self.news.iter().position(never_sent) else { return false };
        self.drop_stderr(at);
        self.join_gaps(at);
        true
    }

    fn drop_stderr(&mut self, at: usize) {
        let item = &mut self.news[at];
        let bytes = item.stderr();
        self.kept_stderr -= item.kept();
        self.dropped += bytes;
        item.become_gap(bytes);
    }

    /// Joins a gap to the gap before it, so that a flood costs one item. Whether it did.
    fn join_gaps(&mut self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).filter(|before| self.news[*before].sequence > self.ever_sent)
        else {
            return false;
        };
        let (first, second) = (&self.news[before].news, &self.news[at].news);
        let (
            News::Event(EventKind::Gap { node_from, bytes: some, .. }),
            News::Event(EventKind::Gap { node_to, bytes: more, .. }),
        ) = (first, second)
        else {
            return false;
        };
        let joined = EventKind::Gap { node_from: *node_from, node_to: *node_to, bytes: some + more };
        self.news[at].news = News::Event(joined);
        self.news.remove(before);
        true
    }

    /// The spool cannot be read: what this attempt has there is missing from now on, and told so. A result that is not
    /// whole is none.
    pub(crate) fn lose_spooled(&mut self, why: &str) {
        let before = self.dropped;
        let mut result_lost = false;
        let mut at = 0;
        while at < self.news.len() {
            if self.news[at].spooled.is_some() && self.news[at].is_chunk() {
                result_lost = true;
            } else if self.news[at].spooled.is_some() {
                self.drop_stderr(at);
                if self.join_gaps(at) {
                    continue;
                }
            }
            at += 1;
        }
        let lost = self.dropped - before;
        for item in self.news.iter_mut() {
            if result_lost && item.is_chunk() {
                item.become_gap(0);
            }
            if let News::Event(EventKind::Finished(last)) = &mut item.news {
                last.dropped_bytes += lost;
                if result_lost {
                    last.outcome = Outcome::Unknown;
                    last.message = format!("it ran, and its result was lost: {why}");
                    last.result = ResultBody::None;
                }
            }
        }
    }

    /// Whether there is news that was not sent in this session.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.news.len()
    }

    /// Whether there is news to send, and credit for it.
    pub(crate) fn can_send(&self, credit: &Credit) -> bool {
        self.next_cost().is_some_and(|cost| credit.allows(self.order.key, cost))
    }

    /// What the next piece of news to send costs.
    pub(crate) fn next_cost(&self) -> Option<Cost> {
        self.news.get(self.sent).map(Item::cost)
    }

    /// The next piece of news to send.
    pub(crate) fn send_next(&mut self) -> Option<Outgoing> {
        let item = self.news.get(self.sent)?;
        let event = link::NodeEvent {
            invocation_id: self.order.key.0.to_string(),
            attempt: self.order.key.1,
            node_sequence: item.sequence,
            time: Some(timestamp_to_wire(item.time)),
            event: Some((&item.news).into()),
        };
        self.sent += 1;
        self.ever_sent = self.ever_sent.max(item.sequence);
        Some(Outgoing { event, spooled: item.spooled.clone(), cost: item.cost() })
    }

    /// Everything up to a sequence is recorded: its credit comes back.
    pub(crate) fn acknowledge(&mut self, sequence: u64, credit: &mut Credit) {
        while self.sent > 0 && self.news.front().is_some_and(|item| item.sequence <= sequence) {
            if let Some(item) = self.news.pop_front() {
                self.acknowledged = item.sequence;
                self.sent -= 1;
                self.kept_stderr -= item.kept();
                credit.give_back(self.order.key, item.cost());
            }
        }
        if self.news.is_empty() {
            self.filling = None;
        }
    }

    /// A new session: everything that is not acknowledged is sent again.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
        self.in_line = false;
    }

    /// Whether everything it had to tell is recorded.
    pub(crate) fn is_told(&self) -> bool {
        self.news.is_empty()
    }

    /// Pieces of news that are not recorded yet.
    pub(crate) fn untold(&self) -> usize {
        self.news.len()
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

    use weft_core::{ids::InvocationId, outcome::Final};

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

    fn spool() -> Spool {
        Spool::open(tempfile::tempdir().unwrap().path()).unwrap()
    }

    /// Tells bytes of stderr as the listener of a child does.
    fn hear(attempt: &mut Attempt, spool: &Spool, bytes: &Bytes) {
        match attempt.place(bytes.len(), spool) {
            Place::Memory => attempt.tell_stderr(Payload::Memory(bytes.clone())),
            Place::Spool(extent) => {
                extent.write(bytes).unwrap();
                attempt.tell_stderr(Payload::Spool(extent));
            }
            Place::Nowhere => panic!("no room"),
        }
    }

    fn drain(attempt: &mut Attempt) -> Vec<Outgoing> {
        std::iter::from_fn(|| attempt.send_next()).collect()
    }

    #[test]
    fn what_is_not_acknowledged_is_sent_again_in_a_new_session() {
        let mut attempt = attempt();
        attempt.tell(News::Accepted { queued_before: 0 });
        for _ in 0..3 {
            attempt.tell_stderr(Payload::Memory(Bytes::from_static(b"line\n")));
        }
        assert_eq!(drain(&mut attempt).len(), 4);
        attempt.acknowledge(2, &mut Credit::default());
        attempt.rewind();
        let again: Vec<_> = drain(&mut attempt).iter().map(|out| out.event.node_sequence).collect();
        assert_eq!(again, [3, 4]);
        attempt.acknowledge(4, &mut Credit::default());
        assert!(attempt.is_told());
    }

    #[test]
    fn what_no_coordinator_takes_goes_to_the_spool_whole_and_in_order() {
        let (mut attempt, spool) = (attempt(), spool());
        let line = |n: usize| Bytes::from(format!("line {n}\n"));
        for n in 0..100_000 {
            hear(&mut attempt, &spool, &line(n));
        }
        assert!(attempt.kept_stderr <= KEPT_STDERR, "{} bytes in memory", attempt.kept_stderr);
        assert!(attempt.news.len() < 5000, "{} pieces of news", attempt.news.len());
        let mut all = Vec::new();
        for out in drain(&mut attempt) {
            let Some(link::node_event::Event::Stderr(stderr)) = out.event.event else { panic!("not stderr") };
            assert_eq!(stderr.offset, all.len() as u64);
            all.extend_from_slice(&out.spooled.map_or(stderr.data, |extent| extent.read().unwrap()));
        }
        assert!(all == (0..100_000).flat_map(line).collect::<Vec<u8>>());
        assert_eq!(attempt.dropped, 0);
    }

    #[test]
    fn a_flood_beyond_the_spool_becomes_one_gap_and_keeps_the_newest() {
        let (mut attempt, spool) = (attempt(), spool());
        // What others use of the spool.
        let mut others: Vec<_> = std::iter::from_fn(|| spool.block()).collect();
        others.truncate(others.len() - 8);
        attempt.tell(News::Accepted { queued_before: 0 });
        let chunk = Bytes::from(vec![b'x'; 60 * 1024]);
        for _ in 0..1000 {
            hear(&mut attempt, &spool, &chunk);
        }
        attempt.tell(News::Event(EventKind::Started { attempt: 1, pid: 1 }));
        let sent = drain(&mut attempt);
        let (mut next, mut gaps, mut bytes, mut kept) = (1, 0, 0, 0);
        for out in &sent {
            match &out.event.event {
                Some(link::node_event::Event::Gap(gap)) => {
                    assert_eq!((gap.node_from, gap.node_to), (next, out.event.node_sequence));
                    gaps += 1;
                    bytes += gap.bytes;
                }
                Some(link::node_event::Event::Stderr(stderr)) => {
                    assert_eq!((stderr.offset, out.event.node_sequence), (bytes, next));
                    let len = out.spooled.as_ref().map_or(stderr.data.len() as u64, Extent::len);
                    bytes += len;
                    kept += len;
                }
                _ => assert_eq!(out.event.node_sequence, next),
            }
            next = out.event.node_sequence + 1;
        }
        assert_eq!((gaps, bytes), (1, 1000 * 60 * 1024));
        assert_eq!(attempt.dropped, 1000 * 60 * 1024 - kept);
        assert!(kept > 8 * 4 * 60 * 1024, "{kept} bytes were kept");
    }

    #[test]
    fn what_is_dropped_before_it_comes_here_costs_one_gap_until_that_is_sent() {
        let mut attempt = attempt();
        for _ in 0..1000 {
            attempt.tell_dropped(10);
        }
        assert_eq!(attempt.untold(), 1);
        drain(&mut attempt);
        attempt.rewind();
        // It may be recorded, so it stays as it was told.
        attempt.tell_dropped(5);
        attempt.tell_dropped(5);
        let gaps: Vec<_> = drain(&mut attempt)
            .into_iter()
            .map(|out| match out.event.event {
                Some(link::node_event::Event::Gap(gap)) => (gap.node_from, gap.node_to, gap.bytes),
                other => panic!("not a gap: {other:?}"),
            })
            .collect();
        assert_eq!(gaps, [(1, 1000, 10_000), (1001, 1002, 10)]);
    }

    #[test]
    fn a_large_result_costs_no_stderr() {
        let (mut attempt, spool) = (attempt(), spool());
        for _ in 0..32 {
            hear(&mut attempt, &spool, &Bytes::from(vec![b'x'; 60 * 1024]));
        }
        for n in 0..64 {
            let chunk = Bytes::from(vec![b'y'; 256 * 1024]);
            attempt.tell_chunk(n * 256 * 1024, Payload::Memory(chunk));
        }
        assert_eq!((attempt.dropped, drain(&mut attempt).len()), (0, 96));
    }

    #[test]
    fn a_result_that_the_spool_lost_is_no_result() {
        let (mut attempt, spool) = (attempt(), spool());
        hear(&mut attempt, &spool, &Bytes::from_static(b"line\n"));
        for n in 0..3 {
            attempt.tell_chunk(n, Payload::Spool(spool.keep(b"{").unwrap()));
        }
        let mut last = Final::without_run(Outcome::Succeeded, "");
        last.result = ResultBody::Chunked { size: 3, digest: Digest::of(b"{{{") };
        attempt.tell(News::Event(EventKind::Finished(Box::new(last))));
        attempt.lose_spooled("disk on fire");
        let sent = drain(&mut attempt);
        assert!(sent.iter().all(|out| out.spooled.is_none()));
        let Some(link::node_event::Event::Finished(last)) = &sent[4].event.event else {
            panic!("not the end")
        };
        assert_eq!(last.outcome(), weft_proto::v1::Outcome::Unknown);
        assert!(last.message.contains("disk on fire"), "{}", last.message);
    }
}
