//! `weft.v1.SessionService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use weft_core::{
    ids::AgentId,
    prompt,
    snapshot::{Pinned, Snapshot},
};
use weft_proto::{
    convert::{self, Malformed, timestamp_to_wire},
    v1::{self, session_service_server::SessionService},
};

use super::{caller, malformed, refused};
use crate::{
    catalog::Keeper,
    nodes::Nodes,
    sessions::{self, Session},
    visible::Visible,
};

pub(crate) struct Sessions {
    pub(crate) sessions: Arc<sessions::Sessions>,
    pub(crate) catalog: Arc<Keeper>,
    pub(crate) nodes: Arc<Nodes>,
}

/// Refuses a request that names a session and another agent than the session's.
pub(crate) fn agrees(session: &Session, agent: &str) -> Result<(), Status> {
    match session.agent.as_ref().map(AgentId::as_str).unwrap_or_default() {
        own if agent.is_empty() || agent == own => Ok(()),
        own => Err(malformed(Malformed::new(
            "agent",
            format_args!(
                "the session is that of agent {own:?}; leave the agent out, or open another session"
            ),
        ))),
    }
}

fn session(session: &Session) -> v1::Session {
    v1::Session {
        id: session.id.to_string(),
        agent: session.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
        snapshot_digest: session.snapshot.digest().to_string(),
        create_time: Some(timestamp_to_wire(session.created)),
        expire_time: Some(timestamp_to_wire(session.expires)),
    }
}

fn snapshot(snapshot: &Snapshot) -> v1::Snapshot {
    let skill = |pinned: &Pinned| {
        let definition = &pinned.definition;
        v1::SnapshotSkill {
            key: definition.key.to_string(),
            name: definition.name.clone(),
            tool_name: definition.tool_name(),
            kind: v1::SkillKind::from(definition.kind).into(),
            description: definition.description.clone(),
            class: v1::SkillClass::from(pinned.class).into(),
            digests: pinned.digests.iter().map(ToString::to_string).collect(),
            definition_digest: pinned.definition_digest.to_string(),
            layer: v1::Layer::from(pinned.layer).into(),
            hidden_from_prompts: definition.hidden_from_prompts,
            location: prompt::location(&definition.key),
        }
    };
    v1::Snapshot {
        digest: snapshot.digest().to_string(),
        skills: snapshot.skills().iter().map(skill).collect(),
    }
}

#[tonic::async_trait]
impl SessionService for Sessions {
    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let agent = convert::parse_optional("agent", &request.into_inner().agent).map_err(malformed)?;
        let visible = Visible::new(self.catalog.current(), agent);
        let opened = self.sessions.open(caller(), &visible, &self.nodes).map_err(refused)?;
        Ok(Response::new(v1::OpenSessionResponse {
            session: Some(session(&opened)),
            snapshot: Some(snapshot(&opened.snapshot)),
        }))
    }

    async fn get_session(
        &self,
        request: Request<v1::GetSessionRequest>,
    ) -> Result<Response<v1::GetSessionResponse>, Status> {
        let request = request.into_inner();
        let found = self.sessions.get(&caller(), &request.session_id).map_err(refused)?;
        let merged = self.catalog.current();
        let (found, refreshed) = match request.begin_turn && merged.settings().sessions_follow {
            true => {
                let visible = Visible::new(merged, found.agent);
                let begun = self.sessions.begin_turn(&caller(), &request.session_id, &visible, &self.nodes);
                begun.map_err(refused)?
            }
            false => (found, false),
        };
        let known = request.known_snapshot == found.snapshot.digest().to_string();
        Ok(Response::new(v1::GetSessionResponse {
            session: Some(session(&found)),
            snapshot: (!known).then(|| snapshot(&found.snapshot)),
            refreshed,
        }))
    }

    async fn close_session(
        &self,
        request: Request<v1::CloseSessionRequest>,
    ) -> Result<Response<v1::CloseSessionResponse>, Status> {
        self.sessions.close(&caller(), &request.into_inner().session_id).map_err(refused)?;
        Ok(Response::new(v1::CloseSessionResponse {}))
    }
}
