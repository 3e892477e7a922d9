//! What an operator says of agents: which skills each may see, where its own copies lie, how far it may go.
//!
//! Location decides which copy of a skill wins, the list decides who sees it: two independent dimensions. Every path
//! (list, get, watch, prompt, invoke) asks the one function [`Agents::sees`].

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ids::{AgentId, SkillKey},
    node::{Labels, Selector},
    policy::PermissionMode,
};

/// The `agents` block of a configuration. The default knows no agent and hides nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agents {
    /// What holds for an agent whose own entry is silent, and for one that has none.
    pub defaults: Agent,
    /// The agents by id.
    pub list: BTreeMap<AgentId, Agent>,
}

/// What is said of one agent. `None` everywhere: silent, the defaults hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// The skills that it sees: the final set, never merged with another. Empty: none.
    pub skills: Option<BTreeSet<SkillKey>>,
    /// The directory with its own copies, as written. On a coordinator it only says that there is one.
    pub workspace: Option<String>,
    /// How far it may go without people.
    pub permission_mode: Option<PermissionMode>,
    /// Whether everything it runs must run in a sandbox.
    pub sandboxed: Option<bool>,
    /// The nodes whose workspaces count for it.
    pub nodes: Option<Selector>,
    /// Most characters of its prompt.
    pub max_prompt_chars: Option<usize>,
}

impl Agents {
    /// What a field says for an agent: its own entry first, then the defaults.
    fn say<'a, T>(&'a self, agent: Option<&AgentId>, field: impl Fn(&'a Agent) -> Option<T>) -> Option<T> {
        agent.and_then(|agent| field(self.list.get(agent)?)).or_else(|| field(&self.defaults))
    }

    /// Whether an agent may see, and therefore run, a skill. Who names no agent is no agent: no list hides
    /// anything from it.
    pub fn sees(&self, agent: Option<&AgentId>, skill: &SkillKey) -> bool {
        match agent {
            None => true,
            Some(_) => self.say(agent, |agent| agent.skills.as_ref()).is_none_or(|list| list.contains(skill)),
        }
    }

    /// How far an agent may go without people.
    pub fn permission_mode(&self, agent: Option<&AgentId>) -> PermissionMode {
        self.stated_mode(agent).unwrap_or_default()
    }

    /// How far an agent may go without people, where something is said about it.
    pub fn stated_mode(&self, agent: Option<&AgentId>) -> Option<PermissionMode> {
        self.say(agent, |agent| agent.permission_mode)
    }

    /// Whether everything that an agent runs must run in a sandbox.
    pub fn sandboxed(&self, agent: Option<&AgentId>) -> bool {
        self.say(agent, |agent| agent.sandboxed).unwrap_or_default()
    }

    /// Most characters of an agent's prompt, where something is said about it.
    pub fn max_prompt_chars(&self, agent: Option<&AgentId>) -> Option<usize> {
        self.say(agent, |agent| agent.max_prompt_chars)
    }

    /// Whether the copies that a node with these labels holds in an agent's workspace count. A node alone cannot
    /// give an agent its copies: the agent must be listed here with a workspace or with nodes.
    pub fn admits_workspace(&self, agent: &AgentId, labels: &Labels) -> bool {
        let Some(own) = self.list.get(agent) else { return false };
        let has_workspace = own.workspace.is_some() || self.defaults.workspace.is_some();
        match (&own.nodes, &self.defaults.nodes) {
            (Some(nodes), _) => nodes.matches(labels),
            (None, nodes) => has_workspace && nodes.as_ref().is_none_or(|nodes| nodes.matches(labels)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> Option<BTreeSet<SkillKey>> {
        Some(names.iter().map(|name| SkillKey::normalise(name).unwrap()).collect())
    }

    fn agents(defaults: Option<&[&str]>, own: Option<Option<&[&str]>>) -> Agents {
        let defaults = Agent { skills: defaults.and_then(set), ..Agent::default() };
        let entry = own.map(|skills| Agent { skills: skills.and_then(set), ..Agent::default() });
        Agents { defaults, list: entry.into_iter().map(|entry| ("a".parse().unwrap(), entry)).collect() }
    }

    #[test]
    fn the_four_rules_of_the_list() {
        let agent: AgentId = "a".parse().unwrap();
        let x = SkillKey::normalise("x").unwrap();
        let sees = |defaults, own| agents(defaults, own).sees(Some(&agent), &x);
        assert!(sees(None, Some(None)), "nothing is said: all skills");
        assert!(sees(Some(&["X"]), Some(None)), "a silent entry inherits");
        assert!(!sees(Some(&["y"]), Some(None)), "a silent entry inherits");
        assert!(!sees(None, Some(Some(&[]))), "an empty list is none");
        assert!(!sees(Some(&["x"]), Some(Some(&[]))), "an empty list is none");
        assert!(!sees(Some(&["x"]), Some(Some(&["y"]))), "a list is final");
        assert!(sees(Some(&["y"]), Some(Some(&["x"]))), "a list is final");
        assert!(!sees(Some(&["y"]), None), "an agent without entry has the defaults");
        assert!(agents(Some(&[]), None).sees(None, &x), "who names no agent is none");
    }

    #[test]
    fn a_node_gives_an_agent_its_copies_only_where_the_operator_lets_it() {
        let agent: AgentId = "a".parse().unwrap();
        let labels = Labels::from([("zone".into(), "x".into())]);
        let admits = |own: Option<Agent>| {
            let list = own.into_iter().map(|own| (agent.clone(), own)).collect();
            Agents { list, ..Agents::default() }.admits_workspace(&agent, &labels)
        };
        let workspace = Some("/w".to_owned());
        let nodes = |text: &str| Some(text.parse().unwrap());
        assert!(!admits(None));
        assert!(!admits(Some(Agent::default())));
        assert!(admits(Some(Agent { workspace: workspace.clone(), ..Agent::default() })));
        assert!(admits(Some(Agent { nodes: nodes("zone=x"), ..Agent::default() })));
        assert!(!admits(Some(Agent { workspace, nodes: nodes("zone=y"), ..Agent::default() })));
    }
}
