//! `weft config`: what is in a configuration file, without a daemon.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use weft_config::{Configuration, CoordinatorFile, Error, Finding, MAX_BYTES, NodeFile};

use crate::{
    configuration::home,
    exit::{self, Failure},
    output,
};

#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say everything that is wrong or odd in a file; the exit code is 2 when a daemon would refuse it
    Check {
        /// The file, YAML or JSON; - for stdin
        file: PathBuf,
        /// Whose file it is [default: whoever would take it]
        #[arg(long, value_enum)]
        role: Option<Role>,
    },
    /// Print a file with every key, its default and what it means
    Sample {
        /// Whose file
        #[arg(value_enum)]
        role: Role,
    },
}

/// Which daemon a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Coordinator,
    Node,
}

impl Role {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Node => "node",
        }
    }

    /// What is odd in a file of this role.
    fn check(self, file: &Path, stdin: Option<&str>) -> Result<Vec<Finding>, Error> {
        match self {
            Self::Coordinator => odd::<CoordinatorFile>(file, stdin),
            Self::Node => odd::<NodeFile>(file, stdin),
        }
    }
}

impl Config {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        match self.command {
            Command::Check { file, role } => check(&file, role),
            Command::Sample { role } => {
                let sample = match role {
                    Role::Coordinator => CoordinatorFile::SAMPLE,
                    Role::Node => NodeFile::SAMPLE,
                };
                output::print(sample.trim_end())?;
                Ok(exit::OK)
            }
        }
    }
}

/// What is odd in a file, or in what came from stdin in its place.
fn odd<T: Configuration>(file: &Path, stdin: Option<&str>) -> Result<Vec<Finding>, Error> {
    let parsed = match stdin {
        Some(text) => T::parse(text, &home()),
        None => T::load(file, &home()),
    };
    parsed.map(|parsed| parsed.warnings)
}

/// The text on stdin, as far as it is worth reading: a longer one is refused.
fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text).context("read stdin")?;
    Ok(text)
}

fn check(file: &Path, role: Option<Role>) -> Result<u8, Failure> {
    let stdin = (file == Path::new("-")).then(read_stdin).transpose()?;
    let file = if stdin.is_some() { Path::new("stdin") } else { file };
    let roles = role.map_or(vec![Role::Coordinator, Role::Node], |role| vec![role]);
    let (mut taken, mut refused): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    for role in roles {
        match role.check(file, stdin.as_deref()) {
            Ok(warnings) => taken.push((role, warnings)),
            Err(error) => refused.push((role, error)),
        }
    }
    if taken.is_empty() {
        // The role that it misses by least is the one that is meant.
        refused.sort_by_key(|(_, error)| (error.strangers, error.problems.len()));
        let Some((role, error)) = refused.into_iter().next() else { return Ok(exit::OK) };
        return Err(Failure::usage(format!("a {} would refuse it:\n{error}", role.as_str())));
    }
    for (_, warnings) in taken.iter().take(1) {
        for warning in warnings {
            output::note(&format!("warning: {}", warning.in_file(file)));
        }
    }
    let roles: Vec<_> = taken.iter().map(|(role, _)| role.as_str()).collect();
    output::print(&format!("{}: good for a {}", file.display(), roles.join(" and a ")))?;
    Ok(exit::OK)
}
