//! What the keywords of one place come to, once they are all known.

use super::{
    super::{
        Report, Uncallable,
        place::{Found, Named, Part},
        tree::Tree,
    },
    schema::{ANNOTATIONS, Kind, Schema, Typed},
};

/// Why a keyword is dropped that was found more than once.
const TWICE: &str = "said more than once for this place: the first is kept";

/// The largest count that Gemini's numbers hold exactly.
const MAX_COUNT: f64 = 9_007_199_254_740_991.0;

/// All that is said of one place.
#[derive(Default)]
pub(super) struct Shape<'a> {
    /// Where the first of its schemas stands in the document.
    pub(super) at: String,
    /// The types it may have; `None` when nothing is said.
    pub(super) kinds: Option<Vec<Kind>>,
    /// The values it may have, with the keyword and the place that say so.
    values: Option<(Vec<&'a Tree>, &'a str, String)>,
    notes: Vec<(&'static str, Found<'a>)>,
    /// Keywords that are kept as they are: `pattern`, and limits, of which the tightest counts.
    kept: Vec<(&'static str, &'a Tree)>,
    format: Option<Found<'a>>,
    properties: Named<'a, Part<'a>>,
    pub(super) required: Named<'a, ()>,
    first_items: Vec<Vec<Part<'a>>>,
    other_items: Vec<Part<'a>>,
    /// Which of the keywords that are about one type were found, and where.
    typed: Vec<(&'static str, String)>,
}

impl<'a> Shape<'a> {
    pub(super) fn new(at: &str) -> Self {
        Self { at: at.to_owned(), ..Self::default() }
    }

    pub(super) fn declares(&self, name: &str) -> bool {
        self.properties.contains(name)
    }

