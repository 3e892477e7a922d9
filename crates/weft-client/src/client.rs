//! Typed calls to a coordinator.

use tonic::{
    Status,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};
use weft_core::{
    ids::{Digest, InvocationId},
    invocation::Request,
    node::{Selector, Target},
    tools::Dialect,
    trace::TraceContext,
};
use weft_proto::{
    convert::duration_to_wire,
    v1::{
        self, catalog_service_client::CatalogServiceClient,
        invocation_service_client::InvocationServiceClient, node_service_client::NodeServiceClient,
        session_service_client::SessionServiceClient,
    },
};

use crate::{Coordinator, Error, Follow};

/// Calls one coordinator. Cheap to clone; clones share the connection.
#[derive(Debug, Clone)]
pub struct Client {
    address: Coordinator,
    channel: Channel,
    within: Within,
}

/// The connection, with the trace of whoever calls.
pub(crate) type Traced = InterceptedService<Channel, Within>;

/// Puts the context of the caller's span into every call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Within(Option<TraceContext>);

impl Interceptor for Within {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some(trace) = &self.0 {
            let headers = [("traceparent", trace.traceparent()), ("tracestate", trace.tracestate())];
            for (name, text) in headers {
                if let Some(value) = MetadataValue::try_from(text).ok().filter(|_| !text.is_empty()) {
                    request.metadata_mut().insert(name, value);
                }
            }
        }
        Ok(request)
    }
}

/// Which skills are listed.
#[derive(Debug, Clone, Default)]
pub struct SkillQuery {
    /// The agent whose view is wanted.
    pub agent: String,
    /// Only skills that such a node can run.
    pub target: Target,
    /// Also skills that no connected node can run now.
    pub include_ineligible: bool,
    /// With instructions, variants and providers.
    pub full: bool,
}

/// The skills that fit, of all pages together.
#[derive(Debug, Clone, Default)]
pub struct SkillPage {
    /// By key.
    pub skills: Vec<v1::Skill>,
    /// What does not load.
    pub diagnostics: Vec<v1::NodeDiagnostic>,
    /// Nodes may still be on their way.
    pub warming: bool,
}

impl Client {
    /// A client of the coordinator at this address. Connects when it is first used.
    pub fn new(address: Coordinator) -> Self {
        Self { channel: address.channel(), address, within: Within::default() }
    }

    /// The same client for calls that belong to a trace: they go on from this span.
    #[must_use]
    pub fn within(&self, trace: Option<TraceContext>) -> Self {
        Self { within: Within(trace), ..self.clone() }
    }

    /// Where the coordinator is.
    pub fn address(&self) -> &Coordinator {
        &self.address
    }

    fn catalog(&self) -> CatalogServiceClient<Traced> {
        CatalogServiceClient::with_interceptor(self.channel.clone(), self.within.clone())
            .max_decoding_message_size(64 * 1024 * 1024)
    }

    pub(crate) fn invocations(&self) -> InvocationServiceClient<Traced> {
        InvocationServiceClient::with_interceptor(self.channel.clone(), self.within.clone())
    }

    fn nodes(&self) -> NodeServiceClient<Traced> {
        NodeServiceClient::with_interceptor(self.channel.clone(), self.within.clone())
    }

    fn sessions(&self) -> SessionServiceClient<Traced> {
        SessionServiceClient::with_interceptor(self.channel.clone(), self.within.clone())
            .max_decoding_message_size(64 * 1024 * 1024)
    }

    pub(crate) fn failed(&self, status: &tonic::Status) -> Error {
        Error::from_status(&self.address, status)
    }

    /// Every skill that fits.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn list_skills(&self, query: &SkillQuery) -> Result<SkillPage, Error> {
        let view = if query.full { v1::SkillView::Full } else { v1::SkillView::Basic };
        let mut all = SkillPage::default();
        let mut page_token = String::new();
        loop {
            let request = v1::ListSkillsRequest {
                agent: query.agent.clone(),
                page_size: if query.full { 100 } else { 1000 },
                page_token,
                view: view.into(),
                target: Some((&query.target).into()),
                include_ineligible: query.include_ineligible,
            };
            let page = self.catalog().list_skills(request).await.map_err(|s| self.failed(&s))?.into_inner();
            all.skills.extend(page.skills);
            all.diagnostics.extend(page.diagnostics);
            all.warming |= page.warming;
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// One skill in full.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn get_skill(&self, skill: &str, agent: &str) -> Result<v1::Skill, Error> {
        let request = v1::GetSkillRequest { skill: skill.into(), agent: agent.into() };
        let response = self.catalog().get_skill(request).await.map_err(|s| self.failed(&s))?.into_inner();
        Ok(response.skill.unwrap_or_default())
    }

