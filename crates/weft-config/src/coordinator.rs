//! The file of a coordinator.

use std::{net::SocketAddr, path::PathBuf};

use weft_core::{agents::Agents, policy::Allowed};

use crate::{
    agents::{self, MAX_PROMPT_CHARS},
    check::Check,
    configuration::{self, Configuration},
    finding::{Error, Parsed},
    home::Home,
    table::{Place, Table},
};

/// What the file of a coordinator says. `None`: nothing, so that a flag, a variable or the default holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorFile {
    /// `listen`: the address to listen on.
    pub listen: Option<SocketAddr>,
    /// `name`: its name, shown in the logs of nodes.
    pub name: Option<String>,
    /// `allow`: the class that may run without a person.
    pub allow: Option<Allowed>,
    /// `health`: the address for probes and metrics.
    pub health: Option<SocketAddr>,
    /// `state_dir`: where it keeps what its next life should know; absolute.
    pub state_dir: Option<PathBuf>,
    /// `agents`: who may see what. Workspaces stay as written.
    pub agents: Agents,
    /// `skills.load.watch`: whether a session sees changes at the boundary of a turn.
    pub watch: bool,
    /// `skills.limits.maxSkillsInPrompt`.
    pub max_skills_in_prompt: Option<usize>,
    /// `skills.limits.maxSkillsPromptChars`.
    pub max_prompt_chars: Option<usize>,
}

impl Default for CoordinatorFile {
    fn default() -> Self {
        Self {
            listen: None,
            name: None,
            allow: None,
            health: None,
            state_dir: None,
            agents: Agents::default(),
            watch: true,
            max_skills_in_prompt: None,
            max_prompt_chars: None,
        }
    }
}

impl CoordinatorFile {
    /// A file with every key and what it means.
    pub const SAMPLE: &'static str = include_str!("../../../examples/config/coordinator.yaml");

    pub(crate) fn read(table: Option<Table<'_>>, check: &mut Check, home: &Home) -> Self {
        let mut file = Self::default();
        let Some(mut table) = table else { return file };
        file.listen = address(&mut table, check, "listen", "127.0.0.1:9338");
        file.name = table.get(check, "name").and_then(|place| place.filled(check)).map(ToOwned::to_owned);
        file.allow = table.get(check, "allow").and_then(|place| place.told(check));
        file.health = address(&mut table, check, "health", "127.0.0.1:9090");
        file.state_dir = table.get(check, "state_dir").and_then(|place| place.absolute_path(check, home));
        if let Some(place) = table.get(check, "agents") {
            file.agents = agents::read(&place, check, None);
        }
        if let Some(place) = table.get(check, "skills") {
            file.read_skills(&place, check);
        }
        table.finish(check);
        file
    }

    fn read_skills(&mut self, place: &Place<'_>, check: &mut Check) {
        let Some(mut table) = place.table(check) else { return };
        if let Some(mut load) = table.get(check, "load").and_then(|place| place.table(check)) {
            if let Some(watch) = load.get(check, "watch").and_then(|place| place.flag(check)) {
                self.watch = watch;
            }
            load.finish(check);
        }
        if let Some(mut limits) = table.get(check, "limits").and_then(|place| place.table(check)) {
            let mut most = |name, most| {
                let number = limits.get(check, name).and_then(|place| place.whole(check, 0..=most));
                number.and_then(|number| usize::try_from(number).ok())
            };
            self.max_skills_in_prompt = most("maxSkillsInPrompt", 100_000);
            self.max_prompt_chars = most("maxSkillsPromptChars", MAX_PROMPT_CHARS);
            limits.finish(check);
        }
        table.finish(check);
    }
}

impl Configuration for CoordinatorFile {
    fn parse(text: &str, home: &Home) -> Result<Parsed<Self>, Error> {
        configuration::parse(text, Check::default(), |table, _, check| Self::read(table, check, home))
    }

    fn holds_secrets(&self) -> bool {
        false
    }
}

