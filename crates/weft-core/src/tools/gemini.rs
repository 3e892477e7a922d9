//! Schemas for Gemini: a subset of OpenAPI 3.0, without references, and refused as a whole for one wrong keyword.
//!
//! Every place in a value is described by one type and the keywords of that type, or by `anyOf` and nothing else,
//! since Vertex AI takes nothing beside it. What cannot be said is dropped towards the wider schema where possible:
//! weft checks the args of each call against the manifest's own schema.

mod schema;
mod shape;

use std::collections::HashSet;

#[cfg(test)]
pub(super) use self::schema::ALLOWED;
use self::{
    schema::{ANNOTATIONS, Kind, NAMES, Schema, Typed, is_name},
    shape::Shape,
};
use super::{
    Report, Uncallable,
    place::{Found, Gathered, Named, Part, gather},
    tree::{Tree, below},
};
use crate::limits;

/// Bytes of schema that may be read when references are written out: some times what a schema may have.
const BUDGET: usize = 4 * limits::SCHEMA_BYTES;
/// Deepest nesting of the result in schemas; no schema without references reaches it.
const MAX_DEPTH: usize = limits::SCHEMA_DEPTH;

/// The `parameters` of a declaration; `None` for a skill without any, since Gemini refuses an empty object.
pub(super) fn parameters(schema: &Tree, report: &mut Report) -> Result<Option<Tree>, Uncallable> {
    Projection { document: schema, report, above: Vec::new(), passed: HashSet::new(), depth: 0, left: BUDGET }
        .root()
}

struct Projection<'a, 'r> {
    document: &'a Tree,
    report: &'r mut Report,
    /// Places in the document of the schemas on the way down: a reference to one of them recurses.
    above: Vec<String>,
    /// Places in the document of keywords that are being dealt with further up.
    passed: HashSet<String>,
    depth: usize,
    left: usize,
}