    /// Takes one more keyword into account.
    pub(super) fn add(&mut self, found: Found<'a>, report: &mut Report) {
        let value = found.value;
        match found.keyword {
            "type" => self.narrow(value),
            "enum" => self.restrict(value.elements().iter().collect(), &found),
            "const" => self.restrict(vec![value], &found),
            "format" => match &self.format {
                Some(known) if known.value != value => report.say(&found.owner, "format", TWICE),
                Some(_) => {}
                None => self.format = Some(found),
            },
            "properties" => {
                self.typed.push(("properties", found.owner.clone()));
                found.named().for_each(|(name, part)| self.properties.entry(name).push(part));
            }
            "required" => {
                self.typed.push(("required", found.owner.clone()));
                for name in value.elements().iter().filter_map(Tree::as_text) {
                    self.required.entry(name);
                }
            }
            "items" | "prefixItems" if matches!(value, Tree::List(_)) => {
                self.typed.push(("prefixItems", found.owner.clone()));
                for (n, part) in found.parts().enumerate() {
                    if self.first_items.len() == n {
                        self.first_items.push(Vec::new());
                    }
                    self.first_items[n].push(part);
                }
            }
            "items" => {
                self.typed.push(("items", found.owner.clone()));
                self.other_items.push(found.part());
            }
            "exclusiveMinimum" | "exclusiveMaximum" if value.as_number().is_some() => {
                let keyword = if found.keyword == "exclusiveMinimum" { "minimum" } else { "maximum" };
                report.say(
                    &found.owner,
                    found.keyword,
                    format!("gemini does not know it: {keyword} stands in its place"),
                );
                self.keep(keyword, &found, report);
            }
            "$defs" | "definitions" => {}
            keyword => {
                let of = |list: &[&'static str]| list.iter().find(|known| **known == keyword).copied();
                if let Some(keyword) = of(&ANNOTATIONS) {
                    self.notes.push((keyword, found));
                } else if let Some(keyword) = of(&KEPT) {
                    self.keep(keyword, &found, report);
                } else {
                    report.say(&found.owner, keyword, "gemini does not know it");
                }
            }
        }
    }

    fn narrow(&mut self, value: &Tree) {
        let names =
            if matches!(value, Tree::Text(_)) { std::slice::from_ref(value) } else { value.elements() };
        let said: Vec<Kind> = names.iter().filter_map(Tree::as_text).filter_map(Kind::parse).collect();
        let narrowed = match &self.kinds {
            None => said,
            Some(known) => {
                known.iter().flat_map(|kind| said.iter().filter_map(|other| kind.both(*other))).collect()
            }
        };
        self.kinds = Some(once(narrowed));
    }

    fn restrict(&mut self, mut values: Vec<&'a Tree>, found: &Found<'a>) {
        if let Some((known, ..)) = &self.values {
            values.retain(|value| known.contains(value));
        }
        self.values = Some((values, found.keyword, found.owner.clone()));
    }

    fn keep(&mut self, keyword: &'static str, found: &Found<'a>, report: &mut Report) {
        let usable = match keyword {
            "pattern" => found.value.as_text().is_some(),
            "minimum" | "maximum" => found.value.as_number().is_some_and(f64::is_finite),
            // A count is a 64-bit integer to Gemini, however JSON spells it.
            _ => found.value.as_number().is_some_and(|n| n.fract() == 0.0 && (0.0..=MAX_COUNT).contains(&n)),
        };
        if !usable {
            report.say(&found.owner, found.keyword, "gemini does not take this value");
            return;
        }
        self.typed.push((keyword, found.owner.clone()));
        let Some((_, kept)) = self.kept.iter_mut().find(|(known, _)| *known == keyword) else {
            self.kept.push((keyword, found.value));
            return;
        };
        if keyword == "pattern" {
            if *kept != found.value {
                report.say(&found.owner, keyword, TWICE);
            }
            return;
        }
        let (new, old) = (found.value.as_number(), kept.as_number());
        if if keyword.starts_with("min") { new > old } else { new < old } {
            *kept = found.value;
        }
    }

    /// The types to describe, and whether null is allowed beside them.
    pub(super) fn kinds(&self, report: &mut Report) -> Result<(Vec<Kind>, bool), Uncallable> {
        let mut kinds = match &self.kinds {
            Some(kinds) => kinds.clone(),
            None => self.guessed(report),
        };
        if kinds.contains(&Kind::Number) {
            kinds.retain(|kind| *kind != Kind::Integer);
        }
        if let Some((values, ..)) = &self.values {
            kinds.retain(|kind| values.iter().any(|value| kind.fits(value)));
        }
        let nullable = kinds.contains(&Kind::Null);
        kinds.retain(|kind| *kind != Kind::Null);
        match (kinds.is_empty(), nullable) {
            (true, true) => Ok((vec![Kind::Null], false)),
            (true, false) => Err(Uncallable { pointer: self.at.clone(), why: "no value fits it".to_owned() }),
            (false, nullable) => Ok((kinds, nullable)),
        }
    }

    fn guessed(&self, report: &mut Report) -> Vec<Kind> {
        if let Some((values, ..)) = &self.values {
            return once(values.iter().map(|value| Kind::of(value)).collect());
        }
        let told = |kind: &Kind| self.typed.iter().any(|(keyword, _)| kind.knows(keyword));
        let kinds: Vec<Kind> = Kind::ANY.into_iter().filter(told).collect();
        if kinds.is_empty() {
            report.say(&self.at, "no type", "gemini needs one: anything but null is allowed");
            return Kind::ANY.to_vec();
        }
        report.say(&self.at, "no type", "gemini needs one: it is taken from the other keywords");
        kinds
    }

    /// Says which keywords cannot be used with these types: Gemini refuses what is about another one.
    pub(super) fn say_useless(&self, kinds: &[Kind], report: &mut Report) {
        for (keyword, owner) in &self.typed {
            if !kinds.iter().any(|kind| kind.knows(keyword)) {
                report.say(owner, keyword, "it says nothing of values of this type");
            }
        }
        if let Some((_, keyword, owner)) = &self.values
            && kinds.iter().any(|kind| !matches!(kind, Kind::Text | Kind::Null))
        {
            report.say(owner, keyword, "gemini takes only strings as fixed values");
        }
        if let Some(format) = &self.format
            && !kinds.iter().any(|kind| format.value.as_text().is_some_and(|name| kind.has_format(name)))
        {
            report.say(&format.owner, "format", "gemini does not know this one for this type");
        }
    }

    /// The schema of one of the types, without what is below it.
    pub(super) fn typed(&self, kind: Kind, report: &mut Report) -> Typed {
        let mut typed = Typed::new(kind);
        for (keyword, value) in self.kept.iter().filter(|(keyword, _)| kind.knows(keyword)) {
            typed.set(keyword, (*value).clone());
        }
        if let Some(format) = &self.format
            && format.value.as_text().is_some_and(|name| kind.has_format(name))
        {
            typed.set("format", format.value.clone());
        }
        if let (Kind::Text, Some((values, keyword, owner))) = (kind, &self.values) {
            let (usable, empty): (Vec<&str>, Vec<&str>) =
                values.iter().filter_map(|value| value.as_text()).partition(|text| !text.is_empty());
            if !empty.is_empty() {
                report.say(
                    owner,
                    &format!("{keyword} \"\""),
                    "gemini takes no empty string as a fixed value",
                );
            }
            if !usable.is_empty() {
                typed.set("enum", Tree::List(usable.into_iter().map(Tree::text).collect()));
            }
        }
        typed
    }

    /// Adds what is said of the place as a whole.
    pub(super) fn annotate(&self, schema: &mut Schema, report: &mut Report) {
        for (n, (keyword, found)) in self.notes.iter().enumerate() {
            match self.notes[..n].iter().find(|(known, _)| known == keyword) {
                Some((_, first)) if first.value == found.value => {}
                Some(_) => report.say(&found.owner, keyword, TWICE),
                None if schema.annotate(keyword, found.value) => {}
                None => report.say(&found.owner, keyword, "it does not fit the type"),
            }
        }
    }

    /// Says that nothing of the place as a whole is carried.
    pub(super) fn say_notes(&self, why: &str, report: &mut Report) {
        for (keyword, found) in &self.notes {
            report.say(&found.owner, keyword, why);
        }
    }

    /// The properties, and without a schema those which are only required.
    pub(super) fn take_properties(&mut self) -> Named<'a, Part<'a>> {
        let mut properties = std::mem::take(&mut self.properties);
        for (name, _) in &self.required.list {
            properties.entry(name);
        }
        properties
    }

    /// The schemas of the first items one by one, and of those after them.
    pub(super) fn take_items(&mut self) -> (Vec<Vec<Part<'a>>>, Vec<Part<'a>>) {
        (std::mem::take(&mut self.first_items), std::mem::take(&mut self.other_items))
    }
}

/// Keywords that mean the same to Gemini.
const KEPT: [&str; 9] = [
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];

fn once(kinds: Vec<Kind>) -> Vec<Kind> {
    let mut list = Vec::new();
    for kind in kinds {
        if !list.contains(&kind) {
            list.push(kind);
        }
    }
    list
}
