//! The trait behind which every kind of store stands.

use futures::future::BoxFuture;
use tokio::sync::watch;
use weft_core::{
    event::Event,
    ids::{CallerId, InvocationId, RequestId, SkillKey},
    invocation::Invocation,
};

/// Why the store cannot do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It holds as much as it may, and nothing that has ended is left to forget.
    #[error("the event log is full")]
    Full,
    /// It does not know the invocation.
    #[error("no such invocation")]
    NotFound,
    /// The events asked for were forgotten to make room.
    #[error("the events were forgotten to make room")]
    Forgotten,
}

/// What became of a new invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It is recorded.
    New,
    /// The caller's request id stands for this one already.
    Existing(Box<Invocation>),
}

/// The events were taken in order; [`Recorded`] resolves when they are safe.
pub type Appended = Result<Recorded, StoreError>;

/// Resolves when events are recorded, and may then be shown and acknowledged.
pub type Recorded = BoxFuture<'static, Result<(), StoreError>>;

/// Which invocations are listed.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only of this skill.
    pub skill: Option<SkillKey>,
    /// Only those that have not ended.
    pub active: bool,
    /// Only those older than this one.
    pub before: Option<InvocationId>,
}

/// A page of invocations, the newest first.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The invocations.
    pub invocations: Vec<Invocation>,
    /// There are older ones.
    pub more: bool,
}

/// The memory of a coordinator.
///
/// Events of one invocation are appended by its owner alone, in order. Taking them is immediate and keeps their
/// order; making them safe is what [`Recorded`] waits for.
pub trait Store: Send + Sync + 'static {
    /// Records a new invocation with its first events, unless its request id stands for another already.
    fn create(&self, invocation: &Invocation, events: Vec<Event>) -> Result<(Created, Recorded), StoreError>;

    /// Appends events and replaces what is known of the invocation. `Full` is only returned when the events carry
    /// output: a change of state is always taken.
    fn append(&self, invocation: &Invocation, events: Vec<Event>) -> Appended;

    /// What a request id stands for.
    fn find_request(
        &self,
        caller: &CallerId,
        request_id: &RequestId,
    ) -> BoxFuture<'_, Result<Option<Invocation>, StoreError>>;

    /// What is known of an invocation.
    fn get(&self, id: InvocationId) -> BoxFuture<'_, Result<Invocation, StoreError>>;

    /// A page of invocations, the newest first.
    fn list(&self, filter: Filter, most: usize) -> BoxFuture<'_, Result<Page, StoreError>>;

    /// Recorded events after a sequence: at least one if there is any, then as many as fit into `bytes`.
    fn read(
        &self,
        id: InvocationId,
        after: u64,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<Event>, StoreError>>;

    /// The sequence of the last recorded event, as it grows.
    fn follow(&self, id: InvocationId) -> Result<watch::Receiver<u64>, StoreError>;
}
