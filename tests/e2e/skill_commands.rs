//! What an author does before anybody else sees the skill: `weft skill new`, `lint` and `test`.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use weft_testkit::{Daemon, Finished, Skill, Spec, eventually, fabric::isolate, process::processes_with};

use crate::{WEFT, fabric, unique_sleep};

/// A directory to work in, and no coordinator.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn spawn(&self, args: &[&str]) -> Daemon {
        Daemon::start(Path::new(WEFT), args, |command| {
            isolate(command);
            command.current_dir(self.0.path());
        })
    }

    fn weft(&self, args: &[&str]) -> Finished {
        self.spawn(args).finish(Duration::from_secs(60))
    }

    fn write(&self, skill: &Skill) -> PathBuf {
        skill.write(&self.0.path().join("skills"))
    }
}

#[test]
fn a_new_skill_lints_clean_and_tests_green() {
    for options in [
        &[][..],
        &["--lang", "python"],
        &["--lang", "python", "--class", "mutating", "--instructions"],
        &["--class", "dangerous", "--dir", "a b/c"],
    ] {
        let bench = Bench::new();
        let mut new = vec!["skill", "new", "greeter"];
        new.extend(options);
        let written = bench.weft(&new);
        assert_eq!(written.code, 0, "{options:?}: {written:?}");
        let commands: Vec<_> = written.stdout.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        let [lint, test, dev] = commands[..] else { panic!("{written:?}") };
        assert!(dev.contains(" dev"), "{dev}");
        for command in [&format!("{lint} --strict"), test] {
            let typed = Daemon::start(Path::new("sh"), &["-c", command], |command| {
                isolate(command);
                command.current_dir(bench.0.path());
            })
            .finish(Duration::from_secs(60));
            assert_eq!(typed.code, 0, "{options:?}: {command}: {typed:?}");
            assert_eq!(command == test, typed.stdout.contains("hello from weft"), "{typed:?}");
        }
    }
}

#[test]
fn new_never_overwrites_and_takes_names_that_manifests_take() {
    let bench = Bench::new();
    assert_eq!(bench.weft(&["skill", "new", "greeter"]).code, 0);
    let entry = bench.0.path().join("skills/greeter/run.sh");
    fs::write(&entry, "mine").unwrap();
    let again = bench.weft(&["skill", "new", "greeter", "--lang", "python"]);
    assert_eq!((again.code, fs::read_to_string(&entry).unwrap().as_str()), (2, "mine"), "{again:?}");
    assert!(!entry.with_file_name("run.py").exists());
    for name in ["Greeter", "a-b", "../x", "", &"a".repeat(65)] {
        assert_eq!(bench.weft(&["skill", "new", name]).code, 2, "{name}");
    }
}

#[test]
fn lint_reports_what_a_node_would_and_fails_on_errors_only() {
    let bench = Bench::new();
    let broken = bench.write(&Skill::echo("broken").with("class", json!("harmless")));
    let odd =
        bench.write(&Skill::echo("odd").with("colour", json!("blue")).with("timeout_seconds", json!(5)));
    let finished = bench.weft(&["skill", "lint"]);
    let manifest = broken.join("skill.json");
    assert_eq!(finished.code, 1, "{finished:?}");
    let error = format!("{}:1: class: ", manifest.display());
    assert!(finished.stdout.contains(&error) && finished.stdout.contains("[error]"), "{finished:?}");
    let odd = odd.to_str().unwrap();
    for (args, code) in [(&["skill", "lint", odd][..], 0), (&["skill", "lint", odd, "--strict"], 1)] {
        let finished = bench.weft(args);
        assert_eq!(finished.code, code, "{finished:?}");
        assert!(
            finished.stdout.contains("unknown member") && finished.stdout.contains("[warning]"),
            "{finished:?}"
        );
    }
    let empty = bench.0.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_eq!(bench.weft(&["skill", "lint", empty.to_str().unwrap()]).code, 2);
    assert_eq!(bench.weft(&["skill", "lint", "gone"]).code, 2);
}

#[test]
fn lint_shows_each_gate_with_its_verdict_on_this_host() {
    let bench = Bench::new();
    let needs = json!({"requires": {"bins": ["sh", "no_such_program"]}});
    bench.write(&Skill::echo("needy").with("metadata", needs).with("timeout_seconds", json!(5)));
    let finished = bench.weft(&["skill", "lint", "--strict"]);
    assert_eq!(finished.code, 0, "a host that lacks a program is no fault of the skill: {finished:?}");
    for line in ["needy", "cannot run here", "pass requires.bins sh", "FAIL requires.bins no_such_program"] {
        assert!(finished.stdout.contains(line), "{line}: {finished:?}");
    }
    let listed: Value = serde_json::from_str(&bench.weft(&["skill", "lint", "-o", "json"]).stdout).unwrap();
    let skill = &listed["skills"][0];
    assert_eq!((&skill["eligible"], &skill["verdicts"][1]["passed"]), (&json!(false), &json!(false)));
}

