//! `weft.v1.InvocationService`.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};
use weft_core::{
    ids::{Digest, InvocationId},
    invocation,
    node::Target,
    refusal::Refusal,
    trace::TraceContext,
};
use weft_daemon::Drain;
use weft_proto::{
    convert::{self, Malformed, timestamp_to_wire},
    v1::{self, invocation_service_server::InvocationService},
};
use weft_store::Filter;

use super::{caller, malformed, page, refused, session, skill_key};
use crate::{
    config::Config,
    invocations::Invocations,
    sessions::Sessions,
    watch::{self, Told},
};

pub(crate) struct Invoker {
    pub(crate) invocations: Arc<Invocations>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) config: Config,
    pub(crate) drain: Drain,
}

type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Invoker {
    async fn create(
        &self,
        trace: Option<TraceContext>,
        request: Option<v1::InvocationRequest>,
        detach: bool,
    ) -> Result<invocation::Invocation, Status> {
        if self.drain.has_begun() {
            return Err(refused(Refusal::Draining));
        }
        let request = convert::required("invocation", request).map_err(malformed)?;
        let mut request = decode(request, detach)?;
        // A retry finds its first try whatever has become of the session since.
        if request.session.is_some()
            && let Some(agent) = self.invocations.agent_of_known(&request).await.map_err(refused)?
        {
            request.agent = agent;
            return self.invocations.create(request, trace).await.map_err(refused);
        }
        if let Some(id) = &request.session {
            let session = self.sessions.get(&request.caller, id.as_str()).map_err(refused)?;
            let agent = request.agent.as_ref().map(ToString::to_string).unwrap_or_default();
            session::agrees(&session, &agent)?;
            request.among = session.pin(&request.skill).map_err(refused)?;
            request.agent = session.agent;
        }
        tokio::select! {
            () = self.invocations.until_routable(&request) => {}
            () = self.drain.begun() => return Err(refused(Refusal::Draining)),
        }
        self.invocations.create(request, trace).await.map_err(refused)
    }

    async fn events<T: 'static>(
        &self,
        id: InvocationId,
        after: u64,
        wrap: impl Fn(Told) -> T + Send + 'static,
    ) -> Result<Response<Events<T>>, Status> {
        let heartbeat = self.config.timings.watch_heartbeat;
        let told = watch::watch(&self.invocations, id, after, heartbeat, self.drain.clone())
            .await
            .map_err(refused)?;
        Ok(Response::new(Box::pin(told.map(move |told| told.map(&wrap).map_err(refused)))))
    }
}

fn decode(request: v1::InvocationRequest, detach: bool) -> Result<invocation::Request, Status> {
    let skill = skill_key(&request.skill)?;
    let decoded = (|| {
        let budget =
            request.timeout.map(|timeout| convert::duration_from_wire("timeout", timeout)).transpose()?;
        if budget.is_some_and(|budget| budget.is_zero()) {
            return Err(Malformed::new("timeout", "must be longer than zero"));
        }
        Ok(invocation::Request {
            caller: caller(),
            request_id: convert::parse_optional("request_id", &request.request_id)?,
            agent: convert::parse_optional("agent", &request.agent)?,
            skill,
            pinned: convert::parse_optional("digest", &request.digest)?,
            session: convert::parse_optional("session_id", &request.session_id)?,
            among: [].into(),
            args_digest: Digest::of(&request.args),
            args: convert::own(request.args),
            target: request.target.map(Target::try_from).transpose()?.unwrap_or_default(),
            budget,
            detach: detach || request.detach,
        })
    })();
    decoded.map_err(malformed)
}

fn invocation_id(text: &str) -> Result<InvocationId, Status> {
    convert::parse("invocation_id", text).map_err(malformed)
}

fn heartbeat() -> v1::Heartbeat {
    v1::Heartbeat { time: Some(timestamp_to_wire(jiff::Timestamp::now())) }
}

#[tonic::async_trait]
impl InvocationService for Invoker {
    type InvokeStream = Events<v1::InvokeResponse>;
    type WatchInvocationStream = Events<v1::WatchInvocationResponse>;

    async fn invoke(
        &self,
        request: Request<v1::InvokeRequest>,
    ) -> Result<Response<Self::InvokeStream>, Status> {
        let (_, mut extensions, request) = request.into_parts();
        let invocation = self.create(extensions.remove(), request.invocation, false).await?;
        let id = invocation.id.to_string();
        self.events(invocation.id, 0, move |told| v1::InvokeResponse {
            invocation_id: id.clone(),
            message: Some(match told {
                Told::Event(event) => v1::invoke_response::Message::Event((&event).into()),
                Told::Heartbeat => v1::invoke_response::Message::Heartbeat(heartbeat()),
            }),
        })
        .await
    }

    async fn create_invocation(
        &self,
        request: Request<v1::CreateInvocationRequest>,
    ) -> Result<Response<v1::CreateInvocationResponse>, Status> {
        let (_, mut extensions, request) = request.into_parts();
        let invocation = self.create(extensions.remove(), request.invocation, true).await?;
        Ok(Response::new(v1::CreateInvocationResponse { invocation: Some((&invocation).into()) }))
    }

    async fn watch_invocation(
        &self,
        request: Request<v1::WatchInvocationRequest>,
    ) -> Result<Response<Self::WatchInvocationStream>, Status> {
        let request = request.into_inner();
        let id = invocation_id(&request.invocation_id)?;
        self.events(id, request.after_sequence, |told| v1::WatchInvocationResponse {
            message: Some(match told {
                Told::Event(event) => v1::watch_invocation_response::Message::Event((&event).into()),
                Told::Heartbeat => v1::watch_invocation_response::Message::Heartbeat(heartbeat()),
            }),
        })
        .await
    }

    async fn get_invocation(
        &self,
        request: Request<v1::GetInvocationRequest>,
    ) -> Result<Response<v1::GetInvocationResponse>, Status> {
        let id = invocation_id(&request.into_inner().invocation_id)?;
        let invocation = self.invocations.get(id).await.map_err(refused)?;
        Ok(Response::new(v1::GetInvocationResponse { invocation: Some((&invocation).into()) }))
    }

    async fn list_invocations(
        &self,
        request: Request<v1::ListInvocationsRequest>,
    ) -> Result<Response<v1::ListInvocationsResponse>, Status> {
        let request = request.into_inner();
        let size = page::size(request.page_size, 50, 500)?;
        let filter = Filter {
            skill: (!request.skill.is_empty()).then(|| skill_key(&request.skill)).transpose()?,
            active: request.active,
            before: convert::parse_optional("page_token", &request.page_token).map_err(malformed)?,
        };
        let page = self.invocations.list(filter, size).await.map_err(refused)?;
        let next_page_token = match (page.more, page.invocations.last()) {
            (true, Some(last)) => last.id.to_string(),
            _ => String::new(),
        };
        Ok(Response::new(v1::ListInvocationsResponse {
            invocations: page.invocations.iter().map(Into::into).collect(),
            next_page_token,
        }))
    }

    async fn cancel_invocation(
        &self,
        request: Request<v1::CancelInvocationRequest>,
    ) -> Result<Response<v1::CancelInvocationResponse>, Status> {
        let id = invocation_id(&request.into_inner().invocation_id)?;
        let invocation = self.invocations.cancel(id).await.map_err(refused)?;
        Ok(Response::new(v1::CancelInvocationResponse { invocation: Some((&invocation).into()) }))
    }
}
