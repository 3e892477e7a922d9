//! Schemas made of nothing but Gemini's words.

use super::super::tree::Tree;

/// Every keyword that is written, in the order in which it is written.
pub(in super::super) const ALLOWED: [&str; 21] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "default",
    "example",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "items",
    "minProperties",
    "maxProperties",
    "properties",
    "required",
    "anyOf",
];

/// Keywords that say something of a place as a whole.
pub(super) const ANNOTATIONS: [&str; 4] = ["title", "description", "default", "example"];

/// Why a property is missing.
pub(super) const NAMES: &str =
    "gemini takes names of A-Z a-z 0-9 _, up to 64, that do not begin with a digit";

/// Longest name of a property.
const MAX_NAME: usize = 64;

/// Whether Gemini takes a property of this name.
pub(super) fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A type of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
    Null,
}

impl Kind {
    /// All that a value can be, null aside.
    pub(super) const ANY: [Self; 5] = [Self::Text, Self::Number, Self::Boolean, Self::Object, Self::Array];

    /// The type of this name in a JSON Schema.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::Text,
            "number" => Self::Number,
            "integer" => Self::Integer,
            "boolean" => Self::Boolean,
            "object" => Self::Object,
            "array" => Self::Array,
            "null" => Self::Null,
            _ => return None,
        })
    }

    /// Gemini's word.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "STRING",
            Self::Number => "NUMBER",
            Self::Integer => "INTEGER",
            Self::Boolean => "BOOLEAN",
            Self::Object => "OBJECT",
            Self::Array => "ARRAY",
            Self::Null => "NULL",
        }
    }

    /// The narrowest type of a value.
    pub(super) fn of(value: &Tree) -> Self {
        match value {
            Tree::Null => Self::Null,
            Tree::Bool(_) => Self::Boolean,
            Tree::Number(_) if value.as_number().is_some_and(|number| number.fract() == 0.0) => Self::Integer,
            Tree::Number(_) => Self::Number,
            Tree::Text(_) => Self::Text,
            Tree::List(_) => Self::Array,
            Tree::Object(_) => Self::Object,
        }
    }

    /// Whether a value is of this type.
    pub(super) fn fits(self, value: &Tree) -> bool {
        let narrowest = Self::of(value);
        self == narrowest || (self, narrowest) == (Self::Number, Self::Integer)
    }

    /// What is of both types.
    pub(super) fn both(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Number, Self::Integer) | (Self::Integer, Self::Number) => Some(Self::Integer),
            _ => (self == other).then_some(self),
        }
    }

    /// Whether a keyword says something of values of this type.
    pub(super) fn knows(self, keyword: &str) -> bool {
        match keyword {
            "pattern" | "minLength" | "maxLength" => self == Self::Text,
            "minimum" | "maximum" => matches!(self, Self::Number | Self::Integer),
            "items" | "prefixItems" | "minItems" | "maxItems" => self == Self::Array,
            "properties" | "required" | "minProperties" | "maxProperties" => self == Self::Object,
            _ => false,
        }
    }

    /// Whether Gemini takes a format for this type.
    pub(super) fn has_format(self, format: &str) -> bool {
        match self {
            Self::Text => format == "date-time",
            Self::Number => matches!(format, "float" | "double"),
            Self::Integer => matches!(format, "int32" | "int64"),
            Self::Boolean | Self::Object | Self::Array | Self::Null => false,
        }
    }
}

/// The schema of values of one type.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Typed {
    pub(super) kind: Kind,
    nullable: bool,
    members: Vec<(&'static str, Tree)>,
    properties: Vec<(String, Tree)>,
    required: Vec<Tree>,
}

