//! Advice for the author of a skill: it loads, and could still surprise somebody. Only `weft skill lint` asks for it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, value::RawValue};
use weft_core::{
    limits,
    skill::{ClassSource, Definition, Diagnostic, Kind, Severity},
};

use crate::{
    frontmatter,
    host::Host,
    inventory::Copy,
    manifest::without_bom,
    platform,
    programs::Programs,
    report::{shown, shown_path},
    requirements::same_but_for_case,
};

/// Longest description that every model's interface takes whole, in characters.
const DESCRIPTION: usize = 1024;
/// Longest `compatibility` of the agentskills format, in characters.
const COMPATIBILITY: usize = 500;
/// As much of an entry as the kernel reads to find its interpreter.
const HEAD: u64 = 256;

/// Advice about one copy on this host, as warnings, in order of line.
pub fn advise(copy: &Copy, host: &Host) -> Vec<Diagnostic> {
    let mut advice = Advice { copy, text: manifest_text(&copy.manifest), list: Vec::new() };
    advice.description();
    if copy.definition.kind == Kind::Executable {
        advice.class();
        advice.schema();
        advice.timeout();
        advice.tool_name();
        advice.entry(&mut Programs::new(host));
    } else {
        advice.document();
    }
    let mut list = advice.list;
    list.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    list
}

struct Advice<'a> {
    copy: &'a Copy,
    /// The manifest, to find lines in.
    text: String,
    list: Vec<Diagnostic>,
}

impl Advice<'_> {
    fn definition(&self) -> &Definition {
        &self.copy.definition
    }

    /// About a member of the manifest, on its line; of the manifest as a whole when the member is not there.
    fn member(&mut self, member: &[&str], rule: &str, message: impl Into<String>) {
        let line = match self.definition().kind {
            Kind::Executable => line_of(&self.text, member),
            Kind::Instructions => {
                member.first().and_then(|field| frontmatter::written(&self.text, field)).map(|(line, _)| line)
            }
        };
        self.push(self.copy.manifest.clone(), line, rule, message.into());
    }

    fn push(&mut self, path: PathBuf, line: Option<u32>, rule: &str, message: String) {
        self.list.push(Diagnostic {
            severity: Severity::Warning,
            path: shown_path(&path),
            line,
            rule: rule.to_owned(),
            message,
            key: Some(self.definition().key.clone()),
            scope: self.copy.scope.clone(),
        });
    }

    fn description(&mut self) {
        let length = self.definition().description.chars().count();
        if length > DESCRIPTION {
            let message =
                format!("the description has {length} characters; some models cut it at {DESCRIPTION}");
            self.member(&["description"], "description", message);
        }
    }

    /// About instructions without a manifest: what other frameworks expect of them, and what YAML takes away.
    fn document(&mut self) {
        let Ok(document) = frontmatter::parse(self.text.as_bytes()) else { return };
        let directory = self.copy.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match document.name {
            None => self.member(
                &["name"],
                "name",
                "name is missing and taken from the directory; some frameworks require it",
            ),
            Some(name) if name != directory => {
                let (name, directory) = (shown(&name), shown(&directory));
                let message = format!(
                    "name {name:?} differs from its directory's, {directory:?}; some frameworks refuse that"
                );
                self.member(&["name"], "name", message);
            }
            Some(_) => {}
        }
        let length = document.compatibility.chars().count();
        if length > COMPATIBILITY {
            let message = format!("compatibility has {length} characters; the format allows {COMPATIBILITY}");
            self.member(&["compatibility"], "compatibility", message);
        }
        if let Some(message) = self.lost() {
            self.member(&["description"], "description", message);
        }
    }

    /// What YAML left out of an unquoted description.
    fn lost(&self) -> Option<String> {
        let (_, written) = frontmatter::written(&self.text, "description")?;
        let read = &self.definition().description;
        if written.starts_with(['"', '\'', '|', '>']) || *read == written {
            return None;
        }
        // The tag of a type is meant as one.
        if written.starts_with('!') && !written.starts_with("!!") && !read.starts_with('!') {
            let tag = written.split_whitespace().next().unwrap_or_default();
            return Some(format!(
                "{:?} is a tag in YAML and left out of the description; quote it",
                shown(tag)
            ));
        }
        let (before, _) = written.split_once(" #")?;
        (before.trim_end() == read)
            .then(|| "the description ends before \" #\", where YAML sees a comment; quote it".to_owned())
    }

    fn class(&mut self) {
        if self.definition().class_source == ClassSource::Defaulted {
            self.member(
                &["class"],
                "class",
                "class is missing and taken as safe; say safe, mutating or dangerous",
            );
        }
    }

    fn schema(&mut self) {
        let schema: Value = serde_json::from_str(&self.definition().schema).unwrap_or_default();
        let Some(members) = schema.get("properties").and_then(Value::as_object) else { return };
        for (name, member) in members {
            let text = member.get("description").and_then(Value::as_str).unwrap_or_default();
            // A reference may lead to one.
            if text.trim().is_empty() && member.get("$ref").is_none() {
                let message = format!(
                    "member {:?} has no description; a model has only its name to go by",
                    shown(name)
                );
                self.member(&["schema", "properties", name], "schema", message);
            }
        }
    }

    fn timeout(&mut self) {
        let seconds = limits::DEFAULT_TIMEOUT.as_secs();
        let written = member_text(&self.text, &["timeout_seconds"]) == Some(&seconds.to_string());
        if self.definition().timeout == limits::DEFAULT_TIMEOUT && !written {
            let message =
                format!("timeout_seconds is not given and taken as {seconds}; say how long it may take");
            self.member(&["timeout_seconds"], "timeout_seconds", message);
        }
    }

    fn tool_name(&mut self) {
        let (name, tool) = (self.definition().name.clone(), self.definition().tool_name());
        if name != tool {
            let message =
                format!("models are offered {name:?} as the tool {tool:?}, which is what fits all of them");
            self.member(&["name"], "tool_name", message);
        }
    }

    fn entry(&mut self, programs: &mut Programs) {
        let Some(entry) = self.copy.entry.clone() else { return };
        let Ok(head) = head(&entry) else { return };
        let shebang = Shebang::read(&head);
        let path = self.definition().env_allow.iter().any(|name| name == "PATH");
        let bins = self.definition().requirements.iter().any(|block| !block.bins.is_empty());
        let by_env = shebang.as_ref().is_some_and(|shebang| shebang.searched().is_some());
        if !path && (bins || by_env) {
            let why = if bins {
                "metadata requires programs"
            } else {
                "the entry's interpreter is looked for by env"
            };
            let message = format!("{why}, but env_allow lacks PATH, so the skill runs without one");
            self.member(&["env_allow"], "env_allow", message);
        }
        let Some(shebang) = shebang else {
            if !head.starts_with(b"\x7fELF") {
                let message = "the entry is no ELF file and does not begin with #!, so it cannot be started";
                self.push(entry, Some(1), "interpreter", message.to_owned());
            }
            return;
        };
        if shebang.carriage_return {
            let message = "the first line ends in a carriage return, which counts as a part of the interpreter's name; \
                           save the file with Unix line ends";
            self.push(entry.clone(), Some(1), "shebang", message.to_owned());
        }
        if let Some(missing) = shebang.missing(&self.copy.directory, programs) {
            self.push(entry, Some(1), "interpreter", missing);
        }
    }
}

