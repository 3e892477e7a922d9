//! stdin, stdout and their encodings, by programs that care little.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{sync::Semaphore, task::JoinSet};
use weft_core::outcome::{Exit, Outcome};
use weft_testkit::{Observed, eventually, process::descriptors, request};

use super::{echo_args, mk, observe, plain, stays_ready};
use crate::{fabric, runtime};

#[test]
fn s11_a_banner_before_the_json_is_no_result_and_white_space_is_none_of_weft_s_business() {
    let fabric = fabric();
    let skills = [
        mk("banner", "#!/bin/sh\necho 'Loading tools v1.2'\necho '{\"ok\":true}'\n"),
        mk("spaced", "#!/bin/sh\nprintf '\\n  {\"ok\":true}\\n\\n'\n"),
    ];
    let _node = fabric.node("host", &skills, &plain());
    let banner = observe(&fabric, "banner", "{}");
    let last = banner.last();
    assert_eq!((last.outcome, last.exit), (Outcome::InvalidOutput, Some(Exit::Code(0))));
    assert!(banner.result().is_empty());
    for word in ["ran to completion", r#"Loading tools v1.2\n{"ok":true}"#] {
        assert!(last.message.contains(word), "{}", last.message);
    }
    assert_eq!(&last.stdout_tail[..], b"Loading tools v1.2\n{\"ok\":true}\n");
    assert_eq!(observe(&fabric, "spaced", "{}").result(), b"\n  {\"ok\":true}\n\n");
}

#[test]
fn s12_a_child_that_never_reads_its_args_is_no_error() {
    let fabric = fabric();
    let skills = [
        mk("deaf", "#!/bin/sh\nprintf \"{\\\"ok\\\":true}\"\n"),
        mk("deaf_and_failing", "#!/bin/sh\nexit 7\n"),
        echo_args(),
    ];
    let mut node = fabric.node("host", &skills, &plain().arg("--queue", "1000"));
    let args = Bytes::from(format!(r#"{{"blob":"{}"}}"#, "a".repeat(900 * 1024)));
    let many = async |skill: &'static str, calls: usize| {
        let client = fabric.client();
        let turns = Arc::new(Semaphore::new(8));
        let mut set = JoinSet::new();
        for _ in 0..calls {
            let (client, turns, args) = (client.clone(), turns.clone(), args.clone());
            set.spawn(async move {
                let _turn = turns.acquire().await.unwrap();
                Observed::of(client.invoke(&request(skill, args))).await.unwrap()
            });
        }
        set.join_all().await
    };
    runtime().block_on(async {
        many("deaf", 8).await;
        let before = descriptors(node.pid());
        for seen in many("deaf", 200).await {
            assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
            assert_eq!(seen.result(), b"{\"ok\":true}");
        }
        for seen in many("deaf_and_failing", 20).await {
            let last = seen.last();
            assert_eq!((last.outcome, last.exit), (Outcome::Failed, Some(Exit::Code(7))));
            assert!(
                last.message.contains("exit code 7") && !last.message.contains("pipe"),
                "{}",
                last.message
            );
        }
        eventually("as many descriptors as before", Duration::from_secs(10), || {
            (descriptors(node.pid()) <= before).then_some(())
        });
    });
    stays_ready(&fabric);
    node.kill();
}

#[test]
fn s13_a_character_written_in_pieces_is_whole_live_and_in_the_log() {
    let fabric = fabric();
    let pieces = "#!/bin/sh\nprintf '\\342' >&2; sleep 0.2; printf '\\211' >&2; sleep 0.2; \
                  printf '\\244\\n' >&2; printf '{}'\n";
    let _node = fabric.node("host", &[mk("pieces", pieces)], &plain());
    let id = fabric.weft(&["call", "pieces", "--detach"]).stdout.trim().to_owned();
    let live = fabric.weft(&["watch", &id]);
    let stored = fabric.weft(&["watch", &id]);
    for seen in [live, stored] {
        assert_eq!((seen.code, seen.stderr.as_str(), seen.stdout.as_str()), (0, "≤\n", "{}"));
    }
    assert_eq!(observe(&fabric, "pieces", "{}").stderr(), [0xe2, 0x89, 0xa4, b'\n']);
}

#[test]
fn s14_one_byte_that_is_no_utf_8_fails_that_call_and_no_other() {
    let fabric = fabric();
    let go = fabric.path("go");
    let other = format!(
        "#!/bin/sh\necho up >&2; while [ ! -e {} ]; do sleep 0.02; done; echo '{{\"fine\":true}}'\n",
        go.display()
    );
    let skills =
        [mk("latin", "#!/bin/sh\nprintf '{\"name\":\"caf\\351\"}'\n"), mk("other", &other), echo_args()];
    let _node = fabric.node("host", &skills, &plain());
    let mut running = fabric.spawn(&["call", "other"]);
    running.wait_for_line("up", Duration::from_secs(20));
    let latin = observe(&fabric, "latin", "{}");
    let last = latin.last();
    assert_eq!((last.outcome, last.exit), (Outcome::InvalidOutput, Some(Exit::Code(0))));
    assert!(last.message.contains("not UTF-8 at byte 12"), "{}", last.message);
    assert!(last.message.contains(r#"{"name":"caf\xe9"}"#), "{}", last.message);
    assert!(latin.result().is_empty());
    stays_ready(&fabric);
    std::fs::write(go, "").unwrap();
    let running = running.finish(Duration::from_secs(20));
    assert_eq!((running.code, running.stdout.trim()), (0, r#"{"fine":true}"#), "{running:?}");
}
