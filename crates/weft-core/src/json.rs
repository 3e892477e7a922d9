//! Strict JSON: what weft itself interprets must mean one thing only.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What kind of fault a text has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No JSON, or not all of it: a file that is being written looks like this.
    Syntax,
    /// JSON that says something it must not: a member twice, another type, too deep.
    Content,
}

/// Where and why a text is not the JSON that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} column {column}: {message}")]
pub struct Error {
    /// What kind of fault it is.
    pub fault: Fault,
    /// From 1; 0 when the position is not known.
    pub line: usize,
    /// From 1; 0 when the position is not known.
    pub column: usize,
    /// In words, without values of the document.
    pub message: String,
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
        // The parser counts its own limit of nesting as syntax.
        let content = error.is_data() || message.contains("recursion limit");
        let fault = if content { Fault::Content } else { Fault::Syntax };
        Self { fault, line: error.line(), column: error.column(), message }
    }
}

/// Parses one JSON document and refuses what two parsers could read differently: a member that comes twice in
/// an object, and nesting deeper than 128.
///
/// # Errors
/// With the position, when the text is not such a document.
pub fn parse(bytes: &[u8]) -> Result<Value, Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = UniqueMembers.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

struct UniqueMembers;

impl<'de> DeserializeSeed<'de> for UniqueMembers {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueMembers {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(UniqueMembers)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if map.contains_key(&name) {
                let shown: String = name.chars().take(64).collect();
                return Err(de::Error::custom(format_args!("member {shown:?} comes twice")));
            }
            map.insert(name, members.next_value_seed(UniqueMembers)?);
        }
        Ok(Value::Object(map))
    }
}

/// Whether the text is exactly one JSON object, surrounding white space aside, without building it.
///
/// # Errors
/// With the position, when it is not.
pub fn check_object(text: &str) -> Result<(), Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.deserialize_map(AnyObject)?;
    reader.end()?;
    Ok(())
}

struct AnyObject;

impl<'de> Visitor<'de> for AnyObject {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_comes_twice_is_refused_at_any_depth() {
        let error = parse(br#"{"a":[{"class":"dangerous","class":"safe"}]}"#).unwrap_err();
        assert!(error.message.contains("\"class\" comes twice"), "{error}");
        assert_eq!((error.line, error.fault), (1, Fault::Content));
        assert_eq!(parse("[".repeat(1000).as_bytes()).unwrap_err().fault, Fault::Content);
        assert_eq!(parse(b"{\"a\":").unwrap_err().fault, Fault::Syntax);
    }

    #[test]
    fn plain_documents_parse_like_serde_json() {
        let text = br#"{"a":[1,-2,1.5,null,true,"x"],"b":{}}"#;
        assert_eq!(parse(text).unwrap(), serde_json::from_slice::<Value>(text).unwrap());
        assert!(parse(b"{} {}").is_err());
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn only_one_object_passes_as_a_result() {
        check_object("\n {\"ok\":1.10}\n\n").unwrap();
        for text in ["", "1", "[]", "{}{}", "x {}", "{\"a\":NaN}", "{"] {
            assert!(check_object(text).is_err(), "{text}");
        }
    }
}
