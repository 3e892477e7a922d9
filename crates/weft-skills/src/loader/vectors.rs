//! The compatibility vectors of OpenClaw's skills that are about one node, under their numbers. Where the design
//! differs from what OpenClaw does, the test says so. Others are in `gates` (9, 11), `watch` (14), and in the node.

use std::{fs, os::unix::fs::symlink};

use weft_core::{ids::AgentId, skill::Layer};

use super::*;
use crate::testing::{config, script, skill, write};

fn key(name: &str) -> SkillKey {
    SkillKey::normalise(name).unwrap()
}

fn load(sources: Vec<Source>) -> Inventory {
    Loader::new(Config { sources, ..config::<&str>(&[]) }).load(None)
}

fn plugin(root: &Path) -> Plugins {
    write(&root.join("openclaw.plugin.json"), r#"{"id":"p","skills":["skills"]}"#);
    Plugins { paths: vec![root.to_owned()], ..Plugins::default() }
}

/// A directory with nothing but a `SKILL.md`.
fn document(root: &Path, directory: &str, text: &str) {
    write(&root.join(directory).join("SKILL.md"), text);
}

#[test]
fn vector_01_of_six_layers_each_appears_when_those_above_it_are_gone() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let agent: AgentId = "writer".parse().unwrap();
    // In an order that is not theirs.
    let sources = vec![
        Source::extra(at("extra")),
        Source::bundled(at("bundled")),
        Source::managed(at("managed")),
        Source::personal(at("home")),
        Source::project(agent.clone(), at("workspace")),
        Source::workspace(agent.clone(), at("workspace")),
    ];
    let layers = [
        (Layer::Workspace, at("workspace/skills")),
        (Layer::Project, at("workspace/.agents/skills")),
        (Layer::Personal, at("home/.agents/skills")),
        (Layer::Managed, at("managed")),
        (Layer::Bundled, at("bundled")),
        (Layer::Extra, at("extra")),
    ];
    for (_, root) in &layers {
        skill(root, "x", "x", "");
    }
    let mut loader = Loader::new(Config { sources, ..config::<&str>(&[]) });
    let mut inventory = loader.load(None);
    assert_eq!(inventory.copies.len(), 6);
    let (x, other) = (key("x"), "other".parse().unwrap());
    for (layer, root) in &layers {
        let winner = inventory.winners(Some(&agent), &x).next().unwrap();
        assert_eq!((winner.layer, &winner.directory), (*layer, &root.join("x")));
        // Nobody else has what is in the workspace.
        let all = inventory.winners(None, &x).next().unwrap();
        assert_eq!(all.layer, (*layer).max(Layer::Personal));
        assert_eq!(inventory.winners(Some(&other), &x).collect::<Vec<_>>(), [all]);
        fs::remove_dir_all(root.join("x")).unwrap();
        inventory = loader.load(Some(&inventory));
    }
    assert_eq!(inventory.winners(Some(&agent), &x).count(), 0);
}

/// OpenClaw: the later listed wins, and a plugin beats both. In weft the first wins everywhere.
#[test]
fn vector_02_the_first_extra_directory_wins_then_the_next_then_plugins_and_bundled_beats_them() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    for root in ["z_first", "a_second", "plugin/skills", "bundled"] {
        skill(&at(root), "x", "x", "");
    }
    let mut sources =
        vec![Source::bundled(at("bundled")), Source::extra(at("z_first")), Source::extra(at("a_second"))];
    for winner in ["bundled", "z_first", "a_second", "plugin/skills"] {
        let config =
            Config { sources: sources.clone(), plugins: plugin(&at("plugin")), ..config::<&str>(&[]) };
        let inventory = Loader::new(config).load(None);
        assert_eq!(inventory.winner(&key("x")).unwrap().directory, at(winner).join("x"));
        sources.drain(..sources.len().min(1));
    }
}

/// OpenClaw: the later path wins, and nobody is told. In weft it is the first.
#[test]
fn vector_03_of_two_directories_with_one_name_the_first_path_wins_and_a_diagnostic_names_both() {
    let root = tempfile::tempdir().unwrap();
    for directory in ["a/foo", "z/foo"] {
        document(root.path(), directory, "---\nname: twin\ndescription: d\n---\n");
    }
    let inventory = load(vec![Source::managed(root.path())]);
    assert_eq!(inventory.winner(&key("twin")).unwrap().directory, root.path().join("a/foo"));
    let [told] = &inventory.diagnostics[..] else { panic!("{:?}", inventory.diagnostics) };
    assert!(told.path.contains("z/foo") && told.message.contains("a/foo"), "{told}");
}

