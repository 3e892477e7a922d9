//! `weft call`.

use std::{io::Read as _, path::PathBuf, str::FromStr, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use weft_client::Client;
use weft_core::{
    ids::{AgentId, Digest, RequestId, SkillKey},
    invocation::Request,
};

use super::follow::{self, Manner};
use crate::{
    exit::{self, Failure},
    output,
    target::{Connection, Where},
    typed_args,
};

#[derive(Debug, Args)]
pub(crate) struct Call {
    #[command(flatten)]
    connection: Connection,
    /// The skill
    skill: String,
    /// Args as key=value, typed by the skill's schema; key:=JSON gives JSON
    #[arg(value_name = "KEY=VALUE", conflicts_with = "args")]
    words: Vec<String>,
    /// All args as one JSON object: the text itself, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    args: Option<ArgsSource>,
    #[command(flatten)]
    place: Where,
    /// The agent that it is for
    #[arg(long, env = "WEFT_AGENT")]
    agent: Option<AgentId>,
    /// Only these files of the skill
    #[arg(long)]
    digest: Option<Digest>,
    /// Seconds that it may take; the manifest may say less
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Makes a retry attach to the first try [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<RequestId>,
    /// Print the invocation's id and leave; it goes on without a watcher
    #[arg(long)]
    detach: bool,
    /// Say each step on stderr
    #[arg(short, long)]
    verbose: bool,
}

/// Where the args come from.
#[derive(Debug, Clone)]
enum ArgsSource {
    Text(String),
    File(PathBuf),
    Stdin,
}

impl FromStr for ArgsSource {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match (text, text.strip_prefix('@')) {
            ("-", _) => Self::Stdin,
            (_, Some(path)) => Self::File(path.into()),
            (_, None) => Self::Text(text.to_owned()),
        })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("expected more than zero seconds".into()),
    }
}

impl Call {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let client = self.connection.client();
        let args = self.read_args(&client).await?;
        let request = Request {
            // Known to the coordinator from the connection.
            caller: "local".parse().map_err(Failure::usage)?,
            // Always one: transports lose answers, and a second try must not run it twice.
            request_id: Some(match &self.request_id {
                Some(id) => id.clone(),
                None => uuid::Uuid::now_v7().to_string().parse().map_err(Failure::usage)?,
            }),
            agent: self.agent.clone(),
            skill: SkillKey::normalise(&self.skill).map_err(Failure::usage)?,
            pinned: self.digest,
            args_digest: Digest::of(&args),
            args,
            target: self.place.target(),
            budget: self.timeout,
            detach: self.detach,
        };
        if self.detach {
            let invocation = client.create(&request).await?;
            output::print(&invocation.id)?;
            return Ok(exit::OK);
        }
        let manner = Manner { verbose: self.verbose, owns: true };
        follow::follow(&client, client.invoke(&request), manner).await
    }

    async fn read_args(&self, client: &Client) -> Result<Bytes, Failure> {
        let bytes = match &self.args {
            None if self.words.is_empty() => return Ok(Bytes::from_static(b"{}")),
            None => {
                let agent = self.agent.as_ref().map(AgentId::as_str).unwrap_or_default();
                let skill = client.get_skill(&self.skill, agent).await?;
                let schema = skill.definition.unwrap_or_default().schema;
                let schema = serde_json::from_str(&schema).unwrap_or_default();
                let args = typed_args::parse(&self.words, &schema).map_err(Failure::usage)?;
                return Ok(args.into());
            }
            Some(ArgsSource::Text(text)) => text.clone().into_bytes(),
            Some(ArgsSource::File(path)) => std::fs::read(path)
                .map_err(|error| Failure::usage(format!("--args: {}: {error}", path.display())))?,
            Some(ArgsSource::Stdin) => {
                let mut bytes = Vec::new();
                std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read stdin")?;
                bytes
            }
        };
        Ok(bytes.into())
    }
}
