//! All that a schema says of one place in a value, wherever in the document it says so.

use std::collections::{HashMap, HashSet, VecDeque};

use super::tree::{Tree, below};

/// A schema that applies to a place.
#[derive(Debug, Clone)]
pub(super) struct Part<'a> {
    /// Where it stands in the document.
    pub(super) at: String,
    pub(super) schema: &'a Tree,
}

/// A keyword that applies to a place.
#[derive(Debug, Clone)]
pub(super) struct Found<'a> {
    /// Where the schema that has it stands in the document.
    pub(super) owner: String,
    pub(super) keyword: &'a str,
    pub(super) value: &'a Tree,
}

impl<'a> Found<'a> {
    /// Where the keyword stands in the document.
    pub(super) fn at(&self) -> String {
        below(&self.owner, self.keyword)
    }

    /// The sub-schemas of a keyword whose value is a list of them.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part<'a>> + use<'a> {
        let at = self.at();
        let list = self.value.elements().iter().enumerate();
        list.map(move |(n, schema)| Part { at: below(&at, &n.to_string()), schema })
    }

    /// The one sub-schema of a keyword whose value is a schema.
    pub(super) fn part(&self) -> Part<'a> {
        Part { at: self.at(), schema: self.value }
    }

    /// The named sub-schemas of a keyword whose value is a map of them.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'a str, Part<'a>)> + use<'a> {
        let at = self.at();
        let map = self.value.members().unwrap_or_default().iter();
        map.map(move |(name, schema)| (name.as_str(), Part { at: below(&at, name), schema }))
    }
}

/// Things by name, in the order in which the names came.
#[derive(Debug)]
pub(super) struct Named<'a, T> {
    pub(super) list: Vec<(&'a str, Vec<T>)>,
    index: HashMap<&'a str, usize>,
}

impl<T> Default for Named<'_, T> {
    fn default() -> Self {
        Self { list: Vec::new(), index: HashMap::new() }
    }
}

impl<'a, T> Named<'a, T> {
    /// The things of a name, which is there from now on.
    pub(super) fn entry(&mut self, name: &'a str) -> &mut Vec<T> {
        let n = *self.index.entry(name).or_insert_with(|| {
            self.list.push((name, Vec::new()));
            self.list.len() - 1
        });
        &mut self.list[n].1
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }
}

/// What [`gather`] found.
#[derive(Debug, Default)]
pub(super) struct Gathered<'a> {
    /// The keywords: of a schema itself before those of what it refers to. `$ref` and `allOf` are followed and are
    /// not among them.
    pub(super) found: Vec<Found<'a>>,
    /// Every schema that was read, by its place in the document.
    pub(super) read: Vec<String>,
    /// References that were not followed, by the place of the schema that has them, and why.
    pub(super) cut: Vec<(String, &'static str)>,
    /// The place of a schema that no value fits.
    pub(super) never: Option<String>,
}

/// Why a reference is not followed.
const RECURSION: &str = "it comes back to itself: only the type of what it names is kept";
const TOO_LARGE: &str = "too large when references are written out: only the type of what it names is kept";
const NOWHERE: &str = "it names no place in the schema";

/// Gathers all that these parts say, following `$ref` and `allOf`.
///
/// References to `above`, the schemas that were read on the way down to this place, recurse and are not followed, nor
/// is any once nothing is `left` of a budget of bytes.
pub(super) fn gather<'a>(
    document: &'a Tree,
    parts: &[Part<'a>],
    above: &[String],
    left: &mut usize,
) -> Gathered<'a> {
    let mut gathered = Gathered::default();
    let mut known = HashSet::new();
    let mut queue: VecDeque<Part<'a>> = parts.iter().cloned().collect();
    while let Some(part) = queue.pop_front() {
        if !known.insert(part.at.clone()) {
            continue;
        }
        *left = left.saturating_sub(16);
        match part.schema {
            Tree::Bool(false) => gathered.never = Some(part.at.clone()),
            Tree::Object(members) => {
                for (keyword, value) in members {
                    *left = left.saturating_sub(keyword.len() + weight(value));
                    let found = Found { owner: part.at.clone(), keyword, value };
                    match keyword.as_str() {
                        "$ref" => match resolve(document, value) {
                            Some(target) if above.contains(&target.at) => {
                                gathered.stop(&part.at, &target, RECURSION);
                            }
                            Some(target) if *left == 0 => gathered.stop(&part.at, &target, TOO_LARGE),
                            Some(target) => queue.push_back(target),
                            None => gathered.cut.push((part.at.clone(), NOWHERE)),
                        },
                        "allOf" => queue.extend(found.parts()),
                        _ => gathered.found.push(found),
                    }
                }
            }
            _ => {}
        }
        gathered.read.push(part.at);
    }
    gathered
}

impl<'a> Gathered<'a> {
    fn stop(&mut self, from: &str, target: &Part<'a>, why: &'static str) {
        self.cut.push((from.to_owned(), why));
        if let Some(value) = target.schema.member("type") {
            self.found.push(Found { owner: target.at.clone(), keyword: "type", value });
        }
    }
}

/// Bytes of a value itself, without what is below it.
fn weight(value: &Tree) -> usize {
    match value {
        Tree::Number(text) | Tree::Text(text) => text.len(),
        Tree::List(elements) => elements.iter().map(|element| element.as_text().map_or(16, str::len)).sum(),
        Tree::Object(members) => 16 * members.len(),
        Tree::Null | Tree::Bool(_) => 8,
    }
}

/// The schema that a reference means: a pointer into the document, or nothing.
pub(super) fn resolve<'a>(document: &'a Tree, reference: &Tree) -> Option<Part<'a>> {
    let reference = reference.as_text()?;
    let at = if reference.is_empty() { "" } else { reference.strip_prefix('#')? };
    Some(Part { at: at.to_owned(), schema: document.pointer(at)? })
}
