//! What an operator's entry gives to the child of a skill, and to nothing else. Vector 12 of OpenClaw's skills.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use tempfile::TempDir;
use weft_core::{
    entries::{Entry, Secret},
    event::EventKind,
    ids::SkillKey,
    outcome::{Final, Outcome, ResultBody},
};
use weft_node::{Config, Invocation, Local};

/// Prints the variables that these tests are about. Needs nothing of its environment.
const PROGRAM: &str = r#"#!/bin/sh
printf '{"own":"%s","preset":"%s","loader":"%s"}' "${WEFTTEST_OWN-unset}" "${WEFTTEST_PRESET-unset}" "${LD_PRELOAD-unset}"
"#;

struct Fixture {
    scratch: TempDir,
    config: Config,
}

impl Fixture {
    /// A node on which `WEFTTEST_PRESET` is set.
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let skills = scratch.path().join("skills");
        fs::create_dir(&skills).unwrap();
        let mut config = Config::new(scratch.path().join("state"), vec![skills]);
        config.host.environment = [("WEFTTEST_PRESET", "the node's")].into_iter().collect();
        Self { scratch, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn skill(&self, name: &str, program: &str) {
        let directory = self.path("skills").join(name);
        write(&directory.join("run"), program);
        fs::set_permissions(directory.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = format!(
            r#"{{"name":"{name}","description":"d","class":"safe","entry":"run","env_allow":["WEFTTEST_PRESET"]}}"#
        );
        write(&directory.join("skill.json"), &manifest);
    }

    fn entry(&mut self, skill: &str, env: &[(&str, Secret)]) {
        let env = env.iter().map(|(name, secret)| ((*name).to_owned(), secret.clone())).collect();
        self.config.entries.insert(key(skill), Entry { env, ..Entry::default() });
    }

    async fn build(&self) -> Local {
        let config = self.config.clone();
        tokio::task::spawn_blocking(move || Local::build(config)).await.unwrap().unwrap()
    }
}

fn key(name: &str) -> SkillKey {
    SkillKey::normalise(name).unwrap()
}

fn plain(value: &str) -> Secret {
    Secret::Plain(value.to_owned())
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn begin(local: &Local, skill: &str) -> Invocation {
    let inventory = local.inventory();
    let copy = inventory.winner(&key(skill)).unwrap();
    local.invoke(copy, Bytes::from_static(b"{}"), None).unwrap()
}

async fn end(mut invocation: Invocation) -> Final {
    loop {
        if let EventKind::Finished(last) = invocation.next().await.unwrap().kind {
            return *last;
        }
    }
}

/// What a child printed.
fn printed(last: &Final) -> String {
    assert_eq!(last.outcome, Outcome::Succeeded, "{}", last.message);
    let ResultBody::Inline(bytes) = &last.result else { panic!("{last:?}") };
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn vector_12_each_child_sees_its_own_values_and_nothing_is_left_afterwards() {
    // A local node has one reader of news, so that what runs at the same time is on two of them in one process.
    let node = async |value: &str| {
        let mut fixture = Fixture::new();
        fixture.skill("given", PROGRAM);
        fixture.skill("without", PROGRAM);
        fixture.skill("crash", "#!/bin/sh\nkill -KILL $$\n");
        for skill in ["given", "crash"] {
            let variables = [
                ("WEFTTEST_OWN", plain(value)),
                ("WEFTTEST_PRESET", plain("mine")),
                ("LD_PRELOAD", plain("/evil.so")),
            ];
            fixture.entry(skill, &variables);
        }
        fixture.entry("without", &[("WEFTTEST_OWN", plain(" "))]);
        let local = fixture.build().await;
        let told = local.inventory().diagnostics.clone();
        assert_eq!(told.iter().filter(|one| one.message.contains("LD_PRELOAD")).count(), 2, "{told:?}");
        (fixture, local)
    };
    let (one, two) = tokio::join!(node("1"), node("2"));
    let expected = |own| format!(r#"{{"own":"{own}","preset":"the node's","loader":"unset"}}"#);
    for _ in 0..3 {
        let (first, second) = tokio::join!(end(begin(&one.1, "given")), end(begin(&two.1, "given")));
        assert_eq!((printed(&first), printed(&second)), (expected("1"), expected("2")));
    }
    for (_, local) in [one, two] {
        assert_eq!(end(begin(&local, "crash")).await.outcome, Outcome::Failed);
        assert_eq!(printed(&end(begin(&local, "without")).await), expected("unset"));
        local.close().await;
    }
    for name in ["WEFTTEST_OWN", "WEFTTEST_PRESET", "LD_PRELOAD"] {
        assert_eq!(std::env::var_os(name), None);
    }
}

#[tokio::test]
async fn a_secret_in_a_file_is_read_for_each_start_and_without_it_nothing_starts() {
    let mut fixture = Fixture::new();
    fixture.skill("one", PROGRAM);
    let file = fixture.path("token");
    write(&file, "hunter2\n");
    fixture.entry("one", &[("WEFTTEST_OWN", Secret::File(file.clone()))]);
    let local = fixture.build().await;
    assert!(printed(&end(begin(&local, "one")).await).contains(r#""own":"hunter2""#));
    write(&file, "hunter3");
    assert!(printed(&end(begin(&local, "one")).await).contains(r#""own":"hunter3""#));
    fs::remove_file(&file).unwrap();
    let last = end(begin(&local, "one")).await;
    assert_eq!((last.outcome, last.started), (Outcome::NotStarted, Some(false)));
    let expected =
        format!("skills.entries.one.env gives WEFTTEST_OWN no value: the file {}: ", file.display());
    assert!(last.message.starts_with(&expected), "{}", last.message);
    write(&file, "x\0hunter4");
    let last = end(begin(&local, "one")).await;
    assert_eq!(last.outcome, Outcome::NotStarted);
    assert!(!last.message.contains("hunter"), "{}", last.message);
    write(&file, "hunter5");
    assert!(printed(&end(begin(&local, "one")).await).contains(r#""own":"hunter5""#));
    local.close().await;
}

#[tokio::test]
async fn loader_variables_of_an_entry_are_set_where_the_operator_allows_them() {
    let mut fixture = Fixture::new();
    fixture.skill("one", PROGRAM);
    // Loads nothing, and is said to.
    fixture.entry("one", &[("LD_PRELOAD", plain("/nonexistent.so"))]);
    fixture.config.allow_loader_variables = true;
    let local = fixture.build().await;
    assert!(printed(&end(begin(&local, "one")).await).contains(r#""loader":"/nonexistent.so""#));
    local.close().await;
}
