use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A schema with a bit of everything.
const RICH: &str = r##"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "Where to look.", "minLength": 1, "pattern": "^/"},
    "depth": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 123456789012345678901234567890, "default": null},
    "mode": {"const": "fast"},
    "level": {"enum": [1, 2.50]},
    "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "uniqueItems": true},
    "filter": {"oneOf": [{"type": "string", "format": "uri"}, {"type": "null"}], "description": "What to keep."},
    "tree": {"$ref": "#/$defs/node"},
    "free": {}
  },
  "required": ["path"],
  "additionalProperties": false,
  "$defs": {
    "tag": {"type": "string", "enum": ["a", "b", ""]},
    "node": {"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
  }
}"##;

fn definition(key: &str, schema: &str) -> Definition {
    let mut definition = Definition::new(SkillKey::normalise(key).unwrap(), Kind::Executable);
    definition.description = "Shows disk usage.".to_owned();
    definition.schema = schema.to_owned();
    definition
}

fn made(definition: &Definition, dialect: Dialect) -> (Value, Vec<String>) {
    let tool = tool(definition, dialect).unwrap();
    let said = tool.dropped.iter().map(Dropped::to_string).collect();
    (serde_json::from_str(&tool.json).unwrap(), said)
}

fn gemini_of(schema: &str) -> (Value, Vec<String>) {
    let (mut tool, said) = made(&definition("x", schema), Dialect::Gemini);
    (tool["parameters"].take(), said)
}

fn compact(schema: &str) -> String {
    Tree::parse(schema).unwrap().to_string()
}

#[test]
fn openai_takes_a_plain_root_untouched() {
    let tool = tool(&definition("disk_usage", RICH), Dialect::OpenAi).unwrap();
    assert_eq!(
        tool.json,
        format!(
            r#"{{"type":"function","function":{{"name":"disk_usage","description":"Shows disk usage.","parameters":{}}}}}"#,
            compact(RICH)
        )
    );
    assert_eq!(tool.dropped, []);
}

#[test]
fn anthropic_takes_a_plain_root_untouched() {
    let mut definition = definition("disk_usage", RICH);
    definition.when_to_use = "When a disk is full.".to_owned();
    definition.class = Class::Dangerous;
    let tool = tool(&definition, Dialect::Anthropic).unwrap();
    assert_eq!(
        tool.json,
        format!(
            r#"{{"name":"disk_usage","description":"Shows disk usage.\nWhen a disk is full.\nCannot be undone.","input_schema":{}}}"#,
            compact(RICH)
        )
    );
    assert_eq!(tool.dropped, []);
}

