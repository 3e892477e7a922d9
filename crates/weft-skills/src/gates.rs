//! Whether the conditions of a skill hold on this host.
//!
//! Conditions are checked after it is settled which copy wins: a winner that fails hides the lower copies. The
//! operator's entry for a skill (`enabled`, `env`, `apiKey`) will be one more argument of [`Gates::check`].

use std::{collections::HashMap, env, path::PathBuf};

use serde_json::Value;
use weft_core::skill::{Definition, Gate, Verdict};

use crate::{
    host::Host,
    platform,
    report::{shown, shown_path},
};

/// The gates of one load: each program is looked for once.
pub(crate) struct Gates<'a> {
    host: &'a Host,
    path: Vec<PathBuf>,
    bins: HashMap<String, Option<PathBuf>>,
}

impl<'a> Gates<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        // A relative directory would mean another one in each working directory.
        let path = env::split_paths(&host.skill_path).filter(|directory| directory.is_absolute()).collect();
        Self { host, path, bins: HashMap::new() }
    }

    /// What each condition of a skill says, in a fixed order, each once.
    pub(crate) fn check(&mut self, definition: &Definition) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if let Some(reason) = &definition.broken_requirements {
            verdicts.push(verdict(Gate::Metadata, "metadata", Err(format!("cannot be read: {reason}"))));
        }
        for block in &definition.requirements {
            if !block.os.is_empty() {
                let fits = block.os.contains(&self.host.os);
                let reason = format!("this host is {}", self.host.os);
                verdicts.push(verdict(
                    Gate::Os,
                    &block.os.join(", "),
                    if fits { Ok(reason) } else { Err(reason) },
                ));
            }
            verdicts.extend(block.bins.iter().map(|name| verdict(Gate::Bin, name, self.bin(name))));
            if !block.any_bins.is_empty() {
                let found = block.any_bins.iter().find_map(|name| self.bin(name).ok());
                let outcome = found.ok_or_else(|| "none of them is in the skill PATH".to_owned());
                verdicts.push(verdict(Gate::AnyBin, &block.any_bins.join(", "), outcome));
            }
            verdicts.extend(block.env.iter().map(|name| verdict(Gate::Env, name, self.variable(name))));
            verdicts.extend(block.config.iter().map(|path| verdict(Gate::Config, path, self.config(path))));
        }
        let mut once = Vec::with_capacity(verdicts.len());
        for verdict in verdicts {
            if !once.contains(&verdict) {
                once.push(verdict);
            }
        }
        once
    }

    /// Where a program is in the skill PATH.
    pub(crate) fn bin(&mut self, name: &str) -> Result<String, String> {
        if name.contains(['/', '\\', '\0']) {
            return Err("not the plain name of a program".to_owned());
        }
        let path = &self.path;
        let found = self.bins.entry(name.to_owned()).or_insert_with(|| {
            path.iter().map(|directory| directory.join(name)).find(|candidate| {
                candidate.metadata().is_ok_and(|found| found.is_file() && platform::has_execute_bit(&found))
            })
        });
        match found {
            Some(path) => Ok(format!("found at {}", shown_path(path))),
            None => Err(format!("no executable {:?} in the skill PATH", shown(name))),
        }
    }

    fn variable(&self, name: &str) -> Result<String, String> {
        match self.host.environment.get(name) {
            None => Err("not set".to_owned()),
            Some(value) if value.to_string_lossy().trim().is_empty() => Err("set but blank".to_owned()),
            Some(_) => Ok("set".to_owned()),
        }
    }

    fn config(&self, path: &str) -> Result<String, String> {
        let value = path.split('.').try_fold(&self.host.config, |value, name| value.get(name));
        match value {
            None => Err("not in the configuration of the node".to_owned()),
            Some(value) if truthy(value) => Ok("set".to_owned()),
            Some(_) => Err("switched off or empty in the configuration of the node".to_owned()),
        }
    }
}

