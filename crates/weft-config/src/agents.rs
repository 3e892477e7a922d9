//! The `agents` block, in the shape that OpenClaw gave it.
//!
//! `agents.defaults.skills` left out: every skill. `agents.list[].skills` left out: the defaults. `[]`: none. A list:
//! exactly these, never merged with the defaults. Names are keys here, in any spelling; OpenClaw compares them
//! letter by letter.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use weft_core::{
    agents::{Agent, Agents},
    ids::{AgentId, SkillKey},
    policy::PermissionMode,
};

use crate::{
    check::Check,
    home::Home,
    table::{Place, Table},
    tree::Kind,
};

/// Keys of an agent that kernels know and weft has no use for. Anything else is a mistake.
const UNUSED: [&str; 12] = [
    "name",
    "default",
    "model",
    "identity",
    "subagents",
    "tools",
    "agentDir",
    "groupChat",
    "heartbeat",
    "memorySearch",
    "params",
    "thinkingDefault",
];
/// The same, of the defaults alone.
const UNUSED_DEFAULTS: [&str; 8] = [
    "models",
    "imageModel",
    "maxConcurrent",
    "timeoutSeconds",
    "compaction",
    "contextPruning",
    "contextTokens",
    "userTimezone",
];

/// Most characters of a prompt that can be asked for.
pub(crate) const MAX_PROMPT_CHARS: u64 = 10_000_000;

/// Reads the block. With a home directory `~/` in a workspace is expanded; without, a workspace stays as written, as
/// on a coordinator, where it is never opened.
pub(crate) fn read(place: &Place<'_>, check: &mut Check, home: Option<&Home>) -> Agents {
    let mut agents = Agents::default();
    let Some(mut table) = place.table(check) else { return agents };
    if let Some(mut defaults) = table.get(check, "defaults").and_then(|place| place.table(check)) {
        agents.defaults = agent(&mut defaults, check, home);
        defaults.pass_over(check, &UNUSED);
        defaults.pass_over(check, &UNUSED_DEFAULTS);
        defaults.finish(check);
    }
    let list = table.get(check, "list");
    let entries = table.get(check, "entries");
    if let (Some(list), Some(entries)) = (&list, &entries) {
        check.problem(entries, format!("another form of {}; keep one of them", list.path));
    }
    let mut seen: BTreeMap<AgentId, String> = BTreeMap::new();
    for place in list.and_then(|list| list.list(check)).unwrap_or_default() {
        let Some(mut table) = place.table(check) else { continue };
        let id = table.get(check, "id");
        if id.is_none() {
            check.problem(&place, "id is missing");
        }
        let id: Option<AgentId> = id.and_then(|id| id.told(check));
        let agent = listed(table, check, home);
        let Some(id) = id else { continue };
        if let Some(first) = seen.insert(id.clone(), place.path.clone()) {
            check.problem(&place, format!("agent {id} is listed twice; also as {first}"));
        }
        agents.list.insert(id, agent);
    }
    for (name, place) in entries.and_then(|entries| entries.members(check)).unwrap_or_default() {
        let agent = match place.kind() {
            Kind::Null => Agent::default(),
            _ => match place.table(check) {
                Some(table) => listed(table, check, home),
                None => continue,
            },
        };
        match name.parse() {
            Ok(id) => drop(agents.list.insert(id, agent)),
            Err(error) => check.problem(&place, format!("{error}")),
        }
    }
    table.finish(check);
    agents
}

fn listed(mut table: Table<'_>, check: &mut Check, home: Option<&Home>) -> Agent {
    let agent = agent(&mut table, check, home);
    table.pass_over(check, &UNUSED);
    table.finish(check);
    agent
}

fn agent(table: &mut Table<'_>, check: &mut Check, home: Option<&Home>) -> Agent {
    Agent {
        skills: table.get(check, "skills").and_then(|place| skill_list(&place, check)),
        permission_mode: table.get(check, "permission_mode").and_then(|place| mode(&place, check)),
        workspace: table.get(check, "workspace").and_then(|place| workspace(&place, check, home)),
        sandboxed: table.get(check, "sandbox").and_then(|place| sandboxed(&place, check)),
        nodes: table.get(check, "nodes").and_then(|place| place.told(check)),
        max_prompt_chars: table.get(check, "skillsLimits").and_then(|place| prompt_chars(&place, check)),
    }
}

