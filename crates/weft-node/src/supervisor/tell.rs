//! Telling the coordinator, and forgetting what it has recorded.

use std::{io, sync::Arc};

use tokio::sync::watch;
use weft_core::{
    credit::{Cost, Credit},
    limits,
};
use weft_proto::{
    convert::{self, Malformed},
    link,
};
use weft_skills::Inventory;

use super::{Supervisor, table::Table};
use crate::attempt::{Key, Outgoing};

impl Supervisor {
    /// The attempts for a hello; everything not acknowledged will be sent again.
    pub(crate) fn in_hand(&self) -> Vec<link::AttemptInHand> {
        let mut table = self.table();
        table.credit = Credit::default();
        table.line.clear();
        let mut keys: Vec<Key> = table.attempts.keys().copied().collect();
        keys.sort_unstable();
        let mut list = Vec::new();
        for key in keys {
            if let Some(attempt) = table.attempts.get_mut(&key) {
                attempt.rewind();
                if !(attempt.is_finished() && attempt.is_told()) {
                    list.push(attempt.in_hand());
                }
            }
            table.join_line(key);
        }
        list
    }

    /// The credit that a coordinator gives, in bytes, for one attempt and for the link. Before anything is sent.
    pub(crate) fn set_credit(&self, of_attempt: u64, of_link: u64) {
        self.table().credit = Credit::new(of_attempt, of_link);
    }

    /// Resolves when there may be something to send.
    pub(crate) async fn has_news(&self) {
        self.0.news.notified().await;
    }

    /// Resolves when there may be something to send that can wait a moment: that an attempt was accepted or started is
    /// mostly followed by more, and each message costs both sides more than what it says.
    pub(crate) async fn has_news_for_later(&self) {
        self.0.news_for_later.notified().await;
    }

    /// The next frame: about 64 KiB of news, one piece of each attempt in turn. `None` when there is nothing to send,
    /// or no credit.
    pub(crate) fn next_frame(&self) -> Option<Frame> {
        let news = self.take_turns();
        (!news.is_empty()).then(|| Frame { supervisor: self.clone(), news })
    }

    fn take_turns(&self) -> Vec<Outgoing> {
        let mut table = self.table();
        let mut frame: Vec<Outgoing> = Vec::new();
        let mut size = 0;
        let mut without_credit = 0;
        while without_credit < table.line.len() {
            let Some(key) = table.line.pop_front() else { break };
            let Table { attempts, credit, line, .. } = &mut *table;
            let Some(attempt) = attempts.get_mut(&key) else { continue };
            if !attempt.can_send(credit) {
                // What has nothing to send leaves the line and joins again when it has.
                attempt.in_line = attempt.has_unsent();
                if attempt.in_line {
                    line.push_back(key);
                    without_credit += 1;
                }
                continue;
            }
            let cost = attempt.next_cost().map_or(0, Cost::bytes);
            if !frame.is_empty() && size + cost > limits::FRAME_BYTES as u64 {
                line.push_front(key);
                break;
            }
            let Some(outgoing) = attempt.send_next() else { continue };
            size += cost;
            credit.take(key, outgoing.cost);
            frame.push(outgoing);
            line.push_back(key);
            without_credit = 0;
        }
        table.wants_credit = without_credit > 0;
        frame
    }

    /// News are recorded: they are forgotten here, and their bytes are credit again.
    ///
    /// # Errors
    /// When the message breaks the protocol.
    pub(crate) fn acknowledge(&self, acknowledgement: link::Acknowledgement) -> Result<(), Malformed> {
        let mut table = self.table();
        for entry in acknowledgement.attempts {
            let key = (convert::parse("invocation_id", &entry.invocation_id)?, entry.attempt);
            let Table { attempts, credit, .. } = &mut *table;
            let Some(attempt) = attempts.get_mut(&key) else { continue };
            attempt.acknowledge(entry.node_sequence, credit);
            table.forget_if_over(key);
            table.join_line(key);
        }
        if table.wants_credit {
            self.0.news.notify_one();
        }
        drop(table);
        // Whoever drains waits for the last acknowledgement as well.
        self.0.ended.notify_waiters();
        Ok(())
    }

    /// Removes exact copies of skills that are not offered any more. Blocks on the file system.
    pub(crate) fn forget_exact_copies(&self) {
        let named = self.0.inventory.borrow().copies.iter().map(|copy| copy.digest).collect();
        self.0.exact.retain(&named);
    }

    /// How many invocations run, and how many wait.
    pub(crate) fn load(&self) -> (u32, u32) {
        let table = self.table();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (count(table.running), count(table.waiting.len()))
    }

    /// What the node offers now, and later.
    pub(crate) fn inventory(&self) -> watch::Receiver<Arc<Inventory>> {
        self.0.inventory.clone()
    }

    pub(crate) fn slots(&self) -> usize {
        self.0.executor.slots()
    }
}

/// News on their way out, some of them still in the spool.
pub(crate) struct Frame {
    supervisor: Supervisor,
    news: Vec<Outgoing>,
}

impl Frame {
    /// Whether [`Frame::load`] reads from the disk.
    pub(crate) fn is_spooled(&self) -> bool {
        self.news.iter().any(|outgoing| outgoing.spooled.is_some())
    }

    /// The message, with what was in the spool.
    ///
    /// # Errors
    /// When the spool cannot be read. What the attempt had there is missing from now on, and a new session tells the
    /// rest.
    pub(crate) fn load(self) -> io::Result<link::NodeEvents> {
        let mut events = Vec::with_capacity(self.news.len());
        for Outgoing { mut event, spooled, .. } in self.news {
            if let Some(extent) = spooled {
                let payload = extent.read().inspect_err(|error| self.supervisor.lose(&event, error))?;
                match &mut event.event {
                    Some(link::node_event::Event::Stderr(stderr)) => stderr.data = payload,
                    Some(link::node_event::Event::OutputChunk(chunk)) => chunk.data = payload,
                    _ => {}
                }
            }
            events.push(event);
        }
        Ok(link::NodeEvents { events })
    }
}

impl Supervisor {
    fn lose(&self, event: &link::NodeEvent, error: &io::Error) {
        tracing::error!(weft.invocation.id = %event.invocation_id, %error, "cannot read the spool");
        let Ok(invocation) = event.invocation_id.parse() else { return };
        if let Some(attempt) = self.table().attempts.get_mut(&(invocation, event.attempt)) {
            let before = attempt.dropped;
            attempt.lose_spooled(&format!("reading the spool of its node: {error}"));
            self.0.metrics.stderr_dropped(attempt.dropped - before);
        }
    }
}