/// An address to listen on.
pub(crate) fn address(
    table: &mut Table<'_>,
    check: &mut Check,
    name: &'static str,
    example: &str,
) -> Option<SocketAddr> {
    let place = table.get(check, name)?;
    place.parsed(check, &format!("an IP address and a port, such as {example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Parsed<CoordinatorFile>, Error> {
        CoordinatorFile::parse(text, &Home::default())
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_says_nothing() {
        for text in ["", "# nothing\n", "{}", "skills:\nagents: null\nlisten: ~\n"] {
            assert_eq!(parse(text).unwrap().value, CoordinatorFile::default(), "{text}");
        }
    }

    #[test]
    fn every_key_arrives() {
        let text = "
listen: 127.0.0.1:7433
name: hub
allow: mutating
health: '[::1]:9090'
skills: { load: { watch: false }, limits: { maxSkillsInPrompt: 3, max_skills_prompt_chars: 400 } }
agents: { list: [ { id: a } ] }
";
        let Parsed { value, warnings } = parse(text).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(value.listen, Some(([127, 0, 0, 1], 7433).into()));
        assert_eq!(value.name.as_deref(), Some("hub"));
        assert_eq!(value.allow, Some("mutating".parse().unwrap()));
        assert_eq!(value.health, Some("[::1]:9090".parse().unwrap()));
        assert!(!value.watch);
        assert_eq!((value.max_skills_in_prompt, value.max_prompt_chars), (Some(3), Some(400)));
        assert_eq!(value.agents.list.len(), 1);
    }

    #[test]
    fn each_mistake_is_told_with_its_line_path_and_remedy() {
        for (text, message) in [
            ("lisen: x", "line 1: lisen: unknown key; did you mean listen?"),
            (
                "zzz: x",
                "line 1: zzz: unknown key; known here: listen, name, allow, health, state_dir, agents, skills",
            ),
            ("\nlisten: here", "line 2: listen: must be an IP address and a port, such as 127.0.0.1:9338"),
            ("name: 7", "line 1: name: must be text, not a number; put it in quotes"),
            ("name: '  '", "line 1: name: must be text on one line, and not blank"),
            ("allow: safe", "line 1: allow: safe skills are always allowed; name mutating or dangerous"),
            ("allow: all", "line 1: allow: expected mutating or dangerous"),
            ("- a", "line 1: must be a mapping, not a list"),
            ("name: a\nname: b", "line 2: name: a key must not come twice; also on line 1"),
            ("skills: [a]", "line 1: skills: must be a mapping, not a list"),
            (
                "skills:\n  load:\n    watch: yes",
                "line 3: skills.load.watch: must be true or false, not text",
            ),
            (
                "skills: { limits: { maxSkillsInPrompt: -1 } }",
                "line 1: skills.limits.maxSkillsInPrompt: must be a whole number from 0 to 100000",
            ),
            (
                "skills: { limits: { maxSkillsInPrompt: 1, max_skills_in_prompt: 2 } }",
                "line 1: skills.limits.max_skills_in_prompt: the same key as maxSkillsInPrompt; keep one of them",
            ),
            (
                "\"a b\\u001b[2J\": 1",
                "line 1: \"a b\\x1b[2J\": unknown key; known here: listen, name, allow, health, state_dir, agents, skills",
            ),
        ] {
            assert_eq!(refused(text), message, "{text}");
        }
    }

    #[test]
    fn all_problems_are_told_at_once_and_no_more_than_anybody_reads() {
        assert_eq!(refused("listen: x\nnam: y\nskills: 3").lines().count(), 3);
        let many: String = (0..500).map(|n| format!("zzz{n}: 1\n")).collect();
        let error = parse(&many).unwrap_err();
        assert_eq!(error.problems.len(), 101);
        assert_eq!(error.problems[100].message, "and 400 more problems");
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let text = format!("name: {}", "x".repeat(1024 * 1024));
        assert_eq!(refused(&text), "is larger than 1048576 bytes, which is the limit");
    }
}
