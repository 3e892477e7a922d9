//! The files of a skill are read through the coordinator from where they lie: whole, of one version, and no others.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
    thread,
};

use serde_json::json;
use tokio::task::JoinSet;
use tonic::Code;
use weft_proto::v1;
use weft_testkit::{Fabric, Skill, Spec, eventually, fabric::isolate, skill::put};

use crate::{
    WEFT,
    caller::{Caller, Told},
    fabric,
    operator::{Operator, SECONDS, wait_for_skills, wait_until_seen},
};

const MOST: usize = 1024 * 1024;

/// Bytes of every value, also such as no text has.
fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n % 251) as u8).collect()
}

/// What `weft skills` prints, byte for byte.
fn skills(fabric: &Fabric, args: &[&str]) -> Output {
    let mut command = Command::new(WEFT);
    isolate(&mut command);
    command.arg("skills").args(args).env("WEFT_COORDINATOR", fabric.address()).output().unwrap()
}

impl Caller {
    #[track_caller]
    fn read(&self, skill: &str, path: &str) -> Result<v1::ReadSkillFileResponse, weft_client::Error> {
        self.wait(self.client.read_skill_file(skill, path, ""))
    }
}

#[test]
fn every_skill_has_a_document_its_authors_or_one_made_for_it() {
    let fabric = fabric();
    let authors =
        "---\nname: both\ndescription: \"from the author\"\n---\n\n# Both\r\n\ttabs & <tags>, no end";
    put(&fabric.skills_of("host").join("both/SKILL.md"), authors);
    let schema = json!({"type": "object", "required": ["path"], "properties": {
        "path": {"type": "string", "description": "where to look"}
    }});
    let bare = Skill::echo("bare").with("schema", schema).with("description", json!("shows 'things'"));
    let _node = fabric.node("host", &[Skill::echo("both"), bare], &Spec::new());
    wait_for_skills(&fabric, 2);
    let caller = Caller::of(&fabric);
    for (skill, path) in
        [("both", "SKILL.md"), ("both", ""), ("Both", ""), ("weft://skills/both/SKILL.md", "")]
    {
        let read = caller.read(skill, path).unwrap();
        assert_eq!(
            (read.content.as_ref(), read.location.as_str()),
            (authors.as_bytes(), "weft://skills/both/SKILL.md")
        );
        assert_eq!(read.digest, fabric.skill("both").unwrap()["digest"]);
    }
    assert_eq!(skills(&fabric, &["both", "--file", "SKILL.md"]).stdout, authors.as_bytes());
    let made = String::from_utf8(caller.read("bare", "").unwrap().content.to_vec()).unwrap();
    for part in ["name: bare\n", "shows 'things'", "`path` (string, required): where to look", "Class: safe"]
    {
        assert!(made.contains(part), "{part}: {made}");
    }
    // The prompt names exactly these places.
    let prompt = fabric.weft(&["prompt"]).stdout;
    let locations: Vec<_> =
        prompt.split("<location>").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    assert_eq!(locations.len(), 2);
    for location in locations {
        caller.read(location, "").unwrap();
    }
}

#[test]
fn a_file_beside_it_comes_byte_for_byte_and_up_to_a_mebibyte() {
    let fabric = fabric();
    let dir = Skill::echo("library").write(&fabric.skills_of("host"));
    put(&dir.join("references/x.md"), "see more\n");
    put(&dir.join("a b/é.bin"), bytes(100_000));
    put(&dir.join("empty"), "");
    put(&dir.join("largest"), bytes(MOST));
    put(&dir.join("larger"), bytes(MOST + 1));
    let _node = fabric.node("host", &[], &Spec::new());
    wait_for_skills(&fabric, 1);
    let caller = Caller::of(&fabric);
    let digest = caller.wait(caller.client.get_skill("library", "")).unwrap().digest;
    for (path, content) in [
        ("references/x.md", b"see more\n".to_vec()),
        ("a b/é.bin", bytes(100_000)),
        ("empty", Vec::new()),
        ("largest", bytes(MOST)),
    ] {
        let read = caller.read("library", path).unwrap();
        assert!(read.content == content, "{path}");
        assert_eq!(read.digest, digest);
        assert_eq!(read.location, format!("weft://skills/library/{path}"));
        assert!(caller.read(&read.location, "").unwrap().content == content, "{path}");
        let printed = [skills(&fabric, &["library", "--file", path]), skills(&fabric, &[&read.location])];
        for printed in printed {
            assert!(printed.status.success() && printed.stdout == content, "{path}: {printed:?}");
        }
    }
    let refusal = caller.read("library", "larger").map(drop).told();
    assert_eq!((refusal.code, refusal.reason.as_str()), (Code::NotFound, "FILE_NOT_FOUND"));
    assert!(refusal.message.contains("more than 1048576 bytes"), "{}", refusal.message);
    let printed = skills(&fabric, &["library", "--file", "larger"]);
    assert_eq!((printed.status.code(), printed.stdout.as_slice()), (Some(3), &b""[..]));
}

