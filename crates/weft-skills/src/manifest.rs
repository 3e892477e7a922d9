//! `skill.json`: the manifest of an executable skill, read strictly.

use std::{fmt, time::Duration};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use weft_core::{
    ids::{MAX_SKILL_NAME, SkillKey},
    json, limits,
    schema::Schema,
    skill::{Class, ClassSource, EMPTY_SCHEMA, tool_name},
};

use crate::{
    digest::Ignore,
    loader::Compat,
    report::{Problem, shown},
    requirements::{self, Gating, same_but_for_case},
};

/// The file's name.
pub(crate) const NAME: &str = "skill.json";

/// What a `skill.json` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) key: SkillKey,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) schema: String,
    pub(crate) output_schema: Option<String>,
    pub(crate) entry: String,
    pub(crate) env_allow: Vec<String>,
    pub(crate) timeout: Duration,
    pub(crate) class: Class,
    pub(crate) class_source: ClassSource,
    pub(crate) category: String,
    pub(crate) gating: Gating,
    pub(crate) idempotent: bool,
    pub(crate) sensitive: Vec<String>,
    pub(crate) max_concurrency: Option<u32>,
    pub(crate) version: String,
    pub(crate) digest_ignore: Ignore,
    pub(crate) warnings: Vec<Problem>,
}

/// Why a file does not give a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Not even the syntax holds, as in the middle of a write: an older version may stay.
    pub(crate) half_written: bool,
    /// The name, where it could be read; else the loader puts that of the directory in its place.
    pub(crate) key: Option<SkillKey>,
    /// At least one error.
    pub(crate) problems: Vec<Problem>,
}

impl Refusal {
    pub(crate) fn half_written(problem: Problem) -> Self {
        Self { half_written: true, key: None, problems: vec![problem] }
    }

    pub(crate) fn of(problem: Problem) -> Self {
        Self { half_written: false, key: None, problems: vec![problem] }
    }
}

const MEMBERS: [&str; 15] = [
    "name",
    "description",
    "schema",
    "entry",
    "env_allow",
    "timeout_seconds",
    "class",
    "category",
    "metadata",
    "output_schema",
    "idempotent",
    "sensitive",
    "max_concurrency",
    "digest_ignore",
    "version",
];

/// One byte-order mark, which some editors put first, taken off.
pub(crate) fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Reads a manifest.
pub(crate) fn parse(bytes: &[u8], max_timeout: Duration, compat: Compat) -> Result<Manifest, Refusal> {
    let bytes = without_bom(bytes);
    let syntax = |error: json::Error| {
        // A member that comes twice is no half-written file but a fault of its author.
        let half_written = error.fault == json::Fault::Syntax;
        let problem = Problem::error("syntax", error.message).at(error.line);
        Refusal { half_written, ..Refusal::of(problem) }
    };
    let whole = match compat.loose_members {
        true => serde_json::from_slice(bytes).map_err(json::Error::from),
        false => json::parse(bytes),
    };
    if !whole.map_err(syntax)?.is_object() {
        return Err(Refusal::of(Problem::error("syntax", "the manifest is not a JSON object").at(1usize)));
    }
    let members = Members::read(bytes, compat).map_err(|error| syntax(json::Error::from(error)))?;
    let mut reader = Reader { members, compat, problems: Vec::new(), warnings: Vec::new() };
    let manifest = reader.manifest(max_timeout);
    let Reader { members, problems, warnings, .. } = reader;
    match manifest {
        Some(manifest) if problems.is_empty() => Ok(Manifest { warnings, ..manifest }),
        manifest => Err(Refusal {
            half_written: false,
            key: manifest.map(|manifest| manifest.key).or_else(|| name_of(&members)),
            problems,
        }),
    }
}

fn name_of(members: &Members<'_>) -> Option<SkillKey> {
    SkillKey::normalise(members.counting("name")?.value.as_str()?).ok()
}

/// One member as it stands in the file.
struct Member<'a> {
    written: String,
    /// The member that it counts as, when that is one that is known.
    known: Option<&'static str>,
    value: Value,
    /// The schema is handed on as its author wrote it, so texts are needed as well.
    text: &'a RawValue,
}

/// The members in the order of the file. A name comes more than once only where that is tolerated.
struct Members<'a> {
    bytes: &'a [u8],
    list: Vec<Member<'a>>,
}