#[test]
fn vector_04_a_winner_whose_gates_fail_hides_the_lower_copy() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    skill(&at("managed"), "x", "x", r#","metadata":{"requires":{"bins":["weft_case_absent"]}}"#);
    skill(&at("extra"), "x", "x", "");
    let inventory = load(vec![Source::managed(at("managed")), Source::extra(at("extra"))]);
    let winners: Vec<_> = inventory.winners(None, &key("x")).collect();
    assert_eq!((winners.len(), winners[0].layer, winners[0].eligible()), (1, Layer::Managed, false));
    assert!(inventory.copies.iter().all(|copy| !copy.eligible()));
}

/// OpenClaw: a skill with broken JSON is not gated at all.
#[test]
fn vector_07_metadata_gates_the_same_in_every_style_and_broken_metadata_excludes() {
    let root = tempfile::tempdir().unwrap();
    for (directory, metadata) in [
        ("a", r#"metadata: {"openclaw":{"requires":{"bins":["absent"]},"primaryEnv":"KEY"}}"#),
        ("b", "metadata:\n  openclaw:\n    requires:\n      bins:\n        - absent\n    primaryEnv: KEY"),
        (
            "c",
            "metadata: |\n  {\n    openclaw: { requires: { bins: ['absent',], }, primaryEnv: 'KEY', },\n  }",
        ),
        ("d", r#"metadata: '{"openclaw":{"requires":{"bins":["absent"],},"primaryEnv":"KEY",},}'"#),
        ("e", r#"metadata: '{"openclaw":{"requires":'"#),
    ] {
        document(root.path(), directory, &format!("---\ndescription: d\n{metadata}\n---\n"));
    }
    let inventory = load(vec![Source::managed(root.path())]);
    let [a, b, c, d, broken] = &inventory.copies[..] else { panic!("{:?}", inventory.diagnostics) };
    for copy in [a, b, c, d] {
        assert_eq!(copy.definition.requirements, a.definition.requirements);
        assert_eq!(copy.definition.primary_env.as_deref(), Some("KEY"));
        assert_eq!(copy.verdicts, a.verdicts);
    }
    assert_eq!(a.verdicts.len(), 1);
    assert!(!a.eligible() && !broken.eligible());
    assert_eq!(broken.verdicts[0].gate, weft_core::skill::Gate::Metadata);
}

/// OpenClaw refuses files over 256 000 bytes, weft those over 256 KiB.
#[test]
fn vector_08_documents_that_are_odd_or_broken() {
    let root = tempfile::tempdir().unwrap();
    let padded = |bytes: usize| {
        let head = "---\nname: big\ndescription: d\n---\n";
        format!("{head}{}", "x".repeat(bytes - head.len()))
    };
    for (directory, text, loads) in [
        ("colon", "---\nname: colon\ndescription: Use when: always\n---\n".to_owned(), true),
        ("missing", "---\nname: missing\n---\n".to_owned(), false),
        ("blank", "---\nname: blank\ndescription: \"  \"\n---\n".to_owned(), false),
        ("Name-Less", "---\ndescription: d\n---\n".to_owned(), true),
        ("crlf", "---\r\nname: crlf\r\ndescription: d\r\n---\r\nBody\r\n".to_owned(), true),
        ("bom", "\u{feff}---\nname: bom\ndescription: d\n---\n".to_owned(), true),
        ("open", "---\nname: open\ndescription: d\n".to_owned(), false),
        ("plain", "# no frontmatter\n".to_owned(), false),
        ("big", padded(256_001), true),
        ("most", padded(256 * 1024).replace("big", "max"), true),
        ("more", padded(256 * 1024 + 1), false),
    ] {
        document(root.path(), directory, &text);
        let inventory = load(vec![Source::managed(root.path())]);
        let expected = usize::from(loads);
        assert_eq!(inventory.copies.len(), expected, "{directory}: {:?}", inventory.diagnostics);
        assert!(loads || !inventory.diagnostics.is_empty(), "{directory}");
        if directory == "Name-Less" {
            assert_eq!(inventory.copies[0].definition.key, key("name_less"));
        }
        fs::remove_dir_all(root.path().join(directory)).unwrap();
    }
}

/// OpenClaw follows links out of managed and personal roots, and elsewhere where `allowSymlinkTargets` says so. weft
/// has no such setting: what leaves its root is followed nowhere. A root itself may be a link.
#[test]
fn vector_16_links_that_leave_their_root_are_refused_in_every_layer() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let agent: AgentId = "writer".parse().unwrap();
    skill(&at("outside"), "x", "x", "");
    let text = "---\nname: y\ndescription: d\n---\n";
    document(&at("outside"), "y", text);
    let sources = vec![
        Source::workspace(agent.clone(), at("workspace")),
        Source::project(agent, at("workspace")),
        Source::personal(at("home")),
        Source::managed(at("managed")),
        Source::bundled(at("bundled")),
        Source::extra(at("extra")),
    ];
    for source in &sources {
        fs::create_dir_all(source.root.join("y")).unwrap();
        symlink(at("outside/x"), source.root.join("x")).unwrap();
        symlink(at("outside/y/SKILL.md"), source.root.join("y/SKILL.md")).unwrap();
    }
    let inventory = load(sources.clone());
    assert!(inventory.copies.is_empty());
    for source in &sources {
        for path in [source.root.join("x"), source.root.join("y/SKILL.md")] {
            let told: Vec<_> =
                inventory.diagnostics.iter().filter(|one| Path::new(&one.path) == path).collect();
            assert_eq!(told.len(), 1, "{}: {:?}", path.display(), inventory.diagnostics);
        }
    }
    symlink(at("outside"), at("linked")).unwrap();
    assert_eq!(load(vec![Source::managed(at("linked"))]).copies.len(), 2);
}

#[test]
fn a_source_that_is_a_skill_itself_is_one() {
    let temporary = tempfile::tempdir().unwrap();
    let executable = skill(temporary.path(), "exec", "exec", "");
    document(temporary.path(), "Docs-Search", "---\ndescription: d\n---\n");
    let docs = temporary.path().join("Docs-Search");
    let inventory = load(vec![Source::managed(&executable), Source::extra(&docs)]);
    let names: Vec<_> = inventory.copies.iter().map(|copy| copy.definition.key.as_str()).collect();
    assert_eq!(names, ["exec", "docs_search"]);
    assert!(inventory.copies[0].check_unchanged().is_ok());
    assert!(inventory.diagnostics.is_empty(), "{:?}", inventory.diagnostics);
}

#[test]
fn a_source_that_nobody_named_may_be_missing_or_empty_in_silence() {
    let temporary = tempfile::tempdir().unwrap();
    let agent: AgentId = "writer".parse().unwrap();
    fs::create_dir(temporary.path().join("skills")).unwrap();
    write(&temporary.path().join(".agents"), "a file where a directory could be");
    let sources = vec![
        Source::workspace(agent.clone(), temporary.path()),
        Source::project(agent.clone(), temporary.path()),
        Source::personal(temporary.path().join("none")),
        Source::bundled(temporary.path().join("none")),
    ];
    let mut loader = Loader::new(Config { sources, ..config::<&str>(&[]) });
    let (inventory, lines) = crate::testing::logged(|| loader.load(None));
    assert!(inventory.diagnostics.is_empty() && lines.is_empty(), "{:?} {lines:?}", inventory.diagnostics);
    // What is wrong with one that is there is told all the same.
    write(&temporary.path().join("file/skills"), "");
    let inventory = load(vec![Source::workspace(agent, temporary.path().join("file"))]);
    assert_eq!(inventory.diagnostics.len(), 1);
}

#[test]
fn agents_of_one_workspace_each_have_its_skills_for_the_price_of_one() {
    let workspace = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let directory = skill(&workspace.path().join("skills"), name, name, "");
        write(&directory.join("lib"), name);
    }
    let agents: Vec<AgentId> = ["one", "two", "three"].map(|agent| agent.parse().unwrap()).into();
    let sources: Vec<_> =
        agents.iter().map(|agent| Source::workspace(agent.clone(), workspace.path())).collect();
    let mut loader = Loader::new(Config { sources, ..config::<&str>(&[]) });
    let (inventory, lines) = crate::testing::logged(|| loader.load(None));
    assert_eq!(inventory.copies.len(), 6);
    assert!(inventory.diagnostics.is_empty());
    assert_eq!(lines.len(), 2, "one line a manifest: {lines:?}");
    assert_eq!(loader.cache.files_read(), 6, "each file is read once");
    for agent in &agents {
        for name in ["a", "b"] {
            let name = key(name);
            let copies: Vec<_> = inventory.winners(Some(agent), &name).collect();
            let [copy] = &copies[..] else { panic!("{copies:?}") };
            assert_eq!(copy.scope, Scope::Agent(agent.clone()));
            assert!(copy.check_unchanged().is_ok() && copy.digest_now().unwrap() == copy.digest);
        }
    }
    let (again, lines) = crate::testing::logged(|| loader.load(Some(&inventory)));
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!((&again, again.revision), (&inventory, 1));
}

#[test]
fn a_copy_that_wins_for_one_agent_only_is_logged_once_a_change() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    skill(&at("first/skills"), "x", "x", "");
    skill(&at("second/skills"), "x", "x", "");
    let (one, two): (AgentId, AgentId) = ("one".parse().unwrap(), "two".parse().unwrap());
    let sources = vec![
        Source::workspace(one, at("second")),
        Source::workspace(two.clone(), at("first")),
        Source::workspace(two, at("second")),
    ];
    let mut loader = Loader::new(Config { sources, ..config::<&str>(&[]) });
    let (inventory, lines) = crate::testing::logged(|| loader.load(None));
    assert_eq!((inventory.copies.len(), lines.len()), (3, 3), "{lines:?}");
    for _ in 0..3 {
        let (_, lines) = crate::testing::logged(|| loader.load(Some(&inventory)));
        assert!(lines.is_empty(), "{lines:?}");
    }
}

