//! Whatever callers do, nothing is left behind: no process, no descriptor, no thread, no file, no memory without bound.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    process::Signal,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weft_client::Followed;
use weft_core::{
    event::{Event, EventKind},
    outcome::Outcome,
};
use weft_proto::v1::{
    InvocationRequest, InvocationState, InvokeRequest, WatchInvocationRequest, invocation_event,
    invocation_service_client::InvocationServiceClient, invoke_response,
};
use weft_testkit::{
    Daemon, Fabric, Observed, Skill, Spec, eventually, preload,
    process::{children, descriptors, groups_of, members, processes_with, resident, threads},
    request,
    skill::{put, put_program},
};

use crate::{fabric, runtime, unique_sleep};

const SOON: Duration = Duration::from_secs(20);
const MIB: u64 = 1024 * 1024;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }

    fn pause(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.roll(most))
    }
}

// === 500 calls ===

const SKILLS: [&str; 4] = ["quick", "noisy", "failing", "long"];
const CLIENTS: u64 = 8;
const CALLS: u64 = 60;
const PROCESSES: u64 = 20;

fn mixed(sleep: &str) -> [Skill; 4] {
    [
        Skill::echo("quick"),
        Skill::sh("noisy", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo a line that nobody needs $i >&2; done; echo '{}'"),
        Skill::sh("failing", &format!("{sleep}.1 >/dev/null 2>&1 & setsid {sleep}.2 >/dev/null 2>&1 & echo oops >&2; exit 7")),
        Skill::sh("long", &format!("echo up >&2; {sleep}.3 & setsid {sleep}.4 & ( setsid sh -c '{sleep}.5 & exec {sleep}.6' & ); wait"))
            .with("timeout_seconds", json!(1)),
    ]
}

/// What a client does with the calls that it makes, one after the other.
async fn client(fabric: Arc<Fabric>, seed: u64, calls: u64) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (seed + 1));
    let mut client = fabric.client();
    for _ in 0..calls {
        let skill = SKILLS[dice.roll(4) as usize];
        let mut wanted = request(skill, "{}");
        match dice.roll(10) {
            // It waits for the end.
            0..=4 => {
                let seen = Observed::of(client.invoke(&wanted)).await.unwrap();
                let expected = match skill {
                    "failing" => Outcome::Failed,
                    "long" => Outcome::TimedOut,
                    _ => Outcome::Succeeded,
                };
                assert_eq!(seen.last().outcome, expected, "{skill}: {}", seen.last().message);
            }
            // It cancels at a random moment, and sees the end.
            5..=6 => {
                wanted.detach = true;
                let id = client.create(&wanted).await.unwrap().id.parse().unwrap();
                tokio::time::sleep(dice.pause(150)).await;
                client.cancel(id).await.unwrap();
                let seen = Observed::of(client.watch(id, 0)).await.unwrap();
                assert_ne!(seen.last().outcome, Outcome::Unknown, "{skill}: {}", seen.last().message);
            }
            // It leaves in the middle, and its connection with it.
            7..=8 => {
                let mut follow = client.invoke(&wanted);
                for _ in 0..=dice.roll(4) {
                    if !matches!(follow.next().await, Some(Ok(Followed::Known(_) | Followed::Event(_)))) {
                        break;
                    }
                }
                drop(follow);
                client = fabric.client();
            }
            // It never looks.
            _ => {
                wanted.detach = true;
                client.create(&wanted).await.unwrap();
            }
        }
    }
}

/// Commands that are killed at random moments.
fn killed_commands(fabric: &Fabric) {
    let mut dice = Dice(42);
    for _ in 0..PROCESSES {
        let mut command = fabric.spawn(&["call", SKILLS[dice.roll(4) as usize]]);
        std::thread::sleep(dice.pause(300));
        command.kill();
    }
}

