//! What one agent sees of the catalog at one moment: the one filter that every path goes through.
//!
//! A skill that an agent may not see is not here, and whoever asks for it by name is told what is told of a name that
//! nobody offers.

use std::sync::Arc;

use weft_core::{
    advert::{Row, Scope},
    catalog::{Invalid, Skill, Variant},
    ids::{AgentId, NodeId, SkillKey},
    policy::PermissionMode,
    prompt::Limits,
    refusal::Refusal,
    skill::{Class, Diagnostic, Kind},
};

use crate::{
    catalog::{Compiled, Merged},
    nodes::{Nodes, View},
};

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Visible {
    merged: Arc<Merged>,
    agent: Option<AgentId>,
}

impl Visible {
    /// What an agent sees of a catalog; without one, everything that is for every agent.
    pub(crate) fn new(merged: Arc<Merged>, agent: Option<AgentId>) -> Self {
        Self { merged, agent }
    }

    /// Who sees.
    pub(crate) fn agent(&self) -> Option<&AgentId> {
        self.agent.as_ref()
    }

    /// The moment at which it sees.
    pub(crate) fn merged(&self) -> &Arc<Merged> {
        &self.merged
    }

    /// Whether the agent may know of a skill with this key, should there be one.
    pub(crate) fn may_name(&self, key: &SkillKey) -> bool {
        self.merged.settings().agents.sees(self.agent(), key)
    }

    /// A skill, if there is one that the agent may see.
    pub(crate) fn get(&self, key: &SkillKey) -> Option<&Arc<Skill>> {
        self.merged.find(self.agent(), key).filter(|_| self.may_name(key))
    }

    /// Why a key does not load where it does not.
    pub(crate) fn invalid(&self, key: &SkillKey) -> Option<&Invalid> {
        self.merged.invalid(self.agent(), key).filter(|_| self.may_name(key))
    }

    /// Whether what is wrong somewhere concerns the agent: who names none is told everything.
    pub(crate) fn concerns(&self, diagnostic: &Diagnostic) -> bool {
        match (self.agent(), &diagnostic.scope, &diagnostic.key) {
            (None, _, _) => true,
            (Some(agent), Scope::Agent(owner), _) if agent != owner => false,
            (Some(_), _, Some(key)) => self.may_name(key),
            (Some(_), _, None) => false,
        }
    }

    /// A skill that is asked for by name.
    ///
    /// # Errors
    /// When there is none: it does not load, or nobody offers it, or the agent may not see it.
    pub(crate) fn find(&self, key: &SkillKey) -> Result<&Arc<Skill>, Refusal> {
        self.get(key).ok_or_else(|| match self.invalid(key) {
            Some(invalid) => Refusal::SkillInvalid { skill: key.clone(), diagnostics: listed(invalid) },
            None => Refusal::SkillNotFound { skill: key.to_string() },
        })
    }

    /// The skills whose keys come after this one, by key; all of them when it is empty.
    pub(crate) fn after<'a>(&'a self, after: &'a str) -> impl Iterator<Item = &'a Arc<Skill>> {
        self.merged.after(self.agent(), after).filter(|skill| self.may_name(&skill.key))
    }

    /// What a key means for every agent, where this one has a copy of its own that comes before it.
    pub(crate) fn hidden_by_own(&self, key: &SkillKey) -> Option<&Arc<Skill>> {
        let own = self.get(key).is_some_and(|skill| skill.scope != Scope::All);
        self.merged.find(None, key).filter(|_| own)
    }

    /// The bounds of the agent's prompt.
    pub(crate) fn prompt_limits(&self) -> Limits {
        let settings = self.merged.settings();
        let own = settings.agents.max_prompt_chars(self.agent());
        Limits { chars: own.unwrap_or(settings.prompt.chars), ..settings.prompt }
    }

    /// Copies on nodes that another copy there wins over.
    pub(crate) fn shadowed<'a>(
        &'a self,
        key: &'a SkillKey,
    ) -> impl Iterator<Item = (&'a NodeId, &'a Arc<Row>)> {
        self.merged.shadowed(self.agent(), key).filter(|_| self.may_name(key))
    }

    /// The compiled definition of a variant.
    pub(crate) fn compiled(&self, variant: &Variant) -> Option<&Arc<Compiled>> {
        self.merged.compiled(variant)
    }

    /// The class that the policy judges when this variant is to be run.
    pub(crate) fn class_of(&self, skill: &Skill, variant: &Variant) -> Class {
        self.merged.class_of(skill, variant)
    }

    /// How far the agent may go without people.
    pub(crate) fn permission_mode(&self) -> PermissionMode {
        self.merged.settings().agents.permission_mode(self.agent())
    }

    /// Whether everything that the agent runs must run in a sandbox.
    pub(crate) fn is_sandboxed(&self) -> bool {
        self.merged.settings().agents.sandboxed(self.agent())
    }

    /// Whether the copies that a node holds in the agent's workspace count.
    pub(crate) fn has_workspace_on(&self, view: &View) -> bool {
        let agents = &self.merged.settings().agents;
        self.agent().is_some_and(|agent| agents.admits_workspace(agent, &view.node.labels))
    }

    /// Whether some node can run a skill for the agent now, or the agent can read it.
    pub(crate) fn is_usable(&self, skill: &Skill, nodes: &Nodes) -> bool {
        let sandboxes = |variant: &Variant| {
            let mut usable = variant.providers.iter().filter(|(_, provider)| provider.is_usable());
            usable.any(|(node, _)| nodes.view(node).is_some_and(|view| view.node.sandbox))
        };
        skill.meant().any(|variant| {
            let contained = !self.is_sandboxed() || variant.definition.kind == Kind::Instructions;
            variant.ready > 0 && (contained || sandboxes(variant))
        })
    }
}

/// The diagnostics of all nodes in one list.
pub(crate) fn listed(invalid: &Invalid) -> Vec<(NodeId, Diagnostic)> {
    let of_node = |(node, list): (&NodeId, &Arc<[Diagnostic]>)| {
        list.iter().map(|diagnostic| (node.clone(), diagnostic.clone())).collect::<Vec<_>>()
    };
    invalid.iter().flat_map(of_node).collect()
}
