//! What a child finds: environment, descriptors, directory, signals, stdin; and what becomes of its output.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod support;

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use bytes::Bytes;
use support::*;
use weft_exec::{BareOutput, Config, Ending, Exit, Spawner, StopReason, run_with_std};

#[test]
fn empty_environment_is_literally_empty() {
    let skills = Skills::new();
    let mut dump = skills.python("print(len(open('/proc/self/environ','rb').read()))");
    dump.environment.clear();
    in_both_modes(few_slots(), |executor| {
        let report = run(executor, dump.clone());
        assert_eq!((&report.ending, text(&report.stdout).as_str()), (&Ending::Exited, "0\n"), "{report:?}");
    });
}

#[test]
fn environment_is_exactly_what_was_given() {
    let skills = Skills::new();
    let mut dump =
        skills.python("import sys; sys.stdout.buffer.write(open('/proc/self/environ','rb').read())");
    let odd = OsString::from_vec(b"caf\xe9=\n'\"".to_vec());
    dump.environment = vec![("B".into(), "2".into()), ("EMPTY".into(), "".into()), ("A".into(), odd.clone())];
    in_both_modes(few_slots(), |executor| {
        let report = run(executor, dump.clone());
        assert_eq!(&report.stdout[..], b"B=2\0EMPTY=\0A=caf\xe9=\n'\"\0");
    });
}

#[test]
fn only_three_descriptors_are_open() {
    let skills = Skills::new();
    // Not close-on-exec, as a careless library leaves them.
    let careless = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&careless, rustix::io::FdFlags::empty()).unwrap();
    // listdir has one more open while it reads; it is gone when it is looked at.
    let list = skills.python(
        "import os\nprint([f for f in sorted(os.listdir('/proc/self/fd')) if os.path.exists('/proc/self/fd/'+f)])",
    );
    in_both_modes(few_slots(), |executor| {
        let report = run(executor, list.clone());
        assert_eq!(text(&report.stdout), "['0', '1', '2']\n");
    });
    assert!(careless.as_raw_fd() > 2);
}

#[test]
fn child_has_umask_077_its_own_group_its_directory_and_one_argument() {
    let skills = Skills::new();
    let look = skills.python(
        "import os,sys,resource\nm=os.umask(0)\n\
         print(oct(m), os.getpgrp()==os.getpid(), os.getcwd(), resource.getrlimit(resource.RLIMIT_CORE))\n\
         print(open('/proc/self/cmdline').read().count(chr(0)))",
    );
    let directory = fs::canonicalize(skills.0.path()).unwrap();
    in_both_modes(few_slots(), |executor| {
        let report = run(executor, look.clone());
        // Interpreter, its one option and the script: nothing of ours.
        let expected = format!("0o77 True {} (0, 0)\n3\n", directory.display());
        assert_eq!(text(&report.stdout), expected);
    });
}

#[test]
fn signals_are_default_and_unblocked() {
    let skills = Skills::new();
    // Rust ignores SIGPIPE in this process; a slot's thread blocks every signal.
    let look = skills.sh("exec cat /proc/self/status");
    in_both_modes(few_slots(), |executor| {
        let status = text(&run(executor, look.clone()).stdout);
        let signals: Vec<_> = status.lines().filter(|line| line.starts_with("Sig")).skip(1).collect();
        let zeros = "0000000000000000";
        assert_eq!(signals, ["SigPnd", "SigBlk", "SigIgn", "SigCgt"].map(|set| format!("{set}:\t{zeros}")));
    });
}

#[test]
fn input_nobody_reads_is_no_error() {
    let skills = Skills::new();
    let mut deaf = skills.sh("printf '{\"ok\":true}'");
    let mut failing = skills.sh("exit 7");
    deaf.stdin = Bytes::from(vec![b'a'; 900 * 1024]);
    failing.stdin = deaf.stdin.clone();
    in_both_modes(few_slots(), |executor| {
        for _ in 0..20 {
            let report = run(executor, deaf.clone());
            assert_eq!((report.exit, &report.stdout[..]), (Some(Exit::Code(0)), &b"{\"ok\":true}"[..]));
            assert_eq!(run(executor, failing.clone()).exit, Some(Exit::Code(7)));
        }
    });
}

#[test]
fn a_mebibyte_goes_in_and_comes_back() {
    let skills = Skills::new();
    let mut echo = skills.sh("exec tee /dev/stderr");
    echo.stdin = (0..1_u32 << 20).map(|n| (n % 251) as u8).collect();
    in_both_modes(few_slots(), |executor| {
        let (report, stderr) = run_heard(executor, echo.clone());
        assert_eq!(report.stdout, echo.stdin);
        assert_eq!(stderr, echo.stdin);
        assert_eq!((report.stdout_bytes, report.stderr_bytes, report.stderr_dropped), (1 << 20, 1 << 20, 0));
        assert!(report.stderr_tail.len() == 64 * 1024 && echo.stdin.ends_with(&report.stderr_tail));
    });
}

#[test]
fn empty_stdin_is_eof() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        assert_eq!(text(&run(executor, skills.sh("cat; echo end")).stdout), "end\n");
    });
}