fn nothing_runs(fabric: &Fabric) {
    // The last of them are noticed when nobody has watched them for 15 s.
    eventually("the end of every invocation", Duration::from_secs(60), || {
        (fabric.json(&["invocations", "--active"])? == json!([])).then_some(())
    });
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                pending.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// 500 calls by many callers at once, of which many are cancelled, killed or cut off.
fn five_hundred_calls(spec: impl Fn(&Fabric) -> Spec) -> (Fabric, Daemon) {
    let mut fabric = fabric();
    let sleep = unique_sleep();
    let temporary = fabric.path("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let spec = spec(&fabric)
        .arg("--slots", "16")
        .arg("--queue", "1000")
        .arg("--stop-grace", "1")
        .env("TMPDIR", &temporary);
    let node = fabric.node("host", &mixed(&sleep), &spec);
    for skill in SKILLS {
        fabric.wait_for_skill(skill, SOON, |_| true);
    }
    let coordinator = fabric.coordinator().pid();
    let fabric = Arc::new(fabric);
    let all_at_once = |calls: u64| {
        runtime().block_on(async {
            let mut set = JoinSet::new();
            for seed in 0..CLIENTS {
                set.spawn(client(fabric.clone(), seed, calls));
            }
            let commands = fabric.clone();
            set.spawn_blocking(move || killed_commands(&commands));
            set.join_all().await;
        });
        nothing_runs(&fabric);
    };
    // Once with fewer, so that everything that is kept for good is there.
    all_at_once(CALLS / 3);
    let state = files_below(&fabric.path("host-state"));
    let measure = |pid| (descriptors(pid), threads(pid), resident(pid));
    let (node_before, coordinator_before) = (measure(node.pid()), measure(coordinator));

    all_at_once(CALLS);
    assert_eq!(processes_with(&sleep), Vec::<u32>::new(), "processes of fixtures");
    assert_eq!(children(node.pid()), Vec::<u32>::new(), "children of the node");
    for group in groups_of(node.pid()) {
        assert_eq!(members(&group), Vec::<u32>::new(), "{}", group.display());
    }
    for (name, pid, before, most) in [
        ("node", node.pid(), node_before, 48 * MIB),
        ("coordinator", coordinator, coordinator_before, 96 * MIB),
    ] {
        // Threads that wait for blocking work stay for ten seconds.
        eventually(
            &format!("{name}: descriptors and threads as before: {before:?}"),
            Duration::from_secs(30),
            || {
                let now = measure(pid);
                (now.0.abs_diff(before.0) <= 3 && now.1 <= before.1 + 1).then_some(())
            },
        );
        let grown = resident(pid).saturating_sub(before.2);
        assert!(grown < most, "{name} grew by {} MiB", grown / MIB);
    }
    assert_eq!(files_below(&temporary), Vec::<PathBuf>::new());
    assert_eq!(files_below(&fabric.path("host-state")), state);
    assert_eq!(fabric.call(&["quick", "n=1"]), json!({"n": "1"}));
    (Arc::into_inner(fabric).unwrap(), node)
}

#[test]
fn five_hundred_calls_with_cancels_kills_and_disconnects_leave_nothing_behind() {
    let (_fabric, mut node) = five_hundred_calls(|_| Spec::new());
    let pid = node.pid();
    node.signal(rustix::process::Signal::TERM);
    assert!(node.wait(SOON).success());
    assert_eq!(groups_of(pid), Vec::<PathBuf>::new(), "control groups of a node that has ended");
}

#[test]
fn five_hundred_calls_leave_nothing_behind_where_there_are_no_control_groups() {
    let (_fabric, node) = five_hundred_calls(|fabric| {
        let library = preload::library(&fabric.path("lib"), preload::WITHOUT_CGROUPS);
        Spec::new().env("LD_PRELOAD", library)
    });
    assert_eq!(groups_of(node.pid()), Vec::<PathBuf>::new(), "it has control groups all the same");
}

// === a skill that is swapped ===

/// A whole skill directory in which everything says the same version.
fn version(dir: &Path, number: u64) {
    // The data is read last and late: what a swap can reach is reached.
    let program = format!(
        "#!/bin/sh\ncat >/dev/null\nentry={number}\nread -r data <data\nprintf '{{\"entry\":%s,\"data\":%s}}' $entry $data\n"
    );
    put_program(&dir.join("run"), &program);
    put(&dir.join("data"), format!("{number}\n"));
    let manifest = json!({"name": "swapped", "description": format!("version {number}"), "entry": "run"});
    put(&dir.join("skill.json"), manifest.to_string());
}

#[test]
fn a_skill_swapped_a_thousand_times_never_mixes_versions() {
    const SWAPS: u64 = 1000;
    const SETTLED: u64 = 100;
    let fabric = fabric();
    let live = fabric.skills_of("host").join("swapped");
    version(&live, 0);
    let _node = fabric.node("host", &[], &Spec::new().arg("--queue", "1000"));
    fabric.wait_for_skill("swapped", SOON, |_| true);
    let done = Arc::new(AtomicBool::new(false));
    let outcomes = Arc::new(Mutex::new(Vec::<(Outcome, String)>::new()));
    runtime().block_on(async {
        let client = fabric.client();
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let (client, done, outcomes) = (client.clone(), done.clone(), outcomes.clone());
            callers.spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let seen = match Observed::of(client.invoke(&request("swapped", "{}"))).await {
                        Ok(seen) => seen,
                        Err(error) => panic!("refused: {error}"),
                    };
                    let last = seen.last();
                    let text = match last.outcome {
                        Outcome::Succeeded => String::from_utf8(seen.result()).unwrap(),
                        _ => last.message.clone(),
                    };
                    outcomes.lock().unwrap().push((last.outcome, text));
                }
            });
        }
        let mut dice = Dice(7);
        for number in 1..=SWAPS {
            // A fresh directory each time: what still runs keeps the files that it began with.
            let next = fabric.path(&format!("versions/{number}"));
            version(&next, number);
            renameat_with(CWD, &next, CWD, &live, RenameFlags::EXCHANGE).unwrap();
            if number % (SWAPS / SETTLED) == 0 {
                // From time to time it is left alone until it runs, so that the next swap meets starts.
                let expected = format!("\"data\":{number}}}");
                let begun = Instant::now();
                while !outcomes
                    .lock()
                    .unwrap()
                    .iter()
                    .rev()
                    .take(50)
                    .any(|(_, text)| text.ends_with(&expected))
                {
                    assert!(begun.elapsed() < SOON, "version {number} never runs");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                // Callers tend to fall into step; the next swap is to meet every part of a start.
                tokio::time::sleep(Duration::from_micros(dice.roll(15_000))).await;
            }
        }
        done.store(true, Ordering::Relaxed);
        callers.join_all().await;
    });
    let outcomes = outcomes.lock().unwrap();
    let mut succeeded = 0;
    for (outcome, text) in outcomes.iter() {
        match outcome {
            Outcome::Succeeded => {
                let result: Value = serde_json::from_str(text).unwrap();
                assert_eq!(result["entry"], result["data"], "a mixture");
                succeeded += 1;
            }
            Outcome::NotStarted => assert!(text.contains("changed"), "{text}"),
            other => panic!("{other}: {text}"),
        }
    }
    assert!(succeeded >= SETTLED, "{succeeded} of {}", outcomes.len());
}

