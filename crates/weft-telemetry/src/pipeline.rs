//! From this process to a collector: exporters with a runtime of their own, and providers that feed them.

use std::{
    io,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use opentelemetry::{logs::LoggerProvider as _, trace::TracerProvider as _};
use opentelemetry_otlp::{
    Compression, ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithExportConfig,
    WithTonicConfig,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    logs::{self, BatchLogProcessor, SdkLoggerProvider},
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::{self, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use tokio::runtime::{self, Runtime};
use tonic::transport::{Channel, Endpoint};

use crate::{
    losses::{self, Counted, Door, Told},
    metrics,
    settings::{Export, Settings},
    span, stderr,
};

/// The instrumentation scope of spans and log records.
const SCOPE: &str = "weft";

/// Why telemetry cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The operating system gives no thread.
    #[error("no thread to send it on: {0}")]
    Thread(#[from] io::Error),
    /// The SDK refuses what it was given.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// What is sent, and the threads that send it.
pub(crate) struct Pipeline {
    /// Owns the connections. Separate from the process's own runtime, so that neither can hold up the other.
    runtime: Runtime,
    traces: Option<SdkTracerProvider>,
    logs: Option<SdkLoggerProvider>,
    metrics: Option<&'static SdkMeterProvider>,
}

impl Pipeline {
    /// Builds what the settings ask for, and lets spans, log records and figures flow through it.
    pub(crate) fn start(settings: &Settings, resource: &Resource) -> Result<Self, PipelineError> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            // Only names are resolved there.
            .max_blocking_threads(2)
            .thread_name("weft-telemetry")
            .enable_all()
            .build()?;
        let inside = runtime.enter();
        let traces = settings.traces.as_ref().map(|export| traces(export, settings, resource)).transpose()?;
        let logs = settings.logs.as_ref().map(|export| logs(export, settings, resource)).transpose()?;
        let reader = settings.metrics.as_ref().map(|export| reader(export, settings)).transpose()?;
        if let Some(traces) = &traces {
            let parent_decides = matches!(settings.sampler, Sampler::ParentBased(_));
            span::install(traces.tracer(SCOPE), parent_decides);
        }
        if let Some(logs) = &logs {
            stderr::install(logs.logger(SCOPE));
        }
        let metrics = reader.map(metrics::install);
        drop(inside);
        Ok(Self { runtime, traces, logs, metrics })
    }

    /// Sends what waits, for at most this long. Returns whether it came to an end in time, for better or worse.
    pub(crate) fn shutdown(self, most: Duration) -> bool {
        let Self { runtime, traces, logs, metrics } = self;
        let end = Instant::now() + most;
        let (ended, results) = mpsc::channel();
        let mut expected = 0;
        // All at once, each on a thread of its own: the SDK blocks, and not always for as long as it is told.
        let mut end_one = |shutdown: Box<dyn FnOnce() -> OTelSdkResult + Send>| {
            let ended = ended.clone();
            expected += 1;
            // Without a thread the sender is gone, and that is seen below.
            let _ = thread::Builder::new().spawn(move || ended.send(shutdown()));
        };
        if let Some(traces) = traces {
            end_one(Box::new(move || traces.shutdown_with_timeout(most)));
        }
        if let Some(logs) = logs {
            end_one(Box::new(move || logs.shutdown_with_timeout(most)));
        }
        if let Some(metrics) = metrics {
            end_one(Box::new(move || metrics.shutdown_with_timeout(most)));
        }
        drop(ended);
        // What an end was like has been told already, unless it was a time-out.
        let all = (0..expected)
            .all(|_| results.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok());
        let in_time = all && Instant::now() < end;
        losses::end();
        runtime.shutdown_background();
        in_time
    }
}

fn traces(
    export: &Export,
    settings: &Settings,
    resource: &Resource,
) -> Result<SdkTracerProvider, ExporterBuildError> {
    let batching = settings.span_batching;
    let door = Door::of_spans(batching.queue);
    let exporter = aimed(SpanExporter::builder().with_tonic(), export).build()?;
    let config = trace::BatchConfigBuilder::default()
        .with_max_queue_size(batching.queue)
        .with_max_export_batch_size(batching.batch)
        .with_scheduled_delay(batching.delay)
        .build();
    let processor = BatchSpanProcessor::new(Counted::new(exporter, &door), config);
    Ok(SdkTracerProvider::builder()
        .with_resource(resource.clone())
        .with_sampler(settings.sampler.clone())
        .with_span_processor(Counted::new(processor, &door))
        .build())
}

fn logs(
    export: &Export,
    settings: &Settings,
    resource: &Resource,
) -> Result<SdkLoggerProvider, ExporterBuildError> {
    let batching = settings.log_batching;
    let door = Door::of_log_records(batching.queue);
    let exporter = aimed(LogExporter::builder().with_tonic(), export).build()?;
    let config = logs::BatchConfigBuilder::default()
        .with_max_queue_size(batching.queue)
        .with_max_export_batch_size(batching.batch)
        .with_scheduled_delay(batching.delay)
        .build();
    let processor =
        BatchLogProcessor::builder(Counted::new(exporter, &door)).with_batch_config(config).build();
    Ok(SdkLoggerProvider::builder()
        .with_resource(resource.clone())
        .with_log_processor(Counted::new(processor, &door))
        .build())
}

fn reader(
    export: &Export,
    settings: &Settings,
) -> Result<PeriodicReader<Told<MetricExporter>>, ExporterBuildError> {
    let exporter = aimed(MetricExporter::builder().with_tonic(), export).build()?;
    Ok(PeriodicReader::builder(Told::new(exporter)).with_interval(settings.metric_interval).build())
}

/// Says to an exporter where it sends to, and how.
fn aimed<B: WithTonicConfig + WithExportConfig>(builder: B, export: &Export) -> B {
    let builder = builder
        .with_channel(channel(export))
        .with_timeout(export.timeout)
        .with_metadata(export.headers.clone());
    match export.gzip {
        true => builder.with_compression(Compression::Gzip),
        false => builder,
    }
}

/// Connects when there is something to send. Must be called inside the runtime that is to own the connection.
fn channel(export: &Export) -> Channel {
    // A collector that does not answer is asked whether it is there, and left after the time-out: its host may have
    // gone without a word. One that answers is never asked, because some count that as abuse.
    let patience = export.timeout / 2;
    Endpoint::from(export.endpoint.clone())
        .timeout(export.timeout)
        .connect_timeout(export.timeout)
        .http2_keep_alive_interval(patience)
        .keep_alive_timeout(patience)
        .connect_lazy()
}
