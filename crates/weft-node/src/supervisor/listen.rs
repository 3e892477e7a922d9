//! Hearing a child.

use std::time::SystemTime;

use bytes::Bytes;
use weft_core::event::{EventKind, News};
use weft_exec::Observer;

use super::Supervisor;
use crate::attempt::{Attempt, Key};

/// Hears a child on its slot's own thread.
pub(super) struct Listener {
    pub(super) supervisor: Supervisor,
    pub(super) key: Key,
}

impl Listener {
    fn tell(&self, tell: impl FnOnce(&mut Attempt)) {
        let mut table = self.supervisor.table();
        if let Some(attempt) = table.attempts.get_mut(&self.key) {
            tell(attempt);
            table.join_line(self.key);
        }
        drop(table);
        self.supervisor.0.news.notify_one();
    }
}

impl Observer for Listener {
    fn started(&mut self, pid: u32, _: SystemTime) {
        let attempt = self.key.1;
        self.tell(|told| told.tell(News::Event(EventKind::Started { attempt, pid })));
    }

    fn stderr(&mut self, chunk: Bytes) {
        self.tell(|told| told.tell_stderr(chunk));
    }

    fn stderr_dropped(&mut self, bytes: u64) {
        self.tell(|told| told.tell_dropped(bytes));
    }
}
