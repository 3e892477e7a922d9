//! What an agent can run, as tools in the dialects of models: all of it, with everything said that a dialect cannot carry.

use serde_json::{Value, json};
use weft_testkit::{Fabric, Skill, Spec, skill::put};

use crate::{caller::Caller, fabric, operator::wait_for_skills};

const DIALECTS: [&str; 4] = ["openai", "anthropic", "gemini", "mcp"];

/// The names of the tools, where each dialect has them.
fn names(dialect: &str, tools: &Value) -> Vec<String> {
    let (list, place) = match dialect {
        "openai" => (tools, "/function/name"),
        "gemini" => (&tools[0]["functionDeclarations"], "/name"),
        _ => (tools, "/name"),
    };
    let list = list.as_array().unwrap();
    list.iter().map(|tool| tool.pointer(place).unwrap().as_str().unwrap().to_owned()).collect()
}

fn tools(fabric: &Fabric, of: &[&str]) -> (Value, String) {
    let printed = fabric.weft(&[&["tools"], of].concat());
    assert_eq!(printed.code, 0, "{of:?}: {printed:?}");
    (serde_json::from_str(&printed.stdout).unwrap(), printed.stderr)
}

#[test]
fn each_dialect_has_a_tool_for_every_skill_that_can_be_run() {
    let fabric = fabric();
    let long = format!("a_very_{}long_name", "very_".repeat(9));
    let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
    let skills = [
        Skill::echo("plain").with("schema", schema),
        Skill::echo("7zip"),
        Skill::echo(&long),
        Skill::echo("gated").with("metadata", json!({"requires": {"bins": ["weft_no_such_tool"]}})),
    ];
    put(&fabric.skills_of("host").join("how/SKILL.md"), "---\nname: how\ndescription: d\n---\nRead.\n");
    let _node = fabric.node("host", &skills, &Spec::new());
    wait_for_skills(&fabric, 5);
    let listed = fabric.json(&["skills", "--eligible"]).unwrap();
    let runnable = listed["skills"].as_array().unwrap().iter();
    let mut expected: Vec<(String, String)> = runnable
        .filter(|skill| skill["definition"]["kind"] == "SKILL_KIND_EXECUTABLE")
        .map(|skill| ["toolName", "key"].map(|member| skill[member].as_str().unwrap().to_owned()).into())
        .collect();
    expected.sort();
    assert_eq!(expected.len(), 3);
    let caller = Caller::of(&fabric);
    let (id, _) = caller.open_session("a");
    for dialect in DIALECTS {
        let (printed, _) = tools(&fabric, &["--dialect", dialect]);
        assert!(names(dialect, &printed).iter().eq(expected.iter().map(|(tool, _)| tool)), "{printed}");
        assert_eq!(tools(&fabric, &["--dialect", dialect, "--session", &id]).0, printed);
        assert_eq!(tools(&fabric, &["--dialect", dialect, "--agent", "a"]).0, printed);
        let required = printed.to_string().contains(r#""required":["path"]"#);
        assert!(required, "{dialect}: {printed}");

        // The whole answer says which skill each tool is, so that a call of it finds its way.
        let (whole, _) = tools(&fabric, &["--dialect", dialect, "--full"]);
        let text: Value = serde_json::from_str(whole["tools"].as_str().unwrap()).unwrap();
        assert_eq!(text, printed);
        let pairs: Vec<(String, String)> = serde_json::from_value::<Vec<Value>>(whole["names"].clone())
            .unwrap()
            .iter()
            .map(|name| ["tool", "skill"].map(|member| name[member].as_str().unwrap().to_owned()).into())
            .collect();
        assert_eq!(pairs, expected, "{dialect}");
    }
    for (_, key) in &expected {
        assert_eq!(fabric.call(&[key, "path=/"]), json!({"path": "/"}));
    }
}

#[test]
fn what_a_dialect_cannot_carry_is_said_beside_the_tools() {
    let fabric = fabric();
    let schema = json!({"type": "object", "additionalProperties": false, "properties": {
        "n": {"type": "integer", "exclusiveMaximum": 7}
    }});
    let bounded = Skill::echo("bounded").with("schema", schema);
    let wordy = Skill::echo("wordy").with("description", json!("word ".repeat(400)));
    let _node = fabric.node("host", &[bounded, wordy], &Spec::new());
    wait_for_skills(&fabric, 2);
    let said = |dialect| {
        let (tools, said) = tools(&fabric, &["--dialect", dialect]);
        assert_eq!(names(dialect, &tools), ["bounded", "wordy"], "{dialect}");
        said
    };
    let gemini = said("gemini");
    assert!(gemini.contains("weft: bounded: additionalProperties: gemini does not know it\n"), "{gemini}");
    assert!(gemini.contains("weft: bounded at /properties/n: exclusiveMaximum: "), "{gemini}");
    let openai = said("openai");
    assert!(openai.contains("weft: wordy: description: openai takes 1024 characters"), "{openai}");
    assert!(!openai.contains("bounded"), "{openai}");
    assert_eq!((said("mcp"), said("anthropic")), (String::new(), String::new()));
    let (whole, quiet) = tools(&fabric, &["--dialect", "gemini", "--full"]);
    assert_eq!((whole["losses"][0]["skill"].as_str(), quiet.as_str()), (Some("bounded"), ""));
    // The manifest's own schema stays what args are judged by.
    assert_eq!(fabric.weft(&["call", "bounded", "--args", r#"{"n":7}"#]).code, 2);
}

#[test]
fn a_dialect_that_nobody_speaks_is_a_mistake_of_the_caller() {
    let fabric = fabric();
    for arguments in [&["tools", "--dialect", "cohere"][..], &["tools"]] {
        let refused = fabric.weft(arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:?}");
    }
    // Nothing to offer is an empty array, and not nothing.
    for dialect in DIALECTS {
        assert_eq!(tools(&fabric, &["--dialect", dialect]).0, json!([]), "{dialect}");
    }
}
