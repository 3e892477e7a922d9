//! A store in memory, bounded in bytes. What it holds ends with the process.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::future::{self, BoxFuture};
use jiff::Timestamp;
use tokio::sync::watch;
use weft_core::{
    event::{Event, EventKind},
    ids::{CallerId, InvocationId, RequestId},
    invocation::Invocation,
    node::Target,
    skill::Class,
};

use crate::store::{Appended, Created, Filter, Page, Recorded, Store, StoreError};

/// What one event costs beyond its payload, in bytes; an estimate on the high side.
const EVENT_COST: usize = 160;
/// What one invocation costs beyond its args and events.
const INVOCATION_COST: usize = 1024;

/// How long a request id is kept after the end of its invocation.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// See the module.
#[derive(Debug)]
pub struct Memory {
    capacity: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Ids sort by time, so the first is the oldest.
    logs: BTreeMap<InvocationId, Log>,
    requests: HashMap<(CallerId, RequestId), InvocationId>,
    /// Ended invocations whose events are still here, in the order of their ends.
    ended: VecDeque<InvocationId>,
    /// Ended invocations whose record alone is left, in the order of their ends.
    kept: VecDeque<InvocationId>,
    bytes: usize,
}

#[derive(Debug)]
struct Log {
    invocation: Invocation,
    events: Vec<Event>,
    /// The events were forgotten to make room; what is known of the invocation stays.
    forgotten: bool,
    last: watch::Sender<u64>,
}

impl Log {
    fn event_bytes(&self) -> usize {
        self.events.iter().map(cost).sum()
    }

    fn record_bytes(&self) -> usize {
        let request = &self.invocation.request;
        INVOCATION_COST + request.args.len() + target_bytes(&request.target)
    }
}

fn target_bytes(target: &Target) -> usize {
    match target {
        Target::Any => 0,
        Target::Node(name) => name.len(),
        Target::Selector(selector) => selector.to_string().len() + 64 * selector.terms.len(),
    }
}

fn cost(event: &Event) -> usize {
    EVENT_COST + event.kind.payload()
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(256 * 1024 * 1024)
    }
}

impl Memory {
    /// A store that holds at most about this many bytes.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing below can panic half-way through a change, so a poisoned lock still guards sound data.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Forgets what ended longest ago until `more` bytes fit.
    ///
    /// A safe invocation goes whole: running it again does no harm. Of the others only the events go, and the
    /// record stays for a day, so that no request id is taken for a new one.
    fn make_room(&mut self, more: usize, capacity: usize) -> bool {
        while self.bytes + more > capacity {
            let Some(id) = self.ended.pop_front() else { break };
            let Some(log) = self.logs.get_mut(&id) else { continue };
            if log.invocation.class == Class::Safe {
                self.remove(id);
            } else {
                self.bytes -= log.event_bytes() + log.record_bytes();
                log.events = Vec::new();
                log.forgotten = true;
                // Their digest stays, which is enough to know the request again.
                log.invocation.request.args = Bytes::new();
                self.bytes += log.record_bytes();
                self.kept.push_back(id);
            }
        }
        while self.bytes + more > capacity {
            let Some(id) = self.kept.front().copied() else { break };
            let young = |log: &Log| log.invocation.finished.is_some_and(|end| end + KEPT > Timestamp::now());
            if self.logs.get(&id).is_some_and(young) {
                break;
            }
            self.kept.pop_front();
            self.remove(id);
        }
        self.bytes + more <= capacity
    }

    fn remove(&mut self, id: InvocationId) {
        if let Some(log) = self.logs.remove(&id) {
            self.bytes -= log.event_bytes() + log.record_bytes();
            let request = log.invocation.request;
            if let Some(request_id) = request.request_id {
                self.requests.remove(&(request.caller, request_id));
            }
        }
    }
}

fn recorded() -> Recorded {
    Box::pin(future::ready(Ok(())))
}

fn now<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    Box::pin(future::ready(value))
}

impl Store for Memory {
    fn create(&self, invocation: &Invocation, events: Vec<Event>) -> Result<(Created, Recorded), StoreError> {
        let mut held = self.held();
        let request = invocation.request.request_id.clone().map(|id| (invocation.request.caller.clone(), id));
        if let Some(existing) = request.as_ref().and_then(|key| held.requests.get(key)).copied() {
            let known = held.logs.get(&existing).ok_or(StoreError::NotFound)?;
            return Ok((Created::Existing(Box::new(known.invocation.clone())), recorded()));
        }
        let log = Log {
            last: watch::channel(events.last().map_or(0, |event| event.sequence)).0,
            invocation: invocation.clone(),
            events,
            forgotten: false,
        };
        let bytes = log.record_bytes() + log.event_bytes();
        if !held.make_room(bytes, self.capacity) {
            return Err(StoreError::Full);
        }
        held.bytes += bytes;
        held.logs.insert(invocation.id, log);
        if let Some(key) = request {
            held.requests.insert(key, invocation.id);
        }
        Ok((Created::New, recorded()))
    }

