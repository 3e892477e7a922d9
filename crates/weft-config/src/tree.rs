//! A file as a tree of values, each with the line that it stands on.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, Spanned, budget::BudgetBreach};
use weft_core::text;

use crate::finding::Finding;

/// Deepest nesting of a file.
const DEPTH: usize = 32;
/// Most values in a file.
const VALUES: usize = 200_000;

/// A value and where it stands. It has no `Debug`: it may be a secret.
pub(crate) struct Node {
    /// From 1; 0 where it is not known.
    pub(crate) line: u64,
    pub(crate) kind: Kind,
}

/// A value.
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; a key may come twice.
    Map(Vec<Member>),
}

/// A key and its value.
pub(crate) struct Member {
    pub(crate) name: String,
    /// The line of the key.
    pub(crate) line: u64,
    pub(crate) node: Node,
}

impl Node {
    /// The value without its lines. Of a key that comes twice the last counts.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => items.iter().map(Self::value).collect(),
            Kind::Map(members) => {
                members.iter().map(|member| (member.name.clone(), member.node.value())).collect()
            }
        }
    }
}

/// Reads a file's text.
pub(crate) fn read(text: &str) -> Result<Node, Finding> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let silent = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(silent) {
        return Ok(Node { line: 1, kind: Kind::Null });
    }
    serde_saphyr::from_str_with_options(text, options()).or_else(|error| {
        // JSON that YAML does not take: surrogate pairs, mostly. The lines are lost then.
        json(text).ok_or_else(|| problem(&error))
    })
}

fn json(text: &str) -> Option<Node> {
    let mut deepest = 0usize;
    let mut depth = 0usize;
    // Brackets within text count as well, which only refuses more.
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    let likely = text.trim_start().starts_with('{') && deepest <= DEPTH;
    likely.then(|| serde_json::from_str(text).ok()).flatten()
}

/// Bounds on what a file may cost. Anchors are refused: a small file could mean a large one.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH,
            max_nodes: VALUES,
            max_anchors: 0,
            max_aliases: 0,
            max_documents: 1,
        },
        // The visitor keeps all, so that each can be reported with its path.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        strict_booleans: true,
        // A snippet would show what stands in the file.
        with_snippet: false,
    }
}

fn problem(error: &serde_saphyr::Error) -> Finding {
    let location = error.location();
    Finding {
        line: location.map(|location| location.line()).filter(|line| *line > 0),
        column: location.map(|location| location.column()).filter(|column| *column > 0),
        path: String::new(),
        message: explain(error.without_snippet()),
    }
}

/// The error in words of our own: the parser's may show what stands in the file.
fn explain(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error as Yaml;
    let fixed = match error {
        // These are fixed sentences, with one character of the file in them at most.
        Yaml::ExternalMessage { msg, .. } => {
            return format!("not valid YAML: {}", text::escape(msg.as_bytes()));
        }
        Yaml::Budget { breach, .. } => match breach {
            BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. } => ANCHORS,
            BudgetBreach::Depth { .. } => "nested too deeply; 32 levels are taken",
            BudgetBreach::Documents { .. } => DOCUMENTS,
            _ => "holds more values than are taken",
        },
        Yaml::UnknownAnchor { .. } | Yaml::AliasError { .. } => ANCHORS,
        Yaml::MultipleDocuments { .. } => DOCUMENTS,
        Yaml::MergeKeyNotAllowed { .. } => "merge keys (<<) are not taken; write the keys out",
        Yaml::UnsupportedTag { .. } => "a tag (!) stands here, and none is taken; put text in quotes",
        Yaml::NonFiniteFloat { .. } => "a number must be finite; put text in quotes",
        Yaml::NullIntoString { .. } => "a key must be text, and here is none",
        Yaml::Eof { .. } => "not valid YAML: the file ends too early",
        _ => {
            "cannot be read; a key must be text, a value must be text, a number, true, false, a list or a mapping"
        }
    };
    fixed.to_owned()
}

const ANCHORS: &str =
    "anchors and aliases (& and *) are not taken; write the value out, or put text in quotes";
