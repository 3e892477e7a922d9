//! Time-outs, cancels and what a skill leaves behind.

use std::time::Duration;

use serde_json::json;
use weft_core::{
    event::EventKind,
    outcome::{Exit, Outcome},
    skill::Class,
};
use weft_proto::link;
use weft_testkit::{
    Daemon, Fabric, Observed, Skill, StubNode, eventually,
    process::processes_with,
    request,
    stub_node::{definition, hello},
};

use super::{SOON, echo_args, mk, observe, plain};
use crate::{fabric, runtime, unique_sleep};

#[test]
fn s15_a_time_out_ends_every_descendant_before_it_is_said() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let tree = format!(
        "#!/bin/sh\ncat >/dev/null\n{sleep}.1 &\nsetsid {sleep}.2 &\n\
         ( setsid sh -c '{sleep}.3 & exec {sleep}.4' & )\necho started >&2\nwait\n"
    );
    let _node = fabric.node("host", &[mk("tree", &tree).with("timeout_seconds", json!(1))], &plain());
    let seen = observe(&fabric, "tree", "{}");
    assert_eq!(processes_with(&sleep), Vec::<u32>::new(), "left behind when TIMED_OUT was said");
    let last = seen.last();
    assert_eq!(last.outcome, Outcome::TimedOut);
    // The budget, the grace of 5 s and one second; twice that on a busy machine.
    assert!(last.duration >= Duration::from_secs(1), "{last:?}");
    assert!(last.duration <= 2 * Duration::from_secs(1 + 5 + 1), "{last:?}");
    let place =
        |wanted: fn(&EventKind) -> bool| seen.events.iter().position(|(_, event)| wanted(&event.kind));
    let said = place(|kind| matches!(kind, EventKind::Stderr { .. })).unwrap();
    assert_eq!(seen.stderr(), b"started\n");
    let ended = seen.events.last().unwrap().1.time;
    let lead = Duration::try_from(ended.duration_since(seen.events[said].1.time)).unwrap();
    assert!(lead >= Duration::from_millis(500), "it was streamed only {lead:?} before the end");
}

