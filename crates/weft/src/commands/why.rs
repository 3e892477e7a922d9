//! `weft why`.

use clap::Args;
use weft_core::ids::{AgentId, Digest};
use weft_proto::{convert, json, v1};

use super::skills::line;
use crate::{
    exit::{self, Failure},
    output::{self, Format},
    target::{Connection, Where},
};

#[derive(Debug, Args)]
pub(crate) struct Why {
    #[command(flatten)]
    connection: Connection,
    /// The skill
    skill: String,
    #[command(flatten)]
    place: Where,
    /// The agent whose view is wanted
    #[arg(long, env = "WEFT_AGENT")]
    agent: Option<AgentId>,
    /// As if these files of the skill were asked for
    #[arg(long)]
    digest: Option<Digest>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Why {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let agent = self.agent.as_ref().map(ToString::to_string).unwrap_or_default();
        let client = self.connection.client();
        let explained = client.explain_skill(&self.skill, &agent, &self.place.target(), self.digest).await?;
        match self.output {
            Format::Json => {
                output::print_json(&json::to_value("weft.v1.ExplainSkillResponse", &explained))?;
            }
            Format::Table => show(&explained)?,
        }
        Ok(if explained.runnable { exit::OK } else { exit::NOT_FOUND })
    }
}

fn show(explained: &v1::ExplainSkillResponse) -> anyhow::Result<()> {
    let escape = |line: String| weft_core::text::escape(line.as_bytes());
    let say = |line: String| output::print(&escape(line));
    let verdict = if explained.runnable { "can run now" } else { "cannot run now" };
    say(format!("{} {verdict}", explained.skill))?;
    if !explained.policy.is_empty() {
        say(format!("  {}", explained.policy))?;
    }
    for node in &explained.nodes {
        let state = if node.candidate { "yes" } else { "no" };
        say(format!("{}: {state}", node.node_name))?;
        if !node.path.is_empty() {
            let layer = convert::layer(node.layer);
            say(format!("  {} {} ({layer})", node.path, node.digest))?;
        }
        for verdict in &node.verdicts {
            let mark = if verdict.passed { "pass" } else { "FAIL" };
            let gate = gate(verdict.gate());
            say(format!("  {mark} {gate} {}: {}", verdict.subject, verdict.reason))?;
        }
        for obstacle in &node.obstacles {
            // The gates were just listed.
            let listed =
                |verdict: &v1::Verdict| !verdict.passed && gate(verdict.gate()).as_str() == obstacle.kind;
            if !node.verdicts.iter().any(listed) {
                say(format!("  {}: {}", obstacle.kind, obstacle.reason))?;
            }
        }
        for diagnostic in &node.diagnostics {
            say(format!("  {}", line(diagnostic)))?;
        }
        for copy in &node.shadowed {
            say(format!("  {} is shadowed by {}", copy.path, copy.shadowed_by))?;
        }
    }
    Ok(())
}

fn gate(gate: v1::Gate) -> weft_core::skill::Gate {
    convert::gate(gate.into())
}
