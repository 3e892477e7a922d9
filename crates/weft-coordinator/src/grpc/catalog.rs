//! `weft.v1.CatalogService`.

use std::{ops::Bound, path::Path, sync::Arc};

use tokio::time::Instant;
use tonic::{Request, Response, Status};
use weft_core::{
    catalog::Skill,
    ids::{AgentId, NodeId},
    node::Target,
    refusal::Refusal,
    skill::Diagnostic,
};
use weft_proto::{
    convert::{self, NodeSight},
    v1::{self, catalog_service_server::CatalogService},
};

use super::{malformed, page, refused, skill_key};
use crate::{
    catalog::Keeper,
    config::Config,
    invocations::Invocations,
    nodes::{Nodes, Presence, View},
    router::{self, Wish},
};

pub(crate) struct Catalog {
    pub(crate) catalog: Arc<Keeper>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) invocations: Arc<Invocations>,
    pub(crate) config: Config,
    pub(crate) started: Instant,
}

impl Catalog {
    fn connected(&self, node: &NodeId) -> bool {
        self.nodes.view(node).is_some_and(|view| view.presence == Presence::Connected)
    }

    fn full(&self, skill: &Skill, views: &[View]) -> v1::Skill {
        let class = self.catalog.class_of(skill, skill.shown());
        v1::Skill::full(skill, class, |node| match views.iter().find(|view| view.node.id == *node) {
            Some(view) => {
                NodeSight { name: &view.node.name, connected: view.presence == Presence::Connected }
            }
            None => NodeSight { name: "", connected: false },
        })
    }

