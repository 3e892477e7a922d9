//! Whatever a skill starts is gone when its report is out.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::*;
use weft_exec::{Config, Containment, Ending, Executor, Exit, Mark, StopReason};

const CANCELLED: Ending = Ending::Stopped(StopReason::Cancelled);

fn quick_grace() -> Config {
    Config { stop_grace: Duration::from_millis(300), ..few_slots() }
}

#[test]
fn timeout_ends_every_descendant() {
    let skills = Skills::new();
    let mut tree = skills.sh("cat >/dev/null\nsleep 98765.1 &\nsetsid sleep 98765.2 &\n\
        ( setsid sh -c 'sleep 98765.3 & exec sleep 98765.4' & )\necho started >&2\nwait");
    tree.budget = Duration::from_secs(1);
    in_both_modes(quick_grace(), |executor| {
        let (mut running, ear) = start(executor, tree.clone());
        eventually("the tree is up", || processes("sleep 98765.").len() >= 4 && ear.hears("started"));
        let report = block_on(running.wait());
        assert_eq!(report.ending, Ending::TimedOut);
        none_left(&processes("sleep 98765."));
        none_left(&children());
    });
}

#[test]
fn descendants_that_ignore_sigterm_are_killed_after_the_grace() {
    let skills = Skills::new();
    let stubborn = skills.sh("trap '' TERM\nsetsid sh -c 'trap \"\" TERM; sleep 98764.1; sleep 98764.2' &\n\
        sleep 98764.3\nsleep 98764.4");
    in_both_modes(quick_grace(), |executor| {
        let (mut running, _) = start(executor, stubborn.clone());
        eventually("the tree is up", || processes("sleep 98764.").len() >= 3);
        let begun = Instant::now();
        running.stop(StopReason::Cancelled);
        let report = block_on(running.wait());
        assert_eq!((report.ending, report.exit), (CANCELLED, Some(Exit::Signal(9))));
        assert!(begun.elapsed() >= Duration::from_millis(300));
        none_left(&processes("98764."));
        none_left(&children());
    });
}

#[test]
fn background_child_that_holds_the_pipes_does_not_hold_the_result() {
    let skills = Skills::new();
    let leaving = skills.sh("sleep 4512.125 &\nprintf '{\"started\":true}'");
    in_both_modes(few_slots(), |executor| {
        let begun = Instant::now();
        let report = run(executor, leaving.clone());
        assert_eq!((&report.ending, report.exit), (&Ending::Exited, Some(Exit::Code(0))));
        assert_eq!(text(&report.stdout), "{\"started\":true}");
        assert_eq!(report.leftovers_killed, 1);
        assert!(begun.elapsed() >= Duration::from_secs(2), "the drain is for its stderr");
        assert!(report.duration < Duration::from_secs(2), "{:?}", report.duration);
        none_left(&processes("sleep 4512.125"));
        none_left(&children());
    });
}

#[test]
fn background_child_without_the_pipes_is_not_waited_for() {
    let skills = Skills::new();
    let leaving = skills.sh("setsid sleep 4513.125 >/dev/null 2>&1 </dev/null &\nsetsid sleep 4513.125 >/dev/null 2>&1 &\necho ok");
    in_both_modes(Config { output_drain: PATIENCE, ..few_slots() }, |executor| {
        let begun = Instant::now();
        let report = run(executor, leaving.clone());
        assert_eq!((text(&report.stdout).as_str(), report.leftovers_killed), ("ok\n", 2));
        assert!(begun.elapsed() < PATIENCE / 2);
        none_left(&processes("sleep 4513.125"));
    });
}

