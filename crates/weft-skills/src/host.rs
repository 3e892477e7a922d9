//! What gates ask about the host that a node runs on.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
};

/// The host, as the gates of a skill see it. Its `Debug` shows no value of the environment or of the configuration.
#[derive(Clone)]
pub struct Host {
    /// `linux`, `darwin` or `win32`.
    pub os: String,
    /// The directories in which `requires.bins` are searched, in the form of `PATH`.
    pub skill_path: OsString,
    /// The environment of the node when it started.
    pub environment: Environment,
    /// The configuration of the node, for `requires.config`.
    pub config: serde_json::Value,
}

impl Host {
    /// This host, with the environment of this process and an empty configuration.
    pub fn current() -> Self {
        let os = match std::env::consts::OS {
            "macos" => "darwin",
            "windows" => "win32",
            other => other,
        };
        let environment: Environment = std::env::vars_os().collect();
        Self {
            os: os.to_owned(),
            skill_path: environment.get("PATH").map(OsStr::to_owned).unwrap_or_default(),
            environment,
            config: serde_json::Value::Object(serde_json::Map::new()),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("os", &self.os)
            .field("skill_path", &self.skill_path)
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

/// Environment variables, taken once so that nothing depends on when they are looked at. Values are secret:
/// its `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The value of a variable, also when it is empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Every variable, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_of_variables_and_never_values() {
        let environment: Environment = [("API_KEY", "hunter2")].into_iter().collect();
        let shown = format!("{environment:?}");
        assert!(shown.contains("API_KEY") && !shown.contains("hunter2"), "{shown}");
        assert_eq!(environment.get("API_KEY"), Some(OsStr::new("hunter2")));
        let config = serde_json::json!({"skills": {"entries": {"x": {"apiKey": "hunter2"}}}});
        assert!(!format!("{:?}", Host { environment, config, ..Host::current() }).contains("hunter2"));
    }
}
