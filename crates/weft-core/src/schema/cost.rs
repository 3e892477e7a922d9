//! How much work a schema can make, counted before it is ever used.
//!
//! A validator applies sub-schemas to parts of a value. Two things make that explode in a schema of two kilobytes:
//! combinators over one `$ref` (28 levels of `allOf` are 2²⁸ sub-schemas for one value), and recursion that comes
//! back more than once for the same part (`anyOf` of two branches that both descend into `/c` doubles with each level
//! of the value). Both are counted exactly here: the multiset of sub-schemas that are applied to one part of a value
//! is followed along every member and element, until no new multiset appears.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::SchemaError;
use crate::limits;

/// Most different multisets that are followed.
const MAX_PARTS: usize = 16_384;
/// Longest chain of references and combinators for one part: the count recurses along it.
const MAX_CHAIN: usize = 256;
/// Most steps that the count itself may take.
const MAX_STEPS: u64 = 4_000_000;

/// Keywords whose sub-schemas are applied to the same part of the value.
const IN_PLACE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];
/// Keywords that name another schema for the same part.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords whose sub-schemas are applied to every element of an array.
const ELEMENTS: [&str; 5] = ["items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"];
/// Keywords whose sub-schemas are applied to members that no other keyword names.
const OTHER_MEMBERS: [&str; 3] = ["additionalProperties", "unevaluatedProperties", "propertyNames"];
/// Keywords whose members are data, not schemas.
const DATA: [&str; 6] = ["enum", "const", "default", "examples", "required", "dependentRequired"];

/// How often each sub-schema, by number, is applied to one part of a value.
type Applied = BTreeMap<usize, u64>;

/// The most sub-schemas that the schema applies to one part of any value.
pub(super) fn per_part(root: &Value) -> Result<u64, SchemaError> {
    let mut count = Count {
        root,
        numbers: HashMap::new(),
        schemas: Vec::new(),
        in_place: HashMap::new(),
        steps: 0,
        chain: 0,
    };
    count.check_everywhere(root, true)?;
    let start = count.number(root);
    let start = count.in_place(start)?;
    let mut most = 1;
    let mut seen = BTreeSet::from([(*start).clone()]);
    let mut open = vec![(*start).clone()];
    while let Some(applied) = open.pop() {
        most = most.max(applied.values().fold(0, |sum: u64, n| sum.saturating_add(*n)));
        if most > limits::SCHEMA_EXPANSION {
            return Err(SchemaError::Expansion);
        }
        for next in count.parts_below(&applied)? {
            if !next.is_empty() && seen.insert(next.clone()) {
                if seen.len() > MAX_PARTS {
                    return Err(SchemaError::Expansion);
                }
                open.push(next);
            }
        }
    }
    Ok(most)
}

struct Count<'a> {
    root: &'a Value,
    numbers: HashMap<*const Value, usize>,
    schemas: Vec<&'a Value>,
    /// `None` while it is being worked out: coming back then is a circle.
    in_place: HashMap<usize, Option<Rc<Applied>>>,
    steps: u64,
    chain: usize,
}

