//! Hearing a child.

use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::Notify;
use weft_core::event::{EventKind, News};
use weft_exec::Observer;
use weft_telemetry::Stderr;

use super::Supervisor;
use crate::attempt::{Attempt, Key, Payload, Place};

/// Hears a child on its slot's own thread.
pub(super) struct Listener {
    pub(super) supervisor: Supervisor,
    pub(super) key: Key,
    /// The same as log records of the trace.
    pub(super) log: Stderr,
    /// It was said that the spool cannot be written.
    pub(super) spool_failed: bool,
}

impl Listener {
    fn tell(&self, tell: impl FnOnce(&mut Attempt)) {
        self.tell_and(tell, &self.supervisor.0.news);
    }

    fn tell_and(&self, tell: impl FnOnce(&mut Attempt), notify: &Notify) {
        let mut table = self.supervisor.table();
        if let Some(attempt) = table.attempts.get_mut(&self.key) {
            tell(attempt);
            table.join_line(self.key);
        }
        drop(table);
        notify.notify_one();
    }

    fn place(&self, len: usize) -> Place {
        let mut table = self.supervisor.table();
        let Some(attempt) = table.attempts.get_mut(&self.key) else { return Place::Nowhere };
        let before = attempt.dropped;
        let place = attempt.place(len, &self.supervisor.0.spool);
        self.supervisor.0.metrics.stderr_dropped(attempt.dropped - before);
        place
    }

    fn drop_bytes(&self, bytes: u64) {
        self.supervisor.0.metrics.stderr_dropped(bytes);
        self.tell(|told| {
            told.dropped += bytes;
            told.tell_dropped(bytes);
        });
    }
}

impl Observer for Listener {
    fn started(&mut self, pid: u32, _: SystemTime) {
        let attempt = self.key.1;
        let started = News::Event(EventKind::Started { attempt, pid });
        self.tell_and(|told| told.tell(started), &self.supervisor.0.news_for_later);
    }

    fn stderr(&mut self, chunk: Bytes) {
        self.log.push(&chunk);
        // Nobody else tells stderr of this attempt, so the order holds although the disk is written without the lock.
        match self.place(chunk.len()) {
            Place::Memory => self.tell(|told| told.tell_stderr(Payload::Memory(chunk))),
            Place::Spool(extent) => match extent.write(&chunk) {
                Ok(()) => self.tell(|told| told.tell_stderr(Payload::Spool(extent))),
                Err(error) => {
                    if !std::mem::replace(&mut self.spool_failed, true) {
                        tracing::warn!(
                            weft.invocation.id = %self.key.0, %error,
                            "cannot write the spool; what no coordinator takes is dropped"
                        );
                    }
                    self.drop_bytes(chunk.len() as u64);
                }
            },
            Place::Nowhere => self.drop_bytes(chunk.len() as u64),
        }
    }

    fn stderr_dropped(&mut self, bytes: u64) {
        self.supervisor.0.metrics.stderr_dropped(bytes);
        self.tell(|told| told.tell_dropped(bytes));
    }
}
