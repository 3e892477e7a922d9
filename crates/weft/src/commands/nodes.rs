//! `weft nodes`.

use clap::Args;
use serde_json::Value;
use weft_core::node::Selector;
use weft_proto::{json, v1};

use crate::{
    exit::{self, Failure},
    output::{self, Format},
    target::Connection,
};

#[derive(Debug, Args)]
pub(crate) struct Nodes {
    #[command(flatten)]
    connection: Connection,
    /// Only nodes with these labels: label=value, label!=value, label, !label, separated by commas
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Selector>,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Nodes {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let nodes = self.connection.client().list_nodes(self.selector.as_ref()).await?;
        if self.output == Format::Json {
            let list = nodes.iter().map(|node| json::to_value("weft.v1.Node", node)).collect();
            output::print_json(&Value::Array(list))?;
            return Ok(exit::OK);
        }
        output::print_table(
            &["name", "state", "skills", "busy", "os/arch", "labels", "id"],
            nodes.iter().map(row),
        )?;
        for node in &nodes {
            for alarm in &node.alarms {
                output::note(&format!("{}: {alarm}", node.name));
            }
        }
        Ok(exit::OK)
    }
}

fn row(node: &v1::Node) -> Vec<String> {
    let mut labels: Vec<_> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.sort();
    vec![
        node.name.clone(),
        match node.state() {
            v1::NodeState::Connected => "connected",
            v1::NodeState::Draining => "draining",
            v1::NodeState::Disconnected => "disconnected",
            v1::NodeState::Unspecified => "?",
        }
        .to_owned(),
        format!("{}/{}", node.eligible_skills, node.skills),
        format!("{}/{}", node.outstanding, node.slots),
        format!("{}/{}", node.os, node.arch),
        labels.join(","),
        node.id.clone(),
    ]
}
