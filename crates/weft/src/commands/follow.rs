//! Following an invocation on a terminal: stderr as it comes, the result at the end, Ctrl-C ends it.

use std::{io::Stderr, time::Duration};

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
    output::{self, Passage},
};

/// What is printed besides the skill's own output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Each step of the invocation.
    pub(crate) verbose: bool,
    /// Ctrl-C ends the invocation; otherwise it ends only the watching.
    pub(crate) owns: bool,
}

/// How long an interrupted person waits for the id of what may have been started.
const LAST_LOOK: Duration = Duration::from_secs(5);

/// Follows an invocation to its end and returns the exit code that tells how it ended.
pub(crate) async fn follow(client: &Client, mut follow: Follow, manner: Manner) -> Result<u8, Failure> {
    let mut signals = Signals::catch().context("catch signals")?;
    let mut printer = Printer::new(manner);
    let mut interrupted = false;
    loop {
        let next = tokio::select! {
            next = follow.next() => next,
            signal = signals.next() => {
                let Some(id) = follow.id() else {
                    // The request may have arrived: its id is needed to end it.
                    output::note(&format!("{signal}: looking for what may have been started; once more to leave at once"));
                    let look = tokio::time::timeout(LAST_LOOK, follow.next());
                    tokio::select! {
                        known = look => if let Ok(Some(Ok(Followed::Known(id)))) = known {
                            interrupted = true;
                            printer.own_cancel = true;
                            end(client, id, signal).await;
                            continue;
                        },
                        _ = signals.next() => {}
                    }
                    output::note("leaving; if the request arrived, the skill may run: see `weft invocations`");
                    return Ok(exit::INTERRUPTED);
                };
                if !manner.owns {
                    output::note(&format!("{id} goes on; see it again with `weft watch {id}`"));
                    return Ok(exit::INTERRUPTED);
                }
                if interrupted {
                    output::note(&format!("{signal} again: leaving before {id} has ended"));
                    return Ok(exit::INTERRUPTED);
                }
                interrupted = true;
                printer.own_cancel = true;
                printer.stderr.end_line()?;
                end(client, id, signal).await;
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

async fn end(client: &Client, id: InvocationId, signal: &str) {
    output::note(&format!("{signal}: ending {id}; once more to leave at once"));
    if let Err(error) = cancel(client, id).await {
        output::note(&format!("cannot cancel {id}: {error}"));
    }
}

/// A cancel must not hang on a coordinator that is away: the person waits.
async fn cancel(client: &Client, id: InvocationId) -> anyhow::Result<()> {
    tokio::time::timeout(Duration::from_secs(5), client.cancel(id))
        .await
        .map_err(|_| anyhow!("the coordinator does not answer"))??;
    Ok(())
}

/// Shows events, and ends up with the exit code that tells how it ended.
pub(crate) struct Printer {
    manner: Manner,
    stderr: Passage<Stderr>,
    /// The parts of a large result, until its end says that they are whole.
    chunks: Vec<Bytes>,
    /// The person at this terminal ended it.
    pub(crate) own_cancel: bool,
    pub(crate) code: u8,
}

impl Printer {
    pub(crate) fn new(manner: Manner) -> Self {
        let stderr = Passage::to_stderr();
        Self { manner, stderr, chunks: Vec::new(), own_cancel: false, code: exit::UNKNOWN }
    }

    /// A line of our own, on a line of its own.
    fn note(&mut self, message: &str) -> anyhow::Result<()> {
        self.stderr.end_line()?;
        output::note(message);
        Ok(())
    }

    fn say(&mut self, message: &str) -> anyhow::Result<()> {
        if self.manner.verbose { self.note(message) } else { Ok(()) }
    }

    fn print(&mut self, followed: Followed) -> anyhow::Result<()> {
        match followed {
            Followed::Known(id) => self.say(&format!("invocation {id}")),
            Followed::Heartbeat => Ok(()),
            Followed::Interrupted { why } => {
                self.note(&format!("the stream broke ({why}); looking for it again"))
            }
            Followed::Resumed => self.note("the stream is back"),
            Followed::Event(event) => self.event(event),
        }
    }

    /// Shows one event.
    pub(crate) fn event(&mut self, event: Event) -> anyhow::Result<()> {
        match event.kind {
            EventKind::Admitted { skill, class } => self.say(&format!("{skill} ({class}) admitted")),
            EventKind::ApprovalPending { needed } => self.note(&format!("waiting for {needed} to approve")),
            EventKind::ApprovalDecided { note, .. } => self.note(&note),
            EventKind::Queued { reason } => self.note(&format!("queued: {reason}")),
            EventKind::Dispatched { node, attempt, .. } => {
                // What an earlier attempt left of a result is void.
                self.chunks.clear();
                self.say(&format!("attempt {attempt} on {node}"))
            }
            EventKind::Started { pid, .. } => self.say(&format!("started as process {pid}")),
            EventKind::Stderr { bytes, .. } => self.stderr.pass(&bytes),
            EventKind::Progress { done, total, text } => self.note(&format!("{done}/{total} {text}")),
            EventKind::OutputChunk { bytes, .. } => {
                self.chunks.push(bytes);
                Ok(())
            }
            EventKind::NodeLost { node, reason, .. } => self.note(&format!("node {node} is lost: {reason}")),
            EventKind::Gap { bytes, .. } => self.note(&format!("{bytes} bytes of stderr are missing here")),
            EventKind::Finished(last) => self.finished(&last),
        }
    }

    fn finished(&mut self, last: &Final) -> anyhow::Result<()> {
        self.code = match self.manner.owns {
            true => exit::of_own(last.outcome, self.own_cancel),
            false => exit::of_outcome(last.outcome),
        };
        self.stderr.end_line()?;
        match &last.result {
            ResultBody::None => {}
            ResultBody::Inline(bytes) => result(std::slice::from_ref(bytes))?,
            ResultBody::Chunked { size, digest } => {
                let whole: Vec<u8> = self.chunks.iter().flat_map(|chunk| chunk.iter().copied()).collect();
                if whole.len() as u64 != *size || Digest::of(&whole) != *digest {
                    self.code = exit::FAILED;
                    output::note("the result did not arrive whole; it is not shown");
                    return Ok(());
                }
                result(&self.chunks)?;
            }
        }
        if last.outcome != Outcome::Succeeded {
            let place = last.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
            output::note(&format!("{}{place}: {}", last.outcome, last.message));
        }
        match last.leftovers_killed {
            0 => {}
            1 => output::note("a process that it left behind was killed"),
            more => output::note(&format!("{more} processes that it left behind were killed")),
        }
        if last.dropped_bytes > 0 {
            output::note(&format!("{} bytes of its stderr were dropped", last.dropped_bytes));
        }
        Ok(())
    }
}

/// Prints exactly what the skill printed.
fn result(pieces: &[Bytes]) -> anyhow::Result<()> {
    let mut stdout = Passage::to_stdout();
    for piece in pieces {
        stdout.pass(piece)?;
    }
    stdout.end_line()
}