/// The first line of a script.
#[derive(Debug, PartialEq, Eq)]
struct Shebang {
    words: Vec<String>,
    carriage_return: bool,
}

impl Shebang {
    fn read(head: &[u8]) -> Option<Self> {
        let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let line = String::from_utf8_lossy(line);
        let words = line.split_whitespace().map(str::to_owned).collect();
        Some(Self { words, carriage_return: line.ends_with('\r') })
    }

    /// The program that `env` has to look for in PATH, when it is `env` that is asked.
    fn searched(&self) -> Option<&str> {
        let (interpreter, rest) = self.words.split_first()?;
        if Path::new(interpreter).file_name()? != "env" {
            return None;
        }
        let program = rest.iter().find(|word| !word.starts_with('-') && !word.contains('='))?;
        (!program.contains('/')).then_some(program)
    }

    /// What is not on this host, in words.
    fn missing(&self, directory: &Path, programs: &mut Programs) -> Option<String> {
        let Some(interpreter) = self.words.first() else {
            return Some("the #! line names no interpreter".into());
        };
        let there = directory.join(interpreter).metadata();
        if !there.is_ok_and(|found| found.is_file() && platform::has_execute_bit(&found)) {
            return Some(format!(
                "the interpreter {:?} is not an executable file on this host",
                shown(interpreter)
            ));
        }
        let reason = programs.find(self.searched()?).err()?;
        Some(format!("the interpreter is not on this host: {reason}"))
    }
}

fn head(entry: &Path) -> std::io::Result<Vec<u8>> {
    let (file, _): (File, _) = platform::open_regular(entry)?;
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}

