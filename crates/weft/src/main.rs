//! The one binary of weft: every role is a subcommand. No logic of its own lives here.

mod args;
mod cli;
mod commands;
mod compat;
mod configuration;
mod exit;
mod health;
mod output;
mod target;
mod template;

use std::{process::ExitCode, time::Duration};

use clap::Parser as _;

use crate::{cli::Cli, exit::Failure};

/// How long what telemetry has left to send may hold back the end of a daemon.
const LAST_TELEMETRY: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let started = match cli.command.daemon() {
        Some(name) => {
            let instance = uuid::Uuid::now_v7().to_string();
            let process = weft_telemetry::Process { name, version: env!("CARGO_PKG_VERSION"), instance };
            weft_telemetry::start(&process, cli.command.default_log()).map(Some)
        }
        None => weft_telemetry::init(cli.command.default_log()).map(|()| None),
    };
    let telemetry = match started {
        Ok(telemetry) => telemetry,
        Err(error) => {
            exit::report(&Failure::usage(error));
            return exit::USAGE.into();
        }
    };
    let runtime = match cli.command.runtime().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            exit::report(&Failure::from(anyhow::Error::from(error)));
            return exit::FAILED.into();
        }
    };
    let result = runtime.block_on(cli.command.run());
    // A blocking read of stdin must not hold the process back.
    runtime.shutdown_background();
    if let Some(telemetry) = telemetry {
        telemetry.shutdown(LAST_TELEMETRY);
    }
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            exit::report(&failure);
            failure.code().into()
        }
    }
}
