//! What Ongrid does with a manifest and its program, row by row, and what weft does with the same. The row numbers are
//! those of the compatibility table; where weft differs on purpose, `docs/ongrid.md` says so.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    time::Duration,
};

use serde_json::{Value, json};
use weft_core::{
    event::EventKind,
    limits,
    outcome::{Exit, Outcome},
};
use weft_testkit::{
    Daemon, Fabric, Observed, Skill, Spec, eventually,
    fabric::isolate,
    process::processes_with,
    request,
    skill::{put, put_program},
};

use crate::{fabric, runtime, unique_sleep};

const SOON: Duration = Duration::from_secs(20);

/// A node with these manifests, each in a directory of its name beside a program that echoes.
fn with_manifests(fabric: &Fabric, manifests: &[(&str, String)]) -> Daemon {
    let root = fabric.skills_of("host");
    for (directory, text) in manifests {
        put_program(&root.join(directory).join("run"), "#!/bin/sh\nexec cat\n");
        put(&root.join(directory).join("skill.json"), text);
    }
    fabric.node("host", &[Skill::echo("last_of_all")], &Spec::new())
}

/// A manifest with this name, where these members are added or, with `null`, left out.
fn manifest(name: &str, members: Value) -> String {
    let mut all = json!({"name": name, "description": "d", "entry": "run"});
    for (member, value) in members.as_object().unwrap() {
        match value {
            Value::Null => all.as_object_mut().unwrap().remove(member),
            value => all.as_object_mut().unwrap().insert(member.clone(), value.clone()),
        };
    }
    all.to_string()
}

/// Waits until every manifest has been read, then checks that these are refused and these words say why.
#[track_caller]
fn refused(fabric: &Fabric, directory: &str, words: &[&str]) {
    fabric.wait_for_skill("last_of_all", SOON, |_| true);
    let place = format!("/{directory}/skill.json:");
    let said: Vec<_> = fabric.diagnostics().into_iter().filter(|line| line.contains(&place)).collect();
    for word in words {
        assert!(said.iter().any(|line| line.contains(word)), "{directory}: no {word:?} in {said:#?}");
    }
    assert_eq!(fabric.skill(directory), None, "{directory} loaded");
}

#[track_caller]
fn observe(fabric: &Fabric, skill: &str, args: &'static str) -> Observed {
    let seen =
        runtime().block_on(async { Observed::of(fabric.client().invoke(&request(skill, args))).await });
    seen.unwrap_or_else(|error| panic!("{skill} is refused: {error}"))
}

// === the manifest: rows 1 to 12 ===

#[test]
fn row_1_every_member_that_ongrid_knows_is_read() {
    let fabric = fabric();
    let schema = r#"{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}"#;
    let whole = format!(
        r#"{{"name":"whole","description":"Free up disk.","schema":{schema},"entry":"run","env_allow":["PATH","HOME"],
            "timeout_seconds":60,"class":"mutating","category":"ops"}}"#
    );
    let manifests = [
        ("whole", whole),
        ("least", manifest("least", json!({}))),
        ("nameless", manifest("x", json!({"name": null}))),
        ("speechless", manifest("speechless", json!({"description": null}))),
        ("entryless", manifest("entryless", json!({"entry": null}))),
    ];
    let _node = with_manifests(&fabric, &manifests);
    let whole = fabric.wait_for_skill("whole", SOON, |_| true);
    assert_eq!(whole["class"], "SKILL_CLASS_MUTATING");
    let whole = &fabric.json(&["skills", "whole"]).unwrap()["definition"];
    // The schema is handed on as it was written.
    assert_eq!((&whole["schema"], &whole["category"]), (&json!(schema), &json!("ops")));
    assert_eq!((&whole["timeout"], &whole["envAllow"]), (&json!("60s"), &json!(["PATH", "HOME"])));
    let least = &fabric.json(&["skills", "least"]).unwrap()["definition"];
    assert_eq!((&least["class"], &least["classDeclared"]), (&json!("SKILL_CLASS_SAFE"), &json!(false)));
    assert_eq!((&least["timeout"], &least["category"]), (&json!("30s"), &json!("external")));
    refused(&fabric, "nameless", &["name is required"]);
    refused(&fabric, "speechless", &["description is required"]);
    refused(&fabric, "entryless", &["entry is required"]);
}