/// A skill about which there is nothing to say.
fn good(program: &str) -> Skill {
    Skill::new("good", program).with("timeout_seconds", json!(5))
}

#[test]
fn lint_gives_each_advice_where_it_belongs() {
    let undescribed = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let python = json!({"requires": {"bins": ["sh"]}});
    let long = "0123456789".repeat(7);
    let shell = "#!/bin/sh\nexec cat\n";
    let cases = [
        (good(shell).with("class", Value::Null), "skill.json:1: class: class is missing"),
        (good(shell).with("timeout_seconds", Value::Null), "skill.json:1: timeout_seconds: "),
        (good(shell).with("schema", undescribed), "skill.json:1: schema: member \"path\""),
        (good(shell).with("metadata", python).with("env_allow", json!([])), "skill.json:1: env_allow: "),
        (good("#!/usr/bin/env sh\nexec cat\n").with("env_allow", json!([])), "skill.json:1: env_allow: "),
        (good("#!/no/such/interpreter\n"), "run:1: interpreter: "),
        (good("#!/usr/bin/env no_such_program\n"), "run:1: interpreter: "),
        (good("exec cat\n"), "run:1: interpreter: "),
        (good("#!/bin/sh\r\nexec cat\n"), "run:1: shebang: "),
        (good(shell).with("description", json!(long.repeat(15))), "skill.json:1: description: "),
        (good(shell).with("name", json!(&long[..60])), "skill.json:1: tool_name: "),
    ];
    for (skill, expected) in cases {
        let bench = Bench::new();
        bench.write(&skill);
        let finished = bench.weft(&["skill", "lint"]);
        assert_eq!(finished.code, 0, "{expected}: {finished:?}");
        let advice: Vec<_> = finished.stdout.lines().filter(|line| line.ends_with("[advice]")).collect();
        assert_eq!(advice.len(), 1, "{expected}: {finished:?}");
        assert!(advice[0].contains(expected), "{expected}: {finished:?}");
        assert_eq!(bench.weft(&["skill", "lint", "--strict"]).code, 1, "{expected}");
    }
}

