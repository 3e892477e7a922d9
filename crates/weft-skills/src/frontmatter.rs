//! `SKILL.md`: YAML frontmatter and Markdown, as agent frameworks write it.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};
use weft_core::{
    ids::{Digest, SkillKey},
    text,
};

use crate::{
    loader::Compat,
    manifest::{Refusal, description_fault, without_bom},
    report::{Problem, shown},
    requirements::{self, Gating, same_but_for_case},
};

/// The file's name.
pub(crate) const NAME: &str = "SKILL.md";
/// Largest frontmatter that is parsed, in bytes.
const MAX_YAML: usize = 64 * 1024;
/// Most values that are taken for text in one file: more are no slips of an author.
const MAX_RESCUED: usize = 16;
/// Fields that guard a skill: what they hold is never guessed at.
const GUARDS: [&str; 5] =
    ["metadata", "os", "requires", "disable-model-invocation", "disable_model_invocation"];

/// What a `SKILL.md` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Document {
    /// As written; the directory's name stands in when it is missing.
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) version: String,
    pub(crate) when_to_use: String,
    /// JSON text.
    pub(crate) activation: String,
    pub(crate) hidden_from_prompts: bool,
    /// What it says it needs, in words for people.
    pub(crate) compatibility: String,
    pub(crate) gating: Gating,
    /// The whole file, without a byte-order mark.
    pub(crate) text: String,
    pub(crate) warnings: Vec<Problem>,
}

impl Document {
    /// Who a skill is that has nothing but this document.
    pub(crate) fn identity(&self, directory: &str, compat: Compat) -> Result<Identity, Refusal> {
        let name = self.name.as_deref().unwrap_or(directory);
        let most = compat.longest_name();
        let (key, warning) = key(name, directory);
        let line = |field| self.line_of(field).unwrap_or_default();
        let key = key.filter(|key| key.as_str().len() <= most).ok_or_else(|| {
            let message = format!(
                "name {:?} must be 1 to {most} of a-z 0-9 _ after lower-casing and taking '-', ' ' and '.' as '_'",
                shown(name)
            );
            Refusal::of(Problem::error("name", message).at(line("name")))
        })?;
        let warning = warning.map(|warning| warning.at(line("name")));
        let fault = match &self.description {
            None => Some("description is required".to_owned()),
            Some(text) => description_fault(text, false),
        };
        match (fault, &self.description) {
            (None, Some(text)) => {
                Ok(Identity { key, name: name.to_owned(), description: text.clone(), warning })
            }
            (fault, _) => Err(Refusal {
                half_written: false,
                key: Some(key),
                problems: vec![
                    Problem::error("description", fault.unwrap_or_default()).at(line("description")),
                ],
            }),
        }
    }

    /// The line of a field; without any frontmatter, the one where it should begin.
    fn line_of(&self, field: &str) -> Option<u32> {
        match split(&self.text) {
            Split::None => Some(1),
            _ => written(&self.text, field).map(|(line, _)| line),
        }
    }
}

/// Who a skill is.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) key: SkillKey,
    pub(crate) name: String,
    pub(crate) description: String,
    /// It is called by another name than the document says.
    pub(crate) warning: Option<Problem>,
}

/// The key of a document with this name. The format lets names be written in any script, and authors write what is no
/// name at all: then the directory stands in, or else a digest of the name does.
fn key(name: &str, directory: &str) -> (Option<SkillKey>, Option<Problem>) {
    if let Ok(key) = SkillKey::normalise(name) {
        return (Some(key), None);
    }
    let letters =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_. ".contains(c));
    let digest = || Some(format!("skill_{}", Digest::of(name.as_bytes()).short())).filter(|_| letters(name));
    let key = SkillKey::normalise(directory).ok().or_else(|| SkillKey::normalise(&digest()?).ok());
    let warning = key.as_ref().map(|key| {
        let message = format!("name {:?} cannot be a key; it is called as {key}", shown(name));
        Problem::warning("name", message)
    });
    (key, warning)
}