#[test]
fn output_of_leftovers_is_heard_on_stderr_and_never_in_the_result() {
    let skills = Skills::new();
    // The leftover waits until the leader is gone, then writes to both.
    let late = skills
        .sh("L=$$\n(while [ -d /proc/$L ] && ! grep -q '^State:.Z' /proc/$L/status; do :; done; sleep 0.2; \
         echo late; echo late >&2; exec sleep 4514.125) &\nprintf result");
    in_both_modes(Config { output_drain: Duration::from_secs(4), ..few_slots() }, |executor| {
        let (report, stderr) = run_heard(executor, late.clone());
        assert_eq!(text(&report.stdout), "result");
        assert_eq!(text(&stderr), "late\n", "{report:?}");
        none_left(&processes("sleep 4514.125"));
    });
}

#[test]
fn grace_is_given_in_full_and_no_more() {
    let skills = Skills::new();
    let slow = |budget| {
        let mut command = skills.sh(
            "trap 'echo begin >&2; sleep 2; echo done >&2; exit 0' TERM\necho ready >&2; while :; do sleep 0.1; done",
        );
        command.budget = Duration::from_millis(budget);
        command
    };
    in_both_modes(few_slots(), |executor| {
        let mut patient = slow(1000);
        patient.stop_grace = Some(Duration::from_secs(30));
        let (report, stderr) = run_heard(executor, patient);
        assert_eq!((&report.ending, report.exit), (&Ending::TimedOut, Some(Exit::Code(0))));
        // The shell itself reports the sleep that was interrupted.
        assert_eq!(text(&stderr).replace("Terminated\n", ""), "ready\nbegin\ndone\n");
        assert!(report.duration < Duration::from_secs(25), "ended with its handler: {:?}", report.duration);

        let mut hasty = slow(1000);
        hasty.stop_grace = Some(Duration::from_secs(1));
        let (report, stderr) = run_heard(executor, hasty);
        assert_eq!((&report.ending, report.exit), (&Ending::TimedOut, Some(Exit::Signal(9))));
        assert_eq!(text(&stderr).replace("Terminated\n", ""), "ready\nbegin\n");
        assert!(report.duration >= Duration::from_secs(2));
    });
}

#[test]
fn times_without_end_are_accepted() {
    let skills = Skills::new();
    let config = Config {
        output_drain: Duration::MAX,
        kill_confirm: Duration::MAX,
        stop_grace: Duration::MAX,
        ..few_slots()
    };
    in_both_modes(config, |executor| {
        let mut command = skills.sh("echo up >&2; exec sleep 98749.1");
        command.budget = Duration::MAX;
        let (mut running, ear) = start(executor, command);
        eventually("it runs", || ear.hears("up"));
        running.stop(StopReason::Cancelled);
        assert_eq!(block_on(running.wait()).ending, CANCELLED);
        let report = run(executor, skills.sh("sleep 98749.2 >/dev/null 2>&1 & echo ok"));
        assert_eq!(report.leftovers_killed, 1);
    });
}

#[test]
fn first_reason_to_stop_counts() {
    let skills = Skills::new();
    in_both_modes(quick_grace(), |executor| {
        let (mut running, ear) = start(executor, skills.sh("echo up >&2; exec sleep 98763.1"));
        eventually("it runs", || ear.hears("up"));
        let stopper = running.stopper();
        stopper.stop(StopReason::Draining);
        running.stop(StopReason::Cancelled);
        let report = block_on(running.wait());
        assert_eq!(
            (report.ending, report.exit),
            (Ending::Stopped(StopReason::Draining), Some(Exit::Signal(15)))
        );
        stopper.stop(StopReason::Cancelled);
    });
}

#[test]
fn output_too_large_downstream_kills_without_grace() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        let (mut running, ear) = start(executor, skills.sh("trap '' TERM; echo up >&2; sleep 98762.1; :"));
        eventually("it runs", || ear.hears("up"));
        let begun = Instant::now();
        running.stop(StopReason::OutputTooLarge);
        let report = block_on(running.wait());
        assert_eq!(
            (report.ending, report.exit),
            (Ending::Stopped(StopReason::OutputTooLarge), Some(Exit::Signal(9)))
        );
        assert!(begun.elapsed() < Duration::from_secs(4));
        none_left(&processes("sleep 98762.1"));
    });
}

