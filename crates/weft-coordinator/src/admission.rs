//! Whether a request becomes an invocation. Everything a caller can be refused for is checked here, once.

use std::{sync::Arc, time::Duration};

use weft_core::{
    args::{Args, ArgsError},
    catalog::Skill,
    ids::{Digest, NodeId},
    invocation::Request,
    policy::{Decision, Evidence, PermissionMode, decide},
    refusal::Refusal,
    schema::Violation,
    skill::{Class, ClassSource},
};

use crate::{
    catalog::Keeper,
    nodes::Nodes,
    router::{self, Candidate, Wish},
    visible::Visible,
};

/// What an admitted request may do.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) class: Class,
    pub(crate) idempotent: bool,
    /// The longest run: the shorter of what the manifest and the caller say.
    pub(crate) budget: Duration,
    pub(crate) mode: PermissionMode,
    pub(crate) evidence: Evidence,
    /// It must run in a sandbox.
    pub(crate) sandboxed: bool,
}

/// Where an invocation goes next.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) node: NodeId,
    pub(crate) digest: Digest,
}

/// What the checks ask.
pub(crate) struct Admission<'a> {
    pub(crate) catalog: &'a Keeper,
    pub(crate) nodes: &'a Nodes,
    pub(crate) evidence: Evidence,
}

impl Admission<'_> {
    /// Checks a request against the catalog, its skill's schema and the policy, and routes it.
    pub(crate) fn admit(&self, request: &Request) -> Result<(Plan, Route), Refusal> {
        let visible = self.visible(request);
        let skill = visible.find(&request.skill)?;
        let wish = Wish::new(&request.target, request.pinned, self.nodes)?
            .among(&request.among)
            .in_sandbox(visible.is_sandboxed());
        let args = Args::parse(request.args.clone()).map_err(|error| args_refused(request, &error))?;
        let Some(candidate) = self.route(skill, &wish, &[]) else {
            return Err(router::refusal(skill, &self.nodes.views(), &wish));
        };
        let variant = candidate.variant;
        let compiled = visible
            .compiled(variant)
            .ok_or_else(|| Refusal::Internal("a variant without its definition".into()))?;
        if let Err(violations) = args.validate(&compiled.schema) {
            let fits_another = skill.schema_conflict
                && skill
                    .variants
                    .iter()
                    .filter_map(|other| visible.compiled(other))
                    .any(|other| !Arc::ptr_eq(other, compiled) && args.validate(&other.schema).is_ok());
            return Err(if fits_another && request.pinned.is_none() {
                Refusal::SchemaConflict { skill: skill.key.clone() }
            } else {
                Refusal::ArgsInvalid { skill: skill.key.clone(), violations }
            });
        }
        let definition = &compiled.definition;
        let plan = Plan {
            class: visible.class_of(skill, variant),
            idempotent: definition.idempotent,
            budget: request.budget.map_or(definition.timeout, |budget| budget.min(definition.timeout)),
            mode: visible.permission_mode(),
            evidence: self.evidence,
            sandboxed: visible.is_sandboxed(),
        };
        self.judge(request, &plan)?;
        Ok((plan, Route { node: candidate.node, digest: variant.digest }))
    }

    fn route<'s>(&self, skill: &'s Skill, wish: &Wish<'_>, avoid: &[NodeId]) -> Option<Candidate<'s>> {
        router::route(skill, wish, avoid, || self.nodes.draw(), |node| self.nodes.view(node))
    }

    /// Whether a node that is on its way could take a request for which there is none now.
    pub(crate) fn waits(&self, request: &Request) -> bool {
        let visible = self.visible(request);
        let Some(skill) = visible.get(&request.skill) else { return false };
        let Ok(wish) = Wish::new(&request.target, request.pinned, self.nodes) else { return false };
        let wish = wish.among(&request.among).in_sandbox(visible.is_sandboxed());
        self.route(skill, &wish, &[]).is_none()
            && self.nodes.any_awaited(|node| skill.on_node(node).is_some())
    }

    fn visible(&self, request: &Request) -> Visible {
        Visible::new(self.catalog.current(), request.agent.clone())
    }

    fn judge(&self, request: &Request, plan: &Plan) -> Result<(), Refusal> {
        match decide(plan.class, plan.mode, plan.evidence) {
            Decision::Allow => {}
            decision @ (Decision::NeedsConfirmation | Decision::NeedsTwoSignatures | Decision::Deny) => {
                return Err(Refusal::PolicyDenied {
                    skill: request.skill.clone(),
                    class: plan.class,
                    reason: denial(decision, plan.mode),
                });
            }
        }
        if plan.class > Class::Safe && request.request_id.is_none() {
            return Err(Refusal::RequestInvalid {
                field: "request_id".into(),
                message: format!(
                    "is required for {} skills, so that a retry does not run {} twice",
                    plan.class, request.skill
                ),
            });
        }
        Ok(())
    }

    /// Another way for an invocation that was admitted: some candidate, but none of `avoid`.
    pub(crate) fn reroute(&self, request: &Request, digest: Digest, avoid: &[NodeId]) -> Option<Route> {
        let visible = self.visible(request);
        let skill = visible.get(&request.skill)?;
        // What was admitted is what may run: the same files, whose args and class were judged.
        let wish = Wish::new(&request.target, None, self.nodes)
            .ok()?
            .with_digest(digest)
            .in_sandbox(visible.is_sandboxed());
        self.route(skill, &wish, avoid)
            .map(|candidate| Route { node: candidate.node, digest: candidate.variant.digest })
    }

    /// What the policy says of a skill, for people.
    pub(crate) fn explain_policy(&self, visible: &Visible, skill: &Skill) -> String {
        let shown = skill.shown();
        let class = visible.class_of(skill, shown);
        let source = match (class == shown.definition.class, shown.definition.class_source) {
            (true, ClassSource::Declared) => String::new(),
            (true, ClassSource::Defaulted) => " (assumed: the manifest names no class)".into(),
            (false, _) => format!(
                " (first accepted here; the manifest now says {}, which a node cannot lower by itself)",
                shown.definition.class
            ),
        };
        let mode = visible.permission_mode();
        let verdict = match decide(class, mode, self.evidence) {
            Decision::Allow if class > Class::Safe => {
                "may run unconfirmed because the coordinator was started with --allow".into()
            }
            Decision::Allow => "may run".into(),
            decision @ (Decision::NeedsConfirmation | Decision::NeedsTwoSignatures | Decision::Deny) => {
                format!("may not run: {}", denial(decision, mode))
            }
        };
        format!("class {class}{source}: {verdict}")
    }
}

fn args_refused(request: &Request, error: &ArgsError) -> Refusal {
    let violation = Violation { pointer: String::new(), message: error.to_string() };
    Refusal::ArgsInvalid { skill: request.skill.clone(), violations: vec![violation] }
}

fn denial(decision: Decision, mode: PermissionMode) -> String {
    let why = match decision {
        Decision::NeedsConfirmation => "a person would have to confirm it",
        Decision::NeedsTwoSignatures => "two people would have to sign it",
        Decision::Deny | Decision::Allow => "the permission mode does not include it",
    };
    format!(
        "{why} (permission mode {}); the operator can start the coordinator with --allow mutating or \
         --allow dangerous",
        mode.as_str()
    )
}
