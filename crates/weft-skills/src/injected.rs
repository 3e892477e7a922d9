//! What an operator's entry puts into the environment of one skill's child.
//!
//! Worked out when the skill is loaded, so that a start looks up nothing; the values are found anew for each start.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
};

use weft_core::{
    entries::{Entries, Entry, Secret},
    ids::SkillKey,
    skill::Definition,
};

use crate::{
    host::Environment,
    loader::Config,
    report::{Problem, shown},
    secrets::{SecretError, is_blank, resolve},
    variables::{is_loader_variable, refusal},
};

/// The entry that speaks of a skill, with its key.
pub(crate) fn entry_of<'a>(
    definition: &Definition,
    entries: &'a Entries,
) -> Option<(&'a SkillKey, &'a Entry)> {
    let keys = definition.settings_key.iter().chain([&definition.key]);
    keys.into_iter().find_map(|key| entries.get_key_value(key))
}

/// The variables that an entry gives to the child of one skill. Its `Debug` shows no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// The key of the entry.
    entry: SkillKey,
    variables: BTreeMap<String, Variable>,
}

/// One variable.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Variable {
    /// Where its value comes from; the first that is not blank counts.
    from: Vec<(Member, Secret)>,
    /// The skill cannot do without it.
    required: bool,
}

/// The member of an entry that gives a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Env,
    ApiKey,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Env => "env",
            Self::ApiKey => "apiKey",
        })
    }
}

/// A variable that has no value now, and why.
#[derive(Debug, thiserror::Error)]
#[error("skills.entries.{entry}.{member} gives {} no value: {source}", shown(.variable))]
pub struct Unresolved {
    /// The key of the entry.
    entry: SkillKey,
    member: Member,
    /// The variable.
    variable: String,
    source: SecretError,
}

impl Injected {
    /// What the operator's entry for a skill gives it, if there is one. What an entry may not set is left out, and
    /// told of.
    pub(crate) fn of(
        definition: &Definition,
        config: &Config,
        tell: &mut impl FnMut(&SkillKey, Problem),
    ) -> Option<Self> {
        let (key, entry) = entry_of(definition, &config.entries)?;
        let mut tell = |message: String| tell(key, Problem::warning("entries", message));
        let mut given: BTreeMap<&str, Vec<(Member, Secret)>> = BTreeMap::new();
        for (name, secret) in &entry.env {
            given.entry(name).or_default().push((Member::Env, secret.clone()));
        }
        match (&entry.api_key, &definition.primary_env) {
            (None, _) => {}
            (Some(secret), Some(name)) => {
                given.entry(name).or_default().push((Member::ApiKey, secret.clone()));
            }
            (Some(_), None) => tell(format!(
                "apiKey is not used: the skill \"{}\" names no primaryEnv; name the variable under env",
                definition.key
            )),
        }
        let mut variables = BTreeMap::new();
        for (name, mut from) in given {
            from.retain(|(_, secret)| !matches!(secret, Secret::Plain(value) if is_blank(OsStr::new(value))));
            if from.is_empty() {
                continue;
            }
            if let Some(why) = refusal(name, config.allow_loader_variables) {
                tell(format!("{:?} is not set for the skill \"{}\": {why}", shown(name), definition.key));
                continue;
            }
            if !is_forwarded(name, definition, config) {
                let required = definition.requirements.iter().any(|block| {
                    let waived = block.always && config.allow_always;
                    !waived && block.env.iter().any(|needed| needed == name)
                });
                variables.insert(name.to_owned(), Variable { from, required });
            }
        }
        (!variables.is_empty()).then(|| Self { entry: key.clone(), variables })
    }

    /// Whether a file has to be read for it, which may take its time.
    pub fn reads_files(&self) -> bool {
        let mut sources = self.variables.values().flat_map(|variable| &variable.from);
        sources.any(|(_, secret)| matches!(secret, Secret::File(_)))
    }

