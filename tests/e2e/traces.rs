//! One trace from a caller's span down into the script; figures to read; and a collector that cannot disturb a call.

use std::{
    ffi::OsStr,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;
use weft_core::{outcome::Outcome, trace::TraceContext};
use weft_testkit::{
    Collector, Daemon, Fabric, Observed, Skill, Spec,
    collector::{Mode, Span, assert_tree, draw},
    eventually,
    fabric::isolate,
    process::resident,
    request,
};

use crate::{WEFT, fabric, kernel::python, runtime};

const SOON: Duration = Duration::from_secs(30);

/// A coordinator and a node that send their telemetry to a collector.
pub(crate) fn observed(collector: &Collector, skills: &[Skill], spec: Spec) -> (Fabric, Daemon) {
    let environment = collector.environment();
    let variables: Vec<(&str, &OsStr)> =
        environment.iter().map(|(name, value)| (*name, OsStr::new(value))).collect();
    let fabric = Fabric::start_with(WEFT, &[], &variables);
    let spec = environment.iter().fold(spec, |spec, (name, value)| spec.env(name, value));
    let node = fabric.node("host", skills, &spec);
    for skill in skills {
        fabric.wait_for_skill(skill.name(), SOON, |_| true);
    }
    (fabric, node)
}

fn context(flags: &str) -> TraceContext {
    let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
    TraceContext::parse(&text, "vendor=opaque").unwrap()
}

/// Tells the context that it was given.
fn teller() -> Skill {
    Skill::sh(
        "teller",
        r#"echo one line >&2; echo "a second" >&2; printf '{"parent":"%s","state":"%s"}' "$TRACEPARENT" "$TRACESTATE""#,
    )
    .with("env_allow", json!(["TRACEPARENT", "TRACESTATE"]))
}

pub(crate) fn call(fabric: &Fabric, skill: &str, trace: Option<TraceContext>) -> Observed {
    let call = runtime().block_on(async {
        let client = fabric.client().within(trace);
        Observed::of(client.invoke(&request(skill, "{}"))).await
    });
    call.unwrap_or_else(|error| panic!("{skill} is refused: {error}"))
}

pub(crate) fn told(seen: &Observed) -> serde_json::Value {
    serde_json::from_slice(&seen.result()).unwrap()
}

#[track_caller]
fn only<'a>(spans: &'a [Span], kind: &str, name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.kind == kind && span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no {kind} {name} in\n{}", draw(spans)));
    assert!(found.next().is_none(), "{kind} {name} twice in\n{}", draw(spans));
    span
}

const INVOKE: &str = "weft.v1.InvocationService/Invoke";
const DISPATCH: &str = "weft.link.v1.LinkService/Dispatch";

