//! `weft doctor`: what this host offers a node, and what is missing.

mod coordinator;
mod host;
mod skills;
mod state;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use weft_config::NodeFile;
use weft_core::text;
use weft_skills::Loader;

use super::node::Directories;
use crate::{
    configuration::{self, ConfigOption},
    exit::{self, Failure},
    output::{self, Format},
    target::Connection,
};

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    file: ConfigOption,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    directories: Directories,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do about it; empty when all is well.
    advice: String,
}

/// How good that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// A node works, but not as well as it could.
    Warn,
    /// A node does not work.
    Fail,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), advice: String::new() }
    }

    fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, found: found.into(), advice: advice.into() }
    }

    fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fail, found: found.into(), advice: advice.into() }
    }
}

impl Doctor {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let file = self.file.open::<NodeFile>()?.first();
        let managed = self.directories.skills(&file)?;
        let mut config = weft_node::Config::new(PathBuf::new(), Vec::new());
        config.compat = self.directories.compat.switches();
        config.max_timeout = file.max_timeout.unwrap_or(config.max_timeout);
        config.allow_loader_variables = file.allow_loader_variables.unwrap_or_default();
        configuration::say_of_skills(&file, managed, &mut config);
        let directories: Vec<PathBuf> = config
            .sources
            .iter()
            .filter(|source| !source.implied)
            .map(|source| source.root.clone())
            .collect();
        let inventory = Loader::new(config.skills()).load(None);
        let mut checks = host::checks(inventory.directories().count());
        checks.extend(state::checks(self.directories.state(&file).as_deref()));
        checks.extend(skills::checks(&directories, &inventory));
        checks.extend(coordinator::checks(&self.connection.coordinator).await);
        match self.output {
            Format::Json => output::print_json(&checks.iter().map(as_json).collect())?,
            Format::Table => checks.iter().try_for_each(show)?,
        }
        let failed = checks.iter().any(|check| check.verdict == Verdict::Fail);
        Ok(if failed { exit::FAILED } else { exit::OK })
    }
}

fn show(check: &Check) -> anyhow::Result<()> {
    let escaped = |text: &str| text::escape(text.as_bytes());
    output::print(&format!("{:5} {:12} {}", check.verdict.as_str(), check.name, escaped(&check.found)))?;
    if !check.advice.is_empty() {
        output::print(&format!("{:18} → {}", "", escaped(&check.advice)))?;
    }
    Ok(())
}

fn as_json(check: &Check) -> Value {
    json!({
        "check": check.name, "verdict": check.verdict.as_str(), "found": check.found, "advice": check.advice,
    })
}
