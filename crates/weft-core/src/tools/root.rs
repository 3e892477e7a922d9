//! Schemas for the dialects that take JSON Schema, as long as its root is plain.

use super::{
    Report, SHOWN_VALUE, Uncallable,
    place::{Found, Named, Part, gather, resolve},
    shown,
    tree::{Tree, below},
};

/// Bytes of schema that rebuilding a root may read.
const BUDGET: usize = 1 << 20;
/// Longest name of a property that Anthropic takes.
const ANTHROPIC_NAME: usize = 64;

/// For MCP: any schema, of an object.
pub(super) fn mcp(schema: &Tree, report: &mut Report) -> Tree {
    let mut schema = schema.clone();
    only_objects(&mut schema, "mcp", report);
    schema
}

/// For OpenAI: nothing but an object with properties at the root, and every array says something of its items.
pub(super) fn openai(schema: &Tree, report: &mut Report) -> Result<Tree, Uncallable> {
    let refused = ["oneOf", "anyOf", "allOf", "enum", "const", "not", "$ref"];
    let mut schema = plain(schema, &refused, "openai", report);
    only_objects(&mut schema, "openai", report);
    if let Tree::Object(members) = &mut schema
        && !members.iter().any(|(name, _)| name == "properties")
    {
        members.push(("properties".to_owned(), Tree::Object(Vec::new())));
    }
    each(&mut schema, "", &mut |_, members| {
        let array = members.iter().any(|(name, value)| {
            name == "type"
                && (value.as_text() == Some("array")
                    || value.elements().iter().any(|kind| kind.as_text() == Some("array")))
        });
        if array && !members.iter().any(|(name, _)| name == "items") {
            members.push(("items".to_owned(), Tree::Object(Vec::new())));
        }
        Ok(())
    })?;
    Ok(schema)
}

/// For Anthropic: an object without combinators at the root, and names of properties from a small alphabet.
pub(super) fn anthropic(schema: &Tree, report: &mut Report) -> Result<Tree, Uncallable> {
    let mut schema = plain(schema, &["oneOf", "anyOf", "allOf", "$ref"], "anthropic", report);
    only_objects(&mut schema, "anthropic", report);
    each(&mut schema, "", &mut |at, members| {
        let required: Vec<String> = members
            .iter()
            .filter(|(keyword, _)| keyword == "required")
            .flat_map(|(_, names)| names.elements())
            .filter_map(|name| Some(name.as_text()?.to_owned()))
            .collect();
        let Some((_, Tree::Object(properties))) = members.iter_mut().find(|(name, _)| name == "properties")
        else {
            return Ok(());
        };
        let mut missing = None;
        properties.retain(|(name, _)| {
            let fits = (1..=ANTHROPIC_NAME).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
            if !fits && required.contains(name) {
                missing.get_or_insert(Uncallable {
                    pointer: below(at, "properties"),
                    why: format!(
                        "anthropic does not take the name of the required property {:?}",
                        shown(name, SHOWN_VALUE)
                    ),
                });
            } else if !fits {
                report.say(
                    &below(at, "properties"),
                    name,
                    "anthropic takes names of A-Z a-z 0-9 _ . - up to 64",
                );
            }
            fits
        });
        missing.map_or(Ok(()), Err)
    })?;
    drop_dangling(&mut schema, report);
    Ok(schema)
}

/// Makes `"type": "object"` the type of a root. Args and results are objects anyway.
fn only_objects(schema: &mut Tree, dialect: &str, report: &mut Report) {
    let Tree::Object(members) = schema else { return };
    match members.iter_mut().find(|(name, _)| name == "type") {
        Some((_, Tree::Text(kind))) if kind == "object" => {}
        Some((_, kind)) => {
            report.say("", &format!("type {kind}"), format!("{dialect} takes only objects"));
            *kind = Tree::text("object");
        }
        None => members.insert(0, ("type".to_owned(), Tree::text("object"))),
    }
}

/// A root without these keywords. What it refers to and what `allOf` says is written into it; the members that its
/// alternatives know are offered side by side, none of them required.
fn plain(schema: &Tree, refused: &[&str], dialect: &str, report: &mut Report) -> Tree {
    if !refused.iter().any(|keyword| schema.member(keyword).is_some()) {
        return schema.clone();
    }
    let mut left = BUDGET;
    let start = [Part { at: String::new(), schema }];
    let gathered = gather(schema, &start, &[], &mut left);
    for (at, why) in &gathered.cut {
        report.say(at, "$ref", *why);
    }
    if let Some(at) = &gathered.never {
        report.say(at, "false", format!("{dialect} takes only an object at the root"));
    }
    let mut root = Root::default();
    let mut alternatives = Vec::new();
    for found in gathered.found {
        match found.keyword {
            "oneOf" | "anyOf" => alternatives.push(found),
            keyword if refused.contains(&keyword) => {
                report.say(&found.owner, keyword, format!("{dialect} does not take it at the root"));
            }
            _ => root.add(&found, report),
        }
    }
    for found in alternatives {
        let why =
            format!("{dialect} does not take it at the root: the members of all alternatives are offered");
        report.say(&found.owner, found.keyword, why);
        for part in found.parts() {
            let branch = gather(schema, &[part], &[], &mut left);
            for found in branch.found.iter().filter(|found| found.keyword == "properties") {
                root.offer(found);
            }
        }
    }
    let mut tree = root.build();
    drop_dangling(&mut tree, report);
    tree
}

