//! Args to try a skill with, taken from its schema.

use serde_json::{Map, Value};
use weft_core::schema::Schema;

/// Args that fit a schema: its own example, or each required member at its default, its example or the simplest value
/// of its type. `None` when the schema does not give enough away.
pub(crate) fn of_schema(text: &str) -> Option<Map<String, Value>> {
    let schema: Value = serde_json::from_str(text).ok()?;
    let args = match given(&schema) {
        Some(Value::Object(args)) => args,
        _ => required(&schema)?,
    };
    let fits = Schema::compile(text).ok()?.validate(&Value::Object(args.clone())).is_ok();
    fits.then_some(args)
}

/// The args as `key=value` words for a shell.
pub(crate) fn words(args: &Map<String, Value>) -> String {
    let words: Vec<_> = args
        .iter()
        .map(|(name, value)| match value {
            Value::String(text) => quoted(&format!("{name}={text}")),
            other => quoted(&format!("{name}={other}")),
        })
        .collect();
    words.join(" ")
}

fn required(schema: &Value) -> Option<Map<String, Value>> {
    let names = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    names
        .iter()
        .map(|name| {
            let name = name.as_str()?;
            let member = schema.get("properties")?.get(name)?;
            Some((name.to_owned(), given(member).or_else(|| simplest(member))?))
        })
        .collect()
}

/// The value that a schema itself names.
fn given(schema: &Value) -> Option<Value> {
    let named = ["default", "const"].iter().find_map(|key| schema.get(key));
    let listed = || ["examples", "enum"].iter().find_map(|key| schema.get(key)?.get(0));
    named.or_else(listed).cloned()
}

/// A value of the type that a schema asks for.
fn simplest(schema: &Value) -> Option<Value> {
    match schema.get("type")?.as_str()? {
        // Free text takes anything, unless more is asked of it.
        "string" if schema.get("pattern").or(schema.get("format")).is_none() => Some("world".into()),
        "boolean" => Some(true.into()),
        "integer" | "number" => Some(schema.get("minimum").cloned().unwrap_or_else(|| 1.into())),
        "array" => Some(Value::Array(Vec::new())),
        "object" => required(schema).map(Value::Object),
        _ => None,
    }
}

/// A word as a shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example(schema: Value) -> Option<Value> {
        of_schema(&schema.to_string()).map(Value::Object)
    }

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quoted("name=world"), "name=world");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("a b"), "'a b'");
        let args = json!({"n": 5, "text": "a b", "list": [1]});
        assert_eq!(words(args.as_object().unwrap()), "'list=[1]' n=5 'text=a b'");
    }

    #[test]
    fn what_the_schema_names_comes_first_and_optional_members_stay_out() {
        let schema = json!({"required": ["a", "b", "c", "d", "e"], "properties": {
            "a": {"type": "integer", "default": 7}, "b": {"enum": ["x", "y"]},
            "c": {"type": "string", "examples": ["/tmp"]}, "d": {"type": "integer", "minimum": 3},
            "e": {"type": "string"}, "optional": {"type": "string", "default": "z"}
        }});
        assert_eq!(example(schema), Some(json!({"a": 7, "b": "x", "c": "/tmp", "d": 3, "e": "world"})));
        assert_eq!(example(json!({"examples": [{"q": 1}], "required": ["q"]})), Some(json!({"q": 1})));
        assert_eq!(example(json!({"type": "object"})), Some(json!({})));
    }

    #[test]
    fn what_would_be_refused_is_no_example() {
        let date = json!({"type": "string", "pattern": "^[0-9]+$"});
        assert_eq!(example(json!({"required": ["d"], "properties": {"d": date}})), None);
        let few = json!({"type": "array", "minItems": 2});
        assert_eq!(example(json!({"required": ["l"], "properties": {"l": few}})), None);
        assert_eq!(example(json!({"required": ["unknown"]})), None);
    }
}
