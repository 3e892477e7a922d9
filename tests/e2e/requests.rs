//! A request id makes a retry attach to the first try.

use serde_json::json;
use weft_testkit::{Fabric, Skill, Spec};

use crate::WEFT;

fn counting(fabric: &Fabric) -> (Skill, std::path::PathBuf) {
    let log = fabric.path("runs");
    let skill = Skill::new("count", &format!("#!/bin/sh\necho run >> {}\nexec cat\n", log.display()));
    (skill.with("class", json!("mutating")), log)
}

#[test]
fn the_same_request_runs_once_and_every_caller_gets_its_result() {
    let fabric = Fabric::start(WEFT, &["--allow", "mutating"]);
    let (skill, log) = counting(&fabric);
    let _node = fabric.node("host", &[skill], &Spec::new());
    let args = ["call", "count", "n=1", "--request-id", "r-1"];
    let mut together: Vec<_> = (0..8).map(|_| fabric.spawn(&args)).collect();
    for call in &mut together {
        let finished = call.finish(std::time::Duration::from_secs(30));
        assert_eq!((finished.code, finished.stdout.as_str()), (0, r#"{"n":"1"}"#), "{finished:?}");
    }
    assert_eq!(fabric.weft(&args).stdout, r#"{"n":"1"}"#);
    assert_eq!(std::fs::read_to_string(log).unwrap(), "run\n");
}

#[test]
fn a_request_id_that_stands_for_something_else_is_refused() {
    let fabric = Fabric::start(WEFT, &["--allow", "mutating"]);
    let (skill, log) = counting(&fabric);
    let _node = fabric.node("host", &[skill], &Spec::new());
    assert_eq!(fabric.weft(&["call", "count", "n=1", "--request-id", "r-1"]).code, 0);
    let other = fabric.weft(&["call", "count", "n=2", "--request-id", "r-1"]);
    assert_eq!(other.code, 2);
    assert!(other.stderr.contains("REQUEST_ID_REUSED"), "{}", other.stderr);
    assert_eq!(std::fs::read_to_string(log).unwrap(), "run\n");
}
