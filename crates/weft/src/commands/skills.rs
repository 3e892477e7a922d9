//! `weft skills`.

use clap::Args;
use serde_json::{Value, json};
use weft_client::SkillQuery;
use weft_core::{ids::AgentId, skill::Class, text};
use weft_proto::{convert, json, v1};

use crate::{
    exit::{self, Failure},
    output::{self, Format},
    target::{Connection, Where},
};

#[derive(Debug, Args)]
pub(crate) struct Skills {
    #[command(flatten)]
    connection: Connection,
    /// Show this one in full, with its instructions; or print the file at a weft://skills/… location
    skill: Option<String>,
    /// Print a file of that skill instead, such as references/x.md
    #[arg(long, value_name = "PATH", requires = "skill")]
    file: Option<String>,
    #[command(flatten)]
    place: Where,
    /// The agent whose view is wanted
    #[arg(long, env = "WEFT_AGENT")]
    agent: Option<AgentId>,
    /// Only those that a connected node can run now
    #[arg(long)]
    eligible: bool,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Skills {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let agent = self.agent.as_ref().map(ToString::to_string).unwrap_or_default();
        let client = self.connection.client();
        let location = self.skill.as_ref().filter(|skill| skill.starts_with("weft://"));
        if let (Some(name), Some(path)) = (&self.skill, self.file.as_deref().or(location.map(|_| ""))) {
            let read = client.read_skill_file(name, path, &agent).await?;
            // To a terminal without what would drive it, to a file as it is.
            let mut out = output::Passage::to_stdout();
            out.pass(&read.content)?;
            out.end_line()?;
            return Ok(exit::OK);
        }
        if let Some(name) = &self.skill {
            let skill = client.get_skill(name, &agent).await?;
            match self.output {
                Format::Json => output::print_json(&json::to_value("weft.v1.Skill", &skill))?,
                Format::Table => show(&skill)?,
            }
            return Ok(exit::OK);
        }
        let query = SkillQuery {
            agent,
            target: self.place.target(),
            include_ineligible: !self.eligible,
            full: false,
        };
        let page = client.list_skills(&query).await?;
        if self.output == Format::Json {
            let skills: Vec<Value> =
                page.skills.iter().map(|skill| json::to_value("weft.v1.Skill", skill)).collect();
            let diagnostics: Vec<Value> =
                page.diagnostics.iter().map(|one| json::to_value("weft.v1.NodeDiagnostic", one)).collect();
            output::print_json(&json!({
                "skills": skills, "diagnostics": diagnostics, "warming": page.warming
            }))?;
            return Ok(exit::OK);
        }
        output::print_table(
            &["name", "class", "runs on", "category", "description"],
            page.skills.iter().map(row),
        )?;
        for one in &page.diagnostics {
            if let Some(diagnostic) = &one.diagnostic {
                output::note(&format!("{}: {}", one.node_name, line(diagnostic)));
            }
        }
        if page.warming && page.skills.is_empty() {
            output::note("the coordinator has just started; nodes may still be on their way");
        }
        Ok(exit::OK)
    }
}

fn row(skill: &v1::Skill) -> Vec<String> {
    let definition = skill.definition.clone().unwrap_or_default();
    let runs = match definition.kind() {
        v1::SkillKind::Instructions => "instructions".to_owned(),
        _ => format!("{}/{} nodes", skill.eligible_nodes, skill.nodes),
    };
    let first_line = definition.description.lines().next().unwrap_or_default().to_owned();
    vec![skill.key.clone(), class(skill).to_string(), runs, definition.category, first_line]
}

fn class(skill: &v1::Skill) -> Class {
    convert::class(skill.class)
}

/// A diagnostic in one line.
pub(crate) fn line(diagnostic: &v1::Diagnostic) -> String {
    let place = match diagnostic.line {
        0 => diagnostic.path.clone(),
        line => format!("{}:{line}", diagnostic.path),
    };
    let severity = match diagnostic.severity() {
        v1::Severity::Warning => "warning: ",
        v1::Severity::Error | v1::Severity::Unspecified => "",
    };
    format!("{severity}{place}: {}: {}", diagnostic.rule, diagnostic.message)
}

fn show(skill: &v1::Skill) -> anyhow::Result<()> {
    let definition = skill.definition.clone().unwrap_or_default();
    let assumed = if definition.class_declared { "" } else { " (assumed)" };
    let timeout = definition.timeout.unwrap_or_default().seconds;
    let mut rows = vec![
        vec!["name".to_owned(), definition.name.clone()],
        vec!["tool name".to_owned(), skill.tool_name.clone()],
        vec!["class".to_owned(), format!("{}{assumed}", class(skill))],
        vec!["category".to_owned(), definition.category.clone()],
        vec!["time-out".to_owned(), format!("{timeout} s")],
        vec!["digest".to_owned(), skill.digest.clone()],
        vec!["environment".to_owned(), definition.env_allow.join(" ")],
    ];
    for variant in &skill.variants {
        for provider in &variant.providers {
            let state = match (provider.connected, provider.eligible) {
                (true, true) => "can run it",
                (true, false) => "cannot run it: see `weft why`",
                (false, _) => "not connected",
            };
            rows.push(vec![format!("on {}", provider.node_name), format!("{state} ({})", provider.path)]);
        }
        if variant.providers_left_out > 0 {
            let more = format!("{} more nodes: see `weft nodes`", variant.providers_left_out);
            rows.push(vec!["and on".to_owned(), more]);
        }
    }
    output::print_table(&["skill", &skill.key], rows)?;
    output::print(&format!(
        "\nargs: {}\n\n{}",
        text::escape_lines(definition.schema.as_bytes()),
        text::escape_lines(definition.instructions.as_bytes())
    ))
}