#[test]
fn entries_are_told_of_once_and_what_they_give_is_no_news_for_an_advert() {
    let root = tempfile::tempdir().unwrap();
    skill(root.path(), "x", "x", "");
    let entry = |value: &str| {
        let plain = weft_core::entries::Secret::Plain(value.into());
        let env = ["PATH", "A"].map(|name| (name.to_owned(), plain.clone())).into();
        weft_core::entries::Entry { env, ..Default::default() }
    };
    let configured = |value: &str| {
        let entries = ["x", "absent", "other"].map(|name| (key(name), entry(value))).into();
        Config { entries, ..config(&[root.path()]) }
    };
    let mut loader = Loader::new(configured("hunter2"));
    let (first, lines) = crate::testing::logged(|| loader.load(None));
    let told: Vec<_> = first.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0], "skills.entries: entries: there is no skill here for: absent, other");
    assert!(told[1].starts_with("skills.entries.x: entries: \"PATH\" is not set"), "{told:?}");
    assert_eq!(lines.len(), 3, "{lines:?}");
    let shown = format!("{lines:?} {first:?} {loader:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let injected = first.copies[0].injected.clone().unwrap();
    assert_eq!(injected.resolve(&loader.config.host.environment).unwrap().len(), 1);

    loader.reconfigure(configured("hunter3"));
    let (second, lines) = crate::testing::logged(|| loader.load(Some(&first)));
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(second.revision, first.revision);
    assert_ne!(second.copies, first.copies, "and still it is published");
}

#[test]
fn an_edit_in_a_workspace_of_two_agents_reaches_both() {
    let workspace = tempfile::tempdir().unwrap();
    let directory = skill(&workspace.path().join("skills"), "x", "x", "");
    let sources = ["one", "two"].map(|agent| Source::workspace(agent.parse().unwrap(), workspace.path()));
    let mut loader = Loader::new(Config { sources: sources.into(), ..config::<&str>(&[]) });
    let first = loader.load(None);
    script(&directory.join("run"), "#!/bin/sh\nedited\n");
    let text = fs::read_to_string(directory.join("skill.json")).unwrap();
    write(&directory.join("skill.json"), &text[..5]);
    let kept = loader.load(Some(&first));
    assert_eq!(kept.copies.len(), 2, "a half-written manifest keeps both");
    write(&directory.join("skill.json"), text);
    let second = loader.load(Some(&kept));
    assert_eq!(second.copies[0].digest, second.copies[1].digest);
    assert_ne!(second.copies[0].digest, first.copies[0].digest);
}
