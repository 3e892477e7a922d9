//! The nodes that the coordinator knows, and their sessions.
//!
//! A node is routable while it has an open session, and listed until its lease ends.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use jiff::Timestamp;
use tokio::{sync::mpsc, time::Instant};
use weft_core::{
    ids::{JournalId, NodeId},
    node::Node,
    refusal::Refusal,
};
use weft_proto::link;

/// Messages that may wait for a node to read them. A node that lets more pile up does not read its link, and its
/// session is closed.
const OUTBOX: usize = 4096;

/// Most alarms kept for one node.
const MAX_ALARMS: usize = 16;

/// What goes to a node. In a box, because a channel keeps room for a few dozen from its beginning, and there are
/// thousands of channels.
pub(crate) type ToNode = Box<link::ConnectResponse>;

/// How a node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It has an open session and takes work.
    Connected,
    /// It has an open session and finishes what it has.
    Draining,
    /// Its session is gone, its lease is not over.
    Disconnected,
}

/// What routing and listing see of a node.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) node: Arc<Node>,
    pub(crate) presence: Presence,
    pub(crate) outstanding: u32,
    /// Invocations that it takes at once, running and waiting.
    pub(crate) capacity: u32,
    pub(crate) epoch: u64,
    pub(crate) journal: JournalId,
    pub(crate) connected_at: Timestamp,
    pub(crate) heard_at: Timestamp,
    pub(crate) alarms: Vec<String>,
}

/// The registry of nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    known: DashMap<NodeId, Arc<Entry>>,
    /// Locked before `known`, and whenever a node is put there.
    listed: RwLock<Listed>,
    last_epoch: AtomicU64,
    /// How many nodes of the last life are on their way.
    awaited: AtomicUsize,
}

/// The known nodes, where walking over all of them would be too dear.
#[derive(Debug, Default)]
struct Listed {
    /// In no order, to draw from.
    entries: Vec<Arc<Entry>>,
    /// Names are not unique.
    names: HashMap<String, BTreeSet<NodeId>>,
}

#[derive(Debug)]
struct Entry {
    outstanding: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    node: Arc<Node>,
    journal: JournalId,
    epoch: u64,
    queue: u32,
    outbox: Option<mpsc::Sender<ToNode>>,
    /// It was there in the coordinator's last life and has not been back since.
    awaited: bool,
    draining: bool,
    connected_at: Timestamp,
    heard: Instant,
    heard_at: Timestamp,
    alarms: VecDeque<String>,
}

/// A hello, checked.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) node: Node,
    pub(crate) journal: JournalId,
    pub(crate) previous_epoch: u64,
    pub(crate) queue: u32,
}

/// A session that was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) epoch: u64,
    /// What to write to the node.
    pub(crate) inbox: mpsc::Receiver<ToNode>,
}

/// A node whose lease ended.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) node: Arc<Node>,
    /// Its last session.
    pub(crate) epoch: u64,
    pub(crate) silent: Duration,
}

/// One invocation that a node has in hand; gives its place back when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Entry>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Listed {
    fn add(&mut self, entry: Arc<Entry>) {
        self.name(&entry.state().node);
        self.entries.push(entry);
    }

    fn name(&mut self, node: &Node) {
        self.names.entry(node.name.clone()).or_default().insert(node.id.clone());
    }

    fn rename(&mut self, old: &Node, new: &Node) {
        if old.name != new.name {
            if let Some(ids) = self.names.get_mut(&old.name) {
                ids.remove(&old.id);
                if ids.is_empty() {
                    self.names.remove(&old.name);
                }
            }
            self.name(new);
        }
    }
}

impl Entry {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds this lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Epochs are counted from the time in milliseconds, so that they grow across restarts without being stored: no
/// coordinator opens a thousand sessions a second.
fn epoch_now() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// The furthest epoch that a node may claim to have had: clocks differ, but not by more than a day.
fn furthest_epoch() -> u64 {
    epoch_now() + 24 * 3600 * 1000
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self {
            known: DashMap::new(),
            listed: RwLock::default(),
            last_epoch: AtomicU64::new(epoch_now()),
            awaited: AtomicUsize::new(0),
        }
    }