// === much stderr ===

#[test]
fn a_hundred_thousand_lines_of_stderr_arrive_complete_and_in_order() {
    const LINES: usize = 100_000;
    let fabric = fabric();
    let script = format!("seq -f 'line %.0f of many' 1 {LINES} >&2; echo '{{}}'");
    let _node = fabric.node("host", &[Skill::sh("chatty", &script)], &Spec::new());
    let expected: String = (1..=LINES).map(|n| format!("line {n} of many\n")).collect();
    let seen =
        runtime().block_on(async { Observed::of(fabric.client().invoke(&request("chatty", "{}"))).await });
    let seen = seen.unwrap();
    assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
    assert_eq!((seen.last().stderr_bytes, seen.last().dropped_bytes), (expected.len() as u64, 0));
    assert!(seen.stderr() == expected.as_bytes(), "{} of {} bytes", seen.stderr().len(), expected.len());
    // And as a person sees it.
    let finished = fabric.weft(&["call", "chatty"]);
    assert_eq!(finished.code, 0);
    assert!(finished.stderr == expected, "{} of {} bytes", finished.stderr.len(), expected.len());
}

#[test]
fn a_watcher_that_never_reads_costs_bounded_memory_and_disturbs_nobody() {
    let mut fabric = fabric();
    let skills = [
        Skill::sh("endless", "exec yes 'a line that nobody ever reads, again and again' >&2")
            .with("timeout_seconds", json!(600)),
        Skill::echo("quick"),
    ];
    let node = fabric.node("host", &skills, &Spec::new());
    let coordinator = fabric.coordinator().pid();
    fabric.wait_for_skill("quick", SOON, |_| true);
    fabric.wait_for_skill("endless", SOON, |_| true);
    runtime().block_on(async {
        let before = [resident(coordinator), resident(node.pid())];
        let channel =
            tonic::transport::Endpoint::from_shared(format!("http://{}", fabric.address())).unwrap();
        let mut service = InvocationServiceClient::new(channel.connect().await.unwrap());
        let invocation = InvocationRequest {
            skill: "endless".into(),
            args: Bytes::from_static(b"{}"),
            ..Default::default()
        };
        let mut stuck =
            service.invoke(InvokeRequest { invocation: Some(invocation) }).await.unwrap().into_inner();
        // It reads until stderr flows, and never again.
        let id = loop {
            let message = stuck.message().await.unwrap().unwrap();
            if let Some(invoke_response::Message::Event(event)) = &message.message
                && matches!(event.event, Some(invocation_event::Event::Stderr(_)))
            {
                break message.invocation_id;
            }
        };
        let client = fabric.client();
        let mut calls = JoinSet::new();
        for caller in 0..4 {
            let client = client.clone();
            calls.spawn(async move {
                for call in 0..25 {
                    let args = format!("{{\"caller\":{caller},\"call\":{call}}}");
                    let seen = Observed::of(client.invoke(&request("quick", args.clone()))).await.unwrap();
                    assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
                    assert_eq!(seen.result(), args.as_bytes());
                }
            });
        }
        calls.join_all().await;
        // Beside the one that reads nothing, another sees all that one invocation may pass on, which is 64 MiB, and
        // then hears that the rest is dropped.
        let id = id.parse().unwrap();
        let mut reader = client.watch(id, 0);
        let mut read = 0;
        loop {
            let next = tokio::time::timeout(SOON, reader.next()).await.expect("nothing more comes");
            let Some(Ok(Followed::Event(event))) = next else { continue };
            match event.kind {
                EventKind::Stderr { bytes, .. } => read += bytes.len() as u64,
                EventKind::Gap { .. } => break,
                _ => {}
            }
        }
        drop(reader);
        assert!(read > 0);
        let known = client.get(id).await.unwrap();
        assert_eq!(known.state(), InvocationState::Running, "{known:?}");
        for (name, pid, before) in [("coordinator", coordinator, before[0]), ("node", node.pid(), before[1])]
        {
            let grown = resident(pid).saturating_sub(before);
            assert!(grown < 160 * MIB, "{name} grew by {} MiB", grown / MIB);
        }
        client.cancel(id).await.unwrap();
        let seen = Observed::of(client.watch(id, known.last_sequence)).await.unwrap();
        assert_eq!(seen.last().outcome, Outcome::Cancelled, "{}", seen.last().message);
        drop(stuck);
    });
}

