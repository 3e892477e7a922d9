//! Starting what waits, and what its end means.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::time::Instant;
use weft_core::{
    outcome::{Final, Outcome},
    skill::Class,
    trace::TraceContext,
};
use weft_exec::{Command, Report, Running, StopReason};
use weft_skills::{Copy, Exact, ExactError};
use weft_telemetry::{Span, Stderr};

use super::{Supervisor, listen::Listener};
use crate::{
    attempt::{Key, Order, Payload, Phase},
    conclude::{Conclusion, conclude},
    environment::{self, Told},
    spans,
};

/// Results larger than this are checked away from the event loop, in bytes.
const LARGE_RESULT: usize = 256 * 1024;

/// What is started.
struct Files {
    entry: PathBuf,
    directory: PathBuf,
    /// Keeps an exact copy on disk.
    exact: Option<Arc<Exact>>,
    /// What the operator's entry adds to its environment.
    injected: Vec<(OsString, OsString)>,
}

impl Supervisor {
    /// Starts what waits, as far as there are slots.
    pub(super) fn start_waiting(&self) {
        while let Some((order, copy)) = self.next_to_start() {
            if self.must_read(&order, &copy) {
                // Reading all files of a skill takes its time, and the link must be read meanwhile.
                let supervisor = self.clone();
                self.0.tasks.spawn(async move {
                    let (reader, asked, files) = (supervisor.clone(), order.clone(), copy.clone());
                    let checked = tokio::task::spawn_blocking(move || reader.files(&asked, &files)).await;
                    let checked = checked.unwrap_or_else(|_| Err("the check of its files failed".into()));
                    supervisor.start_or_end(&order, &copy, checked);
                    supervisor.start_waiting();
                });
            } else {
                let checked = self.files(&order, &copy);
                self.start_or_end(&order, &copy, checked);
            }
        }
    }

    fn start_or_end(&self, order: &Arc<Order>, copy: &Arc<Copy>, checked: Result<Files, String>) {
        let started = checked.and_then(|files| self.start(order, copy, files));
        if let Err(reason) = started {
            let last = Final::without_run(Outcome::NotStarted, reason);
            self.end(order.key, last, vec![]);
        }
    }

    /// The oldest waiting attempt whose skill may run once more, now taking a slot.
    fn next_to_start(&self) -> Option<(Arc<Order>, Arc<Copy>)> {
        let mut table = self.table();
        if table.running >= self.0.executor.usable_slots() {
            return None;
        }
        let at = table.waiting.iter().position(|key| {
            table.attempts.get(key).and_then(|attempt| attempt.copy.as_ref()).is_some_and(|copy| {
                let key = &copy.definition.key;
                let running = table.running_by_skill.get(key).copied().unwrap_or(0);
                copy.definition.max_concurrency.is_none_or(|most| running < most)
            })
        })?;
        let key = table.waiting.remove(at)?;
        let attempt = table.attempts.get_mut(&key)?;
        attempt.phase = Phase::Starting { cancelled: false };
        let (order, copy) = (attempt.order.clone(), attempt.copy.clone()?);
        table.running += 1;
        *table.running_by_skill.entry(copy.definition.key.clone()).or_default() += 1;
        Some((order, copy))
    }

    /// Starts an attempt in its slot, or says why it never starts.
    fn start(&self, order: &Arc<Order>, copy: &Arc<Copy>, files: Files) -> Result<(), String> {
        if order.start_by <= Instant::now() {
            return Err("it waited too long for a slot".into());
        }
        let mut process = spans::process(&files.entry, order.trace.as_ref());
        let told = Told {
            invocation: order.key.0,
            deadline: Timestamp::now() + order.budget,
            node: &self.0.config.name,
            trace: process.context(),
        };
        let allow = &copy.definition.env_allow;
        let command = Command {
            program: relative(files.entry, &files.directory),
            directory: files.directory,
            environment: environment::build(
                allow,
                &self.0.host,
                &told,
                self.0.config.allow_loader_variables,
                files.injected,
            ),
            stdin: match order.args.iter().all(u8::is_ascii_whitespace) {
                true => Bytes::from_static(b"{}"),
                false => order.args.clone(),
            },
            budget: budget(order, copy),
            stop_grace: None,
        };
        let observer = Box::new(Listener {
            supervisor: self.clone(),
            key: order.key,
            log: Stderr::new(process.context(), order.key.0, &order.skill),
            spool_failed: false,
        });
        let Ok(running) = self.0.executor.try_start(command, observer) else {
            process.fail("never_started", "no slot");
            return Err("no slot of this node can be used".to_owned());
        };
        let stopper = running.stopper();
        {
            let mut table = self.table();
            if let Some(attempt) = table.attempts.get_mut(&order.key) {
                if matches!(attempt.phase, Phase::Starting { cancelled: true }) {
                    stopper.stop(StopReason::Cancelled);
                }
                attempt.phase = Phase::Running { stopper };
                self.0.metrics.invocation_queued(&order.skill, order.class, attempt.came.elapsed());
            }
        }
        self.0.tasks.spawn(self.clone().wait(order.clone(), copy.clone(), running, process, files.exact));
        Ok(())
    }

    /// Whether it must be started from a copy of exactly its digest.
    fn is_exact(order: &Order, copy: &Copy) -> bool {
        order.pinned || copy.definition.class.max(order.class) == Class::Dangerous
    }

