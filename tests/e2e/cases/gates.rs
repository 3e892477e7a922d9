//! What a host must have is judged on that host, and again as often as it changes.

use std::{fs, path::Path, time::Duration};

use serde_json::json;
use weft_testkit::{
    Fabric, Skill,
    skill::{put, put_program},
};

use super::{SOON, mk, plain, rescan, wait_for_verdict};
use crate::{WEFT, fabric};

const TOOL: &str = "weft_case_tool";

fn needy() -> Skill {
    mk("needy", "#!/bin/sh\necho '{}'\n").with("metadata", json!({"requires": {"bins": [TOOL]}}))
}

fn path_with(dir: &Path) -> String {
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

#[test]
fn s05_a_tool_that_comes_and_goes_changes_the_verdict_without_a_restart() {
    let fabric = fabric();
    let bin = fabric.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let tool = bin.join(TOOL);
    let _node = fabric.node("host", &[needy()], &plain().env("PATH", path_with(&bin)));
    wait_for_verdict(&fabric, "needy", false, SOON);
    let refused = |fabric: &Fabric| {
        let refused = fabric.weft(&["call", "needy"]);
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.stderr.contains("NO_ELIGIBLE_NODE") && refused.stderr.contains(TOOL), "{refused:?}");
    };
    refused(&fabric);

    // No file of the source changes, so it is the rescan that finds the tool: at most 30 s, and a little.
    put_program(&tool, "#!/bin/sh\n");
    wait_for_verdict(&fabric, "needy", true, Duration::from_secs(35));
    assert_eq!(fabric.call(&["needy"]), json!({}));
    // That the rescan comes by itself is shown; from here on it is only waited for less.
    fs::remove_file(&tool).unwrap();
    rescan(&fabric, "host", "first");
    wait_for_verdict(&fabric, "needy", false, SOON);
    refused(&fabric);
    put(&tool, "#!/bin/sh\n");
    rescan(&fabric, "host", "second");
    assert_eq!(fabric.skill("needy").unwrap()["eligibleNodes"], 0);
    refused(&fabric);
    assert_eq!(fabric.json(&["invocations", "needy"]).unwrap().as_array().unwrap().len(), 1);
}

#[test]
fn s06_requirements_are_those_of_the_node_and_never_of_the_coordinator() {
    let scratch = tempfile::tempdir().unwrap();
    let own = scratch.path().join("bin");
    let path = path_with(&own);
    let fabric = Fabric::start_with(WEFT, &[], &[("PATH", path.as_ref())]);
    let bin = fabric.path("bin");
    put_program(&bin.join(TOOL), "#!/bin/sh\n");
    let _a = fabric.node("a", &[needy()], &plain().env("PATH", path_with(&bin)));
    let b = fabric.node("b", &[needy()], &plain());
    fabric.wait_for_skill("needy", SOON, |skill| skill["nodes"] == 2);
    let verdicts = |fabric: &Fabric| {
        let skill = fabric.json(&["skills", "needy"]).unwrap();
        assert_eq!(skill["eligibleNodes"], 1);
        let providers = skill["variants"][0]["providers"].as_array().unwrap().clone();
        assert_eq!(providers.len(), 2);
        for provider in providers {
            assert_eq!(provider["eligible"], provider["nodeName"] == "a", "{provider}");
            assert!(provider["verdicts"][0].to_string().contains(TOOL), "{provider}");
        }
    };
    verdicts(&fabric);
    for _ in 0..5 {
        fabric.call(&["needy"]);
    }
    let on_a = fabric.json(&["invocations", "needy"]).unwrap();
    let nodes: std::collections::BTreeSet<_> =
        on_a.as_array().unwrap().iter().map(|one| one["nodeId"].to_string()).collect();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    let refused = fabric.weft(&["call", "needy", "--node", "b"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("b: no executable"), "{}", refused.stderr);
    assert!(refused.stderr.contains(TOOL), "{}", refused.stderr);

    put_program(&own.join(TOOL), "#!/bin/sh\n");
    rescan(&fabric, "b", "marker");
    verdicts(&fabric);
    assert_eq!(fabric.weft(&["call", "needy", "--node", "b"]).code, 3);
    drop(b);
}
