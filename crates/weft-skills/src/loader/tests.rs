//! Loading, as the contract and the field cases have it.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use weft_core::skill::{Diagnostic, Gate, Layer};

use super::*;
use crate::{
    entry::CheckError,
    testing::{config, logged, script, skill, write},
};

fn load<P: AsRef<Path>>(roots: &[P]) -> Inventory {
    Loader::new(config(roots)).load(None)
}

fn names(inventory: &Inventory) -> Vec<&str> {
    inventory.copies.iter().map(|copy| copy.definition.name.as_str()).collect()
}

fn winner<'a>(inventory: &'a Inventory, name: &str) -> &'a Copy {
    inventory.winner(&SkillKey::normalise(name).unwrap()).unwrap()
}

fn about<'a>(inventory: &'a Inventory, part: &str) -> Vec<&'a Diagnostic> {
    inventory.diagnostics.iter().filter(|diagnostic| diagnostic.path.contains(part)).collect()
}

#[test]
fn the_documented_layout_loads_with_the_line_of_the_contract() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    skill(root, "disk-cleaner", "disk_cleaner", r#","class":"mutating","timeout_seconds":60"#);
    let mut loader = Loader::new(config(&[root]));
    let (inventory, lines) = logged(|| loader.load(None));
    let expected = format!(
        "INFO skill loader: registered subprocess skill \"disk_cleaner\" from {}",
        root.join("disk-cleaner/skill.json").display()
    );
    assert_eq!(lines, [expected]);
    let copy = winner(&inventory, "disk-cleaner");
    assert_eq!(copy.layer, Layer::Managed);
    assert_eq!(copy.entry.as_deref(), Some(&*root.canonicalize().unwrap().join("disk-cleaner/run")));
    assert_eq!(copy.check_unchanged().unwrap(), copy.entry.clone().unwrap());
    assert_eq!(copy.digest_now().unwrap(), copy.digest);
    assert!(copy.eligible() && !copy.partial);
    assert!(copy.definition.instructions.contains("# disk_cleaner"));
    assert!(inventory.diagnostics.is_empty());
}

#[test]
fn each_outcome_is_logged_once_with_the_wording_of_the_contract() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().canonicalize().unwrap();
    skill(&root, "a", "twin", "");
    skill(&root, "b", "twin", "");
    write(&root.join("typo/skill.json"), "{\n,}");
    skill(&root, "bad", "bad_path", "");
    fs::remove_file(root.join("bad/run")).unwrap();
    symlink("/bin/sh", root.join("bad/run")).unwrap();
    let mut config = config(&[root.clone(), root.join("none"), root.join("a/run")]);
    config.sources.push(Source::managed("relative"));
    let mut loader = Loader::new(config);
    let (first, lines) = logged(|| loader.load(None));
    let (root, shell) = (root.display(), Path::new("/bin/sh").canonicalize().unwrap());
    for expected in [
        format!("INFO skill loader: registered subprocess skill \"twin\" from {root}/a/skill.json"),
        format!("WARN skill loader: skill \"twin\" already registered, skipping {root}/b/skill.json"),
        format!("WARN skill loader: parse {root}/typo/skill.json: line 2: "),
        format!(
            "WARN skill loader: build \"bad_path\": entry {} escapes allowlist root {root}",
            shell.display()
        ),
        "WARN skill loader: skip non-absolute dir \"relative\"".to_owned(),
        format!("INFO skill loader: dir {root}/none not present, skipping"),
        format!("WARN skill loader: {root}/a/run is not a directory, skipping"),
    ] {
        assert_eq!(
            lines.iter().filter(|line| line.starts_with(&expected)).count(),
            1,
            "{expected}\n{lines:#?}"
        );
    }
    assert_eq!(lines.len(), 7, "{lines:#?}");
    let rules: Vec<&str> = first.diagnostics.iter().map(|diagnostic| diagnostic.rule.as_str()).collect();
    assert_eq!(rules.len(), 6, "{rules:?}");
    let (second, lines) = logged(|| loader.load(Some(&first)));
    assert!(lines.is_empty(), "{lines:#?}");
    assert_eq!((second.revision, &second), (1, &first));
}

#[test]
fn an_edit_is_logged_again_and_a_removal_too() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = skill(temporary.path(), "x", "x", "");
    skill(temporary.path(), "y", "y", "");
    let mut loader = Loader::new(config(&[temporary.path()]));
    let first = loader.load(None);
    write(&directory.join("lib"), "1");
    let (second, lines) = logged(|| loader.load(Some(&first)));
    assert_eq!(second.revision, 2);
    assert!(lines.len() == 1 && lines[0].contains("registered"), "{lines:?}");
    fs::remove_dir_all(&directory).unwrap();
    let (third, lines) = logged(|| loader.load(Some(&second)));
    assert_eq!(names(&third), ["y"]);
    assert!(lines.len() == 1 && lines[0].ends_with("skill.json is gone"), "{lines:?}");
}