#[test]
fn mcp_carries_everything() {
    let mut definition = definition("disk_usage", RICH);
    definition.name = "disk-usage".to_owned();
    definition.class = Class::Mutating;
    definition.class_source = ClassSource::Declared;
    definition.idempotent = true;
    definition.output_schema = Some(r#"{"properties":{"n":{"maximum":1e40}}}"#.to_owned());
    let tool = tool(&definition, Dialect::Mcp).unwrap();
    assert_eq!(
        tool.json,
        format!(
            r#"{{"name":"disk_usage","title":"disk-usage","description":"Shows disk usage.","inputSchema":{},"outputSchema":{{"type":"object","properties":{{"n":{{"maximum":1e40}}}}}},"annotations":{{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true}}}}"#,
            compact(RICH)
        )
    );
    assert_eq!(tool.dropped, []);
}

#[test]
fn gemini_gets_its_subset_and_the_rest_is_said() {
    let tool = tool(&definition("disk_usage", RICH), Dialect::Gemini).unwrap();
    let anything = r#"{"anyOf":[{"type":"STRING"},{"type":"NUMBER"},{"type":"BOOLEAN"},{"type":"OBJECT"},{"type":"ARRAY","items":{"anyOf":[{"type":"STRING"},{"type":"NUMBER"},{"type":"BOOLEAN"},{"type":"OBJECT"}]}}]}"#;
    let expected = [
        r#"{"name":"disk_usage","description":"Shows disk usage.","parameters":{"type":"OBJECT","properties":{"#,
        r#""path":{"type":"STRING","description":"Where to look.","pattern":"^/","minLength":1},"#,
        r#""depth":{"type":"INTEGER","nullable":true,"default":null,"minimum":0,"maximum":123456789012345678901234567890},"#,
        r#""mode":{"type":"STRING","enum":["fast"]},"#,
        r#""level":{"type":"NUMBER"},"#,
        r#""tags":{"type":"ARRAY","items":{"type":"STRING","enum":["a","b"]}},"#,
        r#""filter":{"type":"STRING","description":"What to keep.","nullable":true},"#,
        r#""tree":{"type":"OBJECT","properties":{"name":{"type":"STRING"},"children":{"type":"ARRAY","items":{"type":"OBJECT"}}}},"#,
        r#""free":"#,
        anything,
        r#"},"required":["path"]}}"#,
    ]
    .concat();
    assert_eq!(tool.json, expected);
    let said: Vec<String> = tool.dropped.iter().map(Dropped::to_string).collect();
    assert_eq!(
        said,
        [
            "/: $schema: gemini does not know it",
            "/: additionalProperties: gemini does not know it",
            "/properties/depth: exclusiveMaximum: gemini does not know it: maximum stands in its place",
            "/properties/level: enum: gemini takes only strings as fixed values",
            "/properties/tags: uniqueItems: gemini does not know it",
            "/$defs/tag: enum \"\": gemini takes no empty string as a fixed value",
            "/properties/filter: oneOf: gemini knows only anyOf, which stands in its place",
            "/properties/filter/oneOf/0: format: gemini does not know this one for this type",
            "/$defs/node/properties/children/items: $ref: it comes back to itself: only the type of what it names is kept",
            "/properties/free: no type: gemini needs one: anything but null is allowed",
            "/properties/free: no items: gemini needs them described: any but arrays are allowed",
        ]
    );
}

#[test]
fn a_skill_without_arguments_has_no_parameters_for_gemini() {
    let (tool, said) = made(&definition("ping", crate::skill::EMPTY_SCHEMA), Dialect::Gemini);
    assert_eq!(tool, json!({"name": "ping", "description": "Shows disk usage."}));
    assert_eq!(said, [""; 0]);
    let (tool, _) = made(&definition("ping", "{}"), Dialect::OpenAi);
    assert_eq!(tool["function"]["parameters"], json!({"type": "object", "properties": {}}));
    let (tool, _) = made(&definition("ping", "{}"), Dialect::Anthropic);
    assert_eq!(tool["input_schema"], json!({"type": "object"}));
}

#[test]
fn a_root_of_alternatives_offers_the_members_of_all() {
    let schema = r##"{"oneOf":[
        {"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"string"}},"required":["kind"]},
        {"$ref":"#/$defs/b"}],
      "allOf":[{"properties":{"n":{"type":"integer"}},"required":["n"]},{"properties":{"n":{"minimum":3}}}],
      "$defs":{"b":{"properties":{"kind":{"const":"b"},"y":{"$ref":"#/oneOf/0/properties/x"}}}}}"##;
    let (tool, said) = made(&definition("x", schema), Dialect::OpenAi);
    assert_eq!(
        tool["function"]["parameters"],
        json!({"type": "object", "$defs": {"b": {"properties": {"kind": {"const": "b"}, "y": {}}}},
            "properties": {"n": {"allOf": [{"type": "integer"}, {"minimum": 3}]},
                "kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "x": {"type": "string"}, "y": {}},
            "required": ["n"]})
    );
    assert!(said[0].starts_with("/: oneOf: openai does not take it at the root"), "{said:?}");
    assert!(said.iter().any(|said| said.starts_with("/properties/y: $ref")), "{said:?}");
    let (parameters, said) = gemini_of(schema);
    assert_eq!(
        parameters,
        json!({"type": "OBJECT", "required": ["n"], "properties": {
            "n": {"type": "INTEGER", "minimum": 3},
            "kind": {"anyOf": [{"type": "STRING", "enum": ["a"]}, {"type": "STRING", "enum": ["b"]}]},
            "x": {"type": "STRING"}, "y": {"type": "STRING"}}})
    );
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn a_root_that_is_a_reference_is_written_out() {
    let schema = r##"{"$ref":"#/$defs/args","$defs":{"args":{"type":"object","properties":{"a":{"$ref":"#/$defs/args"}}}}}"##;
    let (tool, said) = made(&definition("x", schema), Dialect::Anthropic);
    assert_eq!(tool["input_schema"]["properties"], json!({"a": {"$ref": "#/$defs/args"}}));
    assert_eq!((&tool["input_schema"]["type"], said.len()), (&json!("object"), 0));
    assert!(tool["input_schema"].get("$ref").is_none());
}

#[test]
fn a_reference_to_what_was_dropped_goes_with_it() {
    let schema =
        r##"{"type":"object","properties":{"a b":{"type":"string"},"c":{"$ref":"#/properties/a b"}}}"##;
    let (tool, said) = made(&definition("x", schema), Dialect::Anthropic);
    assert_eq!(tool["input_schema"]["properties"], json!({"c": {}}));
    assert_eq!(
        said,
        [
            "/properties: a b: anthropic takes names of A-Z a-z 0-9 _ . - up to 64",
            "/properties/c: $ref: it names a place that was dropped",
        ]
    );
}

#[test]
fn a_required_argument_that_cannot_be_said_leaves_the_tool_out() {
    let schema = r#"{"properties":{"a.b":{"type":"string"},"c d":{},"e":{"type":"object","properties":{"f/g":{}},"required":["f/g"]}},"required":["a.b"]}"#;
    let skills = [definition("dotted", schema), definition("fine", "{}")];
    let gemini = export(&skills, Dialect::Gemini);
    assert_eq!(gemini.tools.len(), 1);
    assert!(gemini.left_out[0].to_string().starts_with("dotted: /properties/a.b: gemini takes names"));
    assert!(gemini.json.starts_with(r#"[{"functionDeclarations":[{"name":"fine""#));
    let anthropic = export(&skills, Dialect::Anthropic);
    assert_eq!(anthropic.left_out[0].key.as_str(), "dotted");
    assert!(
        anthropic.left_out[0].why.contains("/properties/e/properties: "),
        "{}",
        anthropic.left_out[0].why
    );
    let optional = schema.replace(r#"["a.b"]"#, "[]");
    let (parameters, said) = gemini_of(&optional);
    assert_eq!(parameters, Value::Null, "nothing is left");
    assert!(said.iter().any(|said| said.starts_with("/properties/e: e: ")), "{said:?}");
    assert!(said.iter().any(|said| said.starts_with("/properties/c d: c d: ")), "{said:?}");
}

#[test]
fn a_choice_takes_along_what_is_said_beside_it() {
    let (parameters, said) = gemini_of(
        r##"{"properties":{
            "size":{"description":"How big.","anyOf":[{"type":"integer","description":"Bytes."},{"$ref":"#/$defs/word"}],"minimum":1,"default":"big"},
            "some":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]},
            "list":{"type":["array","string"],"items":{"type":"number"},"minLength":2},
            "pair":{"prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false}},
          "$defs":{"word":{"type":"string"}}}"##,
    );
    assert_eq!(
        parameters["properties"],
        json!({
            "size": {"anyOf": [{"type": "INTEGER", "description": "How big. Bytes.", "minimum": 1},
                {"type": "STRING", "default": "big"}]},
            "some": {"anyOf": [
                {"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}}, "required": ["a"]},
                {"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}}, "required": ["b"]}]},
            "list": {"anyOf": [{"type": "ARRAY", "items": {"type": "NUMBER"}}, {"type": "STRING", "minLength": 2}]},
            "pair": {"type": "ARRAY", "items": {"anyOf": [{"type": "STRING"}, {"type": "BOOLEAN"}]}},
        })
    );
    assert!(said.iter().any(|said| said.starts_with("/properties/size: minimum: ")), "{said:?}");
    assert!(said.iter().any(|said| said.starts_with("/properties/pair: prefixItems: ")), "{said:?}");
}

#[test]
fn a_long_description_keeps_its_warning() {
    let mut definition = definition("x", "{}");
    definition.description = "é".repeat(2000);
    definition.class = Class::Mutating;
    let (tool, said) = made(&definition, Dialect::OpenAi);
    let text = tool["function"]["description"].as_str().unwrap();
    assert_eq!(text.chars().count(), 1024);
    assert!(text.ends_with("é…\nChanges state."));
    assert_eq!(said, ["/: description: openai takes 1024 characters: cut after 1008 of 2000"]);
    let (tool, said) = made(&definition, Dialect::Anthropic);
    assert_eq!((tool["description"].as_str().unwrap().chars().count(), said.len()), (2015, 0));
}

#[test]
fn hints_are_claimed_for_declared_classes_only() {
    let mut definition = definition("x", "{}");
    assert!(made(&definition, Dialect::Mcp).0.get("annotations").is_none());
    definition.class_source = ClassSource::Declared;
    let hints = made(&definition, Dialect::Mcp).0["annotations"].take();
    assert_eq!(hints, json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true}));
    definition.class = Class::Dangerous;
    definition.idempotent = true;
    let hints = made(&definition, Dialect::Mcp).0["annotations"].take();
    assert_eq!(hints, json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false}));
}

#[test]
fn an_export_is_sorted_unambiguous_and_says_when_it_is_too_long() {
    let mut taker = definition("skill_f52fbd32", "{}");
    let long = definition("_", "{}");
    taker.key = SkillKey::normalise(&long.tool_name()).unwrap();
    let text = Definition::new(SkillKey::normalise("notes").unwrap(), Kind::Instructions);
    let skills = [definition("zip", "{}"), long, taker.clone(), text, definition("apt", "not json")];
    let export_of = export(&skills, Dialect::Mcp);
    let names: Vec<&str> = export_of.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, [taker.key.as_str(), "zip"]);
    assert_eq!(export_of.tools[0].key, taker.key);
    assert_eq!(export_of.left_out.len(), 2);
    let many: Vec<_> = (0..129).map(|n| definition(&format!("s{n}"), "{}")).collect();
    let openai = export(&many, Dialect::OpenAi);
    assert_eq!((openai.tools.len(), openai.notes.len()), (129, 1));
    assert_eq!(export(&[], Dialect::Gemini).json, "[]");
}

#[test]
fn what_openai_and_mcp_cannot_take_is_said() {
    let mut definition = definition(
        "x",
        r#"{"type":["object","null"],"not":{"required":["a"]},"properties":{"a":{"type":"array"}}}"#,
    );
    definition.output_schema = Some(r#"{"type":"string"}"#.to_owned());
    let (tool, said) = made(&definition, Dialect::OpenAi);
    assert_eq!(
        tool["function"]["parameters"],
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}})
    );
    assert_eq!(
        said,
        [
            "/: not: openai does not take it at the root",
            "/: type [\"object\",\"null\"]: openai takes only objects",
            "/: output schema: openai has no place for it",
        ]
    );
    let (tool, said) = made(&definition, Dialect::Mcp);
    assert!(tool.get("outputSchema").is_none() && tool["inputSchema"].get("not").is_some());
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn dialects_print_and_parse() {
    for dialect in Dialect::ALL {
        assert_eq!(dialect.to_string().parse::<Dialect>().unwrap(), dialect);
    }
    assert!("OpenAI".parse::<Dialect>().is_err());
}

#[test]
fn hostile_schemas_stay_small_and_fast() {
    let wide = |n: usize, branch: &str| vec![branch; n].join(",");
    let fat = format!(r#""{}""#, "d".repeat(30_000));
    let mut chain = String::from(r##"{"properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{"##);
    let mut doubling = chain.clone();
    for n in 0..1200 {
        let next = n + 1;
        chain += &format!(r##""d{n}":{{"properties":{{"a":{{"$ref":"#/$defs/d{next}"}}}}}},"##);
        if n < 400 {
            doubling += &format!(
                r##""d{n}":{{"properties":{{"a":{{"$ref":"#/$defs/d{next}"}},"b":{{"$ref":"#/$defs/d{next}"}}}}}},"##
            );
        }
    }
    chain += r#""d1200":{}}}"#;
    doubling += r#""d400":{}}}"#;
    let branches = format!(
        r##"{{"properties":{{"a":{{"anyOf":[{}],"description":{fat}}}}},"$defs":{{"x":{{"properties":{{"p":{{}},"q":{{"description":{fat}}}}}}}}}}}"##,
        wide(150, r##"{"$ref":"#/$defs/x"}"##)
    );
    let root = format!(
        r##"{{"anyOf":[{}],"$defs":{{"x":{{"properties":{{{}}}}}}}}}"##,
        wide(1000, r##"{"$ref":"#/$defs/x"}"##),
        (0..2000).map(|n| format!(r#""p{n}":{{}}"#)).collect::<Vec<_>>().join(",")
    );
    let nested = (0..14).fold("{\"type\":\"string\"}".to_owned(), |inner, _| {
        format!(r#"{{"anyOf":[{inner},{{"type":"integer"}}],"properties":{{"a":{{}},"b":{{}}}}}}"#)
    });
    let nested = format!(r#"{{"properties":{{"a":{nested}}}}}"#);
    for schema in [chain, doubling, branches, root, nested] {
        for dialect in Dialect::ALL {
            let begun = std::time::Instant::now();
            let tool = tool(&definition("x", &schema), dialect).unwrap();
            serde_json::from_str::<Value>(&tool.json).unwrap();
            assert!(tool.json.len() < 2_000_000, "{dialect}: {} of {}", tool.json.len(), schema.len());
            assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{dialect} {:?}", begun.elapsed());
        }
    }
}

// === random schemas ===

fn any_name() -> impl Strategy<Value = String> + Clone {
    prop_oneof![
        8 => "[a-e]".prop_map(String::from),
        1 => proptest::sample::select(vec!["a.b", "c d", "1e", "é", ""]).prop_map(String::from),
        1 => Just("n".repeat(65)),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    proptest::sample::select(vec![
        json!("x"),
        json!(""),
        json!("y"),
        json!(3),
        json!(2.5),
        json!(null),
        json!(true),
        json!([1]),
        json!({"k": "v"}),
    ])
}

fn any_keywords() -> impl Strategy<Value = Vec<(String, Value)>> {
    let types = ["string", "number", "integer", "boolean", "object", "array", "null"];
    let one = prop_oneof![
        4 => proptest::sample::select(types.to_vec()).prop_map(|kind| ("type", json!(kind))),
        1 => proptest::sample::subsequence(types.to_vec(), 1..4).prop_map(|kinds| ("type", json!(kinds))),
        1 => proptest::collection::vec(any_value(), 1..4).prop_map(|values| ("enum", json!(values))),
        1 => any_value().prop_map(|value| ("const", value)),
        1 => any_value().prop_map(|value| ("default", value)),
        1 => proptest::collection::vec(any_name(), 0..3).prop_map(|names| ("required", json!(names))),
        2 => proptest::sample::select(vec![
            ("description", json!("what it is")),
            ("title", json!("T")),
            ("format", json!("date-time")),
            ("format", json!("uri")),
            ("pattern", json!("^x")),
            ("minLength", json!(1)),
            ("minimum", json!(-1.5)),
            ("exclusiveMinimum", json!(0)),
            ("exclusiveMaximum", json!(9)),
            ("maxItems", json!(7)),
            ("minProperties", json!(1)),
            ("uniqueItems", json!(true)),
            ("multipleOf", json!(2)),
            ("$comment", json!("c")),
            ("examples", json!([1])),
            ("additionalProperties", json!(false)),
            ("$ref", json!("#/$defs/d")),
            ("$ref", json!("#/$defs/e")),
            ("$ref", json!("#")),
        ]),
    ];
    proptest::collection::vec(one.prop_map(|(keyword, value)| (keyword.to_owned(), value)), 0..4)
}

fn any_schema() -> impl Strategy<Value = Value> {
    let object = |members: Vec<(String, Value)>| Value::Object(members.into_iter().collect());
    let leaf = prop_oneof![
        12 => any_keywords().prop_map(object),
        1 => any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, move |schema| {
        let list = proptest::collection::vec(schema.clone(), 1..3).prop_map(Value::from);
        let named = proptest::collection::vec((any_name(), schema.clone()), 0..4).prop_map(object);
        let below = prop_oneof![
            4 => named.clone().prop_map(|value| ("properties", value)),
            2 => schema.clone().prop_map(|value| ("items", value)),
            1 => list.clone().prop_map(|value| ("prefixItems", value)),
            1 => list.clone().prop_map(|value| ("anyOf", value)),
            1 => list.clone().prop_map(|value| ("oneOf", value)),
            1 => list.prop_map(|value| ("allOf", value)),
            1 => schema.clone().prop_map(|value| ("not", value)),
            1 => named.prop_map(|value| ("patternProperties", value)),
            1 => schema.prop_map(|value| ("contains", value)),
        ];
        let below = below.prop_map(|(keyword, value)| (keyword.to_owned(), value));
        (any_keywords(), proptest::collection::vec(below, 1..3))
            .prop_map(move |(own, more)| object(own.into_iter().chain(more).collect()))
    })
}

fn any_root() -> impl Strategy<Value = Value> {
    let named = || proptest::collection::vec((any_name(), any_schema()), 0..5);
    (any_schema(), named(), any_schema(), any_schema()).prop_map(|(base, properties, d, e)| {
        let mut root = base.as_object().cloned().unwrap_or_default();
        let properties: serde_json::Map<String, Value> = properties.into_iter().collect();
        root.insert("type".to_owned(), json!("object"));
        root.insert("properties".to_owned(), properties.into());
        root.insert("$defs".to_owned(), json!({"d": d, "e": e}));
        root.into()
    })
}

/// What Gemini would refuse about a schema.
fn refusal(schema: &Value) -> Option<String> {
    let Some(members) = schema.as_object() else { return Some(format!("no schema: {schema}")) };
    if let Some(unknown) = members.keys().find(|keyword| !gemini::ALLOWED.contains(&keyword.as_str())) {
        return Some(format!("{unknown} in {schema}"));
    }
    if let Some(choice) = members.get("anyOf") {
        let list = choice.as_array().filter(|list| list.len() > 1 && members.len() == 1);
        let Some(list) = list else { return Some(format!("something beside anyOf: {schema}")) };
        return list.iter().find_map(refusal);
    }
    let kind = members.get("type").and_then(Value::as_str).unwrap_or("none");
    let types = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "OBJECT", "ARRAY", "NULL"];
    let only = |keywords: &[&str], kinds: &[&str]| {
        keywords.iter().any(|keyword| members.contains_key(*keyword)) && !kinds.contains(&kind)
    };
    if !types.contains(&kind)
        || only(&["properties", "required", "minProperties", "maxProperties"], &["OBJECT"])
        || only(&["items", "minItems", "maxItems"], &["ARRAY"])
        || only(&["enum", "pattern", "minLength", "maxLength"], &["STRING"])
        || only(&["minimum", "maximum"], &["NUMBER", "INTEGER"])
        || (kind == "ARRAY" && !members.contains_key("items"))
        || members.get("enum").is_some_and(|values| {
            let values = values.as_array().unwrap();
            values.is_empty() || values.iter().any(|value| value.as_str().is_none_or(str::is_empty))
        })
    {
        return Some(format!("keywords of another type: {schema}"));
    }
    let none = serde_json::Map::new();
    let properties = members.get("properties").map_or(&none, |map| map.as_object().unwrap());
    let required = members.get("required").map_or(&[][..], |names| names.as_array().unwrap());
    if (members.contains_key("properties") && properties.is_empty())
        || required.iter().any(|name| !properties.contains_key(name.as_str().unwrap()))
        || properties.keys().any(|name| {
            name.is_empty()
                || name.len() > 64
                || name.contains(|c: char| c != '_' && !c.is_ascii_alphanumeric())
        })
    {
        return Some(format!("properties: {schema}"));
    }
    properties.values().chain(members.get("items")).find_map(refusal)
}

/// Keywords of a schema that has no references and no alternatives, at the places that a projection keeps.
fn keywords(schema: &Value, into: &mut Vec<String>) {
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        into.push(keyword.clone());
        match keyword.as_str() {
            "properties" => value.as_object().unwrap().values().for_each(|schema| keywords(schema, into)),
            "items" => keywords(value, into),
            _ => {}
        }
    }
}

/// Schemas in which everything has a type and a name that Gemini takes.
fn any_tame_schema() -> impl Strategy<Value = Value> {
    let extra = || {
        proptest::sample::subsequence(
            vec![
                ("uniqueItems", json!(true)),
                ("multipleOf", json!(2)),
                ("$comment", json!("c")),
                ("examples", json!([1])),
                ("additionalProperties", json!(false)),
                ("not", json!({"const": 3})),
                ("x-own", json!(1)),
                ("format", json!("uri")),
                ("exclusiveMinimum", json!(1)),
                ("deprecated", json!(true)),
            ],
            0..4,
        )
    };
    let with = |mut schema: Value, extra: Vec<(&str, Value)>| {
        extra.into_iter().for_each(|(keyword, value)| schema[keyword] = value);
        schema
    };
    let leaf = (proptest::sample::select(vec!["string", "integer", "boolean"]), extra())
        .prop_map(move |(kind, extra)| with(json!({"type": kind}), extra));
    let inner = leaf.prop_recursive(3, 20, 3, move |schema| {
        prop_oneof![
            (schema.clone(), extra())
                .prop_map(move |(items, extra)| with(json!({"type": "array", "items": items}), extra)),
            (proptest::collection::btree_map("[a-e]", schema, 1..4), extra())
                .prop_map(move |(map, extra)| with(json!({"type": "object", "properties": map}), extra)),
        ]
    });
    proptest::collection::btree_map("[a-e]", inner, 1..4)
        .prop_map(|map| json!({"type": "object", "properties": map}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_the_schema_the_export_parses_and_is_what_its_dialect_takes(root in any_root()) {
        let skill = definition("x", &root.to_string());
        for dialect in Dialect::ALL {
            let export = export([&skill], dialect);
            prop_assert!(serde_json::from_str::<Value>(&export.json).unwrap().is_array());
            prop_assert_eq!(export.tools.len() + export.left_out.len(), 1);
            for tool in &export.tools {
                let value: Value = serde_json::from_str(&tool.json).unwrap();
                let schema = match dialect {
                    Dialect::OpenAi => &value["function"]["parameters"],
                    Dialect::Anthropic => &value["input_schema"],
                    Dialect::Gemini => &value["parameters"],
                    Dialect::Mcp => &value["inputSchema"],
                };
                if dialect == Dialect::Gemini {
                    let refusal = if schema.is_null() { None } else { refusal(schema) };
                    prop_assert_eq!(refusal, None, "{}", root);
                    continue;
                }
                prop_assert_eq!(&schema["type"], "object");
                let refused: &[&str] = match dialect {
                    Dialect::OpenAi => &["oneOf", "anyOf", "allOf", "enum", "const", "not", "$ref"],
                    Dialect::Anthropic => &["oneOf", "anyOf", "allOf", "$ref"],
                    Dialect::Gemini | Dialect::Mcp => &[],
                };
                for keyword in refused {
                    prop_assert!(schema.get(keyword).is_none(), "{} in {}", keyword, schema);
                }
                if tool.dropped.is_empty() && !refused.iter().any(|keyword| root.get(keyword).is_some()) {
                    let text = schema.to_string().replace(r#""items":{},"#, "").replace(r#","items":{}"#, "");
                    let same = root.to_string().replace(r#""items":{},"#, "").replace(r#","items":{}"#, "");
                    prop_assert_eq!(text, same);
                }
            }
        }
    }

    #[test]
    fn every_keyword_is_carried_or_said(root in any_tame_schema()) {
        let tool = tool(&definition("x", &root.to_string()), Dialect::Gemini).unwrap();
        let mut all = Vec::new();
        keywords(&root, &mut all);
        let mut carried = Vec::new();
        keywords(&serde_json::from_str::<Value>(&tool.json).unwrap()["parameters"], &mut carried);
        for keyword in &all {
            let count = |list: &[String]| list.iter().filter(|known| *known == keyword).count();
            let said = tool.dropped.iter().filter(|dropped| dropped.what == *keyword).count();
            prop_assert!(count(&carried) + said >= count(&all), "{}: {:?} of {}", keyword, tool.dropped, root);
        }
    }
}
