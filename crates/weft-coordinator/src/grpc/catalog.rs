//! `weft.v1.CatalogService`.

mod explain;
mod file;
mod tools;
mod watch;

use std::{collections::HashSet, pin::Pin, sync::Arc};

use futures::Stream;
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use weft_core::{
    catalog::{Provider, Skill, Variant},
    ids::{AgentId, NodeId},
    node::Target,
    prompt,
    skill::Kind,
    snapshot::Snapshot,
};
use weft_daemon::Drain;
use weft_proto::{
    convert::{self, NodeSight},
    v1::{self, catalog_service_server::CatalogService},
};

use self::watch::Watch;
use super::{caller, malformed, page, refused, skill_key};
use crate::{
    catalog::Keeper,
    config::Config,
    files::Files,
    invocations::Invocations,
    nodes::{Nodes, Presence, View},
    router::Wish,
    sessions::Sessions,
    visible::Visible,
};

#[derive(Clone)]
pub(crate) struct Catalog {
    pub(crate) catalog: Arc<Keeper>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) invocations: Arc<Invocations>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) files: Arc<Files>,
    pub(crate) config: Config,
    pub(crate) drain: Drain,
    pub(crate) started: Instant,
}

impl Catalog {
    /// What the agent in a request sees now.
    fn visible(&self, agent: &str) -> Result<Visible, Status> {
        let agent = convert::parse_optional::<AgentId>("agent", agent).map_err(malformed)?;
        Ok(Visible::new(self.catalog.current(), agent))
    }

    fn is_warming(&self) -> bool {
        self.nodes.awaits_any() || self.started.elapsed() < self.config.timings.warming
    }

    fn basic(&self, visible: &Visible, skill: &Skill) -> v1::Skill {
        let mut basic = v1::Skill::basic(skill, visible.class_of(skill, skill.shown()));
        let contained = skill.shown().definition.kind == Kind::Executable && visible.is_sandboxed();
        if contained && !visible.is_usable(skill, &self.nodes) {
            basic.eligible_nodes = 0;
        }
        basic
    }

    fn full(&self, visible: &Visible, skill: &Skill) -> v1::Skill {
        let sight = |node: &NodeId| match self.nodes.view(node) {
            Some(View { node, presence, .. }) => {
                NodeSight { name: node.name.clone(), connected: presence == Presence::Connected }
            }
            None => NodeSight { name: String::new(), connected: false },
        };
        let shadowed = visible.shadowed(&skill.key);
        let mut full = v1::Skill::full(skill, visible.class_of(skill, skill.shown()), shadowed, sight);
        full.eligible_nodes = self.basic(visible, skill).eligible_nodes;
        full
    }

    /// What is wrong with files that the agent may know of, as far as there is room, and how much more there is.
    fn diagnostics(&self, visible: &Visible) -> (Vec<v1::NodeDiagnostic>, u32) {
        let told = visible.merged().diagnosed().iter();
        let told = told.flat_map(|(node, advert)| advert.diagnostics.iter().map(move |it| (node, it)));
        page::head(told.filter(|(_, diagnostic)| visible.concerns(diagnostic)), |(node, diagnostic)| {
            v1::NodeDiagnostic {
                node_id: node.to_string(),
                node_name: self.nodes.view(node).map(|view| view.node.name.clone()).unwrap_or_default(),
                diagnostic: Some(diagnostic.into()),
            }
        })
    }

    /// What an agent can use now, or a session holds.
    fn snapshot(&self, agent: &str, session: &str) -> Result<(Arc<Snapshot>, Visible), Status> {
        if session.is_empty() {
            let visible = self.visible(agent)?;
            return Ok((self.sessions.snapshot(&visible, &self.nodes), visible));
        }
        let session = self.sessions.get(&caller(), session).map_err(refused)?;
        super::session::agrees(&session, agent)?;
        let visible = Visible::new(self.catalog.current(), session.agent);
        Ok((session.snapshot, visible))
    }
}

#[tonic::async_trait]
impl CatalogService for Catalog {
    type WatchCatalogStream = Pin<Box<dyn Stream<Item = Result<v1::WatchCatalogResponse, Status>> + Send>>;

