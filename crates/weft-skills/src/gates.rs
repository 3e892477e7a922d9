//! Whether the conditions of a skill hold on this host.
//!
//! Conditions are checked after it is settled which copy wins: a winner that fails hides the lower copies.

use serde_json::Value;
use weft_core::skill::{Definition, Gate, Layer, Requirements, Verdict};

use crate::{
    injected::{Injected, entry_of},
    loader::Config,
    programs::Programs,
    report::shown,
    secrets::is_blank,
};

/// The gates of one load.
pub(crate) struct Gates<'a> {
    config: &'a Config,
    programs: Programs,
}

impl<'a> Gates<'a> {
    pub(crate) fn new(config: &'a Config) -> Self {
        Self { config, programs: Programs::new(&config.host) }
    }

    /// What each condition of a skill says, in a fixed order, each once. `injected` is what its entry gives it.
    pub(crate) fn check(
        &mut self,
        definition: &Definition,
        layer: Layer,
        injected: Option<&Injected>,
    ) -> Vec<Verdict> {
        let mut verdicts = self.enabled(definition, layer);
        if let Some(reason) = &definition.broken_requirements {
            verdicts.push(verdict(Gate::Metadata, "metadata", Err(format!("cannot be read: {reason}"))));
        }
        for block in &definition.requirements {
            if !block.os.is_empty() {
                let fits = block.os.contains(&self.config.host.os);
                let reason = format!("this host is {}", self.config.host.os);
                verdicts.push(verdict(
                    Gate::Os,
                    &block.os.join(", "),
                    if fits { Ok(reason) } else { Err(reason) },
                ));
            }
            let waives = block.always && has_what_always_waives(block);
            if waives && self.config.allow_always {
                let reason = "what the block requires is not checked: the operator of this node allows that";
                verdicts.push(verdict(Gate::Metadata, "always", Ok(reason.to_owned())));
                continue;
            }
            if waives {
                let reason =
                    "the operator of this node does not allow it; what the block requires is checked";
                verdicts.push(verdict(Gate::Metadata, "always", Ok(reason.to_owned())));
            }
            self.block(block, injected, &mut verdicts);
        }
        // It would not start, whether or not it requires the variable.
        for name in injected.into_iter().flat_map(Injected::names) {
            if let Err(reason) = self.injected(name, injected) {
                verdicts.push(verdict(Gate::Env, name, Err(reason)));
            }
        }
        let mut once = Vec::with_capacity(verdicts.len());
        for verdict in verdicts {
            if !once.contains(&verdict) {
                once.push(verdict);
            }
        }
        once
    }

    /// What the operator switched off. Nothing is said of what is on.
    fn enabled(&self, definition: &Definition, layer: Layer) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if let Some((key, _)) = entry_of(definition, &self.config.entries).filter(|(_, entry)| entry.is_off())
        {
            let reason = format!("switched off in skills.entries.{key} of this node");
            verdicts.push(verdict(Gate::Enabled, key.as_str(), Err(reason)));
        }
        if layer == Layer::Bundled
            && let Some(allowed) = &self.config.allow_bundled
            && !allowed.contains(&definition.key)
            && !definition.settings_key.as_ref().is_some_and(|key| allowed.contains(key))
        {
            let reason = "not in skills.allowBundled of this node".to_owned();
            verdicts.push(verdict(Gate::Enabled, definition.key.as_str(), Err(reason)));
        }
        verdicts
    }

    /// What `always` can waive.
    fn block(&mut self, block: &Requirements, injected: Option<&Injected>, verdicts: &mut Vec<Verdict>) {
        verdicts.extend(block.bins.iter().map(|name| verdict(Gate::Bin, name, self.programs.find(name))));
        if !block.any_bins.is_empty() {
            let found = block.any_bins.iter().find_map(|name| self.programs.find(name).ok());
            let outcome = found.ok_or_else(|| "none of them is in the skill PATH".to_owned());
            verdicts.push(verdict(Gate::AnyBin, &block.any_bins.join(", "), outcome));
        }
        verdicts.extend(block.env.iter().map(|name| verdict(Gate::Env, name, self.variable(name, injected))));
        verdicts.extend(block.config.iter().map(|path| verdict(Gate::Config, path, self.config(path))));
    }

    fn variable(&self, name: &str, injected: Option<&Injected>) -> Result<String, String> {
        let preset = match self.config.host.environment.get(name) {
            None => "not set",
            Some(value) if is_blank(value) => "set but blank",
            Some(_) => return Ok("set".to_owned()),
        };
        self.injected(name, injected)?.ok_or_else(|| preset.to_owned())
    }

    /// By what the entry sets a variable, if it does.
    fn injected(&self, name: &str, injected: Option<&Injected>) -> Result<Option<String>, String> {
        let Some(injected) = injected else { return Ok(None) };
        match injected.set_by(name, &self.config.host.environment) {
            Ok(by) => Ok(by.map(|by| format!("set by {by}"))),
            Err(error) => Err(error.to_string()),
        }
    }

    fn config(&self, path: &str) -> Result<String, String> {
        let value = path.split('.').try_fold(&self.config.host.config, |value, name| value.get(name));
        match value {
            None => Err("not in the configuration of the node".to_owned()),
            Some(value) if truthy(value) => Ok("set".to_owned()),
            Some(_) => Err("switched off or empty in the configuration of the node".to_owned()),
        }
    }
}