impl Typed {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, nullable: false, members: Vec::new(), properties: Vec::new(), required: Vec::new() }
    }

    /// Sets a keyword.
    pub(super) fn set(&mut self, keyword: &'static str, value: Tree) {
        self.members.retain(|(known, _)| *known != keyword);
        self.members.push((keyword, value));
    }

    pub(super) fn property(&mut self, name: &str, schema: Schema, required: bool) {
        self.properties.push((name.to_owned(), schema.into_tree()));
        if required {
            self.required.push(Tree::text(name));
        }
    }

    pub(super) fn has_properties(&self) -> bool {
        !self.properties.is_empty()
    }

    /// The keywords that were set.
    pub(super) fn keywords(&self) -> impl Iterator<Item = &'static str> {
        self.members.iter().map(|(keyword, _)| *keyword)
    }

    fn get(&self, keyword: &str) -> Option<&Tree> {
        self.members.iter().find_map(|(known, value)| (*known == keyword).then_some(value))
    }

    /// Adds an annotation that is said of more than this type. False when there is no room for it.
    fn annotate(&mut self, keyword: &'static str, value: &Tree) -> bool {
        let value = match (keyword, value, self.get(keyword)) {
            ("description", Tree::Text(outer), Some(Tree::Text(own))) => Tree::Text(format!("{outer} {own}")),
            ("description" | "title", Tree::Text(_), None) => value.clone(),
            ("default" | "example", _, None) => {
                let fits = self.kind.fits(value) || (self.nullable && *value == Tree::Null);
                if !fits {
                    return false;
                }
                value.clone()
            }
            _ => return false,
        };
        self.set(keyword, value);
        true
    }

    pub(super) fn into_tree(mut self) -> Tree {
        self.members.push(("type", Tree::text(self.kind.as_str())));
        if self.nullable {
            self.members.push(("nullable", Tree::Bool(true)));
        }
        if !self.properties.is_empty() {
            self.members.push(("properties", Tree::Object(self.properties)));
        }
        if !self.required.is_empty() {
            self.members.push(("required", Tree::List(self.required)));
        }
        self.members.sort_by_key(|(keyword, _)| ALLOWED.iter().position(|allowed| allowed == keyword));
        Tree::object(self.members)
    }
}

/// A schema as Gemini takes it: of one type, or a choice of several and nothing beside it. Never empty.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schema(Vec<Typed>);

impl From<Typed> for Schema {
    fn from(typed: Typed) -> Self {
        Self(vec![typed])
    }
}

impl Schema {
    pub(super) fn of(kind: Kind) -> Self {
        let mut typed = Typed::new(kind);
        if kind == Kind::Array {
            typed.set("items", Self::anything_but_arrays().into_tree());
        }
        Self(vec![typed])
    }

    /// Any value fits it, null and arrays of arrays aside.
    pub(super) fn anything() -> Self {
        Self(Kind::ANY.into_iter().flat_map(|kind| Self::of(kind).0).collect())
    }

    pub(super) fn anything_but_arrays() -> Self {
        let kinds = Kind::ANY.into_iter().filter(|kind| *kind != Kind::Array);
        Self(kinds.map(Typed::new).collect())
    }

    /// A choice between these, flat and without repetition; null becomes `nullable`. `None` of none.
    pub(super) fn any_of(schemas: impl IntoIterator<Item = Self>) -> Option<Self> {
        let (nulls, mut flat): (Vec<Typed>, Vec<Typed>) = schemas
            .into_iter()
            .flat_map(|Self(alternatives)| alternatives)
            .partition(|typed| typed.kind == Kind::Null);
        let mut n = 0;
        while n < flat.len() {
            if flat[..n].contains(&flat[n]) {
                flat.remove(n);
            } else {
                n += 1;
            }
        }
        if flat.is_empty() {
            flat.extend(nulls.into_iter().next());
        } else if !nulls.is_empty() {
            flat.iter_mut().for_each(|typed| typed.nullable = true);
        }
        (!flat.is_empty()).then_some(Self(flat))
    }

    /// Adds an annotation to the first alternative that has room for it. False when none has.
    pub(super) fn annotate(&mut self, keyword: &'static str, value: &Tree) -> bool {
        self.0.iter_mut().any(|typed| typed.annotate(keyword, value))
    }

    /// The annotations of a schema that only null fits, which do not survive its becoming `nullable`.
    pub(super) fn of_null_only(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter(|typed| typed.kind == Kind::Null).flat_map(Typed::keywords)
    }

    pub(super) fn into_tree(self) -> Tree {
        let mut alternatives = self.0.into_iter().map(Typed::into_tree).collect::<Vec<_>>();
        if alternatives.len() == 1 {
            return alternatives.remove(0);
        }
        Tree::object(vec![("anyOf", Tree::List(alternatives))])
    }
}
