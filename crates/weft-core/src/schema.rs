//! JSON Schemas of args and results: compiled under bounds, since a skill's author writes them.
//!
//! References are resolved inside the schema only, patterns run in linear time, and a schema whose combinators
//! and references expand to too many sub-schemas is refused: 28 levels of `allOf` over one `$ref` fit into two
//! kilobytes and take seconds for one value.

mod cost;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::{json, limits};

/// A compiled schema. Cheap to use, safe to share.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    /// Sub-schemas that are applied to one part of a value, at most.
    per_part: u64,
}

/// Why a schema does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Larger than [`limits::SCHEMA_BYTES`].
    #[error("the schema has {0} bytes, the limit is {limit}", limit = limits::SCHEMA_BYTES)]
    TooLarge(usize),
    /// Not JSON.
    #[error("the schema is not JSON: {0}")]
    Syntax(json::Error),
    /// Nested deeper than [`limits::SCHEMA_DEPTH`].
    #[error("the schema is nested deeper than {limit} levels", limit = limits::SCHEMA_DEPTH)]
    TooDeep,
    /// Not an object.
    #[error("the schema must be an object that describes the args object")]
    NotAnObject,
    /// It fits no object.
    #[error(
        "the schema is for {0}, but args and results are objects: \"type\" must be, or include, \"object\""
    )]
    NotForObjects(String),
    /// A reference that leaves the document, or points at nothing in it.
    #[error(
        "the reference {0:?} is not a place in the schema; only references such as \"#/$defs/x\" are allowed"
    )]
    Reference(String),
    /// A sub-schema that changes what references mean.
    #[error("\"$id\" is only allowed at the top of a schema")]
    NestedId,
    /// References and combinators that expand too far.
    #[error("references and combinators expand to more than {limit} sub-schemas", limit = limits::SCHEMA_EXPANSION)]
    Expansion,
    /// A `$ref` chain that comes back to itself without reading any part of the value.
    #[error("the reference {0:?} comes back to itself without describing anything")]
    Circular(String),
    /// Refused by the validator.
    #[error("the schema is not valid: {0}")]
    Invalid(String),
}

/// One place where a value breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the value; empty for the whole.
    pub pointer: String,
    /// What is wrong, without the value itself, which may be secret.
    pub message: String,
}

/// Most sub-schemas that one validation may apply: some tens of milliseconds.
const MAX_WORK: u64 = 5_000_000;
/// Most sub-schemas that one validation may apply when it says what does not fit.
const MAX_WORK_EXPLAINED: u64 = 50_000;
/// Most violations that one validation reports.
const MAX_VIOLATIONS: usize = 16;

