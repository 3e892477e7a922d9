//! The gate vocabulary of `metadata`: `os`, `requires` and `always`, bare or under the name of a vendor, and by which
//! names an operator speaks of the skill: `primaryEnv` and `skillKey`.
//!
//! What cannot be understood is never taken for "no condition": it makes the skill ineligible, with the reason.

use serde_json::{Map, Value};
use weft_core::{ids::SkillKey, json, skill::Requirements};

use crate::{
    frontmatter,
    report::{Problem, shown},
};

/// The conditions found in the `metadata` of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gating {
    /// One for each block that has conditions; all must hold.
    pub(crate) blocks: Vec<Requirements>,
    /// The variable that an operator's `apiKey` is the value of.
    pub(crate) primary_env: Option<String>,
    /// The key under which operators speak of the skill.
    pub(crate) settings_key: Option<SkillKey>,
    /// Why some of it could not be read.
    pub(crate) broken: Option<String>,
    /// What is odd about it.
    pub(crate) warnings: Vec<Problem>,
}

impl Gating {
    /// Adds what another place says: all conditions must hold, and of the names those here come first.
    pub(crate) fn add(&mut self, other: Self) {
        self.blocks.extend(other.blocks);
        self.primary_env = self.primary_env.take().or(other.primary_env);
        self.settings_key = self.settings_key.take().or(other.settings_key);
        self.warnings.extend(other.warnings);
        self.broken = self.broken.take().or(other.broken);
    }
}

/// Names under which vendors put their block. The third and the fourth are what the second was called before.
const VENDORS: [&str; 6] = ["ongrid", "openclaw", "clawdbot", "clawdis", "nanobot", "qwenpaw"];
/// Members of a block that are read.
const BLOCK: [&str; 7] = ["os", "requires", "always", "primaryEnv", "primary_env", "skillKey", "skill_key"];
const REQUIRES: [&str; 4] = ["bins", "anyBins", "env", "config"];
/// Longest name of a variable, in bytes: what a coordinator takes.
const MAX_VARIABLE: usize = 256;
/// Deepest wrapping of JSON text in JSON text that is read.
const MAX_WRAPPING: usize = 3;

/// Reads a `metadata` value: a map, or the text of one.
pub(crate) fn read(metadata: &Value) -> Gating {
    let mut gating = Gating::default();
    if let Err(reason) = read_metadata(metadata, &mut gating) {
        gating.broken = Some(reason);
    }
    gating
}

fn read_metadata(metadata: &Value, gating: &mut Gating) -> Result<(), String> {
    let Some(map) = as_map(metadata, "metadata", 0)? else { return Ok(()) };
    refuse_other_case(&map, &VENDORS, "metadata")?;
    read_block(&map, "metadata", gating)?;
    for vendor in VENDORS {
        let place = format!("metadata.{vendor}");
        let Some(value) = map.get(vendor) else { continue };
        if let Some(block) = as_map(value, &place, 0)? {
            read_block(&block, &place, gating)?;
        }
    }
    let known = |name: &str| VENDORS.contains(&name) || BLOCK.contains(&name);
    let conditions = |value: &Value| {
        value.get("os").is_some_and(|os| !os.is_null()) || value.get("requires").is_some_and(Value::is_object)
    };
    for (name, _) in map.iter().filter(|(name, value)| !known(name) && conditions(value)) {
        let message =
            format!("conditions below metadata.{} are not read: weft does not know that vendor", shown(name));
        gating.warnings.push(Problem::warning("metadata", message));
    }
    Ok(())
}

/// Reads `os` and `requires` that stand beside `metadata` instead of in it, and are meant all the same. There, others
/// list by `requires` the skills that one builds on.
pub(crate) fn read_beside(mut block: Map<String, Value>) -> Gating {
    let mut gating = Gating::default();
    let names = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    if block.get("requires").is_some_and(names) {
        block.remove("requires");
        let message = "requires is a list and no condition; conditions are a map in metadata";
        gating.warnings.push(Problem::warning("requires", message));
    }
    if let Err(reason) = read_block(&block, "", &mut gating) {
        gating.broken = Some(reason);
    }
    gating
}

