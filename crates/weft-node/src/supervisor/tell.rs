//! Telling the coordinator, and forgetting what it has recorded.

use std::sync::Arc;

use tokio::sync::watch;
use weft_core::limits;
use weft_proto::{
    convert::{self, Malformed},
    link,
};
use weft_skills::Inventory;

use super::Supervisor;
use crate::attempt::Key;

impl Supervisor {
    /// The attempts for a hello; everything not acknowledged will be sent again.
    pub(crate) fn in_hand(&self) -> Vec<link::AttemptInHand> {
        let mut table = self.table();
        table.sent_bytes = 0;
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

    /// Resolves when there may be something to send.
    pub(crate) async fn has_news(&self) {
        self.0.news.notified().await;
    }

    /// The next frame: at most 64 KiB of news, one piece of each attempt in turn. `None` when there is nothing to
    /// send, or no credit.
    pub(crate) fn next_frame(&self) -> Option<link::NodeEvents> {
        let mut table = self.table();
        let mut events = Vec::new();
        let mut size = 0;
        let mut without_credit = 0;
        while size < limits::FRAME_BYTES as u64 && without_credit < table.line.len() {
            let Some(key) = table.line.pop_front() else { break };
            let room = table.link_room();
            let Some(attempt) = table.attempts.get_mut(&key) else { continue };
            if !attempt.can_send(room) {
                // What has nothing to send leaves the line and joins again when it has.
                attempt.in_line = attempt.has_unsent();
                if attempt.in_line {
                    table.line.push_back(key);
                    without_credit += 1;
                }
                continue;
            }
            let Some((event, cost)) = attempt.send_next() else { continue };
            size += cost;
            events.push(event);
            table.sent_bytes += cost;
            table.line.push_back(key);
            without_credit = 0;
        }
        (!events.is_empty()).then_some(link::NodeEvents { events })
    }

    /// News are recorded: they are forgotten here, and their bytes are credit again.
    ///
    /// # Errors
    /// When the message breaks the protocol.
    pub(crate) fn acknowledge(&self, acknowledgement: link::Acknowledgement) -> Result<(), Malformed> {
        let mut table = self.table();
        for entry in acknowledgement.attempts {
            let key = (convert::parse("invocation_id", &entry.invocation_id)?, entry.attempt);
            let Some(attempt) = table.attempts.get_mut(&key) else { continue };
            let freed = attempt.acknowledge(entry.node_sequence);
            table.sent_bytes = table.sent_bytes.saturating_sub(freed);
            table.forget_if_over(key);
            table.join_line(key);
        }
        drop(table);
        self.0.news.notify_one();
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