    /// The variables and their values now. Blocks while it reads files.
    ///
    /// # Errors
    /// When a value cannot be found.
    pub fn resolve(&self, environment: &Environment) -> Result<Vec<(OsString, OsString)>, Unresolved> {
        let mut resolved = Vec::with_capacity(self.variables.len());
        for (name, variable) in &self.variables {
            match self.value(name, variable, environment)? {
                Some((_, value)) => resolved.push((OsString::from(name), value)),
                None if variable.required => {
                    let member = variable.from.first().map_or(Member::Env, |(member, _)| *member);
                    return Err(self.unresolved(member, name, SecretError::Blank));
                }
                None => {}
            }
        }
        Ok(resolved)
    }

    /// By what a variable is set now; `None` when by nothing, or by something blank.
    pub(crate) fn set_by(&self, name: &str, environment: &Environment) -> Result<Option<String>, Unresolved> {
        let Some(variable) = self.variables.get(name) else { return Ok(None) };
        let value = self.value(name, variable, environment)?;
        Ok(value.map(|(member, _)| format!("skills.entries.{}.{member}", self.entry)))
    }

    /// The names of all its variables.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }

    fn value(
        &self,
        name: &str,
        variable: &Variable,
        environment: &Environment,
    ) -> Result<Option<(Member, OsString)>, Unresolved> {
        for (member, secret) in &variable.from {
            let value =
                resolve(secret, environment).map_err(|source| self.unresolved(*member, name, source))?;
            if !is_blank(&value) {
                return Ok(Some((*member, value)));
            }
        }
        Ok(None)
    }

    fn unresolved(&self, member: Member, variable: &str, source: SecretError) -> Unresolved {
        Unresolved { entry: self.entry.clone(), member, variable: variable.to_owned(), source }
    }
}

