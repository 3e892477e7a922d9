//! Dangerous and pinned calls run exactly the files that were seen, from a copy that nobody may write to.

use std::fs;

use serde_json::json;
use weft_testkit::{Fabric, Skill, Spec};

use crate::WEFT;

fn whereabouts(name: &str, class: &str) -> Skill {
    Skill::sh(name, r#"printf '{"cwd":"%s","note":"%s"}' "$(pwd -P)" "$(cat note)""#)
        .with("class", json!(class))
}

#[test]
fn dangerous_and_pinned_calls_start_from_a_read_only_copy() {
    let fabric = Fabric::start(WEFT, &["--allow", "dangerous"]);
    for (name, class) in [("calm", "safe"), ("risky", "dangerous")] {
        let dir = whereabouts(name, class).write(&fabric.skills_of("host"));
        fs::write(dir.join("note"), "as seen").unwrap();
    }
    let _node = fabric.node("host", &[], &Spec::new());
    let copies = fabric.path("host-state").join("exact").canonicalize().unwrap();
    let inside =
        |result: &serde_json::Value| result["cwd"].as_str().unwrap().starts_with(copies.to_str().unwrap());

    assert!(!inside(&fabric.call(&["calm"])), "an ordinary call starts in place");
    let digest = fabric.json(&["skills", "calm"]).unwrap()["digest"].as_str().unwrap().to_owned();
    let pinned = fabric.call(&["calm", "--digest", &digest]);
    assert!(inside(&pinned), "{pinned}");
    let dangerous = fabric.call(&["risky"]);
    assert!(inside(&dangerous), "{dangerous}");
    assert_eq!(dangerous["note"], "as seen");
}

#[test]
fn what_cannot_be_copied_exactly_is_refused_not_run() {
    let fabric = Fabric::start(WEFT, &["--allow", "dangerous"]);
    let dir = whereabouts("heavy", "dangerous").write(&fabric.skills_of("host"));
    fs::create_dir(dir.join("node_modules")).unwrap();
    fs::write(dir.join("node_modules/lib.js"), "").unwrap();
    let _node = fabric.node("host", &[], &Spec::new());
    let refused = fabric.weft(&["call", "heavy"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(
        refused.stderr.contains("NOT_STARTED") && refused.stderr.contains("partial"),
        "{}",
        refused.stderr
    );
}