#[test]
fn no_path_and_no_link_leads_out_of_the_skill() {
    let fabric = fabric();
    let root = fabric.skills_of("host");
    let dir = Skill::echo("sealed").write(&root);
    put(&root.join("secret.txt"), "secret");
    put(&fabric.path("outside/secret.txt"), "secret");
    put(&dir.join("notes/x.md"), "notes");
    put(&dir.join(".git/config"), "secret");
    symlink("../secret.txt", dir.join("sibling")).unwrap();
    symlink(fabric.path("outside"), dir.join("elsewhere")).unwrap();
    symlink("/etc/passwd", dir.join("system")).unwrap();
    symlink("notes/x.md", dir.join("inside")).unwrap();
    Skill::echo("nested").in_directory("sealed/nested").write(&root);
    let _node = fabric.node("host", &[], &Spec::new());
    wait_for_skills(&fabric, 2);
    let caller = Caller::of(&fabric);
    for path in [
        "../secret.txt",
        "notes/../../secret.txt",
        "..",
        "/etc/passwd",
        "./notes/x.md",
        "notes//x.md",
        "notes/",
        "notes\\x.md",
        "%2e%2e/secret.txt",
        "notes/x.md?",
        "notes/x.md#",
        "notes/x.md\0",
        "a\nb",
    ] {
        let refusal = caller.read("sealed", path).map(drop).told();
        assert_eq!((refusal.code, refusal.fields[0].0.as_str()), (Code::InvalidArgument, "path"), "{path:?}");
        let location = format!("weft://skills/sealed/{path}");
        let refusal = caller.read(&location, "").map(drop).told();
        assert!(matches!(refusal.code, Code::InvalidArgument | Code::NotFound), "{path:?}: {refusal:?}");
    }
    assert_eq!(
        caller.read("weft://skills/sealed/notes/x.md", "notes/x.md").map(drop).told().code,
        Code::InvalidArgument
    );
    for (path, why) in [
        ("sibling", "leaves the skill's directory"),
        ("elsewhere/secret.txt", "leaves the skill's directory"),
        ("system", "leaves the skill's directory"),
        ("notes", "not a regular file"),
        ("absent", "no such file"),
        ("notes/x.md/y", "no such file"),
        (".git/config", "no part of the skill"),
        ("nested/skill.json", "no part of the skill"),
    ] {
        let refusal = caller.read("sealed", path).map(drop).told();
        assert_eq!(refusal.reason, "FILE_NOT_FOUND", "{path}: {refusal:?}");
        assert!(refusal.message.contains(why), "{path}: {}", refusal.message);
        assert!(!refusal.message.contains(root.to_str().unwrap()), "{}", refusal.message);
    }
    assert_eq!(caller.read("sealed", "inside").unwrap().content.as_ref(), b"notes");
    assert_eq!(caller.read("nested", "run").unwrap().content.as_ref(), b"#!/bin/sh\nexec cat\n");
    assert_eq!(caller.read("absent", "x").map(drop).told().reason, "SKILL_NOT_FOUND");
}

/// Puts versions of a file in its place one after the other, each of a byte that no other version has.
fn rewrite(path: &Path, draft: &Path, versions: std::ops::RangeInclusive<u8>) {
    for version in versions {
        fs::write(draft, vec![version; 300_000]).unwrap();
        fs::rename(draft, path).unwrap();
    }
}

#[test]
fn a_file_that_changes_is_read_in_one_version_or_not_at_all() {
    let fabric = fabric();
    let dir = Skill::echo("moving").write(&fabric.skills_of("host"));
    let (path, draft) = (dir.join("data"), fabric.path("draft"));
    rewrite(&path, &draft, 0..=0);
    let _node = fabric.node("host", &[], &Spec::new());
    wait_for_skills(&fabric, 1);
    let caller = Caller::of(&fabric);
    for burst in 0..4 {
        let (first, last) = (burst * 40 + 1, burst * 40 + 40);
        let writer = thread::spawn({
            let (path, draft) = (path.clone(), draft.clone());
            move || rewrite(&path, &draft, first..=last)
        });
        while !writer.is_finished() {
            match caller.read("moving", "data") {
                Ok(read) => {
                    let version = read.content[0];
                    let whole =
                        read.content.len() == 300_000 && read.content.iter().all(|byte| *byte == version);
                    assert!(whole, "{} bytes, the first of version {version}", read.content.len());
                }
                refused => {
                    let refusal = refused.map(drop).told();
                    assert_eq!(refusal.reason, "FILE_NOT_FOUND", "{refusal:?}");
                    assert!(refusal.message.contains("changed"), "{}", refusal.message);
                }
            }
        }
        writer.join().unwrap();
        // Once it is still, it is read as it is.
        let read = eventually("the last version", SECONDS, || caller.read("moving", "data").ok());
        assert!(read.content == vec![last; 300_000]);
    }
}