#[test]
fn dropping_the_handle_ends_the_invocation_and_frees_the_slot() {
    let skills = Skills::new();
    in_both_modes(Config { slots: 1, ..quick_grace() }, |executor| {
        let (running, ear) = start(executor, skills.sh("echo up >&2; sleep 98761.1; :"));
        eventually("it runs", || ear.hears("up"));
        let refused = executor.try_start(skills.sh("echo"), Box::new(Ear::default())).unwrap_err();
        assert!(!refused.closed);
        drop(running);
        let mut command = Some(refused.command);
        let mut running = None;
        eventually("the slot is free", || {
            match executor.try_start(command.take().unwrap(), Box::new(Ear::default())) {
                Ok(started) => running = Some(started),
                Err(refused) => command = Some(refused.command),
            }
            running.is_some()
        });
        none_left(&processes("sleep 98761.1"));
        assert_eq!(block_on(running.unwrap().wait()).exit, Some(Exit::Code(0)));
    });
}

#[test]
fn slot_is_reusable_as_soon_as_the_report_is_out() {
    let skills = Skills::new();
    let mut timing_out = skills.sh("sleep 98760.1 & sleep 98760.2");
    timing_out.budget = Duration::from_millis(50);
    let quick = skills.sh("echo ok");
    in_both_modes(Config { slots: 1, ..quick_grace() }, |executor| {
        for _ in 0..5 {
            assert_eq!(run(executor, timing_out.clone()).ending, Ending::TimedOut);
            assert_eq!(text(&run(executor, quick.clone()).stdout), "ok\n");
        }
        none_left(&processes("sleep 98760."));
    });
}

#[test]
fn close_kills_what_runs_and_refuses_more() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        let (mut running, ear) =
            start(executor, skills.sh("trap '' TERM; setsid sleep 98759.1 & echo up >&2; sleep 98759.2; :"));
        eventually("it runs", || ear.hears("up") && processes("sleep 98759.").len() >= 2);
        let group = match executor.containment() {
            Containment::Cgroup { path } => Some(path.clone()),
            Containment::Tag => None,
        };
        executor.close();
        assert_eq!(block_on(running.wait()).ending, Ending::Stopped(StopReason::Closed));
        none_left(&processes("sleep 98759."));
        assert!(group.is_none_or(|group| !group.exists()));
        assert!(executor.try_start(skills.sh("echo"), Box::new(Ear::default())).unwrap_err().closed);
        executor.close();
    });
}

#[test]
fn three_hundred_starts_leave_nothing_behind() {
    let skills = Skills::new();
    let plain = skills.sh("echo x");
    let orphaning = skills.sh("(setsid true &); (sleep 98758.1 >/dev/null 2>&1 &)\necho x");
    in_both_modes(few_slots(), |executor| {
        run(executor, plain.clone());
        let before = open_descriptors();
        for n in 0..150 {
            let (mut one, _) = start(executor, plain.clone());
            let (mut two, _) = start(executor, if n % 5 == 0 { orphaning.clone() } else { plain.clone() });
            assert_eq!(text(&block_on(one.wait()).stdout), "x\n");
            let two = block_on(two.wait());
            assert_eq!(text(&two.stdout), "x\n", "{two:?}");
        }
        assert_eq!(open_descriptors(), before);
        none_left(&children());
        none_left(&processes("sleep 98758.1"));
        if let Containment::Cgroup { path } = executor.containment() {
            assert_eq!(subdirectories(path).len(), executor.slots());
        }
    });
}

#[test]
fn orphans_of_a_running_leader_do_not_stay_zombies() {
    let skills = Skills::new();
    in_both_modes(quick_grace(), |executor| {
        let (mut running, ear) = start(
            executor,
            skills.sh("for n in 1 2 3 4 5; do (true &); done\necho up >&2; exec sleep 98757.1"),
        );
        eventually("it runs", || ear.hears("up"));
        let leader = ear.0.lock().unwrap().pid.unwrap();
        eventually("only the leader is left", || children() == [leader]);
        running.stop(StopReason::Cancelled);
        assert_eq!(block_on(running.wait()).ending, CANCELLED);
    });
}