fn verdict(gate: Gate, subject: &str, outcome: Result<String, String>) -> Verdict {
    let passed = outcome.is_ok();
    Verdict { gate, subject: shown(subject), passed, reason: outcome.unwrap_or_else(|reason| reason) }
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64().is_some_and(|number| number != 0.0),
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use serde_json::json;
    use weft_core::skill::Requirements;

    use super::*;
    use crate::testing;

    fn check(host: &Host, requirements: Requirements) -> Vec<Verdict> {
        let definition = Definition { requirements: vec![requirements], ..testing::definition("x") };
        Gates::new(host).check(&definition)
    }

    fn passes(host: &Host, requirements: Requirements) -> bool {
        check(host, requirements).iter().all(|verdict| verdict.passed)
    }

    #[test]
    fn a_program_counts_only_as_a_regular_file_with_an_execute_bit() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host { skill_path: directory.path().into(), ..testing::host() };
        let needs = || Requirements { bins: vec!["tool".into()], ..Requirements::default() };
        let tool = directory.path().join("tool");
        assert!(!passes(&host, needs()));
        fs::write(&tool, "").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!passes(&host, needs()));
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let verdicts = check(&host, needs());
        assert!(verdicts[0].passed && verdicts[0].reason.contains(tool.to_str().unwrap()), "{verdicts:?}");
        fs::remove_file(&tool).unwrap();
        fs::create_dir(&tool).unwrap();
        let verdicts = check(&host, needs());
        assert!(!verdicts[0].passed && verdicts[0].reason.contains("tool"), "{verdicts:?}");
        assert!(!passes(&host, Requirements { bins: vec!["../tool".into()], ..Requirements::default() }));
    }

    #[test]
    fn one_of_several_programs_is_enough() {
        let directory = tempfile::tempdir().unwrap();
        testing::script(&directory.path().join("b"), "");
        let host = Host { skill_path: directory.path().into(), ..testing::host() };
        let any = |names: &[&str]| Requirements {
            any_bins: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Requirements::default()
        };
        assert!(passes(&host, any(&["a", "b"])));
        assert!(!passes(&host, any(&["a", "c"])));
        assert!(passes(&host, any(&[])));
    }

    #[test]
    fn a_variable_must_be_set_and_not_blank_and_its_value_is_never_shown() {
        let host = Host {
            environment: [("SET", "hunter2"), ("BLANK", " ")].into_iter().collect(),
            ..testing::host()
        };
        let needs = |name: &str| Requirements { env: vec![name.into()], ..Requirements::default() };
        assert!(passes(&host, needs("SET")));
        assert!(!passes(&host, needs("BLANK")));
        assert!(!passes(&host, needs("UNSET")));
        assert!(!format!("{:?}", check(&host, needs("SET"))).contains("hunter2"));
    }

    #[test]
    fn a_path_into_the_configuration_must_be_truthy() {
        let config =
            json!({"a": {"on": true, "off": false, "zero": 0, "blank": " ", "empty": {}, "n": 1, "s": "x"}});
        let host = Host { config, ..testing::host() };
        let needs = |path: &str| Requirements { config: vec![path.into()], ..Requirements::default() };
        for path in ["a", "a.on", "a.empty", "a.n", "a.s"] {
            assert!(passes(&host, needs(path)), "{path}");
        }
        for path in ["b", "a.off", "a.zero", "a.blank", "a.on.x", "", "a..on"] {
            assert!(!passes(&host, needs(path)), "{path}");
        }
    }

    #[test]
    fn every_block_must_hold_and_broken_data_never_passes() {
        let host = testing::host();
        let os = |names: &[&str]| Requirements {
            os: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Requirements::default()
        };
        let linux = os(&["darwin", "linux"]);
        let other = os(&["win32"]);
        assert!(passes(&host, linux.clone()));
        let definition = Definition { requirements: vec![linux, other], ..testing::definition("x") };
        let verdicts = Gates::new(&host).check(&definition);
        assert_eq!(verdicts.iter().map(|verdict| verdict.passed).collect::<Vec<_>>(), [true, false]);
        let broken = Definition { broken_requirements: Some("why".into()), ..testing::definition("x") };
        let verdicts = Gates::new(&host).check(&broken);
        assert!(!verdicts[0].passed && verdicts[0].reason.contains("why"));
    }
}
