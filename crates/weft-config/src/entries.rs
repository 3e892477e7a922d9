//! `skills.entries`: what is said of single skills.

use std::collections::BTreeMap;

use weft_core::{
    entries::{Entries, Entry, Secret},
    ids::SkillKey,
};

use crate::{
    check::Check,
    home::Home,
    secret,
    table::{Place, Table},
    tree::Kind,
};

/// Reads the entries. A key is a skill's name or the key that its document names instead, in any spelling.
pub(crate) fn read(place: &Place<'_>, check: &mut Check, home: &Home) -> Entries {
    let mut entries = Entries::new();
    let mut spellings: BTreeMap<SkillKey, &str> = BTreeMap::new();
    for (name, place) in place.members(check).unwrap_or_default() {
        let entry = entry(&place, check, home);
        match SkillKey::normalise(name.trim()) {
            Err(error) => check.problem(&place, error.to_string()),
            Ok(key) => match spellings.insert(key.clone(), name) {
                // The same spelling twice is reported as such.
                Some(first) if first != name => {
                    check.problem(&place, format!("the same skill as {first}; keep one of them"));
                }
                _ => {
                    entries.insert(key, entry);
                }
            },
        }
    }
    entries
}

fn entry(place: &Place<'_>, check: &mut Check, home: &Home) -> Entry {
    let mut entry = Entry::default();
    if matches!(place.kind(), Kind::Null) {
        return entry;
    }
    let Some(mut table) = place.table(check) else { return entry };
    entry.enabled = table.get(check, "enabled").and_then(|place| place.flag(check));
    entry.api_key = table.get(check, "apiKey").and_then(|place| api_key(&place, check, home));
    if let Some(place) = table.get(check, "env") {
        entry.env = variables(&place, check, home);
    }
    // Free; it stands in the document, where `requires.config` finds it.
    mapping(&mut table, check, "config");
    table.finish(check);
    entry
}

/// As with OpenClaw a blank one is none.
fn api_key(place: &Place<'_>, check: &mut Check, home: &Home) -> Option<Secret> {
    match secret::read(place, check, home)? {
        Secret::Plain(text) if text.trim().is_empty() => {
            check.warn(place, "blank, and taken for none");
            None
        }
        secret => Some(secret),
    }
}

fn variables(place: &Place<'_>, check: &mut Check, home: &Home) -> BTreeMap<String, Secret> {
    let mut env = BTreeMap::new();
    for (index, (name, member)) in place.members(check).unwrap_or_default().into_iter().enumerate() {
        if !secret::is_variable(name) {
            // The name is not shown: people write NAME=value here.
            let message =
                "is no name of a variable; write NAME: value, with A-Z a-z 0-9 _ and no digit first";
            check.problem(place, format!("key {} {message}", index + 1));
            continue;
        }
        if matches!(member.kind(), Kind::Null) {
            continue;
        }
        if let Some(secret) = secret::read(&member, check, home) {
            env.insert(name.to_owned(), secret);
        }
    }
    env
}

/// A block of which only is asked that it is a mapping.
pub(crate) fn mapping<'a>(table: &mut Table<'a>, check: &mut Check, name: &'static str) -> Option<Place<'a>> {
    let place = table.get(check, name)?;
    place.members(check)?;
    Some(place)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Configuration as _, Error, NodeFile, Parsed};

    fn parse(text: &str) -> Result<Parsed<NodeFile>, Error> {
        NodeFile::parse(text, &Home::new(Some("/home/u".into())))
    }

    fn refused(entry: &str) -> String {
        let text = format!("skills:\n  entries:\n    x: {entry}");
        parse(&text).unwrap_err().to_string()
    }

    const SECRETS: &str = "
skills:
  entries:
    Image-Lab:
      apiKey: hunter2
      env:
        PLAIN: hunter2
        EMPTY: ''
        OPENCLAW: { source: env, provider: default, id: FROM_NODE }
        FILE: { source: file, id: ~/secret }
        LEFT_OUT: ~
      config: { mode: fast }
    other: { enabled: false }
    silent:
