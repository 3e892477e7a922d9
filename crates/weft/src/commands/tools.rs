//! `weft tools`.

use clap::Args;
use weft_core::{
    ids::{AgentId, SessionId},
    tools::Dialect,
};
use weft_proto::json;

use crate::{
    exit::{self, Failure},
    output,
    target::Connection,
};

#[derive(Debug, Args)]
pub(crate) struct Tools {
    #[command(flatten)]
    connection: Connection,
    /// Whose interface they are for: openai, anthropic, gemini or mcp
    #[arg(long)]
    dialect: Dialect,
    /// The agent whose tools are wanted
    #[arg(long, env = "WEFT_AGENT")]
    agent: Option<AgentId>,
    /// The session whose snapshot is exported
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Print the whole answer as JSON, with the skill of each tool and what the dialect could not carry
    #[arg(long)]
    full: bool,
}

impl Tools {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        // A session has its agent; WEFT_AGENT may name another.
        let agent = self.agent.as_ref().filter(|_| self.session.is_none());
        let agent = agent.map(AgentId::as_str).unwrap_or_default();
        let session = self.session.as_ref().map(SessionId::as_str).unwrap_or_default();
        let exported = self.connection.client().export_tools(agent, session, self.dialect).await?;
        if self.full {
            output::print_json(&json::to_value("weft.v1.ExportToolsResponse", &exported))?;
            return Ok(exit::OK);
        }
        // As it came: what is sent to a model is exactly this.
        output::print(&exported.tools)?;
        for loss in &exported.losses {
            let place = if loss.pointer.is_empty() { String::new() } else { format!(" at {}", loss.pointer) };
            match loss.left_out {
                true => output::note(&format!("{}: no tool: {}", loss.skill, loss.why)),
                false => output::note(&format!("{}{place}: {}: {}", loss.skill, loss.what, loss.why)),
            }
        }
        exported.notes.iter().for_each(|note| output::note(note));
        Ok(exit::OK)
    }
}
