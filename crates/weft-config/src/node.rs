//! The file of a node.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

use serde_json::{Map, Value};
use weft_core::{agents::Agents, entries::Secret, limits, node::Labels, skill::Class};

use crate::{
    agents,
    check::Check,
    configuration::{self, Configuration},
    coordinator::address,
    entries::mapping,
    finding::{Error, Parsed},
    free::Free,
    home::Home,
    leniency::Leniency,
    plugins::Plugins,
    skills::Skills,
    suggest,
    table::{Place, Table},
    tree::Node,
};

/// What the file of a node says. `None`: nothing, so that a flag, a variable or the default holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFile {
    /// `coordinator`: where its coordinator is, as written: `http://HOST:PORT`.
    pub coordinator: Option<String>,
    /// `name`: what people call it.
    pub name: Option<String>,
    /// `labels`: its labels.
    pub labels: Labels,
    /// `state_dir`: where it keeps its identity; absolute.
    pub state_dir: Option<PathBuf>,
    /// `slots`: invocations that run at the same time.
    pub slots: Option<u16>,
    /// `queue`: invocations that may wait for a slot.
    pub queue: Option<usize>,
    /// `stop_grace_seconds`: between SIGTERM and SIGKILL.
    pub stop_grace: Option<Duration>,
    /// `drain_seconds`: for running invocations, once the node is told to stop.
    pub drain: Option<Duration>,
    /// `max_class`: the highest class that ever runs here.
    pub max_class: Option<Class>,
    /// `max_timeout_seconds`: the longest time-out that a manifest may ask for.
    pub max_timeout: Option<Duration>,
    /// `allow_loader_variables`: whether variables such as `LD_PRELOAD` may be forwarded.
    pub allow_loader_variables: Option<bool>,
    /// `health`: the address for probes and metrics.
    pub health: Option<SocketAddr>,
    /// `compat`: rules for manifests that are relaxed.
    pub compat: BTreeSet<Leniency>,
    /// `skills`: where skills come from, and what is said of them.
    pub skills: Skills,
    /// `plugins`: where plugins come from, and what is said of them.
    pub plugins: Plugins,
    /// `agents`: whose workspaces this node holds, with `~/` expanded, and what it lets agents see on its own.
    pub agents: Agents,
    /// The whole file, with the members of `config` laid over it, mapping by mapping: what `requires.config` is
    /// looked up in. In place of each secret stands `…`, which is as true as the secret.
    pub document: Free,
}

/// Nothing runs for longer, so no wait is of use that is.
const LONGEST_WAIT: u64 = limits::MAX_OPERATOR_TIMEOUT.as_secs();

impl NodeFile {
    /// A file with every key and what it means.
    pub const SAMPLE: &'static str = include_str!("../../../examples/config/node.yaml");

