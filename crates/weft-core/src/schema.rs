//! JSON Schemas of args and results: compiled under bounds, since a skill's author writes them.
//!
//! References are resolved inside the schema only, patterns run in linear time, and a schema whose combinators
//! and references expand to too many sub-schemas is refused: 28 levels of `allOf` over one `$ref` fit into two
//! kilobytes and take seconds for one value.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::{json, limits};

/// A compiled schema. Cheap to use, safe to share.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
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
    /// A `$ref` that leaves the document.
    #[error("the reference {0:?} leaves the schema; only local references such as \"#/$defs/x\" are allowed")]
    RemoteReference(String),
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
        if depth(&schema) > limits::SCHEMA_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        Expansion::new(&schema).check()?;
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20).dfa_size_limit(1 << 20))
            .build(&schema)
            .map_err(|error| SchemaError::Invalid(error.masked().to_string()))?;
        Ok(Self { validator })
    }

    /// Checks a value.
    ///
    /// # Errors
    /// With the first violations, at most sixteen.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<Violation>> {
        if self.validator.is_valid(value) {
            return Ok(());
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

/// Counts the sub-schemas that are applied to *the same* value when every local reference is followed.
///
/// A keyword that goes into a part of the value (`properties`, `items`) starts a count of its own: there the
/// size of the value bounds the work, and recursion is sound.
struct Expansion<'a> {
    root: &'a Value,
    counts: HashMap<*const Value, Count>,
}

#[derive(Clone, Copy)]
enum Count {
    Counting,
    Known(u64),
}

/// Keywords whose sub-schemas are applied to the same value.
const IN_PLACE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];

/// Keywords whose members are data, not schemas.
const DATA: [&str; 6] = ["enum", "const", "default", "examples", "required", "dependentRequired"];

impl<'a> Expansion<'a> {
    fn new(root: &'a Value) -> Self {
        Self { root, counts: HashMap::new() }
    }

    fn check(mut self) -> Result<(), SchemaError> {
        self.every(self.root)
    }

    /// Checks each sub-schema below, wherever it stands.
    fn every(&mut self, value: &'a Value) -> Result<(), SchemaError> {
        match value {
            Value::Object(members) => {
                self.count(value)?;
                for (name, member) in members {
                    if !DATA.contains(&name.as_str()) {
                        self.every(member)?;
                    }
                }
                Ok(())
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.every(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn count(&mut self, schema: &'a Value) -> Result<u64, SchemaError> {
        let Value::Object(members) = schema else { return Ok(1) };
        let key = std::ptr::from_ref(schema);
        match self.counts.get(&key) {
            Some(Count::Known(count)) => return Ok(*count),
            Some(Count::Counting) => {
                let name = members.get("$ref").and_then(Value::as_str).unwrap_or("#");
                return Err(SchemaError::Circular(name.to_owned()));
            }
            None => {}
        }
        self.counts.insert(key, Count::Counting);
        let mut total: u64 = 1;
        for name in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(Value::String(reference)) = members.get(name) {
                let target = self.resolve(reference)?;
                total = total.saturating_add(self.count(target)?);
            }
        }
        for name in IN_PLACE {
            match members.get(name) {
                Some(Value::Array(list)) => {
                    for item in list {
                        total = total.saturating_add(self.count(item)?);
                    }
                }
                Some(Value::Object(map)) if matches!(name, "dependentSchemas" | "dependencies") => {
                    for item in map.values() {
                        total = total.saturating_add(self.count(item)?);
                    }
                }
                Some(item) => total = total.saturating_add(self.count(item)?),
                None => {}
            }
        }
        if total > limits::SCHEMA_EXPANSION {
            return Err(SchemaError::Expansion);
        }
        self.counts.insert(key, Count::Known(total));
        Ok(total)
    }

    /// The sub-schema that a reference means. Anchors and ids are left to the validator, which bounds them by
    /// refusing what it cannot find; they are counted as the whole document.
    fn resolve(&self, reference: &str) -> Result<&'a Value, SchemaError> {
        let fragment = match reference.strip_prefix('#') {
            Some(fragment) => fragment,
            None if reference.is_empty() => "",
            None => return Err(SchemaError::RemoteReference(reference.chars().take(200).collect())),
        };
        Ok(self.root.pointer(fragment).unwrap_or(self.root))
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
            "true",
            "[]",
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
        assert!(matches!(Schema::compile(r#"{"$ref":"http://x/y"}"#), Err(SchemaError::RemoteReference(_))));
        assert!(matches!(Schema::compile(&nested), Err(SchemaError::Syntax(_) | SchemaError::TooDeep)));
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