impl<'a> Count<'a> {
    fn number(&mut self, schema: &'a Value) -> usize {
        *self.numbers.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            self.schemas.push(schema);
            self.schemas.len() - 1
        })
    }

    fn step(&mut self, steps: usize) -> Result<(), SchemaError> {
        self.steps += steps as u64 + 1;
        if self.steps > MAX_STEPS { Err(SchemaError::Expansion) } else { Ok(()) }
    }

    /// Checks each sub-schema, wherever it stands, for references that cannot be followed.
    fn check_everywhere(&mut self, value: &'a Value, is_root: bool) -> Result<(), SchemaError> {
        match value {
            Value::Object(members) => {
                if !is_root && members.get("$id").is_some_and(Value::is_string) {
                    return Err(SchemaError::NestedId);
                }
                let number = self.number(value);
                self.in_place(number)?;
                for (name, member) in members {
                    if !DATA.contains(&name.as_str()) {
                        self.check_everywhere(member, false)?;
                    }
                }
                Ok(())
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.check_everywhere(item, false)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    /// The sub-schemas that are applied where this one is: itself, and all that it refers to and combines.
    fn in_place(&mut self, number: usize) -> Result<Rc<Applied>, SchemaError> {
        let schema = self.schemas[number];
        match self.in_place.get(&number) {
            Some(Some(known)) => return Ok(known.clone()),
            Some(None) => {
                let name = schema.get("$ref").and_then(Value::as_str).unwrap_or("#");
                return Err(SchemaError::Circular(name.to_owned()));
            }
            None => {}
        }
        self.in_place.insert(number, None);
        self.chain += 1;
        if self.chain > MAX_CHAIN {
            return Err(SchemaError::Expansion);
        }
        let mut applied = Applied::from([(number, 1)]);
        if let Value::Object(members) = schema {
            for below in self.combined(members)? {
                let below = self.number(below);
                let below = self.in_place(below)?;
                self.step(below.len())?;
                add(&mut applied, &below, 1);
            }
        }
        if applied.values().fold(0, |sum: u64, n| sum.saturating_add(*n)) > limits::SCHEMA_EXPANSION {
            return Err(SchemaError::Expansion);
        }
        self.chain -= 1;
        let applied = Rc::new(applied);
        self.in_place.insert(number, Some(applied.clone()));
        Ok(applied)
    }

    fn combined(&self, members: &'a Map<String, Value>) -> Result<Vec<&'a Value>, SchemaError> {
        let mut list = Vec::new();
        for name in REFERENCES {
            if let Some(Value::String(reference)) = members.get(name) {
                list.push(self.resolve(reference)?);
            }
        }
        for name in IN_PLACE {
            match members.get(name) {
                Some(Value::Array(items)) => list.extend(items),
                Some(Value::Object(map)) if matches!(name, "dependentSchemas" | "dependencies") => {
                    list.extend(map.values());
                }
                Some(schema) => list.push(schema),
                None => {}
            }
        }
        Ok(list)
    }

    /// The sub-schema that a reference means. Only pointers into the document can be counted.
    fn resolve(&self, reference: &str) -> Result<&'a Value, SchemaError> {
        let refused = || SchemaError::Reference(reference.chars().take(200).collect());
        let pointer =
            if reference.is_empty() { "" } else { reference.strip_prefix('#').ok_or_else(refused)? };
        self.root.pointer(pointer).ok_or_else(refused)
    }

    /// What is applied to each part directly below one to which `applied` is: once for each member that some keyword
    /// names, once for any other member, once for an element.
    fn parts_below(&mut self, applied: &Applied) -> Result<Vec<Applied>, SchemaError> {
        let mut named: BTreeMap<&'a str, Vec<(usize, u64)>> = BTreeMap::new();
        let mut patterns = Vec::new();
        let mut others: Vec<(usize, usize, u64)> = Vec::new();
        let mut elements = Vec::new();
        for (&owner, &times) in applied {
            let Value::Object(members) = self.schemas[owner] else { continue };
            if let Some(Value::Object(map)) = members.get("properties") {
                for (name, schema) in map {
                    let number = self.number(schema);
                    named.entry(name).or_default().push((number, times));
                }
            }
            if let Some(Value::Object(map)) = members.get("patternProperties") {
                for schema in map.values() {
                    patterns.push((self.number(schema), times));
                }
            }
            for name in OTHER_MEMBERS {
                if let Some(schema) = members.get(name) {
                    others.push((owner, self.number(schema), times));
                }
            }
            for name in ELEMENTS {
                match members.get(name) {
                    Some(Value::Array(list)) => {
                        for schema in list {
                            elements.push((self.number(schema), times));
                        }
                    }
                    Some(schema) => elements.push((self.number(schema), times)),
                    None => {}
                }
            }
        }
        let mut parts = Vec::new();
        for (name, mut list) in named {
            list.extend(&patterns);
            // A schema that names the member itself does not apply its rule for other members.
            list.extend(
                others.iter().filter(|(owner, ..)| !self.names(*owner, name)).map(|(_, n, t)| (*n, *t)),
            );
            parts.push(self.sum(&list)?);
        }
        patterns.extend(others.iter().map(|(_, number, times)| (*number, *times)));
        parts.push(self.sum(&patterns)?);
        parts.push(self.sum(&elements)?);
        Ok(parts)
    }

    fn names(&self, owner: usize, member: &str) -> bool {
        self.schemas[owner].get("properties").and_then(|properties| properties.get(member)).is_some()
    }

    fn sum(&mut self, list: &[(usize, u64)]) -> Result<Applied, SchemaError> {
        let mut applied = Applied::new();
        for &(number, times) in list {
            let below = self.in_place(number)?;
            self.step(below.len())?;
            add(&mut applied, &below, times);
        }
        Ok(applied)
    }
}

fn add(applied: &mut Applied, more: &Applied, times: u64) {
    for (number, count) in more {
        let sum = applied.entry(*number).or_default();
        *sum = sum.saturating_add(count.saturating_mul(times));
    }
}
