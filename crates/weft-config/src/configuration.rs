//! What the two files have in common.

use std::path::Path;

use crate::{
    check::Check,
    file,
    finding::{Error, Finding, Parsed},
    home::Home,
    table::{Place, Table},
    tree::{self, Node},
};

/// A configuration file that can be read and followed.
pub trait Configuration: Sized + PartialEq + Send + Sync + 'static {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// When anything is wrong with it: all of it, each with its path and its line.
    fn parse(text: &str, home: &Home) -> Result<Parsed<Self>, Error>;

    /// Whether a secret stands in it in clear text.
    fn holds_secrets(&self) -> bool;

    /// Reads a file. Blocks on the file system, but never on a pipe or a device.
    ///
    /// # Errors
    /// When it cannot be read, is no regular file, is larger than [`MAX_BYTES`](crate::MAX_BYTES), or as in
    /// [`Configuration::parse`]. The error names the file.
    fn load(path: &Path, home: &Home) -> Result<Parsed<Self>, Error> {
        file::read(path).and_then(|content| interpret(&content, home)).map_err(|error| error.in_file(path))
    }
}

/// What the content of a file means, with a warning when everybody may read the secrets in it.
pub(crate) fn interpret<T: Configuration>(content: &file::Content, home: &Home) -> Result<Parsed<T>, Error> {
    let mut parsed = T::parse(&content.text, home)?;
    if content.readable_by_all && parsed.value.holds_secrets() {
        parsed.warnings.push(Finding::whole(
            "holds a secret and may be read by every user; take the right away with chmod o-r, \
             or use {source: file, id: PATH}",
        ));
    }
    Ok(parsed)
}

