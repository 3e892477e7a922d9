//! `key=value` on the command line, typed by the skill's schema.

use serde_json::{Map, Value};

/// Makes the args object from `key=value` words. The type of a value is the one that the schema gives to the
/// member; without one it is text. A value for a member that the schema types as object or array is JSON. `key=` is
/// the empty text, `key:=JSON` is JSON whatever the schema says.
pub(crate) fn parse(words: &[String], schema: &Value) -> Result<Value, String> {
    let mut args = Map::new();
    for word in words {
        let (name, value) = match (word.split_once(":="), word.split_once('=')) {
            (Some((name, text)), Some((plain, _))) if name.len() < plain.len() => {
                (name, serde_json::from_str(text).map_err(|error| format!("{name}: not JSON: {error}"))?)
            }
            (_, Some((name, text))) => (name, typed(name, text, schema)?),
            (_, None) => return Err(format!("{word:?} is not key=value")),
        };
        if name.is_empty() {
            return Err(format!("{word:?} has no name before '='"));
        }
        if args.insert(name.to_owned(), value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    Ok(Value::Object(args))
}

fn typed(name: &str, text: &str, schema: &Value) -> Result<Value, String> {
    let member = schema.pointer(&format!("/properties/{}", name.replace('~', "~0").replace('/', "~1")));
    let types: Vec<&str> = match member.and_then(|member| member.get("type")) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    if types.is_empty() || types.contains(&"string") {
        return Ok(Value::String(text.to_owned()));
    }
    let fits = |value: &Value| {
        types.iter().any(|kind| match *kind {
            "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "object" => value.is_object(),
            "array" => value.is_array(),
            "null" => value.is_null(),
            _ => true,
        })
    };
    match serde_json::from_str(text) {
        Ok(value) if fits(&value) => Ok(value),
        _ => Err(format!("{name}: the skill expects {}, {text:?} is not", types.join(" or "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn args(words: &[&str]) -> Result<Value, String> {
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
        let expected = json!({"path": "5", "count": 5, "deep": true, "ratio": null, "tags": [1],
                              "other": "x=y", "raw": {"a": 1}});
        assert_eq!(args(&words).unwrap(), expected);
        assert_eq!(args(&["path="]).unwrap(), json!({"path": ""}));
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
