//! Skills as tool definitions.

use tonic::Status;
use weft_core::{snapshot::Snapshot, tools};
use weft_proto::{
    convert::{self, Malformed},
    v1,
};

use super::malformed;
use crate::visible::Visible;

/// The tools of a snapshot, as far as the agent may still see them.
pub(super) fn export(
    snapshot: &Snapshot,
    visible: &Visible,
    dialect: i32,
) -> Result<v1::ExportToolsResponse, Status> {
    let dialect = convert::dialect(dialect).ok_or_else(|| {
        let message = "is missing or not known; name one of OPENAI, ANTHROPIC, GEMINI, MCP";
        malformed(Malformed::new("dialect", message))
    })?;
    let skills = snapshot.executables().filter(|skill| visible.may_name(skill.key()));
    let exported = tools::export(skills.map(|skill| &*skill.definition), dialect);
    let losses = exported.tools.iter().flat_map(|tool| {
        tool.dropped.iter().map(|dropped| v1::ToolLoss {
            skill: tool.key.to_string(),
            pointer: dropped.pointer.clone(),
            what: dropped.what.clone(),
            why: dropped.why.clone(),
            left_out: false,
        })
    });
    let left_out = exported.left_out.iter().map(|left| v1::ToolLoss {
        skill: left.key.to_string(),
        why: left.why.clone(),
        left_out: true,
        ..Default::default()
    });
    Ok(v1::ExportToolsResponse {
        losses: losses.chain(left_out).collect(),
        names: exported
            .tools
            .iter()
            .map(|tool| v1::ToolName { tool: tool.name.clone(), skill: tool.key.to_string() })
            .collect(),
        notes: exported.notes,
        tools: exported.json,
    })
}
