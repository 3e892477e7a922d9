//! A refusal names what, where and what to do, and has an exit code that scripts can use.

use std::time::Duration;

use serde_json::json;
use weft_testkit::{Daemon, Fabric, Skill, Spec, fabric::isolate};

use crate::{WEFT, fabric};

fn strict() -> Skill {
    let schema = json!({"type": "object", "required": ["path"], "additionalProperties": false,
                        "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}}});
    Skill::echo("strict").with("schema", schema)
}

#[test]
fn args_that_do_not_fit_are_refused_before_anything_runs() {
    let fabric = fabric();
    let _node = fabric.node("host", &[strict()], &Spec::new());
    for (args, word) in [
        (&["--args", r#"{"path":5}"#][..], "/path"),
        (&["--args", "{}"], "required"),
        (&["--args", r#"{"path":"/","x":1}"#], "'x' was unexpected"),
        (&["--args", "[1]"], "one JSON object"),
        (&["--args", "{"], "not JSON"),
        (&["--args", r#"{"path":"/a","path":"/b"}"#], "comes twice"),
        (&["path=/", "depth=deep"], "integer"),
    ] {
        let mut all = vec!["call", "strict"];
        all.extend(args);
        let finished = fabric.weft(&all);
        assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{args:?}: {finished:?}");
        assert!(finished.stderr.contains(word), "{args:?}: {}", finished.stderr);
    }
    assert_eq!(fabric.json(&["invocations"]).unwrap(), json!([]));
    assert_eq!(fabric.call(&["strict", "path=/", "depth=3"]), json!({"path": "/", "depth": 3}));
}

#[test]
fn mutating_and_dangerous_skills_are_denied_until_the_operator_allows_them() {
    let skills = ["mutating", "dangerous"].map(|class| Skill::echo(class).with("class", json!(class)));
    for (allow, codes) in
        [(&[][..], [4, 4]), (&["--allow", "mutating"], [0, 4]), (&["--allow", "dangerous"], [0, 0])]
    {
        let mut fabric = Fabric::start(WEFT, allow);
        let _node = fabric.node("host", &skills, &Spec::new());
        for (class, code) in ["mutating", "dangerous"].into_iter().zip(codes) {
            let finished = fabric.weft(&["call", class]);
            assert_eq!(finished.code, code, "{allow:?}: {finished:?}");
            assert_eq!(code == 4, finished.stderr.contains("POLICY_DENIED"), "{}", finished.stderr);
            let why = fabric.weft(&["why", class]).stdout;
            assert!(why.contains(&format!("class {class}")), "{why}");
        }
        let loud = fabric.coordinator().stderr().contains("runs without a person's consent");
        assert_eq!(loud, !allow.is_empty());
    }
}

#[test]
fn a_node_keeps_its_own_cap_whatever_the_coordinator_allows() {
    let fabric = Fabric::start(WEFT, &["--allow", "dangerous"]);
    let skill = Skill::echo("risky").with("class", json!("dangerous"));
    let _node = fabric.node("host", &[skill], &Spec::new().arg("--max-class", "mutating"));
    let finished = fabric.weft(&["call", "risky"]);
    assert_eq!(finished.code, 3, "{finished:?}");
    assert!(finished.stderr.contains("NOT_STARTED") && finished.stderr.contains("nothing above mutating"));
}

#[test]
fn no_coordinator_is_said_at_once() {
    let finished =
        Daemon::start(std::path::Path::new(WEFT), &["skills", "--coordinator", "127.0.0.1:1"], isolate)
            .finish(Duration::from_secs(20));
    assert_eq!(finished.code, 6);
    assert!(finished.stderr.contains("weft dev"), "{}", finished.stderr);
}

#[test]
fn a_full_node_refuses_with_a_time_to_try_again() {
    let fabric = fabric();
    let go = fabric.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; echo '{{}}'", go.display());
    let spec = Spec::new().arg("--slots", "1").arg("--queue", "1");
    let _node = fabric.node("host", &[Skill::sh("wait", &script)], &spec);
    let ids: Vec<_> =
        (0..2).map(|_| fabric.weft(&["call", "wait", "--detach"]).stdout.trim().to_owned()).collect();
    let third = fabric.weft(&["call", "wait", "--detach"]);
    assert_eq!(third.code, 3, "{third:?}");
    assert!(third.stderr.contains("QUEUE_FULL") && third.stderr.contains("try again"), "{}", third.stderr);
    std::fs::write(&go, "").unwrap();
    for id in ids {
        assert_eq!(fabric.weft(&["watch", &id]).code, 0);
    }
}