#[test]
fn one_call_is_one_tree_from_the_callers_span_to_the_process() {
    let collector = Collector::start();
    let (fabric, _node) = observed(&collector, &[teller()], Spec::new());
    let caller = context("01");
    let seen = call(&fabric, "teller", Some(caller.clone()));
    let spans = collector.trace(caller.trace_id(), 6, SOON);
    assert_tree(&spans, Some(&caller));
    let chain = [
        ("SERVER", INVOKE, "weft-coordinator"),
        ("INTERNAL", "weft.dispatch", "weft-coordinator"),
        ("CLIENT", DISPATCH, "weft-coordinator"),
        ("SERVER", DISPATCH, "weft-node"),
        ("INTERNAL", "execute_tool teller", "weft-node"),
        ("CLIENT", "run", "weft-node"),
    ];
    let mut parent = caller.span_id().to_owned();
    for (kind, name, service) in chain {
        let span = only(&spans, kind, name);
        assert_eq!((span.parent_id.as_str(), span.service()), (parent.as_str(), service), "{}", draw(&spans));
        assert_eq!((span.trace_state.as_str(), &span.error), ("vendor=opaque", &None));
        parent.clone_from(&span.span_id);
    }
    let tool = only(&spans, "INTERNAL", "execute_tool teller");
    assert_eq!(tool.attributes["gen_ai.operation.name"], "execute_tool");
    assert_eq!(tool.attributes["gen_ai.tool.name"], "teller");
    assert_eq!(tool.attributes["weft.outcome"], "SUCCEEDED");
    let dispatch = only(&spans, "INTERNAL", "weft.dispatch");
    assert_eq!(dispatch.attributes["weft.invocation.id"], tool.attributes["gen_ai.tool.call.id"]);
    assert!(dispatch.attributes["weft.queue.seconds"].as_f64().unwrap() < 30.0);
    let process = only(&spans, "CLIENT", "run");
    assert_eq!(process.attributes["process.exit.code"], 0);
    assert!(process.attributes["process.pid"].as_i64().unwrap() > 1);
    // The child is told of the process, and what it says is in its span.
    let told = told(&seen);
    assert_eq!(told["parent"], format!("00-{}-{}-01", caller.trace_id(), process.span_id));
    assert_eq!(told["state"], "vendor=opaque");
    let logs = eventually("two log records", SOON, || Some(collector.logs()).filter(|logs| logs.len() >= 2));
    let lines: Vec<_> = logs.iter().map(|log| log.body.as_str()).collect();
    assert_eq!(lines, ["one line", "a second"]);
    for log in &logs {
        assert_eq!((log.trace_id.as_str(), &log.span_id), (caller.trace_id(), &process.span_id));
        assert_eq!(log.attributes["log.iostream"], "stderr");
    }
}

#[test]
fn a_python_kernel_and_a_script_with_sdks_of_their_own_are_in_the_same_tree() {
    let collector = Collector::start();
    let script = format!(
        "#!{}\n\
         import os\n\
         from opentelemetry import propagate, trace\n\
         from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter\n\
         from opentelemetry.sdk.resources import Resource\n\
         from opentelemetry.sdk.trace import TracerProvider\n\
         from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n\
         provider = TracerProvider(resource=Resource.create({{'service.name': 'script'}}))\n\
         provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(insecure=True)))\n\
         parent = propagate.extract({{'traceparent': os.environ['TRACEPARENT']}})\n\
         with provider.get_tracer('script').start_as_current_span('work', context=parent):\n\
         \x20   pass\n\
         provider.shutdown()\n\
         print('{{}}')\n",
        python().display()
    );
    let traced = Skill::new("traced", &script)
        .with("env_allow", json!(["TRACEPARENT", "OTEL_EXPORTER_OTLP_ENDPOINT"]));
    let (fabric, _node) = observed(&collector, &[traced], Spec::new());
    let caller = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/e2e/traces/caller.py");
    let finished = Daemon::start(&python(), &[caller.as_os_str(), OsStr::new("traced")], |command| {
        isolate(command);
        command.env("WEFT_COORDINATOR", fabric.address());
        command.env("XDG_CACHE_HOME", fabric.path("cache"));
        command.envs(collector.environment());
    })
    .finish(Duration::from_secs(90));
    assert_eq!(finished.code, 0, "{finished:?}");
    let (parent, outcome) = finished.stdout.trim().split_once(' ').unwrap();
    assert_eq!(outcome, "OUTCOME_SUCCEEDED", "{finished:?}");
    let parent = TraceContext::parse(parent, "").unwrap();
    let spans = collector.trace(parent.trace_id(), 9, SOON);
    assert_tree(&spans, None);
    assert_eq!(spans.len(), 9, "{}", draw(&spans));
    let work = only(&spans, "INTERNAL", "work");
    assert_eq!((work.service(), &work.parent_id), ("script", &only(&spans, "CLIENT", "run").span_id));
    let (client, server) = (only(&spans, "CLIENT", INVOKE), only(&spans, "SERVER", INVOKE));
    assert_eq!((client.service(), &server.parent_id), ("kernel", &client.span_id));
}

