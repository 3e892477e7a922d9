//! `skill.json`: the manifest of an executable skill, read strictly.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value, value::RawValue};
use weft_core::{
    ids::{MAX_SKILL_NAME, SkillKey},
    json, limits,
    schema::Schema,
    skill::{Class, ClassSource, EMPTY_SCHEMA},
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
    let syntax =
        |error: json::Error| Refusal::half_written(Problem::error("syntax", error.message).at(error.line));
    let value = json::parse(bytes).map_err(|error| {
        // A member that comes twice is no half-written file but a fault of its author.
        let half_written = error.fault == json::Fault::Syntax;
        Refusal { half_written, ..syntax(error) }
    })?;
    let Value::Object(members) = value else {
        return Err(Refusal::of(Problem::error("syntax", "the manifest is not a JSON object").at(1usize)));
    };
    // The schema is handed on as its author wrote it, so the texts of the members are needed as well.
    let texts: BTreeMap<String, &RawValue> =
        serde_json::from_slice(bytes).map_err(|error| syntax(json::Error::from(error)))?;
    let mut reader =
        Reader { bytes, members: &members, texts: &texts, problems: Vec::new(), warnings: Vec::new() };
    let manifest = reader.manifest(max_timeout, compat);
    let Reader { problems, warnings, .. } = reader;
    match manifest {
        Some(manifest) if problems.is_empty() => Ok(Manifest { warnings, ..manifest }),
        manifest => Err(Refusal {
            half_written: false,
            key: manifest.map(|manifest| manifest.key).or_else(|| name_of(&members)),
            problems,
        }),
    }
}

fn name_of(members: &Map<String, Value>) -> Option<SkillKey> {
    SkillKey::normalise(members.get("name")?.as_str()?).ok()
}

struct Reader<'a> {
    bytes: &'a [u8],
    members: &'a Map<String, Value>,
    texts: &'a BTreeMap<String, &'a RawValue>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Reader<'_> {
    /// The manifest, or what could be read of it. Whether it counts is for `problems` to say.
    fn manifest(&mut self, max_timeout: Duration, compat: Compat) -> Option<Manifest> {
        self.names_of_members();
        let name = self.name();
        let description = self.description(compat);
        let schema = self.schema("schema");
        let output_schema = self.schema("output_schema");
        let entry = self.entry();
        let env_allow = self.env_allow();
        let timeout = self.timeout(max_timeout, compat);
        let (class, class_source) = self.class();
        let category = self.text("category").filter(|text| !text.trim().is_empty());
        let gating = self.members.get("metadata").map(requirements::read).unwrap_or_default();
        let idempotent = self.switch("idempotent");
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

    /// The line on which a member's value starts.
    fn line(&self, member: &str) -> Option<usize> {
        let start = self.texts.get(member)?.get().as_ptr().addr().checked_sub(self.bytes.as_ptr().addr())?;
        Some(self.bytes.get(..start)?.iter().filter(|byte| **byte == b'\n').count() + 1)
    }

    fn error(&mut self, member: &'static str, message: impl Into<String>) {
        let line = self.line(member).unwrap_or(0);
        self.problems.push(Problem::error(member, message).at(line));
    }

    fn warn(&mut self, member: &str, rule: &'static str, message: impl Into<String>) {
        let line = self.line(member).unwrap_or(0);
        self.warnings.push(Problem::warning(rule, message).at(line));
    }

    /// The value of a member; `null` is the same as leaving it out.
    fn get(&self, member: &str) -> Option<&Value> {
        self.members.get(member).filter(|value| !value.is_null())
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
        let list = match self.get(member) {
            None => Some(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
            Some(_) => None,
        };
        list.unwrap_or_else(|| {
            self.error(member, format!("{member} must be a list of strings"));
            Vec::new()
        })
    }

    fn switch(&mut self, member: &'static str) -> bool {
        match self.get(member) {
            None => false,
            Some(Value::Bool(value)) => *value,
            Some(_) => {
                self.error(member, format!("{member} must be true or false"));
                false
            }
        }
    }

    fn names_of_members(&mut self) {
        for name in self.members.keys().filter(|name| !MEMBERS.contains(&name.as_str())) {
            match MEMBERS.iter().find(|known| same_but_for_case(name, known)) {
                Some(known) => {
                    let line = self.line(name).unwrap_or(0);
                    let message = format!("member {:?} differs from {known:?} by case only", shown(name));
                    self.problems.push(Problem::error(known, message).at(line));
                }
                None => {
                    let message = format!("unknown member {:?} is not used", shown(name));
                    self.warn(name, "unknown member", message);
                }
            }
        }
    }

    fn name(&mut self) -> Option<(SkillKey, String)> {
        if self.get("name").is_none() {
            self.error("name", "name is required");
        }
        let name = self.text("name")?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        match SkillKey::normalise(&name) {
            Ok(key) if name.bytes().all(plain) => Some((key, name)),
            _ => {
                self.error(
                    "name",
                    format!(
                        "name {:?} must be lower_snake [a-z0-9_], 1 to {MAX_SKILL_NAME} characters",
                        shown(&name)
                    ),
                );
                None
            }
        }
    }

    fn description(&mut self, compat: Compat) -> Option<String> {
        if self.get("description").is_none() {
            self.error("description", "description is required");
        }
        let text = self.text("description")?;
        if let Some(message) = description_fault(&text, compat) {
            self.error("description", message);
            return None;
        }
        Some(text)
    }

    fn schema(&mut self, member: &'static str) -> Option<String> {
        self.get(member)?;
        let text = self.texts.get(member)?.get().to_owned();
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
                self.warn("env_allow", "env_allow", "env_allow: a blank name is left out");
            } else if name.contains(['=', '\0']) {
                self.error("env_allow", format!("env_allow: {:?} is no name of a variable", shown(name)));
            } else if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    fn timeout(&mut self, most: Duration, compat: Compat) -> Duration {
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
        if compat.clamp_timeouts && (value.is_u64() || value.is_i64()) {
            let clamped = if value.is_u64() { most } else { limits::DEFAULT_TIMEOUT.min(most) };
            self.warn(
                "timeout_seconds",
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
        let defaulted = (Class::Safe, ClassSource::Defaulted);
        match self.text("class") {
            None => defaulted,
            Some(text) if text.is_empty() => {
                self.warn("class", "class", "class is empty and taken as safe");
                defaulted
            }
            Some(text) => match text.parse() {
                Ok(class) => (class, ClassSource::Declared),
                Err(error) => {
                    self.error("class", error.to_string());
                    defaulted
                }
            },
        }
    }

    fn sensitive(&mut self) -> Vec<String> {
        let pointers = self.strings("sensitive");
        if let Some(wrong) = pointers.iter().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/'))
        {
            self.error("sensitive", format!("sensitive: {:?} is no JSON pointer", shown(wrong)));
        }
        pointers
    }

    fn max_concurrency(&mut self) -> Option<u32> {
        let value = self.get("max_concurrency")?;
        let number =
            value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        if number.is_none() {
            self.error("max_concurrency", "max_concurrency must be an integer of at least 1");
        }
        number
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

/// What is wrong with a description, if anything.
pub(crate) fn description_fault(text: &str, compat: Compat) -> Option<String> {
    if text.is_empty() || (text.trim().is_empty() && !compat.blank_descriptions) {
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
        let blank = Compat { blank_descriptions: true, ..Compat::default() };
        assert!(parse(br#"{"name":"x","description":" ","entry":"r"}"#, limits::MAX_TIMEOUT, blank).is_ok());
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
