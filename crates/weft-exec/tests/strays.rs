//! Orphans that took off every mark, and pipes that a child turns against us: nothing of it stays, and what
//! another part of the process owns is not touched.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use support::*;
use weft_exec::{Command, Config, Ending, Executor, Exit, Mark, Reaped, StopReason};

/// The limits that a skill lowers, by their number: RLIMIT_RTTIME, RLIMIT_LOCKS.
const WHICH: [&str; 3] = ["15", "10", "15, 10"];

/// Python that defines `hide(then)`: runs `then` in a process without parent, in a session of its own, that
/// lowered these limits.
fn hide(limits: &str) -> String {
    format!(
        "import os,resource,sys,time\n\
         def hide(then, i=0):\n \
           pid = os.fork()\n \
           if pid:\n  \
             return os.waitpid(pid, 0)\n \
           for limit in [{limits}]: resource.setrlimit(limit, (10**9+i,)*2)\n \
           os.setsid()\n \
           if os.fork() == 0:\n  \
             null = os.open('/dev/null', os.O_RDWR)\n  \
             for fd in 0, 1, 2: os.dup2(null, fd)\n  \
             os.setsid()\n  \
             then()\n \
           os._exit(0)\n"
    )
}

fn python_of_std(body: &str) -> Child {
    let mut command = std::process::Command::new("/usr/bin/python3");
    command.args(["-IS", "-c", body]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for a line, so that what the child does before it is done.
fn line_of(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

// === pipes ===

/// Python that defines `caught(call)`: whether a slot's thread is blocked in that system call, a read or a
/// write, for want of somebody at the other end.
const CAUGHT: &str = "import os,time\n\
    slots = []\n\
    for t in os.listdir('/proc/%d/task' % os.getppid()):\n \
      t = '/proc/%d/task/%s/' % (os.getppid(), t)\n \
      if open(t + 'comm').read().startswith('weft-slot'): slots.append(t + 'syscall')\n\
    number = {'read': '0 ', 'write': '1 '} if os.uname().machine == 'x86_64' else {'read': '63 ', 'write': '64 '}\n\
    def caught(call):\n \
      try: return any(open(slot).read().startswith(number[call]) for slot in slots)\n \
      except OSError: return False\n";

/// When the slot is caught in a read, nothing is written any more: without a time-out it would wait for ever.
#[test]
fn skill_that_steals_its_own_output_is_still_timed_out_and_stopped() {
    let skills = Skills::new();
    for stream in [1, 2] {
        let steal = skills.python(&format!(
            "{CAUGHT}\
             for n in range(3):\n \
               if os.fork() == 0:\n  \
                 fd = os.open('/proc/self/fd/{stream}', os.O_RDONLY)\n  \
                 while True: os.read(fd, 1)\n\
             os.write(2, b'up')\n\
             while not caught('read'): os.write({stream}, b'x')\n\
             time.sleep(98739)"
        ));
        in_both_modes(Config { stop_grace: Duration::from_millis(50), ..few_slots() }, |executor| {
            let mut bounded = steal.clone();
            bounded.budget = Duration::from_secs(2);
            assert_eq!(run(executor, bounded).ending, Ending::TimedOut);
            let (mut running, ear) = start(executor, steal.clone());
            eventually("it runs", || !ear.stderr().is_empty() || stream == 2);
            running.stop(StopReason::Cancelled);
            assert_eq!(block_on(running.wait()).ending, Ending::Stopped(StopReason::Cancelled));
            none_left(&children());
        });
    }
}

/// When the slot is caught in a write, nothing is read any more.
#[test]
fn skill_that_fills_its_own_input_is_still_timed_out() {
    let skills = Skills::new();
    let mut fill = skills.python(&format!(
        "{CAUGHT}\
         for n in range(3):\n \
           if os.fork() == 0:\n  \
             fd = os.open('/proc/self/fd/0', os.O_WRONLY)\n  \
             while True: os.write(fd, b'y' * 4096)\n\
         while not caught('write'): os.read(0, 4096)\n\
         time.sleep(98738)"
    ));
    fill.budget = Duration::from_secs(2);
    in_both_modes(Config { stop_grace: Duration::from_millis(50), ..few_slots() }, |executor| {
        for bytes in [3000, 8 << 20] {
            let stdin = Bytes::from(vec![b'x'; bytes]);
            assert_eq!(run(executor, Command { stdin, ..fill.clone() }).ending, Ending::TimedOut);
        }
        none_left(&children());
    });
}

// === orphans ===

#[test]
fn orphans_that_took_their_marks_off_and_ended_are_reaped() {
    let skills = Skills::new();
    for limits in WHICH {
        let body =
            format!("{}for i in range(50): hide(lambda: (time.sleep(0.05), os._exit(0)), i)\n", hide(limits));
        let ending = skills.python(&body);
        let staying = skills.python(&format!("{body}os.write(2, b'up')\ntime.sleep(98740)"));
        in_both_modes(few_slots(), |executor| {
            assert_eq!(run(executor, ending.clone()).exit, Some(Exit::Code(0)));
            assert!(children().is_empty(), "limits {limits}: {:?}", children());
            // Also of one that goes on.
            let (mut running, ear) = start(executor, staying.clone());
            eventually("it runs", || ear.hears("up"));
            let leader = ear.0.lock().unwrap().pid.unwrap();
            eventually("only the leader is left", || children() == [leader]);
            running.stop(StopReason::Cancelled);
            block_on(running.wait());
            none_left(&children());
        });
    }
}

#[test]
fn orphan_that_took_its_marks_off_does_not_survive_a_clean_end() {
    let skills = Skills::new();
    for limits in WHICH {
        // It has a child of its own, in another session again.
        let hidden = skills.python(&format!(
            "{}hide(lambda: os.fork() and os.execv('/bin/sleep', ['sleep', '98741.1']) or \
             (os.setsid(), os.execv('/bin/sleep', ['sleep', '98741.2'])))\n\
             while sum(b'98741.' in open('/proc/%s/cmdline' % p, 'rb').read() \
                       for p in os.listdir('/proc') if p.isdigit() and os.path.exists('/proc/%s/exe' % p)) < 2: pass\n\
             print('ok')",
            hide(limits)
        ));
        in_both_modes(few_slots(), |executor| {
            let report = run(executor, hidden.clone());
            assert_eq!(
                (&report.ending, text(&report.stdout).as_str()),
                (&Ending::Exited, "ok\n"),
                "{report:?}"
            );
            assert_eq!(report.leftovers_killed, 2, "limits {limits}");
            none_left(&processes("sleep 98741."));
            none_left(&children());
        });
    }
}

#[test]
fn orphan_without_marks_of_a_running_skill_is_ended_when_another_one_ends() {
    let skills = Skills::new();
    let hiding = skills.python(&format!(
        "{}hide(lambda: os.execv('/bin/sleep', ['sleep', '98742.1']))\nos.write(2, b'up')\ntime.sleep(98742)",
        hide("15, 10")
    ));
    let tagged = skills.sh("(setsid sleep 98743.1 >/dev/null 2>&1 &)\necho up >&2; exec sleep 98743.2");
    in_both_modes(few_slots(), |executor| {
        let (mut hiding, ear) = start(executor, hiding.clone());
        eventually("it runs", || ear.hears("up"));
        assert_eq!(run(executor, skills.sh("echo")).leftovers_killed, 0, "nobody knows whose it was");
        eventually("it is gone", || processes("sleep 98742.1").is_empty());
        // An orphan with its tag is its own invocation's, whoever else ends.
        let (mut tagged, ear) = start(executor, tagged.clone());
        eventually("it runs", || ear.hears("up") && processes("sleep 98743.").len() == 2);
        hiding.stop(StopReason::Cancelled);
        block_on(hiding.wait());
        assert_eq!(executor.reap_orphans(), Reaped::default());
        assert_eq!(processes("sleep 98743.").len(), 2);
        tagged.stop(StopReason::Cancelled);
        block_on(tagged.wait());
        none_left(&processes("sleep 98743."));
        none_left(&children());
    });
}

#[test]
fn process_that_lives_on_without_its_main_thread_is_ended() {
    let skills = Skills::new();
    let headless = skills.python(&format!(
        "{}import ctypes,threading\n\
         def behead():\n \
           threading.Thread(target=lambda: time.sleep(98744)).start()\n \
           ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)\n\
         before = set(os.listdir('/proc'))\n\
         hide(behead)\n\
         def up():\n \
           for p in os.listdir('/proc'):\n  \
             if p in before or not p.isdigit(): continue\n  \
             try: s = open('/proc/%s/status' % p).read()\n  \
             except OSError: continue\n  \
             if 'State:\\tZ' in s and 'Threads:\\t2' in s: return True\n\
         while not up(): pass\n\
         print('ok')",
        hide("")
    ));
    in_both_modes(few_slots(), |executor| {
        let report = run(executor, headless.clone());
        assert_eq!((&report.ending, text(&report.stdout).as_str()), (&Ending::Exited, "ok\n"), "{report:?}");
        assert_eq!(report.leftovers_killed, 1);
        none_left(&children());
    });
}

// === what belongs to others ===

#[test]
fn children_of_std_are_neither_ended_nor_reaped() {
    let skills = Skills::new();
    let hiding = skills.python(&format!(
        "{}for i in range(5): hide(lambda: os._exit(0), i)\n\
         hide(lambda: os.execv('/bin/sleep', ['sleep', '98745.1']))",
        hide("15, 10")
    ));
    in_both_modes(few_slots(), |executor| {
        // The thread that starts them ends, so the kernel hangs them where it hangs orphans.
        let spawn = |body| std::thread::spawn(move || python_of_std(body)).join().unwrap();
        let mut ended = spawn("import os; os._exit(7)");
        let mut living = spawn("print('up'); import sys; sys.stdout.flush(); sys.stdin.read(); sys.exit(8)");
        let mut apart = spawn(
            "import os,sys; os.setsid(); print('up'); sys.stdout.flush(); sys.stdin.read(); sys.exit(9)",
        );
        assert_eq!((line_of(&mut living).as_str(), line_of(&mut apart).as_str()), ("up", "up"));
        let list = format!("/proc/self/task/{}/children", std::process::id());
        eventually("they are among the orphans", || {
            let listed = fs::read_to_string(&list).unwrap();
            [&ended, &living, &apart].iter().all(|c| listed.split(' ').any(|pid| pid == c.id().to_string()))
        });
        eventually("one is a zombie", || {
            fs::read_to_string(format!("/proc/{}/stat", ended.id())).unwrap().contains(") Z ")
        });
        for _ in 0..5 {
            run(executor, hiding.clone());
            executor.reap_orphans();
        }
        assert_eq!(ended.wait().unwrap().code(), Some(7));
        assert!(living.try_wait().unwrap().is_none() && apart.try_wait().unwrap().is_none());
        drop((living.stdin.take(), apart.stdin.take()));
        assert_eq!(living.wait().unwrap().code(), Some(8));
        assert_eq!(apart.wait().unwrap().code(), Some(9));
        none_left(&children());
    });
}

#[test]
fn orphans_that_come_to_light_later_are_ended_and_reaped_on_demand() {
    in_both_modes(few_slots(), |executor| {
        assert_eq!(executor.reap_orphans(), Reaped::default());
        // Not of a skill, but as one leaves them: two that live and three that ended.
        let mut between = python_of_std(&format!(
            "{}hide(lambda: os.fork() + 1 and os.execv('/bin/sleep', ['sleep', '98746.1']))\n\
             for i in range(3): hide(lambda: os._exit(0))\n\
             print('up'); sys.stdout.flush(); sys.stdin.read()",
            hide("15, 10")
        ));
        assert_eq!(line_of(&mut between), "up");
        eventually("both run", || processes("sleep 98746.1").len() == 2);
        let (mut reaped, mut killed) = (0, 0);
        eventually("only the child of std is left", || {
            let done = executor.reap_orphans();
            (reaped, killed) = (reaped + done.reaped, killed + done.killed);
            children() == [between.id()]
        });
        assert_eq!(reaped, 5);
        assert!(killed >= 2, "one may be seen, and killed, again before it is gone: {killed}");
        assert_eq!(executor.reap_orphans(), Reaped::default());
        drop(between.stdin.take());
        assert!(between.wait().unwrap().success());
    });
}

// === after a crash ===

const NODE: &str = "WEFT_EXEC_TEST_NODE";

/// The node of the next test: runs one skill in this process, says its mark, and waits to be killed.
#[test]
fn node_that_is_killed() {
    if std::env::var_os(NODE).is_none() {
        return;
    }
    let skills = Skills::new();
    let config = Config { containment: weft_exec::ContainmentChoice::Tag, ..few_slots() };
    let executor = Executor::build(config).unwrap();
    let body = WHICH.map(|limits| {
        format!("{}hide(lambda: os.execv('/bin/sleep', ['sleep', '98747.1']))\n", hide(limits))
    });
    let (mut running, ear) =
        start(&executor, skills.python(&format!("{}os.write(2, b'up')\ntime.sleep(98747)", body.concat())));
    eventually("all run", || ear.hears("up") && processes("sleep 98747.1").len() == 3);
    println!("\nmark {}", executor.mark().unwrap());
    block_on(running.wait());
}

#[test]
fn sweep_finds_orphans_of_a_killed_node_that_took_their_marks_off() {
    // As the supervisor of a node, to which its orphans go.
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).unwrap();
    let mut stranger = std::process::Command::new("/bin/sleep").arg("98748.1").spawn().unwrap();
    let mut node = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "node_that_is_killed", "--nocapture"])
        .env(NODE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mark: Mark =
        lines.find_map(|line| line.strip_prefix("mark ").map(str::to_owned)).unwrap().parse().unwrap();
    node.kill().unwrap();
    node.wait().unwrap();
    assert_eq!(processes("sleep 98747.1").len(), 3);
    let begun = Instant::now();
    let swept = mark.sweep(PATIENCE).unwrap();
    assert!(begun.elapsed() < PATIENCE);
    none_left(&swept.left);
    assert!(swept.killed >= 4, "three orphans and the leader: {swept:?}");
    eventually("they are gone", || processes("sleep 98747.1").is_empty());
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
