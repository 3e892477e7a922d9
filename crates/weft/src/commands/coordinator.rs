//! `weft coordinator`.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use weft_client::channel::DEFAULT_PORT;
use weft_config::CoordinatorFile;
use weft_coordinator::Config;
use weft_core::policy::Allowed;
use weft_daemon::{Drain, Readiness, signal::Signals};

use crate::{
    configuration::{self, ConfigOption},
    exit::{self, Failure},
    health::HealthOptions,
};

#[derive(Debug, Args)]
pub(crate) struct Coordinator {
    #[command(flatten)]
    file: ConfigOption,
    /// Address to listen on; loopback only [default: 127.0.0.1:9338]
    #[arg(long, env = "WEFT_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Its name, shown in the logs of nodes [default: coordinator]
    #[arg(long, env = "WEFT_NAME")]
    name: Option<String>,
    /// Directory that keeps what the fleet offers for the next start, when known skills are listed and calls of them wait
    /// for their nodes; one coordinator at a time [default: nothing is kept]
    #[arg(long, env = "WEFT_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
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
        let followed = self.file.open::<CoordinatorFile>()?;
        let file = followed.first();
        let mut config = Config { settings: configuration::settings(&file), ..Config::default() };
        config.allow = self.allow.or(file.allow);
        if let Some(name) = self.name.or_else(|| file.name.clone()) {
            config.name = name;
        }
        config.state_dir = self.state_dir.or_else(|| file.state_dir.clone());
        let coordinator = tokio::task::spawn_blocking(move || weft_coordinator::Coordinator::build(config))
            .await
            .context("build the coordinator")?
            .context("cannot start the coordinator")?;
        let listener = bind(self.listen.or(file.listen).unwrap_or_else(default_listen)).await?;
        let health = self.health.serve(file.health, Readiness::new(drain.clone()), drain.clone()).await?;
        let (handle, reload) = (coordinator.handle(), followed.reload());
        let follow = followed.follow(|path, loaded| {
            handle.configure(configuration::settings(&loaded.value));
            if needs_restart(&file, &loaded.value) {
                tracing::warn!(file = %path.display(), "beyond agents and skills a change needs a restart");
            }
        });
        let signals = async {
            match reload {
                None => signals.drive(drain.clone()).await,
                Some(reload) => signals.drive_reloading(drain.clone(), || reload.now()).await,
            }
        };
        tokio::select! {
            served = coordinator.run(listener, drain.clone()) => served.context("coordinator")?,
            () = signals => {}
            () = health => {}
            () = follow => {}
        }
        Ok(exit::OK)
    }
}

/// Whether something differs that holds for a coordinator's life.
fn needs_restart(old: &CoordinatorFile, new: &CoordinatorFile) -> bool {
    let fixed = |file: &CoordinatorFile| {
        (file.listen, file.name.clone(), file.allow, file.health, file.state_dir.clone())
    };
    fixed(old) != fixed(new)
}

/// Opens the listener; an address in use is told with what to do.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another coordinator running there? Name another address with --listen")
    })
}