    async fn list_skills(
        &self,
        request: Request<v1::ListSkillsRequest>,
    ) -> Result<Response<v1::ListSkillsResponse>, Status> {
        let request = request.into_inner();
        let size = page::size(request.page_size, 100, 1000)?;
        let visible = self.visible(&request.agent)?;
        let full = request.view() == v1::SkillView::Full;
        let target = request.target.map(Target::try_from).transpose().map_err(malformed)?.unwrap_or_default();
        // Only a target needs a look at nodes: without one, what they can do is counted already.
        let targets: Option<HashSet<NodeId>> = match &target {
            Target::Any => None,
            Target::Node(_) | Target::Selector(_) => {
                let wish = Wish::new(&target, None, &self.nodes).map_err(refused)?;
                Some(match wish.node() {
                    Some(node) => HashSet::from([node.clone()]),
                    None => self.nodes.matching(|view| wish.admits(view)).into_iter().collect(),
                })
            }
        };
        let offered =
            visible.after(&request.page_token).filter(|skill| match (&targets, request.include_ineligible) {
                (None, true) => true,
                (None, false) => visible.is_usable(skill, &self.nodes),
                (Some(targets), true) => targets.iter().any(|node| skill.on_node(node).is_some()),
                (Some(targets), false) => targets.iter().any(|node| {
                    let provider =
                        |variant: &Variant| variant.providers.get(node).is_some_and(Provider::is_usable);
                    let contained = || !visible.is_sandboxed() || visible.is_usable(skill, &self.nodes);
                    skill.variants.iter().any(provider) && contained()
                }),
            });
        let messages = offered.map(|skill| match full {
            true => self.full(&visible, skill),
            false => self.basic(&visible, skill),
        });
        let (skills, next_page_token) = page::fill(messages, size, |skill| skill.key.clone());
        let (diagnostics, diagnostics_left_out) = match request.page_token.is_empty() {
            true => self.diagnostics(&visible),
            false => (Vec::new(), 0),
        };
        Ok(Response::new(v1::ListSkillsResponse {
            skills,
            next_page_token,
            diagnostics,
            diagnostics_left_out,
            warming: self.is_warming(),
        }))
    }

    async fn get_skill(
        &self,
        request: Request<v1::GetSkillRequest>,
    ) -> Result<Response<v1::GetSkillResponse>, Status> {
        let request = request.into_inner();
        let visible = self.visible(&request.agent)?;
        let key = skill_key(&request.skill)?;
        let skill = visible.find(&key).map_err(refused)?;
        Ok(Response::new(v1::GetSkillResponse { skill: Some(self.full(&visible, skill)) }))
    }

    async fn explain_skill(
        &self,
        request: Request<v1::ExplainSkillRequest>,
    ) -> Result<Response<v1::ExplainSkillResponse>, Status> {
        self.explain(request.into_inner()).map(Response::new)
    }

    async fn watch_catalog(
        &self,
        request: Request<v1::WatchCatalogRequest>,
    ) -> Result<Response<Self::WatchCatalogStream>, Status> {
        let request = request.into_inner();
        let visible = self.visible(&request.agent)?;
        let watch = Watch::new(self.clone(), visible, &request);
        Ok(Response::new(Box::pin(watch.stream())))
    }

    async fn read_skill_file(
        &self,
        request: Request<v1::ReadSkillFileRequest>,
    ) -> Result<Response<v1::ReadSkillFileResponse>, Status> {
        self.read_file(request.into_inner()).await.map(Response::new)
    }

    async fn render_prompt(
        &self,
        request: Request<v1::RenderPromptRequest>,
    ) -> Result<Response<v1::RenderPromptResponse>, Status> {
        let request = request.into_inner();
        let (snapshot, visible) = self.snapshot(&request.agent, &request.session_id)?;
        let skills: Vec<_> = snapshot.prompted().filter(|skill| visible.may_name(skill.key())).collect();
        let locations: Vec<String> = skills.iter().map(|skill| prompt::location(skill.key())).collect();
        let entries: Vec<_> = skills
            .iter()
            .zip(&locations)
            .map(|(skill, location)| prompt::Entry {
                name: &skill.definition.name,
                description: &skill.definition.description,
                location,
                rank: skill.layer,
            })
            .collect();
        let rendered = prompt::render(&entries, &visible.prompt_limits());
        let key = |entry: usize| skills[entry].key().to_string();
        Ok(Response::new(v1::RenderPromptResponse {
            text: rendered.text,
            cost: u32::try_from(rendered.cost).unwrap_or(u32::MAX),
            listed: rendered.listed.into_iter().map(key).collect(),
            cut: rendered
                .cut
                .into_iter()
                .map(|cut| v1::PromptCut { skill: key(cut.entry), reason: cut.why.to_string() })
                .collect(),
        }))
    }

    async fn export_tools(
        &self,
        request: Request<v1::ExportToolsRequest>,
    ) -> Result<Response<v1::ExportToolsResponse>, Status> {
        let request = request.into_inner();
        let (snapshot, visible) = self.snapshot(&request.agent, &request.session_id)?;
        tools::export(&snapshot, &visible, request.dialect).map(Response::new)
    }
}
