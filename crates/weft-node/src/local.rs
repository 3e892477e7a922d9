//! A node without a coordinator, for one skill and its author: `weft skill test`.
//!
//! It is a node like every other, with this module at the far end of its link: the dispatch comes from here, and news
//! are taken and acknowledged here. Loading, gates, checks, environment, start, limits and outcome are those of the
//! fabric because they are the same code.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;
use weft_core::{
    args::Args,
    event::{Event, EventKind, News},
    ids::{Digest, InvocationId},
    limits,
    policy::{Evidence, PermissionMode},
    refusal::{Obstacle, Refusal},
    schema::{Schema, Violation},
    skill::Kind,
};
use weft_exec::StopReason;
use weft_proto::{
    convert::{authorisation_to_wire, duration_to_wire, news_from_wire, timestamp_to_wire},
    link,
    v1::SkillClass,
};
use weft_skills::{Copy, Inventory};

use crate::{
    attempt::Key,
    config::Config,
    node::{BuildError, Node},
    supervisor::Supervisor,
};

/// How long tasks may take to end once every process has.
const LAST_TASKS: Duration = Duration::from_secs(1);

/// A node that nobody reaches but this process.
pub struct Local(Node);

impl Local {
    /// Does what a node does before it connects. Blocks.
    ///
    /// # Errors
    /// When the host or the state directory does not allow it.
    pub fn build(config: Config) -> Result<Self, BuildError> {
        Node::build(config).map(Self)
    }

    /// What its directories hold.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.0.supervisor.inventory().borrow().clone()
    }

    /// Invokes a skill, whatever its class: who is at the keyboard could start its entry as well. `budget` can only
    /// shorten what the manifest allows.
    ///
    /// # Errors
    /// As a coordinator refuses before there is an invocation.
    pub fn invoke(&self, copy: &Copy, args: Bytes, budget: Option<Duration>) -> Result<Invocation, Refusal> {
        self.admit(copy, &args)?;
        let (definition, supervisor) = (&copy.definition, self.0.supervisor.clone());
        let key = (InvocationId::generate(), 1);
        let evidence = Evidence { operator_allows: Some(definition.class), ..Evidence::default() };
        let dispatch = link::Dispatch {
            invocation_id: key.0.to_string(),
            attempt: key.1,
            session_epoch: EPOCH,
            skill: definition.key.to_string(),
            digest: Bytes::copy_from_slice(copy.digest.as_bytes()),
            pinned: false,
            agent: String::new(),
            args,
            class: SkillClass::from(definition.class).into(),
            authorisation: Some(authorisation_to_wire(PermissionMode::default(), evidence)),
            budget: Some(duration_to_wire(budget.map_or(definition.timeout, |b| b.min(definition.timeout)))),
            queue_wait: Some(duration_to_wire(limits::QUEUE_WAIT)),
            expire_time: Some(timestamp_to_wire(Timestamp::now() + limits::QUEUE_WAIT)),
            trace: None,
            sandboxed: false,
        };
        supervisor.dispatch(dispatch, EPOCH).map_err(|error| Refusal::Internal(error.to_string()))?;
        let mut invocation = Invocation {
            supervisor,
            key,
            digest: copy.digest,
            events: VecDeque::new(),
            sequence: 0,
            ended: false,
        };
        invocation.record(EventKind::Admitted { skill: definition.key.clone(), class: definition.class });
        let node = self.0.id().clone();
        invocation.record(EventKind::Dispatched { node, attempt: key.1, digest: copy.digest });
        Ok(invocation)
    }

    /// What a coordinator checks.
    fn admit(&self, copy: &Copy, args: &Bytes) -> Result<(), Refusal> {
        let definition = &copy.definition;
        let skill = definition.key.clone();
        if definition.kind == Kind::Instructions {
            return Err(Refusal::SkillNotExecutable { skill });
        }
        let obstacles: Vec<Obstacle> = copy
            .verdicts
            .iter()
            .filter(|verdict| !verdict.passed)
            .map(|verdict| Obstacle {
                node: self.0.id().clone(),
                name: "this host".into(),
                kind: verdict.gate.to_string(),
                reason: format!("{} {}: {}", verdict.gate, verdict.subject, verdict.reason),
            })
            .collect();
        if !obstacles.is_empty() {
            return Err(Refusal::NoEligibleNode { skill, obstacles });
        }
        let schema = Schema::compile(&definition.schema).map_err(|e| Refusal::Internal(e.to_string()))?;
        Args::parse(args.clone())
            .map_err(|error| vec![Violation { pointer: String::new(), message: error.to_string() }])
            .and_then(|args| args.validate(&schema))
            .map_err(|violations| Refusal::ArgsInvalid { skill, violations })
    }

    /// Ends every process and every thread.
    pub async fn close(self) {
        let Node { supervisor, tasks, .. } = self.0;
        let _ = tokio::task::spawn_blocking(move || supervisor.close()).await;
        tasks.join(LAST_TASKS).await;
    }
}

/// The only session there is.
const EPOCH: u64 = 1;

/// An invocation on a [`Local`]: its events, as a coordinator would record them.
pub struct Invocation {
    supervisor: Supervisor,
    key: Key,
    digest: Digest,
    events: VecDeque<Event>,
    sequence: u64,
    ended: bool,
}

impl Invocation {
    /// The next event; `None` after `finished`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            match self.supervisor.next_frame() {
                Some(frame) => match frame.load() {
                    Ok(events) => self.take(events),
                    // As in a new session: what is left is sent again.
                    Err(_) => drop(self.supervisor.in_hand()),
                },
                None => tokio::select! {
                    () = self.supervisor.has_news() => {}
                    () = self.supervisor.has_news_for_later() => {}
                },
            }
        }
    }

    /// Ends it as a cancel does: SIGTERM to the tree, SIGKILL after the grace.
    pub fn cancel(&self) {
        self.supervisor.cancel(self.key, StopReason::Cancelled);
    }

    /// Ends it at once.
    pub fn kill(&self) {
        self.supervisor.cancel(self.key, StopReason::Closed);
    }

    fn take(&mut self, frame: link::NodeEvents) {
        for told in frame.events {
            if let Ok(Some(News::Event(kind))) = news_from_wire(told.event) {
                self.record(kind);
            }
            let recorded = link::AcknowledgedAttempt {
                invocation_id: told.invocation_id,
                attempt: told.attempt,
                node_sequence: told.node_sequence,
            };
            // Its id is our own, so it can be read.
            let _ = self.supervisor.acknowledge(link::Acknowledgement { attempts: vec![recorded] });
        }
    }

    fn record(&mut self, mut kind: EventKind) {
        if let EventKind::Finished(last) = &mut kind {
            // The node stays out: it is gone in a moment, and its name says nothing to anybody.
            (last.attempt, last.digest) = (self.key.1, Some(self.digest));
            self.ended = true;
        }
        self.sequence += 1;
        self.events.push_back(Event { sequence: self.sequence, time: Timestamp::now(), kind });
    }
}