impl<'a> Projection<'a, '_> {
    fn root(&mut self) -> Result<Option<Tree>, Uncallable> {
        let start = [Part { at: String::new(), schema: self.document }];
        let gathered = self.gather(&start)?;
        let (choices, found): (Vec<_>, Vec<_>) =
            gathered.found.into_iter().partition(|found| is_choice(found.keyword));
        self.above.extend(gathered.read);
        let mut shape = Shape::new("");
        for found in found {
            shape.add(found, self.report);
        }
        let offered = self.alternatives(&choices, &shape);
        if shape.kinds.as_ref().is_some_and(|kinds| *kinds != [Kind::Object]) {
            self.report.say("", "type", "gemini takes only an object at the root");
        }
        shape.kinds = Some(vec![Kind::Object]);
        shape.say_useless(&[Kind::Object], self.report);
        let mut root = self.object(&mut shape)?;
        for (name, parts) in offered.list {
            self.offer(&mut root, name, parts);
        }
        if !root.has_properties() {
            for keyword in root.keywords() {
                self.report.say("", keyword, "gemini takes no object without properties at the root");
            }
            shape.say_notes("gemini takes no object without properties at the root", self.report);
            return Ok(None);
        }
        let mut schema = Schema::from(root);
        shape.annotate(&mut schema, self.report);
        Ok(Some(schema.into_tree()))
    }

    /// The properties that only alternatives at the root know.
    fn alternatives(&mut self, choices: &[Found<'a>], shape: &Shape<'a>) -> Named<'a, Part<'a>> {
        let mut offered = Named::default();
        for choice in choices {
            let why = "gemini does not take it at the root: the members of all alternatives are offered";
            self.report.say(&choice.owner, choice.keyword, why);
            for part in choice.parts() {
                // Only names are looked for: what else is lost is what the choice as a whole loses.
                let branch = gather(self.document, &[part], &self.above, &mut self.left);
                for found in branch.found.iter().filter(|found| found.keyword == "properties") {
                    for (name, part) in found.named().filter(|(name, _)| !shape.declares(name)) {
                        offered.entry(name).push(part);
                    }
                }
            }
        }
        offered
    }

    /// Adds a property that any of these schemas may describe.
    fn offer(&mut self, root: &mut Typed, name: &str, parts: Vec<Part<'a>>) {
        let at = parts.first().map(|part| part.at.clone()).unwrap_or_default();
        if !is_name(name) {
            self.report.say(&at, name, NAMES);
            return;
        }
        let mut schemas = Vec::new();
        for part in parts {
            match self.below(vec![part]) {
                Ok(schema) => schemas.push(schema),
                Err(uncallable) => self.report.say(&uncallable.pointer, "alternative", uncallable.why),
            }
        }
        match Schema::any_of(schemas) {
            Some(schema) => root.property(name, schema, false),
            None => self.report.say(&at, name, "no value fits it"),
        }
    }

    /// Gathers what is said of a place, and says what could not be followed.
    fn gather(&mut self, parts: &[Part<'a>]) -> Result<Gathered<'a>, Uncallable> {
        let mut gathered = gather(self.document, parts, &self.above, &mut self.left);
        for (at, why) in &gathered.cut {
            self.report.say(at, "$ref", *why);
        }
        if !self.passed.is_empty() {
            gathered.found.retain(|found| !self.passed.contains(&found.at()));
        }
        match gathered.never.take() {
            Some(pointer) => Err(Uncallable { pointer, why: "no value fits it".to_owned() }),
            None => Ok(gathered),
        }
    }

    /// The schema of a place one level further down.
    fn below(&mut self, parts: Vec<Part<'a>>) -> Result<Schema, Uncallable> {
        self.depth += 1;
        let schema = self.place(&parts);
        self.depth -= 1;
        schema
    }

    fn place(&mut self, parts: &[Part<'a>]) -> Result<Schema, Uncallable> {
        let at = parts.first().map(|part| part.at.clone()).unwrap_or_default();
        if self.depth > MAX_DEPTH || self.left == 0 {
            self.report.say(&at, "schema", "too deep or too large for gemini: only its type is kept");
            let kind = parts.iter().find_map(|part| part.schema.member("type")?.as_text());
            return Ok(kind.and_then(Kind::parse).map_or_else(Schema::anything, Schema::of));
        }
        let gathered = self.gather(parts)?;
        let mut choices = gathered.found.iter().filter(|found| is_choice(found.keyword));
        if let Some(choice) = choices.next() {
            let others: Vec<&Found<'a>> = choices.collect();
            return self.choice(choice, &others, &gathered, parts);
        }
        let above = self.above.len();
        self.above.extend(gathered.read);
        let mut shape = Shape::new(&at);
        for found in gathered.found {
            shape.add(found, self.report);
        }
        let schema = self.shaped(&mut shape);
        self.above.truncate(above);
        schema
    }

    /// A choice between schemas, each of which takes along what is said beside the choice.
    fn choice(
        &mut self,
        choice: &Found<'a>,
        others: &[&Found<'a>],
        gathered: &Gathered<'a>,
        beside: &[Part<'a>],
    ) -> Result<Schema, Uncallable> {
        if choice.keyword == "oneOf" {
            self.report.say(&choice.owner, "oneOf", "gemini knows only anyOf, which stands in its place");
        }
        for other in others {
            self.report.say(&other.owner, other.keyword, "gemini takes one choice for one place");
        }
        // Notes are about the choice as a whole, so they are not repeated in each alternative.
        let mut notes = Shape::new(&choice.owner);
        let mut passed = vec![choice.at()];
        passed.extend(others.iter().map(|other| other.at()));
        for found in gathered.found.iter().filter(|found| ANNOTATIONS.contains(&found.keyword)) {
            passed.push(found.at());
            notes.add(found.clone(), self.report);
        }
        passed.retain(|at| self.passed.insert(at.clone()));
        let mut schemas = Vec::new();
        let mut failed = None;
        for part in choice.parts() {
            let parts = [part].into_iter().chain(beside.iter().cloned()).collect();
            match self.below(parts) {
                Ok(schema) => schemas.push(schema),
                Err(uncallable) => {
                    self.report.say(&uncallable.pointer, "alternative", uncallable.why.as_str());
                    failed = Some(uncallable);
                }
            }
        }
        for at in &passed {
            self.passed.remove(at);
        }
        for keyword in schemas.iter().flat_map(Schema::of_null_only) {
            self.report.say(&choice.owner, keyword, "said of null alone, which gemini writes as nullable");
        }
        let Some(mut schema) = Schema::any_of(schemas) else {
            let empty = || Uncallable { pointer: choice.at(), why: "no value fits it".to_owned() };
            return Err(failed.unwrap_or_else(empty));
        };
        notes.annotate(&mut schema, self.report);
        Ok(schema)
    }

    /// One schema for each type that the place may have.
    fn shaped(&mut self, shape: &mut Shape<'a>) -> Result<Schema, Uncallable> {
        let (kinds, nullable) = shape.kinds(self.report)?;
        shape.say_useless(&kinds, self.report);
        let mut schemas = Vec::new();
        let mut failed = None;
        for kind in kinds {
            let typed = match kind {
                Kind::Object => self.object(shape),
                Kind::Array => self.array(shape),
                Kind::Text | Kind::Number | Kind::Integer | Kind::Boolean | Kind::Null => {
                    Ok(shape.typed(kind, self.report))
                }
            };
            match typed {
                Ok(typed) => schemas.push(Schema::from(typed)),
                Err(uncallable) => failed = Some(uncallable),
            }
        }
        if nullable {
            schemas.push(Schema::of(Kind::Null));
        }
        match (Schema::any_of(schemas), failed) {
            (Some(mut schema), failed) => {
                if let Some(uncallable) = failed {
                    self.report.say(&uncallable.pointer, "alternative", uncallable.why);
                }
                shape.annotate(&mut schema, self.report);
                Ok(schema)
            }
            (None, Some(uncallable)) => Err(uncallable),
            (None, None) => Err(Uncallable { pointer: shape.at.clone(), why: "no value fits it".to_owned() }),
        }
    }

    fn object(&mut self, shape: &mut Shape<'a>) -> Result<Typed, Uncallable> {
        let mut typed = shape.typed(Kind::Object, self.report);
        for (name, parts) in shape.take_properties().list {
            let required = shape.required.contains(name);
            let at = parts.first().map_or_else(|| below(&shape.at, "required"), |part| part.at.clone());
            let described = if !is_name(name) {
                Err(Uncallable { pointer: at.clone(), why: NAMES.to_owned() })
            } else if parts.is_empty() {
                self.report.say(&at, name, "gemini needs it described: anything but null is allowed");
                Ok(Schema::anything())
            } else {
                self.below(parts)
            };
            match described {
                Ok(schema) => typed.property(name, schema, required),
                Err(uncallable) if required => return Err(uncallable),
                Err(uncallable) => self.report.say(&at, name, uncallable.why),
            }
        }
        Ok(typed)
    }

    fn array(&mut self, shape: &mut Shape<'a>) -> Result<Typed, Uncallable> {
        let mut typed = shape.typed(Kind::Array, self.report);
        let (first, other) = shape.take_items();
        let mut items = Vec::new();
        if !first.is_empty() {
            let why = "gemini knows no positions in an array: any item may be any of them";
            self.report.say(&shape.at, "prefixItems", why);
        }
        let tuple = !first.is_empty();
        for parts in first.into_iter().chain((!other.is_empty()).then_some(other)) {
            match self.below(parts) {
                Ok(schema) => items.push(schema),
                // `"items": false` after the first ones only says that there are no more.
                Err(uncallable) if tuple => {
                    self.report.say(&uncallable.pointer, "items", uncallable.why);
                }
                Err(uncallable) => return Err(uncallable),
            }
        }
        let items = Schema::any_of(items).unwrap_or_else(|| {
            self.report.say(&shape.at, "no items", "gemini needs them described: any but arrays are allowed");
            Schema::anything_but_arrays()
        });
        typed.set("items", items.into_tree());
        Ok(typed)
    }
}

fn is_choice(keyword: &str) -> bool {
    matches!(keyword, "anyOf" | "oneOf")
}
