//! What is lost on the way to a collector: bounded, counted and told, but never waited for.
//!
//! The SDK's batch processors drop silently. Wrapped in these, no more enters a queue than fits, and whatever is
//! turned away or cannot be sent is counted by its signal.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    logs::{LogBatch, LogExporter, LogProcessor, SdkLogRecord},
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
    trace::{Span, SpanData, SpanExporter, SpanProcessor},
};

use crate::settings::Signal;

/// How often a signal that cannot be sent is told in the log.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// Whether telemetry has ended: what fails from then on is no news.
static ENDED: AtomicBool = AtomicBool::new(false);

/// What this process has lost since it started.
static SPANS: AtomicU64 = AtomicU64::new(0);
static LOG_RECORDS: AtomicU64 = AtomicU64::new(0);

/// How much of each signal was lost since the process started.
pub(crate) fn lost() -> [(Signal, u64); 2] {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [(Signal::Traces, read(&SPANS)), (Signal::Logs, read(&LOG_RECORDS))]
}

/// From now on failures are not told.
pub(crate) fn end() {
    ENDED.store(true, Ordering::Relaxed);
}

/// The door to one queue; its clones are the same door.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    signal: Signal,
    lost: &'static AtomicU64,
    waiting: AtomicUsize,
    capacity: usize,
    closed: AtomicBool,
    told: Mutex<Option<Instant>>,
}

impl Door {
    /// The door to a queue of spans.
    pub(crate) fn of_spans(capacity: usize) -> Self {
        Self::new(Signal::Traces, &SPANS, capacity)
    }

    /// The door to a queue of log records.
    pub(crate) fn of_log_records(capacity: usize) -> Self {
        Self::new(Signal::Logs, &LOG_RECORDS, capacity)
    }

    fn new(signal: Signal, lost: &'static AtomicU64, capacity: usize) -> Self {
        let shared = Shared {
            signal,
            lost,
            waiting: AtomicUsize::new(0),
            capacity,
            closed: AtomicBool::new(false),
            told: Mutex::new(None),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Lets one more in, or counts it as lost.
    fn enter(&self) -> bool {
        let Shared { waiting, capacity, closed, .. } = &*self.shared;
        // Relaxed: it is a count that nothing else is read by.
        if !closed.load(Ordering::Relaxed) {
            if waiting.fetch_add(1, Ordering::Relaxed) < *capacity {
                return true;
            }
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.shared.lost.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// So many have left the queue to be sent.
    fn leave(&self, count: usize) {
        self.shared.waiting.fetch_sub(count, Ordering::Relaxed);
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
    }

    /// Counts what could not be sent.
    fn judge(&self, count: usize, result: &OTelSdkResult) {
        if let Err(error) = result {
            self.shared.lost.fetch_add(count as u64, Ordering::Relaxed);
            complain(self.shared.signal, &self.shared.told, error);
        }
    }
}

/// Tells in the log that a signal cannot be sent, now and then.
fn complain(signal: Signal, told: &Mutex<Option<Instant>>, error: &OTelSdkError) {
    {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if ENDED.load(Ordering::Relaxed) || told.is_some_and(|at| at.elapsed() < COMPLAIN_EVERY) {
            return;
        }
        *told = Some(Instant::now());
    }
    tracing::warn!(signal = signal.as_str(), %error, "telemetry cannot be sent to the collector");
}

/// A processor or exporter with its door.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    inner: T,
    door: Door,
}

impl<T> Counted<T> {
    /// Puts the door before it.
    pub(crate) fn new(inner: T, door: &Door) -> Self {
        Self { inner, door: door.clone() }
    }
}

impl<P: SpanProcessor> SpanProcessor for Counted<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.door.enter() {
            self.inner.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.door.close();
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.door.leave(count);
        let result = self.inner.export(batch).await;
        self.door.judge(count, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<P: LogProcessor> LogProcessor for Counted<P> {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        if self.door.enter() {
            self.inner.emit(record, scope);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.door.close();
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for Counted<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let count = batch.iter().count();
        self.door.leave(count);
        let result = self.inner.export(batch).await;
        self.door.judge(count, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// An exporter of metrics that says when it cannot send. Nothing is lost by that: the next one says it all again.
pub(crate) struct Told<E> {
    inner: E,
    told: Mutex<Option<Instant>>,
}

impl<E> Told<E> {
    /// Wraps an exporter.
    pub(crate) fn new(inner: E) -> Self {
        Self { inner, told: Mutex::new(None) }
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Told<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let result = self.inner.export(metrics).await;
        if let Err(error) = &result {
            complain(Signal::Metrics, &self.told, error);
        }
        result
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}
