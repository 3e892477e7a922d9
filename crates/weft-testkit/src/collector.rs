//! A collector of telemetry that a test can look into, and that can behave badly.

mod received;
mod tree;

pub use received::{LogRecord, Point, Span, Values};
pub use tree::{assert_tree, draw};

use std::{
    future::pending,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use opentelemetry_proto::tonic::collector::{
    logs::v1::{
        ExportLogsServiceRequest, ExportLogsServiceResponse,
        logs_service_server::{LogsService, LogsServiceServer},
    },
    metrics::v1::{
        ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        metrics_service_server::{MetricsService, MetricsServiceServer},
    },
    trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
};
use tokio::sync::oneshot;
use tonic::{
    Request, Response, Status,
    codec::CompressionEncoding::Gzip,
    transport::server::{Server, TcpIncoming},
};

use crate::eventually;

/// How a collector behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Takes everything at once.
    Normal,
    /// Takes everything, but answers only after this time.
    Slow(Duration),
    /// Takes connections and bytes, and says nothing, ever.
    BlackHole,
    /// Answers that it is unavailable.
    Refusing,
}

/// What a collector has received.
#[derive(Debug, Default)]
struct Store {
    spans: Mutex<Vec<Span>>,
    logs: Mutex<Vec<LogRecord>>,
    metrics: Mutex<Vec<Point>>,
    requests: AtomicUsize,
}

/// A collector on a free port of loopback. Ends when it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    store: Arc<Store>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Collector {
    /// A collector that behaves well.
    pub fn start() -> Self {
        Self::behaving(Mode::Normal)
    }

    /// A collector that behaves like this.
    pub fn behaving(mode: Mode) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), mode)
    }

    /// A collector that behaves well, where this one was before it was stopped.
    pub fn again(&self) -> Self {
        Self::on(TcpListener::bind(self.address).unwrap(), Mode::Normal)
    }

    fn on(listener: TcpListener, mode: Mode) -> Self {
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (store, (stop, stopped)) = (Arc::new(Store::default()), oneshot::channel());
        let services = Services { mode, store: store.clone() };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = services.serve(listener) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, store, running: Some((stop, thread)) }
    }

    /// Where it listens, as exporters want it: `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The variables with which a process sends everything here, and soon.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", self.endpoint()),
            ("OTEL_BSP_SCHEDULE_DELAY", "50".into()),
            ("OTEL_BLRP_SCHEDULE_DELAY", "50".into()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "100".into()),
        ]
    }

    /// The spans that it has, in the order in which they came.
    pub fn spans(&self) -> Vec<Span> {
        self.store.spans.lock().unwrap().clone()
    }

    /// The log records that it has.
    pub fn logs(&self) -> Vec<LogRecord> {
        self.store.logs.lock().unwrap().clone()
    }

    /// The data points that it has; a series comes again with every export.
    pub fn metrics(&self) -> Vec<Point> {
        self.store.metrics.lock().unwrap().clone()
    }

    /// How many requests came, also those that it did not take; to a black hole, how many connections.
    pub fn requests(&self) -> usize {
        self.store.requests.load(Ordering::Relaxed)
    }

    /// Waits for the spans of this trace to be as many as expected, and gives them.
    #[track_caller]
    pub fn trace(&self, trace_id: &str, count: usize, most: Duration) -> Vec<Span> {
        let seen =
            || -> Vec<Span> { self.spans().into_iter().filter(|span| span.trace_id == trace_id).collect() };
        eventually(&format!("{count} spans of trace {trace_id}"), most, || {
            Some(seen()).filter(|spans| spans.len() >= count)
        })
    }

    /// Stops it: connections break, and nobody listens any more.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            thread.join().unwrap();
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Clone)]
struct Services {
    mode: Mode,
    store: Arc<Store>,
}

impl Services {
    async fn serve(self, listener: TcpListener) {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        if self.mode == Mode::BlackHole {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                self.store.requests.fetch_add(1, Ordering::Relaxed);
                open.push(stream);
            }
            return;
        }
        Server::builder()
            .add_service(TraceServiceServer::new(self.clone()).accept_compressed(Gzip))
            .add_service(LogsServiceServer::new(self.clone()).accept_compressed(Gzip))
            .add_service(MetricsServiceServer::new(self).accept_compressed(Gzip))
            .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
            .await
            .unwrap();
    }

    /// Does what the mode says before anything is taken.
    async fn behave(&self) -> Result<(), Status> {
        self.store.requests.fetch_add(1, Ordering::Relaxed);
        match self.mode {
            Mode::Normal => Ok(()),
            Mode::Slow(delay) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            Mode::BlackHole => pending().await,
            Mode::Refusing => Err(Status::unavailable("this collector refuses")),
        }
    }
}

#[tonic::async_trait]
impl TraceService for Services {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.behave().await?;
        let spans = received::spans(request.into_inner());
        self.store.spans.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Services {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.behave().await?;
        let records = received::logs(request.into_inner());
        self.store.logs.lock().unwrap().extend(records);
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Services {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.behave().await?;
        let points = received::points(request.into_inner());
        self.store.metrics.lock().unwrap().extend(points);
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
