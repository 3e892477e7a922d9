//! `weft dev` is ready in a moment, says what to type next, and that works as typed.

use std::{process::Command, time::Duration};

use rustix::process::Signal;
use serde_json::json;
use weft_testkit::{Daemon, Skill, eventually, fabric::isolate};

use crate::{
    WEFT,
    operator::{Operator, SECONDS},
};

/// Starts `weft dev` in a directory and returns it with the commands that it prints.
fn dev(dir: &std::path::Path, args: &[&str]) -> (Daemon, Vec<String>) {
    let mut all = vec!["dev", "--listen", "127.0.0.1:0"];
    all.extend(args);
    let dev = Daemon::start(std::path::Path::new(WEFT), &all, |command| {
        isolate(command);
        command.current_dir(dir);
    });
    eventually("the greeting", Duration::from_secs(20), || {
        dev.stdout().contains("Ctrl-C stops it").then_some(())
    });
    let greeting = dev.stdout();
    let commands =
        greeting.lines().filter_map(|line| line.strip_prefix("  ")).map(ToOwned::to_owned).collect();
    (dev, commands)
}

#[test]
fn dev_without_skills_offers_a_sample_and_its_commands_work_as_typed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut dev, commands) = dev(dir.path(), &[]);
    // Ready within two seconds: counted as the time that it had a core, since others may have them all.
    let ready = dev.cpu_time();
    assert!(ready < Duration::from_secs(1), "ready after {ready:?}");
    assert_eq!(commands.len(), 4, "{commands:?}");
    for command in &commands {
        let output = Command::new("sh").args(["-c", command]).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains("hello"), "{command}: {output:?}");
    }
    dev.signal(Signal::INT);
    assert!(dev.wait(Duration::from_secs(20)).success());
}

#[test]
fn dev_offers_the_skills_directory_it_stands_beside() {
    let dir = tempfile::tempdir().unwrap();
    let number = serde_json::json!({"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer", "default": 5}
    }});
    Skill::echo("mine").with("schema", number).write(&dir.path().join("skills"));
    let (_dev, commands) = dev(dir.path(), &[]);
    let call = commands.iter().find(|command| command.contains(" call ")).unwrap();
    let output = Command::new("sh").args(["-c", call]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), r#"{"n":5}"#);
}

#[test]
fn devs_one_file_holds_for_coordinator_and_node_and_is_followed() {
    let operator = Operator::new();
    for name in ["seen", "unseen"] {
        Skill::echo(name).write(&operator.path("skills"));
    }
    let list = |skills: &[&str]| json!({"agents": {"list": [{"id": "a", "skills": skills}]}});
    let file = operator.write("dev.yaml", list(&["seen"]));
    let (dev, _) = dev(&operator.path(""), &["--config", file.to_str().unwrap()]);
    let greeting = dev.stdout();
    let address = greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let call = |skill: &str| {
        let args = ["call", "--coordinator", address, "--agent", "a", skill];
        Daemon::start(std::path::Path::new(WEFT), &args, isolate).finish(Duration::from_secs(20))
    };
    assert_eq!(call("seen").code, 0);
    assert!(call("unseen").stderr.contains("SKILL_NOT_FOUND"));
    operator.write("dev.yaml", list(&["unseen"]));
    eventually("the other list", SECONDS, || (call("unseen").code == 0).then_some(()));
    assert!(call("seen").stderr.contains("SKILL_NOT_FOUND"));
}

#[test]
fn an_address_that_others_can_reach_is_refused_without_tls() {
    for role in [&["dev"][..], &["coordinator"]] {
        let mut args = role.to_vec();
        args.extend(["--listen", "0.0.0.0:0"]);
        let finished =
            Daemon::start(std::path::Path::new(WEFT), &args, isolate).finish(Duration::from_secs(20));
        assert_ne!(finished.code, 0);
        assert!(finished.stderr.contains("loopback"), "{}", finished.stderr);
    }
}