/// How messages call a member of a block.
fn at(place: &str, member: &str) -> String {
    if place.is_empty() { member.to_owned() } else { format!("{place}.{member}") }
}

/// The map that a value is, or whose text it is. `None` when there is nothing.
fn as_map(value: &Value, place: &str, wrapping: usize) -> Result<Option<Map<String, Value>>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Object(map) => Ok(Some(map.clone())),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) if wrapping < MAX_WRAPPING => {
            let value = json::parse(text.as_bytes())
                .or_else(|error| frontmatter::parse_flow(text).ok_or(error))
                .map_err(|error| {
                    format!("{place} is neither a map nor the text of one: {}", error.message)
                })?;
            as_map(&value, place, wrapping + 1)
        }
        _ => Err(format!("{place} is neither a map nor the text of one")),
    }
}

fn read_block(block: &Map<String, Value>, place: &str, gating: &mut Gating) -> Result<(), String> {
    refuse_other_case(block, &BLOCK, place)?;
    let mut found = Requirements {
        os: list(block.get("os"), &at(place, "os"))?.iter().map(|os| os_name(os)).collect(),
        always: block.get("always") == Some(&Value::Bool(true)),
        ..Requirements::default()
    };
    if let Some(value) = block.get("always").filter(|value| !value.is_boolean() && !value.is_null()) {
        let message = format!("{place}.always is {}, not the boolean true, and does not count", kind(value));
        gating.warnings.push(Problem::warning("metadata", message));
    }
    names(block, place, gating)?;
    for os in &found.os {
        if !matches!(os.as_str(), "linux" | "darwin" | "win32") {
            gating.warnings.push(Problem::warning(
                "os",
                format!(
                    "{}: {:?} is not one of linux, darwin, win32 and matches no host",
                    at(place, "os"),
                    shown(os)
                ),
            ));
        }
    }
    match block.get("requires") {
        None | Some(Value::Null) => {}
        Some(Value::Object(requires)) => {
            let place = at(place, "requires");
            refuse_other_case(requires, &REQUIRES, &place)?;
            found.bins = list(requires.get("bins"), &format!("{place}.bins"))?;
            found.any_bins = list(requires.get("anyBins"), &format!("{place}.anyBins"))?;
            found.env = list(requires.get("env"), &format!("{place}.env"))?;
            found.config = list(requires.get("config"), &format!("{place}.config"))?;
            for name in requires.keys().filter(|name| !REQUIRES.contains(&name.as_str())) {
                gating.warnings.push(Problem::warning(
                    "metadata",
                    format!("{place}: unknown condition {:?} is not checked", shown(name)),
                ));
            }
        }
        Some(_) => return Err(format!("{} is not a map", at(place, "requires"))),
    }
    if found != Requirements::default() {
        gating.blocks.push(found);
    }
    Ok(())
}

/// The names by which an operator speaks of the skill; those of an earlier block stay.
fn names(block: &Map<String, Value>, place: &str, gating: &mut Gating) -> Result<(), String> {
    if let Some((member, name)) = text(block, ["primaryEnv", "primary_env"], place)? {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let begins = name.starts_with(|c: char| !c.is_ascii_digit());
        if !begins || name.len() > MAX_VARIABLE || !name.bytes().all(plain) {
            return Err(format!("{place}.{member}: {:?} is no name of a variable", shown(name)));
        }
        gating.primary_env.get_or_insert_with(|| name.to_owned());
    }
    if let Some((member, name)) = text(block, ["skillKey", "skill_key"], place)? {
        let key = SkillKey::normalise(name)
            .map_err(|_| format!("{place}.{member}: {:?} cannot be the key of a skill", shown(name)))?;
        gating.settings_key.get_or_insert(key);
    }
    Ok(())
}

