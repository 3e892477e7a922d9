//! Sessions of kernels: each holds the snapshot that its agent works from.
//!
//! Snapshots are named by their content and held once, however many sessions have the same.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;
use weft_core::{
    advert::Scope,
    ids::{AgentId, CallerId, Digest, SessionId, SkillKey},
    limits,
    refusal::Refusal,
    skill::Layer,
    snapshot::{Pinned, Snapshot},
};

use crate::{nodes::Nodes, visible::Visible};

/// Agents whose last snapshot is kept at hand.
const MAX_LATEST: usize = 1024;
/// When a caller that has too many sessions may try again.
const RETRY: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    open: HashMap<SessionId, Open>,
    /// How many each caller has open.
    callers: HashMap<CallerId, usize>,
    snapshots: HashMap<Digest, Weak<Snapshot>>,
    /// What each agent saw at a revision of the catalog: taken anew only when that has changed.
    latest: HashMap<Option<AgentId>, (u64, Arc<Snapshot>)>,
}

#[derive(Debug)]
struct Open {
    caller: CallerId,
    agent: Option<AgentId>,
    snapshot: Arc<Snapshot>,
    created: Timestamp,
    used: Instant,
}

impl Open {
    fn is_over(&self) -> bool {
        self.used.elapsed() >= limits::SESSION_IDLE
    }
}

/// A session as it is now.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) agent: Option<AgentId>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) created: Timestamp,
    pub(crate) expires: Timestamp,
}

impl Sessions {
    fn held(&self) -> MutexGuard<'_, Held> {
        // No code that holds this lock can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session of a caller.
    ///
    /// # Errors
    /// When the caller has too many.
    pub(crate) fn open(
        &self,
        caller: CallerId,
        visible: &Visible,
        nodes: &Nodes,
    ) -> Result<Session, Refusal> {
        let snapshot = self.snapshot(visible, nodes);
        let mut held = self.held();
        if held.callers.get(&caller).is_some_and(|count| *count >= limits::SESSIONS_PER_CALLER) {
            held.forget_idle();
        }
        let count = held.callers.entry(caller.clone()).or_default();
        if *count >= limits::SESSIONS_PER_CALLER {
            let what = format!("{caller} has {count} sessions open; close those that are not needed");
            return Err(Refusal::Quota { what, retry_after: RETRY });
        }
        *count += 1;
        let id = SessionId::generate();
        let agent = visible.agent().cloned();
        let open = Open { caller, agent, snapshot, created: Timestamp::now(), used: Instant::now() };
        let session = open.shown(id.clone());
        held.open.insert(id, open);
        Ok(session)
    }

    /// A session of a caller; using it keeps it alive.
    ///
    /// # Errors
    /// When the caller has none with this id.
    pub(crate) fn get(&self, caller: &CallerId, id: &str) -> Result<Session, Refusal> {
        let mut held = self.held();
        let (id, open) = held.find(caller, id)?;
        open.used = Instant::now();
        Ok(open.shown(id))
    }

    /// The boundary of a turn: gives a session what its agent sees now. Returns whether that is something else than
    /// before.
    ///
    /// # Errors
    /// When the caller has no session with this id.
    pub(crate) fn begin_turn(
        &self,
        caller: &CallerId,
        id: &str,
        visible: &Visible,
        nodes: &Nodes,
    ) -> Result<(Session, bool), Refusal> {
        let snapshot = self.snapshot(visible, nodes);
        let mut held = self.held();
        let (id, open) = held.find(caller, id)?;
        let changed = open.snapshot.digest() != snapshot.digest();
        open.used = Instant::now();
        open.snapshot = snapshot;
        Ok((open.shown(id), changed))
    }

    /// Ends a session.
    ///
    /// # Errors
    /// When the caller has none with this id.
    pub(crate) fn close(&self, caller: &CallerId, id: &str) -> Result<(), Refusal> {
        let mut held = self.held();
        let (id, _) = held.find(caller, id)?;
        held.end(&id);
        Ok(())
    }

    /// What an agent can use now.
    pub(crate) fn snapshot(&self, visible: &Visible, nodes: &Nodes) -> Arc<Snapshot> {
        let (agent, revision) = (visible.agent().cloned(), visible.merged().revision());
        if let Some((at, latest)) = self.held().latest.get(&agent)
            && *at == revision
        {
            return latest.clone();
        }
        let taken = Snapshot::new(
            visible
                .after("")
                .filter(|skill| visible.is_usable(skill, nodes))
                .map(|skill| {
                    let shown = skill.shown();
                    let layers = shown.providers.values().map(|provider| provider.row.layer);
                    let layer = layers.min().unwrap_or(Layer::Extra);
                    Pinned {
                        definition: shown.definition.clone(),
                        definition_digest: shown.definition_digest,
                        class: visible.class_of(skill, shown),
                        digests: skill.meant().map(|variant| variant.digest).collect(),
                        // What is for every agent is in nobody's workspace, whatever its node says.
                        layer: match skill.scope {
                            Scope::All => layer.max(Layer::Personal),
                            Scope::Agent(_) => layer,
                        },
                    }
                })
                .collect(),
        );
        let mut held = self.held();
        let snapshot = held.store(taken);
        if held.latest.len() >= MAX_LATEST {
            held.latest.clear();
        }
        held.latest.insert(agent, (revision, snapshot.clone()));
        snapshot
    }
}