    fn diagnostics(&self, views: &[View]) -> Vec<v1::NodeDiagnostic> {
        views
            .iter()
            .filter_map(|view| Some((view, self.catalog.advert_of(&view.node.id)?)))
            .flat_map(|(view, advert)| {
                advert
                    .diagnostics
                    .iter()
                    .map(|diagnostic| v1::NodeDiagnostic {
                        node_id: view.node.id.to_string(),
                        node_name: view.node.name.clone(),
                        diagnostic: Some(diagnostic.into()),
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

#[tonic::async_trait]
impl CatalogService for Catalog {
    async fn list_skills(
        &self,
        request: Request<v1::ListSkillsRequest>,
    ) -> Result<Response<v1::ListSkillsResponse>, Status> {
        let request = request.into_inner();
        let size = page::size(request.page_size, 100, 1000)?;
        convert::parse_optional::<AgentId>("agent", &request.agent).map_err(malformed)?;
        let full = request.view() == v1::SkillView::Full;
        let target = request.target.map(Target::try_from).transpose().map_err(malformed)?.unwrap_or_default();
        let wish = Wish::new(&target, None, &self.nodes).map_err(refused)?;
        let views = self.nodes.views();
        let catalog = self.catalog.current();
        let rest =
            catalog.skills.range::<str, _>((Bound::Excluded(request.page_token.as_str()), Bound::Unbounded));
        let offered = rest.map(|(_, skill)| skill).filter(|skill| {
            let mut fitting = views.iter().filter(|view| skill.on_node(&view.node.id).is_some());
            fitting.any(|view| {
                let obstacles = router::obstacles(skill, view, &wish);
                let none_but = |kinds: &[&str]| obstacles.iter().all(|o| kinds.contains(&o.kind.as_str()));
                match request.include_ineligible {
                    // Everything that the target has, whether or not it can run now.
                    true => !obstacles.iter().any(|obstacle| obstacle.kind == "target"),
                    false => none_but(&["busy", "kind"]),
                }
            })
        });
        let messages = offered.map(|skill| {
            if full {
                return self.full(skill, &views);
            }
            let class = self.catalog.class_of(skill, skill.shown());
            v1::Skill::basic(skill, class, |node| self.connected(node))
        });
        let (skills, next_page_token) = page::fill(messages, size, |skill| skill.key.clone());
        let (diagnostics, diagnostics_left_out) = match request.page_token.is_empty() {
            true => page::head(self.diagnostics(&views)),
            false => (Vec::new(), 0),
        };
        Ok(Response::new(v1::ListSkillsResponse {
            skills,
            next_page_token,
            diagnostics,
            diagnostics_left_out,
            warming: self.started.elapsed() < self.config.timings.warming,
        }))
    }

    async fn get_skill(
        &self,
        request: Request<v1::GetSkillRequest>,
    ) -> Result<Response<v1::GetSkillResponse>, Status> {
        let request = request.into_inner();
        convert::parse_optional::<AgentId>("agent", &request.agent).map_err(malformed)?;
        let key = skill_key(&request.skill)?;
        let catalog = self.catalog.current();
        let Some(skill) = catalog.skills.get(&key) else {
            return Err(refused(match catalog.invalid.get(&key) {
                Some(diagnostics) => Refusal::SkillInvalid { skill: key, diagnostics: diagnostics.clone() },
                None => Refusal::SkillNotFound { skill: key.to_string() },
            }));
        };
        Ok(Response::new(v1::GetSkillResponse { skill: Some(self.full(skill, &self.nodes.views())) }))
    }

    async fn explain_skill(
        &self,
        request: Request<v1::ExplainSkillRequest>,
    ) -> Result<Response<v1::ExplainSkillResponse>, Status> {
        let request = request.into_inner();
        convert::parse_optional::<AgentId>("agent", &request.agent).map_err(malformed)?;
        let key = skill_key(&request.skill)?;
        let target = request.target.map(Target::try_from).transpose().map_err(malformed)?.unwrap_or_default();
        let pinned = convert::parse_optional("digest", &request.digest).map_err(malformed)?;
        let wish = Wish::new(&target, pinned, &self.nodes).map_err(refused)?;
        let catalog = self.catalog.current();
        let (skill, invalid) = (catalog.skills.get(&key), catalog.invalid.get(&key));
        if skill.is_none() && invalid.is_none() {
            return Err(refused(Refusal::SkillNotFound { skill: key.to_string() }));
        }
        let nodes: Vec<_> = self
            .nodes
            .views()
            .iter()
            .map(|view| self.explain(skill.map(|skill| &**skill), &key, view, &wish))
            .collect();
        Ok(Response::new(v1::ExplainSkillResponse {
            skill: key.to_string(),
            runnable: nodes.iter().any(|node| node.candidate),
            nodes,
            policy: skill.map(|skill| self.invocations.admission().explain_policy(skill)).unwrap_or_default(),
        }))
    }
}

impl Catalog {
    fn explain(
        &self,
        skill: Option<&Skill>,
        key: &weft_core::ids::SkillKey,
        view: &View,
        wish: &Wish<'_>,
    ) -> v1::NodeExplanation {
        let node = &view.node;
        let advert = self.catalog.advert_of(&node.id);
        let offered = skill.and_then(|skill| skill.on_node(&node.id));
        let concerns = |diagnostic: &&Diagnostic| match &diagnostic.key {
            Some(other) => other == key,
            // What is odd about a directory is so for every skill in it.
            None => offered.is_some_and(|(_, row)| {
                !diagnostic.path.is_empty() && Path::new(&row.path).starts_with(&diagnostic.path)
            }),
        };
        let diagnostics: Vec<v1::Diagnostic> =
            advert.iter().flat_map(|advert| &advert.diagnostics).filter(concerns).map(Into::into).collect();
        let mut obstacles: Vec<v1::Obstacle> = skill
            .map(|skill| router::obstacles(skill, view, wish))
            .unwrap_or_default()
            .into_iter()
            .map(|obstacle| v1::Obstacle { kind: obstacle.kind, reason: obstacle.reason })
            .collect();
        let broken = diagnostics.iter().find(|diagnostic| diagnostic.severity() == v1::Severity::Error);
        match (offered, broken) {
            (None, Some(diagnostic)) => {
                obstacles.retain(|obstacle| obstacle.kind != "absent");
                let reason = format!("{}: {}", diagnostic.rule, diagnostic.message);
                obstacles.push(v1::Obstacle { kind: "invalid".into(), reason });
            }
            (None, None) if skill.is_none() => {
                obstacles.push(v1::Obstacle {
                    kind: "absent".into(),
                    reason: "it does not have the skill".into(),
                });
            }
            (None, None) | (Some(_), _) => {}
        }
        v1::NodeExplanation {
            node_id: node.id.to_string(),
            node_name: node.name.clone(),
            candidate: obstacles.is_empty(),
            obstacles,
            verdicts: offered
                .map(|(_, row)| row.verdicts.iter().map(Into::into).collect())
                .unwrap_or_default(),
            digest: offered.map(|(variant, _)| variant.digest.to_string()).unwrap_or_default(),
            path: offered.map(|(_, row)| row.path.clone()).unwrap_or_default(),
            diagnostics,
            shadowed: skill
                .iter()
                .flat_map(|skill| &skill.shadowed)
                .filter(|(owner, _)| *owner == node.id)
                .map(|(_, row)| convert::shadowed_copy(&node.id, &node.name, row))
                .collect(),
        }
    }
}
