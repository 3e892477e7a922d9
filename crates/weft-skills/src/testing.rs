//! Fixtures for the tests of this crate.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use weft_core::skill::{Definition, Kind};

use crate::{Config, Environment, Host, Source};

/// A Linux host with nothing on it.
pub(crate) fn host() -> Host {
    Host {
        os: "linux".to_owned(),
        skill_path: "".into(),
        environment: Environment::default(),
        config: serde_json::json!({}),
    }
}

/// These roots, managed, on a host with nothing on it.
pub(crate) fn config<P: AsRef<Path>>(roots: &[P]) -> Config {
    let sources = roots.iter().map(|root| Source::managed(root.as_ref())).collect();
    Config { host: host(), ..Config::new(sources) }
}

pub(crate) fn definition(name: &str) -> Definition {
    let key = weft_core::ids::SkillKey::normalise(name).unwrap();
    Definition { description: "d".to_owned(), ..Definition::new(key, Kind::Executable) }
}

/// Writes a file and the directories above it.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Writes an executable file.
pub(crate) fn script(path: &Path, content: &str) {
    write(path, content);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes an executable skill in `root/directory`; `extra` is more members, each with a comma before it.
pub(crate) fn skill(root: &Path, directory: &str, name: &str, extra: &str) -> PathBuf {
    let directory = root.join(directory);
    script(&directory.join("run"), "#!/bin/sh\necho '{}'\n");
    write(
        &directory.join("skill.json"),
        format!(r#"{{"name":"{name}","description":"case {name}","entry":"run"{extra}}}"#),
    );
    directory
}

/// Runs something and returns the lines that it logs, in order, each with its level in front.
pub(crate) fn logged<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let value = tracing::subscriber::with_default(Lines(Arc::clone(&lines)), run);
    let lines = lines.lock().unwrap().clone();
    (value, lines)
}

struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(format!("{} {}", event.metadata().level(), message.0));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