/// The trimmed text of the first of these members that is there, with the member's name.
fn text<'a>(
    block: &'a Map<String, Value>,
    members: [&'static str; 2],
    place: &str,
) -> Result<Option<(&'static str, &'a str)>, String> {
    let found = members.into_iter().find_map(|member| Some((member, block.get(member)?)));
    match found {
        None | Some((_, Value::Null)) => Ok(None),
        Some((member, Value::String(text))) => Ok(Some((member, text.trim()))),
        Some((member, value)) => Err(format!("{place}.{member} is {}, not a string", kind(value))),
    }
}

/// What a value is, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// A member that differs from a known one by case only would be a condition that nobody checks.
fn refuse_other_case(map: &Map<String, Value>, known: &[&str], place: &str) -> Result<(), String> {
    for name in map.keys() {
        if let Some(meant) = known.iter().find(|known| **known != name && same_but_for_case(name, known)) {
            return Err(format!("{place}: {:?} differs from {meant:?} by case only", shown(name)));
        }
    }
    Ok(())
}

/// Whether two names are the same for a parser that ignores case, as some do for all of Unicode.
pub(crate) fn same_but_for_case(name: &str, known: &str) -> bool {
    name.to_lowercase().replace('ſ', "s") == known.to_lowercase()
}

/// A list, or one string with commas between the items. Blank items are left out.
fn list(value: Option<&Value>, place: &str) -> Result<Vec<String>, String> {
    let items: Vec<&str> = match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => text.split(',').collect(),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().ok_or_else(|| format!("{place}: an item is not a string")))
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(format!("{place} is neither a list nor a string")),
    };
    Ok(items.into_iter().map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

fn os_name(name: &str) -> String {
    match name.to_ascii_lowercase().as_str() {
        "macos" | "osx" => "darwin".to_owned(),
        "windows" => "win32".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expected() -> Vec<Requirements> {
        vec![Requirements {
            os: vec!["linux".into()],
            bins: vec!["uv".into()],
            any_bins: vec!["a".into(), "b".into()],
            env: vec!["KEY".into()],
            config: vec!["browser.enabled".into()],
            always: false,
        }]
    }

    #[test]
    fn a_block_reads_the_same_as_a_map_as_json_text_and_as_loose_json_text() {
        let block = json!({"os": ["linux"], "requires":
            {"bins": ["uv"], "anyBins": ["a", "b"], "env": ["KEY"], "config": ["browser.enabled"]}});
        let loose = "{ openclaw: { os: 'linux', requires: { bins: [uv,], anyBins: [\"a\", b], env: [KEY], \
                     config: [browser.enabled], }, }, }";
        for metadata in [
            block.clone(),
            json!({"openclaw": block}),
            json!({"ongrid": block}),
            json!({"openclaw": block.to_string()}),
            json!(json!({"openclaw": block}).to_string()),
            json!(loose),
        ] {
            let gating = read(&metadata);
            assert_eq!(gating.broken, None, "{metadata}");
            assert_eq!(gating.blocks, expected(), "{metadata}");
        }
    }

    #[test]
    fn every_block_counts() {
        let gating = read(
            &json!({"os": "linux", "openclaw": {"requires": {"bins": "a, b"}}, "ongrid": {"scope": "x"}}),
        );
        assert_eq!(gating.blocks.len(), 2);
        assert_eq!(gating.blocks[1].bins, ["a", "b"]);
    }

    #[test]
    fn what_cannot_be_read_is_broken_and_never_no_condition() {
        for metadata in [
            json!("{ not: [closed"),
            json!("just words"),
            json!(5),
            json!([]),
            json!({"openclaw": 5}),
            json!({"openclaw": "{"}),
            json!({"requires": ["bins"]}),
            json!({"requires": {"bins": {"a": 1}}}),
            json!({"requires": {"bins": ["a", 5]}}),
            json!({"requires": {"Bins": ["a"]}}),
            json!({"requires": {"anybins": ["a"]}}),
            json!({"OS": ["linux"]}),
            json!({"OpenClaw": {}}),
            json!({"os": 5}),
            json!("{\"os\": [\"linux\"], \"os\": []}"),
            json!({"primaryEnv": "A-B"}),
            json!({"primaryEnv": "1A"}),
            json!({"primaryEnv": " "}),
            json!({"primaryEnv": ["A"]}),
            json!({"primary_env": "A=B"}),
            json!({"openclaw": {"primaryEnv": "A".repeat(257)}}),
            json!({"primaryenv": "A"}),
            json!({"skillKey": "a/b"}),
            json!({"skillKey": ""}),
            json!({"skill_key": 5}),
            json!({"Always": true}),
        ] {
            assert!(read(&metadata).broken.is_some(), "{metadata}");
        }
        for metadata in [json!(null), json!(""), json!({}), json!({"author": "x"}), json!({"requires": null})]
        {
            assert_eq!(read(&metadata), Gating::default(), "{metadata}");
        }
    }

    #[test]
    fn other_names_of_systems_are_understood_and_unknown_ones_match_nothing_with_a_warning() {
        let gating = read(&json!({"os": ["macos", "OSX", "windows", "Linux", "beos"]}));
        assert_eq!(gating.blocks[0].os, ["darwin", "darwin", "win32", "linux", "beos"]);
        assert_eq!(gating.warnings.len(), 1);
        assert!(gating.warnings[0].message.contains("beos"));
    }

    #[test]
    fn always_is_the_boolean_true_and_nothing_else() {
        let always = |value: Value| {
            let gating = read(&json!({"openclaw": {"always": value, "requires": {"bins": ["a"]}}}));
            assert_eq!(gating.broken, None);
            (gating.blocks[0].always, gating.warnings.len())
        };
        assert_eq!(always(json!(true)), (true, 0));
        assert_eq!(always(json!(false)), (false, 0));
        assert_eq!(always(Value::Null), (false, 0));
        for value in [json!("true"), json!(1), json!([true]), json!({})] {
            assert_eq!(always(value.clone()), (false, 1), "{value}");
        }
        // Of another block nothing is waived.
        let gating = read(&json!({"always": true, "openclaw": {"requires": {"bins": ["a"]}}}));
        assert_eq!(gating.blocks.iter().map(|block| block.always).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn the_first_names_found_are_those_that_an_operator_uses() {
        let gating = read(&json!({
            "openclaw": {"primaryEnv": " SECOND ", "skillKey": "Docs-Search"},
            "ongrid": {"primary_env": "FIRST"},
            "clawdbot": {"skill_key": "third"},
        }));
        assert_eq!(gating.broken, None);
        assert_eq!(gating.primary_env.as_deref(), Some("FIRST"));
        assert_eq!(gating.settings_key.as_ref().map(SkillKey::as_str), Some("docs_search"));
        assert!(gating.blocks.is_empty(), "names are no conditions");
        let bare = read(&json!({"primaryEnv": "BARE", "openclaw": {"primaryEnv": "LATER"}}));
        assert_eq!(bare.primary_env.as_deref(), Some("BARE"));
        assert_eq!(read(&json!({"primaryEnv": null, "skillKey": null})), Gating::default());
    }

    #[test]
    fn conditions_under_a_name_that_is_no_vendor_are_told_and_not_checked() {
        for block in [json!({"requires": {"bins": ["a"]}}), json!({"os": ["linux"]})] {
            for vendor in ["nanobot", "qwenpaw"] {
                assert_eq!(read(&json!({vendor: block})).blocks.len(), 1, "{vendor}");
            }
            let gating = read(&json!({"acme": block}));
            assert_eq!((gating.broken, gating.blocks.len()), (None, 0));
            assert_eq!(
                gating.warnings[0].message,
                "conditions below metadata.acme are not read: weft does not know that vendor"
            );
        }
        assert_eq!(read(&json!({"acme": {"emoji": "x", "requires": ["y"]}})), Gating::default());
    }

    #[test]
    fn unknown_conditions_are_named() {
        let gating = read(&json!({"requires": {"bin": ["a"]}}));
        assert!(gating.warnings[0].message.contains("\"bin\""));
    }
}