    /// Whether a stat of manifest and entry is not enough: a stat does not see what else the entry may load. That the
    /// watcher sees, unless it cannot. Secrets in files are read for each start.
    fn must_read(&self, order: &Order, copy: &Copy) -> bool {
        Self::is_exact(order, copy)
            || !self.0.watcher.is_clean()
            || copy.injected.as_ref().is_some_and(|injected| injected.reads_files())
    }

    /// Checks that the files are what was advertised, and returns what to start and with what.
    fn files(&self, order: &Order, copy: &Copy) -> Result<Files, String> {
        let reload = |why: String| {
            self.0.watcher.rescan_now();
            format!("changed: {why}")
        };
        let entry = copy.check_unchanged().map_err(|error| reload(error.to_string()))?;
        let injected = match &copy.injected {
            Some(injected) => {
                injected.resolve(&self.0.host.environment).map_err(|error| error.to_string())?
            }
            None => vec![],
        };
        if Self::is_exact(order, copy) {
            return match self.0.exact.obtain(copy) {
                Ok(exact) => Ok(Files {
                    entry: exact.entry.clone(),
                    directory: exact.directory.clone(),
                    exact: Some(exact),
                    injected,
                }),
                Err(error @ ExactError::Changed(_)) => Err(reload(error.to_string())),
                Err(error @ (ExactError::Partial | ExactError::NoEntry | ExactError::Io { .. })) => {
                    Err(error.to_string())
                }
            };
        }
        if !self.0.watcher.is_clean() {
            match copy.digest_now() {
                Ok(digest) if digest == copy.digest => {}
                Ok(digest) => return Err(reload(format!("the files now have digest {digest}"))),
                Err(error) => return Err(reload(format!("the files cannot be read: {error}"))),
            }
        }
        Ok(Files { entry, directory: copy.directory.clone(), exact: None, injected })
    }

    async fn wait(
        self,
        order: Arc<Order>,
        copy: Arc<Copy>,
        mut running: Running,
        process: Span,
        exact: Option<Arc<Exact>>,
    ) {
        let report = running.wait().await;
        spans::process_ended(process, &report);
        // The child may have read from it to its end.
        drop(exact);
        let budget = budget(&order, &copy);
        let (last, chunks) = if report.stdout.len() > LARGE_RESULT {
            let (supervisor, key) = (self.clone(), order.key);
            let concluded = tokio::task::spawn_blocking(move || {
                let Conclusion { last, chunks } = supervisor.conclude(report, &copy, budget);
                (last, supervisor.keep_chunks(key, chunks))
            });
            concluded.await.unwrap_or_else(|_| {
                (Final::without_run(Outcome::Unknown, "the check of its result failed"), vec![])
            })
        } else {
            let Conclusion { last, chunks } = self.conclude(report, &copy, budget);
            (last, self.keep_chunks(order.key, chunks))
        };
        self.end(order.key, last, chunks);
        self.start_waiting();
    }

    /// Keeps a large result until it is told: one in memory, others in the spool. Blocks on the disk.
    fn keep_chunks(&self, key: Key, chunks: Vec<(u64, Bytes)>) -> Vec<(u64, Payload)> {
        let in_memory = chunks.is_empty() || *self.table().large_in_memory.get_or_insert(key) == key;
        let keep = |chunk: Bytes| {
            if in_memory {
                return Payload::Memory(chunk);
            }
            match self.0.spool.keep(&chunk) {
                Ok(extent) => Payload::Spool(extent),
                Err(error) => {
                    // A result is never dropped.
                    tracing::warn!(weft.invocation.id = %key.0, %error, "cannot write the spool; a result stays in memory");
                    Payload::Memory(chunk)
                }
            }
        };
        chunks.into_iter().map(|(offset, chunk)| (offset, keep(chunk))).collect()
    }

    fn conclude(&self, report: Report, copy: &Copy, budget: Duration) -> Conclusion {
        let definition = &copy.definition;
        // It compiled when the skill was loaded.
        let schema = definition.output_schema.as_deref().and_then(|text| self.schema(text).ok());
        conclude(report, definition, schema.as_deref(), budget)
    }

    /// Ends an attempt that had a slot, and gives the slot back.
    fn end(&self, key: Key, last: Final, chunks: Vec<(u64, Payload)>) {
        let mut table = self.table();
        table.running -= 1;
        let order = table.attempts.get(&key).map(|attempt| attempt.order.clone());
        if let Some(Order { skill, .. }) = order.as_deref()
            && let Some(running) = table.running_by_skill.get_mut(skill)
        {
            *running -= 1;
            if *running == 0 {
                table.running_by_skill.remove(skill);
            }
        }
        tracing::debug!(
            weft.invocation.id = %key.0,
            trace_id = order.as_ref().and_then(|order| order.trace.as_ref()).map(TraceContext::trace_id),
            weft.outcome = %last.outcome, message = %last.message, "attempt ended"
        );
        table.finish(&self.0.metrics, key, chunks, last);
        drop(table);
        self.0.news.notify_one();
        self.0.ended.notify_waiters();
    }
}

/// The time that the child has.
fn budget(order: &Order, copy: &Copy) -> Duration {
    order.budget.min(copy.definition.timeout)
}

/// The entry as the child sees it from its working directory. A directory that is swapped as a whole while the child
/// starts cannot mix two versions then: what follows comes from where it stands.
fn relative(entry: PathBuf, directory: &Path) -> PathBuf {
    let below = |directory: &Path| entry.strip_prefix(directory).map(|below| Path::new(".").join(below)).ok();
    below(directory).or_else(|| below(&directory.canonicalize().ok()?)).unwrap_or(entry)
}
