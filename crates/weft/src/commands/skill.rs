//! `weft skill`: what the author of a skill needs, without a coordinator.

mod lint;
mod new;
mod test;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::node::absolute;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(crate) struct Skill {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a skill to begin with
    New(new::New),
    /// Check skills as a node would, and give advice
    Lint(lint::Lint),
    /// Run a skill here as a node would
    Test(test::Test),
}

impl Skill {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        match self.command {
            Command::New(command) => command.run(),
            Command::Lint(command) => command.run(),
            Command::Test(command) => command.run().await,
        }
    }
}

/// The directory that a person means: absolute, and that of the manifest when the manifest was named.
fn directory(path: &Path) -> Result<PathBuf, Failure> {
    let manifest =
        path.file_name().is_some_and(|name| name == "skill.json" || name == "SKILL.md") && !path.is_dir();
    let path = match (manifest, path.parent()) {
        (true, Some(parent)) => parent,
        _ => path,
    };
    let path = absolute(vec![path.to_owned()])?.remove(0);
    match path.is_dir() {
        true => Ok(path),
        false => Err(Failure::usage(format!("{} is not a directory", path.display()))),
    }
}
