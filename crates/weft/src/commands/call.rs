//! `weft call`.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use weft_client::Client;
use weft_core::{
    ids::{AgentId, Digest, RequestId, SessionId, SkillKey},
    invocation::Request,
    trace::TraceContext,
};

use super::follow::{self, Manner};
use crate::{
    args::{ArgsOptions, Given, typed},
    exit::{self, Failure},
    output,
    target::{Connection, Where},
};

#[derive(Debug, Args)]
pub(crate) struct Call {
    #[command(flatten)]
    connection: Connection,
    /// The skill
    skill: String,
    #[command(flatten)]
    given: ArgsOptions,
    #[command(flatten)]
    place: Where,
    /// The agent that it is for
    #[arg(long, env = "WEFT_AGENT")]
    agent: Option<AgentId>,
    /// The session that it belongs to: only files that its snapshot knows are run
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
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

/// Parses a time-out.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("expected more than zero seconds".into()),
    }
}

/// The trace of whoever started this, as scripts hand it on.
fn trace() -> Option<TraceContext> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    TraceContext::parse(&variable("TRACEPARENT"), &variable("TRACESTATE"))
}

impl Call {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let client = self.connection.client().within(trace());
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
            session: self.session.clone(),
            among: [].into(),
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
        match self.given.given()? {
            Given::Nothing => Ok(Bytes::from_static(b"{}")),
            Given::Text(text) => Ok(text),
            Given::Words(words) => {
                let agent = match (&self.agent, &self.session) {
                    (Some(agent), _) => agent.to_string(),
                    (None, None) => String::new(),
                    (None, Some(session)) => {
                        let found = client.get_session(session.as_str(), false).await?;
                        found.session.unwrap_or_default().agent
                    }
                };
                let skill = client.get_skill(&self.skill, &agent).await?;
                let schema = skill.definition.unwrap_or_default().schema;
                let schema = serde_json::from_str(&schema).unwrap_or_default();
                let args = typed::parse(words, &schema).map_err(Failure::usage)?;
                Ok(args.into())
            }
        }
    }
}