#[test]
fn s16_a_background_process_that_holds_stdout_delays_nothing_and_adds_nothing() {
    let fabric = fabric();
    let sleep = unique_sleep();
    // The second writes when the first process has ended, while weft still reads stderr.
    let late = "#!/bin/sh\n( until grep -q '^State:.Z' /proc/$$/status; do :; done; sleep 0.5; printf junk ) &\n\
                printf '{\"started\":true}'\n";
    let skills = [
        mk("leaver", &format!("#!/bin/sh\n{sleep} &\nprintf '{{\"started\":true}}'\n")),
        mk("late_writer", late),
    ];
    let _node = fabric.node("host", &skills, &plain());
    let seen = observe(&fabric, "leaver", "{}");
    let last = seen.last();
    assert_eq!((last.outcome, seen.result().as_slice()), (Outcome::Succeeded, &b"{\"started\":true}"[..]));
    assert!(last.duration < Duration::from_secs(2 * 3), "{last:?}");
    assert_eq!(last.leftovers_killed, 1);
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
    let told = fabric.weft(&["call", "leaver"]);
    assert!(told.stderr.contains("a process that it left behind was killed"), "{}", told.stderr);

    let seen = observe(&fabric, "late_writer", "{}");
    let result = String::from_utf8(seen.result()).unwrap();
    assert_eq!(
        (seen.last().outcome, result.as_str()),
        (Outcome::Succeeded, r#"{"started":true}"#),
        "{seen:?}"
    );
    let started =
        seen.events.iter().find(|(_, event)| matches!(event.kind, EventKind::Started { .. })).unwrap();
    let took = Duration::try_from(seen.events.last().unwrap().1.time.duration_since(started.1.time)).unwrap();
    assert!(took >= Duration::from_millis(400), "it ended before anything could be mixed in: {took:?}");
}

/// What a skill that needs two seconds to stop is told, with this grace.
fn stopped_with(grace: &str) -> Observed {
    let fabric = fabric();
    let script = "#!/bin/sh\ntrap 'echo begin >&2; sleep 2; echo done >&2; exit 0' TERM\n\
                  echo ready >&2; while :; do sleep 0.1; done\n";
    let skill = mk("slow_to_stop", script).with("timeout_seconds", json!(1));
    let _node = fabric.node("host", &[skill], &plain().arg("--stop-grace", grace));
    observe(&fabric, "slow_to_stop", "{}")
}

/// Its lines, without what a shell may say about the sleep that got the signal as well.
fn lines(seen: &Observed) -> Vec<String> {
    let stderr = String::from_utf8(seen.stderr()).unwrap();
    stderr.lines().filter(|line| *line != "Terminated").map(ToOwned::to_owned).collect()
}

#[test]
fn s17_the_stop_grace_is_what_the_operator_says() {
    let patient = stopped_with("5");
    assert_eq!(lines(&patient), ["ready", "begin", "done"]);
    // TIMED_OUT, although its handler exits with 0.
    let last = patient.last();
    assert_eq!((last.outcome, last.exit), (Outcome::TimedOut, Some(Exit::Code(0))), "{last:?}");
    let about_three = Duration::from_millis(2900)..Duration::from_secs(6);
    assert!(about_three.contains(&last.duration), "{last:?}");

    let short = stopped_with("1");
    assert_eq!(lines(&short), ["ready", "begin"]);
    let last = short.last();
    assert_eq!((last.outcome, last.exit), (Outcome::TimedOut, Some(Exit::Signal(9))), "{last:?}");
    let about_two = Duration::from_millis(1900)..Duration::from_secs(4);
    assert!(about_two.contains(&last.duration), "{last:?}");
}

/// A node whose only slot is taken by a skill that runs until the test ends.
fn busy(fabric: &Fabric, more: Vec<Skill>, sleep: &str) -> Daemon {
    let mut skills = vec![mk("occupy", &format!("#!/bin/sh\nexec {sleep}\n"))];
    skills.extend(more);
    let node = fabric.node("host", &skills, &plain().arg("--slots", "1"));
    fabric.weft(&["call", "occupy", "--detach"]);
    eventually("the slot to be taken", SOON, || (!processes_with(sleep).is_empty()).then_some(()));
    node
}

#[test]
fn s18_cancelled_is_said_when_the_tree_is_gone_and_never_changes() {
    let fabric = fabric();
    let late = fabric.path("late");
    let sleep = unique_sleep().replace("sleep 9", "sleep 8.");
    let script = format!("#!/bin/sh\ncat >/dev/null; {sleep}; echo x >{}; printf '{{}}'\n", late.display());
    let _node = fabric.node("host", &[mk("slow", &script), echo_args()], &plain());
    let id = fabric.weft(&["call", "slow", "--detach"]).stdout.trim().to_owned();
    eventually("its process", SOON, || (!processes_with(&sleep).is_empty()).then_some(()));
    assert_eq!(fabric.weft(&["cancel", &id]).code, 0);
    let watched = fabric.weft(&["watch", &id]);
    // Whatever could write the file is gone, so it never appears.
    assert_eq!(processes_with(&sleep), Vec::<u32>::new(), "left behind when CANCELLED was said");
    assert!(!late.exists());
    assert_eq!(watched.code, 130, "{watched:?}");
    assert!(watched.stderr.contains("CANCELLED"), "{}", watched.stderr);
    assert!(fabric.weft(&["cancel", &id]).stderr.contains("has ended: CANCELLED"));
    assert_eq!(fabric.weft(&["watch", &id]).stderr, watched.stderr);

    // A cancel that comes after the end says what the end was.
    let done = fabric.weft(&["call", "echo_args", "--detach"]).stdout.trim().to_owned();
    assert_eq!(fabric.weft(&["watch", &done]).code, 0);
    assert!(fabric.weft(&["cancel", &done]).stderr.contains("has ended: SUCCEEDED"));
    assert_eq!(fabric.weft(&["watch", &done]).stdout, "{}");
}

#[test]
fn s18_a_cancel_before_the_start_says_that_it_never_started() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let ran = fabric.path("ran");
    let skill = mk("waits", &format!("#!/bin/sh\necho x >{}; echo '{{}}'\n", ran.display()));
    let _node = busy(&fabric, vec![skill], &sleep);
    let seen = runtime().block_on(async {
        let client = fabric.client();
        let mut detached = request("waits", "{}");
        detached.detach = true;
        let id = client.create(&detached).await.unwrap().id.parse().unwrap();
        client.cancel(id).await.unwrap();
        Observed::of(client.watch(id, 0)).await.unwrap()
    });
    let last = seen.last();
    assert_eq!((last.outcome, last.started), (Outcome::Cancelled, Some(false)), "{last:?}");
    assert!(last.message.contains("never started"), "{}", last.message);
    assert!(!ran.exists());
}

#[test]
fn s18_a_cancel_before_the_node_has_accepted_it_says_that_it_never_started() {
    let fabric = fabric();
    runtime().block_on(async {
        let mut node = StubNode::connect(fabric.address(), hello("slow")).await.unwrap();
        node.offer(&[definition("unread", Class::Safe)]).await;
        fabric.wait_for_skill("unread", SOON, |_| true);
        let client = fabric.client();
        let mut detached = request("unread", "{}");
        detached.detach = true;
        let id = client.create(&detached).await.unwrap().id.parse().unwrap();
        let dispatch = node.dispatch().await;
        client.cancel(id).await.unwrap();
        // The dispatch was still unread when the node was told to drop it.
        node.send(link::connect_request::Message::CancelAcknowledged(link::CancelAcknowledged {
            invocation_id: dispatch.invocation_id,
            attempt: dispatch.attempt,
            in_hand: false,
        }))
        .await;
        let seen = Observed::of(client.watch(id, 0)).await.unwrap();
        let last = seen.last();
        assert_eq!((last.outcome, last.started), (Outcome::Cancelled, Some(false)), "{last:?}");
        assert!(last.message.contains("never started"), "{}", last.message);
    });
}