#[test]
fn what_test_says_is_what_the_fabric_says() {
    let strict =
        json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "default": 7}}});
    let absent = json!({"requires": {"bins": ["no_such_program"]}});
    let skills = [
        Skill::echo("fine").with("schema", strict),
        Skill::sh("failing", "echo why >&2\nexit 7"),
        Skill::sh("killed", "kill -9 $$"),
        Skill::sh("slow", "echo begun >&2\nexec sleep 60").with("timeout_seconds", json!(1)),
        Skill::sh("chatty", "echo this is no JSON"),
        Skill::sh("endless", "exec cat /dev/zero"),
        Skill::new("unstartable", "#!/no/such/interpreter\n"),
        Skill::sh("environment", "env >&2\necho '{}'").with("env_allow", json!(["PATH", "WEFT_SET"])),
        Skill::sh("needy", "exit 0").with("metadata", absent),
        Skill::sh("broken", "exit 0").with("class", json!("harmless")),
    ];
    let fabric = fabric();
    let _node = fabric.node("host", &skills, &Spec::new());
    let dir = fabric.skills_of("host");
    for (name, args, code) in [
        ("fine", &["n=5"][..], 0),
        ("fine", &["--args", r#"{ "n" : 12345678901234567890 }"#], 0),
        ("fine", &["--args", "{}"], 2),
        ("fine", &["n=x"], 2),
        ("fine", &["--args", r#"{"n":1,"n":2}"#], 2),
        ("failing", &[], 1),
        ("killed", &[], 1),
        ("slow", &[], 124),
        ("chatty", &[], 1),
        ("endless", &[], 1),
        ("unstartable", &[], 1),
        ("needy", &[], 3),
        ("broken", &[], 3),
    ] {
        let mut call = vec!["call", name];
        call.extend(args);
        let path = dir.join(name);
        let mut test = vec!["skill", "test", path.to_str().unwrap()];
        test.extend(args);
        let (called, tested) = (fabric.weft(&call), fabric.weft(&test));
        let what = format!("{name} {args:?}: {called:?} {tested:?}");
        assert_eq!((called.code, tested.code), (code, code), "{what}");
        assert_eq!(called.stdout, tested.stdout, "{what}");
        if !["needy", "broken"].contains(&name) {
            // Its own lines, and why: the same words, but for the name of the node.
            for line in called.stderr.lines() {
                let line = line.split(" on n-").next().unwrap();
                assert!(tested.stderr.contains(line), "{line}: {what}");
            }
        }
    }
    let same = |finished: Finished| {
        let mut lines: Vec<_> = finished.stderr.lines().map(ToOwned::to_owned).collect();
        lines.retain(|line| line.contains('='));
        lines.sort();
        lines
    };
    let path = dir.join("environment");
    let tested = fabric.weft(&["skill", "test", path.to_str().unwrap()]);
    assert_eq!(same(fabric.weft(&["call", "environment"])), same(tested));
}

#[test]
fn test_without_args_tries_what_the_schema_names_but_never_guesses_for_a_risky_skill() {
    let bench = Bench::new();
    let member = json!({"type": "string", "description": "d", "examples": ["/var/log"]});
    let schema = json!({"type": "object", "required": ["path"], "properties": {"path": member}});
    let safe = bench.write(&Skill::echo("safe").with("schema", schema.clone()));
    let finished = bench.weft(&["skill", "test", safe.to_str().unwrap()]);
    assert_eq!((finished.code, finished.stdout.as_str()), (0, r#"{"path":"/var/log"}"#), "{finished:?}");
    assert!(finished.stderr.contains("SUCCEEDED: exit code 0 after"), "{finished:?}");
    let risky = Skill::echo("risky").with("schema", schema).with("class", json!("mutating"));
    let risky = bench.write(&risky);
    let risky = risky.to_str().unwrap();
    assert_eq!(bench.weft(&["skill", "test", risky]).code, 2);
    assert_eq!(bench.weft(&["skill", "test", risky, "path=/"]).stdout, r#"{"path":"/"}"#);
    let skills = bench.weft(&["skill", "test", "skills"]);
    assert_eq!(skills.code, 2);
    assert!(skills.stderr.contains("holds several skills") && skills.stderr.contains("/risky"), "{skills:?}");
}

#[test]
fn test_as_json_is_the_events_to_the_final_record() {
    let bench = Bench::new();
    let dir = bench.write(&Skill::sh("talker", "echo one >&2\nprintf '{\"a\":1.10}'\nsleep 77 &"));
    let finished = bench.weft(&["skill", "test", dir.to_str().unwrap(), "-o", "json"]);
    let events: Vec<Value> =
        finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds = ["admitted", "dispatched", "started", "stderr", "finished"];
    assert_eq!(events.len(), kinds.len(), "{finished:?}");
    for (index, (event, kind)) in events.iter().zip(kinds).enumerate() {
        assert!(event[kind].is_object(), "{event}");
        assert_eq!(event["sequence"], (index + 1).to_string());
    }
    let last = &events[4]["finished"];
    assert_eq!((&last["outcome"], &last["leftoversKilled"]), (&json!("OUTCOME_SUCCEEDED"), &json!(1)));
    assert_eq!(last["stdoutBytes"], "10");
}

#[test]
fn ctrl_c_ends_the_whole_tree_of_a_test_and_twice_at_once() {
    let bench = Bench::new();
    let sleep = unique_sleep();
    let program = format!("{sleep}.1 &\nsetsid {sleep}.2 &\necho started >&2\nwait");
    let polite = bench.write(&Skill::sh("polite", &program));
    let deaf = bench.write(&Skill::sh("deaf", &format!("trap '' TERM\n{program}")));
    for (dir, signals) in [(polite, 1), (deaf, 2)] {
        let mut test = bench.spawn(&["skill", "test", dir.to_str().unwrap()]);
        test.wait_for_line("started", Duration::from_secs(20));
        eventually("its descendants", Duration::from_secs(10), || {
            (processes_with(&sleep).len() >= 2).then_some(())
        });
        test.signal(Signal::INT);
        let first = Instant::now();
        if signals == 2 {
            test.wait_for_line("once more to end it at once", Duration::from_secs(20));
            test.signal(Signal::INT);
        }
        let finished = test.finish(Duration::from_secs(20));
        assert_eq!(finished.code, 130, "{finished:?}");
        assert!(finished.stderr.contains("CANCELLED"), "{finished:?}");
        assert!(first.elapsed() < weft_core::limits::STOP_GRACE, "without its grace: {finished:?}");
        assert_eq!(processes_with(&sleep), Vec::<u32>::new());
    }
}

#[test]
fn instructions_are_linted_and_cannot_be_tested() {
    let bench = Bench::new();
    let dir = bench.0.path().join("skills/reading");
    fs::create_dir_all(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.join("SKILL.md"), "---\nname: reading\ndescription: How to read.\n---\nRead.\n").unwrap();
    let path = dir.to_str().unwrap();
    assert_eq!(bench.weft(&["skill", "lint", path, "--strict"]).code, 0);
    let tested = bench.weft(&["skill", "test", path]);
    assert_eq!(tested.code, 3, "{tested:?}");
    assert!(tested.stderr.contains("SKILL_NOT_EXECUTABLE"), "{tested:?}");
}

#[test]
fn completions_know_every_command() {
    let bench = Bench::new();
    let help = bench.weft(&["--help"]).stdout;
    let commands: Vec<_> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 13, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = bench.weft(&["completions", shell]);
        assert_eq!(script.code, 0, "{script:?}");
        for command in commands.iter().chain(&["lint", "--strict", "--skills"]) {
            assert!(script.stdout.contains(command.trim_start_matches('-')), "{shell}: {command}");
        }
    }
}