#[test]
fn readers_that_are_stuck_do_not_slow_the_calls_of_others() {
    const ROUNDS: usize = 5;
    let fabric = fabric();
    let flood = "head -c 33554432 /dev/zero | tr '\\0' '\\n' >&2; echo '{}'";
    let skills = [Skill::sh("chatty", flood), Skill::echo("quick")];
    let _node = fabric.node("host", &skills, &Spec::new());
    runtime().block_on(async {
        let client = fabric.client();
        let id = client.create(&request("chatty", "{}")).await.unwrap().id;
        let told = Observed::of(client.watch(id.parse().unwrap(), 0)).await.unwrap();
        assert_eq!((told.stderr().len(), told.last().dropped_bytes), (33_554_432, 0));
        let mut durations = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for with_stuck in [false, true] {
                let mut stuck = Vec::new();
                for _ in 0..if with_stuck { 8 } else { 0 } {
                    let endpoint =
                        tonic::transport::Endpoint::from_shared(format!("http://{}", fabric.address()));
                    let channel = endpoint.unwrap().connect().await.unwrap();
                    let request = WatchInvocationRequest { invocation_id: id.clone(), after_sequence: 0 };
                    let mut service = InvocationServiceClient::new(channel);
                    let mut reader = service.watch_invocation(request).await.unwrap().into_inner();
                    reader.message().await.unwrap().unwrap();
                    stuck.push(reader);
                }
                for _ in 0..20 {
                    let begun = Instant::now();
                    let seen = Observed::of(client.invoke(&request("quick", "{}"))).await.unwrap();
                    assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
                    durations[usize::from(with_stuck)].push(begun.elapsed());
                }
            }
        }
        let [alone, beside] = durations.map(|mut all| {
            all.sort_unstable();
            all[all.len() / 2]
        });
        assert!(beside < alone.mul_f64(1.5), "{alone:?} alone, {beside:?} beside stuck readers");
    });
}