#[derive(Debug, Default, Deserialize)]
struct Front {
    name: Option<String>,
    description: Option<String>,
    when_to_use: Option<Value>,
    compatibility: Option<Value>,
    activation: Option<Value>,
    metadata: Option<Value>,
    os: Option<Value>,
    requires: Option<Value>,
    #[serde(rename = "disable-model-invocation", alias = "disable_model_invocation")]
    disable_model_invocation: Option<Value>,
}

/// Read apart from the rest: of a number the text counts, and another kind of value is no reason to refuse a file.
#[derive(Debug, Default, Deserialize)]
struct Versioned {
    version: Option<String>,
}

/// Reads a document.
pub(crate) fn parse(bytes: &[u8]) -> Result<Document, Refusal> {
    let text = std::str::from_utf8(without_bom(bytes)).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        Refusal::half_written(Problem::error("syntax", "the file is not UTF-8").at(line))
    })?;
    let mut document = Document { text: text.to_owned(), ..Document::default() };
    let mut yaml = match split(text) {
        Split::Frontmatter(yaml) => yaml,
        Split::None => {
            document.warnings.push(Problem::warning("frontmatter", "the file has no frontmatter").at(1usize));
            return Ok(document);
        }
        Split::Broken(reason) => {
            return Err(Refusal::half_written(Problem::error("syntax", reason).at(1usize)));
        }
    };
    if yaml.len() > MAX_YAML {
        let message = format!("the frontmatter has {} bytes, the limit is {MAX_YAML}", yaml.len());
        return Err(Refusal::of(Problem::error("syntax", message)));
    }
    let (front, names) = match parse_yaml(&yaml) {
        Ok(parsed) => parsed,
        Err(error) => {
            let (rescued, warnings) = rescue(&yaml);
            if warnings.is_empty() {
                return Err(Refusal::half_written(error));
            }
            document.warnings.extend(warnings);
            yaml = Cow::Owned(rescued);
            parse_yaml(&yaml).map_err(|error| {
                let mut refusal = Refusal::half_written(error);
                refusal.problems.append(&mut document.warnings);
                refusal
            })?
        }
    };
    document.version = version(&yaml).unwrap_or_else(|| {
        let message = "version is neither a text nor a number and is left out";
        let line = document.line_of("version").unwrap_or_default();
        document.warnings.push(Problem::warning("version", message).at(line));
        String::new()
    });
    fill(&mut document, front, &names);
    Ok(document)
}

fn fill(document: &mut Document, front: Front, names: &[String]) {
    let trimmed =
        |text: Option<String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    document.name = trimmed(front.name);
    document.description = trimmed(front.description);
    document.when_to_use = match front.when_to_use {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(other) => other.to_string(),
    };
    if let Some(Value::String(text)) = front.compatibility {
        document.compatibility = text;
    }
    let metadata = front.metadata.unwrap_or(Value::Null);
    document.activation = match metadata.pointer("/ongrid/activation").or(front.activation.as_ref()) {
        None | Some(Value::Null) => String::new(),
        Some(value) => value.to_string(),
    };
    document.hidden_from_prompts = match front.disable_model_invocation {
        None | Some(Value::Null) => false,
        Some(Value::Bool(hidden)) => hidden,
        Some(Value::String(word)) if word.eq_ignore_ascii_case("true") => true,
        Some(Value::String(word)) if word.eq_ignore_ascii_case("false") => false,
        Some(_) => {
            let message = "disable-model-invocation is neither true nor false and taken as false";
            document.warnings.push(Problem::warning("disable-model-invocation", message));
            false
        }
    };
    document.gating = requirements::read(&metadata);
    let beside: Map<String, Value> = [("os", front.os), ("requires", front.requires)]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    document.gating.add(requirements::read_beside(beside));
    for known in ["metadata", "requires"] {
        if let Some(name) = names.iter().find(|name| *name != known && same_but_for_case(name, known)) {
            let reason = format!("{:?} differs from {known:?} by case only", shown(name));
            document.gating.broken.get_or_insert(reason);
        }
    }
}

