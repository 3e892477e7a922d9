//! `weft.v1.NodeService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use weft_core::{node::Selector, refusal::Refusal};
use weft_proto::{
    convert::timestamp_to_wire,
    v1::{self, node_service_server::NodeService},
};

use super::{malformed, page, refused};
use crate::{
    catalog::Keeper,
    nodes::{self, Presence, View},
};

/// Diagnostics of one node in a list of nodes.
const LISTED_DIAGNOSTICS: usize = 16;

pub(crate) struct Nodes {
    pub(crate) nodes: Arc<nodes::Nodes>,
    pub(crate) catalog: Arc<Keeper>,
}

impl Nodes {
    fn describe(&self, view: View) -> v1::Node {
        let advert = self.catalog.advert_of(&view.node.id).unwrap_or_default();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        v1::Node {
            id: view.node.id.to_string(),
            name: view.node.name.clone(),
            state: match view.presence {
                Presence::Connected => v1::NodeState::Connected,
                Presence::Draining => v1::NodeState::Draining,
                Presence::Disconnected => v1::NodeState::Disconnected,
            }
            .into(),
            os: view.node.os.clone(),
            arch: view.node.arch.clone(),
            version: view.node.version.clone(),
            labels: view.node.labels.clone().into_iter().collect(),
            slots: view.node.slots,
            outstanding: view.outstanding,
            skills: count(advert.rows.iter().filter(|row| row.shadowed_by.is_none()).count()),
            eligible_skills: count(advert.rows.iter().filter(|row| row.eligible()).count()),
            session_epoch: view.epoch,
            connect_time: Some(timestamp_to_wire(view.connected_at)),
            last_message_time: Some(timestamp_to_wire(view.heard_at)),
            diagnostics: advert.diagnostics.iter().map(Into::into).collect(),
            diagnostic_count: count(advert.diagnostics.len()),
            alarms: view.alarms,
        }
    }
}

#[tonic::async_trait]
impl NodeService for Nodes {
    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let request = request.into_inner();
        let size = page::size(request.page_size, 100, 1000)?;
        let selector: Selector =
            request.selector.map(TryInto::try_into).transpose().map_err(malformed)?.unwrap_or_default();
        let mut views = self.nodes.views();
        views.retain(|view| selector.matches(&view.node.labels));
        // Names are not unique, and a page must not lose a node that shares one.
        views.sort_by_key(sort_key);
        let messages =
            views.into_iter().skip_while(|view| sort_key(view) <= request.page_token).map(|view| {
                let mut node = self.describe(view);
                node.diagnostics.truncate(LISTED_DIAGNOSTICS);
                node
            });
        let (nodes, next_page_token) =
            page::fill(messages, size, |node| format!("{}\n{}", node.name, node.id));
        Ok(Response::new(v1::ListNodesResponse { nodes, next_page_token }))
    }

    async fn get_node(
        &self,
        request: Request<v1::GetNodeRequest>,
    ) -> Result<Response<v1::GetNodeResponse>, Status> {
        let name: String = request.into_inner().node.chars().take(128).collect();
        let id = self.nodes.resolve(&name).map_err(refused)?;
        let view = self.nodes.view(&id).ok_or_else(|| refused(Refusal::NodeNotFound { node: name }))?;
        Ok(Response::new(v1::GetNodeResponse { node: Some(self.describe(view)) }))
    }
}

fn sort_key(view: &View) -> String {
    format!("{}\n{}", view.node.name, view.node.id)
}
