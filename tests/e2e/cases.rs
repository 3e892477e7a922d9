//! Field bugs of others, as tests: the cases that the project keeps by number, each with its input and what weft does.
//! The number is where a name begins.

mod endings;
mod environment;
mod gates;
mod manifests;
mod paths;
mod reconnects;
mod reload;
mod schemas;
mod stdio;
mod streams;
mod tracing;

use std::time::Duration;

use serde_json::Value;
use weft_testkit::{Fabric, Observed, Skill, Spec, eventually, request};

/// What happens in a moment may take this long on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A skill as every case writes it: nothing but the members that a manifest needs.
fn mk(name: &str, program: &str) -> Skill {
    Skill::new(name, program).without("env_allow")
}

/// Gives its args back.
fn echo_args() -> Skill {
    mk("echo_args", "#!/usr/bin/python3\nimport sys; sys.stdout.buffer.write(sys.stdin.buffer.read())\n")
}

/// Tells its whole environment. Read where the kernel keeps it: a shell or Python adds variables of its own.
fn dump_env(name: &str) -> Skill {
    mk(
        name,
        "#!/usr/bin/python3\n\
         import json\n\
         e=open('/proc/self/environ','rb').read()\n\
         print(json.dumps({\"env\":sorted(x.decode('latin-1') for x in e.split(b'\\0') if x)}))\n",
    )
}

/// The node still does what it is asked to.
#[track_caller]
fn stays_ready(fabric: &Fabric) {
    assert_eq!(fabric.call(&["echo_args", "--args", r#"{"still":"ready"}"#])["still"], "ready");
}

/// Calls a skill and follows it to its end.
#[track_caller]
fn observe(fabric: &Fabric, skill: &str, args: &'static str) -> Observed {
    let call = crate::runtime()
        .block_on(async { Observed::of(fabric.client().invoke(&request(skill, args))).await });
    call.unwrap_or_else(|error| panic!("{skill} is refused: {error}"))
}

/// Waits until a skill can be run on one node, or on no node.
#[track_caller]
fn wait_for_verdict(fabric: &Fabric, skill: &str, eligible: bool, most: Duration) -> Value {
    fabric.wait_for_skill(skill, most, |skill| (skill["eligibleNodes"] == 1) == eligible)
}

/// Waits until a diagnostic has all of these words.
#[track_caller]
fn wait_for_diagnostic(fabric: &Fabric, words: &[&str]) -> String {
    eventually(&format!("a diagnostic with {words:?}: {:#?}", fabric.diagnostics()), SOON, || {
        fabric.diagnostics().into_iter().find(|line| words.iter().all(|word| line.contains(word)))
    })
}

/// Makes the node read its sources again, and waits until the coordinator has what it read: a skill more.
#[track_caller]
fn rescan(fabric: &Fabric, node: &str, marker: &str) {
    Skill::echo(marker).write(&fabric.skills_of(node));
    fabric.wait_for_skill(marker, SOON, |_| true);
}

/// A node without anything special.
fn plain() -> Spec {
    Spec::new()
}