#[test]
fn a_caller_without_a_sound_context_gets_a_trace_of_its_own() {
    let collector = Collector::start();
    let (fabric, _node) = observed(&collector, &[teller()], Spec::new());
    let parent = told(&call(&fabric, "teller", None))["parent"].as_str().unwrap().to_owned();
    let context = TraceContext::parse(&parent, "").unwrap();
    assert!(context.is_sampled());
    let spans = collector.trace(context.trace_id(), 6, SOON);
    assert_tree(&spans, None);
    assert_eq!(only(&spans, "CLIENT", "run").span_id, context.span_id());
}

#[test]
fn what_the_caller_does_not_sample_is_not_sent_and_the_script_is_told() {
    let collector = Collector::start();
    let (fabric, node) = observed(&collector, &[teller()], Spec::new());
    let quiet = context("00");
    let told = told(&call(&fabric, "teller", Some(quiet.clone())));
    let inner = TraceContext::parse(told["parent"].as_str().unwrap(), "").unwrap();
    assert_eq!((inner.trace_id(), inner.is_sampled()), (quiet.trace_id(), false));
    // A call that is sampled comes after it in every queue.
    let loud = TraceContext::parse("00-00000000000000000000000000000001-00f067aa0ba902b7-01", "").unwrap();
    call(&fabric, "teller", Some(loud.clone()));
    collector.trace(loud.trace_id(), 6, SOON);
    assert!(collector.spans().iter().all(|span| span.trace_id != quiet.trace_id()));
    assert!(collector.logs().iter().all(|log| log.trace_id != quiet.trace_id()));
    drop(node);
}

#[test]
fn without_telemetry_the_callers_context_reaches_the_script_as_it_came() {
    let fabric = fabric();
    let _node = fabric.node("host", &[teller()], &Spec::new());
    let told = told(&call(&fabric, "teller", Some(context("01"))));
    assert_eq!(told["parent"], context("01").traceparent());
    assert_eq!(told["state"], "vendor=opaque");
}

#[test]
fn what_a_node_has_left_to_send_is_sent_before_it_ends() {
    let collector = Collector::start();
    let environment = collector.environment();
    let fabric = fabric();
    let spec = environment.iter().fold(Spec::new(), |spec, (name, value)| spec.env(name, value));
    // Nothing is sent by itself within the time of this test.
    let spec = spec.env("OTEL_BSP_SCHEDULE_DELAY", "600000");
    let mut node = fabric.node("host", &[teller()], &spec);
    fabric.wait_for_skill("teller", SOON, |_| true);
    call(&fabric, "teller", Some(context("01")));
    node.signal(Signal::TERM);
    assert!(node.wait(SOON).success());
    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "{}", draw(&spans));
}

#[test]
fn a_second_attempt_is_linked_to_the_first() {
    let collector = Collector::start();
    let environment = collector.environment();
    let variables: Vec<(&str, &OsStr)> =
        environment.iter().map(|(name, value)| (*name, OsStr::new(value))).collect();
    let fabric = Fabric::start_with(WEFT, &[], &variables);
    let go = fabric.path("go");
    let script = format!("echo begun >&2; while [ ! -e {} ]; do sleep 0.02; done; echo '{{}}'", go.display());
    let mut first = fabric.node("first", &[Skill::sh("slow", &script)], &Spec::new());
    fabric.wait_for_skill("slow", SOON, |_| true);
    let caller = context("01");
    let mut call = Daemon::start(Path::new(WEFT), &["call", "slow", "-v"], |command| {
        isolate(command);
        command.env("WEFT_COORDINATOR", fabric.address());
        command.env("TRACEPARENT", caller.traceparent());
    });
    call.wait_for_line("begun", SOON);
    first.kill();
    // It comes back, does not know the attempt, and gets it again.
    let _again = fabric.start_node("first", &Spec::new());
    std::fs::write(&go, "").unwrap();
    let finished = call.finish(Duration::from_secs(60));
    assert_eq!(finished.code, 0, "{finished:?}");
    let spans = collector.trace(caller.trace_id(), 5, SOON);
    assert_tree(&spans, Some(&caller));
    let mut dispatches: Vec<_> = spans.iter().filter(|span| span.name == "weft.dispatch").collect();
    dispatches.sort_by_key(|span| span.attributes["weft.attempt"].as_i64());
    let calls: Vec<_> = spans.iter().filter(|span| span.name == DISPATCH).collect();
    assert_eq!((dispatches.len(), calls.len()), (2, 2), "{}", draw(&spans));
    let lost = calls.iter().find(|span| span.parent_id == dispatches[0].span_id).unwrap();
    assert!(lost.error.is_some(), "{}", draw(&spans));
    assert_eq!(dispatches[1].links, [(caller.trace_id().to_owned(), lost.span_id.clone())]);
}

