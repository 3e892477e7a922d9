//! Why a skill can or cannot be run, node by node.

use std::path::Path;

use tonic::Status;
use weft_core::{
    advert::Scope, catalog::Skill, ids::SkillKey, node::Target, refusal::Refusal, skill::Diagnostic,
};
use weft_proto::{convert, v1};

use super::{Catalog, malformed, refused, skill_key};
use crate::{
    nodes::View,
    router::{self, Wish},
    visible::Visible,
};

impl Catalog {
    pub(super) fn explain(
        &self,
        request: v1::ExplainSkillRequest,
    ) -> Result<v1::ExplainSkillResponse, Status> {
        let visible = self.visible(&request.agent)?;
        let key = skill_key(&request.skill)?;
        let target = request.target.map(Target::try_from).transpose().map_err(malformed)?.unwrap_or_default();
        let pinned = convert::parse_optional("digest", &request.digest).map_err(malformed)?;
        let skill = visible.get(&key);
        if skill.is_none() && visible.invalid(&key).is_none() {
            return Err(refused(Refusal::SkillNotFound { skill: key.to_string() }));
        }
        let wish =
            Wish::new(&target, pinned, &self.nodes).map_err(refused)?.in_sandbox(visible.is_sandboxed());
        let nodes: Vec<_> = self
            .nodes
            .views()
            .iter()
            .map(|view| self.explain_node(&visible, skill.map(|skill| &**skill), &key, view, &wish))
            .collect();
        Ok(v1::ExplainSkillResponse {
            skill: key.to_string(),
            runnable: nodes.iter().any(|node| node.candidate),
            nodes,
            policy: skill
                .map(|skill| self.invocations.admission().explain_policy(&visible, skill))
                .unwrap_or_default(),
        })
    }

    fn explain_node(
        &self,
        visible: &Visible,
        skill: Option<&Skill>,
        key: &SkillKey,
        view: &View,
        wish: &Wish<'_>,
    ) -> v1::NodeExplanation {
        let node = &view.node;
        let advert = self.catalog.advert_of(&node.id);
        let offered = skill.and_then(|skill| skill.on_node(&node.id));
        let concerns = |diagnostic: &&Diagnostic| match &diagnostic.key {
            Some(other) => other == key && visible.concerns(diagnostic),
            // What is odd about a directory is so for every skill in it.
            None => offered.is_some_and(|(_, row)| {
                !diagnostic.path.is_empty() && Path::new(&row.path).starts_with(&diagnostic.path)
            }),
        };
        let mut diagnostics: Vec<v1::Diagnostic> =
            advert.iter().flat_map(|advert| &advert.diagnostics).filter(concerns).map(Into::into).collect();
        let own = advert.iter().flat_map(|advert| &advert.rows).filter(|row| {
            row.key == *key && matches!(&row.scope, Scope::Agent(agent) if Some(agent) == visible.agent())
        });
        diagnostics.extend(own.filter(|_| !visible.has_workspace_on(view)).map(|row| v1::Diagnostic {
            severity: v1::Severity::Warning.into(),
            path: row.path.clone(),
            rule: "workspace".into(),
            message: "does not count: the coordinator's configuration gives the agent no workspace on this node"
                .into(),
            ..Default::default()
        }));
        let mut obstacles: Vec<v1::Obstacle> = skill
            .map(|skill| router::obstacles(skill, view, wish))
            .unwrap_or_default()
            .into_iter()
            .map(|obstacle| v1::Obstacle { kind: obstacle.kind, reason: obstacle.reason })
            .collect();
        let common = visible.hidden_by_own(key).and_then(|common| common.on_node(&node.id));
        let broken = diagnostics.iter().find(|diagnostic| diagnostic.severity() == v1::Severity::Error);
        match (offered, broken, common) {
            (None, _, Some((_, row))) => {
                obstacles.retain(|obstacle| obstacle.kind != "absent");
                let reason =
                    format!("the agent has a copy of its own, which comes before the one in {}", row.path);
                obstacles.push(v1::Obstacle { kind: "layer".into(), reason });
            }
            (None, Some(diagnostic), None) => {
                obstacles.retain(|obstacle| obstacle.kind != "absent");
                let reason = format!("{}: {}", diagnostic.rule, diagnostic.message);
                obstacles.push(v1::Obstacle { kind: "invalid".into(), reason });
            }
            (None, None, None) if skill.is_none() => {
                let reason = "it does not have the skill".into();
                obstacles.push(v1::Obstacle { kind: "absent".into(), reason });
            }
            (None, None, None) | (Some(_), _, _) => {}
        }
        let mut shadowed: Vec<v1::ShadowedCopy> = visible
            .shadowed(key)
            .filter(|(owner, _)| **owner == node.id)
            .map(|(_, row)| convert::shadowed_copy(&node.id, &node.name, row))
            .collect();
        if let (Some((_, own)), Some((_, row))) = (offered, common) {
            let mut copy = convert::shadowed_copy(&node.id, &node.name, row);
            copy.shadowed_by.clone_from(&own.path);
            shadowed.push(copy);
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
            layer: offered.map_or(v1::Layer::Unspecified, |(_, row)| row.layer.into()).into(),
            diagnostics,
            shadowed,
        }
    }
}