#[test]
fn character_written_in_pieces_arrives_whole() {
    let skills = Skills::new();
    let pieces =
        skills.sh("printf '\\342' >&2; sleep 0.2; printf '\\211' >&2; sleep 0.2; printf '\\244\\n' >&2");
    in_both_modes(few_slots(), |executor| {
        let (report, stderr) = run_heard(executor, pieces.clone());
        assert_eq!(stderr, [0xe2, 0x89, 0xa4, 0x0a]);
        assert_eq!(report.stderr_tail, stderr);
    });
}

#[test]
fn line_without_an_end_is_passed_on_while_the_child_runs() {
    let skills = Skills::new();
    let tick = skills.sh("printf tick >&2; exec sleep 3001.25");
    in_both_modes(few_slots(), |executor| {
        let (mut running, ear) = start(executor, tick.clone());
        eventually("tick is heard", || ear.hears("tick"));
        running.stop(StopReason::Cancelled);
        assert_eq!(block_on(running.wait()).ending, Ending::Stopped(StopReason::Cancelled));
    });
}

#[test]
fn line_of_300_kb_arrives_in_order() {
    let skills = Skills::new();
    let long =
        skills.python("import sys\nsys.stderr.write('e'*300000+'\\nafter\\n')\nprint('a'*300000,end='')");
    in_both_modes(few_slots(), |executor| {
        let (mut running, ear) = start(executor, long.clone());
        let report = block_on(running.wait());
        assert_eq!(report.stdout, vec![b'a'; 300_000]);
        let heard = ear.0.lock().unwrap();
        assert_eq!(heard.stderr(), [&vec![b'e'; 300_000][..], b"\nafter\n"].concat());
        assert!(heard.chunks.iter().all(|(_, chunk)| chunk.len() <= 64 * 1024));
    });
}

#[test]
fn stderr_beyond_its_limit_is_counted_and_its_tail_kept() {
    let skills = Skills::new();
    let chatty = skills.python("import sys\nfor n in range(200000): sys.stderr.write('%09d\\n' % n)");
    in_both_modes(Config { stderr_limit: 1_000_000, ..few_slots() }, |executor| {
        let (mut running, ear) = start(executor, chatty.clone());
        let report = block_on(running.wait());
        let heard = ear.0.lock().unwrap();
        assert_eq!(heard.stderr().len(), 1_000_000);
        assert!(heard.stderr().ends_with(b"000099999\n"));
        assert_eq!(
            (heard.dropped, report.stderr_dropped, report.stderr_bytes),
            (1_000_000, 1_000_000, 2_000_000)
        );
        assert!(heard.drop_notices < 100, "{} notices", heard.drop_notices);
        assert!(report.stderr_tail.ends_with(b"000199999\n"));
    });
}

#[test]
fn stdout_of_exactly_the_limit_is_whole_and_one_byte_more_is_too_large() {
    let skills = Skills::new();
    let limit: usize = 16 << 20;
    let at = skills.python(&format!("import sys\nsys.stdout.write('a'*{limit})"));
    let over = skills.python(&format!("import sys\nsys.stdout.write('a'*{})", limit + 1));
    let endless = skills.sh("exec yes 3002.25");
    in_both_modes(few_slots(), |executor| {
        let report = run(executor, at.clone());
        assert_eq!((&report.ending, report.stdout.len()), (&Ending::Exited, limit));
        for command in [&over, &endless] {
            let report = run(executor, command.clone());
            assert_eq!(
                report.ending,
                Ending::OutputTooLarge,
                "{} bytes, {:?}",
                report.stdout_bytes,
                report.exit
            );
            assert!(report.stdout.len() <= 64 * 1024 && report.stdout_bytes > limit as u64);
        }
        assert!(processes("yes 3002.25").is_empty());
    });
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        for code in [0, 1, 127, 255] {
            assert_eq!(run(executor, skills.sh(&format!("exit {code}"))).exit, Some(Exit::Code(code)));
        }
        for signal in [6, 9, 15] {
            let report = run(executor, skills.sh(&format!("kill -{signal} $$; sleep 3003.25")));
            assert_eq!((report.ending, report.exit), (Ending::Exited, Some(Exit::Signal(signal))));
        }
    });
}

#[test]
fn report_has_times_and_pid() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        let before = std::time::SystemTime::now();
        let (mut running, ear) = start(executor, skills.sh("echo $$; sleep 0.2"));
        let report = block_on(running.wait());
        assert_eq!(text(&report.stdout), format!("{}\n", report.pid.unwrap()));
        assert_eq!(ear.0.lock().unwrap().pid, report.pid);
        assert!(report.started_at.unwrap() >= before);
        assert!(report.duration >= Duration::from_millis(200) && report.duration < PATIENCE);
    });
}

#[test]
fn bare_start_gives_output_and_exit() {
    let mut spawner = Spawner::new().unwrap();
    for _ in 0..10 {
        let output = spawner.run("/bin/cat".as_ref(), "/".as_ref(), b"text").unwrap();
        assert_eq!(output, BareOutput { stdout: b"text".to_vec(), exit: Some(Exit::Code(0)) });
        assert_eq!(run_with_std("/bin/cat".as_ref(), "/".as_ref(), b"text").unwrap(), output);
    }
    assert!(spawner.run("/bin/absent".as_ref(), "/".as_ref(), b"").is_err());
    assert!(run_with_std("/bin/absent".as_ref(), "/".as_ref(), b"").is_err());
    none_left(&children());
}
