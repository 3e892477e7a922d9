//! Puts the parts together and serves them on one port.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    time::{Instant, timeout},
};
use tonic::transport::server::{Server, TcpIncoming};
use tonic_health::ServingStatus;
use weft_daemon::{Drain, Exclusive, ExclusiveError, TaskGroup};
use weft_proto::{
    link::link_service_server::LinkServiceServer,
    v1::{
        catalog_service_server::CatalogServiceServer, invocation_service_server::InvocationServiceServer,
        node_service_server::NodeServiceServer, session_service_server::SessionServiceServer,
    },
};
use weft_store::{Memory, Store};
use weft_telemetry::Metrics;

use crate::{
    catalog::Keeper,
    config::Config,
    files::Files,
    grpc::{catalog::Catalog, invocation::Invoker, link::Link, node, session, traced::Traced},
    invocations::Invocations,
    links::Links,
    nodes::Nodes,
    saved::Saved,
    sessions::Sessions,
    settings::Settings,
    sweep::sweep,
};

/// Largest message that a node may send, in bytes: an advert of a thousand skills, or a definition.
const MAX_LINK_MESSAGE: usize = 8 * 1024 * 1024;
/// Largest request of a caller, in bytes: more than args may have, so that it is we who say that they are too large.
const MAX_REQUEST: usize = 4 * weft_core::limits::ARGS_BYTES;
/// How long streams have to end once they were told to.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a coordinator cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener is reachable from elsewhere, and there is no TLS yet to protect it.
    #[error(
        "refusing to listen on {0}: without TLS a coordinator serves loopback addresses only, such as 127.0.0.1"
    )]
    NotLoopback(SocketAddr),
    /// The operating system refuses.
    #[error("cannot serve: {0}")]
    Io(#[from] std::io::Error),
    /// The descriptors do not load: a bug.
    #[error("cannot serve reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("cannot serve: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Why there is no coordinator.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Its state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] ExclusiveError),
}

/// A coordinator that is ready to run.
pub struct Coordinator {
    config: Config,
    nodes: Arc<Nodes>,
    catalog: Arc<Keeper>,
    saved: Option<Saved>,
    invocations: Arc<Invocations>,
    sessions: Arc<Sessions>,
    files: Arc<Files>,
    metrics: Metrics,
}

/// Changes a coordinator while it runs.
#[derive(Clone)]
pub struct Handle(Arc<Keeper>);

impl Handle {
    /// Puts other settings into effect: a call that comes after this returned is judged by them.
    pub fn configure(&self, settings: Settings) {
        self.0.configure(settings);
    }
}

impl Coordinator {
    /// Makes a coordinator, and takes up what its last life kept. Nothing runs yet. Blocks on the file system.
    ///
    /// # Errors
    /// When the state directory cannot be taken.
    pub fn build(config: Config) -> Result<Self, BuildError> {
        let saved = config.state_dir.as_deref().map(Exclusive::take).transpose()?.map(Saved::new);
        let store: Arc<dyn Store> = Arc::new(Memory::new(config.log_capacity));
        let metrics = Metrics::of("weft-coordinator");
        let (nodes, catalog) = (Arc::new(Nodes::new()), Arc::new(Keeper::new(config.settings.clone())));
        let invocations =
            Invocations::new(store, nodes.clone(), catalog.clone(), config.clone(), metrics.clone());
        if let Some(saved) = &saved {
            saved.restore(&nodes, &catalog);
            catalog.merge_all();
        }
        Ok(Self {
            config,
            nodes,
            catalog,
            saved,
            invocations: Arc::new(invocations),
            sessions: Arc::default(),
            files: Arc::default(),
            metrics,
        })
    }

    /// What changes it while it runs.
    pub fn handle(&self) -> Handle {
        Handle(self.catalog.clone())
    }