";

    #[test]
    fn every_key_of_an_entry_arrives() {
        let NodeFile { skills, document, .. } = parse(SECRETS).unwrap().value;
        let entry = &skills.entries["image_lab"];
        assert_eq!(entry.api_key, Some(Secret::Plain("hunter2".into())));
        let expected = [
            ("EMPTY", Secret::Plain(String::new())),
            ("FILE", Secret::File("/home/u/secret".into())),
            ("OPENCLAW", Secret::Variable("FROM_NODE".into())),
            ("PLAIN", Secret::Plain("hunter2".into())),
        ];
        assert_eq!(entry.env, expected.map(|(name, secret)| (name.to_owned(), secret)).into());
        assert!(skills.entries["other"].is_off());
        assert_eq!(skills.entries["silent"], Entry::default());
        assert_eq!(document.pointer("/skills/entries/Image-Lab/config"), Some(&json!({"mode": "fast"})));
    }

    #[test]
    fn nothing_that_can_be_printed_shows_a_secret() {
        let parsed = parse(SECRETS).unwrap();
        assert!(!format!("{parsed:?}").contains("hunter2"));
        assert!(!parsed.value.document.to_string().contains("hunter2"));
        assert_eq!(parsed.value.document.pointer("/skills/entries/Image-Lab/apiKey"), Some(&json!("…")));
        assert_eq!(parsed.value.document.pointer("/skills/entries/Image-Lab/env/EMPTY"), Some(&json!("")));
    }

    #[test]
    fn no_mistake_beside_a_secret_shows_it() {
        for entry in [
            "{ apiKey: hunter2, enabled: hunter2 }",
            "{ apiKey: hunter2, apiKey: hunter2 }",
            "{ apiKey: hunter2, api_key: hunter2 }",
            "{ apiKey: [hunter2] }",
            "{ apiKey: { hunter2 } }",
            "{ apiKey: { source: hunter2, id: hunter2 } }",
            "{ apiKey: { source: env, id: 'hunter2 hunter2' } }",
            "{ apiKey: { source: file, id: hunter2 } }",
            "{ apiKey: { source: env, id: A, hunter2: hunter2 } }",
            "{ apiKey: \"a\\0hunter2\" }",
            "{ apiKey: '${hunter2}', enabled: 1 }",
            "{ env: [NAME=hunter2] }",
            "{ env: { NAME=hunter2 } }",
            "{ env: { NAME=hunter2: a, NAME=hunter2: b } }",
            "{ env: NAME=hunter2 }",
            "{ env: { NAME: [hunter2] } }",
            "{ config: hunter2 }",
            "hunter2",
            "\n      apiKey: \"hunter2\n      enabled: 1",
            "\n      apiKey: hunter2: hunter2",
            "\n      apiKey: 'hunter2'hunter2",
            "\n      apiKey: hunter2\n     enabled: hunter2",
            "\n      apiKey: *hunter2",
            "\n      apiKey: &hunter2 a",
            "\n      apiKey: !hunter2 a",
            "\n      apiKey: !!int hunter2",
            "\n      apiKey: !!binary hunter2!",
            "\n      apiKey: @hunter2",
            "\n      apiKey: `hunter2`",
            "\n      apiKey: %hunter2",
            "\n      apiKey: \"\\hunter2\"",
            "\n      apiKey: |hunter2",
            "\n      apiKey: {hunter2",
            "\n      ? [hunter2]\n      : b",
            "\n      ? {hunter2: hunter2}\n      : b",
            "\n      apiKey: 1e999",
        ] {
            let message = refused(entry);
            assert!(!message.contains("hunter2") && !message.contains("1e999"), "{entry}: {message}");
        }
        let warnings =
            parse("skills: { entries: { x: { apiKey: '${hunter2}', env: { A: '${hunter2}' } } } }").unwrap();
        assert_eq!(warnings.warnings.len(), 2);
        assert!(!format!("{warnings:?}").contains("hunter2"));
    }

    #[test]
    fn each_mistake_is_told_with_its_line_path_and_remedy() {
        for (entry, message) in [
            ("{ enable: true }", "line 3: skills.entries.x.enable: unknown key; did you mean enabled?"),
            ("{ enabled: 'false' }", "line 3: skills.entries.x.enabled: must be true or false, not text"),
            (
                "{ apiKey: { source: exec, command: x } }",
                "line 3: skills.entries.x.apiKey: unknown key; known here: source, id, provider\n\
                 line 3: skills.entries.x.apiKey.source: weft runs no program to get a secret; use env or file",
            ),
            (
                "{ apiKey: { id: X } }",
                "line 3: skills.entries.x.apiKey: source is missing; env and file are known",
            ),
            (
                "{ apiKey: { source: vault, id: X } }",
                "line 3: skills.entries.x.apiKey.source: must be env or file",
            ),
            (
                "{ apiKey: { source: env } }",
                "line 3: skills.entries.x.apiKey: id is missing: the name of the variable, or the path of the file",
            ),
            (
                "{ apiKey: { source: env, id: 1X } }",
                "line 3: skills.entries.x.apiKey.id: must be the name of a variable: A-Z a-z 0-9 _, no digit first",
            ),
            (
                "{ apiKey: { source: file, id: secret } }",
                "line 3: skills.entries.x.apiKey.id: must be an absolute path",
            ),
            (
                "{ apiKey: { source: file, provider: vault, id: /a/b } }",
                "line 3: skills.entries.x.apiKey.provider: weft knows no providers of files; name the file itself in id",
            ),
            (
                "{ apiKey: 12 }",
                "line 3: skills.entries.x.apiKey: must be text in quotes, {source: env, id: NAME} or \
                 {source: file, id: PATH}",
            ),
            (
                "{ env: { A: 1 } }",
                "line 3: skills.entries.x.env.A: must be text in quotes, {source: env, id: NAME} or \
                 {source: file, id: PATH}",
            ),
            (
                "{ env: { A: a, A B: b } }",
                "line 3: skills.entries.x.env: key 2 is no name of a variable; write NAME: value, with A-Z a-z 0-9 _ \
                 and no digit first",
            ),
            ("{ config: [] }", "line 3: skills.entries.x.config: must be a mapping, not a list"),
            ("{}\n    X: {}", "line 4: skills.entries.X: the same skill as x; keep one of them"),
            ("{}\n    x: {}", "line 4: skills.entries.x: a key must not come twice; also on line 3"),
            (
                "{}\n    a/b: {}",
                "line 4: skills.entries.\"a/b\": skill name \"a/b\" is not valid: 1 to 255 of a-z 0-9 _ after \
                 lower-casing and taking '-', ' ' and '.' as '_'",
            ),
        ] {
            assert_eq!(refused(entry), message, "{entry}");
        }
    }

    #[test]
    fn a_blank_api_key_is_none_and_told() {
        let Parsed { value, warnings } = parse("skills: { entries: { x: { apiKey: ' ' } } }").unwrap();
        assert_eq!(value.skills.entries["x"].api_key, None);
        assert_eq!(warnings[0].to_string(), "line 1: skills.entries.x.apiKey: blank, and taken for none");
    }
}