/// A list of skills: items are trimmed and blank ones dropped, so `[" "]` is `[]`, which is none.
pub(crate) fn skill_list(place: &Place<'_>, check: &mut Check) -> Option<BTreeSet<SkillKey>> {
    let mut skills = BTreeSet::new();
    for item in place.list(check)? {
        match item.text(check).map(str::trim) {
            None | Some("") => {}
            Some(name) => match SkillKey::normalise(name) {
                Ok(key) => drop(skills.insert(key)),
                Err(error) => check.problem(&item, error.to_string()),
            },
        }
    }
    Some(skills)
}

/// An unknown word means the strictest mode, so that a file for a later weft never loosens anything here.
fn mode(place: &Place<'_>, check: &mut Check) -> Option<PermissionMode> {
    let word = place.text(check)?.trim();
    let mode = PermissionMode::from_word(word);
    if mode.as_str() != word {
        check.warn(
            place,
            "unknown, and taken for read-only; read-only, mutating-with-confirm and dual-sign-required are known",
        );
    }
    Some(mode)
}

fn workspace(place: &Place<'_>, check: &mut Check, home: Option<&Home>) -> Option<String> {
    let written = place.filled(check)?;
    let Some(home) = home else { return Some(written.to_owned()) };
    let expanded = home.expand(written).map(PathBuf::into_os_string).map(std::ffi::OsString::into_string);
    match expanded {
        Ok(Ok(path)) if Path::new(&path).is_relative() => {
            check.problem(place, "must be an absolute path, or start with ~/");
            None
        }
        Ok(Ok(path)) => Some(path),
        Ok(Err(_)) => {
            check.problem(place, "starts with a home directory whose name is not UTF-8; write it out");
            None
        }
        Err(why) => {
            check.problem(place, why);
            None
        }
    }
}

/// OpenClaw's `non-main` sandboxes every session but the main one. weft knows no main session: all are sandboxed.
fn sandboxed(place: &Place<'_>, check: &mut Check) -> Option<bool> {
    let mut table = place.table(check)?;
    let mode = table.get(check, "mode")?;
    // The other keys describe OpenClaw's own sandbox.
    match mode.text(check)? {
        "all" | "non-main" => Some(true),
        "off" => Some(false),
        _ => {
            check.problem(&mode, "must be all, non-main or off");
            None
        }
    }
}

fn prompt_chars(place: &Place<'_>, check: &mut Check) -> Option<usize> {
    let mut table = place.table(check)?;
    let chars = table.get(check, "maxSkillsPromptChars");
    let chars = chars.and_then(|place| place.whole(check, 0..=MAX_PROMPT_CHARS));
    table.finish(check);
    chars.and_then(|chars| usize::try_from(chars).ok())
}

#[cfg(test)]
mod tests {
    use weft_core::node::Selector;

    use super::*;
    use crate::{Configuration as _, CoordinatorFile, Error, NodeFile, Parsed};