#[test]
fn no_sources_are_fine_and_empty_ones_are_told_of() {
    let empty = tempfile::tempdir().unwrap();
    let none = load::<&Path>(&[]);
    assert!(none.copies.is_empty() && none.diagnostics.is_empty());
    let inventory = load(&[empty.path()]);
    assert!(inventory.copies.is_empty());
    let [told] = &inventory.diagnostics[..] else { panic!("{:?}", inventory.diagnostics) };
    assert_eq!((told.severity, told.rule.as_str()), (Severity::Warning, "source"), "{told}");
    assert_eq!(inventory.revision, 1);
}

#[test]
fn a_source_that_is_a_link_is_logged_with_where_it_leads_and_what_is_there() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().canonicalize().unwrap();
    skill(&root.join("real"), "a", "a", "");
    symlink("real", root.join("link")).unwrap();
    let mut loader = Loader::new(config(&[root.join("link")]));
    let (inventory, lines) = logged(|| loader.load(None));
    assert_eq!(names(&inventory), ["a"]);
    let root = root.display();
    let expected = format!("INFO skill loader: dir {root}/link is {root}/real, with 1 skills");
    assert!(lines.contains(&expected), "{lines:?}");
    assert!(logged(|| loader.load(None)).1.is_empty(), "once");
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Places, below a root, that everybody can write to, each with the skill that it is told for.
fn exposed(inventory: &Inventory, root: &Path) -> Vec<(String, Option<String>)> {
    let told = inventory.diagnostics.iter().filter(|one| one.rule == "mode");
    told.map(|one| {
        assert_eq!(one.severity, Severity::Warning, "{one}");
        let below = Path::new(&one.path).strip_prefix(root).unwrap();
        (below.display().to_string(), one.key.as_ref().map(ToString::to_string))
    })
    .collect()
}

#[test]
fn what_everybody_can_write_to_is_told_of_for_the_skill_that_it_decides_about() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().canonicalize().unwrap();
    for name in ["directory", "sticky", "manifest", "entry", "sound"] {
        skill(&root, name, name, "");
    }
    skill(&root, "shared/one", "one", "");
    skill(&root, "shared/two", "two", r#","metadata":{"os":"linux"}"#);
    skill(&root, "elsewhere", "elsewhere", "");
    script(&root.join("bin/run"), "");
    write(
        &root.join("elsewhere/skill.json"),
        r#"{"name":"elsewhere","description":"d","entry":"../bin/run"}"#,
    );
    for (path, mode) in [
        ("directory", 0o777),
        ("sticky", 0o1777),
        ("manifest/skill.json", 0o646),
        ("entry/run", 0o757),
        ("sound", 0o775),
        ("shared", 0o777),
        ("bin", 0o777),
    ] {
        chmod(&root.join(path), mode);
    }
    let mut loader = Loader::new(config(&[&root]));
    let inventory = loader.load(None);
    assert_eq!(inventory.copies.len(), 8, "nothing is refused: {:?}", inventory.diagnostics);
    let of = |place: &str, key: &str| (place.to_owned(), Some(key.to_owned()));
    let expected = [
        of("bin", "elsewhere"),
        of("directory", "directory"),
        of("entry/run", "entry"),
        of("manifest/skill.json", "manifest"),
        // Once, and not for each skill in it.
        ("shared".to_owned(), None),
    ];
    assert_eq!(exposed(&inventory, &root), expected);
    chmod(&root.join("directory"), 0o755);
    let again = loader.load(Some(&inventory));
    assert_eq!(exposed(&again, &root).len(), expected.len() - 1);
    assert_eq!(again.revision, 2, "an advert tells it");
}

#[test]
fn of_a_source_that_everybody_can_write_to_nothing_below_is_told_of() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().canonicalize().unwrap();
    let source = root.join("above/source");
    chmod(&skill(&source, "a", "a", ""), 0o777);
    chmod(&source, 0o777);
    let link = root.join("link");
    symlink(&source, &link).unwrap();
    assert_eq!(exposed(&load(&[&source]), &root), [("above/source".to_owned(), None)]);
    assert_eq!(exposed(&load(&[&link]), &root), [("link".to_owned(), None)], "as the operator calls it");
    chmod(&root.join("above"), 0o777);
    assert_eq!(exposed(&load(&[&source, &link]), &root), [("above".to_owned(), None)]);
}

