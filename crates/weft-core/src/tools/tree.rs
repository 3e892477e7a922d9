//! A JSON document that keeps the order of members and the spelling of numbers, which a schema's author chose and a
//! model reads: `serde_json::Value` sorts the first and rounds integers beyond 64 bits.

use std::{collections::HashSet, fmt};

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Value, value::RawValue};

use crate::json;

/// Deepest nesting: as deep as any other JSON that weft reads.
const MAX_DEPTH: usize = 128;

/// One JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    /// As it was spelled.
    Number(String),
    Text(String),
    List(Vec<Tree>),
    /// In the order of the document.
    Object(Vec<(String, Tree)>),
}

impl Tree {
    pub(super) fn parse(text: &str) -> Result<Self, json::Error> {
        let raw: &RawValue = serde_json::from_str(text)?;
        read(raw, 0)
    }

    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(super) fn object(members: Vec<(&str, Self)>) -> Self {
        Self::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The members of an object; `None` for anything else.
    pub(super) fn members(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The member of an object; `None` also for anything else.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        self.members()?.iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// The elements of a list; none for anything else.
    pub(super) fn elements(&self) -> &[Self] {
        match self {
            Self::List(elements) => elements,
            _ => &[],
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a number, rounded.
    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(spelled) => spelled.parse().ok(),
            _ => None,
        }
    }

    /// What a JSON pointer names.
    pub(super) fn pointer(&self, pointer: &str) -> Option<&Self> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |tree, token| match tree {
            Self::Object(_) => tree.member(&token.replace("~1", "/").replace("~0", "~")),
            Self::List(elements) => elements.get(token.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

/// The pointer to what is below another place.
pub(super) fn below(pointer: &str, token: &str) -> String {
    format!("{pointer}/{}", token.replace('~', "~0").replace('/', "~1"))
}

/// Each level is scanned once more for each level above it, which the depth bounds.
fn read(raw: &RawValue, depth: usize) -> Result<Tree, json::Error> {
    if depth > MAX_DEPTH {
        return Err(de::Error::custom("nested too deep")).map_err(|error: serde_json::Error| error.into());
    }
    let text = raw.get();
    Ok(match text.as_bytes().first() {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text)?;
            let read = |(name, raw): (String, &RawValue)| Ok((name, read(raw, depth + 1)?));
            Tree::Object(members.into_iter().map(read).collect::<Result<_, json::Error>>()?)
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text)?;
            Tree::List(elements.into_iter().map(|raw| read(raw, depth + 1)).collect::<Result<_, _>>()?)
        }
        Some(b'"') => Tree::Text(serde_json::from_str(text)?),
        Some(b't') => Tree::Bool(true),
        Some(b'f') => Tree::Bool(false),
        Some(b'n') => Tree::Null,
        _ => Tree::Number(text.to_owned()),
    })
}

struct Members<'de>(Vec<(String, &'de RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                let mut names = HashSet::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if !names.insert(name.clone()) {
                        return Err(de::Error::custom("a member comes twice"));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        reader.deserialize_map(Reader)
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(spelled) => f.write_str(spelled),
            Self::Text(text) => quoted(f, text),
            Self::List(elements) => {
                f.write_str("[")?;
                for (n, element) in elements.iter().enumerate() {
                    f.write_str(if n > 0 { "," } else { "" })?;
                    element.fmt(f)?;
                }
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (n, (name, value)) in members.iter().enumerate() {
                    f.write_str(if n > 0 { "," } else { "" })?;
                    quoted(f, name)?;
                    f.write_str(":")?;
                    value.fmt(f)?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "{}", Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_spelling_survive() {
        let text =
            r#"{"z":[1.10,1e3,123456789012345678901234567890,-0],"a":{"é\n":null,"~/":[true,false]},"m":{}}"#;
        let tree = Tree::parse(text).unwrap();
        assert_eq!(tree.to_string(), text);
        assert_eq!(tree.pointer("/a/~0~1/1"), Some(&Tree::Bool(false)));
        assert_eq!(below("/a", "~/"), "/a/~0~1");
        assert_eq!(Tree::parse(" { \"a\" : [ 1 , 2 ] } ").unwrap().to_string(), r#"{"a":[1,2]}"#);
    }

    #[test]
    fn what_is_no_plain_json_is_refused() {
        let deep = "[".repeat(500) + &"]".repeat(500);
        for text in ["", "{", "{} {}", r#"{"a":1,"a":2}"#, r#"["\ud800"]"#, &deep] {
            assert!(Tree::parse(text).is_err(), "{}", &text[..text.len().min(40)]);
        }
    }
}