impl<'a> Members<'a> {
    fn read(bytes: &'a [u8], compat: Compat) -> serde_json::Result<Self> {
        let InOrder(texts) = serde_json::from_slice(bytes)?;
        let known = |name: &str| {
            MEMBERS.into_iter().find(|known| match compat.loose_members {
                true => same_but_for_case(name, known),
                false => name == *known,
            })
        };
        let member = |(written, text): (String, &'a RawValue)| {
            let value = serde_json::from_str(text.get())?;
            Ok(Member { known: known(&written), written, value, text })
        };
        Ok(Self { bytes, list: texts.into_iter().map(member).collect::<serde_json::Result<_>>()? })
    }

    fn every(&self, name: &str) -> impl DoubleEndedIterator<Item = &Member<'a>> {
        self.list.iter().filter(move |member| member.known == Some(name))
    }

    /// The one that counts: the last, as for Go's decoder. There, `null` leaves a text or a number as it was.
    fn counting(&self, name: &str) -> Option<&Member<'a>> {
        let emptied_by_null = matches!(name, "schema" | "env_allow");
        self.every(name).rfind(|member| emptied_by_null || !member.value.is_null())
    }

    /// The line on which a member's value starts, from 1; 0 when that is not known.
    fn line(&self, member: &Member<'_>) -> usize {
        let start = member.text.get().as_ptr().addr().checked_sub(self.bytes.as_ptr().addr());
        let before = start.and_then(|start| self.bytes.get(..start));
        before.map_or(0, |before| before.iter().filter(|byte| **byte == b'\n').count() + 1)
    }
}

/// Names and texts of an object's members in the order of the file.
struct InOrder<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for InOrder<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = InOrder<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<InOrder<'de>, A::Error> {
                let mut list = Vec::new();
                while let Some(member) = members.next_entry()? {
                    list.push(member);
                }
                Ok(InOrder(list))
            }
        }

        reader.deserialize_map(Object)
    }
}