/// Whether the child has the variable from the node already, with something in it. What is preset stays.
fn is_forwarded(name: &str, definition: &Definition, config: &Config) -> bool {
    definition.env_allow.iter().any(|allowed| allowed == name)
        && (config.allow_loader_variables || !is_loader_variable(name))
        && config.host.environment.get(name).is_some_and(|value| !is_blank(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn key(name: &str) -> SkillKey {
        SkillKey::normalise(name).unwrap()
    }

    fn plain(value: &str) -> Secret {
        Secret::Plain(value.into())
    }

    fn entry(env: &[(&str, Secret)], api_key: Option<Secret>) -> Entry {
        let env = env.iter().map(|(name, secret)| ((*name).to_owned(), secret.clone())).collect();
        Entry { env, api_key, ..Entry::default() }
    }

    /// A host on which some variables are set, and an operator who says this of the skill `x`.
    fn config(entry: Entry) -> Config {
        let mut config = testing::config::<&str>(&[]);
        config.host.environment =
            [("PRESET", "the node's"), ("BLANK", ""), ("TOKEN", "t")].into_iter().collect();
        config.entries.insert(key("x"), entry);
        config
    }

    fn definition() -> Definition {
        let env_allow = ["PRESET", "BLANK"].map(str::to_owned).into();
        Definition { env_allow, primary_env: Some("API_KEY".into()), ..testing::definition("x") }
    }

    /// What is set, as `NAME=value`, and what is told.
    fn injected(definition: &Definition, config: &Config) -> (Vec<String>, Vec<String>) {
        let mut told = Vec::new();
        let injected = Injected::of(definition, config, &mut |_, problem| told.push(problem.message));
        let set = injected.map(|injected| injected.resolve(&config.host.environment).unwrap());
        let show = |(name, value): (OsString, OsString)| format!("{}={}", name.display(), value.display());
        (set.unwrap_or_default().into_iter().map(show).collect(), told)
    }

    #[test]
    fn a_skill_without_entry_has_nothing() {
        let config = config(entry(&[("A", plain("1"))], None));
        assert_eq!(Injected::of(&testing::definition("y"), &config, &mut |_, _| panic!()), None);
    }

    #[test]
    fn what_the_node_presets_and_forwards_is_kept_and_blank_values_are_ignored() {
        let variables = [
            ("PRESET", plain("mine")),
            ("BLANK", plain("mine")),
            // Set on the node as well, but not forwarded.
            ("TOKEN", plain("mine")),
            ("EMPTY", plain(" ")),
            ("FROM_BLANK", Secret::Variable("BLANK".into())),
            ("FROM_TOKEN", Secret::Variable("TOKEN".into())),
        ];
        let config = config(entry(&variables, None));
        let expected = ["BLANK=mine", "FROM_TOKEN=t", "TOKEN=mine"].map(str::to_owned);
        assert_eq!(injected(&definition(), &config), (expected.into(), vec![]));
    }

    #[test]
    fn an_api_key_is_the_value_of_the_primary_variable_unless_the_entry_names_that() {
        let own = |env: &[(&str, Secret)]| config(entry(env, Some(plain("key"))));
        assert_eq!(injected(&definition(), &own(&[])).0, ["API_KEY=key"]);
        assert_eq!(injected(&definition(), &own(&[("API_KEY", plain("named"))])).0, ["API_KEY=named"]);
        assert_eq!(injected(&definition(), &own(&[("API_KEY", plain(" "))])).0, ["API_KEY=key"]);
        let (set, told) = injected(&Definition { primary_env: None, ..definition() }, &own(&[]));
        assert!(set.is_empty() && told.len() == 1 && told[0].contains("names no primaryEnv"), "{told:?}");
    }

    #[test]
    fn the_entry_under_the_settings_key_comes_first() {
        let mut config = config(entry(&[("A", plain("own"))], None));
        let other = Definition { settings_key: Some(key("other")), ..definition() };
        assert_eq!(injected(&other, &config).0, ["A=own"]);
        config.entries.insert(key("other"), entry(&[("A", plain("other"))], None));
        assert_eq!(injected(&other, &config).0, ["A=other"]);
        assert_eq!(injected(&definition(), &config).0, ["A=own"]);
    }

    #[test]
    fn what_an_entry_may_not_set_is_left_out_and_told_of_without_its_value() {
        let names = ["LD_PRELOAD", "PATH", "TRACEPARENT", "WEFT_NODE"];
        let variables = names.map(|name| (name, plain("hunter2")));
        let mut config = config(entry(&variables, Some(plain("hunter2"))));
        let evil = Definition { primary_env: Some("PATH".into()), ..definition() };
        let (set, told) = injected(&evil, &config);
        assert!(set.is_empty(), "{set:?}");
        assert_eq!(told.len(), 4);
        for (name, told) in names.iter().zip(&told) {
            assert!(told.contains(name) && !told.contains("hunter2"), "{told}");
        }
        config.allow_loader_variables = true;
        assert_eq!(injected(&evil, &config).0, ["LD_PRELOAD=hunter2"]);
    }

    #[test]
    fn what_cannot_be_resolved_names_its_place() {
        let missing = Secret::File("/nonexistent/token".into());
        let config = config(entry(&[("A", missing), ("B", plain("hunter2"))], None));
        let injected = Injected::of(&definition(), &config, &mut |_, _| panic!()).unwrap();
        assert!(injected.reads_files());
        let error = injected.resolve(&config.host.environment).unwrap_err().to_string();
        let expected = "skills.entries.x.env gives A no value: the file /nonexistent/token: ";
        assert!(error.starts_with(expected), "{error}");
        assert!(!format!("{injected:?}").contains("hunter2"));
    }

    #[test]
    fn what_a_skill_requires_must_not_be_blank_at_a_start_either() {
        let requirements = weft_core::skill::Requirements { env: vec!["A".into()], ..Default::default() };
        let needs = Definition { requirements: vec![requirements], ..definition() };
        let config = config(entry(&[("A", Secret::Variable("BLANK".into()))], None));
        let of = |definition| Injected::of(definition, &config, &mut |_, _| panic!()).unwrap();
        let error = of(&needs).resolve(&config.host.environment).unwrap_err().to_string();
        assert_eq!(error, "skills.entries.x.env gives A no value: the value is blank");
        assert!(of(&definition()).resolve(&config.host.environment).unwrap().is_empty());
    }
}