    fn listed(&self) -> RwLockReadGuard<'_, Listed> {
        self.listed.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn listed_mut(&self) -> RwLockWriteGuard<'_, Listed> {
        self.listed.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a node that was there in the last life. Its lease begins now.
    pub(crate) fn expect(&self, arrival: Arrival) {
        self.last_epoch.fetch_max(arrival.previous_epoch.min(furthest_epoch()), Ordering::Relaxed);
        let now = Timestamp::now();
        let id = arrival.node.id.clone();
        let state = State {
            node: Arc::new(arrival.node),
            journal: arrival.journal,
            epoch: 0,
            queue: arrival.queue,
            outbox: None,
            awaited: true,
            draining: false,
            connected_at: now,
            heard: Instant::now(),
            heard_at: now,
            alarms: VecDeque::new(),
        };
        let mut listed = self.listed_mut();
        if let dashmap::Entry::Vacant(vacant) = self.known.entry(id) {
            let entry = Arc::new(Entry { outstanding: AtomicU32::new(0), state: Mutex::new(state) });
            listed.add(entry.clone());
            vacant.insert(entry);
            self.awaited.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether nodes of the last life are on their way.
    pub(crate) fn awaits_any(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    /// Whether such a node of the last life is on its way.
    pub(crate) fn any_awaited(&self, such: impl Fn(&NodeId) -> bool) -> bool {
        self.awaits_any() && self.known.iter().any(|entry| such(entry.key()) && entry.state().awaited)
    }

    /// Opens a session and supersedes the one before. `stale` is how long a healthy session may be silent;
    /// `welcome` makes the first message from the session's epoch.
    pub(crate) fn open(
        &self,
        arrival: Arrival,
        stale: Duration,
        welcome: impl FnOnce(u64) -> link::Welcome,
    ) -> Opened {
        self.last_epoch.fetch_max(arrival.previous_epoch.min(furthest_epoch()), Ordering::Relaxed);
        let epoch = self.last_epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let (outbox, inbox) = mpsc::channel(OUTBOX);
        // Before anybody else can send in this session. A new channel has room.
        let _ = outbox.try_send(Box::new(link::ConnectResponse {
            message: Some(link::connect_response::Message::Welcome(welcome(epoch))),
        }));
        let id = arrival.node.id.clone();
        let now = Timestamp::now();
        let fresh = State {
            node: Arc::new(arrival.node),
            journal: arrival.journal,
            epoch,
            queue: arrival.queue,
            outbox: Some(outbox),
            awaited: false,
            draining: false,
            connected_at: now,
            heard: Instant::now(),
            heard_at: now,
            alarms: VecDeque::new(),
        };
        let mut listed = self.listed_mut();
        match self.known.entry(id) {
            dashmap::Entry::Vacant(vacant) => {
                let entry = Arc::new(Entry { outstanding: AtomicU32::new(0), state: Mutex::new(fresh) });
                listed.add(entry.clone());
                vacant.insert(entry);
            }
            dashmap::Entry::Occupied(occupied) => {
                let mut state = occupied.get().state();
                listed.rename(&state.node, &fresh.node);
                let mut alarms = std::mem::take(&mut state.alarms);
                if let Some(old) = state.outbox.take() {
                    let alive = state.heard.elapsed() < stale;
                    if alive && state.journal != fresh.journal {
                        let alarm = format!(
                            "{now}: a second node with the identity of {} took over; the first one stopped \
                             taking work. Give each host a state directory of its own",
                            fresh.node.name
                        );
                        tracing::error!(weft.node.id = %fresh.node.id, "{alarm}");
                        if alarms.len() == MAX_ALARMS {
                            alarms.pop_front();
                        }
                        alarms.push_back(alarm);
                    }
                    let _ = old.try_send(Box::new(goodbye(
                        link::goodbye::Reason::Superseded,
                        "a newer session of the same identity took over",
                    )));
                }
                let awaited = state.awaited;
                *state = State { alarms, ..fresh };
                if awaited {
                    self.awaited.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        Opened { epoch, inbox }
    }

    /// Closes a session, unless a newer one has taken its place.
    pub(crate) fn close(&self, id: &NodeId, epoch: u64) -> bool {
        let Some(entry) = self.known.get(id) else { return false };
        let mut state = entry.state();
        let current = state.epoch == epoch;
        if current {
            state.outbox = None;
        }
        current
    }

    /// Notes that a message came. Returns whether the session is the node's current one.
    pub(crate) fn heard(&self, id: &NodeId, epoch: u64) -> bool {
        let Some(entry) = self.known.get(id) else { return false };
        let mut state = entry.state();
        let current = state.epoch == epoch;
        if current {
            state.heard = Instant::now();
            state.heard_at = Timestamp::now();
        }
        current
    }

    pub(crate) fn set_draining(&self, id: &NodeId, epoch: u64) {
        if let Some(entry) = self.known.get(id) {
            let mut state = entry.state();
            if state.epoch == epoch {
                state.draining = true;
            }
        }
    }

    /// Whether a session is the node's current one.
    pub(crate) fn is_current(&self, id: &NodeId, epoch: u64) -> bool {
        self.known.get(id).is_some_and(|entry| entry.state().epoch == epoch)
    }

    /// Sends a message in the session with this epoch. `false` when that is not the current one any more, is closed,
    /// or the node does not read.
    pub(crate) fn send(&self, id: &NodeId, epoch: u64, message: link::connect_response::Message) -> bool {
        let Some(entry) = self.known.get(id) else { return false };
        let mut state = entry.state();
        if state.epoch != epoch {
            return false;
        }
        let Some(outbox) = &state.outbox else { return false };
        match outbox.try_send(Box::new(link::ConnectResponse { message: Some(message) })) {
            Ok(()) => true,
            Err(error) => {
                if matches!(error, mpsc::error::TrySendError::Full(_)) {
                    tracing::warn!(weft.node.id = %id, "the node does not read its link; closing its session");
                }
                state.outbox = None;
                false
            }
        }
    }

    /// Takes a place on a node for one invocation.
    pub(crate) fn take_place(&self, id: &NodeId) -> Option<Place> {
        let entry = self.known.get(id)?;
        entry.outstanding.fetch_add(1, Ordering::Relaxed);
        Some(Place(entry.clone()))
    }

    pub(crate) fn view(&self, id: &NodeId) -> Option<View> {
        self.known.get(id).map(|entry| view(&entry))
    }

    /// One of the listed nodes, drawn at random.
    pub(crate) fn draw(&self) -> Option<View> {
        let listed = self.listed();
        let at = (!listed.entries.is_empty()).then(|| rand::random_range(0..listed.entries.len()))?;
        Some(view(&listed.entries[at]))
    }

    /// The listed nodes that fit.
    pub(crate) fn matching(&self, fits: impl Fn(&View) -> bool) -> Vec<NodeId> {
        let views = self.known.iter().map(|entry| view(&entry));
        views.filter(fits).map(|view| view.node.id.clone()).collect()
    }

    /// Every listed node, by name and id.
    pub(crate) fn views(&self) -> Vec<View> {
        let mut views: Vec<_> = self.known.iter().map(|entry| view(&entry)).collect();
        views.sort_by(|a, b| (&a.node.name, &a.node.id).cmp(&(&b.node.name, &b.node.id)));
        views
    }

    /// Removes the nodes whose lease is over and returns them. A node that is silent in an open session loses the
    /// session as well.
    pub(crate) fn end_leases(&self, lease: Duration) -> Vec<Lost> {
        let mut lost = Vec::new();
        self.known.retain(|_, entry| {
            let state = entry.state();
            let silent = state.heard.elapsed();
            if silent > lease {
                if state.awaited {
                    self.awaited.fetch_sub(1, Ordering::Relaxed);
                }
                lost.push(Lost { node: state.node.clone(), epoch: state.epoch, silent });
            }
            silent <= lease
        });
        if !lost.is_empty() {
            let mut listed = self.listed_mut();
            *listed = Listed::default();
            self.known.iter().for_each(|entry| listed.add(entry.clone()));
        }
        lost
    }

    /// The node that a caller means: the one with this id, else the one with this name.
    ///
    /// # Errors
    /// When there is none, or several have the name.
    pub(crate) fn resolve(&self, name: &str) -> Result<NodeId, Refusal> {
        if let Ok(id) = name.parse::<NodeId>()
            && self.known.contains_key(&id)
        {
            return Ok(id);
        }
        let listed = self.listed();
        let named: Vec<&NodeId> = listed.names.get(name).into_iter().flatten().collect();
        match &named[..] {
            [] => Err(Refusal::NodeNotFound { node: name.to_owned() }),
            [only] => Ok(NodeId::clone(only)),
            [..] => Err(Refusal::NodeAmbiguous {
                node: name.to_owned(),
                ids: named.iter().take(8).map(ToString::to_string).collect(),
            }),
        }
    }

    /// Extends every lease, after the coordinator itself stood still.
    pub(crate) fn extend_leases(&self) {
        let now = Instant::now();
        for entry in &self.known {
            entry.state().heard = now;
        }
    }

    /// Says goodbye to every node.
    pub(crate) fn say_goodbye(&self) {
        for entry in &self.known {
            if let Some(outbox) = entry.state().outbox.take() {
                let _ = outbox.try_send(Box::new(goodbye(
                    link::goodbye::Reason::ShuttingDown,
                    "the coordinator is stopping",
                )));
            }
        }
    }
}

fn view(entry: &Entry) -> View {
    let state = entry.state();
    View {
        node: state.node.clone(),
        presence: match (&state.outbox, state.draining) {
            (None, _) => Presence::Disconnected,
            (Some(_), true) => Presence::Draining,
            (Some(_), false) => Presence::Connected,
        },
        outstanding: entry.outstanding.load(Ordering::Relaxed),
        capacity: state.node.slots.saturating_add(state.queue),
        epoch: state.epoch,
        journal: state.journal.clone(),
        connected_at: state.connected_at,
        heard_at: state.heard_at,
        alarms: state.alarms.iter().cloned().collect(),
    }
}

/// A last message to a node.
pub(crate) fn goodbye(reason: link::goodbye::Reason, message: &str) -> link::ConnectResponse {
    link::ConnectResponse {
        message: Some(link::connect_response::Message::Goodbye(link::Goodbye {
            reason: reason.into(),
            message: message.to_owned(),
            retry_after: None,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(journal: &str) -> Arrival {
        Arrival {
            node: Node {
                id: "n1".parse().unwrap(),
                name: "web".into(),
                os: "linux".into(),
                arch: "x86_64".into(),
                version: "0".into(),
                labels: Default::default(),
                slots: 4,
                sandbox: false,
            },
            journal: journal.parse().unwrap(),
            previous_epoch: 0,
            queue: 256,
        }
    }

    fn welcome(session_epoch: u64) -> link::Welcome {
        link::Welcome { session_epoch, ..Default::default() }
    }

    const STALE: Duration = Duration::from_secs(15);

    #[tokio::test]
    async fn a_newer_session_supersedes_and_the_end_of_the_old_one_changes_nothing() {
        let nodes = Nodes::new();
        let id = "n1".parse().unwrap();
        let mut first = nodes.open(arrival("j1"), STALE, welcome);
        let second = nodes.open(arrival("j2"), STALE, welcome);
        assert!(second.epoch > first.epoch);
        let welcome = first.inbox.recv().await.unwrap();
        assert!(matches!(welcome.message, Some(link::connect_response::Message::Welcome(_))));
        let goodbye = first.inbox.recv().await.unwrap();
        assert!(matches!(goodbye.message, Some(link::connect_response::Message::Goodbye(_))));
        assert!(!nodes.close(&id, first.epoch));
        assert_eq!(nodes.view(&id).unwrap().presence, Presence::Connected);
        assert_eq!(nodes.view(&id).unwrap().alarms.len(), 1);
        assert!(nodes.close(&id, second.epoch));
        assert_eq!(nodes.view(&id).unwrap().presence, Presence::Disconnected);
    }

    #[tokio::test]
    async fn the_same_node_coming_back_raises_no_alarm() {
        let nodes = Nodes::new();
        let _first = nodes.open(arrival("j1"), STALE, welcome);
        let _second = nodes.open(arrival("j1"), STALE, welcome);
        assert!(nodes.view(&"n1".parse().unwrap()).unwrap().alarms.is_empty());
    }

    #[tokio::test]
    async fn epochs_only_grow_also_past_those_of_another_coordinator() {
        let nodes = Nodes::new();
        let mut last = epoch_now() + 3_600_000;
        for _ in 0..3 {
            let opened = nodes.open(Arrival { previous_epoch: last, ..arrival("j") }, STALE, welcome);
            assert!(opened.epoch > last);
            last = opened.epoch;
        }
    }

    #[tokio::test]
    async fn a_node_that_claims_an_absurd_epoch_poisons_nothing() {
        let nodes = Nodes::new();
        let opened = nodes.open(Arrival { previous_epoch: u64::MAX, ..arrival("j") }, STALE, welcome);
        assert!(opened.epoch <= furthest_epoch() + 1);
        assert!(nodes.open(arrival("j"), STALE, welcome).epoch > opened.epoch);
    }

    #[tokio::test]
    async fn an_id_means_its_node_and_a_name_must_mean_one() {
        let nodes = Nodes::new();
        for (id, name) in [("n1", "web"), ("n2", "n1"), ("n3", "web"), ("n4", "db")] {
            let mut arrival = arrival("j");
            arrival.node.id = id.parse().unwrap();
            arrival.node.name = name.into();
            nodes.open(arrival, STALE, welcome);
        }
        assert_eq!(nodes.resolve("n1").unwrap().as_str(), "n1");
        assert_eq!(nodes.resolve("db").unwrap().as_str(), "n4");
        assert_eq!(nodes.resolve("web").unwrap_err().reason(), "NODE_AMBIGUOUS");
        assert_eq!(nodes.resolve("gone").unwrap_err().reason(), "NODE_NOT_FOUND");
    }

    #[tokio::test]
    async fn a_node_whose_lease_is_over_is_neither_drawn_nor_found_by_name() {
        let nodes = Nodes::new();
        let lease = Duration::from_secs(30);
        assert!(nodes.draw().is_none());
        for (id, name) in [("n1", "web"), ("n2", "old")] {
            let mut arrival = arrival("j");
            arrival.node.id = id.parse().unwrap();
            arrival.node.name = name.into();
            nodes.open(arrival, STALE, welcome);
        }
        let mut renamed = arrival("j");
        renamed.node.id = "n2".parse().unwrap();
        renamed.node.name = "db".into();
        nodes.open(renamed, STALE, welcome);
        assert_eq!(nodes.resolve("db").unwrap().as_str(), "n2");
        assert_eq!(nodes.resolve("old").unwrap_err().reason(), "NODE_NOT_FOUND");
        nodes.known.get("n1").unwrap().state().heard -= 2 * lease;
        assert_eq!(nodes.end_leases(lease).len(), 1);
        assert_eq!(nodes.resolve("web").unwrap_err().reason(), "NODE_NOT_FOUND");
        assert!((0..64).all(|_| nodes.draw().unwrap().node.id.as_str() == "n2"));
    }

    #[tokio::test]
    async fn a_node_that_does_not_read_loses_its_session() {
        let nodes = Nodes::new();
        let id = "n1".parse().unwrap();
        let opened = nodes.open(arrival("j"), STALE, welcome);
        let heartbeat = || link::connect_response::Message::Heartbeat(link::Heartbeat::default());
        for _ in 1..OUTBOX {
            assert!(nodes.send(&id, opened.epoch, heartbeat()));
        }
        assert!(!nodes.send(&id, opened.epoch, heartbeat()));
        assert_eq!(nodes.view(&id).unwrap().presence, Presence::Disconnected);
    }
}