#[test]
fn children_of_others_are_left_alone() {
    let skills = Skills::new();
    // Started by the main thread of this test, where the orphans of skills arrive too.
    let mut stranger = std::process::Command::new("/bin/sleep").arg("98756.1").spawn().unwrap();
    in_both_modes(quick_grace(), |executor| {
        let report = run(executor, skills.sh("sleep 98756.2 >/dev/null 2>&1 & sleep 98756.2 & echo"));
        assert_eq!(report.leftovers_killed, 2);
        assert!(stranger_lives(stranger.id()));
    });
    stranger.kill().unwrap();
    assert!(!stranger.wait().unwrap().success());
}

fn stranger_lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().contains("98756.1")
}

#[test]
fn cgroups_of_a_dead_executor_are_swept() {
    let executor = Executor::build(few_slots()).unwrap();
    let Containment::Cgroup { path } = executor.containment().clone() else { return };
    // As a killed process leaves it: nobody holds the lock, and the process of that name is gone.
    let dead = path.with_file_name("weft-1-77-deadbeef");
    fs::create_dir(&dead).unwrap();
    fs::create_dir(dead.join("slot-0")).unwrap();
    let mut left = std::process::Command::new("/bin/sleep").arg("98755.1").spawn().unwrap();
    fs::write(dead.join("slot-0/cgroup.procs"), left.id().to_string()).unwrap();
    let second = Executor::build(few_slots()).unwrap();
    assert!(!left.wait().unwrap().success());
    assert!(!dead.exists());
    assert!(path.exists(), "a living executor's group is not touched");
    second.close();
}

#[test]
fn mark_finds_what_was_left_running() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        let (mut running, ear) =
            start(executor, skills.sh("setsid sleep 98754.1 & echo up >&2; sleep 98754.2; :"));
        eventually("it runs", || ear.hears("up") && processes("sleep 98754.").len() == 2);
        let mark: Mark = executor.mark().unwrap().to_string().parse().unwrap();
        // Here the marked executor still lives and helps; after a crash init would do the reaping.
        let swept = mark.sweep(PATIENCE).unwrap();
        assert!(swept.killed >= 3 && swept.left.is_empty(), "{swept:?}");
        assert_eq!(block_on(running.wait()).exit, Some(Exit::Signal(9)));
        none_left(&processes("sleep 98754."));
    });
}