#[test]
fn one_bad_skill_stops_nothing_and_each_fault_names_member_and_rule() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    skill(root, "echo_args", "echo_args", "");
    for (directory, extra) in [
        ("time", r#","timeout_seconds":-1"#),
        ("class", r#","class":"readonly""#),
        ("schema", r#","schema":{"$ref":"http://127.0.0.1:9/x"}"#),
        ("twice", r#","name":"y""#),
        ("case", r#","CLASS":"safe""#),
    ] {
        skill(root, directory, "bad", extra);
    }
    let inventory = load(&[root]);
    assert_eq!(names(&inventory), ["echo_args"]);
    for (directory, rule) in [
        ("/time/", "timeout_seconds"),
        ("/class/", "class"),
        ("/schema/", "schema"),
        ("/twice/", "syntax"),
        ("/case/", "class"),
    ] {
        let found = about(&inventory, directory);
        assert_eq!(found.len(), 1, "{directory}: {found:?}");
        assert_eq!((found[0].rule.as_str(), found[0].severity), (rule, Severity::Error), "{found:?}");
        if rule != "syntax" {
            assert_eq!(found[0].key.as_ref().unwrap().as_str(), "bad", "{found:?}");
        }
    }
}

#[test]
fn unquoted_colons_load_with_a_warning_and_broken_files_are_never_half_loaded() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    skill(root, "echo_args", "echo_args", "");
    let text = "---\nname: deploy_note\ndescription: Post a note. Use when: (1) a deploy ends, (2) it fails.\n---\nBody.\n";
    write(&root.join("deploy_note/SKILL.md"), text);
    write(&root.join("broken/SKILL.md"), "---\nname: broken\ndescription: a: b\nmetadata: [\n---\n");
    let inventory = load(&[root]);
    assert_eq!(names(&inventory), ["deploy_note", "echo_args"]);
    let copy = winner(&inventory, "deploy_note");
    assert_eq!(copy.definition.kind, Kind::Instructions);
    assert_eq!(copy.definition.description, "Post a note. Use when: (1) a deploy ends, (2) it fails.");
    assert_eq!(copy.definition.instructions, text);
    assert!(matches!(copy.check_unchanged(), Err(CheckError::NoEntry)));
    let warning = about(&inventory, "deploy_note");
    assert_eq!((warning.len(), warning[0].severity, warning[0].line), (1, Severity::Warning, Some(3)));
    let found = about(&inventory, "broken");
    let said: Vec<_> = found.iter().map(|one| (one.severity, one.line)).collect();
    assert_eq!(said, [(Severity::Warning, Some(3)), (Severity::Error, Some(4))], "{found:?}");
}

#[test]
fn a_refused_document_keeps_its_warnings() {
    let temporary = tempfile::tempdir().unwrap();
    write(&temporary.path().join("plain/SKILL.md"), "# Only words\n");
    let (inventory, lines) = logged(|| load(&[temporary.path()]));
    let said = about(&inventory, "plain").into_iter().map(|one| (one.rule.as_str(), one.line));
    assert_eq!(said.collect::<Vec<_>>(), [("description", Some(1)), ("frontmatter", Some(1))]);
    let parse = lines.iter().find(|line| line.contains("parse ")).unwrap();
    assert!(parse.ends_with("line 1: description is required"), "{parse}");
}

#[test]
fn a_document_in_lower_case_is_told_of_where_nothing_else_is() {
    let temporary = tempfile::tempdir().unwrap();
    write(&temporary.path().join("skill.md"), "---\nname: x\ndescription: d\n---\n");
    let inventory = load(&[temporary.path()]);
    let [told] = &inventory.diagnostics[..] else { panic!("{:?}", inventory.diagnostics) };
    assert_eq!((told.severity, told.rule.as_str()), (Severity::Error, "file"), "{told}");
    assert!(told.path.ends_with("/skill.md") && told.message.contains("SKILL.md"), "{told}");
}

#[test]
fn files_of_windows_editors_load() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    write(&root.join("a/SKILL.md"), "\u{feff}---\nname: bom_lf\ndescription: d\n---\nB\n");
    write(&root.join("b/SKILL.md"), "---\r\nname: lf_crlf\r\ndescription: d\r\n---\r\nB\r\n");
    write(&root.join("c/SKILL.md"), "\u{feff}---\r\nname: bom_crlf\r\ndescription: d\r\n---\r\nB\r\n");
    let directory = skill(root, "d", "json", "");
    let text = fs::read_to_string(directory.join("skill.json")).unwrap();
    let before = winner(&load(&[root]), "json").digest;
    write(&directory.join("skill.json"), format!("\u{feff}{text}"));
    let inventory = load(&[root]);
    assert_eq!(names(&inventory), ["bom_lf", "lf_crlf", "bom_crlf", "json"]);
    assert!(inventory.copies.iter().all(|copy| !copy.definition.description.contains(['\r', '\u{feff}'])));
    assert_ne!(winner(&inventory, "json").digest, before, "the digest is of the raw bytes");
}

#[test]
fn gates_over_several_lines_make_a_skill_ineligible_with_the_reason() {
    let temporary = tempfile::tempdir().unwrap();
    write(
        &temporary.path().join("gated/SKILL.md"),
        "---\nname: gated\ndescription: d\nmetadata:\n  {\n    \"os\": [\"linux\"],\n    \"requires\":\n      { \"bins\": [\"weft_case_absent_bin\"] },\n  }\n---\n",
    );
    let inventory = load(&[temporary.path()]);
    let copy = winner(&inventory, "gated");
    assert!(!copy.eligible());
    let failed: Vec<_> = copy.verdicts.iter().filter(|verdict| !verdict.passed).collect();
    assert_eq!((failed.len(), failed[0].gate), (1, Gate::Bin));
    assert!(failed[0].reason.contains("weft_case_absent_bin"));
}

#[test]
fn gate_data_that_cannot_be_read_makes_a_skill_ineligible() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    write(&root.join("a/SKILL.md"), "---\ndescription: d\nmetadata: \"{ openclaw: [\"\n---\n");
    skill(root, "b", "b", r#","metadata":{"requires":{"bins":5}}"#);
    let directory = skill(root, "c", "c", "");
    write(&directory.join("SKILL.md"), "---\nname: c\n");
    let inventory = load(&[root]);
    assert_eq!(names(&inventory), ["a", "b", "c"]);
    for copy in &inventory.copies {
        assert!(!copy.eligible(), "{}", copy.definition.name);
        assert_eq!(copy.verdicts[0].gate, Gate::Metadata);
        assert_eq!(about(&inventory, &format!("/{}/", copy.definition.name)).len(), 1);
    }
}

#[test]
fn a_directory_with_both_files_is_one_skill_with_the_gates_of_both() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = skill(temporary.path(), "both", "both", r#","metadata":{"os":["linux"]}"#);
    let text = "---\nname: other\ndescription: d\nwhen_to_use: often\ndisable-model-invocation: true\nmetadata: {openclaw: {requires: {bins: [absent]}}}\n---\nHow.\n";
    write(&directory.join("SKILL.md"), text);
    let inventory = load(&[temporary.path()]);
    assert_eq!(names(&inventory), ["both"]);
    let copy = winner(&inventory, "both");
    let definition = &copy.definition;
    assert_eq!(definition.kind, Kind::Executable);
    assert_eq!((definition.description.as_str(), definition.instructions.as_str()), ("case both", text));
    assert_eq!(definition.when_to_use, "often");
    assert!(definition.hidden_from_prompts);
    assert_eq!(copy.verdicts.iter().map(|verdict| verdict.passed).collect::<Vec<_>>(), [true, false]);
    assert_eq!(inventory.diagnostics[0].rule, "name");
    write(&directory.join("SKILL.md"), text.replace("often", "rarely"));
    assert!(matches!(copy.check_unchanged(), Err(CheckError::Changed { .. })));
}

#[test]
fn programs_are_probed_again_at_each_load() {
    let temporary = tempfile::tempdir().unwrap();
    let (root, bin) = (temporary.path().join("root"), temporary.path().join("bin"));
    fs::create_dir(&bin).unwrap();
    skill(&root, "x", "x", r#","metadata":{"requires":{"bins":["weft_case_tool"]}}"#);
    let mut config = config(&[&root]);
    config.host.skill_path = (&bin).into();
    let mut loader = Loader::new(config);
    let tool = bin.join("weft_case_tool");
    let mut inventory = loader.load(None);
    let mut eligible = vec![inventory.copies[0].eligible()];
    for step in 0..3 {
        match step {
            0 => script(&tool, "#!/bin/sh\n"),
            1 => fs::remove_file(&tool).unwrap(),
            _ => write(&tool, "#!/bin/sh\n"),
        }
        inventory = loader.load(Some(&inventory));
        eligible.push(inventory.copies[0].eligible());
    }
    assert_eq!(eligible, [false, true, false, false]);
    assert_eq!(inventory.revision, 3, "the last step changed nothing that is told");
}

#[test]
fn links_are_followed_inside_the_root_only() {
    let temporary = tempfile::tempdir().unwrap();
    let (root, outside) = (temporary.path().join("root"), temporary.path().join("outside"));
    skill(&root, "_store/in_root", "in_root", "");
    skill(temporary.path(), "outside", "outside", "");
    symlink("_store/in_root", root.join("in_link")).unwrap();
    symlink(&outside, root.join("out_link")).unwrap();
    symlink(".", root.join("loop")).unwrap();
    symlink("missing", root.join("dangling")).unwrap();
    fs::create_dir(root.join("file_link")).unwrap();
    symlink(outside.join("skill.json"), root.join("file_link/skill.json")).unwrap();
    fs::create_dir(root.join("inner_link")).unwrap();
    symlink("../_store/in_root/skill.json", root.join("inner_link/skill.json")).unwrap();
    script(&root.join("inner_link/run"), "");
    let inventory = load(&[&root]);
    assert_eq!(names(&inventory), ["in_root", "in_root"]);
    assert_eq!(inventory.copies[1].directory, root.join("inner_link"));
    assert_eq!(inventory.copies[1].shadowed_by, Some(root.join("_store/in_root")));
    for (name, count) in [("out_link", 1), ("loop", 1), ("dangling", 1), ("file_link", 1), ("/in_link", 0)] {
        assert_eq!(about(&inventory, name).len(), count, "{name}: {:#?}", inventory.diagnostics);
    }
    assert!(about(&inventory, "out_link")[0].message.contains("leaves the root"));
    assert!(about(&inventory, "file_link")[0].message.contains("escapes allowlist root"));
}

#[test]
fn a_skill_behind_a_link_resolves_its_entry_under_the_root() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("link");
    skill(&temporary.path().join("real"), "x", "x", "");
    symlink("real", &root).unwrap();
    let inventory = load(&[&root]);
    let copy = winner(&inventory, "x");
    assert_eq!(copy.manifest, root.join("x/skill.json"));
    assert_eq!(copy.root, temporary.path().canonicalize().unwrap().join("real"));
    assert!(copy.check_unchanged().is_ok());
}

#[test]
fn the_same_name_twice_has_one_winner_by_a_written_rule() {
    let temporary = tempfile::tempdir().unwrap();
    let (first, second) = (temporary.path().join("z_first"), temporary.path().join("a_second"));
    skill(&first, "dup", "dup", "");
    skill(&second, "dup", "dup", r#","version":"2""#);
    skill(&first, "b_dir", "twin", "");
    skill(&first, "a_dir", "twin", "");
    let mut loader = Loader::new(config(&[&first, &second]));
    for _ in 0..20 {
        let inventory = load(&[&first, &second]);
        assert_eq!(winner(&inventory, "dup").directory, first.join("dup"));
        assert_eq!(winner(&inventory, "twin").directory, first.join("a_dir"));
        let loser = inventory.copies.iter().find(|copy| copy.directory == second.join("dup")).unwrap();
        assert_eq!(loser.shadowed_by, Some(first.join("dup")));
        let told = about(&inventory, "a_second/dup");
        assert!(told[0].message.contains("z_first/dup"), "{told:?}");
    }
    let before = loader.load(None);
    fs::remove_dir_all(first.join("dup")).unwrap();
    let after = loader.load(Some(&before));
    assert_eq!(winner(&after, "dup").directory, second.join("dup"));
    assert!(winner(&after, "dup").eligible());
}

#[test]
fn a_higher_layer_wins_and_hides_the_lower_copy_when_its_gates_fail() {
    let temporary = tempfile::tempdir().unwrap();
    let (managed, personal) = (temporary.path().join("managed"), temporary.path().join("personal"));
    skill(&managed, "x", "x", "");
    skill(&personal, "x", "x", r#","metadata":{"os":"win32"}"#);
    let mut config = config(&[&managed]);
    let personal_source = Source { layer: Layer::Personal, ..Source::managed(&personal) };
    config.sources.push(personal_source);
    let agent = Scope::Agent("writer".parse().unwrap());
    let own = Source { layer: Layer::Workspace, scope: agent.clone(), ..Source::managed(&managed) };
    config.sources.push(own);
    let inventory = Loader::new(config).load(None);
    let top = winner(&inventory, "x");
    assert_eq!(top.directory, personal.join("x"));
    assert!(!top.eligible());
    assert_eq!(inventory.copies.len(), 3);
    assert!(!inventory.copies[2].eligible());
    let own = inventory.winner_for(&agent, &top.definition.key).unwrap();
    assert!(own.eligible() && own.layer == Layer::Workspace);
}

#[test]
fn sources_that_overlap_give_one_copy() {
    let temporary = tempfile::tempdir().unwrap();
    skill(temporary.path(), "a/x", "x", "");
    let inventory = load(&[temporary.path(), &temporary.path().join("a"), temporary.path()]);
    assert_eq!(names(&inventory), ["x"]);
    assert!(inventory.diagnostics.is_empty());
}

#[test]
fn a_fifo_or_a_huge_file_for_a_manifest_is_refused_without_waiting() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    fs::create_dir(root.join("fifo")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo/skill.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    write(&root.join("huge/skill.json"), " ".repeat(256 * 1024 + 1));
    let directory = skill(root, "full", "full", "");
    let text = fs::read_to_string(directory.join("skill.json")).unwrap();
    write(&directory.join("skill.json"), format!("{text}{}", " ".repeat(256 * 1024 - text.len())));
    let inventory = load(&[root]);
    assert_eq!(names(&inventory), ["full"]);
    assert!(about(&inventory, "/fifo/")[0].message.contains("not a regular file"));
    assert!(about(&inventory, "/huge/")[0].message.contains("larger"));
}

#[test]
fn entries_that_cannot_be_started_do_not_load() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    for (directory, entry) in [("dot", "."), ("none", "none"), ("out", "/bin/sh"), ("mode", "skill.json")] {
        skill(root, directory, directory, "");
        let text = format!(r#"{{"name":"{directory}","description":"d","entry":"{entry}"}}"#);
        write(&root.join(directory).join("skill.json"), text);
    }
    let inventory = load(&[root]);
    assert!(inventory.copies.is_empty());
    assert_eq!(inventory.diagnostics.len(), 4);
    assert!(inventory.diagnostics.iter().all(|diagnostic| diagnostic.rule == "entry"));
    assert!(inventory.diagnostics.iter().all(|diagnostic| diagnostic.key.is_some()));
}

#[test]
fn an_absolute_entry_under_another_root_loads_as_partial() {
    let temporary = tempfile::tempdir().unwrap();
    let (skills, tools) = (temporary.path().join("skills"), temporary.path().join("tools"));
    script(&tools.join("run"), "#!/bin/sh\n");
    let text = format!(r#"{{"name":"x","description":"d","entry":"{}"}}"#, tools.join("run").display());
    write(&skills.join("x/skill.json"), text);
    assert!(load(&[&skills]).copies.is_empty());
    let inventory = load(&[&skills, &tools]);
    assert!(winner(&inventory, "x").partial);
    assert!(winner(&inventory, "x").check_unchanged().is_ok());
}

#[test]
fn a_half_written_file_keeps_the_old_version_and_a_removed_one_goes() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    let directory = skill(root, "x", "x", "");
    let document = root.join("y/SKILL.md");
    write(&document, "---\nname: y\ndescription: d\n---\n");
    let mut loader = Loader::new(config(&[root]));
    let before = loader.load(None);
    let text = fs::read_to_string(directory.join("skill.json")).unwrap();
    write(&directory.join("skill.json"), &text[..10]);
    write(&document, "---\nname: y\ndes");
    let kept = loader.load(Some(&before));
    assert_eq!(names(&kept), ["x", "y"]);
    assert_eq!(kept.diagnostics.len(), 2);
    assert!(kept.diagnostics.iter().all(|diagnostic| diagnostic.message.contains("stays in use")));
    assert!(kept.diagnostics.iter().all(|diagnostic| diagnostic.key.is_some()));
    assert_eq!(kept.copies[0].digest, before.copies[0].digest);
    assert!(kept.copies[0].check_unchanged().is_ok(), "calls work throughout");
    let again = loader.load(Some(&kept));
    assert_eq!(again, kept);
    script(&directory.join("run"), "#!/bin/sh\nanother\n");
    assert!(again.copies[0].check_unchanged().is_err(), "not what the definition was read with");
    // Whole, but wrong: nothing stays.
    write(&directory.join("skill.json"), text.replace("case x", " "));
    fs::remove_file(&document).unwrap();
    let after = loader.load(Some(&again));
    assert!(after.copies.is_empty());
    assert_eq!(after.diagnostics.len(), 1);
    assert!(Loader::new(config(&[root])).load(None).copies.is_empty());
}

#[test]
fn a_half_written_document_beside_a_manifest_keeps_both_as_they_were() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = skill(temporary.path(), "x", "x", "");
    write(&directory.join("SKILL.md"), "---\nname: x\ndescription: d\nmetadata: {os: linux}\n---\n");
    let mut loader = Loader::new(config(&[temporary.path()]));
    let before = loader.load(None);
    write(&directory.join("SKILL.md"), "---\nna");
    let kept = loader.load(Some(&before));
    assert_eq!(kept.copies[0].definition, before.copies[0].definition);
    assert!(kept.copies[0].eligible());
    assert!(kept.copies[0].check_unchanged().is_ok());
    let fresh = load(&[temporary.path()]);
    assert!(!fresh.copies[0].eligible(), "never ungated");
}

#[test]
fn a_change_under_a_loaded_copy_is_noticed_before_a_start() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    let directory = skill(root, "x", "x", "");
    let mut loader = Loader::new(config(&[root]));
    let check = |inventory: &Inventory| inventory.copies[0].check_unchanged();
    let mut inventory = loader.load(None);
    assert!(check(&inventory).is_ok());
    script(&directory.join("run"), "#!/bin/sh\nchanged\n");
    assert!(matches!(check(&inventory), Err(CheckError::Changed { .. })));
    inventory = loader.load(Some(&inventory));
    assert!(check(&inventory).is_ok());
    fs::remove_file(directory.join("run")).unwrap();
    symlink("/bin/sh", directory.join("run")).unwrap();
    let error = check(&inventory).unwrap_err().to_string();
    assert!(error.contains("escapes allowlist root"), "{error}");
    fs::remove_file(directory.join("run")).unwrap();
    script(&directory.join("run"), "");
    inventory = loader.load(Some(&inventory));
    fs::set_permissions(directory.join("run"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(check(&inventory), Err(CheckError::Entry(_))));
}

#[test]
fn a_touched_file_is_published_without_a_new_revision() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = skill(temporary.path(), "x", "x", "");
    let mut loader = Loader::new(config(&[temporary.path()]));
    let before = loader.load(None);
    script(&directory.join("run"), "#!/bin/sh\necho '{}'\n");
    let after = loader.load(Some(&before));
    assert_eq!(after.revision, before.revision);
    assert_ne!(after.copies, before.copies);
    assert!(after.copies[0].check_unchanged().is_ok());
    assert!(Arc::ptr_eq(&after.copies[0].definition, &before.copies[0].definition));
}

#[test]
fn the_same_files_give_the_same_definition_and_digest_everywhere() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for root in [a.path(), b.path()] {
        let directory =
            skill(root, "x", "x", r#","schema":{"type":"object","properties":{"p":{"type":"string"}}}"#);
        write(&directory.join("lib/a"), "1");
        skill(root, "y", "y", "");
        symlink("/etc/hostname", root.join("y/SKILL.md")).unwrap();
    }
    let (one, other) = (load(&[a.path()]), load(&[b.path()]));
    for (one, other) in one.copies.iter().zip(&other.copies) {
        assert_eq!(one.definition, other.definition);
        assert_eq!(one.digest, other.digest);
        let shown = format!("{:?}", one.definition);
        assert!(!shown.contains(a.path().to_str().unwrap()), "{shown}");
    }
    assert!(one.copies[1].definition.broken_requirements.is_some());
}

#[test]
fn nested_skills_each_load() {
    let temporary = tempfile::tempdir().unwrap();
    skill(temporary.path(), "outer", "outer", "");
    skill(temporary.path(), "outer/inner", "inner", "");
    let mut loader = Loader::new(config(&[temporary.path()]));
    let before = loader.load(None);
    assert_eq!(names(&before), ["outer", "inner"]);
    write(&temporary.path().join("outer/inner/lib"), "1");
    let after = loader.load(Some(&before));
    assert_eq!(winner(&after, "outer").digest, winner(&before, "outer").digest);
    assert_ne!(winner(&after, "inner").digest, winner(&before, "inner").digest);
}

#[test]
fn skills_over_the_limit_of_a_node_are_left_out_and_counted() {
    let temporary = tempfile::tempdir().unwrap();
    for index in 0..limits::SKILLS_PER_NODE + 5 {
        let text = format!("---\nname: s{index:04}\ndescription: d\n---\n");
        write(&temporary.path().join(format!("{index:04}/SKILL.md")), text);
    }
    let inventory = load(&[temporary.path()]);
    assert_eq!(inventory.copies.len(), limits::SKILLS_PER_NODE);
    assert_eq!(inventory.diagnostics.len(), 1);
    assert!(inventory.diagnostics[0].message.contains("5 are left out"));
}

#[test]
fn hostile_names_do_not_reach_the_log_as_they_are() {
    let temporary = tempfile::tempdir().unwrap();
    write(
        &temporary.path().join("a\u{1b}[2J/skill.json"),
        r#"{"name":"\u001b[2J","description":"d","entry":"e"}"#,
    );
    let mut loader = Loader::new(config(&[temporary.path()]));
    let (inventory, lines) = logged(|| loader.load(None));
    assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:?}");
    assert!(!format!("{}", inventory.diagnostics[0]).contains('\u{1b}'));
}

#[test]
fn what_gives_no_name_is_reported_under_that_of_its_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    write(&root.join("Cut-Off/skill.json"), r#"{"name":"#);
    write(&root.join("empty/skill.json"), "");
    write(&root.join("list/skill.json"), "[]");
    write(&root.join("nameless/skill.json"), r#"{"description":"d","entry":"run"}"#);
    write(&root.join("twice/skill.json"), r#"{"name":"a","name":"b"}"#);
    write(&root.join("huge/skill.json"), " ".repeat(limits::MANIFEST_BYTES as usize + 1));
    write(&root.join("text/SKILL.md"), "---\nname: [\n---\n");
    write(&root.join("no key!/skill.json"), "{");
    for (directory, file) in [("fifo", "skill.json"), ("fifo_text", "SKILL.md")] {
        fs::create_dir(root.join(directory)).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let path = root.join(directory).join(file);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    let inventory = load(&[root]);
    assert!(inventory.copies.is_empty());
    for (directory, key) in [
        ("/Cut-Off/", Some("cut_off")),
        ("/empty/", Some("empty")),
        ("/list/", Some("list")),
        ("/nameless/", Some("nameless")),
        ("/twice/", Some("twice")),
        ("/huge/", Some("huge")),
        ("/text/", Some("text")),
        ("/fifo/", Some("fifo")),
        ("/fifo_text/", Some("fifo_text")),
        ("/no key!/", None),
    ] {
        let found = about(&inventory, directory);
        assert!(!found.is_empty(), "{directory}: {:?}", inventory.diagnostics);
        for diagnostic in found {
            assert_eq!(diagnostic.severity, Severity::Error, "{diagnostic:?}");
            assert_eq!(diagnostic.key.as_ref().map(SkillKey::as_str), key, "{diagnostic:?}");
        }
    }
}

/// Digests until every file is old enough for its stamp to be trusted, so that none is read any more.
fn digest_without_reading(copy: &Copy) -> weft_core::ids::Digest {
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let before = copy.recipe.cache.files_read();
        let digest = copy.digest_now().unwrap();
        if copy.recipe.cache.files_read() == before {
            return digest;
        }
        assert!(std::time::Instant::now() < limit, "files are read again and again");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_digest_now_reads_only_what_changed_since_anybody_read_it() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    let directory = skill(root, "x", "x", "");
    for file in ["a", "b", "c"] {
        write(&directory.join("lib").join(file), "before");
    }
    let mut loader = Loader::new(config(&[root]));
    let inventory = loader.load(None);
    let copy = winner(&inventory, "x");
    let before = digest_without_reading(copy);
    assert_eq!(before, copy.digest);
    // What the copy learned, the loader knows as well.
    let read = copy.recipe.cache.files_read();
    let inventory = loader.load(Some(&inventory));
    let copy = winner(&inventory, "x");
    assert_eq!((copy.digest, copy.recipe.cache.files_read()), (before, read));

    // As long as before and with its old time: only the time of change, which nobody can set, tells.
    let changed = directory.join("lib/b");
    let modified = changed.metadata().unwrap().modified().unwrap();
    write(&changed, "behind");
    fs::File::options().write(true).open(&changed).unwrap().set_modified(modified).unwrap();
    let after = copy.digest_now().unwrap();
    assert_ne!(after, before);
    assert_eq!(copy.recipe.cache.files_read(), read + 1);
    assert_eq!(digest_without_reading(copy), after);
    // Another file under the old name, and a file that goes.
    write(&directory.join("other"), "before");
    fs::rename(directory.join("other"), &changed).unwrap();
    assert_eq!(copy.digest_now().unwrap(), before);
    fs::remove_file(&changed).unwrap();
    assert_ne!(copy.digest_now().unwrap(), before);
}

#[test]
fn a_digest_now_is_the_same_in_every_thread_while_the_loader_loads() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    let directory = skill(root, "x", "x", "");
    for n in 0..20 {
        write(&directory.join(format!("lib/{n}")), n.to_string());
    }
    let mut loader = Loader::new(config(&[root]));
    let inventory = loader.load(None);
    let copy = winner(&inventory, "x");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(copy.digest_now().unwrap(), copy.digest)));
        }
        for _ in 0..5 {
            assert_eq!(winner(&loader.load(Some(&inventory)), "x").digest, copy.digest);
        }
    });
}
