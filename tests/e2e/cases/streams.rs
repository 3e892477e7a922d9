//! Long lines, no lines, and results of every size.

use std::{
    fs,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::json;
use weft_core::{event::EventKind, limits, outcome::Outcome};
use weft_testkit::{
    Skill,
    process::{forget_peak, peak_resident, resident},
};

use super::{echo_args, mk, observe, plain, stays_ready};
use crate::fabric;

#[test]
fn s19_a_line_longer_than_any_buffer_arrives_whole() {
    let fabric = fabric();
    let program = "#!/usr/bin/python3\nimport sys\nsys.stderr.write('e'*300000 + '\\n')\n\
                   sys.stderr.write('after\\n')\nprint('{\"s\":\"' + 'a'*300000 + '\"}')\n";
    let _node = fabric.node("host", &[mk("long_lines", program)], &plain());
    let seen = observe(&fabric, "long_lines", "{}");
    assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
    let expected = format!("{}\nafter\n", "e".repeat(300_000));
    assert_eq!(expected.len(), 300_007);
    assert!(seen.stderr() == expected.as_bytes(), "{} bytes", seen.stderr().len());
    let result = format!("{{\"s\":\"{}\"}}\n", "a".repeat(300_000));
    assert!(seen.result() == result.as_bytes(), "{} bytes", seen.result().len());
}

#[test]
fn s19_what_is_written_without_a_line_end_arrives_while_it_is_fresh() {
    let fabric = fabric();
    let times = fabric.path("times");
    let program = format!(
        "#!/usr/bin/python3\nimport sys, time\nlog = open('{}', 'w')\nfor n in range(4):\n    \
         if n: time.sleep(1)\n    sys.stderr.write('tick'); sys.stderr.flush()\n    \
         log.write(f'{{time.time()}}\\n'); log.flush()\ntime.sleep(1)\nprint('{{}}')\n",
        times.display()
    );
    let _node = fabric.node("host", &[mk("ticks", &program)], &plain());
    let seen = observe(&fabric, "ticks", "{}");
    assert_eq!(seen.stderr(), b"ticktickticktick");
    let written: Vec<f64> =
        fs::read_to_string(times).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    let mut arrived: Vec<f64> = Vec::new();
    for (time, event) in &seen.events {
        if let EventKind::Stderr { bytes, .. } = &event.kind {
            for _ in 0..bytes.len() / 4 {
                arrived.push(time.duration_since(UNIX_EPOCH).unwrap().as_secs_f64());
            }
        }
    }
    let late: Vec<f64> = arrived.iter().zip(&written).map(|(arrived, written)| arrived - written).collect();
    // 500 ms on an idle machine.
    assert!(late.len() == 4 && late.iter().all(|late| *late < 1.0), "{late:?}");
}

fn blob(name: &str, stdout: u64) -> Skill {
    let filling = stdout - r#"{"blob":""}"#.len() as u64;
    mk(
        name,
        &format!(
            "#!/bin/sh\nprintf '{{\"blob\":\"'; head -c {filling} /dev/zero | tr '\\0' a; printf '\"}}'\n"
        ),
    )
}

#[test]
fn s20_results_up_to_16_mib_arrive_and_larger_ones_fail_by_name() {
    const MIB: u64 = 1024 * 1024;
    let fabric = fabric();
    let envelope = r#"{"blob":""}"#.len() as u64;
    let skills = [
        blob("five", 5 * MIB + envelope),
        blob("most", 16 * MIB),
        blob("more", 16 * MIB + 1),
        mk("endless", "#!/bin/sh\nprintf '{\"blob\":\"'\nexec tr '\\0' a </dev/zero\n"),
        echo_args(),
    ];
    let node = fabric.node("host", &skills, &plain());
    stays_ready(&fabric);
    for (skill, size) in [("five", 5 * MIB + envelope), ("most", 16 * MIB)] {
        let before = resident(node.pid());
        forget_peak(node.pid());
        let seen = observe(&fabric, skill, "{}");
        let grown = peak_resident(node.pid()).saturating_sub(before);
        assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
        let result = seen.result();
        assert_eq!(result.len() as u64, size);
        assert!(serde_json::from_slice::<serde_json::Value>(&result).unwrap()["blob"].is_string());
        assert!(grown <= 3 * 16 * MIB + 8 * MIB, "{skill}: the node grew by {} MiB", grown / MIB);
    }
    for skill in ["more", "endless"] {
        let seen = observe(&fabric, skill, "{}");
        let last = seen.last();
        assert_eq!((last.outcome, seen.result().len()), (Outcome::OutputTooLarge, 0), "{last:?}");
        assert!(last.message.contains(&limits::RESULT_BYTES.to_string()), "{}", last.message);
        assert!(!last.message.contains("JSON"), "{}", last.message);
        assert!(last.duration < 2 * Duration::from_secs(5 + 1), "{skill}: {:?}", last.duration);
        assert!(seen.events.iter().all(|(_, event)| !matches!(event.kind, EventKind::OutputChunk { .. })));
    }
    stays_ready(&fabric);
}

#[test]
fn s25_numbers_and_their_order_come_back_byte_for_byte() {
    let fabric = fabric();
    let _node = fabric.node("host", &[echo_args()], &plain());
    let args = r#"{"id":1915883588174806058,"n":9007199254740993,"big":123456789012345678901234567890,"d":1.10,"neg":-0}"#;
    let id = fabric.weft(&["call", "echo_args", "--detach", "--args", args]).stdout.trim().to_owned();
    // Live, and again from the record.
    for _ in 0..2 {
        let seen = fabric.weft(&["watch", &id]);
        assert_eq!((seen.code, seen.stdout.as_str()), (0, args), "{seen:?}");
    }
    assert_eq!(observe(&fabric, "echo_args", args).result(), args.as_bytes());
    assert_eq!(fabric.call(&["echo_args", "--args", args])["d"], json!(1.10));
}
