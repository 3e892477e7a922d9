//! End-to-end stories: the real binary as processes, over real sockets, with real skills. One file a promise.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod api;
mod architecture;
mod bench;
mod caller;
mod cases;
mod catalog_watch;
mod configuration;
mod dev;
mod docs;
mod doctor;
mod drain;
mod endings;
mod exact;
mod fleet;
mod hostile_node;
mod kernel;
mod layers;
mod leaks;
mod live_stderr;
mod ongrid;
mod operator;
mod prompts;
mod refusals;
mod reload;
mod requests;
mod restarts;
mod results;
mod sessions;
mod skill_commands;
mod skill_files;
mod supersede;
mod tool_definitions;
mod traces;

use weft_testkit::Fabric;

/// The binary under test, built by Cargo.
const WEFT: &str = env!("CARGO_BIN_EXE_weft");

fn fabric() -> Fabric {
    Fabric::start(WEFT, &[])
}

/// A runtime for tests that speak gRPC themselves; it goes on while a test waits for a process.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A detached request.
fn request(skill: &str, args: &'static str) -> weft_core::invocation::Request {
    weft_core::invocation::Request {
        caller: "local".parse().unwrap(),
        request_id: Some(weft_core::ids::InvocationId::generate().to_string().parse().unwrap()),
        agent: None,
        skill: weft_core::ids::SkillKey::normalise(skill).unwrap(),
        pinned: None,
        session: None,
        among: [].into(),
        args: args.as_bytes().into(),
        args_digest: weft_core::ids::Digest::of(args.as_bytes()),
        target: weft_core::node::Target::Any,
        budget: None,
        detach: true,
    }
}

/// The sleep of a fixture, with a duration that no other test uses, so that its process can be found.
fn unique_sleep() -> String {
    let unique =
        u64::from(std::process::id()) * 1000 + COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("sleep 9{unique}")
}

static COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
