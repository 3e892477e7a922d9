//! A skill that carries a whole virtual environment.

use std::{fs, time::Duration};

use serde_json::json;
use weft_testkit::{
    Fabric, Skill, Spec, preload,
    process::{descriptors, watches},
    skill::put,
};

use super::{SOON, mk, plain, stays_ready, wait_for_diagnostic};
use crate::fabric;

const DIRECTORIES: usize = 500;
const FILES: usize = 20_000;

fn good(description: &str) -> Skill {
    mk("echo_args", "#!/bin/sh\nexec cat\n").with("description", json!(description))
}

/// A skill with 20 000 files beside it.
fn crowded(fabric: &Fabric) {
    let dir = good("before").write(&fabric.skills_of("host"));
    for directory in 0..DIRECTORIES {
        let directory = dir.join(format!("venv/lib/d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..FILES / DIRECTORIES {
            fs::write(directory.join(format!("f{file}.py")), "x = 1\n").unwrap();
        }
    }
}

fn described(fabric: &Fabric, description: &str, most: Duration) {
    fabric.wait_for_skill("echo_args", most, |skill| skill["definition"]["description"] == description);
}

#[test]
fn s26_twenty_thousand_files_beside_a_skill_cost_no_descriptors_and_no_watches() {
    let fabric = fabric();
    crowded(&fabric);
    let node = fabric.node("host", &[], &plain());
    stays_ready(&fabric);
    let bounded = || {
        let open = descriptors(node.pid());
        assert!(open < 100, "{open} descriptors");
        // The source, the directory above it, the skill's own.
        let watched = watches(node.pid());
        assert!((1..=8).contains(&watched), "{watched} watches");
    };
    bounded();
    good("after").write(&fabric.skills_of("host"));
    // 5 s on an idle machine.
    described(&fabric, "after", Duration::from_secs(10));
    stays_ready(&fabric);
    bounded();

    // Half of a manifest, as an editor may leave it for a moment.
    let manifest = fabric.skills_of("host").join("echo_args/skill.json");
    let whole = fs::read(&manifest).unwrap();
    put(&manifest, &whole[..whole.len() / 2]);
    wait_for_diagnostic(&fabric, &["echo_args/skill.json", "the version read before stays in use"]);
    described(&fabric, "after", SOON);
    put(&manifest, String::from_utf8(whole).unwrap().replace("after", "last"));
    described(&fabric, "last", Duration::from_secs(10));
    stays_ready(&fabric);
}

#[test]
fn s26_without_inotify_the_rescan_finds_the_edit_and_the_log_says_so_once() {
    let fabric = fabric();
    crowded(&fabric);
    let library = preload::library(&fabric.path("lib"), preload::WITHOUT_INOTIFY);
    let node = fabric.node("host", &[], &Spec::new().env("LD_PRELOAD", library));
    stays_ready(&fabric);
    assert_eq!(watches(node.pid()), 0, "the test does not test anything");
    good("after").write(&fabric.skills_of("host"));
    // A rescan, which is every 30 s, and a little.
    described(&fabric, "after", Duration::from_secs(40));
    stays_ready(&fabric);
    let said = node.stderr().matches("cannot watch").count();
    assert_eq!(said, 1, "{}", node.stderr());
    assert!(descriptors(node.pid()) < 100);
}