#[test]
fn stderr_without_a_coordinator_to_take_it_waits_on_disk_and_arrives_whole() {
    const LINES: usize = 1_500_000;
    let mut fabric = fabric();
    let (go, done) = (fabric.path("go"), fabric.path("done"));
    let script = format!(
        "echo begun >&2; while [ ! -e {} ]; do sleep 0.02; done; \
         seq -f 'line %.0f of very many' 1 {LINES} >&2; : > {}; echo '{{}}'",
        go.display(),
        done.display()
    );
    let skill = Skill::sh("chatty", &script).with("timeout_seconds", json!(300));
    let node = fabric.node("host", &[skill], &Spec::new());
    fabric.wait_for_skill("chatty", SOON, |_| true);
    let expected: String = ["begun\n".into()]
        .into_iter()
        .chain((1..=LINES).map(|n| format!("line {n} of very many\n")))
        .collect();
    runtime().block_on(async {
        let client = fabric.client();
        let id = client.create(&request("chatty", "{}")).await.unwrap().id.parse().unwrap();
        let mut first = client.watch(id, 0);
        while !matches!(
            first.next().await.unwrap().unwrap(),
            Followed::Event(Event { kind: EventKind::Stderr { .. }, .. })
        ) {}
        let before = resident(node.pid());
        // It keeps its connections and takes nothing from them, as a host that swaps does.
        fabric.coordinator().signal(Signal::STOP);
        put(&go, "");
        eventually("the skill has said everything", SOON, || done.exists().then_some(()));
        let grown = resident(node.pid()).saturating_sub(before);
        fabric.coordinator().signal(Signal::CONT);
        let seen = Observed::of(client.watch(id, 0)).await.unwrap();
        assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
        assert_eq!((seen.last().stderr_bytes, seen.last().dropped_bytes), (expected.len() as u64, 0));
        assert!(seen.stderr() == expected.as_bytes(), "{} of {} bytes", seen.stderr().len(), expected.len());
        assert!(
            grown < 24 * MIB,
            "the node grew by {} MiB for {} MiB of stderr",
            grown / MIB,
            expected.len() as u64 / MIB
        );
    });
}