/// SIGKILL does not end what a version 1 freezer holds: the one way to get an unkillable process on purpose.
#[test]
fn unkillable_tree_is_reported_and_its_slot_quarantined() {
    let freezer = PathBuf::from(format!("/sys/fs/cgroup/freezer/weft-test-{}", std::process::id()));
    if fs::create_dir(&freezer).is_err() || !freezer.join("freezer.state").exists() {
        return;
    }
    let skills = Skills::new();
    let config = Config { slots: 1, kill_confirm: Duration::from_millis(300), ..quick_grace() };
    in_both_modes(config, |executor| {
        let (mut running, ear) = start(executor, skills.sh("echo up >&2; exec sleep 98753.1"));
        eventually("it runs", || ear.hears("up"));
        let pid = ear.0.lock().unwrap().pid.unwrap();
        fs::write(freezer.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(freezer.join("freezer.state"), "FROZEN").unwrap();
        eventually("it is frozen", || {
            fs::read_to_string(freezer.join("freezer.state")).unwrap().trim() == "FROZEN"
        });
        running.stop(StopReason::Cancelled);
        let report = block_on(running.wait());
        let Ending::KillUnconfirmed { what } = report.ending else { panic!("{report:?}") };
        assert!(what.contains(&pid.to_string()) && what.starts_with("killed when it was stopped"), "{what}");
        assert_eq!((report.exit, report.pid), (None, Some(pid)));
        assert!(executor.try_start(skills.sh("echo"), Box::new(Ear::default())).is_err());
        assert_eq!((executor.slots(), executor.usable_slots()), (1, 0));

        fs::write(freezer.join("freezer.state"), "THAWED").unwrap();
        eventually("the slot is free", || {
            match executor.try_start(skills.sh("echo"), Box::new(Ear::default())) {
                Ok(mut running) => block_on(running.wait()).exit == Some(Exit::Code(0)),
                Err(_) => false,
            }
        });
        assert_eq!(executor.usable_slots(), 1);
        none_left(&children());
    });
    fs::remove_dir(&freezer).unwrap();
}

#[test]
fn process_that_leaves_its_cgroup_is_found_by_its_tag() {
    let skills = Skills::new();
    in_both_modes(few_slots(), |executor| {
        let Containment::Cgroup { path } = executor.containment() else { return };
        let above = path.parent().unwrap().join("cgroup.procs");
        let out = skills.path("out");
        let escape = format!(
            "setsid sh -c 'echo $$ >{} && touch {out} && exec sleep 98752.1' >/dev/null 2>&1 &\n\
             until [ -e {out} ]; do sleep 0.01; done; echo out",
            above.display(),
            out = out.display()
        );
        let report = run(executor, skills.sh(&escape));
        assert_eq!((text(&report.stdout).as_str(), report.leftovers_killed), ("out\n", 1));
        none_left(&processes("sleep 98752.1"));
        none_left(&children());
    });
}

#[test]
fn skill_that_spoils_its_cgroup_spoils_it_for_nobody_else() {
    let skills = Skills::new();
    let ours = "G=$(sed -n 's/^0:://p' /proc/self/cgroup)\n";
    in_both_modes(Config { slots: 1, ..quick_grace() }, |executor| {
        let Containment::Cgroup { path } = executor.containment() else { return };
        let slot = path.join("slot-0");
        // Frozen: only SIGKILL reaches it, and the next child would be frozen too.
        let mut freeze =
            skills.sh(&format!("{ours}echo 1 >{}/cgroup.freeze; exec sleep 98751.1", slot.display()));
        freeze.budget = Duration::from_millis(200);
        assert_eq!(run(executor, freeze).ending, Ending::TimedOut);
        assert_eq!(text(&run(executor, skills.sh("echo ok")).stdout), "ok\n");
        // Threaded: no child can be born in it any more.
        let spoil = skills.sh(&format!(
            "mkdir {0}/below && echo threaded >{0}/below/cgroup.type; echo done",
            slot.display()
        ));
        assert_eq!(text(&run(executor, spoil).stdout), "done\n");
        for _ in 0..2 {
            let report = run(executor, skills.sh("echo ok"));
            assert_eq!(text(&report.stdout), "ok\n", "{report:?}");
        }
        none_left(&processes("sleep 98751.1"));
    });
}

#[test]
fn descendant_that_takes_its_tag_off_is_found_by_parent_and_group() {
    let skills = Skills::new();
    let untagged = "import os,resource,time\n\
        if os.fork() == 0:\n \
          resource.setrlimit(resource.RLIMIT_RTTIME, (1<<40, 1<<40))\n \
          os.execv('/bin/sleep', ['sleep', '98750.1'])\n\
        if os.fork() == 0:\n \
          os.setsid()\n \
          if os.fork() == 0:\n  \
            resource.setrlimit(resource.RLIMIT_RTTIME, (1<<40, 1<<40))\n  \
            os.execv('/bin/sleep', ['sleep', '98750.2'])\n \
          time.sleep(98750)\n\
        os.write(2, b'up')\ntime.sleep(98750)";
    in_both_modes(quick_grace(), |executor| {
        let (mut running, ear) = start(executor, skills.python(untagged));
        eventually("it runs", || ear.hears("up") && processes("sleep 98750.").len() == 2);
        running.stop(StopReason::Cancelled);
        assert_eq!(block_on(running.wait()).ending, CANCELLED);
        none_left(&processes("sleep 98750."));
        none_left(&children());
    });
}