const DOCUMENTS: &str = "holds more than one document; only one is taken";

// === impl Deserialize ===

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Kind>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), kind: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true, false, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Kind, E> {
        self.visit_f64(value as f64)
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Kind, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Kind, E> {
        Number::from_f64(value).map(Kind::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Kind, E> {
        Ok(Kind::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kind, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Kind::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Kind, A::Error> {
        let mut map = Vec::new();
        while let Some((name, node)) = entries.next_entry::<Spanned<String>, Node>()? {
            map.push(Member { line: name.referenced.line(), name: name.value, node });
        }
        Ok(Kind::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(text: &str) -> String {
        match read(text) {
            Ok(_) => panic!("{text:?} was taken"),
            Err(finding) => finding.to_string(),
        }
    }

    fn value(text: &str) -> Value {
        read(text).unwrap_or_else(|finding| panic!("{finding}")).value()
    }

    #[test]
    fn keys_and_values_know_their_lines() {
        let node = read("a: 1\nb:\n  - x\n  - c: 2\n").unwrap_or_else(|finding| panic!("{finding}"));
        let Kind::Map(root) = &node.kind else { panic!() };
        assert_eq!((root[1].name.as_str(), root[1].line), ("b", 2));
        let Kind::List(items) = &root[1].node.kind else { panic!() };
        assert_eq!(items.iter().map(|item| item.line).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn json_is_taken_whatever_it_holds() {
        for text in [
            r#"{"a": [1, -2, 3.5, true, null, "x"], "b": {"c": {}}}"#,
            "{\n\t\"a\": [\n\t\t1\n\t]\n}\n",
            r#"{"a": "\ud83d\ude00 \/ \u0041"}"#,
            r#"{"a":"b","c":1}"#,
            r#"{"a": 18446744073709551615}"#,
            r##"{"a": "# no comment: here", "yes": "no", "n": "~"}"##,
        ] {
            assert_eq!(value(text), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn a_file_that_says_nothing_is_nothing() {
        for text in ["", "\n\n", "# only\n  # remarks", "---\n", "\u{feff}", "null"] {
            assert_eq!(value(text), Value::Null, "{text:?}");
        }
        assert_eq!(value("\u{feff}a: 1"), json!({"a": 1}));
    }

    #[test]
    fn words_of_old_yaml_stay_words() {
        assert_eq!(value("a: off\nb: no\nc: 'true'"), json!({"a": "off", "b": "no", "c": "true"}));
    }

    #[test]
    fn what_cannot_be_read_is_told_with_line_and_column() {
        assert!(refused("a: 1\nb: [1, 2\n").starts_with("line "), "{}", refused("a: 1\nb: [1, 2\n"));
        assert_eq!(refused("a: &x 1\nb: *x"), format!("line 1, column 7: {ANCHORS}"));
        assert_eq!(refused("a: *x"), format!("line 1, column 4: {ANCHORS}"));
        assert_eq!(
            refused("a: 1\n<<: {b: 2}"),
            "line 2, column 1: merge keys (<<) are not taken; write the keys out"
        );
        assert_eq!(
            refused("a: !x 1"),
            "line 1, column 7: a tag (!) stands here, and none is taken; put text in quotes"
        );
        assert!(refused("a: 1\n---\nb: 2").ends_with(DOCUMENTS), "{}", refused("a: 1\n---\nb: 2"));
        assert!(refused("a: .inf").ends_with("a number must be finite; put text in quotes"));
        assert!(refused("~: 1").ends_with("a key must be text, and here is none"), "{}", refused("~: 1"));
        assert!(refused(&format!("a: {}{}", "[".repeat(40), "]".repeat(40))).contains("32 levels"));
        assert!(refused(&format!("{{\"a\": {}{}}}", "[".repeat(100), "]".repeat(100))).contains("32 levels"));
        assert!(refused(&"[".repeat(100_000)).contains("line 1"));
        assert!(refused("? [a, b]\n: 1").contains("a key must be text"), "{}", refused("? [a, b]\n: 1"));
    }
}