fn manifest_text(path: &Path) -> String {
    let read = path.canonicalize().and_then(|path| platform::read_regular(&path, limits::MANIFEST_BYTES));
    let bytes = read.ok().and_then(|(bytes, _)| bytes).unwrap_or_default();
    String::from_utf8_lossy(without_bom(&bytes)).into_owned()
}

/// The text of a member's value, given the names that lead to it. One in the wrong case is only there where such
/// members are taken.
fn member_text<'a>(text: &'a str, member: &[&str]) -> Option<&'a str> {
    member.iter().try_fold(text, |object, name| {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(object).ok()?;
        let loose = || members.iter().find(|(written, _)| same_but_for_case(written, name));
        members.get_key_value(*name).or_else(loose).map(|(_, value)| value.get())
    })
}

/// The line on which that value starts.
pub(crate) fn line_of(text: &str, member: &[&str]) -> Option<u32> {
    // The value borrows from the text.
    let start = member_text(text, member)?.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let before = text.as_bytes().get(..start)?;
    u32::try_from(before.iter().filter(|byte| **byte == b'\n').count() + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Loader,
        testing::{config, write},
    };

    #[test]
    fn lines_are_those_of_the_members() {
        let text = "{\n \"a\": 1,\n \"schema\": {\n  \"properties\":\n   {\"b\": {}}\n }\n}";
        assert_eq!(line_of(text, &["a"]), Some(2));
        assert_eq!(line_of(text, &["schema", "properties", "b"]), Some(5));
        assert_eq!(line_of(text, &["schema", "properties", "c"]), None);
        assert_eq!(line_of("{\n \"A\": 1}", &["a"]), Some(2));
        assert_eq!(line_of("---\nname: x\n---", &["name"]), None);
    }

    #[test]
    fn instructions_get_advice_on_what_yaml_takes_away_and_others_expect() {
        let temporary = tempfile::tempdir().unwrap();
        let advice = |fields: &str| {
            write(&temporary.path().join("docs/SKILL.md"), format!("---\n{fields}\n---\n"));
            let config = config(&[temporary.path()]);
            let host = config.host.clone();
            let inventory = Loader::new(config).load(None);
            let list = advise(&inventory.copies[0], &host);
            list.into_iter().map(|one| (one.rule, one.line, one.message)).collect::<Vec<_>>()
        };
        let (long, fits) = ("x".repeat(501), "x".repeat(500));
        for (fields, rule, line, part) in [
            ("name: docs\ndescription: C # code", "description", Some(3), "ends before"),
            ("name: docs\ndescription: Fixes C\n  or # code", "description", Some(3), "ends before"),
            ("name: docs\ndescription: !Beta does", "description", Some(3), "\"!Beta\" is a tag"),
            ("name: other\ndescription: d", "name", Some(2), "\"docs\""),
            ("description: d", "name", None, "missing"),
            (&format!("name: docs\ndescription: d\ncompatibility: {long}"), "compatibility", Some(4), "501"),
        ] {
            let list = advice(fields);
            assert_eq!(list.len(), 1, "{fields}: {list:?}");
            assert_eq!((list[0].0.as_str(), list[0].1), (rule, line), "{fields}");
            assert!(list[0].2.contains(part), "{list:?}");
        }
        for fields in [
            "name: docs\ndescription: Fixes issue#12",
            "name: docs\ndescription: 'C # code'",
            "name: docs\ndescription: Use when: C # code",
            "name: docs\ndescription: |\n  # Title",
            "name: docs\ndescription: !!str d",
            &format!("name: docs\ndescription: d\ncompatibility: {fits}"),
        ] {
            assert_eq!(advice(fields), [], "{fields}");
        }
    }

    #[test]
    fn the_program_that_env_looks_for_is_found_behind_its_options() {
        let searched = |line: &str| {
            let shebang = Shebang::read(line.as_bytes())?;
            shebang.searched().map(str::to_owned)
        };
        assert_eq!(searched("#!/usr/bin/env python3\n").as_deref(), Some("python3"));
        assert_eq!(searched("#! /usr/bin/env -S LANG=C node --flag\n").as_deref(), Some("node"));
        assert_eq!(searched("#!/usr/bin/env /opt/x\n"), None);
        assert_eq!(searched("#!/bin/sh -e\n"), None);
        assert_eq!(searched("echo"), None);
    }

    #[test]
    fn windows_line_ends_are_seen() {
        assert!(Shebang::read(b"#!/bin/sh\r\necho").is_some_and(|shebang| shebang.carriage_return));
        assert!(Shebang::read(b"#!/bin/sh\necho\r\n").is_some_and(|shebang| !shebang.carriage_return));
    }
}
