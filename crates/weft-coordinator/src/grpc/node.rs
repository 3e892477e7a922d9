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
        let (views, next_page_token) = page::after(views.into_iter(), &request.page_token, size, sort_key);
        let nodes = views.into_iter().map(|view| self.describe(view)).collect();
        Ok(Response::new(v1::ListNodesResponse { nodes, next_page_token }))
    }

    async fn get_node(
        &self,
        request: Request<v1::GetNodeRequest>,
    ) -> Result<Response<v1::GetNodeResponse>, Status> {
        let name = request.into_inner().node;
        let found = self.nodes.views().into_iter().find(|view| view.node.is_called(&name));
        let view =
            found.ok_or_else(|| refused(Refusal::NodeNotFound { node: name.chars().take(128).collect() }))?;
        Ok(Response::new(v1::GetNodeResponse { node: Some(self.describe(view)) }))
    }
}

fn sort_key(view: &View) -> String {
    format!("{}\n{}", view.node.name, view.node.id)
}
