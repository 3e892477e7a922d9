//! `weft prompt`.

use clap::Args;
use weft_core::{
    ids::{AgentId, SessionId},
    prompt::{BASE, PER_SKILL},
};
use weft_proto::json;

use crate::{
    exit::{self, Failure},
    output::{self, Format},
    target::Connection,
};

#[derive(Debug, Args)]
pub(crate) struct Prompt {
    #[command(flatten)]
    connection: Connection,
    /// The agent whose prompt is wanted
    #[arg(long, env = "WEFT_AGENT")]
    agent: Option<AgentId>,
    /// The session whose snapshot is listed
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Prompt {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        // A session has its agent; WEFT_AGENT may name another.
        let agent = self.agent.as_ref().filter(|_| self.session.is_none());
        let agent = agent.map(AgentId::as_str).unwrap_or_default();
        let session = self.session.as_ref().map(SessionId::as_str).unwrap_or_default();
        let rendered = self.connection.client().render_prompt(agent, session).await?;
        if self.output == Format::Json {
            output::print_json(&json::to_value("weft.v1.RenderPromptResponse", &rendered))?;
            return Ok(exit::OK);
        }
        if rendered.text.is_empty() {
            output::note("there is nothing to list, so the prompt is empty");
        } else {
            // To a terminal without what would drive it, to a file as it is.
            let mut out = output::Passage::to_stdout();
            out.pass(rendered.text.as_bytes())?;
            out.end_line()?;
        }
        let skills = rendered.listed.len();
        output::note(&format!(
            "{} characters, {skills} skills: {BASE} and {PER_SKILL} for each, and their values",
            rendered.cost
        ));
        for cut in &rendered.cut {
            output::note(&format!("left out: {}: {}", cut.skill, cut.reason));
        }
        Ok(exit::OK)
    }
}