enum Split<'a> {
    /// The YAML, with an empty line in place of the fence, so that lines count as in the file.
    Frontmatter(Cow<'a, str>),
    /// Plain Markdown.
    None,
    /// Meant to have frontmatter.
    Broken(&'static str),
}

fn split(text: &str) -> Split<'_> {
    let normalised = if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    };
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = normalised.split_inclusive('\n');
    if !lines.next().is_some_and(is_fence) {
        let first = normalised.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        return match first.lines().next() {
            None => Split::Broken("the file is empty"),
            Some(line) if is_fence(line) => Split::Broken("the frontmatter must start on the first line"),
            Some(line) if line.chars().all(|c| c == '-') => Split::Broken("the frontmatter has no end"),
            Some(_) => Split::None,
        };
    }
    let mut yaml = String::from("\n");
    for line in lines {
        if is_fence(line) {
            return Split::Frontmatter(Cow::Owned(yaml));
        }
        yaml.push_str(line);
    }
    Split::Broken("the frontmatter has no end: a line with --- is missing")
}

/// Bounds on what an author's YAML may cost. No anchors: nothing in a frontmatter needs them.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_nodes: 4096,
            max_anchors: 0,
            max_aliases: 0,
            max_documents: 1,
            max_total_scalar_bytes: 256 * 1024,
        },
        strict_booleans: true,
        with_snippet: false,
    }
}

fn is_blank(yaml: &str) -> bool {
    yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn parse_yaml(yaml: &str) -> Result<(Front, Vec<String>), Problem> {
    if is_blank(yaml) {
        return Ok((Front::default(), Vec::new()));
    }
    let names: BTreeMap<String, IgnoredAny> =
        serde_saphyr::from_str_with_options(yaml, options()).map_err(|error| problem(&error))?;
    let front = serde_saphyr::from_str_with_options(yaml, options()).map_err(|error| problem(&error))?;
    Ok((front, names.into_keys().collect()))
}

/// The version as it is written; `None` when it is no scalar.
fn version(yaml: &str) -> Option<String> {
    if is_blank(yaml) {
        return Some(String::new());
    }
    let read: Versioned = serde_saphyr::from_str_with_options(yaml, options()).ok()?;
    Some(read.version.unwrap_or_default().trim().to_owned())
}

/// What is wrong with YAML, in words for its author.
fn problem(error: &serde_saphyr::Error) -> Problem {
    use serde_saphyr::{Error, UserMessageFormatter, budget::BudgetBreach};
    let line = error.location().map_or(0, |location| location.line());
    let message = match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("{} comes twice", shown(key)),
        Error::DuplicateMappingKey { key: None, .. } => "a key comes twice".to_owned(),
        Error::UnknownAnchor { .. }
        | Error::Budget { breach: BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. }, .. } => {
            "anchors (&x) and aliases (*x) are not taken".to_owned()
        }
        Error::Budget { .. } => "the frontmatter is larger or deeper than what is taken".to_owned(),
        other => other.render_with_formatter(&UserMessageFormatter.with_localizer(&Unplaced)),
    };
    Problem::error("syntax", text::escape(message.as_bytes())).at(line)
}

/// Leaves out of messages where the fault is: diagnostics have a line of their own.
struct Unplaced;

impl serde_saphyr::Localizer for Unplaced {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _: serde_saphyr::Location) -> Cow<'a, str> {
        base
    }
}

/// A map written in YAML's flow style, of which JSON with comments left out, single quotes, bare names and
/// trailing commas is a part.
pub(crate) fn parse_flow(text: &str) -> Option<Value> {
    if text.len() > MAX_YAML || !text.trim_start().starts_with('{') {
        return None;
    }
    serde_saphyr::from_str_with_options(text, options()).ok()
}