impl Session {
    /// The files that an invocation of a skill in this session may run.
    ///
    /// # Errors
    /// When the skill is not in its snapshot.
    pub(crate) fn pin(&self, skill: &SkillKey) -> Result<Arc<[Digest]>, Refusal> {
        let pinned = self.snapshot.get(skill);
        pinned
            .map(|pinned| pinned.digests.clone())
            .ok_or_else(|| Refusal::SkillNotFound { skill: skill.to_string() })
    }
}

impl Open {
    fn shown(&self, id: SessionId) -> Session {
        let left = limits::SESSION_IDLE.saturating_sub(self.used.elapsed());
        Session {
            id,
            agent: self.agent.clone(),
            snapshot: self.snapshot.clone(),
            created: self.created,
            expires: Timestamp::now() + left,
        }
    }
}

impl Held {
    fn find(&mut self, caller: &CallerId, id: &str) -> Result<(SessionId, &mut Open), Refusal> {
        let unknown = || Refusal::SessionNotFound { session: id.chars().take(128).collect() };
        let key: SessionId = id.parse().map_err(|_| unknown())?;
        if self.open.get(&key).is_some_and(Open::is_over) {
            self.end(&key);
        }
        // Another caller's session is not there.
        let open = self.open.get_mut(&key).filter(|open| open.caller == *caller).ok_or_else(unknown)?;
        Ok((key, open))
    }

    fn end(&mut self, id: &SessionId) {
        let Some(open) = self.open.remove(id) else { return };
        if let Some(count) = self.callers.get_mut(&open.caller) {
            *count -= 1;
            if *count == 0 {
                self.callers.remove(&open.caller);
            }
        }
    }

    fn forget_idle(&mut self) {
        let over: Vec<_> =
            self.open.iter().filter(|(_, open)| open.is_over()).map(|(id, _)| id.clone()).collect();
        over.iter().for_each(|id| self.end(id));
    }

    /// The one copy of a snapshot.
    fn store(&mut self, taken: Snapshot) -> Arc<Snapshot> {
        if let Some(same) = self.snapshots.get(&taken.digest()).and_then(Weak::upgrade) {
            return same;
        }
        // What nobody holds any more leaves an empty place; there are never many more places than snapshots in use.
        if self.snapshots.len() > 2 * self.open.len() + MAX_LATEST {
            self.snapshots.retain(|_, held| held.strong_count() > 0);
        }
        let snapshot = Arc::new(taken);
        self.snapshots.insert(snapshot.digest(), Arc::downgrade(&snapshot));
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use weft_core::{
        advert::{Advert, Row},
        node::Labels,
        skill::{Definition, Kind},
    };
    use weft_proto::convert::encode_definition;

    use super::*;
    use crate::{catalog::Keeper, settings::Settings};

    /// A catalog with one skill, which says this of itself.
    fn says(keeper: &Keeper, description: &str) {
        let key = SkillKey::normalise("tool").unwrap();
        let plain = Definition::new(key.clone(), Kind::Executable);
        let (bytes, definition) = encode_definition(&Definition { description: description.into(), ..plain });
        let row = Row {
            scope: Scope::All,
            key,
            layer: Layer::Managed,
            path: "/skills/tool".into(),
            digest: definition,
            partial: false,
            definition,
            verdicts: vec![],
            shadowed_by: None,
        };
        let node = "n1".parse().unwrap();
        let advert = Advert { revision: 1, rows: vec![Arc::new(row)], diagnostics: vec![] };
        keeper.advertise(&node, 1, &Labels::new(), advert);
        keeper.define(&node, &bytes).unwrap();
        keeper.merge_all();
    }

    /// Sessions over a catalog that can be changed.
    struct Desk {
        keeper: Keeper,
        nodes: Nodes,
        sessions: Sessions,
    }

    impl Desk {
        fn new() -> Self {
            let keeper = Keeper::new(Settings::default());
            says(&keeper, "first");
            Self { keeper, nodes: Nodes::new(), sessions: Sessions::default() }
        }

        fn visible(&self, agent: &str) -> Visible {
            Visible::new(self.keeper.current(), (!agent.is_empty()).then(|| agent.parse().unwrap()))
        }

        fn open(&self, of: &CallerId, agent: &str) -> Result<Session, Refusal> {
            self.sessions.open(of.clone(), &self.visible(agent), &self.nodes)
        }

        fn begin_turn(&self, of: &CallerId, session: &Session) -> Result<(Session, bool), Refusal> {
            self.sessions.begin_turn(of, session.id.as_str(), &self.visible("a"), &self.nodes)
        }

        /// Nobody has used a session for as long as one lasts.
        fn forsake(&self, session: &Session) {
            self.sessions.held().open.get_mut(&session.id).unwrap().used -= limits::SESSION_IDLE;
        }
    }

    fn caller(name: &str) -> CallerId {
        name.parse().unwrap()
    }

    fn reason<T>(result: Result<T, Refusal>) -> &'static str {
        result.err().map(|refusal| refusal.reason()).unwrap_or_default()
    }

