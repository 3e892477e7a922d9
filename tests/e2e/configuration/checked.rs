//! `weft config` tells what is wrong in a file before a daemon meets it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use weft_testkit::{Daemon, Finished, fabric::isolate};

use crate::{WEFT, operator::Operator};

fn config(args: &[&str]) -> Finished {
    let mut all = vec!["config"];
    all.extend(args);
    Daemon::start(Path::new(WEFT), &all, |command| {
        isolate(command);
        command.env("HOME", "/home/somebody");
    })
    .finish(Duration::from_secs(20))
}

fn check(file: &Path, more: &[&str]) -> Finished {
    let mut args = vec!["check", file.to_str().unwrap()];
    args.extend(more);
    config(&args)
}

#[test]
fn a_good_file_is_said_to_be_good_for_whoever_would_take_it() {
    let operator = Operator::new();
    for (text, roles) in [
        (r#"{"agents": {"list": [{"id": "main", "workspace": "~/w"}]}}"#, "a coordinator and a node"),
        ("", "a coordinator and a node"),
        ("slots: 2", "a node"),
        ("listen: 127.0.0.1:1", "a coordinator"),
    ] {
        let file = operator.write("any.yaml", text);
        let told = check(&file, &[]);
        let expected = format!("{}: good for {roles}\n", file.display());
        assert_eq!((told.code, told.stdout, told.stderr), (0, expected, String::new()), "{text}");
    }
    let file = operator.write("any.yaml", "slots: 2");
    assert_eq!(check(&file, &["--role", "node"]).code, 0);
    let told = check(&file, &["--role", "coordinator"]);
    assert_eq!((told.code, told.stdout.as_str()), (2, ""));
    assert!(told.stderr.contains("a coordinator would refuse it"), "{}", told.stderr);
}

#[test]
fn each_mistake_is_told_with_its_line_its_path_and_what_was_meant() {
    let operator = Operator::new();
    for (text, expected) in [
        (
            "agents:\n  defaults:\n    skils: [weather]",
            &["FILE:3: agents.defaults.skils: unknown key; did you mean skills?"][..],
        ),
        (
            "slots: none\nskills:\n  load:\n    extraDir: [/x]",
            &[
                "FILE:1: slots: must be a number, not text",
                "FILE:4: skills.load.extraDir: unknown key; did you mean extraDirs?",
            ],
        ),
        ("name: [", &["FILE:"]),
        ("listn: 127.0.0.1:1", &["FILE:1: listn: unknown key; did you mean listen?"]),
        // A word of one daemon alone says whose file it is.
        ("labls: { zone: a }", &["FILE:1: labls: unknown key; did you mean labels?"]),
    ] {
        let file = operator.write("wrong.yaml", text);
        let told = check(&file, &[]);
        assert_eq!((told.code, told.stdout.as_str()), (2, ""), "{text}: {told:?}");
        for line in expected {
            let line = line.replace("FILE", file.to_str().unwrap());
            assert!(told.stderr.contains(&line), "{text}: {line}: {}", told.stderr);
        }
    }
    let missing = check(Path::new("/nonexistent.yaml"), &[]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("/nonexistent.yaml"), "{}", missing.stderr);
}

#[test]
fn what_is_odd_is_a_warning_and_no_secret_is_ever_shown() {
    let operator = Operator::new();
    let file = operator.write("odd.yaml", "skills: { entries: { x: { apiKey: hunter2 } } }");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let told = check(&file, &[]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(
        told.stderr.contains("warning: ") && told.stderr.contains("may be read by every user"),
        "{told:?}"
    );
    let wrong =
        operator.write("wrong.yaml", "skills: { entries: { x: { apiKey: hunter2, enabled: hunter2 } } }");
    let refused = check(&wrong, &[]);
    assert_eq!(refused.code, 2);
    assert!(!format!("{told:?} {refused:?}").contains("hunter2"));
}

#[test]
fn a_daemon_refuses_at_its_start_what_check_refuses() {
    let operator = Operator::new();
    let file: PathBuf = operator.write("wrong.yaml", "nam: x");
    for role in ["coordinator", "node"] {
        let finished = Daemon::start(Path::new(WEFT), &[role, "--config", file.to_str().unwrap()], isolate)
            .finish(Duration::from_secs(20));
        assert_eq!(finished.code, 2, "{finished:?}");
        let expected = format!("{}:1: nam: unknown key; did you mean name?", file.display());
        assert!(finished.stderr.contains(&expected), "{}", finished.stderr);
    }
}

#[test]
fn the_samples_pass_their_own_check_also_through_a_pipe() {
    let operator = Operator::new();
    for role in ["coordinator", "node"] {
        let sample = config(&["sample", role]);
        assert_eq!(sample.code, 0);
        let file = operator.write("sample.yaml", &sample.stdout);
        let told = check(&file, &["--role", role]);
        assert_eq!((told.code, told.stderr.as_str()), (0, ""), "{told:?}");

        let mut print =
            Command::new(WEFT).args(["config", "sample", role]).stdout(Stdio::piped()).spawn().unwrap();
        let piped = Command::new(WEFT)
            .args(["config", "check", "-", "--role", role])
            .stdin(print.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(print.wait().unwrap().success());
        let said = String::from_utf8_lossy(&piped.stdout);
        assert_eq!(said, format!("stdin: good for a {role}\n"), "{piped:?}");
    }
}