    /// Why a skill can or cannot be run, node by node.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn explain_skill(
        &self,
        skill: &str,
        agent: &str,
        target: &Target,
        pinned: Option<Digest>,
    ) -> Result<v1::ExplainSkillResponse, Error> {
        let request = v1::ExplainSkillRequest {
            skill: skill.into(),
            agent: agent.into(),
            target: Some(target.into()),
            digest: pinned.map(|digest| digest.to_string()).unwrap_or_default(),
        };
        Ok(self.catalog().explain_skill(request).await.map_err(|s| self.failed(&s))?.into_inner())
    }

    /// The list of skills for a system prompt: that of an agent, or of a session.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn render_prompt(&self, agent: &str, session: &str) -> Result<v1::RenderPromptResponse, Error> {
        let request = v1::RenderPromptRequest { agent: agent.into(), session_id: session.into() };
        Ok(self.catalog().render_prompt(request).await.map_err(|s| self.failed(&s))?.into_inner())
    }

    /// The skills of an agent, or of a session, as tool definitions.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn export_tools(
        &self,
        agent: &str,
        session: &str,
        dialect: Dialect,
    ) -> Result<v1::ExportToolsResponse, Error> {
        let request = v1::ExportToolsRequest {
            agent: agent.into(),
            session_id: session.into(),
            dialect: v1::ToolDialect::from(dialect).into(),
        };
        Ok(self.catalog().export_tools(request).await.map_err(|s| self.failed(&s))?.into_inner())
    }

    /// A file of a skill: `skill` is a name, or a `weft://skills/…` location when `path` is empty.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn read_skill_file(
        &self,
        skill: &str,
        path: &str,
        agent: &str,
    ) -> Result<v1::ReadSkillFileResponse, Error> {
        let request = v1::ReadSkillFileRequest {
            skill: skill.into(),
            path: path.into(),
            agent: agent.into(),
            digest: String::new(),
        };
        Ok(self.catalog().read_skill_file(request).await.map_err(|s| self.failed(&s))?.into_inner())
    }

    /// The catalog as an agent sees it, and every change of it from a token on; an empty one means all.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn watch_catalog(
        &self,
        request: v1::WatchCatalogRequest,
    ) -> Result<tonic::Streaming<v1::WatchCatalogResponse>, Error> {
        Ok(self.catalog().watch_catalog(request).await.map_err(|s| self.failed(&s))?.into_inner())
    }

    /// Opens a session for an agent.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn open_session(&self, agent: &str) -> Result<v1::OpenSessionResponse, Error> {
        let request = v1::OpenSessionRequest { agent: agent.into() };
        Ok(self.sessions().open_session(request).await.map_err(|s| self.failed(&s))?.into_inner())
    }

    /// A session as it is; with `begin_turn`, after the boundary of a turn.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn get_session(&self, id: &str, begin_turn: bool) -> Result<v1::GetSessionResponse, Error> {
        let request =
            v1::GetSessionRequest { session_id: id.into(), begin_turn, known_snapshot: String::new() };
        Ok(self.sessions().get_session(request).await.map_err(|s| self.failed(&s))?.into_inner())
    }

    /// Ends a session.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn close_session(&self, id: &str) -> Result<(), Error> {
        let request = v1::CloseSessionRequest { session_id: id.into() };
        self.sessions().close_session(request).await.map_err(|s| self.failed(&s))?;
        Ok(())
    }

    /// Every node whose labels fit.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn list_nodes(&self, selector: Option<&Selector>) -> Result<Vec<v1::Node>, Error> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request =
                v1::ListNodesRequest { page_size: 1000, page_token, selector: selector.map(Into::into) };
            let page = self.nodes().list_nodes(request).await.map_err(|s| self.failed(&s))?.into_inner();
            all.extend(page.nodes);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Creates an invocation and returns at once.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn create(&self, request: &Request) -> Result<v1::Invocation, Error> {
        let request = v1::CreateInvocationRequest { invocation: Some(request_to_wire(request)) };
        let created =
            self.invocations().create_invocation(request).await.map_err(|s| self.failed(&s))?.into_inner();
        Ok(created.invocation.unwrap_or_default())
    }

    /// Creates an invocation and follows it to its end.
    pub fn invoke(&self, request: &Request) -> Follow {
        Follow::invoke(self.clone(), request_to_wire(request))
    }

    /// Follows an invocation from the event after this one.
    pub fn watch(&self, id: InvocationId, after: u64) -> Follow {
        Follow::watch(self.clone(), id, after)
    }

    /// What is known of an invocation.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn get(&self, id: InvocationId) -> Result<v1::Invocation, Error> {
        let request = v1::GetInvocationRequest { invocation_id: id.to_string() };
        let response =
            self.invocations().get_invocation(request).await.map_err(|s| self.failed(&s))?.into_inner();
        Ok(response.invocation.unwrap_or_default())
    }

    /// The newest invocations, at most `most`.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn list(&self, skill: &str, active: bool, most: usize) -> Result<Vec<v1::Invocation>, Error> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        while all.len() < most {
            let request = v1::ListInvocationsRequest {
                page_size: i32::try_from((most - all.len()).min(500)).unwrap_or(500),
                page_token,
                skill: skill.into(),
                active,
            };
            let page =
                self.invocations().list_invocations(request).await.map_err(|s| self.failed(&s))?.into_inner();
            all.extend(page.invocations);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        Ok(all)
    }

    /// Asks for the end of an invocation.
    ///
    /// # Errors
    /// When the coordinator refuses or cannot be reached.
    pub async fn cancel(&self, id: InvocationId) -> Result<v1::Invocation, Error> {
        let request = v1::CancelInvocationRequest { invocation_id: id.to_string() };
        let response =
            self.invocations().cancel_invocation(request).await.map_err(|s| self.failed(&s))?.into_inner();
        Ok(response.invocation.unwrap_or_default())
    }
}

/// The wire form of a request. The caller travels as the connection's identity, not in the message.
fn request_to_wire(request: &Request) -> v1::InvocationRequest {
    v1::InvocationRequest {
        skill: request.skill.to_string(),
        args: request.args.clone(),
        agent: request.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
        request_id: request.request_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        target: Some((&request.target).into()),
        digest: request.pinned.map(|digest| digest.to_string()).unwrap_or_default(),
        timeout: request.budget.map(duration_to_wire),
        detach: request.detach,
        session_id: request.session.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}