/// A field at the top level, as it is written: on one line and the indented ones after it.
struct Field<'a> {
    name: &'a str,
    value: &'a str,
    more: &'a [&'a str],
}

impl<'a> Field<'a> {
    /// The field that begins with the first of these lines.
    fn read(lines: &'a [&'a str]) -> Option<Self> {
        let (first, rest) = lines.split_first()?;
        let (name, value) = first.split_once(':')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let named = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain);
        if !named || !(value.is_empty() || value.starts_with([' ', '\t'])) {
            return None;
        }
        let indented = |line: &&&str| line.starts_with([' ', '\t']) && !line.trim().is_empty();
        let more = rest.iter().take_while(indented).count();
        Some(Self { name, value: value.trim(), more: &rest[..more] })
    }

    /// The value in one line.
    fn whole(&self) -> String {
        let mut whole = self.value.to_owned();
        for line in self.more {
            whole.push(' ');
            whole.push_str(line.trim());
        }
        whole
    }

    /// Whether the value, parsed alone, is none, and can only be meant as text. What guards a skill is never taken
    /// for text, and neither is what may be cut off or go on below.
    fn lacks_quotes(&self) -> bool {
        let ends = |end: char| self.value.len() > 1 && self.value.ends_with(end);
        let complete = match self.value.chars().next() {
            None | Some('|' | '>') => false,
            Some(quote @ ('"' | '\'')) => ends(quote),
            Some('[') => self.whole().contains(']'),
            Some('{') => self.whole().contains('}'),
            Some(_) => true,
        };
        let guards = |name: &str| GUARDS.iter().any(|guard| same_but_for_case(name, guard));
        let hidden = |line: &&str| {
            line.split_once(':').is_some_and(|(name, _)| guards(name.trim().trim_matches(['"', '\''])))
        };
        complete && !guards(self.name) && !self.more.iter().any(hidden) && self.fails_alone()
    }

    fn fails_alone(&self) -> bool {
        let mut yaml = format!("{}: {}", self.name, self.value);
        for line in self.more {
            yaml.push('\n');
            yaml.push_str(line);
        }
        let parsed: Result<BTreeMap<String, IgnoredAny>, _> =
            serde_saphyr::from_str_with_options(&yaml, options());
        // What breaks a bound is YAML, and not text.
        parsed.is_err_and(|error| !matches!(error.without_snippet(), serde_saphyr::Error::Budget { .. }))
    }
}

/// The line and the text of a field's value in a document, before YAML makes something of it.
pub(crate) fn written(text: &str, name: &str) -> Option<(u32, String)> {
    let Split::Frontmatter(yaml) = split(text) else { return None };
    let lines: Vec<&str> = yaml.split('\n').collect();
    let mut fields = (0..lines.len()).filter_map(|at| Some((at, Field::read(&lines[at..])?)));
    let (at, field) = fields.find(|(_, field)| field.name == name)?;
    Some((u32::try_from(at + 1).ok()?, field.whole()))
}