    /// The two blocks of the seed, as they stand in it.
    const SEED: [&str; 2] = [
        r#"{
  "agents": {
    "defaults": {
      "skills": ["github", "weather"]
    },
    "list": [
      { "id": "writer" },
      { "id": "docs", "skills": ["docs-search"] },
      { "id": "locked-down", "skills": [] }
    ]
  }
}"#,
        r#"{
  "agents": {
    "defaults": {
      "skills": ["weather", "search", "summarizer"]
    },
    "list": [
      {
        "id": "main",
        "workspace": "~/.openclaw/workspace-main"
      },
      {
        "id": "coding",
        "workspace": "~/.openclaw/workspace-coding",
        "skills": ["github", "coding-agent", "summarizer"]
      },
      {
        "id": "family",
        "workspace": "~/.openclaw/workspace-family",
        "skills": ["weather"],
        "sandbox": { "mode": "all" }
      }
    ]
  }
}"#,
    ];

    fn home() -> Home {
        Home::new(Some("/home/u".into()))
    }

    fn parse(text: &str) -> Result<Parsed<CoordinatorFile>, Error> {
        CoordinatorFile::parse(text, &Home::default())
    }

    fn agents(text: &str) -> Agents {
        parse(text).unwrap_or_else(|error| panic!("{error}")).value.agents
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    fn sees(agents: &Agents, agent: &str, skill: &str) -> bool {
        agents.sees(Some(&agent.parse().unwrap()), &SkillKey::normalise(skill).unwrap())
    }

    #[test]
    fn the_blocks_of_the_seed_load_verbatim_in_both_files() {
        for text in SEED {
            let node = NodeFile::parse(text, &home()).unwrap();
            let coordinator = CoordinatorFile::parse(text, &home()).unwrap();
            assert_eq!((node.warnings, coordinator.warnings), (vec![], vec![]));
            let lists = |agents: &Agents| -> Vec<_> {
                agents.list.iter().map(|(id, agent)| (id.clone(), agent.skills.clone())).collect()
            };
            assert_eq!(lists(&node.value.agents), lists(&coordinator.value.agents));
        }
        let first = agents(SEED[0]);
        assert!(sees(&first, "writer", "github") && !sees(&first, "writer", "docs-search"));
        assert!(sees(&first, "docs", "docs_search") && !sees(&first, "docs", "github"));
        assert!(!sees(&first, "locked-down", "github"));
        let second = agents(SEED[1]);
        assert!(sees(&second, "main", "search") && !sees(&second, "family", "search"));
        assert!(second.sandboxed(Some(&"family".parse().unwrap())));
        assert!(!second.sandboxed(Some(&"main".parse().unwrap())));
    }

    #[test]
    fn a_workspace_is_expanded_where_it_is_opened_and_only_there() {
        let workspace = |agents: &Agents| agents.list["main"].workspace.clone();
        let node = NodeFile::parse(SEED[1], &home()).unwrap().value;
        assert_eq!(workspace(&node.agents).as_deref(), Some("/home/u/.openclaw/workspace-main"));
        assert_eq!(workspace(&agents(SEED[1])).as_deref(), Some("~/.openclaw/workspace-main"));
        let error = NodeFile::parse(SEED[1], &Home::default()).unwrap_err();
        assert_eq!(
            error.to_string().lines().next(),
            Some(
                "line 9: agents.list[0].workspace: starts with ~/, and there is no home directory; write it out"
            )
        );
    }

    #[test]
    fn a_map_of_entries_is_another_form_of_the_list() {
        let list = "agents: { list: [ { id: a, skills: [x] }, { id: b } ] }";
        let map = "agents: { entries: { a: { skills: [x] }, b: } }";
        assert_eq!(agents(list), agents(map));
        assert_eq!(
            refused("agents: { list: [], entries: {} }"),
            "line 1: agents.entries: another form of agents.list; keep one of them"
        );
    }

    #[test]
    fn left_out_and_empty_are_different_lists() {
        let all = agents(
            "agents: { list: [ { id: a }, { id: b, skills: ~ }, { id: c, skills: [] }, { id: d, skills: [' '] } ] }",
        );
        assert!(sees(&all, "a", "x") && sees(&all, "b", "x"));
        assert!(!sees(&all, "c", "x") && !sees(&all, "d", "x"));
        let none =
            agents("agents: { defaults: { skills: [] }, list: [ { id: a }, { id: b, skills: [' X '] } ] }");
        assert!(!sees(&none, "a", "x") && sees(&none, "b", "x") && !sees(&none, "unlisted", "x"));
    }

    #[test]
    fn every_key_of_an_agent_arrives() {
        let text = "
agents:
  defaults: { permissionMode: dual-sign-required, nodes: 'zone=a', skillsLimits: { maxSkillsPromptChars: 9 } }
  list:
    - { id: a, permission_mode: mutating-with-confirm, sandbox: { mode: non-main, docker: { image: x } } }
    - { id: b, sandbox: { mode: off, scope: agent }, workspace: /w }
    - { id: c, sandbox: { docker: {} } }
";
        let agents = agents(text);
        let defaults = &agents.defaults;
        assert_eq!(defaults.permission_mode, Some(PermissionMode::DualSignRequired));
        assert_eq!(defaults.nodes, Some("zone=a".parse::<Selector>().unwrap()));
        assert_eq!(defaults.max_prompt_chars, Some(9));
        assert_eq!(agents.list["a"].permission_mode, Some(PermissionMode::MutatingWithConfirm));
        let sandboxed: Vec<_> = agents.list.values().map(|agent| agent.sandboxed).collect();
        assert_eq!(sandboxed, [Some(true), Some(false), None]);
        assert_eq!(agents.list["b"].workspace.as_deref(), Some("/w"));
    }

    #[test]
    fn an_unknown_mode_is_the_strictest_and_told() {
        let Parsed { value, warnings } = parse("agents: { defaults: { permission_mode: yolo } }").unwrap();
        assert_eq!(value.agents.defaults.permission_mode, Some(PermissionMode::ReadOnly));
        let lines: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["line 1: agents.defaults.permission_mode: unknown, and taken for read-only; read-only, \
              mutating-with-confirm and dual-sign-required are known"]
        );
    }

    #[test]
    fn what_only_kernels_use_is_passed_over_with_a_warning() {
        let text = "
agents:
  defaults: { model: { primary: x }, maxConcurrent: 3 }
  list: [ { id: a, default: true, identity: { name: A }, subagents: {}, tools: { allow: [x] } } ]
";
        let warnings = parse(text).unwrap().warnings;
        let paths: Vec<_> = warnings.iter().map(|warning| warning.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "agents.defaults.model",
                "agents.defaults.maxConcurrent",
                "agents.list[0].default",
                "agents.list[0].identity",
                "agents.list[0].subagents",
                "agents.list[0].tools",
            ]
        );
        assert!(warnings.iter().all(|warning| warning.message == "not used by weft"));
        assert_eq!(
            refused("agents: { list: [ { id: a, maxConcurrent: 3 } ] }").split(';').next(),
            Some("line 1: agents.list[0].maxConcurrent: unknown key")
        );
    }

    #[test]
    fn each_mistake_is_told_with_its_line_path_and_remedy() {
        for (text, message) in [
            ("agents: []", "line 1: agents: must be a mapping, not a list"),
            ("agents: { lists: [] }", "line 1: agents.lists: unknown key; did you mean list?"),
            ("agents: { list: { a: {} } }", "line 1: agents.list: must be a list, not a mapping"),
            ("agents: { list: [ a ] }", "line 1: agents.list[0]: must be a mapping, not text"),
            ("agents:\n  list:\n    - skills: []", "line 3: agents.list[0]: id is missing"),
            (
                "agents: { list: [ { id: a b } ] }",
                "line 1: agents.list[0].id: agent id \"a b\" is not valid: 1 to 128 of A-Z a-z 0-9 _ - . @ :",
            ),
            (
                "agents:\n  list:\n    - id: a\n    - id: b\n    - id: a",
                "line 5: agents.list[2]: agent a is listed twice; also as agents.list[0]",
            ),
            (
                "agents: { entries: { a b: {} } }",
                "line 1: agents.entries.\"a b\": agent id \"a b\" is not valid: 1 to 128 of A-Z a-z 0-9 _ - . @ :",
            ),
            (
                "agents: { list: [ { id: a, skill: [] } ] }",
                "line 1: agents.list[0].skill: unknown key; did you mean skills?",
            ),
            (
                "agents: { defaults: { skills: weather } }",
                "line 1: agents.defaults.skills: must be a list, not text",
            ),
            (
                "agents:\n  defaults:\n    skills:\n      - a\n      - ../b",
                "line 5: agents.defaults.skills[1]: skill name \"../b\" is not valid: 1 to 255 of a-z 0-9 _ \
                 after lower-casing and taking '-', ' ' and '.' as '_'",
            ),
            (
                "agents: { defaults: { skills: [3] } }",
                "line 1: agents.defaults.skills[0]: must be text, not a number; put it in quotes",
            ),
            (
                "agents: { defaults: { sandbox: { mode: some } } }",
                "line 1: agents.defaults.sandbox.mode: must be all, non-main or off",
            ),
            (
                "agents: { defaults: { sandbox: all } }",
                "line 1: agents.defaults.sandbox: must be a mapping, not text",
            ),
            (
                "agents: { defaults: { nodes: '=x' } }",
                "line 1: agents.defaults.nodes: selector term \"=x\" is not one of label=value, label!=value, label, !label",
            ),
            (
                "agents: { defaults: { skillsLimits: { maxChars: 1 } } }",
                "line 1: agents.defaults.skillsLimits.maxChars: unknown key; known here: maxSkillsPromptChars",
            ),
        ] {
            assert_eq!(refused(text), message, "{text}");
        }
    }
}
