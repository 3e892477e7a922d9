//! Walking over a tree: values with their paths, and mappings that know which of their keys were asked for.

use std::{
    collections::HashMap,
    fmt::{Display, Write as _},
    ops::RangeInclusive,
    path::PathBuf,
    str::FromStr,
};

use weft_core::text;

use crate::{
    check::Check,
    finding::Finding,
    home::Home,
    suggest,
    tree::{Kind, Member, Node},
};

/// A value, and where it stands.
#[derive(Clone)]
pub(crate) struct Place<'a> {
    /// Its dotted path.
    pub(crate) path: String,
    /// The line to name: its key's, or its own in a list.
    line: u64,
    node: &'a Node,
}

/// Whether a name can stand in a path as it is.
fn plain(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    !name.is_empty() && name.len() <= 128 && name.bytes().all(fits)
}

fn join(path: &str, name: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    if plain(name) {
        return format!("{path}{dot}{name}");
    }
    let cut: String = name.chars().take(40).collect();
    format!("{path}{dot}\"{}\"", text::escape(cut.as_bytes()))
}

impl<'a> Place<'a> {
    /// The file itself.
    pub(crate) fn root(node: &'a Node) -> Self {
        Self { path: String::new(), line: node.line, node }
    }

    fn member(&self, member: &'a Member) -> Self {
        Self { path: join(&self.path, &member.name), line: member.line, node: &member.node }
    }

    /// What is said about this place.
    pub(crate) fn finding(&self, message: impl Into<String>) -> Finding {
        let line = Some(self.line).filter(|line| *line > 0);
        Finding { line, column: None, path: self.path.clone(), message: message.into() }
    }

    pub(crate) fn kind(&self) -> &'a Kind {
        &self.node.kind
    }

    /// The value, for a block that is carried as it is.
    pub(crate) fn value(&self) -> serde_json::Value {
        self.node.value()
    }

    fn wrong(&self, check: &mut Check, wanted: &str) {
        let found = match &self.node.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        };
        let quotes = match (&self.node.kind, wanted) {
            (Kind::Bool(_) | Kind::Number(_), "text") => "; put it in quotes",
            _ => "",
        };
        check.problem(self, format!("must be {wanted}, not {found}{quotes}"));
    }

    pub(crate) fn text(&self, check: &mut Check) -> Option<&'a str> {
        match &self.node.kind {
            Kind::Text(text) => Some(text),
            _ => {
                self.wrong(check, "text");
                None
            }
        }
    }

    /// Text in which something stands.
    pub(crate) fn filled(&self, check: &mut Check) -> Option<&'a str> {
        let text = self.text(check)?;
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            check.problem(self, "must be text on one line, and not blank");
            return None;
        }
        Some(text)
    }

    /// Text that stands for something; `expected` completes "must be …".
    pub(crate) fn parsed<T: FromStr>(&self, check: &mut Check, expected: &str) -> Option<T> {
        let parsed = self.text(check)?.trim().parse().ok();
        if parsed.is_none() {
            check.problem(self, format!("must be {expected}"));
        }
        parsed
    }

    /// Text that stands for something whose own error says enough.
    pub(crate) fn told<T: FromStr<Err: Display>>(&self, check: &mut Check) -> Option<T> {
        match self.text(check)?.trim().parse() {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                check.problem(self, error.to_string());
                None
            }
        }
    }

    pub(crate) fn flag(&self, check: &mut Check) -> Option<bool> {
        match self.node.kind {
            Kind::Bool(value) => Some(value),
            _ => {
                self.wrong(check, "true or false");
                None
            }
        }
    }

    /// A whole number within a range.
    pub(crate) fn whole(&self, check: &mut Check, range: RangeInclusive<u64>) -> Option<u64> {
        let number = match &self.node.kind {
            Kind::Number(number) => number.as_u64(),
            _ => {
                self.wrong(check, "a number");
                return None;
            }
        };
        let fits = number.filter(|number| range.contains(number));
        if fits.is_none() {
            check.problem(self, format!("must be a whole number from {} to {}", range.start(), range.end()));
        }
        fits
    }

    /// A path, with `~/` expanded.
    pub(crate) fn path(&self, check: &mut Check, home: &Home) -> Option<PathBuf> {
        match home.expand(self.text(check)?) {
            Ok(path) => Some(path),
            Err(why) => {
                check.problem(self, why);
                None
            }
        }
    }

    /// A path that means the same wherever the process stands, with `~/` expanded.
    pub(crate) fn absolute_path(&self, check: &mut Check, home: &Home) -> Option<PathBuf> {
        let path = self.path(check, home)?;
        if path.is_relative() {
            check.problem(self, "must be an absolute path");
            return None;
        }
        Some(path)
    }

    /// Paths, each with `~/` expanded.
    pub(crate) fn paths(&self, check: &mut Check, home: &Home) -> Vec<PathBuf> {
        let items = self.list(check).unwrap_or_default();
        items.iter().filter_map(|item| item.path(check, home)).collect()
    }

    pub(crate) fn list(&self, check: &mut Check) -> Option<Vec<Self>> {
        let Kind::List(items) = &self.node.kind else {
            self.wrong(check, "a list");
            return None;
        };
        let item = |(index, node): (usize, &'a Node)| {
            let mut path = self.path.clone();
            let _ = write!(path, "[{index}]");
            Self { path, line: node.line, node }
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// A mapping whose keys are not weft's, in the order of the file.
    pub(crate) fn members(&self, check: &mut Check) -> Option<Vec<(&'a str, Self)>> {
        let Kind::Map(members) = &self.node.kind else {
            self.wrong(check, "a mapping");
            return None;
        };
        Some(members.iter().map(|member| (member.name.as_str(), self.member(member))).collect())
    }

    /// A mapping whose keys weft knows.
    pub(crate) fn table(&self, check: &mut Check) -> Option<Table<'a>> {
        let members: &[Member] = match &self.node.kind {
            Kind::Map(members) => members,
            // A file that says nothing.
            Kind::Null if self.path.is_empty() => &[],
            _ => {
                self.wrong(check, "a mapping");
                return None;
            }
        };
        Some(Table { place: self.clone(), members, used: vec![false; members.len()], known: Vec::new() })
    }

    /// Reports every key that comes twice, here and below.
    pub(crate) fn refuse_repeated_keys(&self, check: &mut Check) {
        match &self.node.kind {
            Kind::List(_) => {
                for item in self.list(check).unwrap_or_default() {
                    item.refuse_repeated_keys(check);
                }
            }
            Kind::Map(members) => {
                let mut first: HashMap<&str, u64> = HashMap::new();
                for member in members {
                    let place = self.member(member);
                    if let Some(line) = first.insert(&member.name, member.line) {
                        let place = if plain(&member.name) { &place } else { self };
                        let also = if line > 0 { format!("; also on line {line}") } else { String::new() };
                        check.problem(place, format!("a key must not come twice{also}"));
                    }
                    place.refuse_repeated_keys(check);
                }
            }
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) => {}
        }
    }
}

