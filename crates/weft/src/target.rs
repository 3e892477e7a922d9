//! The options that name a coordinator, and those that name nodes.

use clap::Args;
use weft_client::{Client, Coordinator};
use weft_core::node::{Selector, Target};

/// Which coordinator to talk to.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// Address of the coordinator: http://HOST:PORT
    #[arg(long, env = "WEFT_COORDINATOR", default_value_t, value_name = "URL")]
    pub(crate) coordinator: Coordinator,
}

impl Connection {
    pub(crate) fn client(&self) -> Client {
        Client::new(self.coordinator.clone())
    }
}

/// Where an invocation may run.
#[derive(Debug, Clone, Args)]
pub(crate) struct Where {
    /// Only on the node with this name or id
    #[arg(long, value_name = "NODE", conflicts_with = "selector")]
    pub(crate) node: Option<String>,
    /// Only on nodes with these labels: label=value, label!=value, label, !label, separated by commas
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<Selector>,
}

impl Where {
    pub(crate) fn target(&self) -> Target {
        match (&self.node, &self.selector) {
            (Some(node), _) => Target::Node(node.clone()),
            (None, Some(selector)) => Target::Selector(selector.clone()),
            (None, None) => Target::Any,
        }
    }
}
