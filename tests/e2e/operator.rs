//! An operator: the configuration files of a fleet and what lies beside them, and what a fleet says when asked.

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use weft_testkit::{Fabric, Finished, Spec, eventually, skill::put};

use crate::WEFT;

/// How long a change of a file may take to hold, on a busy machine.
pub(crate) const SECONDS: Duration = Duration::from_secs(20);

/// See the module.
pub(crate) struct Operator(TempDir);

impl Operator {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A place in the operator's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a file in its place at once, as editors do.
    pub(crate) fn write(&self, name: &str, text: impl Display) -> PathBuf {
        let (draft, path) = (self.path(".draft"), self.path(name));
        put(&draft, text.to_string());
        fs::rename(draft, &path).unwrap();
        path
    }

    /// Says what holds for the coordinator, now or once it notices.
    pub(crate) fn say(&self, text: impl Display) -> PathBuf {
        self.write("coordinator.yaml", text)
    }

    /// Says what holds for the node, now or once it notices.
    pub(crate) fn say_to_node(&self, text: impl Display) -> PathBuf {
        self.write("node.yaml", text)
    }

    /// Starts a coordinator with this file.
    pub(crate) fn coordinator(&self, text: impl Display) -> Fabric {
        Fabric::start(WEFT, &["--config", self.say(text).to_str().unwrap()])
    }

    /// A node with this file, whose user has a home here.
    pub(crate) fn node(&self, text: impl Display) -> Spec {
        with_file(&self.say_to_node(text)).env("HOME", self.path("home"))
    }
}

/// A node with a configuration file.
pub(crate) fn with_file(file: &Path) -> Spec {
    Spec::new().arg("--config", file)
}

/// The keys that an agent sees, eligible or not.
pub(crate) fn seen_by(fabric: &Fabric, agent: &str) -> Vec<String> {
    let listed = fabric.json(&["skills", "--agent", agent]).unwrap_or_default();
    let skills = listed["skills"].as_array().cloned().unwrap_or_default();
    skills.iter().map(|skill| skill["key"].as_str().unwrap().to_owned()).collect()
}

/// Waits until an agent sees exactly these.
#[track_caller]
pub(crate) fn wait_until_seen(fabric: &Fabric, agent: &str, keys: &[&str]) {
    eventually(&format!("{keys:?} for {agent}"), SECONDS, || (seen_by(fabric, agent) == keys).then_some(()));
}

/// Waits until this many skills are listed, so that what is not there later is hidden and not late.
#[track_caller]
pub(crate) fn wait_for_skills(fabric: &Fabric, count: usize) {
    eventually(&format!("{count} skills"), SECONDS, || {
        (fabric.json(&["skills"])?["skills"].as_array()?.len() == count).then_some(())
    });
}

/// Waits until a call gives this.
#[track_caller]
pub(crate) fn wait_for_result(fabric: &Fabric, call: &[&str], expected: &Value) {
    let mut args = vec!["call"];
    args.extend(call);
    eventually(&format!("{expected} from {call:?}"), SECONDS, || {
        let finished = fabric.weft(&args);
        (serde_json::from_str::<Value>(&finished.stdout).ok()? == *expected).then_some(())
    });
}

/// Asserts that a call is refused: by this exit code, with this word.
#[track_caller]
pub(crate) fn refused(fabric: &Fabric, call: &[&str], code: i32, word: &str) -> Finished {
    let mut args = vec!["call"];
    args.extend(call);
    let finished = fabric.weft(&args);
    assert_eq!((finished.code, finished.stdout.as_str()), (code, ""), "{call:?}: {finished:?}");
    assert!(finished.stderr.contains(word), "{call:?}: {word}: {}", finished.stderr);
    finished
}

/// What `weft why` says of the first node.
pub(crate) fn why(fabric: &Fabric, args: &[&str]) -> Option<Value> {
    let mut all = vec!["why"];
    all.extend(args);
    Some(fabric.json(&all)?["nodes"].as_array()?.first()?.clone())
}
