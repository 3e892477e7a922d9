//! Who may use whom: the table in `ARCHITECTURE.md`, kept true.

use std::{collections::BTreeMap, fs, path::Path};

/// For each crate the crates of ours that it may use.
const ALLOWED: [(&str, &[&str]); 13] = [
    ("core", &[]),
    ("config", &["core"]),
    ("daemon", &[]),
    ("exec", &["core"]),
    ("proto", &["core"]),
    ("skills", &["core"]),
    ("store", &["core"]),
    ("telemetry", &["core"]),
    ("client", &["proto", "core", "telemetry"]),
    ("node", &["skills", "exec", "store", "client", "proto", "core", "daemon", "telemetry"]),
    ("coordinator", &["store", "client", "proto", "core", "daemon", "telemetry"]),
    ("testkit", &["core", "proto", "client"]),
    (
        "",
        &[
            "client",
            "config",
            "coordinator",
            "core",
            "daemon",
            "exec",
            "node",
            "proto",
            "skills",
            "store",
            "telemetry",
        ],
    ),
];

/// The crates of ours below `[dependencies]`.
fn uses(manifest: &str) -> Vec<String> {
    let section = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.strip_prefix("weft-")?.split(['.', ' ', '=']).next())
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn crates_use_only_what_the_table_allows() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(repository.join("ARCHITECTURE.md")).unwrap();
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    let mut seen = 0;
    for entry in fs::read_dir(repository.join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let directory = path.file_name().unwrap().to_str().unwrap().to_owned();
        let name = directory.strip_prefix("weft").unwrap().trim_start_matches('-').to_owned();
        let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("{directory} is not in the table"));
        for used in uses(&fs::read_to_string(path.join("Cargo.toml")).unwrap()) {
            assert!(may.contains(&used.as_str()), "{directory} must not use weft-{used}");
        }
        assert!(page.contains(&format!("| `{directory}` |")), "{directory} is not in ARCHITECTURE.md");
        seen += 1;
    }
    assert_eq!(seen, ALLOWED.len());
}