/// Reads a text as one mapping, hands it over, and gathers what is wrong.
pub(crate) fn parse<T>(
    text: &str,
    check: Check,
    read: impl FnOnce(Option<Table<'_>>, &Node, &mut Check) -> T,
) -> Result<Parsed<T>, Error> {
    parse_with(text, check, read).and_then(|(value, check)| check.finish(value))
}

/// Like [`parse`], with what was found left open.
pub(crate) fn parse_with<T>(
    text: &str,
    mut check: Check,
    read: impl FnOnce(Option<Table<'_>>, &Node, &mut Check) -> T,
) -> Result<(T, Check), Error> {
    if text.len() as u64 > file::MAX_BYTES {
        return Err(Error::of(file::too_large()));
    }
    let node = tree::read(text).map_err(Error::of)?;
    let root = Place::root(&node);
    root.refuse_repeated_keys(&mut check);
    let table = root.table(&mut check);
    let value = read(table, &node, &mut check);
    Ok((value, check))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _};

    use proptest::prelude::*;

    use super::*;
    use crate::{CoordinatorFile, NodeFile};

    fn home() -> Home {
        Home::new(Some("/home/u".into()))
    }

    /// The sample with its examples in force: a key with `#` directly before it is one.
    fn in_force(sample: &str) -> String {
        let line = |line: &str| match line.trim_start().strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => line.replacen('#', "", 1),
            _ => line.to_owned(),
        };
        sample.lines().map(|text| line(text) + "\n").collect()
    }

    /// A path without what its file is free to choose.
    fn general(path: &str) -> String {
        let mut free = false;
        let mut parts = Vec::new();
        for part in path.split('.') {
            parts.push(if free { "*" } else { part.split('[').next().unwrap_or_default() });
            free = !free && (part == "entries" || part == "env");
        }
        parts.join(".")
    }

    /// The keys that were asked for and never found. An agent in a list has the keys of the defaults.
    fn missing(check: &Check) -> Vec<String> {
        let paths = |wanted: fn(&bool) -> bool| -> BTreeSet<String> {
            let asked = check.asked.iter().filter(|(_, there)| wanted(there));
            asked.map(|(path, _)| general(path)).filter(|path| !path.starts_with("agents.list.")).collect()
        };
        paths(|_| true).difference(&paths(|there| *there)).cloned().collect()
    }

    #[test]
    fn the_samples_load_as_they_are_and_say_only_defaults() {
        let coordinator = CoordinatorFile::parse(CoordinatorFile::SAMPLE, &home()).unwrap();
        assert_eq!(coordinator.warnings, []);
        assert_eq!(coordinator.value.agents, Default::default());
        let node = NodeFile::parse(NodeFile::SAMPLE, &home()).unwrap();
        assert_eq!(node.warnings, []);
        assert_eq!(node.value.skills, Default::default());
        assert_eq!(node.value.plugins, Default::default());
        let limits = (node.value.queue, node.value.stop_grace, node.value.max_timeout);
        use weft_core::limits::{MAX_TIMEOUT, QUEUE_LENGTH, STOP_GRACE};
        assert_eq!(limits, (Some(QUEUE_LENGTH), Some(STOP_GRACE), Some(MAX_TIMEOUT)));
    }

    #[test]
    fn every_key_occurs_in_its_sample() {
        let text = in_force(CoordinatorFile::SAMPLE);
        let read = |table: Option<Table<'_>>, _: &Node, check: &mut Check| {
            CoordinatorFile::read(table, check, &home())
        };
        let (value, check) = parse_with(&text, Check::default(), read).unwrap();
        // The other form of the list.
        assert_eq!(missing(&check), ["agents.entries"]);
        assert_eq!(check.finish(value).unwrap().warnings, []);

        let text = in_force(NodeFile::SAMPLE);
        let read = |table: Option<Table<'_>>, node: &Node, check: &mut Check| {
            NodeFile::read(table, node, check, &home())
        };
        let (value, check) = parse_with(&text, Check::default(), read).unwrap();
        // And OpenClaw's provider, which means nothing here.
        let expected =
            ["agents.entries", "skills.entries.*.apiKey.provider", "skills.entries.*.env.*.provider"];
        assert_eq!(missing(&check), expected);
        assert_eq!(check.finish(value).unwrap().warnings, []);
    }

    #[test]
    fn an_error_of_a_file_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.yaml");
        let load = || NodeFile::load(&path, &home()).unwrap_err();
        let error = load();
        assert!(error.missing);
        assert!(error.to_string().starts_with(&format!("{}: cannot be read: No such file", path.display())));
        fs::write(&path, "a:\n  b: [").unwrap();
        assert!(load().to_string().starts_with(&format!("{}:", path.display())));
        fs::write(&path, "slots: 0").unwrap();
        let expected = format!("{}:1: slots: must be a whole number from 1 to 4096", path.display());
        assert_eq!(load().to_string(), expected);
        fs::write(&path, b"name: a\nlabels: \xff").unwrap();
        assert_eq!(load().to_string(), format!("{}:2: is not UTF-8 here", path.display()));
        fs::write(&path, vec![b'#'; 1024 * 1024 + 1]).unwrap();
        assert!(load().to_string().ends_with(": is larger than 1048576 bytes, which is the limit"));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_never_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        for (path, message) in [
            (directory.path(), "is a directory; name the file in it"),
            (pipe.as_path(), "is not a regular file"),
            (Path::new("/dev/null"), "is not a regular file"),
        ] {
            let error = NodeFile::load(path, &home()).unwrap_err();
            assert_eq!(error.to_string(), format!("{}: {message}", path.display()));
        }
    }

    #[test]
    fn a_secret_that_everybody_may_read_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.yaml");
        for (text, mode, warnings) in [
            ("skills: { entries: { x: { apiKey: hunter2 } } }", 0o644, 1),
            ("skills: { entries: { x: { apiKey: hunter2 } } }", 0o640, 0),
            ("skills: { entries: { x: { apiKey: { source: env, id: X } } } }", 0o644, 0),
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let found = NodeFile::load(&path, &home()).unwrap().warnings;
            assert_eq!(found.len(), warnings, "{text} {mode:o} {found:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,200}", lines in "([ -]{0,4}[a-z\\[\\]{}:,\"'&*!|>#%@?~0-9.-]{0,8}\n){0,12}") {
            for text in [&text, &lines] {
                let _ = NodeFile::parse(text, &home());
                let _ = CoordinatorFile::parse(text, &home());
            }
        }

        #[test]
        fn no_shape_makes_a_reader_panic(value in shape()) {
            let text = value.to_string();
            let _ = NodeFile::parse(&text, &home());
            let _ = CoordinatorFile::parse(&text, &home());
        }
    }

    /// Values with the keys of the files in the wrong and in the right places.
    fn shape() -> impl Strategy<Value = serde_json::Value> {
        let words = [
            "agents",
            "defaults",
            "list",
            "entries",
            "id",
            "skills",
            "load",
            "watch",
            "sandbox",
            "mode",
            "off",
            "apiKey",
            "env",
            "source",
            "file",
            "~/x",
            "~x",
            "labels",
            "config",
            "plugins",
            "compat",
            "slots",
            "nodes",
            "é\u{7}",
            "state_dir",
            "skillsLimits",
            "maxSkillsPromptChars",
            "coordinator",
            "http://[::1",
            "permission_mode",
            "",
        ];
        let word = proptest::sample::select(words.to_vec());
        let leaf = prop_oneof![
            word.clone().prop_map(|word| serde_json::json!(word)),
            any::<i64>().prop_map(|number| serde_json::json!(number)),
            any::<f64>().prop_map(|number| serde_json::json!(number)),
            any::<Option<bool>>().prop_map(|flag| serde_json::json!(flag)),
        ];
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                proptest::collection::hash_map(word.clone(), inner, 0..6)
                    .prop_map(|map| serde_json::json!(map)),
            ]
        })
    }
}
