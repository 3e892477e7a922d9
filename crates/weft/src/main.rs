//! The one binary of weft: every role is a subcommand. No logic of its own lives here.

mod args;
mod cli;
mod commands;
mod exit;
mod output;
mod target;
mod template;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{cli::Cli, exit::Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = weft_telemetry::init(cli.command.default_log()) {
        exit::report(&Failure::usage(error));
        return exit::USAGE.into();
    }
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
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            exit::report(&failure);
            failure.code().into()
        }
    }
}
