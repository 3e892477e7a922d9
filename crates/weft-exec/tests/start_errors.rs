//! Each way a program can fail to start has its own cause, and none leaves anything behind.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, OpenOptions};
use std::time::{Duration, Instant};

use support::*;
use weft_exec::{Command, Ending, Executor, Exit, StartError, StopReason};

fn cannot_start(executor: &Executor, command: Command) -> StartError {
    let report = run(executor, command);
    assert_eq!((report.pid, report.exit, report.started_at), (None, None, None));
    match report.ending {
        Ending::CannotStart(error) => error,
        other => panic!("expected a start error, not {other:?}"),
    }
}

#[test]
fn each_cause_is_named() {
    let skills = Skills::new();
    let command =
        |name: &str, content: &str, mode| skills.command(skills.file(name, content.as_bytes(), mode));
    let missing = skills.command(skills.path("missing"));
    let plain = command("plain", "#!/bin/sh\necho {}\n", 0o644);
    let bare = command("bare", "echo {}\n", 0o755);
    let empty = command("empty", "", 0o755);
    let directory = skills.command(skills.0.path().to_owned());
    let no_interpreter = command("no_interpreter", "#! /weft/no/such/interp -x\n", 0o755);
    let windows = command("windows", "#!/bin/sh\r\necho {}\r\n", 0o755);
    let by_script = command("by_script", &format!("#!{}\n", skills.path("no_interpreter").display()), 0o755);
    let by_plain = command("by_plain", &format!("#!{}\n", skills.path("plain").display()), 0o755);
    let mut nowhere = skills.sh("echo");
    nowhere.directory = skills.path("nowhere");
    let mut nul = skills.sh("echo");
    nul.environment.push(("A".into(), "x\0y".into()));
    let mut huge = skills.sh("echo");
    huge.environment.push(("A".into(), "x".repeat(200_000).into()));

    in_both_modes(few_slots(), |executor| {
        let cause = |command: &Command| cannot_start(executor, command.clone());
        let said = |command: &Command| cause(command).to_string();
        assert!(matches!(cause(&missing), StartError::EntryMissing { .. }));
        assert!(matches!(cause(&plain), StartError::NotExecutable { .. }));
        assert!(matches!(cause(&directory), StartError::NotExecutable { .. }));
        assert!(
            said(&bare).ends_with("is not an executable format: it has no `#!` line naming an interpreter")
        );
        assert!(matches!(cause(&empty), StartError::NotExecutableFormat { .. }));
        assert!(said(&no_interpreter).ends_with("asks for `/weft/no/such/interp`"));
        assert!(said(&by_script).ends_with("asks for `/weft/no/such/interp`"));
        assert!(matches!(cause(&by_plain), StartError::InterpreterNotExecutable { .. }));
        let crlf = cause(&windows);
        assert!(
            matches!(&crlf, StartError::InterpreterMissing { carriage_return: true, interpreter, .. } if interpreter == "/bin/sh\r")
        );
        assert!(crlf.to_string().contains("carriage return"));
        assert!(matches!(cause(&nowhere), StartError::Directory { errno: 2, .. }));
        assert!(said(&nul).ends_with("environment variable `A` contains a NUL byte"));
        assert_eq!(cause(&huge), StartError::EnvironmentTooLarge);
    });
    assert!(children().is_empty());
}

#[test]
fn missing_program_behind_env_is_an_exit_not_a_start_error() {
    let skills = Skills::new();
    let mut command = skills.command(skills.file("env", b"#!/usr/bin/env weft_no_such_interp\n", 0o755));
    command.environment.clear();
    in_both_modes(few_slots(), |executor| {
        let (report, stderr) = run_heard(executor, command.clone());
        assert_eq!((report.ending, report.exit), (Ending::Exited, Some(Exit::Code(127))));
        assert!(text(&stderr).contains("weft_no_such_interp"));
    });
}

#[test]
fn busy_file_is_tried_again_until_it_is_free() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        // A script is read by its interpreter; only a real program can be busy.
        let program = skills.path("true");
        fs::copy("/bin/true", &program).unwrap();
        let writer = OpenOptions::new().append(true).open(&program).unwrap();
        let begun = Instant::now();
        let error = cannot_start(executor, skills.command(program.clone()));
        assert!(matches!(error, StartError::TextFileBusy { .. }), "{error:?}");
        assert!(begun.elapsed() >= Duration::from_secs(1));

        let (mut running, ear) = start(executor, skills.command(program.clone()));
        assert!(ear.0.lock().unwrap().pid.is_none());
        drop(writer);
        assert_eq!(block_on(running.wait()).exit, Some(Exit::Code(0)));
        fs::remove_file(&program).unwrap();
    });
}

#[test]
fn stop_during_the_retries_means_never_started() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        let program = skills.path("true");
        fs::copy("/bin/true", &program).unwrap();
        let writer = OpenOptions::new().append(true).open(&program).unwrap();
        let (mut running, _) = start(executor, skills.command(program.clone()));
        running.stop(StopReason::Cancelled);
        let report = block_on(running.wait());
        assert_eq!((report.ending, report.pid), (Ending::Stopped(StopReason::Cancelled), None));
        drop(writer);
        fs::remove_file(&program).unwrap();
    });
}

#[test]
fn running_out_of_descriptors_is_named() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        let hog: Vec<_> =
            std::iter::from_fn(|| fs::File::open("/dev/null").ok()).take(open_limit()).collect();
        let running = executor.try_start(skills.command("/bin/true".into()), Box::new(Ear::default()));
        let report = block_on(running.unwrap().wait());
        drop(hog);
        assert!(
            matches!(report.ending, Ending::CannotStart(StartError::TooManyFiles { .. })),
            "{:?}",
            report.ending
        );
        assert_eq!(run(executor, skills.command("/bin/true".into())).exit, Some(Exit::Code(0)));
    });
}

fn open_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    1024
}