struct Reader<'a> {
    members: Members<'a>,
    compat: Compat,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Reader<'_> {
    /// The manifest, or what could be read of it. Whether it counts is for `problems` to say.
    fn manifest(&mut self, max_timeout: Duration) -> Option<Manifest> {
        self.names_of_members();
        let name = self.name();
        let description = self.description();
        let schema = self.schema("schema");
        let output_schema = self.schema("output_schema");
        let entry = self.entry();
        let env_allow = self.env_allow();
        let timeout = self.timeout(max_timeout);
        let (class, class_source) = self.class();
        let category = self.text("category").filter(|text| !text.trim().is_empty());
        let gating = self.gating();
        let idempotent = self.idempotent();
        let sensitive = self.sensitive();
        let max_concurrency = self.max_concurrency();
        let version = self.text("version").unwrap_or_default();
        let digest_ignore = self.digest_ignore();
        let (key, name) = name?;
        Some(Manifest {
            key,
            name,
            description: description?,
            schema: schema.unwrap_or_else(|| EMPTY_SCHEMA.to_owned()),
            output_schema,
            entry: entry?,
            env_allow,
            timeout,
            class,
            class_source,
            category: category.unwrap_or_else(|| "external".to_owned()),
            gating,
            idempotent,
            sensitive,
            max_concurrency,
            version,
            digest_ignore,
            warnings: Vec::new(),
        })
    }

    /// The line of the member that counts.
    fn line(&self, member: &str) -> usize {
        let counting = self.members.counting(member).or_else(|| self.members.every(member).next_back());
        counting.map_or(0, |member| self.members.line(member))
    }

    fn error(&mut self, member: &'static str, message: impl Into<String>) {
        let line = self.line(member);
        self.problems.push(Problem::error(member, message).at(line));
    }

    fn warn(&mut self, member: &'static str, message: impl Into<String>) {
        let line = self.line(member);
        self.warnings.push(Problem::warning(member, message).at(line));
    }

    /// The value of the member that counts; `null` is the same as leaving it out.
    fn get(&self, member: &str) -> Option<&Value> {
        self.members.counting(member).map(|member| &member.value).filter(|value| !value.is_null())
    }

    /// The lines and values of all members of a name. Of what guards a host the strictest counts, and not the last.
    fn each(&self, name: &str) -> Vec<(usize, Value)> {
        let given = self.members.every(name).filter(|member| !member.value.is_null());
        given.map(|member| (self.members.line(member), member.value.clone())).collect()
    }

    fn text(&mut self, member: &'static str) -> Option<String> {
        match self.get(member)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.error(member, format!("{member} must be a string"));
                None
            }
        }
    }

    fn strings(&mut self, member: &'static str) -> Vec<String> {
        let Some(value) = self.get(member) else { return Vec::new() };
        strings_of(value).unwrap_or_else(|| {
            self.error(member, format!("{member} must be a list of strings"));
            Vec::new()
        })
    }

    fn names_of_members(&mut self) {
        for member in &self.members.list {
            let (line, name) = (self.members.line(member), shown(&member.written));
            match member.known {
                Some(known) if known == member.written => {}
                Some(known) => {
                    let message = format!("member {name:?} is taken as {known:?}; write it so");
                    self.warnings.push(Problem::warning(known, message).at(line));
                }
                None => match MEMBERS.iter().find(|known| same_but_for_case(&member.written, known)) {
                    Some(known) => {
                        let message = format!("member {name:?} differs from {known:?} by case only");
                        self.problems.push(Problem::error(known, message).at(line));
                    }
                    None => {
                        let message = format!("unknown member {name:?} is not used");
                        self.warnings.push(Problem::warning("unknown member", message).at(line));
                    }
                },
            }
        }
        for name in MEMBERS {
            let times = self.members.every(name).count();
            if times > 1 {
                let which = match name {
                    "class" => "the highest class counts",
                    "metadata" => "the conditions of all must hold",
                    "idempotent" => "it is true only if each says so",
                    "sensitive" => "all of them count",
                    "max_concurrency" => "the lowest counts",
                    _ => "the last one counts",
                };
                self.warn(name, format!("{name} comes {times} times; {which}"));
            }
        }
    }

    fn name(&mut self) -> Option<(SkillKey, String)> {
        if self.get("name").is_none() {
            self.error("name", "name is required");
        }
        let name = self.text("name")?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let most = self.compat.longest_name();
        match SkillKey::normalise(&name) {
            Ok(key) if name.len() <= most && name.bytes().all(plain) => {
                if let Some(message) = long_name(&key) {
                    self.warn("name", message);
                }
                Some((key, name))
            }
            _ => {
                self.error(
                    "name",
                    format!("name {:?} must be lower_snake [a-z0-9_], 1 to {most} characters", shown(&name)),
                );
                None
            }
        }
    }

    fn description(&mut self) -> Option<String> {
        if self.get("description").is_none() {
            self.error("description", "description is required");
        }
        let text = self.text("description")?;
        if let Some(message) = description_fault(&text, self.compat.blank_descriptions) {
            self.error("description", message);
            return None;
        }
        if text.trim().is_empty() {
            self.warn("description", "description is blank; models choose a skill by it");
        }
        Some(text)
    }

    fn schema(&mut self, member: &'static str) -> Option<String> {
        let counting = self.members.counting(member).filter(|member| !member.value.is_null())?;
        let mut text = counting.text.get().to_owned();
        // Two validators could read it differently as it stands; nobody but its author has seen it yet.
        if self.compat.loose_members && json::parse(text.as_bytes()).is_err() {
            text = counting.value.to_string();
            self.warn(
                member,
                format!("{member}: of a member that comes twice in it only the last is handed on"),
            );
        }
        if let Err(error) = Schema::compile(&text) {
            self.error(member, format!("{member}: {error}"));
            return None;
        }
        Some(text)
    }

    fn entry(&mut self) -> Option<String> {
        if self.get("entry").is_none() {
            self.error("entry", "entry is required");
        }
        let text = self.text("entry")?;
        if text.trim().is_empty() {
            self.error("entry", "entry must not be blank");
            return None;
        }
        Some(text)
    }

    fn env_allow(&mut self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for written in self.strings("env_allow") {
            let name = written.trim();
            if name.is_empty() {
                self.warn("env_allow", "env_allow: a blank name is left out");
            } else if name.contains(['=', '\0']) {
                self.error("env_allow", format!("env_allow: {:?} is no name of a variable", shown(name)));
            } else if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    fn timeout(&mut self, most: Duration) -> Duration {
        let most = most.clamp(Duration::from_secs(1), limits::MAX_OPERATOR_TIMEOUT);
        let value = match self.get("timeout_seconds") {
            None => return limits::DEFAULT_TIMEOUT.min(most),
            Some(value) => value.clone(),
        };
        match value.as_u64() {
            Some(0) => return limits::DEFAULT_TIMEOUT.min(most),
            Some(seconds) if seconds <= most.as_secs() => return Duration::from_secs(seconds),
            _ => {}
        }
        if self.compat.clamp_timeouts && (value.is_u64() || value.is_i64()) {
            let clamped = if value.is_u64() { most } else { limits::DEFAULT_TIMEOUT.min(most) };
            self.warn(
                "timeout_seconds",
                format!("timeout_seconds {value} is taken as {}", clamped.as_secs()),
            );
            return clamped;
        }
        let message = format!(
            "timeout_seconds {} must be an integer from 1 to {}, or 0 for the default",
            shown(&value.to_string()),
            most.as_secs()
        );
        self.error("timeout_seconds", message);
        limits::DEFAULT_TIMEOUT
    }

    fn class(&mut self) -> (Class, ClassSource) {
        let (mut highest, mut empty): (Option<Class>, bool) = (None, false);
        for (line, value) in self.each("class") {
            let fault = match value.as_str().map(|text| (text, text.parse::<Class>())) {
                None => Some("class must be a string".to_owned()),
                Some(("", _)) => {
                    empty = true;
                    None
                }
                Some((_, Ok(class))) => {
                    highest = highest.max(Some(class));
                    None
                }
                Some((_, Err(error))) => Some(error.to_string()),
            };
            self.problems.extend(fault.map(|fault| Problem::error("class", fault).at(line)));
        }
        if empty && highest.is_none() {
            self.warn("class", "class is empty and taken as safe");
        }
        highest.map_or((Class::Safe, ClassSource::Defaulted), |class| (class, ClassSource::Declared))
    }

    fn gating(&mut self) -> Gating {
        let mut gating = Gating::default();
        for member in self.members.every("metadata") {
            gating.add(match json::parse(member.text.get().as_bytes()) {
                Ok(metadata) => requirements::read(&metadata),
                // Of a condition that comes twice the last alone could be the weaker one.
                Err(error) => {
                    Gating { broken: Some(format!("metadata: {}", error.message)), ..Gating::default() }
                }
            });
        }
        gating
    }

    fn idempotent(&mut self) -> bool {
        let mut all: Option<bool> = None;
        for (line, value) in self.each("idempotent") {
            match value {
                Value::Bool(value) => all = Some(value && all.unwrap_or(true)),
                _ => {
                    let message = "idempotent must be true or false";
                    self.problems.push(Problem::error("idempotent", message).at(line));
                }
            }
        }
        all.unwrap_or(false)
    }

    fn sensitive(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for (line, value) in self.each("sensitive") {
            let message = match strings_of(&value) {
                None => "sensitive must be a list of strings".to_owned(),
                Some(pointers) => {
                    let wrong =
                        pointers.iter().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/'));
                    let Some(wrong) = wrong else {
                        all.extend(pointers);
                        continue;
                    };
                    format!("sensitive: {:?} is no JSON pointer", shown(wrong))
                }
            };
            self.problems.push(Problem::error("sensitive", message).at(line));
        }
        all
    }

    fn max_concurrency(&mut self) -> Option<u32> {
        let mut lowest: Option<u32> = None;
        for (line, value) in self.each("max_concurrency") {
            match value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0) {
                Some(number) => lowest = Some(lowest.map_or(number, |lowest| lowest.min(number))),
                None => {
                    let message = "max_concurrency must be an integer of at least 1";
                    self.problems.push(Problem::error("max_concurrency", message).at(line));
                }
            }
        }
        lowest
    }

    fn digest_ignore(&mut self) -> Ignore {
        let patterns = self.strings("digest_ignore");
        Ignore::compile(&patterns).unwrap_or_else(|wrong| {
            let message = format!("digest_ignore: {:?} is no relative path pattern", shown(&wrong));
            self.error("digest_ignore", message);
            Ignore::default()
        })
    }
}