fn has_what_always_waives(block: &Requirements) -> bool {
    [&block.bins, &block.any_bins, &block.env, &block.config].into_iter().any(|list| !list.is_empty())
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
    use serde_json::json;
    use weft_core::{
        entries::{Entry, Secret},
        ids::SkillKey,
    };

    use super::*;
    use crate::{
        host::Host,
        testing::{self, script},
    };

    /// An operator who says nothing, on this host.
    fn on(host: Host) -> Config {
        Config { host, ..testing::config::<&str>(&[]) }
    }

    fn verdicts(config: &Config, definition: &Definition) -> Vec<Verdict> {
        let injected = Injected::of(definition, config, &mut |_, _| {});
        Gates::new(config).check(definition, Layer::Managed, injected.as_ref())
    }

    fn check(host: &Host, requirements: Requirements) -> Vec<Verdict> {
        let definition = Definition { requirements: vec![requirements], ..testing::definition("x") };
        verdicts(&on(host.clone()), &definition)
    }

    fn passes(host: &Host, requirements: Requirements) -> bool {
        all(&check(host, requirements))
    }

    fn all(verdicts: &[Verdict]) -> bool {
        verdicts.iter().all(|verdict| verdict.passed)
    }

    fn key(name: &str) -> SkillKey {
        SkillKey::normalise(name).unwrap()
    }

    #[test]
    fn one_of_several_programs_is_enough() {
        let directory = tempfile::tempdir().unwrap();
        script(&directory.path().join("b"), "");
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
        let config = on(host);
        let told = verdicts(&config, &definition);
        assert_eq!(told.iter().map(|verdict| verdict.passed).collect::<Vec<_>>(), [true, false]);
        let broken = Definition { broken_requirements: Some("why".into()), ..testing::definition("x") };
        let told = verdicts(&config, &broken);
        assert!(!told[0].passed && told[0].reason.contains("why"));
    }

    #[test]
    fn what_the_operator_switched_off_is_ineligible_and_only_false_does_that() {
        let mut config = on(testing::host());
        let definition = Definition { settings_key: Some(key("alias")), ..testing::definition("x") };
        for (enabled, eligible) in [(None, true), (Some(true), true), (Some(false), false)] {
            config.entries.insert(key("x"), Entry { enabled, ..Entry::default() });
            assert_eq!(all(&verdicts(&config, &definition)), eligible, "{enabled:?}");
        }
        let off = verdicts(&config, &definition);
        assert_eq!((off.len(), off[0].gate, off[0].subject.as_str()), (1, Gate::Enabled, "x"));
        assert_eq!(off[0].reason, "switched off in skills.entries.x of this node");
        // The key that the document names comes first.
        config.entries.insert(key("alias"), Entry::default());
        assert!(all(&verdicts(&config, &definition)));
    }

    #[test]
    fn a_list_of_bundled_skills_concerns_bundled_skills_alone() {
        let check = |allowed: Option<&[&str]>, layer| {
            let allow_bundled = allowed.map(|list| list.iter().map(|name| key(name)).collect());
            let config = Config { allow_bundled, ..on(testing::host()) };
            Gates::new(&config).check(&testing::definition("x"), layer, None)
        };
        assert!(check(None, Layer::Bundled).is_empty());
        assert!(check(Some(&["X"]), Layer::Bundled).is_empty());
        for list in [&[][..], &["y"]] {
            let told = check(Some(list), Layer::Bundled);
            assert_eq!((told[0].gate, told[0].passed), (Gate::Enabled, false));
            assert!(told[0].reason.contains("skills.allowBundled"), "{told:?}");
            assert!(check(Some(list), Layer::Managed).is_empty());
        }
    }

    #[test]
    fn vector_11_always_waives_what_is_required_but_no_system_and_only_where_allowed() {
        let requirements = |os: &str| Requirements {
            os: vec![os.into()],
            bins: vec!["absent".into()],
            any_bins: vec!["absent".into()],
            env: vec!["ABSENT".into()],
            config: vec!["absent".into()],
            always: true,
        };
        let definition = |os| Definition { requirements: vec![requirements(os)], ..testing::definition("x") };
        let told =
            |os, allow_always| verdicts(&Config { allow_always, ..on(testing::host()) }, &definition(os));
        assert!(all(&told("linux", true)));
        assert!(!all(&told("darwin", true)));
        let checked = told("linux", false);
        assert_eq!(checked.iter().filter(|verdict| !verdict.passed).count(), 4, "{checked:?}");
        let warned = checked.iter().find(|verdict| verdict.subject == "always").unwrap();
        assert!(warned.reason.contains("does not allow it"), "{warned:?}");
    }

    #[test]
    fn a_variable_can_be_set_by_the_entry_and_the_reason_says_by_what_and_never_its_value() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let environment = [("TOKEN", "hunter2"), ("BLANK", " ")].into_iter().collect();
        let host = Host { environment, ..testing::host() };
        let told = |env: Option<Secret>, api_key: Option<Secret>| {
            let mut config = on(host.clone());
            let env = env.into_iter().map(|secret| ("KEY".to_owned(), secret)).collect();
            config.entries.insert(key("x"), Entry { env, api_key, ..Entry::default() });
            let requirements = vec![Requirements { env: vec!["KEY".into()], ..Requirements::default() }];
            let primary_env = Some("KEY".to_owned());
            let definition = Definition { requirements, primary_env, ..testing::definition("x") };
            let told = verdicts(&config, &definition);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(!told[0].reason.contains("hunter2"), "{told:?}");
            (told[0].passed, told[0].reason.clone())
        };
        let plain = |value: &str| Some(Secret::Plain(value.into()));
        let variable = |name: &str| Some(Secret::Variable(name.into()));
        let in_file = || Some(Secret::File(file.clone()));
        let set = |by: &str| (true, format!("set by skills.entries.x.{by}"));
        assert_eq!(told(None, None), (false, "not set".into()));
        assert_eq!(told(plain("hunter2"), None), set("env"));
        assert_eq!(told(None, plain("hunter2")), set("apiKey"));
        assert_eq!(told(plain(" "), plain("hunter2")), set("apiKey"));
        assert_eq!(told(plain(" "), plain("")), (false, "not set".into()));
        assert_eq!(told(variable("TOKEN"), None), set("env"));
        assert_eq!(told(None, variable("BLANK")), (false, "not set".into()));
        assert!(told(None, variable("UNSET")).1.contains("the variable UNSET of the node is not set"));
        assert!(told(None, in_file()).1.contains("token: No such file"));
        std::fs::write(&file, "\n").unwrap();
        assert_eq!(told(None, in_file()), (false, "not set".into()));
        std::fs::write(&file, "hunter2\n").unwrap();
        assert_eq!(told(None, in_file()), set("apiKey"));
    }

    #[test]
    fn a_skill_whose_entry_cannot_be_resolved_is_listed_with_why() {
        let mut config = on(testing::host());
        let env = [("ANY".to_owned(), Secret::Variable("UNSET".into()))].into();
        config.entries.insert(key("x"), Entry { env, ..Entry::default() });
        let told = verdicts(&config, &testing::definition("x"));
        assert_eq!((told.len(), told[0].gate, told[0].passed), (1, Gate::Env, false));
        assert_eq!(told[0].subject, "ANY");
    }

    #[test]
    fn vector_09_other_names_of_systems_and_an_empty_list() {
        let passes = |os: &[&str]| {
            let written = json!({ "os": os });
            let requirements = crate::requirements::read(&written).blocks;
            let definition = Definition { requirements, ..testing::definition("x") };
            all(&verdicts(&on(Host { os: "darwin".into(), ..testing::host() }), &definition))
        };
        assert!(passes(&["macos"]) && passes(&[]));
        assert!(!passes(&["linux"]));
    }
}
