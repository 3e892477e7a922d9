//! Args and results cross every hop byte for byte, whatever their size.

use weft_testkit::{Skill, Spec};

use crate::fabric;

#[test]
fn numbers_order_and_spaces_survive() {
    let fabric = fabric();
    let _node = fabric.node("host", &[Skill::echo("echo")], &Spec::new());
    let args = r#"{ "id":1915883588174806058,"n":9007199254740993, "big":123456789012345678901234567890,"d":1.10,"neg":-0 }"#;
    assert_eq!(fabric.weft(&["call", "echo", "--args", args]).stdout, args);
}

#[test]
fn large_results_arrive_whole_and_too_large_ones_fail_clearly() {
    let fabric = fabric();
    let blob = |bytes: u64| {
        format!("printf '{{\"b\":\"'; head -c {} /dev/zero | tr '\\0' a; printf '\"}}'", bytes - 8)
    };
    const MIB: u64 = 1024 * 1024;
    let skills = [
        Skill::sh("five", &blob(5 * MIB)),
        Skill::sh("most", &blob(16 * MIB)),
        Skill::sh("more", &blob(16 * MIB + 1)),
        Skill::sh("endless", "yes"),
    ];
    let _node = fabric.node("host", &skills, &Spec::new());
    for (skill, size) in [("five", 5 * MIB), ("most", 16 * MIB)] {
        let finished = fabric.weft(&["call", skill]);
        assert_eq!((finished.code, finished.stdout.len() as u64), (0, size), "{}", finished.stderr);
        assert!(finished.stdout.starts_with("{\"b\":\"aaa") && finished.stdout.ends_with("aaa\"}"));
    }
    for skill in ["more", "endless"] {
        let finished = fabric.weft(&["call", skill]);
        assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{}", finished.stderr);
        assert!(finished.stderr.contains("OUTPUT_TOO_LARGE") && finished.stderr.contains("16777216"));
    }
}

#[test]
fn what_is_not_one_json_object_is_no_result() {
    let fabric = fabric();
    let skills = [
        Skill::sh("banner", "echo 'Loading tools v1.2'; echo '{\"ok\":true}'"),
        Skill::sh("latin", r#"printf '{"name":"caf\351"}'"#),
        Skill::sh("fails", "echo oops >&2; exit 7"),
        Skill::sh("spaced", r#"printf '\n  {"ok":true}\n\n'"#),
        Skill::new("lost", "#!/weft/no/such/interp\n"),
    ];
    let _node = fabric.node("host", &skills, &Spec::new());
    for (skill, word) in [
        ("banner", "ran to completion"),
        ("latin", "not UTF-8 at byte 12"),
        ("fails", "exit code 7"),
        ("lost", "/weft/no/such/interp"),
    ] {
        let finished = fabric.weft(&["call", skill]);
        assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{skill}: {finished:?}");
        assert!(finished.stderr.contains(word), "{skill}: {}", finished.stderr);
    }
    assert_eq!(fabric.weft(&["call", "spaced"]).stdout, "\n  {\"ok\":true}\n\n");
}

#[test]
fn a_child_gets_exactly_the_environment_that_its_manifest_lists() {
    let fabric = fabric();
    let dump = "#!/usr/bin/env python3\n\
        import json\n\
        e=open('/proc/self/environ','rb').read()\n\
        print(json.dumps({'env':sorted(x.decode('latin-1') for x in e.split(b'\\0') if x)}))\n";
    let absolute = dump.replace("/usr/bin/env python3", "/usr/bin/python3");
    let skills = [
        Skill::new("bare", &absolute).with("env_allow", serde_json::json!([])),
        Skill::new("some", &absolute).with("env_allow", serde_json::json!(["A_TOKEN", "EMPTY", "UNSET"])),
    ];
    let spec = Spec::new().env("A_TOKEN", "aaa").env("B_TOKEN", "bbb").env("EMPTY", "");
    let _node = fabric.node("host", &skills, &spec);
    assert_eq!(fabric.call(&["bare"]), serde_json::json!({"env": []}));
    assert_eq!(fabric.call(&["some"]), serde_json::json!({"env": ["A_TOKEN=aaa", "EMPTY="]}));
}
