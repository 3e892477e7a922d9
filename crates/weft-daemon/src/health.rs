//! The port for whoever looks after the process: `/healthz`, `/readyz` and `/metrics` over plain HTTP.
//!
//! It names skills and nothing of their callers, args or results, and has no TLS. It is bounded in everything: connections, requests
//! on one (a single one), and time.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{Drain, Readiness};

/// Most connections at a time; more wait to be accepted.
const CONNECTIONS: usize = 32;
/// How long a connection may take for its request and the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long answers that are under way may take at the end.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long nothing is accepted after the operating system has refused.
const PAUSE: Duration = Duration::from_millis(200);

/// Why the port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health and metrics: {source}")]
pub struct BindError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// What the operating system says.
    pub source: io::Error,
}

/// The port, open but not yet served.
#[derive(Debug)]
pub struct Health {
    listener: TcpListener,
}

/// What the answers are made of.
#[derive(Clone)]
struct Sources {
    readiness: Readiness,
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Health {
    /// Opens the port.
    ///
    /// # Errors
    /// When the operating system refuses the address.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        match TcpListener::bind(address).await {
            Ok(listener) => Ok(Self { listener }),
            Err(source) => Err(BindError { address, source }),
        }
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// When the operating system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the drain stops. `metrics` gives the text of `/metrics`, and may take its time.
    pub async fn run(
        self,
        readiness: Readiness,
        metrics: impl Fn() -> String + Send + Sync + 'static,
        drain: Drain,
    ) {
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(figures))
            .with_state(Sources { readiness, metrics: Arc::new(metrics) });
        let service = TowerToHyperService::new(router);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = drain.stopped() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve(stream, service.clone()));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a connection to the health port failed");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
        let _ = timeout(LAST_WORDS, async { while connections.join_next().await.is_some() {} }).await;
        connections.shutdown().await;
    }
}

async fn serve(stream: TcpStream, service: TowerToHyperService<Router>) {
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    // What went wrong is the client's affair.
    let _ = timeout(PATIENCE, connection).await;
}

async fn ready(State(sources): State<Sources>) -> Response {
    let missing = sources.readiness.missing();
    match missing.is_empty() {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n").into_response(),
    }
}

async fn figures(State(sources): State<Sources>) -> Response {
    match spawn_blocking(move || (sources.metrics)()).await {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        // It panicked, and has said so.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