    pub(crate) fn read(table: Option<Table<'_>>, node: &Node, check: &mut Check, home: &Home) -> Self {
        let mut file = Self { document: Free(document(node)), ..Self::default() };
        let Some(mut table) = table else { return file };
        file.coordinator = table.get(check, "coordinator").and_then(|place| coordinator(&place, check));
        file.name = table.get(check, "name").and_then(|place| place.filled(check)).map(ToOwned::to_owned);
        if let Some(place) = table.get(check, "labels") {
            file.labels = labels(&place, check);
        }
        file.state_dir = table.get(check, "state_dir").and_then(|place| place.absolute_path(check, home));
        let mut whole = |check: &mut Check, name, range| {
            table.get(check, name).and_then(|place: Place<'_>| place.whole(check, range))
        };
        file.slots = whole(check, "slots", 1..=4096).and_then(|slots| u16::try_from(slots).ok());
        file.queue = whole(check, "queue", 0..=1_000_000).and_then(|queue| usize::try_from(queue).ok());
        file.stop_grace = whole(check, "stop_grace_seconds", 0..=LONGEST_WAIT).map(Duration::from_secs);
        file.drain = whole(check, "drain_seconds", 0..=LONGEST_WAIT).map(Duration::from_secs);
        file.max_class = table.get(check, "max_class").and_then(|place| place.told(check));
        let timeout = table.get(check, "max_timeout_seconds");
        let timeout = timeout.and_then(|place| place.whole(check, 1..=LONGEST_WAIT));
        file.max_timeout = timeout.map(Duration::from_secs);
        let loader = table.get(check, "allow_loader_variables");
        file.allow_loader_variables = loader.and_then(|place| place.flag(check));
        file.health = address(&mut table, check, "health", "127.0.0.1:9091");
        if let Some(place) = table.get(check, "compat") {
            file.compat = leniencies(&place, check);
        }
        if let Some(place) = table.get(check, "skills") {
            file.skills = Skills::read(&place, check, home);
        }
        if let Some(place) = table.get(check, "plugins") {
            file.plugins = Plugins::read(&place, check, home);
        }
        if let Some(place) = table.get(check, "agents") {
            file.agents = agents::read(&place, check, Some(home));
        }
        mapping(&mut table, check, "config");
        table.finish_with(check, "; what requires.config asks for goes below config");
        file
    }
}

impl Configuration for NodeFile {
    fn parse(text: &str, home: &Home) -> Result<Parsed<Self>, Error> {
        let read =
            |table: Option<Table<'_>>, node: &Node, check: &mut Check| Self::read(table, node, check, home);
        configuration::parse(text, Check::default(), read)
    }

    fn holds_secrets(&self) -> bool {
        let plain = |secret: &Secret| matches!(secret, Secret::Plain(text) if !text.is_empty());
        self.skills.entries.values().any(|entry| entry.api_key.iter().chain(entry.env.values()).any(plain))
    }
}

/// The scheme and the port may be left out. Whether anything answers there is not for a file to say.
fn coordinator(place: &Place<'_>, check: &mut Check) -> Option<String> {
    let written = place.text(check)?.trim();
    let rest =
        written.strip_prefix("http://").or_else(|| written.strip_prefix("https://")).unwrap_or(written);
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let named = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:%".contains(&b));
    let bracketed = bare.len() != host.len();
    if !named || (bare.contains(':') && !bracketed) || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        check.problem(place, "must be the address of a coordinator: http://HOST:PORT");
        return None;
    }
    Some(written.to_owned())
}

/// Labels that a selector can name.
fn labels(place: &Place<'_>, check: &mut Check) -> Labels {
    let mut labels = Labels::new();
    for (name, place) in place.members(check).unwrap_or_default() {
        let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '=' | '!' | ',');
        if name.is_empty() || name.contains(odd) {
            check.problem(&place, "the name of a label must be text without spaces and without = ! ,");
        }
        if let Some(value) = place.text(check) {
            labels.insert(name.to_owned(), value.to_owned());
        }
    }
    labels
}

fn leniencies(place: &Place<'_>, check: &mut Check) -> BTreeSet<Leniency> {
    let known = Leniency::ALL.map(Leniency::as_str);
    let mut chosen = BTreeSet::new();
    for item in place.list(check).unwrap_or_default() {
        let Some(word) = item.text(check).map(str::trim) else { continue };
        match (Leniency::from_word(word), suggest::nearest(word, &known)) {
            (Some(leniency), _) => drop(chosen.insert(leniency)),
            (None, Some(meant)) => check.problem(&item, format!("unknown word; did you mean {meant}?")),
            (None, None) => check.problem(&item, format!("unknown word; known are {}", known.join(", "))),
        }
    }
    chosen
}

/// What `requires.config` is looked up in.
fn document(node: &Node) -> Value {
    let mut document = match node.value() {
        Value::Object(members) => members,
        _ => return Value::Object(Map::new()),
    };
    let entries = document.get_mut("skills").and_then(|skills| skills.get_mut("entries"));
    for entry in entries.and_then(Value::as_object_mut).into_iter().flat_map(|entries| entries.values_mut()) {
        for key in ["apiKey", "api_key"] {
            entry.get_mut(key).into_iter().for_each(cover);
        }
        let env = entry.get_mut("env").and_then(Value::as_object_mut);
        env.into_iter().flat_map(|env| env.values_mut()).for_each(cover);
    }
    if let Some(Value::Object(config)) = document.get("config").cloned() {
        overlay(&mut document, config);
    }
    Value::Object(document)
}

