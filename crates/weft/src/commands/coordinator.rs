//! `weft coordinator`.

use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use weft_client::channel::DEFAULT_PORT;
use weft_coordinator::Config;
use weft_core::policy::Allowed;
use weft_daemon::{Drain, Readiness, signal::Signals};

use crate::{
    exit::{self, Failure},
    health::HealthOptions,
};

#[derive(Debug, Args)]
pub(crate) struct Coordinator {
    /// Address to listen on; loopback only
    #[arg(long, env = "WEFT_LISTEN", value_name = "ADDRESS", default_value_t = default_listen())]
    listen: SocketAddr,
    /// Its name, shown in the logs of nodes
    #[arg(long, env = "WEFT_NAME", default_value = "coordinator")]
    name: String,
    /// Let skills up to this class run without a person's consent: mutating or dangerous
    #[arg(long, value_name = "CLASS")]
    allow: Option<Allowed>,
    #[command(flatten)]
    health: HealthOptions,
}

pub(crate) fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))
}

impl Coordinator {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let signals = Signals::catch().context("catch signals")?;
        let drain = Drain::new();
        let config = Config { name: self.name, allow: self.allow, ..Config::default() };
        let coordinator = weft_coordinator::Coordinator::build(config);
        let listener = bind(self.listen).await?;
        let health = self.health.serve(Readiness::new(drain.clone()), drain.clone()).await?;
        tokio::select! {
            served = coordinator.run(listener, drain.clone()) => served.context("coordinator")?,
            () = signals.drive(drain) => {}
            () = health => {}
        }
        Ok(exit::OK)
    }
}

/// Opens the listener; an address in use is told with what to do.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another coordinator running there? Name another address with --listen")
    })
}
