//! Args on the command line: where they come from, their types, and what to try when none are given.

pub(crate) mod example;
pub(crate) mod typed;

use std::{io::Read as _, path::PathBuf, str::FromStr};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;

use crate::exit::Failure;

/// The options that give args.
#[derive(Debug, Clone, Args)]
pub(crate) struct ArgsOptions {
    /// Args as key=value, typed by the skill's schema; key:=JSON gives JSON
    #[arg(value_name = "KEY=VALUE", conflicts_with = "args")]
    words: Vec<String>,
    /// All args as one JSON object: the text itself, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    args: Option<Source>,
}

/// What those options gave.
#[derive(Debug)]
pub(crate) enum Given<'a> {
    /// Nothing.
    Nothing,
    /// Words that need the schema to become JSON.
    Words(&'a [String]),
    /// The whole text.
    Text(Bytes),
}

/// Where a whole text comes from.
#[derive(Debug, Clone)]
enum Source {
    Text(String),
    File(PathBuf),
    Stdin,
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match (text, text.strip_prefix('@')) {
            ("-", _) => Self::Stdin,
            (_, Some(path)) => Self::File(path.into()),
            (_, None) => Self::Text(text.to_owned()),
        })
    }
}

impl ArgsOptions {
    /// Reads what was given.
    pub(crate) fn given(&self) -> Result<Given<'_>, Failure> {
        let bytes = match &self.args {
            None if self.words.is_empty() => return Ok(Given::Nothing),
            None => return Ok(Given::Words(&self.words)),
            Some(Source::Text(text)) => text.clone().into_bytes(),
            Some(Source::File(path)) => std::fs::read(path)
                .map_err(|error| Failure::usage(format!("--args: {}: {error}", path.display())))?,
            Some(Source::Stdin) => {
                let mut bytes = Vec::new();
                std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read stdin")?;
                bytes
            }
        };
        Ok(Given::Text(bytes.into()))
    }
}