fn strings_of(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

/// What is odd about a name that is taken although it is longer than manifests of weft may have it.
pub(crate) fn long_name(key: &SkillKey) -> Option<String> {
    let length = key.as_str().len();
    let tool = tool_name(key);
    (length > MAX_SKILL_NAME).then(|| {
        format!("name has {length} characters, more than {MAX_SKILL_NAME}; models are offered it as {tool:?}")
    })
}

/// What is wrong with a description, if anything. White space is one when `blank` ones are taken.
pub(crate) fn description_fault(text: &str, blank: bool) -> Option<String> {
    if text.is_empty() || (text.trim().is_empty() && !blank) {
        return Some("description must not be blank".to_owned());
    }
    (text.len() > limits::DESCRIPTION_BYTES)
        .then(|| format!("description has {} bytes, the limit is {}", text.len(), limits::DESCRIPTION_BYTES))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &[u8]) -> Result<Manifest, Refusal> {
        parse(text, limits::MAX_TIMEOUT, Compat::default())
    }

    fn with(member: &str, value: &Value) -> Result<Manifest, Refusal> {
        let mut manifest = json!({"name": "x", "description": "d", "entry": "run", "class": "safe"});
        manifest[member] = value.clone();
        read(manifest.to_string().as_bytes())
    }

    fn without(member: &str) -> Result<Manifest, Refusal> {
        let mut manifest = json!({"name": "x", "description": "d", "entry": "run", "class": "safe"});
        manifest.as_object_mut().unwrap().remove(member);
        read(manifest.to_string().as_bytes())
    }

    /// The only problem, which names the member.
    fn refused(outcome: Result<Manifest, Refusal>, rule: &str) -> Refusal {
        let refusal = outcome.unwrap_err();
        assert_eq!(refusal.problems.len(), 1, "{refusal:?}");
        assert_eq!(refusal.problems[0].rule, rule, "{refusal:?}");
        assert!(!refusal.half_written, "{refusal:?}");
        refusal
    }

    #[test]
    fn the_documented_example_reads_member_by_member() {
        let text = br#"{
  "name": "disk_cleaner",
  "description": "Free up disk by clearing stale build caches and journals.",
  "schema": {
    "type": "object",
    "properties": {
      "path":   { "type": "string", "description": "Root path to clean." },
      "dry_run": { "type": "boolean", "default": true }
    },
    "required": ["path"]
  },
  "entry": "run.sh",
  "env_allow": ["PATH", "HOME"],
  "timeout_seconds": 60,
  "class": "mutating",
  "category": "ops"
}"#;
        let manifest = read(text).unwrap();
        assert_eq!(manifest.key.as_str(), "disk_cleaner");
        assert_eq!(manifest.timeout, Duration::from_secs(60));
        assert_eq!(manifest.env_allow, ["PATH", "HOME"]);
        assert_eq!((manifest.class, manifest.class_source), (Class::Mutating, ClassSource::Declared));
        assert_eq!(manifest.category, "ops");
        assert!(manifest.schema.starts_with("{\n    \"type\": \"object\""), "{}", manifest.schema);
        assert!(manifest.warnings.is_empty());
    }

    #[test]
    fn what_is_left_out_has_the_documented_default() {
        let manifest = read(br#"{"name":"x","description":"d","entry":"run"}"#).unwrap();
        assert_eq!(manifest.timeout, Duration::from_secs(30));
        assert_eq!((manifest.class, manifest.class_source), (Class::Safe, ClassSource::Defaulted));
        assert_eq!(manifest.category, "external");
        assert_eq!(manifest.schema, EMPTY_SCHEMA);
        assert!(manifest.env_allow.is_empty());
        assert_eq!(with("timeout_seconds", &json!(0)).unwrap().timeout, Duration::from_secs(30));
        for member in ["schema", "env_allow", "timeout_seconds", "class", "category", "metadata", "version"] {
            assert_eq!(with(member, &Value::Null).unwrap().timeout, Duration::from_secs(30), "{member}");
        }
    }

    #[test]
    fn time_outs_out_of_range_or_of_another_type_are_refused() {
        for value in [
            json!(-1),
            json!(1.5),
            json!("60"),
            json!(1_000_000_000_000_000_000_u64),
            json!(3601),
            json!(true),
        ] {
            refused(with("timeout_seconds", &value), "timeout_seconds");
        }
        assert_eq!(with("timeout_seconds", &json!(3600)).unwrap().timeout, limits::MAX_TIMEOUT);
        assert_eq!(with("timeout_seconds", &json!(1)).unwrap().timeout, Duration::from_secs(1));
    }

    #[test]
    fn an_operator_can_raise_the_longest_time_out() {
        let text = br#"{"name":"x","description":"d","entry":"run","timeout_seconds":7200}"#;
        assert!(parse(text, limits::MAX_TIMEOUT, Compat::default()).is_err());
        assert!(parse(text, Duration::from_secs(7200), Compat::default()).is_ok());
        let clamp = Compat { clamp_timeouts: true, ..Compat::default() };
        let manifest = parse(text, limits::MAX_TIMEOUT, clamp).unwrap();
        assert_eq!(manifest.timeout, limits::MAX_TIMEOUT);
        assert_eq!(manifest.warnings.len(), 1);
    }

    #[test]
    fn names_are_strict() {
        for name in ["", "Has-Caps", "../x", "has-dash", "has space", "é", &"a".repeat(65)] {
            refused(with("name", &json!(name)), "name");
        }
        refused(with("name", &json!(5)), "name");
        refused(without("name"), "name");
        for name in ["_x", "9lives", &"a".repeat(64)] {
            assert_eq!(with("name", &json!(name)).unwrap().name, name);
        }
    }

    #[test]
    fn descriptions_and_entries_must_say_something() {
        refused(without("description"), "description");
        refused(with("description", &json!("")), "description");
        refused(with("description", &json!(" \n")), "description");
        refused(with("description", &json!("x".repeat(4097))), "description");
        assert!(with("description", &json!("x".repeat(4096))).is_ok());
        refused(without("entry"), "entry");
        refused(with("entry", &json!("")), "entry");
        refused(with("entry", &json!(" ")), "entry");
        let refusal = refused(with("entry", &json!(["run"])), "entry");
        assert_eq!(refusal.key.unwrap().as_str(), "x");
    }

    #[test]
    fn blank_descriptions_are_taken_where_the_operator_says_so_with_a_warning() {
        let blank = Compat { blank_descriptions: true, ..Compat::default() };
        let described = |text: &str| {
            let text = json!({"name": "x", "description": text, "entry": "run"}).to_string();
            parse(text.as_bytes(), limits::MAX_TIMEOUT, blank)
        };
        let manifest = described(" ").unwrap();
        assert_eq!(manifest.warnings.len(), 1, "{:?}", manifest.warnings);
        refused(described(""), "description");
        refused(described(&" ".repeat(4097)), "description");
        assert!(described("d").unwrap().warnings.is_empty());
    }

    #[test]
    fn long_names_are_taken_where_the_operator_says_so_with_a_warning() {
        let long = Compat { long_names: true, ..Compat::default() };
        let named = |name: &str| {
            let text = json!({"name": name, "description": "d", "entry": "run"}).to_string();
            parse(text.as_bytes(), limits::MAX_TIMEOUT, long)
        };
        let manifest = named(&"a".repeat(255)).unwrap();
        assert_eq!((manifest.key.as_str(), &manifest.name), (&*"a".repeat(255), &"a".repeat(255)));
        let [warning] = &manifest.warnings[..] else { panic!("{:?}", manifest.warnings) };
        assert!(warning.rule == "name" && warning.message.contains("255 characters"), "{warning:?}");
        assert!(warning.message.contains(&tool_name(&manifest.key)), "{warning:?}");
        assert!(named(&"a".repeat(64)).unwrap().warnings.is_empty());
        refused(named(&"a".repeat(256)), "name");
        refused(named(&"A".repeat(100)), "name");
    }

    /// Reads a manifest with these members after the usual ones, where members may be loose.
    fn loose(more: &str) -> Result<Manifest, Refusal> {
        let text = format!("{{\"name\":\"x\",\"description\":\"d\",\"entry\":\"run\",\n{more}\n}}");
        let compat = Compat { loose_members: true, ..Compat::default() };
        parse(text.as_bytes(), limits::MAX_TIMEOUT, compat)
    }

    #[test]
    fn of_loose_members_the_last_counts_whatever_its_case_with_a_warning() {
        let manifest = loose(r#""Name":"y","ENTRY":"go","timeout_seconds":9,"TimeOut_Seconds":7"#).unwrap();
        assert_eq!((manifest.key.as_str(), manifest.entry.as_str()), ("y", "go"));
        assert_eq!(manifest.timeout, Duration::from_secs(7));
        let said: Vec<_> = manifest.warnings.iter().map(|one| (one.rule, one.line)).collect();
        // Each wrong case, then each repetition.
        let [name, entry, timeout] = ["name", "entry", "timeout_seconds"].map(|rule| (rule, Some(2)));
        assert_eq!(said, [name, entry, timeout, name, entry, timeout]);
        assert_eq!(loose(r#""env_allow":["A","B"],"env_allow":["C"]"#).unwrap().env_allow, ["C"]);
        assert_eq!(loose("\"De\u{17f}cription\":\"e\"").unwrap().description, "e");
        let unknown = loose(r#""notes":1,"notes":{"a":1,"a":2}"#).unwrap();
        assert!(unknown.warnings.iter().all(|one| one.rule == "unknown member"), "{unknown:?}");
    }

    #[test]
    fn a_loose_null_changes_a_text_or_a_number_as_little_as_it_does_in_go() {
        let manifest = loose(
            r#""timeout_seconds":9,"timeout_seconds":null,"name":null,"env_allow":["A"],"env_allow":null"#,
        )
        .unwrap();
        assert_eq!((manifest.name.as_str(), manifest.timeout.as_secs()), ("x", 9));
        assert!(manifest.env_allow.is_empty());
        assert_eq!(loose(r#""schema":{"type":"object"},"schema":null"#).unwrap().schema, EMPTY_SCHEMA);
    }

    #[test]
    fn a_loose_class_is_the_highest_of_those_named() {
        for (members, class) in [
            (r#""class":"dangerous","class":"safe""#, Class::Dangerous),
            (r#""class":"dangerous","CLASS":"safe""#, Class::Dangerous),
            (r#""CLASS":"mutating","class":"safe""#, Class::Mutating),
            (r#""class":"safe","Class":"mutating""#, Class::Mutating),
            (r#""class":"dangerous","CLASS":"""#, Class::Dangerous),
            (r#""class":"mutating","class":null"#, Class::Mutating),
            (r#""CLASS":"dangerous""#, Class::Dangerous),
            ("\"cla\u{17f}s\":\"dangerous\"", Class::Dangerous),
        ] {
            let manifest = loose(members).unwrap();
            assert_eq!((manifest.class, manifest.class_source), (class, ClassSource::Declared), "{members}");
            assert!(manifest.warnings.iter().any(|one| one.rule == "class"), "{members}: {manifest:?}");
        }
        // What is no class could be meant as any.
        for members in [r#""class":"readonly","class":"safe""#, r#""class":"safe","CLASS":"SAFE""#] {
            refused(loose(members), "class");
        }
    }

    #[test]
    fn loose_members_weaken_no_guard() {
        let manifest = loose(
            r#""metadata":{"os":"linux"},"Metadata":{"requires":{"bins":["a"]}},"idempotent":false,"idempotent":true,
               "sensitive":["/a"],"sensitive":["/b"],"max_concurrency":1,"max_concurrency":9"#,
        )
        .unwrap();
        assert_eq!(manifest.gating.blocks.len(), 2, "{:?}", manifest.gating);
        assert_eq!((manifest.idempotent, manifest.max_concurrency), (false, Some(1)));
        assert_eq!(manifest.sensitive, ["/a", "/b"]);
        // Of one condition that comes twice, nobody can say which is meant.
        let twice = loose(r#""metadata":{"os":"linux","os":[]}"#).unwrap();
        assert!(twice.gating.broken.is_some_and(|reason| reason.contains("\"os\" comes twice")));
    }

    #[test]
    fn a_schema_with_loose_members_is_handed_on_so_that_it_means_one_thing() {
        let schema = r#"{"type":"object","properties":{"a":{"type":"string","type":"integer"}}}"#;
        let manifest = loose(&format!("\"schema\":{schema}")).unwrap();
        assert_eq!(manifest.schema, r#"{"properties":{"a":{"type":"integer"}},"type":"object"}"#);
        assert!(manifest.warnings.iter().any(|one| one.rule == "schema"), "{:?}", manifest.warnings);
        let sound = "{ \"type\": \"object\" }";
        assert_eq!(loose(&format!("\"SCHEMA\":{sound}")).unwrap().schema, sound);
    }

    #[test]
    fn text_cut_anywhere_counts_as_half_written_for_loose_members_too() {
        let text = br#"{"name":"x","NAME":"y","description":"d","entry":"run"}"#;
        let compat = Compat { loose_members: true, ..Compat::default() };
        for end in 0..text.len() {
            let refusal = parse(&text[..end], limits::MAX_TIMEOUT, compat).unwrap_err();
            assert!(refusal.half_written, "{end}");
        }
        assert!(parse(text, limits::MAX_TIMEOUT, compat).is_ok());
    }

    #[test]
    fn classes_are_exact() {
        for class in ["readonly", "SAFE", "Safe", " safe", "dangerous "] {
            refused(with("class", &json!(class)), "class");
        }
        assert_eq!(with("class", &json!("dangerous")).unwrap().class, Class::Dangerous);
    }

    #[test]
    fn unknown_members_load_with_a_warning_that_names_them() {
        let manifest = with("timout_seconds", &json!(5)).unwrap();
        assert_eq!(manifest.warnings.len(), 1);
        assert!(manifest.warnings[0].message.contains("timout_seconds"));
    }

    #[test]
    fn repeated_members_and_members_of_another_case_are_refused() {
        refused(
            read(br#"{"class":"dangerous","class":"safe","name":"x","description":"d","entry":"run"}"#),
            "syntax",
        );
        for name in ["CLASS", "Class", "cla\u{17f}s"] {
            let refusal = refused(with(name, &json!("safe")), "class");
            assert!(refusal.problems[0].message.contains("by case only"));
        }
    }

    #[test]
    fn types_are_strict() {
        for (member, value) in [
            ("env_allow", json!("PATH")),
            ("env_allow", json!([1])),
            ("env_allow", json!(["A=B"])),
            ("class", json!(1)),
            ("category", json!([])),
            ("idempotent", json!("true")),
            ("sensitive", json!(["token"])),
            ("max_concurrency", json!(0)),
            ("max_concurrency", json!(1.5)),
            ("version", json!(1.10)),
            ("digest_ignore", json!(["../x"])),
            ("digest_ignore", json!(["/x"])),
            ("schema", json!(true)),
            ("schema", json!([])),
            ("schema", json!({"type": "objekt"})),
            ("output_schema", json!({"$ref": "http://127.0.0.1:9/x"})),
        ] {
            refused(with(member, &value), member);
        }
        for text in ["null", "[]", "5", "\"x\""] {
            assert!(!read(text.as_bytes()).unwrap_err().half_written, "{text}");
        }
    }

    #[test]
    fn names_of_variables_are_trimmed_and_blank_ones_left_out() {
        let manifest = with("env_allow", &json!([" PATH ", "", "HOME", "PATH"])).unwrap();
        assert_eq!(manifest.env_allow, ["PATH", "HOME"]);
        assert_eq!(manifest.warnings.len(), 1);
    }

    #[test]
    fn one_byte_order_mark_is_tolerated_and_a_second_is_not() {
        let text = r#"{"name":"x","description":"d","entry":"run"}"#;
        assert!(read(format!("\u{feff}{text}").as_bytes()).is_ok());
        assert!(read(format!("\u{feff}\u{feff}{text}").as_bytes()).is_err());
    }

    #[test]
    fn text_cut_anywhere_counts_as_half_written() {
        let text = br#"{"name":"x","description":"d","entry":"run"}"#;
        for end in 0..text.len() {
            assert!(read(&text[..end]).unwrap_err().half_written, "{end}");
        }
        let refusal = read(b"{\n \"name\": \"x\",\n,}").unwrap_err();
        assert_eq!(refusal.problems[0].line, Some(3));
    }

    #[test]
    fn problems_name_the_line_of_the_member() {
        let refusal =
            read(b"{\"name\":\"x\",\n\"description\":\"d\",\n\"entry\":\"run\",\n\"class\":\"SAFE\"}")
                .unwrap_err();
        assert_eq!(refusal.problems[0].line, Some(4));
    }

    #[test]
    fn hostile_schemas_end_soon() {
        let nested = r#"{"allOf":["#.repeat(2000) + "{}" + &"]}".repeat(2000);
        for schema in [
            r#"{"$ref":""}"#,
            r##"{"$ref":"#"}"##,
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
            r#"{"$ref":"http://127.0.0.1:9/x"}"#,
            r#"{"$ref":"file:///etc/passwd"}"#,
            &nested,
        ] {
            let text = format!(r#"{{"name":"x","description":"d","entry":"run","schema":{schema}}}"#);
            assert!(read(text.as_bytes()).is_err(), "{}", &schema[..schema.len().min(60)]);
        }
    }
}
