//! Schemas that were written to do harm.

use std::{
    io::ErrorKind,
    net::TcpListener,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use weft_core::outcome::Outcome;
use weft_testkit::{Observed, Skill, request};

use super::{SOON, echo_args, mk, observe, plain, stays_ready};
use crate::{fabric, runtime};

#[test]
fn s24_a_hostile_schema_is_refused_or_answers_at_once() {
    let fabric = fabric();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let nested = (0..2000).fold("{}".to_owned(), |inner, _| format!("{{\"allOf\":[{inner}]}}"));
    let schemas = [
        ("ref_nothing", r#"{"$ref":""}"#.to_owned()),
        ("ref_self", r##"{"$ref":"#"}"##.to_owned()),
        (
            "ref_ring",
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##
                .to_owned(),
        ),
        ("nested", nested),
        ("remote", format!(r#"{{"$ref":"http://127.0.0.1:{port}/x"}}"#)),
        ("remote_nine", r#"{"$ref":"http://127.0.0.1:9/x"}"#.to_owned()),
        ("file", r#"{"$ref":"file:///etc/passwd"}"#.to_owned()),
        ("no_type", r#"{"type":"objekt"}"#.to_owned()),
        ("all", "true".to_owned()),
        ("list", "[]".to_owned()),
    ];
    let mut skills: Vec<Skill> = schemas
        .iter()
        .map(|(name, schema)| {
            let text = format!(
                r#"{{"name":"{name}","description":"d","entry":"run","class":"safe","schema":{schema}}}"#
            );
            mk(name, "#!/bin/sh\nexec cat\n").with_text(text)
        })
        .collect();
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "additionalProperties": false}}});
    skills.push(mk("tree", "#!/bin/sh\nexec cat\n").with("schema", tree));
    skills.push(echo_args());
    let mut node = fabric.node("host", &skills, &plain());
    fabric.wait_for_skill("tree", SOON, |_| true);

    let diagnostics = fabric.diagnostics();
    let mut loaded = Vec::new();
    for (name, _) in &schemas {
        let place = format!("/{name}/skill.json:");
        let refused = diagnostics.iter().any(|line| line.contains(&place));
        match fabric.skill(name) {
            None => assert!(refused, "{name} is neither listed nor refused: {diagnostics:#?}"),
            Some(_) => loaded.push(*name),
        }
        for args in ["{}", r#"{"a":1}"#] {
            // The fastest of three, because the machine may be busy.
            let took = (0..3)
                .map(|_| {
                    let begun = Instant::now();
                    let seen = runtime()
                        .block_on(async { Observed::of(fabric.client().invoke(&request(name, args))).await });
                    match seen {
                        Ok(seen) => assert_eq!(seen.last().outcome, Outcome::Succeeded, "{name}: {seen:?}"),
                        Err(error) => assert!(
                            matches!(error.reason(), Some("SKILL_INVALID" | "ARGS_INVALID")),
                            "{name}: {error}"
                        ),
                    }
                    begun.elapsed()
                })
                .min();
            assert!(took < Some(Duration::from_millis(400)), "{name} with {args}: {took:?}");
        }
    }
    assert_eq!(loaded, Vec::<&str>::new(), "none of them describes an object");
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "somebody followed the reference"
    );

    let deep: Value = json!({"children": [{"children": []}, {}]});
    let args = r#"{"children":[{"children":[]},{}]}"#;
    assert_eq!(observe(&fabric, "tree", args).result(), args.as_bytes());
    assert_eq!(fabric.call(&["tree", "--args", args]), deep);
    let wrong = fabric.weft(&["call", "tree", "--args", r#"{"children":[{"children":[5]}]}"#]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("/children/0/children/0"), "{}", wrong.stderr);
    stays_ready(&fabric);
    node.kill();
}