impl Schema {
    /// Compiles a schema given as JSON text.
    ///
    /// # Errors
    /// When it breaks one of the bounds or is no JSON Schema.
    pub fn compile(text: &str) -> Result<Self, SchemaError> {
        if text.len() > limits::SCHEMA_BYTES {
            return Err(SchemaError::TooLarge(text.len()));
        }
        let schema = json::parse(text.as_bytes()).map_err(SchemaError::Syntax)?;
        if !schema.is_object() {
            return Err(SchemaError::NotAnObject);
        }
        if let Some(kind) = schema.get("type")
            && *kind != "object"
            && !kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
        {
            return Err(SchemaError::NotForObjects(kind.to_string().chars().take(80).collect()));
        }
        if depth(&schema) > limits::SCHEMA_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        let per_part = cost::per_part(&schema)?;
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20).dfa_size_limit(1 << 20))
            .build(&schema)
            .map_err(|error| SchemaError::Invalid(error.masked().to_string()))?;
        Ok(Self { validator, per_part })
    }

    /// Checks a value.
    ///
    /// # Errors
    /// With the first violations, at most sixteen.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<Violation>> {
        let whole = |message: &str| vec![Violation { pointer: String::new(), message: message.to_owned() }];
        let work = parts(value).saturating_mul(self.per_part);
        if work > MAX_WORK {
            return Err(whole("the value has more parts than this schema can be checked for"));
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        // Every branch that does not fit leaves an error behind, so a list is only made where it is short.
        if work > MAX_WORK_EXPLAINED {
            return Err(whole("the value does not fit the schema; it is too large to say where"));
        }
        Err(self
            .validator
            .iter_errors(value)
            .take(MAX_VIOLATIONS)
            .map(|error| Violation {
                pointer: error.instance_path().to_string(),
                message: error.masked().to_string(),
            })
            .collect())
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Parts of a value: itself, and every member and element below it.
fn parts(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(parts).fold(1, u64::saturating_add),
        Value::Object(members) => members.values().map(parts).fold(1, u64::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    #[test]
    fn violations_name_the_place_and_hide_the_value() {
        let schema = Schema::compile(
            r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#,
        )
        .unwrap();
        let violations = schema.validate(&json!({"path": 4242})).unwrap_err();
        assert_eq!(violations[0].pointer, "/path");
        assert!(!violations[0].message.contains("4242"), "{}", violations[0].message);
        assert!(schema.validate(&json!({"path": "/var"})).is_ok());
    }

    #[test]
    fn hostile_schemas_are_refused_or_fast() {
        let mut doubling = String::from(r##"{"$ref":"#/$defs/d0","$defs":{"##);
        for level in 0..28 {
            let next = level + 1;
            doubling += &format!(
                r##""d{level}":{{"allOf":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}},"##
            );
        }
        doubling += r#""d28":{"type":"string"}}}"#;
        let mut chain = String::from(r##"{"$ref":"#/$defs/0","$defs":{"##);
        for link in 0..2500 {
            chain += &format!(r##""{link}":{{"$ref":"#/$defs/{}"}},"##, link + 1);
        }
        chain += r#""2500":{}}}"#;
        let nested = r#"{"allOf":["#.repeat(2000) + "{}" + &"]}".repeat(2000);
        let cases = [
            r#"{"$ref":""}"#,
            r##"{"$ref":"#"}"##,
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
            &nested,
            &doubling,
            r#"{"$ref":"http://127.0.0.1:9/x"}"#,
            r#"{"$ref":"file:///etc/passwd"}"#,
            r#"{"type":"objekt"}"#,
            r#"{"properties":{"a":{"type":"objekt"}}}"#,
            "true",
            "[]",
            &chain,
            r#"{"pattern":"(a)\\1"}"#,
            r#"{"pattern":"\\p{L}{500}\\p{L}{500}"}"#,
        ];
        for text in cases {
            let begun = Instant::now();
            if let Ok(schema) = Schema::compile(text) {
                let _ = schema.validate(&json!({}));
                let _ = schema.validate(&json!({"a": 1}));
            }
            assert!(begun.elapsed() < Duration::from_secs(2), "{}", &text[..text.len().min(60)]);
        }
        assert_eq!(Schema::compile(&doubling).unwrap_err(), SchemaError::Expansion);
        assert!(matches!(Schema::compile(r#"{"$ref":"http://x/y"}"#), Err(SchemaError::Reference(_))));
        assert!(matches!(Schema::compile(&nested), Err(SchemaError::Syntax(_) | SchemaError::TooDeep)));
    }

    #[test]
    fn recursion_that_comes_back_twice_for_the_same_part_is_refused() {
        let twice = r##"{"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[
            {"properties":{"c":{"$ref":"#/$defs/n"}},"required":["x"]},
            {"properties":{"c":{"$ref":"#/$defs/n"}},"required":["y"]}]}}}"##;
        assert_eq!(Schema::compile(twice).unwrap_err(), SchemaError::Expansion);
        // Different members, and other members beside named ones, are different parts.
        let expression = r##"{"$ref":"#/$defs/e","$defs":{
            "e":{"anyOf":[{"type":"number"},{"$ref":"#/$defs/op"}]},
            "op":{"type":"object","properties":{"left":{"$ref":"#/$defs/e"},"right":{"$ref":"#/$defs/e"}},
                  "additionalProperties":{"$ref":"#/$defs/e"}}}}"##;
        let expression = Schema::compile(expression).unwrap();
        assert!(expression.validate(&json!({"left": 1, "right": {"left": 2, "x": {"right": 3}}})).is_ok());
        assert!(expression.validate(&json!({"left": "one"})).is_err());
    }

    #[test]
    fn wide_schemas_are_bounded_by_the_value() {
        let consts: Vec<_> = (0..4000).map(|n| json!({"const": n})).collect();
        let wide = Schema::compile(&json!({"items": {"anyOf": consts}}).to_string()).unwrap();
        assert!(wide.validate(&json!([1, 2, 3999])).is_ok());
        let begun = Instant::now();
        let many: Vec<_> = (0..500_000).map(|_| -1).collect();
        let violations = wide.validate(&json!(many)).unwrap_err();
        assert!(violations[0].message.contains("more parts"), "{violations:?}");
        assert!(
            wide.validate(&json!(vec![-1; 100])).unwrap_err()[0].message.contains("too large to say where")
        );
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_schema_that_fits_no_object_is_refused() {
        assert!(matches!(Schema::compile(r#"{"type":"string"}"#), Err(SchemaError::NotForObjects(_))));
        assert!(Schema::compile(r#"{"type":["object","null"]}"#).is_ok());
        assert!(Schema::compile("{}").is_ok());
    }

    #[test]
    fn recursion_into_the_value_is_sound() {
        let tree = Schema::compile(
            r##"{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#/$defs/node"}}}}}}"##,
        )
        .unwrap();
        assert!(tree.validate(&json!({"children":[{"children":[]}]})).is_ok());
        assert!(tree.validate(&json!({"children":[{"children":3}]})).is_err());
    }
}