/// Quotes what its author should have quoted, and says what; nothing when that is too much.
fn rescue(yaml: &str) -> (String, Vec<Problem>) {
    let lines: Vec<&str> = yaml.split('\n').collect();
    let mut out: Vec<Cow<'_, str>> = Vec::with_capacity(lines.len());
    let mut warnings = Vec::new();
    while let Some(rest) = lines.get(out.len()..).filter(|rest| !rest.is_empty()) {
        let field = Field::read(rest);
        let length = 1 + field.as_ref().map_or(0, |field| field.more.len());
        let Some(field) = field.filter(Field::lacks_quotes) else {
            out.extend(rest[..length].iter().map(|line| Cow::Borrowed(*line)));
            continue;
        };
        if warnings.len() == MAX_RESCUED {
            return (yaml.to_owned(), Vec::new());
        }
        let whole = field.whole();
        let what = if whole.starts_with(['%', '@', '`', '&', '*', '!', '[', '{']) {
            "begins with a character that YAML reserves"
        } else if whole.contains(": ") || whole.ends_with(':') {
            "holds an unquoted \": \""
        } else {
            "is not valid YAML"
        };
        let message = format!("{} {what} and was read as if quoted; quote it", shown(field.name));
        warnings.push(Problem::warning("yaml", message).at(out.len() + 1));
        out.push(Cow::Owned(format!("{}: '{}'", field.name, whole.replace('\'', "''"))));
        // Lines keep their numbers.
        out.extend(std::iter::repeat_n(Cow::Borrowed(""), length - 1));
    }
    (out.join("\n"), warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Document {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_unquoted_colon_in_a_description_is_rescued_whole_with_a_warning() {
        let document = read(
            "---\nname: deploy_note\ndescription: Post a note. Use when: (1) it's done, (2) it fails.\n---\nBody.\n",
        );
        assert_eq!(document.description.unwrap(), "Post a note. Use when: (1) it's done, (2) it fails.");
        assert_eq!(document.warnings.len(), 1);
        assert_eq!(document.warnings[0].line, Some(3));
        assert!(document.warnings[0].message.contains("description"));
    }

    #[test]
    fn a_continued_description_with_a_colon_is_rescued_too() {
        let document =
            read("---\ndescription: Post a note.\n  Use when: done\nname: x\nversion: 1.10\n---\n");
        assert_eq!(document.description.unwrap(), "Post a note. Use when: done");
        assert_eq!(document.name.unwrap(), "x");
        assert_eq!(document.version, "1.10");
    }

    #[test]
    fn what_stays_unparsable_names_the_line_of_the_file() {
        let refusal = parse(b"---\nname: x\ndescription: a: b\nmetadata: [\n---\n").unwrap_err();
        assert!(refusal.half_written);
        assert!(refusal.problems[0].line.is_some_and(|line| line >= 4), "{refusal:?}");
        let refusal = parse(b"---\nname: x\nname: y\n---\n").unwrap_err();
        assert_eq!(refusal.problems[0].line, Some(3), "{refusal:?}");
    }

    #[test]
    fn marks_and_line_ends_of_windows_editors_leave_no_trace() {
        for text in [
            "\u{feff}---\nname: a\ndescription: d\n---\nB\n",
            "---\r\nname: a\r\ndescription: d\r\n---\r\nB\r\n",
            "\u{feff}---\r\nname: a\r\ndescription: d\r\n---\r\nB\r\n",
            "---\rname: a\rdescription: d\r---\rB\r",
        ] {
            let document = read(text);
            assert_eq!(document.name.as_deref(), Some("a"), "{text:?}");
            assert_eq!(document.description.as_deref(), Some("d"), "{text:?}");
            assert!(!document.text.contains('\u{feff}'));
        }
        assert!(parse("\u{feff}\u{feff}---\nname: a\ndescription: d\n---\n".as_bytes()).is_err());
    }

    #[test]
    fn metadata_over_several_lines_is_read() {
        let document = read(
            "---\nname: gated\ndescription: d\nmetadata:\n  {\n    \"os\": [\"linux\"],\n    \"requires\":\n      { \"bins\": [\"absent\"] },\n  }\n---\n",
        );
        assert_eq!(document.gating.broken, None);
        assert_eq!(document.gating.blocks[0].bins, ["absent"]);
    }

    #[test]
    fn metadata_reads_the_same_in_every_style() {
        for metadata in [
            "metadata: {\"openclaw\": {\"requires\": {\"bins\": [\"uv\"]}}}",
            "metadata: '{\"openclaw\": {\"requires\": {\"bins\": [\"uv\"]}}}'",
            "metadata: |\n  {\n    openclaw: { requires: { bins: ['uv',], }, },\n  }",
            "metadata:\n  openclaw:\n    requires:\n      bins: [uv]\n    emoji: x\n  1: one\n  no: 1.50",
            "metadata:\n  requires:\n    bins: uv",
            "requires:\n  bins:\n    - uv",
        ] {
            let document = read(&format!("---\ndescription: d\n{metadata}\n---\n"));
            assert_eq!(document.gating.broken, None, "{metadata}");
            assert_eq!(document.gating.blocks.len(), 1, "{metadata}");
            assert_eq!(document.gating.blocks[0].bins, ["uv"], "{metadata}");
        }
    }

    #[test]
    fn gates_that_cannot_be_read_are_broken() {
        for metadata in
            ["metadata: words", "metadata: [a]", "Metadata: {os: linux}", "metadata: {requires: 5}", "os: 5"]
        {
            let document = read(&format!("---\ndescription: d\n{metadata}\n---\n"));
            assert!(document.gating.broken.is_some(), "{metadata}");
        }
    }

    #[test]
    fn costly_yaml_is_refused() {
        let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]";
        let deep = "[".repeat(10_000);
        for yaml in [bomb, deep.as_str(), &"x: 1\n".repeat(20_000)] {
            assert!(parse(format!("---\ndescription: d\nk: {yaml}\n---\n").as_bytes()).is_err());
        }
    }

    #[test]
    fn the_documented_native_skill_reads() {
        let document = read(
            "---\nname: query_promql\ndescription: Run a PromQL query.\nwhen_to_use: When asked for metrics.\nactivation:\n  mode: always\nmetadata:\n  os: [linux, darwin]\n  requires:\n    bins: []\n    config: []\n  ongrid:\n    scope: manager\n    activation:\n      mode: keyword\ntools:\n  - name: query_promql\n    impl: builtin:prom.QueryPromQL\n    class: read\n---\n\n# query_promql\n",
        );
        assert_eq!(document.when_to_use, "When asked for metrics.");
        assert_eq!(document.activation, r#"{"mode":"keyword"}"#);
        assert_eq!(document.gating.blocks[0].os, ["linux", "darwin"]);
        assert!(document.text.ends_with("# query_promql\n"));
        assert!(document.warnings.is_empty());
    }

    #[test]
    fn text_cut_in_its_frontmatter_counts_as_half_written() {
        let text = "---\nname: x\ndescription: d\n---\nB";
        for end in 1..text.find("\n---").unwrap() + 3 {
            assert!(parse(&text.as_bytes()[..end]).unwrap_err().half_written, "{end}");
        }
        assert!(parse(b"").unwrap_err().half_written);
        assert!(parse(b"---\nname: \xff\n---\n").unwrap_err().half_written);
    }

    #[test]
    fn the_directory_names_a_document_without_a_name() {
        let document = read("---\ndescription: d\n---\n");
        let found = document.identity("Docs-Search", Compat::default()).unwrap();
        assert_eq!((found.key.as_str(), found.name.as_str()), ("docs_search", "Docs-Search"));
        let long = "a".repeat(65);
        assert!(document.identity(&long, Compat::default()).is_err());
        let lenient = Compat { long_names: true, ..Compat::default() };
        assert_eq!(document.identity(&long, lenient).unwrap().key.as_str(), long);
        let nameless = read("---\nname: x\n---\n");
        assert_eq!(nameless.identity("x", Compat::default()).unwrap_err().problems[0].rule, "description");
    }

    #[test]
    fn a_name_in_any_script_is_called_as_its_directory_or_by_a_digest_of_it() {
        let identity = |name: &str, directory: &str| {
            let document = read(&format!("---\nname: {name}\ndescription: d\n---\n"));
            let found = document.identity(directory, Compat::default());
            found.map(|found| (found.key.to_string(), found.name, found.warning.is_some()))
        };
        let taken = |name: &str, directory: &str| identity(name, directory).unwrap();
        assert_eq!(taken("食物订购", "food-order"), ("food_order".into(), "食物订购".into(), true));
        assert_eq!(taken("sw/team-build", "team-build"), ("team_build".into(), "sw/team-build".into(), true));
        let (key, name, warned) = taken("été", "été");
        assert!(key.starts_with("skill_") && key.len() == 18 && name == "été" && warned, "{key}");
        assert_ne!(key, taken("hiver-é", "été").0);
        assert!(identity("a/b", "été").is_err());
    }

    #[test]
    fn a_value_that_begins_with_what_yaml_reserves_is_rescued_with_a_warning() {
        for value in ["@Observable state", "`weft` first", "% of it"] {
            let document = read(&format!("---\nname: x\ndescription: {value}\n---\n"));
            assert_eq!(document.description.as_deref(), Some(value));
            assert_eq!(document.warnings.len(), 1, "{value}");
        }
    }

    #[test]
    fn any_field_whose_value_is_no_yaml_is_read_as_text_with_a_warning() {
        for field in [
            "argument-hint: [pr-number] [priority]",
            "argument-hint: file: the file",
            "license: Proprietary. See: LICENSE.txt",
            "license: %x",
            "globs: **/*.py",
            "allowed-tools: [Read, Bash(git: *)]",
            "hint: \"a\" or \"b\"",
            "notes: first\n  then: second",
        ] {
            let document = read(&format!("---\nname: x\n{field}\ndescription: d\n---\n"));
            assert_eq!(document.description.as_deref(), Some("d"), "{field}");
            let [warning] = &document.warnings[..] else { panic!("{field}: {:?}", document.warnings) };
            assert_eq!(warning.line, Some(3), "{field}");
            assert!(warning.message.starts_with(field.split_once(':').unwrap().0), "{warning:?}");
        }
        let many = |count: usize| {
            let fields: String = (0..count).map(|n| format!("a{n}: b: c\n")).collect();
            format!("---\ndescription: d\n{fields}---\n")
        };
        assert_eq!(read(&many(MAX_RESCUED)).warnings.len(), MAX_RESCUED);
        assert_eq!(parse(many(MAX_RESCUED + 1).as_bytes()).unwrap_err().problems.len(), 1);
        let document = read("---\nwhen_to_use: Use when: it's x\ndescription: [Beta] does things\n---\n");
        assert_eq!(document.when_to_use, "Use when: it's x");
        assert_eq!(document.description.as_deref(), Some("[Beta] does things"));
    }

    #[test]
    fn what_guards_a_skill_or_may_go_on_below_is_never_taken_for_text() {
        for field in [
            "metadata: [a] [b]",
            "metadata: a: b",
            "os: *linux",
            "requires: {bins: [a] b}",
            "Requires: bins: a",
            "disable-model-invocation: true: x",
            "disable_model_invocation: @true",
            "license: a: b\n metadata: {os: linux}",
            "license: a: b\n \"requires\": {bins: [x]}",
            "hint: \"a\" then",
            "hint: 'a",
            "hint: [a",
            "hint: {a",
            "hint: >\n\tx: y",
            "tags: a\ntags: b",
            "tags: a: b\ntags: c",
        ] {
            let text = format!("---\nname: x\ndescription: d\n{field}\n---\n");
            assert!(parse(text.as_bytes()).is_err(), "{field}");
        }
    }

    #[test]
    fn messages_are_in_words_for_authors_and_without_a_second_position() {
        let said = |yaml: &str| {
            let refusal = parse(format!("---\ndescription: d\n{yaml}\n---\n").as_bytes()).unwrap_err();
            let problem = &refusal.problems[0];
            assert!(problem.line.is_some(), "{problem:?}");
            problem.message.clone()
        };
        assert_eq!(said("tags: a\ntags: b"), "tags comes twice");
        for yaml in ["x: &a 1", "x: &a 1\ny: *a", "metadata: *a"] {
            assert_eq!(said(yaml), "anchors (&x) and aliases (*x) are not taken", "{yaml}");
        }
        for yaml in
            ["metadata: [a", "metadata: a: b", "name: [x]", "hint: 'a", &format!("x: {}", "[".repeat(100))]
        {
            let message = said(yaml);
            for word in ["line", "column", "budget", "Policy", "Options", "Breach"] {
                assert!(!message.contains(word), "{yaml}: {message}");
            }
        }
    }

    #[test]
    fn a_version_is_its_text_and_no_reason_to_refuse() {
        for (written, version) in [
            ("1.10", "1.10"),
            ("2", "2"),
            ("\" v1 \"", "v1"),
            ("2024-01-01", "2024-01-01"),
            ("true", "true"),
            ("", ""),
        ] {
            let document = read(&format!("---\ndescription: d\nversion: {written}\n---\n"));
            assert_eq!((document.version.as_str(), document.warnings.len()), (version, 0), "{written}");
        }
        for written in ["[1, 2]", "{major: 1}", "\n  major: 1"] {
            let document = read(&format!("---\ndescription: d\nversion: {written}\n---\n"));
            assert_eq!(document.description.as_deref(), Some("d"));
            assert_eq!((document.version.as_str(), document.warnings[0].line), ("", Some(3)), "{written}");
        }
    }

    #[test]
    fn a_refusal_says_where_and_keeps_what_else_is_odd() {
        let refused =
            |text: &str| read(text).identity("no key!", Compat::default()).unwrap_err().problems[0].clone();
        let at = |text: &str| (refused(text).rule, refused(text).line);
        assert_eq!(at("---\nversion: 1\nname: x\ndescription: ' '\n---\n"), ("description", Some(4)));
        assert_eq!(at("---\nversion: 1\nname: x!\ndescription: d\n---\n"), ("name", Some(3)));
        assert_eq!(at("---\nname: x\n---\n"), ("description", None));
        assert_eq!(at("# Words\n"), ("name", Some(1)));
        let refusal = parse(b"---\ndescription: a: b\nmetadata: [\n---\n").unwrap_err();
        let rules: Vec<_> = refusal.problems.iter().map(|problem| problem.rule).collect();
        assert_eq!(rules, ["syntax", "yaml"]);
    }

    #[test]
    fn conditions_beside_metadata_go_by_their_own_names_and_a_list_is_none() {
        let gating = |yaml: &str| read(&format!("---\ndescription: d\n{yaml}\n---\n")).gating;
        let listed = gating("requires:\n  - router-core\nos: [beos]");
        assert_eq!((listed.broken, listed.blocks.len()), (None, 1));
        let messages: Vec<_> = listed.warnings.iter().map(|warning| warning.message.as_str()).collect();
        let list = "requires is a list and no condition; conditions are a map in metadata";
        assert_eq!(messages[0], list);
        assert!(messages[1].starts_with("os: \"beos\""), "{messages:?}");
        for (yaml, reason) in [
            ("requires: words", "requires is not a map"),
            ("requires:\n  - bins: [uv]", "requires is not a map"),
            ("requires: {bins: 5}", "requires.bins is neither a list nor a string"),
            ("os: 5", "os is neither a list nor a string"),
            ("metadata: {requires: [a]}", "metadata.requires is not a map"),
        ] {
            assert_eq!(gating(yaml).broken.as_deref(), Some(reason), "{yaml}");
        }
    }

    #[test]
    fn hiding_from_prompts_takes_true_only() {
        let hidden =
            |value: &str| read(&format!("---\ndisable-model-invocation: {value}\n---\n")).hidden_from_prompts;
        assert!(hidden("true") && hidden("\"true\""));
        assert!(!hidden("false") && !hidden("maybe"));
    }
}