/// Puts `…` in the place of a text, and leaves an empty one.
fn cover(value: &mut Value) {
    if value.as_str().is_some_and(|text| !text.is_empty()) {
        *value = "…".into();
    }
}

fn overlay(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (name, value) in above {
        match (below.get_mut(&name), value) {
            (Some(Value::Object(below)), Value::Object(above)) => overlay(below, above),
            (_, value) => drop(below.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn home() -> Home {
        Home::new(Some("/home/u".into()))
    }

    fn parse(text: &str) -> Result<Parsed<NodeFile>, Error> {
        NodeFile::parse(text, &home())
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_says_nothing() {
        let expected = NodeFile { document: Free(json!({})), ..NodeFile::default() };
        for text in ["", "# nothing\n", "{}"] {
            assert_eq!(parse(text).unwrap().value, expected, "{text}");
        }
    }

    #[test]
    fn every_key_arrives() {
        let text = "
coordinator: http://127.0.0.1:7433
name: web-1
labels: { zone: a }
state_dir: ~/state
slots: 4
queue: 0
stop_grace_seconds: 6
drainSeconds: 7
max_class: safe
max_timeout_seconds: 8
allow_loader_variables: true
health: 127.0.0.1:9091
compat: [clamp-timeouts, loose-members]
skills:
  dirs: [/etc/weft/skills, relative, ~/s]
  personal: false
  bundledDir: /usr/share/weft/skills
  allowBundled: []
  allow_always: true
  load: { extraDirs: [/x], watch: false, watchDebounceMs: 10 }
plugins:
  enabled: false
  load: { paths: [~/p] }
  entries: { my.plugin: { enabled: false, config: { a: 1 } }, silent: }
agents: { list: [ { id: a, workspace: ~/w } ] }
config: { browser: { enabled: true } }
";
        let Parsed { value, warnings } = parse(text).unwrap();
        assert_eq!(warnings, []);
        let seconds = |n| Some(Duration::from_secs(n));
        let skills = Skills {
            dirs: Some(vec!["/etc/weft/skills".into(), "relative".into(), "/home/u/s".into()]),
            personal: false,
            bundled_dir: Some("/usr/share/weft/skills".into()),
            allow_bundled: Some(BTreeSet::new()),
            allow_always: true,
            extra_dirs: vec!["/x".into()],
            watch: false,
            debounce: Duration::from_millis(10),
            ..Skills::default()
        };
        let plugin = crate::Plugin { enabled: Some(false), config: Free(json!({"a": 1})) };
        let plugins = Plugins {
            enabled: false,
            paths: vec!["/home/u/p".into()],
            entries: [("my.plugin".into(), plugin), ("silent".into(), crate::Plugin::default())].into(),
        };
        assert_eq!(value.agents.list["a"].workspace.as_deref(), Some("/home/u/w"));
        assert_eq!(
            value,
            NodeFile {
                coordinator: Some("http://127.0.0.1:7433".into()),
                name: Some("web-1".into()),
                labels: [("zone".into(), "a".into())].into(),
                state_dir: Some("/home/u/state".into()),
                slots: Some(4),
                queue: Some(0),
                stop_grace: seconds(6),
                drain: seconds(7),
                max_class: Some(Class::Safe),
                max_timeout: seconds(8),
                allow_loader_variables: Some(true),
                health: Some(([127, 0, 0, 1], 9091).into()),
                compat: [Leniency::ClampTimeouts, Leniency::LooseMembers].into(),
                skills,
                plugins,
                agents: value.agents.clone(),
                document: value.document.clone(),
            }
        );
    }

    #[test]
    fn the_document_is_the_file_with_config_laid_over_it() {
        let text = "labels: { zone: a }\nconfig: { browser: { enabled: true }, labels: { rack: 3 }, slots: [] }\nslots: 2";
        let document = parse(text).unwrap().value.document;
        assert_eq!(
            *document,
            json!({
                "labels": {"zone": "a", "rack": 3},
                "browser": {"enabled": true},
                "slots": [],
                "config": {"browser": {"enabled": true}, "labels": {"rack": 3}, "slots": []},
            })
        );
    }

    #[test]
    fn each_mistake_is_told_with_its_line_path_and_remedy() {
        for (text, message) in [
            ("labls: {}", "line 1: labls: unknown key; did you mean labels?"),
            (
                "skills: { extraDirs: [] }",
                "line 1: skills.extraDirs: unknown key; known here: dirs, personal, bundledDir, allowBundled, \
                 allowAlways, load, entries",
            ),
            (
                "coordinator: ftp://x",
                "line 1: coordinator: must be the address of a coordinator: http://HOST:PORT",
            ),
            ("labels: { zone: 1 }", "line 1: labels.zone: must be text, not a number; put it in quotes"),
            ("labels: [a]", "line 1: labels: must be a mapping, not a list"),
            (
                "labels: { a=b: c }",
                "line 1: labels.\"a=b\": the name of a label must be text without spaces and without = ! ,",
            ),
            ("state_dir: state", "line 1: state_dir: must be an absolute path"),
            ("state_dir: ''", "line 1: state_dir: must not be empty"),
            (
                "state_dir: ~root/x",
                "line 1: state_dir: starts with the home directory of a named user; write it out",
            ),
            ("slots: 0", "line 1: slots: must be a whole number from 1 to 4096"),
            ("slots: 2.5", "line 1: slots: must be a whole number from 1 to 4096"),
            ("slots: '4'", "line 1: slots: must be a number, not text"),
            (
                "stop_grace_seconds: 90000",
                "line 1: stop_grace_seconds: must be a whole number from 0 to 86400",
            ),
            ("max_class: low", "line 1: max_class: class \"low\" is not one of safe, mutating, dangerous"),
            ("compat: [clamp-timeout]", "line 1: compat[0]: unknown word; did you mean clamp-timeouts?"),
            (
                "compat: [all]",
                "line 1: compat[0]: unknown word; known are clamp-timeouts, blank-descriptions, long-names, loose-members",
            ),
            ("compat: all", "line 1: compat: must be a list, not text"),
            ("skills: { dirs: /x }", "line 1: skills.dirs: must be a list, not text"),
            (
                "skills: { dirs: [~x/y] }",
                "line 1: skills.dirs[0]: starts with the home directory of a named user; write it out",
            ),
            (
                "plugins: { load: { path: [] } }",
                "line 1: plugins.load.path: unknown key; did you mean paths?",
            ),
            ("config: [a]", "line 1: config: must be a mapping, not a list"),
            (
                "plugins:\n  entries:\n    a:\n      config: { x: 1, x: 2 }",
                "line 4: plugins.entries.a.config.x: a key must not come twice; also on line 4",
            ),
        ] {
            assert_eq!(refused(text), message, "{text}");
        }
        let hint = refused("browser: { enabled: true }");
        assert!(
            hint.ends_with("plugins, agents, config; what requires.config asks for goes below config"),
            "{hint}"
        );
    }

    #[test]
    fn keys_that_are_like_none_are_counted_as_strangers() {
        let strangers = |text: &str| parse(text).unwrap_err().strangers;
        assert_eq!(strangers("slot: 2\nslots: none"), 0, "meant for a node, with mistakes");
        assert_eq!(strangers("listen: x\nskills: { limits: {} }"), 2, "meant for a coordinator");
    }

    #[test]
    fn an_address_may_leave_out_scheme_and_port() {
        for text in ["http://h:1", "https://h", "h", "h:1", "10.0.0.1:1", "http://[::1]:9338/", "[::1]"] {
            let value = parse(&format!("coordinator: '{text}'")).unwrap().value;
            assert_eq!(value.coordinator.as_deref(), Some(text));
        }
        for text in
            ["", "http://", "http://:1", "h:x", "h:99999", "::1", "http://h/path", "a b", "h?x", "u:p@h:1"]
        {
            assert!(parse(&format!("coordinator: '{text}'")).is_err(), "{text}");
        }
    }
}