    /// Serves until the drain has ended.
    ///
    /// # Errors
    /// When the listener is not on loopback, or cannot be served.
    pub async fn run(mut self, listener: TcpListener, drain: Drain) -> Result<(), ServeError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback(address));
        }
        if let Some(allowed) = self.config.allow {
            tracing::warn!(
                "every skill up to class {} runs without a person's consent (--allow {0})",
                allowed.0
            );
        }
        let tasks = TaskGroup::new();
        let (keeper, merged, metrics) = (self.catalog.clone(), self.catalog.clone(), self.metrics.clone());
        let swept = sweep(
            self.nodes.clone(),
            self.catalog.clone(),
            self.invocations.clone(),
            self.config.timings.clone(),
        );
        for task in [
            Box::pin(async move { keeper.keep_merged(|| count(&merged, &metrics)).await })
                as futures::future::BoxFuture<'static, ()>,
            Box::pin(swept),
        ] {
            let stop = drain.stop_token().clone();
            tasks.spawn(async move {
                tokio::select! { () = task => {} () = stop.cancelled() => {} }
            });
        }
        if let Some(saved) = self.saved.take() {
            // Ends by itself once the drain has ended, after its last write.
            tasks.spawn(saved.keep(self.nodes.clone(), self.catalog.clone(), drain.clone()));
        }
        tracing::info!(%address, "coordinator ready");
        self.serve(listener, &drain, &tasks).await?;
        let left = tasks.join(LAST_WORDS).await;
        if left > 0 {
            tracing::warn!(left, "tasks did not end in time");
        }
        tracing::info!("coordinator stopped");
        Ok(())
    }

    async fn serve(self, listener: TcpListener, drain: &Drain, tasks: &TaskGroup) -> Result<(), ServeError> {
        let (health, health_service) = tonic_health::server::health_reporter();
        for service in [
            "",
            "weft.v1.CatalogService",
            "weft.v1.InvocationService",
            "weft.v1.NodeService",
            "weft.v1.SessionService",
        ] {
            health.set_service_status(service, ServingStatus::Serving).await;
        }
        let descriptors = [weft_proto::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET];
        let reflection = || {
            descriptors.iter().fold(tonic_reflection::server::Builder::configure(), |builder, set| {
                builder.register_encoded_file_descriptor_set(set)
            })
        };
        let links = Arc::new(Links {
            nodes: self.nodes.clone(),
            catalog: self.catalog.clone(),
            invocations: self.invocations.clone(),
            files: self.files.clone(),
            config: self.config.clone(),
            drain: drain.clone(),
            metrics: self.metrics.clone(),
        });
        let catalog = Catalog {
            catalog: self.catalog.clone(),
            nodes: self.nodes.clone(),
            invocations: self.invocations.clone(),
            sessions: self.sessions.clone(),
            files: self.files.clone(),
            config: self.config.clone(),
            drain: drain.clone(),
            started: Instant::now(),
        };
        let sessions = session::Sessions {
            sessions: self.sessions.clone(),
            catalog: self.catalog.clone(),
            nodes: self.nodes.clone(),
        };
        let invoker = Invoker {
            invocations: self.invocations.clone(),
            sessions: self.sessions.clone(),
            config: self.config.clone(),
            drain: drain.clone(),
        };
        let router = Server::builder()
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(8 * 1024 * 1024)
            .max_concurrent_streams(4096)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .layer(Traced)
            .add_service(health_service)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .add_service(CatalogServiceServer::new(catalog))
            .add_service(SessionServiceServer::new(sessions))
            .add_service(InvocationServiceServer::new(invoker).max_decoding_message_size(MAX_REQUEST))
            .add_service(NodeServiceServer::new(node::Nodes {
                nodes: self.nodes.clone(),
                catalog: self.catalog.clone(),
            }))
            .add_service(
                LinkServiceServer::new(Link { links, tasks: tasks.clone() })
                    .max_decoding_message_size(MAX_LINK_MESSAGE),
            );
        // Without this every streamed call of a lone caller waits 40 ms for a delayed acknowledgement.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let ended = async {
            self.drained(drain, &health).await;
        };
        let served = router.serve_with_incoming_shutdown(incoming, ended);
        tokio::pin!(served);
        tokio::select! {
            result = &mut served => result?,
            // An open stream holds the server's own end back for ever: it gets a moment, then the process goes.
            () = async { drain.stopped().await; tokio::time::sleep(LAST_WORDS).await } => {}
        }
        Ok(())
    }

    /// Resolves when the drain has run its course: what ran has ended, or its time is up.
    async fn drained(&self, drain: &Drain, health: &tonic_health::server::HealthReporter) {
        drain.begun().await;
        for service in [
            "",
            "weft.v1.CatalogService",
            "weft.v1.InvocationService",
            "weft.v1.NodeService",
            "weft.v1.SessionService",
        ] {
            health.set_service_status(service, ServingStatus::NotServing).await;
        }
        let invocations = &self.invocations;
        let idle = async {
            // Polled: the end of the last invocation has no listener, and a drain happens once.
            while invocations.active() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            _ = timeout(self.config.timings.drain, idle) => {}
            () = drain.stopped() => {}
        }
        let active = invocations.active();
        if active > 0 {
            tracing::warn!(active, "stopping while invocations run; their nodes go on with them");
        }
        self.nodes.say_goodbye();
        drain.stop();
    }
}

/// Counts the skills of the catalog for the figures.
fn count(keeper: &Keeper, metrics: &Metrics) {
    let merged = keeper.current();
    let all = merged.len();
    let eligible = merged.skills(None).filter(|skill| skill.shown().eligible > 0).count();
    for (state, count) in [("eligible", eligible), ("ineligible", all - eligible)] {
        metrics.catalog_skills(state, count as u64);
    }
}
