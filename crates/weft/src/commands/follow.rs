//! Following an invocation on a terminal: stderr as it comes, the result at the end, Ctrl-C ends it.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use weft_client::{Client, Follow, Followed};
use weft_core::{
    event::{Event, EventKind},
    ids::{Digest, InvocationId},
    outcome::{Final, Outcome, ResultBody},
};
use weft_daemon::signal::Signals;

use crate::{
    exit::{self, Failure},
    output,
};

/// What is printed besides the skill's own output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Each step of the invocation.
    pub(crate) verbose: bool,
    /// Ctrl-C ends the invocation; otherwise it ends only the watching.
    pub(crate) owns: bool,
}

/// Follows an invocation to its end and returns the exit code that tells how it ended.
pub(crate) async fn follow(client: &Client, mut follow: Follow, manner: Manner) -> Result<u8, Failure> {
    let mut signals = Signals::catch().context("catch signals")?;
    let mut printer = Printer::new(manner);
    let mut interrupted = false;
    loop {
        let next = tokio::select! {
            next = follow.next() => next,
            signal = signals.next() => {
                let Some(id) = follow.id() else { return Ok(exit::INTERRUPTED) };
                if !manner.owns {
                    output::note(&format!("{id} goes on; see it again with `weft watch {id}`"));
                    return Ok(exit::INTERRUPTED);
                }
                if interrupted {
                    output::note(&format!("{signal} again: leaving before {id} has ended"));
                    return Ok(exit::INTERRUPTED);
                }
                interrupted = true;
                output::note(&format!("{signal}: ending {id}; once more to leave at once"));
                if let Err(error) = cancel(client, id).await {
                    output::note(&format!("cannot cancel {id}: {error}"));
                }
                continue;
            }
        };
        match next {
            None => return Ok(printer.code),
            Some(Ok(followed)) => printer.print(followed)?,
            Some(Err(error)) => return Err(error.into()),
        }
    }
}

/// A cancel must not hang on a coordinator that is away: the person waits.
async fn cancel(client: &Client, id: InvocationId) -> anyhow::Result<()> {
    tokio::time::timeout(Duration::from_secs(5), client.cancel(id))
        .await
        .map_err(|_| anyhow!("the coordinator does not answer"))??;
    Ok(())
}

struct Printer {
    manner: Manner,
    /// The parts of a large result, until its end says that they are whole.
    chunks: Vec<Bytes>,
    code: u8,
}

impl Printer {
    fn new(manner: Manner) -> Self {
        Self { manner, chunks: Vec::new(), code: exit::UNKNOWN }
    }

    fn say(&self, message: &str) {
        if self.manner.verbose {
            output::note(message);
        }
    }

    fn print(&mut self, followed: Followed) -> anyhow::Result<()> {
        match followed {
            Followed::Known(id) => self.say(&format!("invocation {id}")),
            Followed::Heartbeat => {}
            Followed::Interrupted { why } => {
                output::note(&format!("the stream broke ({why}); looking for it again"))
            }
            Followed::Resumed => output::note("the stream is back"),
            Followed::Event(event) => self.event(event)?,
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> anyhow::Result<()> {
        match event.kind {
            EventKind::Admitted { skill, class } => self.say(&format!("{skill} ({class}) admitted")),
            EventKind::ApprovalPending { needed } => {
                output::note(&format!("waiting for {needed} to approve"))
            }
            EventKind::ApprovalDecided { note, .. } => output::note(&note),
            EventKind::Queued { reason } => output::note(&format!("queued: {reason}")),
            EventKind::Dispatched { node, attempt, .. } => {
                // What an earlier attempt left of a result is void.
                self.chunks.clear();
                self.say(&format!("attempt {attempt} on {node}"));
            }
            EventKind::Started { pid, .. } => self.say(&format!("started as process {pid}")),
            EventKind::Stderr { bytes, .. } => output::skill_stderr(&bytes)?,
            EventKind::Progress { done, total, text } => output::note(&format!("{done}/{total} {text}")),
            EventKind::OutputChunk { bytes, .. } => self.chunks.push(bytes),
            EventKind::NodeLost { node, reason, .. } => {
                output::note(&format!("node {node} is lost: {reason}"))
            }
            EventKind::Gap { bytes, .. } => {
                output::note(&format!("{bytes} bytes of stderr are missing here"))
            }
            EventKind::Finished(last) => self.finished(&last)?,
        }
        Ok(())
    }

    fn finished(&mut self, last: &Final) -> anyhow::Result<()> {
        self.code = exit::of_outcome(last.outcome);
        match &last.result {
            ResultBody::None => {}
            ResultBody::Inline(bytes) => output::result(std::slice::from_ref(bytes))?,
            ResultBody::Chunked { size, digest } => {
                let whole: Vec<u8> = self.chunks.iter().flat_map(|chunk| chunk.iter().copied()).collect();
                if whole.len() as u64 != *size || Digest::of(&whole) != *digest {
                    self.code = exit::FAILED;
                    output::note("the result did not arrive whole; it is not shown");
                    return Ok(());
                }
                output::result(&self.chunks)?;
            }
        }
        if last.outcome != Outcome::Succeeded {
            let place = last.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
            output::note(&format!("{}{place}: {}", last.outcome, last.message));
        }
        if last.leftovers_killed > 0 {
            output::note(&format!("{} processes that it left behind were killed", last.leftovers_killed));
        }
        if last.dropped_bytes > 0 {
            output::note(&format!("{} bytes of its stderr were dropped", last.dropped_bytes));
        }
        Ok(())
    }
}