/// A mapping, of which one key after the other is asked for. Whatever nobody asked for is unknown.
pub(crate) struct Table<'a> {
    pub(crate) place: Place<'a>,
    members: &'a [Member],
    used: Vec<bool>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The value of a key, in either spelling. `null` counts as left out.
    pub(crate) fn get(&mut self, check: &mut Check, name: &'static str) -> Option<Place<'a>> {
        self.known.push(name);
        let mut found: Option<&'a Member> = None;
        for (member, used) in self.members.iter().zip(&mut self.used) {
            if !suggest::spells(&member.name, name) {
                continue;
            }
            *used = true;
            match found {
                Some(first) if first.name != member.name => check.problem(
                    &self.place.member(member),
                    format!("the same key as {}; keep one of them", first.name),
                ),
                Some(_) => {}
                None => found = Some(member),
            }
        }
        let place = found.map(|member| self.place.member(member));
        let place = place.filter(|place| !matches!(place.kind(), Kind::Null));
        #[cfg(test)]
        check.asked.push((join(&self.place.path, name), place.is_some()));
        place
    }

    /// Takes keys that mean nothing to weft and are no mistake either, with a warning.
    pub(crate) fn pass_over(&mut self, check: &mut Check, names: &[&str]) {
        for (member, used) in self.members.iter().zip(&mut self.used) {
            if !*used && names.iter().any(|name| suggest::spells(&member.name, name)) {
                *used = true;
                check.warn(&self.place.member(member), "not used by weft");
            }
        }
    }

    /// Reports the keys that nobody asked for.
    pub(crate) fn finish(self, check: &mut Check) {
        self.finish_with(check, "");
    }

    /// Like [`Table::finish`]; the hint stands where no key is alike.
    pub(crate) fn finish_with(self, check: &mut Check, hint: &str) {
        for member in self.unknown() {
            let place = self.place.member(member);
            match suggest::nearest(&member.name, &self.known) {
                Some(meant) => check.problem(&place, format!("unknown key; did you mean {meant}?")),
                None => {
                    let known = self.known.join(", ");
                    check.stranger(&place, format!("unknown key; known here: {known}{hint}"));
                }
            }
        }
    }

    /// Like [`Table::finish`], without showing the keys: for a place where one may be a secret by mistake.
    pub(crate) fn finish_silently(self, check: &mut Check) {
        for _ in self.unknown() {
            check.problem(&self.place, format!("unknown key; known here: {}", self.known.join(", ")));
        }
    }

    fn unknown(&self) -> impl Iterator<Item = &'a Member> {
        self.members.iter().zip(&self.used).filter(|(_, used)| !**used).map(|(member, _)| member)
    }
}
