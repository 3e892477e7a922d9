//! Manifests and frontmatter, in the forms in which people write them.

use serde_json::{Value, json};
use weft_testkit::skill::{put, put_program};

use super::{SOON, echo_args, mk, plain, wait_for_diagnostic};
use crate::fabric;

#[test]
fn s01_an_unquoted_colon_in_a_description_is_rescued_with_a_warning() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    let description = "Post a note. Use when: (1) a deploy ends, (2) it fails.";
    put(
        &root.join("deploy_note/SKILL.md"),
        format!("---\nname: deploy_note\ndescription: {description}\n---\nBody.\n"),
    );
    put(&root.join("lost_note/SKILL.md"), "---\nname: lost_note\ndescription: [never closed\n---\nBody.\n");
    let node = fabric.node("host", &[echo_args()], &plain());

    assert_eq!(fabric.call(&["echo_args", "--args", r#"{"n":1}"#]), json!({"n": 1}));
    let skill = fabric.wait_for_skill("deploy_note", SOON, |_| true);
    assert_eq!(skill["definition"]["description"], description);
    let rescued = wait_for_diagnostic(&fabric, &["deploy_note/SKILL.md:3", "unquoted", "description"]);
    assert!(node.stderr().contains("unquoted") && node.stderr().contains("deploy_note"), "{}", node.stderr());
    assert!(!rescued.contains("lost_note"));
    let refused = fabric.weft(&["call", "deploy_note"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("SKILL_NOT_EXECUTABLE"), "{}", refused.stderr);

    // What stays unparsable is said with path, line and the parser's words, on the node and at the coordinator.
    let lost = wait_for_diagnostic(&fabric, &["lost_note/SKILL.md:", "syntax"]);
    assert!(!lost.contains("SKILL.md:0:"), "no line: {lost}");
    assert!(node.stderr().contains("lost_note/SKILL.md"), "{}", node.stderr());
    let refused = fabric.weft(&["call", "lost_note"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("SKILL_INVALID"), "{}", refused.stderr);
    assert_eq!(fabric.skill("lost_note"), None, "half-loaded");

    // And before there is a node: with the same words, and as a fault only where nothing loads.
    let lint = |directory: &str| {
        let finished = fabric.weft(&["skill", "lint", root.join(directory).to_str().unwrap()]);
        let said = finished.stdout.lines().find(|line| line.contains("SKILL.md:")).map(ToOwned::to_owned);
        (finished.code, said.unwrap_or_else(|| panic!("{finished:?}")))
    };
    let words = |diagnostic: &str| diagnostic.split_once(": ").unwrap().1.to_owned();
    let (code, said) = lint("deploy_note");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("deploy_note/SKILL.md:3: ") && said.ends_with("[warning]"), "{said}");
    assert!(said.contains(&words(&rescued)), "{said}: {rescued}");
    let (code, said) = lint("lost_note");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&words(&lost)) && said.ends_with("[error]"), "{said}: {lost}");
}

#[test]
fn s02_a_byte_order_mark_and_windows_line_ends_do_no_harm() {
    const BOM: &str = "\u{feff}";
    let fabric = fabric();
    let root = fabric.skills_of("host");
    let lf = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nB\n");
    let crlf = |name: &str| lf(name).replace('\n', "\r\n");
    put(&root.join("one/SKILL.md"), format!("{BOM}{}", lf("bom_lf")));
    put(&root.join("two/SKILL.md"), crlf("lf_crlf"));
    put(&root.join("three/SKILL.md"), format!("{BOM}{}", crlf("bom_crlf")));
    let manifest = |name: &str| format!(r#"{{"name":"{name}","description":"d","entry":"run"}}"#);
    let marked = mk("marked", "#!/bin/sh\necho '{}'\n").with_text(format!("{BOM}{}", manifest("marked")));
    let twice = mk("twice", "#!/bin/sh\necho '{}'\n").with_text(format!("{BOM}{BOM}{}", manifest("twice")));
    put(&root.join("twice_md/SKILL.md"), format!("{BOM}{BOM}{}", lf("twice_md")));
    let _node = fabric.node("host", &[marked, twice], &plain());

    for key in ["bom_lf", "lf_crlf", "bom_crlf", "marked"] {
        let skill = fabric.wait_for_skill(key, SOON, |_| true);
        assert_eq!(
            (&skill["definition"]["name"], &skill["definition"]["description"]),
            (&json!(key), &json!("d"))
        );
    }
    assert_eq!(fabric.call(&["marked"]), json!({}));
    // One mark is an editor's habit, two are a broken file.
    wait_for_diagnostic(&fabric, &["twice/skill.json"]);
    wait_for_diagnostic(&fabric, &["twice_md/SKILL.md"]);
    assert_eq!(fabric.skill("twice"), None);
    assert_eq!(fabric.weft(&["call", "twice"]).code, 3);

    // The digest is over the bytes on disk, so the mark counts, though it changes nothing else.
    let digest = |skill: &Value| skill["digest"].clone();
    let before = digest(&fabric.skill("bom_lf").unwrap());
    put(&root.join("one/SKILL.md"), lf("bom_lf"));
    let without = fabric.wait_for_skill("bom_lf", SOON, |skill| skill["digest"] != before);
    assert_eq!(without["definition"]["description"], "d");
    put(&root.join("one/SKILL.md"), format!("{BOM}{}", lf("bom_lf")));
    fabric.wait_for_skill("bom_lf", SOON, |skill| skill["digest"] == before);
}

#[test]
fn s03_gates_written_over_several_lines_count() {
    let fabric = fabric();
    let text = "---\nname: gated\ndescription: gating written over several lines\nmetadata:\n  {\n    \
                \"os\": [\"linux\"],\n    \"requires\":\n      { \"bins\": [\"weft_case_absent_bin\"] },\n  }\n---\n";
    put(&fabric.skills_of("host").join("gated/SKILL.md"), text);
    let _node = fabric.node("host", &[], &plain());
    let skill = fabric.wait_for_skill("gated", SOON, |_| true);
    assert_eq!(skill["eligibleNodes"], 0, "{skill}");
    let why = fabric.weft(&["why", "gated"]);
    assert_eq!(why.code, 3);
    assert!(why.stdout.contains("FAIL requires.bins weft_case_absent_bin"), "{}", why.stdout);
    assert!(why.stdout.contains("pass os"), "{}", why.stdout);
}

/// The rows of S04: a directory, the manifest's text, and the member that is wrong.
fn rows() -> Vec<(&'static str, String, Option<&'static str>)> {
    let with = |name: &str, member: &str, value: Value| {
        let mut manifest = json!({"name": name, "description": "d", "entry": "run", "class": "safe"});
        match value {
            Value::Null => manifest.as_object_mut().unwrap().remove(member),
            value => manifest.as_object_mut().unwrap().insert(member.into(), value),
        };
        manifest.to_string()
    };
    let named = |name: Value| with("x", "name", name);
    vec![
        ("no_timeout", with("no_timeout", "timeout_seconds", Value::Null), None),
        ("zero_timeout", with("zero_timeout", "timeout_seconds", json!(0)), None),
        ("minus", with("minus", "timeout_seconds", json!(-1)), Some("timeout_seconds")),
        ("half", with("half", "timeout_seconds", json!(1.5)), Some("timeout_seconds")),
        ("text", with("text", "timeout_seconds", json!("60")), Some("timeout_seconds")),
        (
            "huge",
            with("huge", "timeout_seconds", json!(1_000_000_000_000_000_000_u64)),
            Some("timeout_seconds"),
        ),
        ("empty_name", named(json!("")), Some("name")),
        ("caps_name", named(json!("Has-Caps")), Some("name")),
        ("path_name", named(json!("../x")), Some("name")),
        ("long_name", named(json!("a".repeat(65))), Some("name")),
        ("no_description", with("no_description", "description", Value::Null), Some("description")),
        ("no_entry", with("no_entry", "entry", Value::Null), Some("entry")),
        ("empty_entry", with("empty_entry", "entry", json!("")), Some("entry")),
        ("dot_entry", with("dot_entry", "entry", json!(".")), Some("entry")),
        ("readonly_class", with("readonly_class", "class", json!("readonly")), Some("class")),
        ("caps_class", with("caps_class", "class", json!("SAFE")), Some("class")),
        ("no_class", with("no_class", "class", Value::Null), None),
        ("typo", with("typo", "timout_seconds", json!(5)), None),
        (
            "doubled",
            r#"{"class":"dangerous","class":"safe","name":"doubled","description":"d","entry":"run"}"#.into(),
            Some("class"),
        ),
    ]
}

#[test]
fn s04_nothing_is_clamped_trimmed_or_lower_cased_into_validity() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    for (directory, text, _) in rows() {
        put_program(&root.join(directory).join("run"), "#!/bin/sh\necho '{}'\n");
        put(&root.join(directory).join("skill.json"), text);
    }
    let _node = fabric.node("host", &[], &plain());
    fabric.wait_for_skill("typo", SOON, |_| true);
    let diagnostics = fabric.diagnostics();
    for (directory, text, wrong) in rows() {
        let place = format!("/{directory}/skill.json");
        let said: Vec<_> = diagnostics.iter().filter(|line| line.contains(&place)).collect();
        if let Some(member) = wrong {
            assert_eq!(said.len(), 1, "{text}: {said:?}");
            assert!(said[0].contains(member), "{text}: {said:?}");
            assert_eq!(fabric.weft(&["call", directory]).code, 3, "{text}");
        }
    }
    let listed = fabric.json(&["skills"]).unwrap();
    let keys: Vec<_> = listed["skills"].as_array().unwrap().iter().map(|skill| &skill["key"]).collect();
    assert_eq!(json!(keys), json!(["no_class", "no_timeout", "typo", "zero_timeout"]));
    for key in ["no_timeout", "zero_timeout"] {
        assert_eq!(fabric.skill(key).unwrap()["definition"]["timeout"], "30s");
    }
    let assumed = fabric.skill("no_class").unwrap();
    assert_eq!(assumed["class"], "SKILL_CLASS_SAFE");
    assert_eq!(assumed["definition"]["classDeclared"], false, "{assumed}");
    assert_eq!(fabric.skill("typo").unwrap()["definition"]["classDeclared"], true);
    assert!(fabric.weft(&["skills", "no_class"]).stdout.contains("assumed"));
    wait_for_diagnostic(&fabric, &["/typo/skill.json", "timout_seconds"]);
}
