//! `key=value` on the command line, typed by the skill's schema.

use serde::de::IgnoredAny;
use serde_json::Value;

/// Makes the text of the args object from `key=value` words, in their order. The type of a value is the one that the
/// schema gives to the member; without one it is text. A value that is not text stays as it is written: `1.10` and
/// integers of any length survive. `key=` is the empty text, `key:=JSON` is JSON whatever the schema says.
pub(crate) fn parse(words: &[String], schema: &Value) -> Result<String, String> {
    let mut members: Vec<(&str, String)> = Vec::new();
    for word in words {
        let (name, value) = match (word.split_once(":="), word.split_once('=')) {
            (Some((name, text)), Some((plain, _))) if name.len() < plain.len() => {
                serde_json::from_str::<IgnoredAny>(text)
                    .map_err(|error| format!("{name}: not JSON: {error}"))?;
                (name, text.to_owned())
            }
            (_, Some((name, text))) => (name, typed(name, text, schema)?),
            (_, None) => return Err(format!("{word:?} is not key=value")),
        };
        if name.is_empty() {
            return Err(format!("{word:?} has no name before '='"));
        }
        if members.iter().any(|(known, _)| *known == name) {
            return Err(format!("{name} is given twice"));
        }
        members.push((name, value));
    }
    let members: Vec<_> =
        members.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
    Ok(format!("{{{}}}", members.join(",")))
}

/// A value as JSON text.
fn typed(name: &str, text: &str, schema: &Value) -> Result<String, String> {
    let member = schema.pointer(&format!("/properties/{}", name.replace('~', "~0").replace('/', "~1")));
    let types: Vec<&str> = match member.and_then(|member| member.get("type")) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    if types.is_empty() || types.contains(&"string") {
        return Ok(Value::from(text).to_string());
    }
    let text = text.trim();
    let fits = |kind: &&str| match *kind {
        // A number is judged by its text: a parsed one would be rounded.
        "integer" | "number" => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let number = digits.starts_with(|c: char| c.is_ascii_digit()) && is_json(text);
            number && (*kind == "number" || digits.bytes().all(|b| b.is_ascii_digit()))
        }
        "boolean" => matches!(text, "true" | "false"),
        "object" => text.starts_with('{') && is_json(text),
        "array" => text.starts_with('[') && is_json(text),
        "null" => text == "null",
        _ => is_json(text),
    };
    if types.iter().any(fits) {
        Ok(text.to_owned())
    } else {
        Err(format!("{name}: the skill expects {}, {text:?} is not", types.join(" or ")))
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn args(words: &[&str]) -> Result<String, String> {
        let schema = json!({"properties": {
            "path": {"type": "string"}, "count": {"type": "integer"}, "deep": {"type": "boolean"},
            "ratio": {"type": ["number", "null"]}, "tags": {"type": "array"}
        }});
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), &schema)
    }

    #[test]
    fn values_get_the_type_that_the_schema_gives() {
        let words =
            ["path=5", "count=5", "deep=true", "ratio=null", "tags=[1]", "other=x=y", "raw:={\"a\":1}"];
        let expected =
            r#"{"path":"5","count":5,"deep":true,"ratio":null,"tags":[1],"other":"x=y","raw":{"a":1}}"#;
        assert_eq!(args(&words).unwrap(), expected);
        assert_eq!(args(&["path="]).unwrap(), r#"{"path":""}"#);
        assert_eq!(args(&[]).unwrap(), "{}");
    }

    #[test]
    fn numbers_and_order_stay_as_written() {
        let words = ["ratio=1.10", "count=123456789012345678901234567890", "a=\"quoted\""];
        assert_eq!(
            args(&words).unwrap(),
            r#"{"ratio":1.10,"count":123456789012345678901234567890,"a":"\"quoted\""}"#
        );
    }

    #[test]
    fn what_does_not_fit_names_the_member_and_the_type() {
        for word in ["count=many", "count=1.5", "deep=yes", "tags={}", "novalue", "=x", "raw:={"] {
            assert!(args(&[word]).is_err(), "{word}");
        }
        assert!(args(&["count=many"]).unwrap_err().contains("integer"));
        assert!(args(&["path=1", "path=2"]).is_err());
    }
}