#[test]
fn a_receiver_that_is_not_ours_takes_everything() {
    let binary = python().parent().unwrap().join("../lib");
    let rotel = eventually("rotel in the check environment", Duration::ZERO, || {
        let found = std::fs::read_dir(&binary).ok()?.flatten();
        let sites = found.map(|entry| entry.path().join("site-packages/rotel/rotel-agent"));
        sites.chain([python().parent()?.join("../site/rotel/rotel-agent")]).find(|path| path.exists())
    });
    let ports = [free_port(), free_port()];
    let [grpc, http] = ports.map(|port| format!("127.0.0.1:{port}"));
    let mut args = vec!["start", "--otlp-grpc-endpoint", &grpc, "--otlp-http-endpoint", &http];
    args.extend(["--exporter", "blackhole", "--debug-log-verbosity", "detailed"]);
    for signal in ["traces", "metrics", "logs"] {
        args.extend(["--debug-log", signal]);
    }
    let receiver = Daemon::start(&rotel, &args, isolate);
    eventually("rotel listens", SOON, || TcpStream::connect(&grpc).ok());
    let endpoint = format!("http://{grpc}");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("OTEL_BLRP_SCHEDULE_DELAY", "50"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
    ];
    let fabric = Fabric::start_with(WEFT, &[], &variables.map(|(name, value)| (name, OsStr::new(value))));
    let spec = variables.iter().fold(Spec::new(), |spec, (name, value)| spec.env(name, *value));
    let _node = fabric.node("host", &[teller()], &spec);
    fabric.wait_for_skill("teller", SOON, |_| true);
    call(&fabric, "teller", Some(context("01")));
    let said = || receiver.stdout() + &receiver.stderr();
    for part in [
        "execute_tool teller",
        "weft.dispatch",
        context("01").trace_id(),
        "a second",
        "weft.invocation.duration",
        "weft-coordinator",
        "weft-node",
    ] {
        eventually(&format!("{part} in what rotel prints"), SOON, || said().contains(part).then_some(()));
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

// === /metrics ===

/// What a daemon answers on its health port.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: weft\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn health(daemon: &Daemon) -> String {
    let line = daemon.wait_for_line("health and metrics", SOON);
    line.rsplit_once("address=").unwrap().1.trim().to_owned()
}

/// The sum of the samples that begin like this.
fn figure(text: &str, beginning: &str) -> f64 {
    let samples = text.lines().filter(|line| line.starts_with(beginning));
    samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

#[test]
fn both_daemons_say_whether_they_are_ready_and_what_they_did() {
    let mut fabric = Fabric::start(WEFT, &["--health", "127.0.0.1:0"]);
    let failing = Skill::sh("failing", "exit 3");
    let spec = Spec::new().arg("--health", "127.0.0.1:0");
    let node = fabric.node("host", &[Skill::echo("quick"), failing], &spec);
    fabric.wait_for_skill("quick", SOON, |_| true);
    fabric.wait_for_skill("failing", SOON, |_| true);
    for _ in 0..3 {
        call(&fabric, "quick", None);
    }
    assert_eq!(call(&fabric, "failing", None).last().outcome, Outcome::Failed);
    let addresses = [health(fabric.coordinator()), health(&node)];
    for address in &addresses {
        assert_eq!(get(address, "/healthz").0, 200);
        assert_eq!(get(address, "/readyz"), (200, "ready\n".into()));
        let (code, text) = get(address, "/metrics");
        assert_eq!(code, 200);
        let ended = |skill, outcome| {
            let labels = format!("class=\"safe\",outcome=\"{outcome}\",skill=\"{skill}\"");
            figure(&text, &format!("weft_invocation_duration_seconds_count{{{labels}"))
        };
        assert_eq!((ended("quick", "SUCCEEDED"), ended("failing", "FAILED")), (3.0, 1.0), "{text}");
        assert_eq!(figure(&text, "weft_invocation_active{"), 0.0, "{text}");
        assert!(!text.contains("invocation_id") && !text.contains("n-0"), "{text}");
    }
    let (_, text) = get(&addresses[0], "/metrics");
    assert_eq!(figure(&text, "weft_node_connected{"), 1.0);
    assert_eq!(figure(&text, "weft_catalog_skills{"), 2.0);
    fabric.kill_coordinator();
    eventually("the node is not ready", SOON, || (get(&addresses[1], "/readyz").0 == 503).then_some(()));
    assert_eq!(get(&addresses[1], "/readyz").1, "a coordinator\n");
    assert_eq!(get(&addresses[1], "/healthz").0, 200);
}

// === bad collectors ===

/// How long a number of calls take, four at a time.
fn timed(fabric: &Fabric) -> Duration {
    runtime().block_on(async {
        let begun = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let client = fabric.client();
            callers.spawn(async move {
                for _ in 0..25 {
                    let seen = Observed::of(client.invoke(&request("chatty", "{}"))).await.unwrap();
                    assert_eq!(seen.last().outcome, Outcome::Succeeded, "{}", seen.last().message);
                }
            });
        }
        callers.join_all().await;
        begun.elapsed()
    })
}

#[test]
fn f48_a_collector_that_is_slow_silent_refusing_or_gone_disturbs_no_call() {
    const ROUNDS: usize = 5;
    let mut gone = Collector::start();
    gone.stop();
    let collectors = [
        Collector::start(),
        Collector::behaving(Mode::Slow(Duration::from_secs(2))),
        Collector::behaving(Mode::BlackHole),
        Collector::behaving(Mode::Refusing),
        gone,
    ];
    let chatty = Skill::sh("chatty", "for n in 1 2 3 4 5 6 7 8 9; do echo line $n >&2; done; echo '{}'");
    let spec = || {
        Spec::new()
            .arg("--health", "127.0.0.1:0")
            .env("OTEL_BLRP_MAX_QUEUE_SIZE", "512")
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")
    };
    let fabrics: Vec<_> = collectors
        .iter()
        .map(|collector| observed(collector, std::slice::from_ref(&chatty), spec()))
        .collect();
    let mut durations = vec![Vec::new(); fabrics.len()];
    let before: Vec<_> = fabrics.iter().map(|(_, node)| resident(node.pid())).collect();
    for _ in 0..ROUNDS {
        for (at, (fabric, _)) in fabrics.iter().enumerate() {
            durations[at].push(timed(fabric));
        }
    }
    let median = |all: &mut Vec<Duration>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    let good = median(&mut durations[0]);
    for at in 1..fabrics.len() {
        let bad = median(&mut durations[at]);
        assert!(bad < good.mul_f64(2.0), "collector {at}: {bad:?} against {good:?}");
        let grown = resident(fabrics[at].1.pid()).saturating_sub(before[at]);
        assert!(grown < 32 * 1024 * 1024, "collector {at}: the node grew by {grown} bytes");
    }
    // What could not be sent is counted, and what could is not.
    for (at, (_, node)) in fabrics.iter().enumerate() {
        let address = health(node);
        let dropped = || figure(&get(&address, "/metrics").1, "weft_telemetry_dropped_total{");
        match at {
            0 => assert_eq!(dropped(), 0.0),
            // Slow, but it takes all.
            1 => {}
            _ => eventually("drops are counted", Duration::from_secs(60), || (dropped() > 0.0).then_some(())),
        }
    }
}
