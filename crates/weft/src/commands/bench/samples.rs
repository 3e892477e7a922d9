//! The skills that are measured, and how they come on disk.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use serde_json::json;
use weft_core::ids::SkillKey;

/// What every call gives: 64 bytes, as the harnesses that weft is compared with take them.
pub(super) const ARGS: &str = r#"{"message":"all work and no play makes jack a dull boy indeed."}"#;

/// The schema of every sample, so that args are checked at both ends as those of any skill.
pub(super) const SCHEMA: &str =
    r#"{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}"#;

/// A skill that is measured. All of them answer with their args.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Sample {
    /// A native program: a copy of `cat`
    Native,
    /// A shell script without a fork
    Shell,
    /// A Python script
    Python,
    /// No program at all: a node that answers by itself, so that only the way there and back is measured
    Echo,
}

impl Sample {
    /// Its name in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Shell => "shell",
            Self::Python => "python",
            Self::Echo => "echo",
        }
    }

    /// Its name in the catalog.
    pub(super) fn key(self) -> SkillKey {
        SkillKey::normalise(&format!("bench_{}", self.name())).expect("a name of ours is a valid key")
    }
}

/// A sample that can be started.
#[derive(Debug, Clone)]
pub(super) struct Installed {
    pub(super) program: PathBuf,
    pub(super) directory: PathBuf,
}

/// Writes a sample below a source of skills. `None` when this host lacks what it needs, or it needs nothing.
pub(super) fn install(sample: Sample, source: &Path) -> anyhow::Result<Option<Installed>> {
    let (entry, program) = match sample {
        Sample::Echo => return Ok(None),
        // `cat` is the one native program that is on every host, takes no argument and answers with its input. A
        // program of our own would need a compiler there, and this very executable starts far too slowly. It keeps
        // its name, because some systems have one program for all of these and tell them apart by it.
        Sample::Native => {
            let cat = find("cat").ok_or_else(|| anyhow!("there is no `cat` on PATH"))?;
            ("cat", fs::read(&cat).with_context(|| cat.display().to_string())?)
        }
        Sample::Shell => (
            "echo.sh",
            b"#!/bin/sh\nIFS= read -r line\nprintf '{\"ok\":true,\"echo\":%s}\\n' \"$line\"\n".to_vec(),
        ),
        Sample::Python => {
            let Some(python) = python() else { return Ok(None) };
            let script = format!(
                "#!{}\nimport json, sys\njson.dump({{\"ok\": True, \"echo\": json.load(sys.stdin)}}, sys.stdout)\n",
                python.display()
            );
            ("echo.py", script.into_bytes())
        }
    };
    let directory = source.join(sample.name());
    fs::create_dir_all(&directory)?;
    let manifest = json!({
        "name": sample.key().to_string(),
        "description": format!("Answers with its args ({}); made by `weft bench`.", sample.name()),
        "schema": serde_json::from_str::<serde_json::Value>(SCHEMA)?,
        "entry": entry,
    });
    fs::write(directory.join("skill.json"), manifest.to_string())?;
    let path = directory.join(entry);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(&path)?;
    io::Write::write_all(&mut file, &program)?;
    Ok(Some(Installed { program: path, directory }))
}

/// The system's own Python rather than the first one on `PATH`, which may be a wrapper that starts others.
fn python() -> Option<PathBuf> {
    let system = PathBuf::from("/usr/bin/python3");
    let found = if is_program(&system) { system } else { find("python3")? };
    // The kernel reads so much of a `#!` line, up to the first blank.
    let fits = found.as_os_str().len() < 120 && !found.to_string_lossy().contains(char::is_whitespace);
    fits.then_some(found)
}

fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use weft_exec::{Exit, Spawner};

    use super::*;

    #[test]
    fn args_are_as_long_as_those_of_other_harnesses() {
        assert_eq!(ARGS.len(), 64);
    }

    #[test]
    fn every_sample_answers_with_its_args() {
        let source = tempfile::tempdir().unwrap();
        for sample in [Sample::Native, Sample::Shell] {
            let installed = install(sample, source.path()).unwrap().unwrap();
            let mut spawner = Spawner::new().unwrap();
            let output = spawner.run(&installed.program, &installed.directory, ARGS.as_bytes()).unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.exit, Some(Exit::Code(0)));
            assert!(stdout.contains(ARGS), "{stdout}");
        }
    }
}