#[test]
fn a_file_is_read_from_any_node_that_has_it_and_from_none_when_they_are_gone() {
    let fabric = fabric();
    for node in ["one", "two"] {
        let dir = Skill::echo("shared").write(&fabric.skills_of(node));
        put(&dir.join("notes.txt"), "notes");
    }
    let [mut one, mut two] = ["one", "two"].map(|node| fabric.node(node, &[], &Spec::new()));
    let caller = Caller::of(&fabric);
    assert_eq!(caller.read("shared", "notes.txt").unwrap().content.as_ref(), b"notes");
    one.kill();
    eventually("the file from the other", SECONDS, || caller.read("shared", "notes.txt").ok());
    two.kill();
    let refusal = eventually("nobody", SECONDS, || {
        let refusal = caller.read("shared", "notes.txt").err()?;
        refusal.to_string().contains("no node that has its files is connected").then_some(refusal)
    });
    assert_eq!(refusal.reason(), Some("FILE_NOT_FOUND"));
    assert!(refusal.to_string().contains("shared") && refusal.to_string().contains("notes.txt"), "{refusal}");
    // Its document came with it.
    assert!(!caller.read("shared", "").unwrap().content.is_empty());
}

#[test]
fn many_that_read_at_the_same_time_all_get_what_they_want() {
    let fabric = fabric();
    let dir = Skill::echo("wanted").write(&fabric.skills_of("host"));
    put(&dir.join("guide"), bytes(100_000));
    let _node = fabric.node("host", &[], &Spec::new());
    wait_for_skills(&fabric, 1);
    let caller = Caller::of(&fabric);
    let all = caller.wait(async {
        let mut reads = JoinSet::new();
        for _ in 0..60 {
            let client = caller.client.clone();
            reads.spawn(async move { client.read_skill_file("wanted", "guide", "").await });
        }
        reads.join_all().await
    });
    for read in all {
        assert!(read.unwrap().content == bytes(100_000));
    }
}

#[test]
fn a_version_that_is_named_is_read_where_it_is_and_nowhere_else() {
    let fabric = fabric();
    for node in ["one", "two"] {
        let dir = Skill::echo("shared").write(&fabric.skills_of(node));
        put(&dir.join("notes.txt"), node);
    }
    let _nodes = ["one", "two"].map(|node| fabric.node(node, &[], &Spec::new()));
    let caller = Caller::of(&fabric);
    let skill = caller.wait(caller.client.get_skill("shared", "")).unwrap();
    assert_eq!(skill.variants.len(), 2);
    let mut catalog = v1::catalog_service_client::CatalogServiceClient::new(caller.channel.clone());
    let mut read = |digest: &str| {
        let (skill, path, digest) = ("shared".to_owned(), "notes.txt".to_owned(), digest.to_owned());
        let request = v1::ReadSkillFileRequest { skill, path, digest, ..Default::default() };
        caller.wait(catalog.read_skill_file(request)).map(tonic::Response::into_inner)
    };
    for variant in &skill.variants {
        let of = read(&variant.digest).unwrap();
        assert_eq!(of.content.as_ref(), variant.providers[0].node_name.as_bytes());
        assert_eq!(of.digest, variant.digest);
    }
    assert_eq!(read(&"0".repeat(64)).map(drop).told().reason, "DIGEST_MISMATCH");
    assert_eq!(read("x").map(drop).told().code, Code::InvalidArgument);
}

#[test]
fn an_agent_reads_the_files_of_its_own_copy_and_others_those_of_theirs() {
    let operator = Operator::new();
    let list = json!([{"id": "writer", "workspace": "~/w"}, {"id": "blind", "skills": []}]);
    let fabric = operator.coordinator(json!({"agents": {"list": list}}));
    for (root, text) in [(operator.path("workspace/skills"), "own"), (fabric.skills_of("host"), "common")] {
        let dir = Skill::echo("tool").write(&root);
        put(&dir.join("notes.txt"), text);
    }
    Skill::echo("mark").write(&operator.path("workspace/skills"));
    let file = json!({"agents": {"list": [{"id": "writer", "workspace": operator.path("workspace")}]}});
    let _node = fabric.node("host", &[], &operator.node(file));
    wait_until_seen(&fabric, "writer", &["mark", "tool"]);
    let caller = Caller::of(&fabric);
    let read = |agent: &str| caller.wait(caller.client.read_skill_file("tool", "notes.txt", agent));
    for (agent, text) in [("writer", "own"), ("reader", "common"), ("", "common")] {
        assert_eq!(read(agent).unwrap().content.as_ref(), text.as_bytes(), "{agent}");
    }
    assert_eq!(read("blind").map(drop).told().reason, "SKILL_NOT_FOUND");
}
