//! The `SKILL.md` that a skill without one gets, so that kernels can read every skill the same way.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;
use weft_core::skill::Class;

use crate::manifest::Manifest;

/// Longest description of one argument, in characters.
const ARGUMENT: usize = 400;
/// Most arguments that are listed; the schema has them all.
const MAX_ARGUMENTS: usize = 100;

/// Writes the instructions for a manifest. Depends on the manifest alone.
pub(crate) fn generate(manifest: &Manifest) -> String {
    let mut out = String::new();
    // A JSON string is a double-quoted YAML string as well.
    let quoted = Value::String(manifest.description.clone());
    let class = match manifest.class {
        Class::Safe => "safe (reads only, changes nothing)",
        Class::Mutating => "mutating (changes state, reversibly)",
        Class::Dangerous => "dangerous (cannot be undone)",
    };
    let _ = write!(
        out,
        "---\nname: {name}\ndescription: {quoted}\n---\n\n# {name}\n\n{description}\n\nClass: {class}. Time-out: {timeout} s.\n\n## Args\n\n",
        name = manifest.name,
        description = manifest.description.trim(),
        timeout = manifest.timeout.as_secs(),
    );
    let schema: Value = serde_json::from_str(&manifest.schema).unwrap_or(Value::Null);
    arguments(&schema, &mut out);
    out
}

fn arguments(schema: &Value, out: &mut String) {
    let properties: BTreeMap<&String, &Value> =
        schema.get("properties").and_then(Value::as_object).into_iter().flatten().collect();
    if properties.is_empty() {
        out.push_str("One JSON object");
        out.push_str(if schema.as_object().is_none_or(|members| members.len() <= 2) {
            "; no argument is described.\n"
        } else {
            " as its schema says.\n"
        });
        return;
    }
    out.push_str("One JSON object with:\n\n");
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, property) in properties.iter().take(MAX_ARGUMENTS) {
        let mut notes = Vec::new();
        match property.get("type") {
            Some(Value::String(kind)) => notes.push(kind.clone()),
            Some(Value::Array(kinds)) => {
                notes.push(kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "));
            }
            _ => {}
        }
        if required.contains(&name.as_str()) {
            notes.push("required".to_owned());
        }
        if let Some(values) = property.get("enum") {
            notes.push(format!("one of {}", one_line(&values.to_string())));
        }
        if let Some(value) = property.get("default") {
            notes.push(format!("default {}", one_line(&value.to_string())));
        }
        let _ = write!(out, "- `{}`", one_line(name).replace('`', "'"));
        if !notes.is_empty() {
            let _ = write!(out, " ({})", notes.join(", "));
        }
        if let Some(description) = property.get("description").and_then(Value::as_str) {
            let _ = write!(out, ": {}", one_line(description));
        }
        out.push('\n');
    }
    if properties.len() > MAX_ARGUMENTS {
        let _ = writeln!(out, "- and {} more, see the schema", properties.len() - MAX_ARGUMENTS);
    }
}

fn one_line(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match joined.char_indices().nth(ARGUMENT) {
        Some((end, _)) => format!("{}…", &joined[..end]),
        None => joined,
    }
}

#[cfg(test)]
mod tests {
    use weft_core::limits;

    use super::*;
    use crate::{frontmatter, loader::Compat, manifest};

    fn generated(text: &str) -> String {
        generate(&manifest::parse(text.as_bytes(), limits::MAX_TIMEOUT, Compat::default()).unwrap())
    }

    #[test]
    fn generated_instructions_name_description_class_and_args() {
        let text = generated(
            r#"{"name":"disk_cleaner","description":"Free: \"disk\"\n---\nspace.","entry":"run","class":"mutating",
                "timeout_seconds":60,"schema":{"type":"object","properties":{
                "path":{"type":"string","description":"Root\npath."},"dry_run":{"type":"boolean","default":true},
                "mode":{"enum":["a","b"]}},"required":["path"]}}"#,
        );
        assert!(text.contains("- `dry_run` (boolean, default true)\n"), "{text}");
        assert!(text.contains("- `path` (string, required): Root path.\n"), "{text}");
        assert!(text.contains("- `mode` (one of [\"a\",\"b\"])\n"), "{text}");
        assert!(text.contains("Class: mutating"), "{text}");
        let document = frontmatter::parse(text.as_bytes()).unwrap();
        assert_eq!(document.name.as_deref(), Some("disk_cleaner"));
        assert_eq!(document.description.as_deref(), Some("Free: \"disk\"\n---\nspace."));
    }

    #[test]
    fn a_skill_without_args_says_so() {
        let text = generated(r#"{"name":"x","description":"d","entry":"run"}"#);
        assert!(text.contains("no argument is described"), "{text}");
    }
}