    fn append(&self, invocation: &Invocation, events: Vec<Event>) -> Appended {
        let mut held = self.held();
        let bytes: usize = events.iter().map(cost).sum();
        let carries_output = events.iter().any(|event| {
            matches!(
                event.kind,
                EventKind::Stderr { .. } | EventKind::OutputChunk { .. } | EventKind::Progress { .. }
            )
        });
        if !held.make_room(bytes, self.capacity) && carries_output {
            return Err(StoreError::Full);
        }
        let held = &mut *held;
        let log = held.logs.get_mut(&invocation.id).ok_or(StoreError::NotFound)?;
        held.bytes += bytes;
        if invocation.state.is_finished() && !log.invocation.state.is_finished() {
            held.ended.push_back(invocation.id);
        }
        log.invocation.clone_from(invocation);
        log.events.extend(events);
        if let Some(event) = log.events.last() {
            log.last.send_replace(event.sequence);
        }
        Ok(recorded())
    }

    fn find_request(
        &self,
        caller: &CallerId,
        request_id: &RequestId,
    ) -> BoxFuture<'_, Result<Option<Invocation>, StoreError>> {
        let held = self.held();
        let id = held.requests.get(&(caller.clone(), request_id.clone()));
        now(Ok(id.and_then(|id| held.logs.get(id)).map(|log| log.invocation.clone())))
    }

    fn get(&self, id: InvocationId) -> BoxFuture<'_, Result<Invocation, StoreError>> {
        now(self.held().logs.get(&id).map(|log| log.invocation.clone()).ok_or(StoreError::NotFound))
    }

    fn list(&self, filter: Filter, most: usize) -> BoxFuture<'_, Result<Page, StoreError>> {
        let held = self.held();
        let newest_first = match filter.before {
            Some(before) => held.logs.range(..before),
            None => held.logs.range(..),
        }
        .rev();
        let mut fitting = newest_first.map(|(_, log)| &log.invocation).filter(|invocation| {
            filter.skill.as_ref().is_none_or(|skill| invocation.request.skill == *skill)
                && !(filter.active && invocation.state.is_finished())
        });
        let invocations: Vec<_> = fitting.by_ref().take(most).cloned().collect();
        now(Ok(Page { invocations, more: fitting.next().is_some() }))
    }

    fn read(
        &self,
        id: InvocationId,
        after: u64,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<Event>, StoreError>> {
        let held = self.held();
        now(held.logs.get(&id).ok_or(StoreError::NotFound).and_then(|log| {
            if log.forgotten && after < log.invocation.last_sequence {
                return Err(StoreError::Forgotten);
            }
            let from = log.events.partition_point(|event| event.sequence <= after);
            let mut room = bytes;
            Ok(log.events[from..]
                .iter()
                .enumerate()
                .take_while(|(index, event)| {
                    let fits = *index == 0 || cost(event) <= room;
                    room = room.saturating_sub(cost(event));
                    fits
                })
                .map(|(_, event)| event.clone())
                .collect())
        }))
    }

    fn follow(&self, id: InvocationId) -> Result<watch::Receiver<u64>, StoreError> {
        self.held().logs.get(&id).map(|log| log.last.subscribe()).ok_or(StoreError::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use weft_core::{
        ids::{Digest, SkillKey},
        invocation::{Request, State},
        outcome::Outcome,
    };

    use super::*;

    fn invocation(request_id: &str) -> Invocation {
        Invocation {
            id: InvocationId::generate(),
            request: Request {
                caller: "local".parse().unwrap(),
                request_id: Some(request_id.parse().unwrap()),
                agent: None,
                skill: SkillKey::normalise("a").unwrap(),
                pinned: None,
                session: None,
                among: [].into(),
                args: Bytes::from_static(b"{}"),
                args_digest: Digest::of(b"{}"),
                target: Target::Any,
                budget: None,
                detach: false,
            },
            class: Class::Mutating,
            state: State::Queued,
            node: None,
            digest: None,
            attempts: 0,
            created: "2026-11-30T00:00:00Z".parse().unwrap(),
            finished: None,
            last_sequence: 0,
        }
    }

    fn stderr(invocation: &mut Invocation, size: usize) -> Event {
        invocation.last_sequence += 1;
        Event {
            sequence: invocation.last_sequence,
            time: invocation.created,
            kind: EventKind::Stderr { offset: 0, bytes: Bytes::from(vec![b'x'; size]) },
        }
    }

    #[tokio::test]
    async fn a_request_id_stands_for_the_first_invocation() {
        let store = Memory::default();
        let (one, two) = (invocation("r"), invocation("r"));
        assert_eq!(put(&store, &one).await, Created::New);
        assert_eq!(put(&store, &two).await, Created::Existing(Box::new(one.clone())));
        let found = store.find_request(&one.request.caller, &"r".parse().unwrap()).await.unwrap();
        assert_eq!(found.unwrap().id, one.id);
    }

    #[tokio::test]
    async fn events_are_read_from_any_point_and_followed() {
        let store = Memory::default();
        let mut one = invocation("r");
        put(&store, &one).await;
        let mut last = store.follow(one.id).unwrap();
        for _ in 0..3 {
            let event = stderr(&mut one, 10);
            append(&store, &one, vec![event]).await.unwrap();
        }
        assert_eq!(*last.borrow_and_update(), 3);
        let read = store.read(one.id, 1, usize::MAX).await.unwrap();
        assert_eq!(read.iter().map(|event| event.sequence).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(store.read(one.id, 0, 1).await.unwrap().len(), 1);
    }

    async fn put(store: &Memory, invocation: &Invocation) -> Created {
        let (created, recorded) = store.create(invocation, vec![]).unwrap();
        recorded.await.unwrap();
        created
    }

    async fn append(store: &Memory, invocation: &Invocation, events: Vec<Event>) -> Result<(), StoreError> {
        store.append(invocation, events)?.await
    }

    #[tokio::test]
    async fn room_is_made_by_forgetting_what_has_ended_and_never_what_runs() {
        let store = Memory::new(10_000);
        let mut old = invocation("old");
        put(&store, &old).await;
        let event = stderr(&mut old, 4000);
        append(&store, &old, vec![event]).await.unwrap();
        let mut running = invocation("running");
        put(&store, &running).await;
        let event = stderr(&mut running, 4000);
        assert_eq!(append(&store, &running, vec![event]).await, Err(StoreError::Full));
        running.last_sequence -= 1;

        old.state = State::Finished { outcome: Outcome::Succeeded, resolved: false };
        old.finished = Some(Timestamp::now());
        append(&store, &old, vec![]).await.unwrap();
        let event = stderr(&mut running, 4000);
        append(&store, &running, vec![event]).await.unwrap();
        assert_eq!(store.read(old.id, 0, usize::MAX).await, Err(StoreError::Forgotten));
        assert_eq!(store.get(old.id).await.unwrap().state, old.state);
        assert!(matches!(put(&store, &invocation("old")).await, Created::Existing(_)));
    }

    #[tokio::test]
    async fn safe_invocations_go_whole_so_that_a_busy_day_does_not_fill_the_store() {
        let store = Memory::new(20_000);
        let mut first = None;
        for n in 0..1000 {
            let mut one = invocation(&format!("r{n}"));
            one.class = Class::Safe;
            put(&store, &one).await;
            one.state = State::Finished { outcome: Outcome::Succeeded, resolved: false };
            append(&store, &one, vec![]).await.unwrap();
            first.get_or_insert(one.id);
        }
        assert_eq!(store.get(first.unwrap()).await, Err(StoreError::NotFound));
        let held = store.held();
        assert!(held.bytes <= 20_000);
        assert_eq!(held.requests.len(), held.logs.len());
    }

    #[tokio::test]
    async fn pages_go_from_the_newest_to_the_oldest() {
        let store = Memory::default();
        let mut ids = Vec::new();
        for n in 0..5 {
            let one = invocation(&format!("r{n}"));
            put(&store, &one).await;
            ids.push(one.id);
        }
        let first = store.list(Filter::default(), 2).await.unwrap();
        assert_eq!(first.invocations.iter().map(|i| i.id).collect::<Vec<_>>(), [ids[4], ids[3]]);
        assert!(first.more);
        let filter = Filter { before: Some(ids[3]), ..Filter::default() };
        let rest = store.list(filter, 10).await.unwrap();
        assert_eq!(rest.invocations.len(), 3);
        assert!(!rest.more);
    }
}
