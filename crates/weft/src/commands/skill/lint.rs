//! `weft skill lint`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use weft_core::{
    skill::{Diagnostic, Severity},
    text,
};
use weft_proto::{json, v1};
use weft_skills::{Compat, Config, Copy, Inventory, Loader, Source, lint};

use super::directory;
use crate::{
    compat::CompatOptions,
    exit::{self, Failure},
    output::{self, Format},
};

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Directories of one skill, or of many [default: the skill here, or ./skills]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Warnings and advice count as errors
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    compat: CompatOptions,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What is said about skills.
struct Findings {
    inventory: Inventory,
    /// What a node reports, in order of path.
    diagnostics: Vec<Diagnostic>,
    /// What only lint says.
    advice: Vec<Diagnostic>,
}

impl Findings {
    /// Loads directories as a node would that offers them.
    fn of(directories: Vec<PathBuf>, compat: Compat) -> Self {
        let sources = directories.into_iter().map(Source::managed).collect();
        let config = Config { compat, ..Config::new(sources) };
        let mut loader = Loader::new(config);
        let inventory = loader.load(None);
        let advise = |copy| lint::advise(copy, &loader.config().host);
        let advice = inventory.copies.iter().flat_map(|copy| advise(copy)).collect();
        Self { diagnostics: inventory.diagnostics.clone(), inventory, advice }
    }

    fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count()
    }

    fn warnings(&self) -> usize {
        self.diagnostics.len() - self.errors() + self.advice.len()
    }
}

impl Lint {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let paths = if self.paths.is_empty() { vec![here()] } else { self.paths };
        let directories = paths.iter().map(|path| directory(path)).collect::<Result<Vec<_>, _>>()?;
        let found = Findings::of(directories, self.compat.switches());
        // A node only warns of a source without skills; whoever lints means some.
        if found.inventory.copies.is_empty() && found.diagnostics.iter().all(|one| one.rule == "source") {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            return Err(Failure::usage(format!("no skill.json and no SKILL.md in {}", paths.join(", "))));
        }
        match self.output {
            Format::Json => output::print_json(&as_json(&found))?,
            Format::Table => show(&found)?,
        }
        let failed = found.errors() > 0 || (self.strict && found.warnings() > 0);
        Ok(if failed { exit::FAILED } else { exit::OK })
    }
}

/// What is meant when nothing is named.
fn here() -> PathBuf {
    let skill = ["skill.json", "SKILL.md"].iter().any(|file| Path::new(file).is_file());
    if !skill && Path::new("skills").is_dir() { "skills".into() } else { ".".into() }
}

fn show(found: &Findings) -> anyhow::Result<()> {
    let say = |line: String| output::print(&text::escape(line.as_bytes()));
    for diagnostic in &found.diagnostics {
        let severity = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        say(format!("{diagnostic} [{severity}]"))?;
    }
    for advice in &found.advice {
        say(format!("{advice} [advice]"))?;
    }
    for copy in &found.inventory.copies {
        let can = if copy.eligible() { "can run here" } else { "cannot run here" };
        say(format!("{} ({}): {can}", copy.definition.key, copy.directory.display()))?;
        for verdict in &copy.verdicts {
            let mark = if verdict.passed { "pass" } else { "FAIL" };
            say(format!("  {mark} {} {}: {}", verdict.gate, verdict.subject, verdict.reason))?;
        }
    }
    let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    output::note(&format!(
        "{}, {}, {}",
        count(found.inventory.copies.len(), "skill"),
        count(found.errors(), "error"),
        count(found.warnings(), "warning")
    ));
    Ok(())
}

fn as_json(found: &Findings) -> Value {
    let list = |diagnostics: &[Diagnostic]| -> Vec<Value> {
        diagnostics
            .iter()
            .map(|one| json::to_value("weft.v1.Diagnostic", &v1::Diagnostic::from(one)))
            .collect()
    };
    let skill = |copy: &Copy| {
        let verdicts = copy.verdicts.iter().map(v1::Verdict::from);
        json!({
            "key": copy.definition.key.as_str(),
            "name": copy.definition.name,
            "toolName": copy.definition.tool_name(),
            "class": copy.definition.class.as_str(),
            "path": copy.directory.display().to_string(),
            "digest": copy.digest.to_string(),
            "partial": copy.partial,
            "eligible": copy.eligible(),
            "shadowedBy": copy.shadowed_by.as_ref().map(|path| path.display().to_string()),
            "verdicts": verdicts.map(|one| json::to_value("weft.v1.Verdict", &one)).collect::<Vec<_>>(),
        })
    };
    json!({
        "skills": found.inventory.copies.iter().map(|copy| skill(copy)).collect::<Vec<_>>(),
        "diagnostics": list(&found.diagnostics),
        "advice": list(&found.advice),
    })
}