    #[test]
    fn a_caller_has_so_many_sessions_and_takes_none_from_another() {
        let desk = Desk::new();
        let (greedy, other) = (caller("greedy"), caller("other"));
        let first = desk.open(&greedy, "a").unwrap();
        for _ in 1..limits::SESSIONS_PER_CALLER {
            desk.open(&greedy, "a").unwrap();
        }
        assert_eq!(reason(desk.open(&greedy, "b")), "QUOTA");
        desk.open(&other, "a").unwrap();
        desk.sessions.close(&greedy, first.id.as_str()).unwrap();
        desk.open(&greedy, "a").unwrap();
        assert_eq!(reason(desk.open(&greedy, "a")), "QUOTA");
    }

    #[test]
    fn another_callers_session_is_not_there() {
        let desk = Desk::new();
        let (owner, other) = (caller("owner"), caller("other"));
        let session = desk.open(&owner, "a").unwrap();
        let id = session.id.as_str();
        assert_eq!(reason(desk.sessions.get(&other, id)), "SESSION_NOT_FOUND");
        assert_eq!(reason(desk.begin_turn(&other, &session)), "SESSION_NOT_FOUND");
        assert_eq!(reason(desk.sessions.close(&other, id)), "SESSION_NOT_FOUND");
        assert_eq!(desk.sessions.get(&owner, id).unwrap().agent, session.agent);
        for unknown in ["", "s-1", "no id\n"] {
            assert_eq!(reason(desk.sessions.get(&owner, unknown)), "SESSION_NOT_FOUND");
        }
    }

    #[test]
    fn the_same_view_is_held_once_whoever_has_it() {
        let desk = Desk::new();
        let one = desk.open(&caller("one"), "a").unwrap();
        for (of, agent) in [("one", "a"), ("two", "a"), ("two", "b"), ("two", "")] {
            let same = desk.open(&caller(of), agent).unwrap();
            assert!(Arc::ptr_eq(&one.snapshot, &same.snapshot), "{of} {agent}");
        }
        // Also when the catalog went somewhere else and came back.
        says(&desk.keeper, "second");
        let changed = desk.open(&caller("one"), "a").unwrap();
        assert!(!Arc::ptr_eq(&one.snapshot, &changed.snapshot));
        says(&desk.keeper, "first");
        assert!(Arc::ptr_eq(&one.snapshot, &desk.open(&caller("one"), "c").unwrap().snapshot));
    }

    #[test]
    fn a_turn_takes_what_is_there_now_and_says_whether_that_is_something_else() {
        let desk = Desk::new();
        let of = caller("one");
        let session = desk.open(&of, "a").unwrap();
        assert!(!desk.begin_turn(&of, &session).unwrap().1);
        says(&desk.keeper, "second");
        let before = desk.sessions.get(&of, session.id.as_str()).unwrap();
        assert!(Arc::ptr_eq(&before.snapshot, &session.snapshot), "a turn goes on with what it began with");
        let (turned, changed) = desk.begin_turn(&of, &session).unwrap();
        assert!(changed && turned.snapshot.digest() != session.snapshot.digest());
        assert!(!desk.begin_turn(&of, &session).unwrap().1);
    }

    #[test]
    fn a_session_that_nobody_uses_ends_and_gives_its_place_to_another() {
        let desk = Desk::new();
        let of = caller("one");
        let sessions: Vec<_> =
            (0..limits::SESSIONS_PER_CALLER).map(|_| desk.open(&of, "a").unwrap()).collect();
        let [read, turned, forsaken, kept] = &sessions[..4] else { panic!("there are more") };
        for session in [read, turned, forsaken] {
            desk.forsake(session);
        }
        assert_eq!(reason(desk.sessions.get(&of, read.id.as_str())), "SESSION_NOT_FOUND");
        assert_eq!(reason(desk.begin_turn(&of, turned)), "SESSION_NOT_FOUND");
        for _ in 0..3 {
            desk.open(&of, "a").unwrap();
        }
        assert_eq!(reason(desk.open(&of, "a")), "QUOTA");
        desk.sessions.get(&of, kept.id.as_str()).unwrap();
    }

    #[test]
    fn a_snapshot_that_nobody_holds_leaves_memory() {
        let desk = Desk::new();
        let of = caller("one");
        for number in 0..20 {
            says(&desk.keeper, &number.to_string());
            let session = desk.open(&of, "a").unwrap();
            desk.sessions.close(&of, session.id.as_str()).unwrap();
        }
        let held = desk.sessions.held();
        let alive = held.snapshots.values().filter(|snapshot| snapshot.strong_count() > 0).count();
        // The last one is at hand for whoever asks next.
        assert_eq!((held.open.len(), held.callers.len(), alive), (0, 0, 1));
    }
}