#[test]
fn large_results_without_a_coordinator_to_take_them_wait_on_disk_and_arrive_whole() {
    const RESULT: usize = 16 * 1024 * 1024;
    let mut fabric = fabric();
    let go = fabric.path("go");
    let script = format!(
        "echo begun >&2; while [ ! -e {} ]; do sleep 0.02; done; \
         printf '{{\"n\":\"'; head -c {} /dev/zero | tr '\\0' x; printf '\"}}'; : > {}.done.$$",
        go.display(),
        RESULT - 8,
        go.display()
    );
    let skill = Skill::sh("big", &script).with("timeout_seconds", json!(300));
    let node = fabric.node("host", &[skill], &Spec::new().arg("--slots", "4"));
    fabric.wait_for_skill("big", SOON, |_| true);
    runtime().block_on(async {
        let client = fabric.client();
        let mut ids = Vec::new();
        for _ in 0..4 {
            let id = client.create(&request("big", "{}")).await.unwrap().id.parse().unwrap();
            let mut follow = client.watch(id, 0);
            while !matches!(
                follow.next().await.unwrap().unwrap(),
                Followed::Event(Event { kind: EventKind::Stderr { .. }, .. })
            ) {}
            ids.push(id);
        }
        let before = resident(node.pid());
        fabric.coordinator().signal(Signal::STOP);
        put(&go, "");
        let written = || {
            files_below(go.parent().unwrap())
                .iter()
                .filter(|path| {
                    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("go.done."))
                })
                .count()
        };
        eventually("every result is written", SOON, || (written() == 4).then_some(()));
        eventually("no skill runs", SOON, || children(node.pid()).is_empty().then_some(()));
        eventually("the results are on disk", SOON, || {
            (resident(node.pid()).saturating_sub(before) < 40 * MIB).then_some(())
        });
        fabric.coordinator().signal(Signal::CONT);
        for id in ids {
            let seen = Observed::of(client.watch(id, 0)).await.unwrap();
            assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
            assert_eq!(seen.result().len(), RESULT);
        }
    });
}

#[test]
fn a_spool_that_cannot_be_read_costs_its_stderr_and_nothing_else() {
    let mut fabric = fabric();
    let (go, done) = (fabric.path("go"), fabric.path("done"));
    let script = format!(
        "echo begun >&2; while [ ! -e {} ]; do sleep 0.02; done; \
         head -c 20000000 /dev/zero | tr '\\0' '\\n' >&2; : > {}; echo '{{\"ok\":true}}'",
        go.display(),
        done.display()
    );
    let chatty = Skill::sh("chatty", &script).with("timeout_seconds", json!(300));
    let node = fabric.node("host", &[chatty, Skill::echo("quick")], &Spec::new());
    fabric.wait_for_skill("chatty", SOON, |_| true);
    fabric.wait_for_skill("quick", SOON, |_| true);
    runtime().block_on(async {
        let client = fabric.client();
        let id = client.create(&request("chatty", "{}")).await.unwrap().id.parse().unwrap();
        let mut first = client.watch(id, 0);
        while !matches!(
            first.next().await.unwrap().unwrap(),
            Followed::Event(Event { kind: EventKind::Stderr { .. }, .. })
        ) {}
        fabric.coordinator().signal(Signal::STOP);
        put(&go, "");
        eventually("the skill has said everything", SOON, || done.exists().then_some(()));
        eventually("the skill has ended", SOON, || children(node.pid()).is_empty().then_some(()));
        // The file has no name, but its descriptor can be opened again.
        let spool = fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap().flatten().find(|entry| {
            fs::metadata(entry.path()).is_ok_and(|file| file.is_file() && file.len() > 1_000_000)
                && fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().ends_with("(deleted)"))
        });
        let spool = fs::OpenOptions::new().write(true).open(spool.unwrap().path()).unwrap();
        let mut length = 0;
        eventually("the last of it is written", SOON, || {
            let before = std::mem::replace(&mut length, spool.metadata().unwrap().len());
            (before == length).then_some(())
        });
        spool.set_len(0).unwrap();
        fabric.coordinator().signal(Signal::CONT);
        let seen = Observed::of(client.watch(id, 0)).await.unwrap();
        assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
        assert_eq!(seen.result(), b"{\"ok\":true}\n");
        let gaps: Vec<u64> = seen
            .events
            .iter()
            .filter_map(|(_, event)| match event.kind {
                EventKind::Gap { bytes, .. } => Some(bytes),
                _ => None,
            })
            .collect();
        assert!(gaps.len() <= 8 && gaps.iter().sum::<u64>() > 15_000_000, "{gaps:?}");
        assert_eq!(seen.last().dropped_bytes, gaps.iter().sum::<u64>());
        assert!(node.stderr().matches("no coordinator").count() <= 2, "{}", node.stderr());
        let quick = Observed::of(client.invoke(&request("quick", "{}"))).await.unwrap();
        assert_eq!(quick.last().outcome, Outcome::Succeeded, "{}", quick.last().message);
    });
}