#[test]
fn row_2_decoding_is_strict_about_risk_and_lenient_about_the_unknown() {
    let fabric = fabric();
    let text =
        |name: &str, more: &str| format!(r#"{{"name":"{name}","description":"d","entry":"run"{more}}}"#);
    let manifests = [
        ("unknown", text("unknown", r#","author":"me""#)),
        ("upper_case", text("upper_case", r#","CLASS":"dangerous""#)),
        ("twice", text("twice", r#","class":"dangerous","class":"safe""#)),
        ("behind", text("behind", "") + " {}"),
        ("marked", format!("\u{feff}{}", text("marked", ""))),
        ("fraction", text("fraction", r#","timeout_seconds":1.5"#)),
        ("nothing", "null".to_owned()),
        ("large", text("large", &format!(r#","notes":"{}""#, "x".repeat(256 * 1024)))),
        ("nested", text("nested", &format!(r#","notes":{}1{}"#, "[".repeat(500), "]".repeat(500)))),
    ];
    let _node = with_manifests(&fabric, &manifests);
    // As Ongrid: what is not known is left alone. weft says so.
    fabric.wait_for_skill("unknown", SOON, |_| true);
    assert!(fabric.diagnostics().iter().any(|line| line.contains("/unknown/") && line.contains("author")));
    // Stricter than Ongrid: neither a second `class` nor `CLASS` may change a risk.
    refused(&fabric, "upper_case", &["\"CLASS\"", "case"]);
    refused(&fabric, "twice", &["class", "twice"]);
    refused(&fabric, "behind", &["syntax"]);
    // More lenient: one byte-order mark is an editor's habit.
    assert!(fabric.skill("marked").is_some());
    refused(&fabric, "fraction", &["timeout_seconds"]);
    refused(&fabric, "nothing", &["not a JSON object"]);
    refused(&fabric, "large", &["262144"]);
    refused(&fabric, "nested", &["recursion"]);
}

#[test]
fn row_3_every_fault_of_a_file_is_told_at_once() {
    let fabric = fabric();
    let text = manifest("Bad-Name", json!({"description": null, "class": "harmless", "timeout_seconds": -1}));
    let _node = with_manifests(&fabric, &[("bad", text)]);
    refused(&fabric, "bad", &["lower_snake", "description is required", "harmless", "timeout_seconds -1"]);
}

#[test]
fn row_4_names_are_lower_snake_and_at_most_64() {
    let fabric = fabric();
    let (most, more) = ("a".repeat(64), "a".repeat(65));
    let named = |name: &str| manifest(name, json!({}));
    let manifests = [
        ("digit", named("9lives")),
        ("under", named("_x")),
        ("most", named(&most)),
        ("more", named(&more)),
        ("dash", named("a-b")),
        ("empty", named("")),
    ];
    let _node = with_manifests(&fabric, &manifests);
    for name in ["9lives", "_x", &most] {
        fabric.wait_for_skill(name, SOON, |_| true);
        assert_eq!(fabric.call(&[name, "--args", r#"{"n":1}"#]), json!({"n": 1}));
    }
    refused(&fabric, "more", &["64"]);
    refused(&fabric, "dash", &[r#"name "a-b" must be lower_snake [a-z0-9_]"#]);
    refused(&fabric, "empty", &["must be lower_snake"]);
}

#[test]
fn row_5_a_description_says_something() {
    let fabric = fabric();
    let manifests = [
        ("blank", manifest("blank", json!({"description": " "}))),
        ("empty", manifest("empty", json!({"description": ""}))),
        ("long", manifest("long", json!({"description": "x".repeat(4097)}))),
        ("longest", manifest("longest", json!({"description": "x".repeat(4096)}))),
    ];
    let _node = with_manifests(&fabric, &manifests);
    fabric.wait_for_skill("longest", SOON, |_| true);
    refused(&fabric, "blank", &["description must not be blank"]);
    refused(&fabric, "empty", &["description"]);
    refused(&fabric, "long", &["4097 bytes"]);
}

#[test]
fn row_6_a_schema_is_compiled_when_it_is_loaded_and_holds_for_every_call() {
    let fabric = fabric();
    let manifests = [
        ("none", manifest("none", json!({}))),
        ("null_schema", r#"{"name":"null_schema","description":"d","entry":"run","schema":null}"#.to_owned()),
        ("text_schema", manifest("text_schema", json!({"schema": {"type": "string"}}))),
        ("broken", manifest("broken", json!({"schema": {"type": "objekt"}}))),
        ("strict", manifest("strict", json!({"schema": {"type": "object", "required": ["path"]}}))),
    ];
    let _node = with_manifests(&fabric, &manifests);
    for name in ["none", "null_schema"] {
        fabric.wait_for_skill(name, SOON, |_| true);
        assert_eq!(fabric.call(&[name, "--args", r#"{"any":1}"#]), json!({"any": 1}));
        let schema = &fabric.json(&["skills", name]).unwrap()["definition"]["schema"];
        assert_eq!(schema, r#"{"type":"object","properties":{}}"#);
    }
    refused(&fabric, "broken", &["schema"]);
    refused(&fabric, "text_schema", &["schema"]);
    assert_eq!(fabric.weft(&["call", "strict"]).code, 2);
    assert_eq!(fabric.call(&["strict", "path=/"]), json!({"path": "/"}));
}

#[test]
fn rows_7_and_8_an_entry_is_an_executable_file_below_an_allow_list_root() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    let other_root = fabric.path("other-root");
    put_program(&root.join("shared/run.sh"), "#!/bin/sh\necho '{\"from\":\"shared\"}'\n");
    put_program(&other_root.join("tools/run.sh"), "#!/bin/sh\necho '{\"from\":\"other root\"}'\n");
    let outside = fabric.path("outside.sh");
    put_program(&outside, "#!/bin/sh\necho '{}'\n");
    put(&root.join("plain_file/data"), "no program");
    symlink("/usr/bin/env", root.join("shared/out")).unwrap();
    symlink("run.sh", root.join("shared/in")).unwrap();
    let entry = |name: &str, entry: &str| (name.to_owned(), manifest(name, json!({"entry": entry})));
    let absolute = other_root.join("tools/run.sh");
    let manifests = [
        entry("beside", "../shared/run.sh"),
        entry("by_link", "../shared/in"),
        entry("absolute", absolute.to_str().unwrap()),
        entry("missing", "gone.sh"),
        entry("above", "../../outside.sh"),
        entry("outside", outside.to_str().unwrap()),
        entry("link_out", "../shared/out"),
        entry("directory", "../shared"),
        entry("the_root", ".."),
        entry("plain_file", "data"),
    ];
    for (directory, text) in &manifests {
        put(&root.join(directory).join("skill.json"), text);
    }
    Skill::echo("last_of_all").write(&root);
    let node = fabric.node("host", &[], &Spec::new().arg("--skills", &other_root));
    for (name, from) in [("beside", "shared"), ("by_link", "shared"), ("absolute", "other root")] {
        fabric.wait_for_skill(name, SOON, |_| true);
        assert_eq!(fabric.call(&[name]), json!({"from": from}), "{name}");
    }
    refused(&fabric, "missing", &["gone.sh", "No such file or directory"]);
    let canonical = |path: &Path| path.canonicalize().unwrap().display().to_string();
    let escapes = |path: &str| format!("entry {path} escapes allowlist root {}", canonical(&root));
    refused(&fabric, "above", &[&escapes(&canonical(&outside))]);
    refused(&fabric, "outside", &[&escapes(&canonical(&outside))]);
    // The resolved path is the one that is shown.
    refused(&fabric, "link_out", &[&escapes(&canonical(Path::new("/usr/bin/env")))]);
    refused(&fabric, "directory", &["is not a regular file"]);
    refused(&fabric, "the_root", &["is not a regular file"]);
    refused(&fabric, "plain_file", &["not executable"]);
    let line = format!("build \"above\": {}", escapes(&canonical(&outside)));
    assert!(node.stderr().contains(&line), "{}", node.stderr());
}

#[test]
fn rows_9_and_10_classes_are_three_words_and_categories_free_text() {
    let fabric = fabric();
    let manifests = [
        ("safe", manifest("safe", json!({"class": "safe", "category": "Anything at all"}))),
        ("mutating", manifest("mutating", json!({"class": "mutating"}))),
        ("dangerous", manifest("dangerous", json!({"class": "dangerous"}))),
        ("empty", manifest("empty", json!({"class": ""}))),
        ("capital", manifest("capital", json!({"class": "Safe"}))),
        ("other", manifest("other", json!({"class": "readonly"}))),
    ];
    let _node = with_manifests(&fabric, &manifests);
    for (name, class, declared) in [
        ("safe", "SAFE", true),
        ("mutating", "MUTATING", true),
        ("dangerous", "DANGEROUS", true),
        ("empty", "SAFE", false),
    ] {
        let skill = fabric.wait_for_skill(name, SOON, |_| true);
        assert_eq!(skill["class"], format!("SKILL_CLASS_{class}"), "{name}");
        assert_eq!(skill["definition"]["classDeclared"], declared, "{name}");
    }
    assert_eq!(fabric.skill("safe").unwrap()["definition"]["category"], "Anything at all");
    assert_eq!(fabric.skill("mutating").unwrap()["definition"]["category"], "external");
    refused(&fabric, "capital", &["\"Safe\""]);
    refused(&fabric, "other", &["\"readonly\""]);
}

#[test]
fn row_11_time_outs_are_in_range_or_the_skill_does_not_load() {
    let fabric = fabric();
    let lasting =
        |name: &'static str, seconds: i64| (name, manifest(name, json!({"timeout_seconds": seconds})));
    let manifests = [
        lasting("zero", 0),
        lasting("one", 1),
        lasting("hour", 3600),
        lasting("minus", -5),
        lasting("over", 3601),
        lasting("huge", 1_000_000_000_000_000_000),
    ];
    let _node = with_manifests(&fabric, &manifests);
    for (name, timeout) in [("zero", "30s"), ("one", "1s"), ("hour", "3600s")] {
        let skill = fabric.wait_for_skill(name, SOON, |_| true);
        assert_eq!(skill["definition"]["timeout"], timeout, "{name}");
    }
    for name in ["minus", "over", "huge"] {
        refused(&fabric, name, &["timeout_seconds", "from 1 to 3600"]);
    }
}

/// The environment as the kernel keeps it.
const DUMP: &str = "#!/usr/bin/python3\nimport json\n\
    e=open('/proc/self/environ','rb').read()\n\
    print(json.dumps({'env':sorted(x.decode('latin-1') for x in e.split(b'\\0') if x)}))\n";

#[test]
fn rows_12_and_43_the_environment_is_what_env_allow_names_and_the_node_has() {
    let fabric = fabric();
    let skills = [
        Skill::new("listed", DUMP).with("env_allow", json!([" SET ", "EMPTY", "", "UNSET", "  ", "SET"])),
        Skill::new("bare", DUMP).with("env_allow", json!([])),
        Skill::new("silent", DUMP).without("env_allow"),
        Skill::sh("by_shell", "printf '{\"path\":\"%s\"}' \"$SECRET\"").with("env_allow", json!(["SET"])),
    ];
    let spec = Spec::new().env("SET", "a b=c").env("EMPTY", "").env("SECRET", "s");
    let _node = fabric.node("host", &skills, &spec);
    fabric.wait_for_skill("silent", SOON, |_| true);
    assert_eq!(fabric.call(&["listed"]), json!({"env": ["EMPTY=", "SET=a b=c"]}));
    for name in ["bare", "silent"] {
        assert_eq!(fabric.call(&[name]), json!({"env": []}), "not even PATH");
    }
    assert_eq!(fabric.call(&["by_shell"]), json!({"path": ""}));
}

// === what the manifest's stricter rules have a switch for ===

/// Manifests that Ongrid took and weft refuses, each in a directory of its name, with the rule that each breaks and the
/// switch that takes it.
fn older() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let loose =
        |more: &str| format!(r#"{{"name":"loose","Description":"d","entry":"gone","ENTRY":"run",{more}}}"#);
    vec![
        ("long", manifest(&"long_name_".repeat(20), json!({})), "name", "long-names"),
        (
            "loose",
            loose(r#""class":"dangerous","CLASS":"safe","env_allow":["A"],"env_allow":["PATH"]"#),
            "class",
            "loose-members",
        ),
        ("blank", manifest("blank", json!({"description": " "})), "description", "blank-descriptions"),
        ("day", manifest("day", json!({"timeout_seconds": 86_400})), "timeout_seconds", "clamp-timeouts"),
    ]
}

/// All switches.
fn all_switches() -> String {
    older().into_iter().map(|(.., switch)| switch).collect::<Vec<_>>().join(",")
}

#[test]
fn what_ongrid_took_and_weft_refuses_is_taken_with_a_warning_where_the_operator_says_so() {
    let fabric = Fabric::start(crate::WEFT, &["--allow", "mutating"]);
    let root = fabric.skills_of("host");
    let too_long = ("too_long", manifest(&"x".repeat(256), json!({})));
    let manifests: Vec<_> = older().into_iter().map(|(directory, text, ..)| (directory, text)).collect();
    for (directory, text) in manifests.iter().chain([&too_long]) {
        put_program(&root.join(directory).join("run"), "#!/bin/sh\nexec cat\n");
        put(&root.join(directory).join("skill.json"), text);
    }
    let spec = Spec::new().arg("--compat", all_switches());
    let _node = fabric.node("host", &[Skill::echo("last_of_all")], &spec);
    fabric.wait_for_skill("last_of_all", SOON, |_| true);

    let long = "long_name_".repeat(20);
    let listed = fabric.wait_for_skill(&long, SOON, |_| true);
    let tool = listed["toolName"].as_str().unwrap();
    assert!(tool.len() == 48 && tool.starts_with("long_name_"), "what models take: {tool}");
    assert_eq!(fabric.call(&[&long, "--args", r#"{"n":1}"#]), json!({"n": 1}));
    assert_eq!(fabric.weft(&["why", &long]).code, 0);
    refused(&fabric, "too_long", &["1 to 255 characters"]);

    // The last of each member, but never a lower class than one that is named.
    let loose = fabric.skill("loose").unwrap();
    assert_eq!(loose["definition"]["envAllow"], json!(["PATH"]));
    assert_eq!(
        (&loose["class"], &loose["definition"]["classDeclared"]),
        (&json!("SKILL_CLASS_DANGEROUS"), &json!(true))
    );
    assert_eq!(fabric.weft(&["call", "loose"]).code, 4);

    assert_eq!(fabric.call(&["blank"]), json!({}));
    assert_eq!(fabric.skill("day").unwrap()["definition"]["timeout"], "3600s");
    let diagnostics = fabric.diagnostics();
    for (directory, _, rule, _) in older() {
        let place = format!("{rule} {}:", root.join(directory).join("skill.json").display());
        assert!(diagnostics.iter().any(|line| line.starts_with(&place)), "{place} {diagnostics:#?}");
    }
}

#[test]
fn each_switch_works_alone_and_wherever_skills_are_loaded() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    for (directory, text, rule, switch) in older() {
        let dir = root.join(directory);
        put_program(&dir.join("run"), "#!/bin/sh\nexec cat\n");
        put(&dir.join("skill.json"), text);
        let path = dir.to_str().unwrap();
        let test = |more: &[&str]| {
            let mut args = vec!["skill", "test", path, "--args", r#"{"n":1}"#];
            args.extend(more);
            fabric.weft(&args)
        };
        let strict = fabric.weft(&["skill", "lint", path]);
        assert_eq!((strict.code, test(&[]).code), (1, 3), "{directory}: {strict:?}");
        let others: Vec<_> =
            older().into_iter().map(|(.., other)| other).filter(|other| *other != switch).collect();
        let others = fabric.weft(&["skill", "lint", path, "--compat", &others.join(",")]);
        assert_eq!(others.code, 1, "{directory}: {others:?}");
        let lenient = fabric.weft(&["skill", "lint", path, "--compat", switch]);
        assert_eq!(lenient.code, 0, "{directory}: {lenient:?}");
        let warning = format!("skill.json:1: {rule}: ");
        let told = |line: &str| line.contains(&warning) && line.ends_with("[warning]");
        assert!(lenient.stdout.lines().any(told), "{directory}: {lenient:?}");
        let tested = test(&["--compat", switch]);
        assert_eq!((tested.code, tested.stdout.as_str()), (0, r#"{"n":1}"#), "{directory}: {tested:?}");
    }
    // A node of its own, and what looks at a host before there is one.
    let doctor = fabric.weft(&["doctor", "--skills", root.to_str().unwrap(), "--compat", &all_switches()]);
    assert!(doctor.stdout.contains("4 loaded, 0 of them cannot run here, 0 errors"), "{doctor:?}");
    let dev = ["dev", "--listen", "127.0.0.1:0", "--skills", root.to_str().unwrap()];
    let dev = Daemon::start(Path::new(crate::WEFT), &dev, |command| {
        isolate(command);
        command.env("WEFT_COMPAT", all_switches());
    });
    eventually("the greeting", SOON, || dev.stdout().contains("with 4 skills").then_some(()));
}

// === loading: rows 20 to 26 ===

#[test]
fn rows_20_and_21_roots_come_from_ongrids_variable_and_each_is_reported() {
    let fabric = fabric();
    let from = |place: &str| Skill::sh("where", &format!("echo '{{\"from\":\"{place}\"}}'"));
    let (first, second) = (fabric.path("first"), fabric.path("second"));
    from("first").write(&first);
    from("second").write(&second);
    Skill::echo("other").write(&second);
    let file = fabric.path("file");
    put(&file, "");
    for separator in [",", ":"] {
        let name = if separator == "," { "comma" } else { "colon" };
        let list = [
            &first.display().to_string(),
            "relative/dir",
            " ",
            &fabric.path("missing").display().to_string(),
            &file.display().to_string(),
            &format!(" {} ", second.display()),
        ]
        .join(separator);
        // Without --skills, so that the variable counts.
        let state = fabric.path(&format!("{name}-state"));
        let node = Daemon::start(
            Path::new(crate::WEFT),
            &[
                "node",
                "--name",
                name,
                "--coordinator",
                fabric.address(),
                "--state-dir",
                state.to_str().unwrap(),
            ],
            |command| {
                weft_testkit::fabric::isolate(command);
                command.env("ONGRID_SKILLS_EXTERNAL_DIRS", &list);
            },
        );
        eventually("its skills", SOON, || {
            let called = fabric.weft(&["call", "where", "--node", name]);
            (called.stdout.trim() == r#"{"from":"first"}"#).then_some(())
        });
        assert_eq!(fabric.call(&["other", "--node", name]), json!({}));
        let log = node.stderr();
        for line in [
            "skill loader: skip non-absolute dir \"relative/dir\"".to_owned(),
            format!("skill loader: dir {} not present, skipping", fabric.path("missing").display()),
            format!("skill loader: {} is not a directory, skipping", file.display()),
        ] {
            assert!(log.contains(&line), "{separator}: no {line:?} in\n{log}");
        }
    }
}

#[test]
fn row_20_a_node_without_any_list_has_no_skills_and_is_fine() {
    let fabric = fabric();
    let state = fabric.path("bare-state");
    let args =
        ["node", "--name", "bare", "--coordinator", fabric.address(), "--state-dir", state.to_str().unwrap()];
    let _node = Daemon::start(Path::new(crate::WEFT), &args, weft_testkit::fabric::isolate);
    let listed = eventually("the node", SOON, || {
        fabric.json(&["nodes"]).filter(|nodes| nodes[0]["state"] == "NODE_STATE_CONNECTED")
    });
    assert_eq!(listed[0]["skills"], 0);
    assert_eq!(listed[0]["diagnostics"], json!([]));
}

#[test]
fn rows_22_and_23_the_walk_is_recursive_exact_and_stays_below_its_root() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    let program = "#!/bin/sh\nexec cat\n";
    Skill::new("deep", program).in_directory("a/b/c/d/e/f/deep").write(&root);
    Skill::new("too_deep", program).in_directory("1/2/3/4/5/6/7/8/too_deep").write(&root);
    // A directory called like a manifest is a directory.
    Skill::new("odd", program).in_directory("skill.json").write(&root);
    put(&root.join("wrong_case/Skill.json"), manifest("wrong_case", json!({})));
    put_program(&root.join("wrong_case/run"), program);
    // (a) a linked directory below the root is read, once.
    Skill::new("linked", program).in_directory("z_real").write(&root);
    symlink("z_real", root.join("a_link")).unwrap();
    // (c) a manifest that is a link out of the root is not read.
    let outside = fabric.path("outside.json");
    put(&outside, manifest("smuggled", json!({})));
    put_program(&root.join("smuggled/run"), program);
    symlink(&outside, root.join("smuggled/skill.json")).unwrap();
    let _node = fabric.node("host", &[Skill::echo("last_of_all")], &Spec::new());
    for name in ["deep", "odd", "linked"] {
        fabric.wait_for_skill(name, SOON, |_| true);
        assert_eq!(fabric.call(&[name]), json!({}));
    }
    let full = fabric.json(&["skills", "linked"]).unwrap();
    assert_eq!(full["variants"][0]["providers"].as_array().unwrap().len(), 1);
    for name in ["too_deep", "wrong_case", "smuggled"] {
        assert_eq!(fabric.skill(name), None, "{name}");
    }
    let diagnostics = fabric.diagnostics();
    assert!(diagnostics.iter().any(|line| line.contains("/smuggled/skill.json")), "{diagnostics:#?}");
}

#[test]
fn row_23_a_root_that_is_a_link_is_read() {
    let fabric = fabric();
    let real = fabric.path("..2024_01_01");
    Skill::echo("mounted").write(&real);
    // As Kubernetes mounts a ConfigMap: the root leads to ..data, and that to the version.
    let mount = fabric.path("mount");
    fs::create_dir_all(&mount).unwrap();
    fs::rename(&real, mount.join("..2024_01_01")).unwrap();
    symlink("..2024_01_01", mount.join("..data")).unwrap();
    symlink("..data/mounted", mount.join("mounted")).unwrap();
    let link = fabric.path("link");
    symlink(&mount, &link).unwrap();
    let _node = fabric.node("host", &[], &Spec::new().arg("--skills", &link));
    let skill = fabric.wait_for_skill("mounted", SOON, |_| true);
    assert_eq!((&skill["nodes"], &skill["eligibleNodes"]), (&json!(1), &json!(1)));
    assert_eq!(fabric.call(&["mounted"]), json!({}));
    // The path that stays when the volume's version changes.
    let full = fabric.json(&["skills", "mounted"]).unwrap().to_string();
    assert!(full.contains("/link/mounted") && !full.contains("2024_01_01"), "{full}");
}

#[test]
fn what_everybody_can_write_to_and_a_source_without_skills_are_told_wherever_people_look() {
    let fabric = fabric();
    let open = Skill::echo("open").write(&fabric.skills_of("host"));
    let exposed = Skill::echo("exposed").write(&fabric.path("exposed-root"));
    let empty = fabric.path("empty");
    fs::create_dir(&empty).unwrap();
    let everybody = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    everybody(&open);
    everybody(exposed.parent().unwrap());
    let spec = Spec::new().arg("--skills", exposed.parent().unwrap()).arg("--skills", &empty);
    let _node = fabric.node("host", &[], &spec);
    // Ongrid loads both, and says nothing; a node of weft loads them too.
    for (name, place) in [("open", open.as_path()), ("exposed", exposed.parent().unwrap())] {
        fabric.wait_for_skill(name, SOON, |_| true);
        assert_eq!(fabric.call(&[name]), json!({}));
        let warning = format!("{}: mode: every user of this host can write", place.display());
        let why = fabric.weft(&["why", name]);
        assert_eq!(why.code, 0, "{why:?}");
        assert_eq!(why.stdout.matches("mode: ").count(), 1, "only what concerns it: {why:?}");
        assert!(why.stdout.contains(&format!("warning: {warning}")), "{why:?}");
        let lint = fabric.weft(&["skill", "lint", place.to_str().unwrap()]);
        assert_eq!(lint.code, 0, "{lint:?}");
        assert!(lint.stdout.contains(&warning) && lint.stdout.contains("[warning]"), "{lint:?}");
    }
    let empty = format!("source {}:0: no skill.json and no SKILL.md", empty.display());
    let diagnostics = fabric.diagnostics();
    assert!(diagnostics.iter().any(|line| line.starts_with(&empty)), "{diagnostics:#?}");
}

#[test]
fn rows_24_to_26_each_manifest_has_one_line_and_a_bad_one_stops_nothing() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    put(&root.join("broken/skill.json"), "{");
    put(&root.join("wrong/skill.json"), manifest("wrong", json!({"class": "x"})));
    Skill::echo("gone").write(&root);
    fs::remove_file(root.join("gone/run")).unwrap();
    Skill::echo("twin").in_directory("b").write(&root);
    Skill::echo("twin").in_directory("a").write(&root);
    let node = fabric.node("host", &[Skill::echo("last_of_all")], &Spec::new());
    fabric.wait_for_skill("last_of_all", SOON, |_| true);
    assert_eq!(fabric.call(&["last_of_all"]), json!({}));
    let at = |directory: &str| root.join(directory).join("skill.json").display().to_string();
    let log = node.stderr();
    for line in [
        format!("skill loader: registered subprocess skill \"last_of_all\" from {}", at("last_of_all")),
        format!("skill loader: registered subprocess skill \"twin\" from {}", at("a")),
        format!("skill loader: skill \"twin\" already registered, skipping {}", at("b")),
        format!("skill loader: parse {}: ", at("broken")),
        format!("skill loader: parse {}: ", at("wrong")),
        "skill loader: build \"gone\": entry ".to_owned(),
    ] {
        assert_eq!(log.matches(&line).count(), 1, "{line:?} in\n{log}");
    }
}

// === running: rows 40 to 44 and 46 to 54 ===

#[test]
fn row_40_an_entry_is_checked_again_before_each_start() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    let skills = ["turned", "removed", "disarmed"].map(Skill::echo);
    let _node = fabric.node("host", &skills, &Spec::new());
    fabric.wait_for_skill("removed", SOON, |_| true);
    fabric.wait_for_skill("turned", SOON, |_| true);
    fabric.wait_for_skill("disarmed", SOON, |_| true);
    let ran = fabric.path("ran");
    let elsewhere = fabric.path("elsewhere");
    put_program(&elsewhere, &format!("#!/bin/sh\necho x > {}\necho '{{}}'\n", ran.display()));
    // Turned into a link out of the root, after it was offered.
    fs::remove_file(root.join("turned/run")).unwrap();
    symlink(&elsewhere, root.join("turned/run")).unwrap();
    fs::remove_file(root.join("removed/run")).unwrap();
    fs::set_permissions(root.join("disarmed/run"), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    for name in ["turned", "removed", "disarmed"] {
        // Before the reload it is NOT_STARTED, after it nobody offers it: the exit code is the same.
        let refused = fabric.weft(&["call", name]);
        assert_eq!((refused.code, refused.stdout.as_str()), (3, ""), "{name}: {refused:?}");
    }
    assert!(!ran.exists(), "a file outside the root was run");
}

#[test]
fn row_41_args_go_in_as_they_were_sent_and_are_one_object() {
    let fabric = fabric();
    let count = "#!/bin/sh\n[ $# = 0 ] || exit 9\nprintf '{\"bytes\":%s}' \"$(wc -c)\"\n";
    let _node = fabric.node("host", &[Skill::echo("echo"), Skill::new("count", count)], &Spec::new());
    fabric.wait_for_skill("count", SOON, |_| true);
    let spaced = "  { \"a\" : [1 ,2],\n\"b\":1.10}  ";
    assert_eq!(fabric.weft(&["call", "echo", "--args", spaced]).stdout, spaced);
    // No line end is added, and there are no arguments.
    assert_eq!(fabric.call(&["count", "--args", r#"{"n":1}"#]), json!({"bytes": 7}));
    for blank in ["", "  \n\t "] {
        assert_eq!(fabric.weft(&["call", "echo", "--args", blank]).stdout, "{}", "{blank:?}");
    }
    // Stricter than Ongrid: args are an object.
    for (args, word) in [("{", "not JSON"), ("[1,2]", "object"), ("42", "object"), ("null", "object")] {
        let refused = fabric.weft(&["call", "echo", "--args", args]);
        assert_eq!(refused.code, 2, "{args}: {refused:?}");
        assert!(refused.stderr.contains(word), "{args}: {}", refused.stderr);
    }
}

#[test]
fn row_42_a_child_need_not_read_its_args() {
    let fabric = fabric();
    let skills = [
        Skill::new("closes", "#!/bin/sh\nexec <&-\nsleep 0.2\nprintf '{}'\n"),
        Skill::new("ignores", "#!/bin/sh\nprintf '{}'\n"),
    ];
    let _node = fabric.node("host", &skills, &Spec::new());
    let args = format!(r#"{{"blob":"{}"}}"#, "x".repeat(limits::ARGS_BYTES - 11));
    assert_eq!(args.len(), limits::ARGS_BYTES);
    let file = fabric.path("args.json");
    put(&file, &args);
    for name in ["closes", "ignores"] {
        fabric.wait_for_skill(name, SOON, |_| true);
        assert_eq!(fabric.call(&[name, "--args", &format!("@{}", file.display())]), json!({}), "{name}");
    }
    put(&file, args + " ");
    let refused = fabric.weft(&["call", "ignores", "--args", &format!("@{}", file.display())]);
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[test]
fn row_44_the_working_directory_is_the_skills_own() {
    let fabric = fabric();
    let skill = Skill::new(
        "here",
        "#!/bin/sh\nprintf '{\"pwd\":\"%s\",\"beside\":\"%s\"}' \"$(pwd)\" \"$(cat data)\"\n",
    );
    let dir = skill.write(&fabric.skills_of("host"));
    put(&dir.join("data"), "found");
    let _node = fabric.node("host", &[], &Spec::new());
    fabric.wait_for_skill("here", SOON, |_| true);
    assert_eq!(fabric.call(&["here"]), json!({"pwd": dir.canonicalize().unwrap(), "beside": "found"}));
}

#[test]
fn rows_46_and_48_a_result_is_one_object_verbatim() {
    let fabric = fabric();
    let print =
        |name: &str, text: &str| Skill::new(name, &format!("#!/bin/sh\necho note >&2\nprintf '{text}'\n"));
    let long = "x".repeat(300);
    let skills = [
        print("object", "{\"a\": 1}\\n"),
        print("repeated", "{\"a\":1,\"a\":2}"),
        print("array", "[1]"),
        print("scalar", "42"),
        print("empty", ""),
        print("two", "{}{}"),
        print("prose", &format!("begin {long} end")),
    ];
    let _node = fabric.node("host", &skills, &Spec::new());
    fabric.wait_for_skill("two", SOON, |_| true);
    fabric.wait_for_skill("prose", SOON, |_| true);
    let object = observe(&fabric, "object", "{}");
    assert_eq!(object.result(), b"{\"a\": 1}\n");
    // stderr is neither lost on success nor on failure.
    assert_eq!(object.stderr(), b"note\n");
    assert_eq!(&object.last().stderr_tail[..], b"note\n");
    assert_eq!(observe(&fabric, "repeated", "{}").result(), b"{\"a\":1,\"a\":2}");
    for name in ["array", "scalar", "empty", "two", "prose"] {
        let seen = observe(&fabric, name, "{}");
        let last = seen.last();
        assert_eq!(
            (last.outcome, last.exit),
            (Outcome::InvalidOutput, Some(Exit::Code(0))),
            "{name}: {last:?}"
        );
        assert!(last.message.contains("ran to completion"), "{name}: {}", last.message);
        assert_eq!(seen.stderr(), b"note\n");
    }
    let prose = observe(&fabric, "prose", "{}");
    let message = &prose.last().message;
    // The first 200 bytes, as it says; the whole is in the tail.
    assert!(message.contains("begin xxx") && !message.contains("end"), "{message}");
    assert_eq!(prose.last().stdout_tail.len(), 310);
}

#[test]
fn row_47_sixteen_mib_of_stdout_are_a_result_and_one_byte_more_is_none() {
    const MOST: u64 = 16 * 1024 * 1024;
    let fabric = fabric();
    let print = |name: &str, bytes: u64| {
        let filling = bytes - 8;
        Skill::new(
            name,
            &format!(
                "#!/bin/sh\nprintf '{{\"b\":\"'; head -c {filling} /dev/zero | tr '\\0' a; printf '\"}}'\n"
            ),
        )
    };
    let _node = fabric.node("host", &[print("most", MOST), print("more", MOST + 1)], &Spec::new());
    fabric.wait_for_skill("more", SOON, |_| true);
    fabric.wait_for_skill("most", SOON, |_| true);
    assert_eq!(observe(&fabric, "most", "{}").result().len() as u64, MOST);
    let more = observe(&fabric, "more", "{}");
    assert_eq!(more.last().outcome, Outcome::OutputTooLarge);
    assert!(more.last().message.contains("16777216") && !more.last().message.contains("JSON"), "{more:?}");
}

#[test]
fn rows_49_and_50_a_failure_has_its_code_or_signal_and_the_true_end_of_stderr() {
    let fabric = fabric();
    let skills = [
        Skill::sh(
            "fails",
            "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo line $i of the log >&2; done\necho '{\"half\":1}'; exit 3",
        ),
        Skill::sh("dies", "kill -KILL $$"),
        Skill::sh("aborts", "kill -ABRT $$"),
    ];
    let _node = fabric.node("host", &skills, &Spec::new());
    fabric.wait_for_skill("fails", SOON, |_| true);
    fabric.wait_for_skill("dies", SOON, |_| true);
    let fails = observe(&fabric, "fails", "{}");
    let last = fails.last();
    assert_eq!((last.outcome, last.exit), (Outcome::Failed, Some(Exit::Code(3))));
    assert!(last.message.contains("exit code 3"), "{}", last.message);
    let whole: String = (1..=5000).map(|n| format!("line {n} of the log\n")).collect();
    assert!(fails.stderr() == whole.as_bytes());
    assert_eq!(last.stderr_bytes, whole.len() as u64);
    assert!(whole.as_bytes().ends_with(&last.stderr_tail), "the tail is not the end");
    assert_eq!(last.stderr_tail.len(), limits::TAIL_BYTES);
    assert_eq!(&last.stdout_tail[..], b"{\"half\":1}\n");
    assert!(fails.result().is_empty());
    for (name, signal) in [("dies", 9), ("aborts", 6)] {
        let seen = observe(&fabric, name, "{}");
        assert_eq!(
            (seen.last().outcome, seen.last().exit),
            (Outcome::Failed, Some(Exit::Signal(signal))),
            "{name}"
        );
        assert!(seen.last().message.contains(&format!("signal {signal}")), "{}", seen.last().message);
    }
}

#[test]
fn row_51_what_cannot_be_started_says_why() {
    let fabric = fabric();
    let skills = [
        Skill::new("headless", "echo '{}'\n"),
        Skill::new("orphan", "#!/no/such/interpreter\n"),
        Skill::echo("fine"),
    ];
    let _node = fabric.node("host", &skills, &Spec::new());
    fabric.wait_for_skill("orphan", SOON, |_| true);
    for (name, word) in [("headless", "not an executable format"), ("orphan", "/no/such/interpreter")] {
        let seen = observe(&fabric, name, "{}");
        let last = seen.last();
        assert_eq!((last.outcome, last.started), (Outcome::Failed, Some(false)), "{name}: {last:?}");
        assert!(last.message.contains("cannot start") && last.message.contains(word), "{}", last.message);
    }
    assert_eq!(fabric.call(&["fine"]), json!({}));
}

#[test]
fn row_52_the_shorter_of_two_time_outs_ends_it_and_its_stderr_is_kept() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let long = Skill::sh("long", &format!("echo working >&2; exec {sleep}"));
    let _node = fabric.node("host", &[long], &Spec::new());
    let finished = fabric.weft(&["call", "long", "--timeout", "0.5"]);
    assert_eq!(finished.code, 124, "{finished:?}");
    assert!(finished.stderr.starts_with("working\n"), "{}", finished.stderr);
    // The limit that fired is the caller's, not the 30 s of the manifest.
    let told = "out of time after 0.5 s, the limit of the caller;";
    assert!(finished.stderr.contains(told), "{}", finished.stderr);
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
}

#[test]
fn row_53_the_end_begins_with_sigterm_and_reaches_every_descendant() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let script = format!(
        "#!/bin/sh\ntrap 'echo cleaned up >&2; exit 0' TERM\nsetsid sh -c 'trap \"\" TERM; while :; do {sleep}; done' &\n\
         echo ready >&2\nwhile :; do sleep 0.05; done\n"
    );
    let skill = Skill::new("stubborn", &script).with("timeout_seconds", json!(1));
    let _node = fabric.node("host", &[skill], &Spec::new().arg("--stop-grace", "1"));
    let seen = observe(&fabric, "stubborn", "{}");
    assert_eq!(processes_with(&sleep), Vec::<u32>::new(), "a grandchild survived");
    assert_eq!(seen.last().outcome, Outcome::TimedOut);
    let stderr = String::from_utf8(seen.stderr()).unwrap();
    assert!(stderr.starts_with("ready\n") && stderr.contains("cleaned up\n"), "its trap never ran: {stderr}");
}

#[test]
fn row_54_a_good_result_is_one_although_a_child_holds_stdout() {
    let fabric = fabric();
    let sleep = unique_sleep();
    let skill = Skill::new("leaver", &format!("#!/bin/sh\n{sleep} &\nprintf '{{\"ok\":true}}'\n"));
    let _node = fabric.node("host", &[skill], &Spec::new());
    let seen = observe(&fabric, "leaver", "{}");
    assert_eq!((seen.last().outcome, seen.result()), (Outcome::Succeeded, b"{\"ok\":true}".to_vec()));
    assert_eq!(seen.last().leftovers_killed, 1);
    assert_eq!(processes_with(&sleep), Vec::<u32>::new());
    assert!(seen.events.iter().any(|(_, event)| matches!(event.kind, EventKind::Started { .. })));
}
