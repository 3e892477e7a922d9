//! The port for probes and scrapes, of every daemon.

use std::net::SocketAddr;

use clap::Args;
use weft_daemon::{Drain, Health, Readiness};

use crate::exit::Failure;

#[derive(Debug, Args)]
pub(crate) struct HealthOptions {
    /// Serve /healthz, /readyz and /metrics on this address, in plain HTTP [default: not at all]
    #[arg(long = "health", env = "WEFT_HEALTH", value_name = "ADDRESS")]
    address: Option<SocketAddr>,
}

impl HealthOptions {
    /// Opens the port, if one is asked for here or was `written` in a file. What is returned serves it, and never resolves.
    pub(crate) async fn serve(
        &self,
        written: Option<SocketAddr>,
        readiness: Readiness,
        drain: Drain,
    ) -> Result<impl Future<Output = ()> + use<>, Failure> {
        let port = match self.address.or(written) {
            Some(address) => Some(Health::bind(address).await.map_err(anyhow::Error::from)?),
            None => None,
        };
        if let Some(Ok(address)) = port.as_ref().map(Health::address) {
            tracing::info!(%address, "health and metrics");
        }
        Ok(async move {
            if let Some(port) = port {
                port.run(readiness, weft_telemetry::metrics::render, drain).await;
            }
            std::future::pending().await
        })
    }
}
