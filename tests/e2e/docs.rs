//! Every command in README and docs works as it stands.
//!
//! Blocks marked `sh` run in order, in one scratch directory a page; blocks marked `sh daemon` go on beside them.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use weft_testkit::{Daemon, eventually, fabric::isolate};

use crate::WEFT;

struct Block {
    line: usize,
    daemon: bool,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(block), Some("")) => {
                let text = std::mem::take(&mut block.text);
                blocks.push(Block { line: block.line, daemon: block.daemon, text });
                open = None;
            }
            (Some(block), _) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(info @ ("sh" | "sh daemon"))) => {
                open = Some(Block { line: index + 1, daemon: info == "sh daemon", text: String::new() });
            }
            (None, _) => {}
        }
    }
    blocks
}

fn run(page: &Path) -> usize {
    let scratch = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bin = Path::new(WEFT).parent().unwrap();
    let configure = |command: &mut Command| {
        isolate(command);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.current_dir(scratch.path()).env("PATH", path).env("HOME", scratch.path());
        command.env("WEFT_LISTEN", format!("127.0.0.1:{port}"));
        command.env("WEFT_COORDINATOR", format!("127.0.0.1:{port}"));
    };
    let mut daemons = Vec::new();
    let blocks = blocks(&fs::read_to_string(page).unwrap());
    for block in &blocks {
        let place = format!("{}:{}", page.display(), block.line);
        if block.daemon {
            let words: Vec<&str> = block.text.split_whitespace().collect();
            let daemon = Daemon::start(Path::new(WEFT), &words[1..], configure);
            eventually(&format!("{place} to be ready"), Duration::from_secs(20), || {
                let ready = match words[1] {
                    "dev" => daemon.stdout().contains("Ctrl-C stops it"),
                    role => daemon.stderr().contains(&format!("{role} ready")),
                };
                ready.then_some(())
            });
            daemons.push(daemon);
        } else {
            let finished = Daemon::start(Path::new("sh"), &["-eu", "-c", &block.text], configure)
                .finish(Duration::from_secs(60));
            assert_eq!(finished.code, 0, "{place}:\n{}\n{finished:?}", block.text);
        }
    }
    blocks.len()
}

#[test]
fn every_command_in_the_documentation_works_as_it_stands() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> =
        fs::read_dir(repository.join("docs")).unwrap().map(|e| e.unwrap().path()).collect();
    pages.push(repository.join("README.md"));
    let ran: usize =
        pages.iter().filter(|page| page.extension().is_some_and(|e| e == "md")).map(|page| run(page)).sum();
    assert!(ran >= 10, "{ran} blocks");
}
