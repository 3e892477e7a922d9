//! Streams of events. A watcher reads the log at its own pace, so a slow one costs nothing but itself.

use std::{sync::Arc, time::Duration};

use futures::{Stream, stream};
use tokio::{sync::watch, time::timeout};
use weft_core::{
    event::{Event, EventKind},
    ids::InvocationId,
    refusal::Refusal,
};
use weft_daemon::Drain;
use weft_store::{Store, StoreError};

use crate::invocations::Invocations;

/// Bytes of events that are read at once; what a watcher holds beyond what its connection does.
const READ: usize = 256 * 1024;

/// What a watcher is told.
#[derive(Debug)]
pub(crate) enum Told {
    Event(Event),
    Heartbeat,
}

struct Watch {
    id: InvocationId,
    store: Arc<dyn Store>,
    last: watch::Receiver<u64>,
    after: u64,
    ready: std::vec::IntoIter<Event>,
    /// The last event was an end; the stream ends unless a later truth follows it.
    ended: bool,
    heartbeat: Duration,
    drain: Drain,
    /// Keeps a safe invocation alive.
    _watched: Option<Box<dyn Send>>,
}

/// Replays the events after a sequence and goes on to the end.
pub(crate) async fn watch(
    invocations: &Invocations,
    id: InvocationId,
    after: u64,
    heartbeat: Duration,
    drain: Drain,
) -> Result<impl Stream<Item = Result<Told, Refusal>> + Send + use<>, Refusal> {
    let watched = invocations.watched(id);
    let invocation = invocations.get(id).await?;
    if after > invocation.last_sequence {
        return Err(Refusal::WatchExpired {
            after,
            last: invocation.last_sequence,
            why: format!("the invocation has {} events so far", invocation.last_sequence),
        });
    }
    let store = invocations.store().clone();
    let last = store.follow(id).map_err(|error| expired(&error, after, invocation.last_sequence))?;
    let watch = Watch {
        id,
        store,
        last,
        after,
        ready: Vec::new().into_iter(),
        // Whoever has seen the end already has nothing to wait for.
        ended: invocation.state.is_finished() && after == invocation.last_sequence,
        heartbeat,
        drain,
        _watched: watched.map(|watched| Box::new(watched) as Box<dyn Send>),
    };
    Ok(stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        match watch.next().await {
            Ok(Some(told)) => Some((Ok(told), Some(watch))),
            Ok(None) => None,
            Err(refusal) => Some((Err(refusal), None)),
        }
    }))
}

impl Watch {
    async fn next(&mut self) -> Result<Option<Told>, Refusal> {
        loop {
            if let Some(event) = self.ready.next() {
                self.after = event.sequence;
                self.ended = matches!(event.kind, EventKind::Finished(_));
                return Ok(Some(Told::Event(event)));
            }
            // Seen before the read: what comes after it wakes the wait below.
            let known = *self.last.borrow_and_update();
            if known > self.after {
                let events = self
                    .store
                    .read(self.id, self.after, READ)
                    .await
                    .map_err(|error| expired(&error, self.after, known))?;
                self.ready = events.into_iter();
                continue;
            }
            if self.ended {
                return Ok(None);
            }
            tokio::select! {
                changed = timeout(self.heartbeat, self.last.changed()) => match changed {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(expired(&StoreError::Forgotten, self.after, known)),
                    Err(_) => return Ok(Some(Told::Heartbeat)),
                },
                () = self.drain.stopped() => {
                    return Err(Refusal::StreamMoved { invocation: self.id.to_string() });
                }
            }
        }
    }
}

fn expired(error: &StoreError, after: u64, last: u64) -> Refusal {
    Refusal::WatchExpired { after, last, why: error.to_string() }
}