/// A root that is put together again.
#[derive(Default)]
struct Root<'a> {
    members: Vec<(&'a str, Tree)>,
    /// All schemas of a name hold.
    properties: Named<'a, &'a Tree>,
    /// Of names that only alternatives know, any schema holds.
    offered: Named<'a, &'a Tree>,
    required: Named<'a, ()>,
}

impl<'a> Root<'a> {
    fn add(&mut self, found: &Found<'a>, report: &mut Report) {
        match found.keyword {
            "properties" => {
                found.named().for_each(|(name, part)| self.properties.entry(name).push(part.schema));
            }
            "required" => {
                for name in found.value.elements().iter().filter_map(Tree::as_text) {
                    self.required.entry(name);
                }
            }
            // References are pointers from the top, so definitions further down are found where they stand.
            "$defs" | "definitions" if !found.owner.is_empty() => {}
            keyword => match self.members.iter().find(|(known, _)| *known == keyword) {
                Some((_, value)) if value == found.value => {}
                Some(_) => report.say(&found.owner, keyword, "the root says it twice: the outer one is kept"),
                None => self.members.push((keyword, found.value.clone())),
            },
        }
    }

    fn offer(&mut self, found: &Found<'a>) {
        for (name, part) in found.named().filter(|(name, _)| !self.properties.contains(name)) {
            let known = self.offered.entry(name);
            if !known.iter().any(|&known| std::ptr::eq(known, part.schema) || known == part.schema) {
                known.push(part.schema);
            }
        }
    }

    fn build(self) -> Tree {
        let mut members = self.members;
        let own = self.properties.list.into_iter().map(|(name, schemas)| (name, together("allOf", &schemas)));
        let offered =
            self.offered.list.into_iter().map(|(name, schemas)| (name, together("anyOf", &schemas)));
        members.push(("properties", Tree::object(own.chain(offered).collect())));
        if !self.required.list.is_empty() {
            let names = self.required.list.iter().map(|(name, _)| Tree::text(name));
            members.push(("required", Tree::List(names.collect())));
        }
        Tree::object(members)
    }
}

/// Several schemas of one property as one.
fn together(keyword: &str, schemas: &[&Tree]) -> Tree {
    match schemas {
        [schema] => (*schema).clone(),
        schemas => {
            Tree::object(vec![(keyword, Tree::List(schemas.iter().map(|&schema| schema.clone()).collect()))])
        }
    }
}

/// Drops references into what is no longer there.
fn drop_dangling(tree: &mut Tree, report: &mut Report) {
    let whole = tree.clone();
    let walked = each(tree, "", &mut |at, members| {
        members.retain(|(name, value)| {
            let dangles = name == "$ref" && resolve(&whole, value).is_none();
            if dangles {
                report.say(at, "$ref", "it names a place that was dropped");
            }
            !dangles
        });
        Ok(())
    });
    debug_assert!(walked.is_ok(), "the step never fails");
}

/// Keywords whose value is a schema, or a list of schemas.
const SCHEMAS: [&str; 15] = [
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];
/// Keywords whose value names schemas.
const NAMED_SCHEMAS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Takes one step for the members of every schema in a document.
fn each(
    schema: &mut Tree,
    at: &str,
    step: &mut impl FnMut(&str, &mut Vec<(String, Tree)>) -> Result<(), Uncallable>,
) -> Result<(), Uncallable> {
    let Tree::Object(members) = schema else { return Ok(()) };
    step(at, members)?;
    for (keyword, value) in members {
        let at = below(at, keyword);
        match value {
            Tree::Object(named) if NAMED_SCHEMAS.contains(&keyword.as_str()) => {
                for (name, schema) in named {
                    each(schema, &below(&at, name), step)?;
                }
            }
            Tree::List(list) if SCHEMAS.contains(&keyword.as_str()) => {
                for (n, schema) in list.iter_mut().enumerate() {
                    each(schema, &below(&at, &n.to_string()), step)?;
                }
            }
            schema if SCHEMAS.contains(&keyword.as_str()) => each(schema, &at, step)?,
            _ => {}
        }
    }
    Ok(())
}
