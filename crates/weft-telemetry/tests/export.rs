//! What arrives at a collector, and what happens when it misbehaves. Telemetry is started once a process, and nextest
//! runs each test in a process of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use serde_json::json;
use weft_core::{
    fields,
    ids::{InvocationId, SkillKey},
    outcome::Outcome,
    skill::Class,
    trace::TraceContext,
};
use weft_telemetry::{Kind, Metrics, Process, Span, Stderr, Telemetry, init, metrics};
use weft_testkit::{
    Collector,
    collector::{self, Mode},
    eventually,
};

const SOON: Duration = Duration::from_secs(20);

fn start(variables: &[(&'static str, String)]) -> Telemetry {
    let process = Process { name: "weft-node", version: "1.2.3", instance: "this one".into() };
    let lookup =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    init::start_with(&process, "info", &lookup).unwrap()
}

fn start_with(collector: &Collector, more: &[(&'static str, &str)]) -> Telemetry {
    let mut variables: Vec<_> = more.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    variables.extend(collector.environment());
    start(&variables)
}

fn caller(flags: &str) -> TraceContext {
    let traceparent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
    TraceContext::parse(&traceparent, "vendor=1, other = x").unwrap()
}

fn invocation() -> InvocationId {
    InvocationId::generate()
}

/// The value of the sample of `/metrics` that begins like this.
fn sample(beginning: &str) -> f64 {
    let _ = Metrics::of("weft-node");
    let text = metrics::render();
    let line = text.lines().find(|line| line.starts_with(beginning));
    let line = line.unwrap_or_else(|| panic!("no {beginning} in\n{text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn lost(signal: &str) -> f64 {
    sample(&format!(r#"weft_telemetry_dropped_total{{signal="{signal}","#))
}

#[test]
fn a_trace_made_by_hand_from_messages_is_one_tree() {
    let collector = Collector::start();
    let telemetry = start_with(&collector, &[("OTEL_RESOURCE_ATTRIBUTES", "team=a%20b")]);
    let caller = caller("01");
    let began = SystemTime::now() - Duration::from_secs(5);

    let invoke = Span::builder("weft.v1.InvocationService/Invoke", Kind::Server, Some(&caller))
        .attribute(fields::RPC_SYSTEM_NAME, "grpc")
        .start();
    let dispatch = Span::builder("weft.dispatch", Kind::Internal, invoke.context())
        .started_at(began)
        .attribute(fields::ATTEMPT, 2_u32)
        .link(&self::caller("00"))
        .start();
    let mut run =
        Span::start(format_args!("execute_tool {}", "disk_usage"), Kind::Client, dispatch.context());
    run.set(fields::PROCESS_EXIT_CODE, 3);
    run.set(fields::OUTCOME, format_args!("{}", Outcome::Failed));
    run.fail("exit", "exit code 3");
    let sent_on = run.context().unwrap().clone();
    run.end();
    drop((dispatch, invoke));

    let spans = collector.trace(caller.trace_id(), 3, SOON);
    collector::assert_tree(&spans, Some(&caller));
    let by_name = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (invoke, dispatch, run) = (
        by_name("weft.v1.InvocationService/Invoke"),
        by_name("weft.dispatch"),
        by_name("execute_tool disk_usage"),
    );
    assert_eq!((invoke.kind, dispatch.kind, run.kind), ("SERVER", "INTERNAL", "CLIENT"));
    assert_eq!((&*run.parent_id, &*dispatch.parent_id), (&*dispatch.span_id, &*invoke.span_id));
    assert_eq!(run.attributes[fields::PROCESS_EXIT_CODE], json!(3));
    assert_eq!(run.attributes[fields::OUTCOME], json!("FAILED"));
    assert_eq!(run.attributes[fields::ERROR_TYPE], json!("exit"));
    assert_eq!(run.error.as_deref(), Some("exit code 3"));
    assert!(dispatch.duration >= Duration::from_secs(5) && dispatch.start == began);
    assert_eq!(dispatch.links, [(caller.trace_id().to_owned(), caller.span_id().to_owned())]);
    assert_eq!(dispatch.error, None);
    // What goes on is the state as it came; what is exported is the SDK's reading of it.
    assert_eq!(sent_on.tracestate(), "vendor=1, other = x");
    assert_eq!((sent_on.trace_id(), sent_on.span_id()), (caller.trace_id(), &*run.span_id));
    assert!(sent_on.is_sampled());
    for (name, value) in [
        ("service.name", "weft-node"),
        ("service.version", "1.2.3"),
        ("service.instance.id", "this one"),
        ("team", "a b"),
    ] {
        assert_eq!(run.resource[name], json!(value));
    }
    assert_eq!(lost("traces"), 0.0);
    telemetry.shutdown(SOON);
    assert_eq!(collector.spans().len(), 3);
}

#[test]
fn the_state_of_a_trace_is_exported_with_it() {
    let collector = Collector::start();
    let telemetry = start_with(&collector, &[]);
    let parent = caller("03").with_tracestate("vendor=1,b=2");
    let span = Span::start("a", Kind::Internal, Some(&parent));
    assert_eq!(span.context().unwrap().flags(), 3);
    span.end();
    telemetry.shutdown(SOON);
    assert_eq!(collector.spans()[0].trace_state, "vendor=1,b=2");
}

#[test]
fn a_trace_that_is_not_sampled_stays_so_and_costs_nothing() {
    let collector = Collector::start();
    let telemetry = start_with(&collector, &[]);
    let caller = caller("00");
    let mut span = Span::start("a", Kind::Server, Some(&caller));
    span.set(fields::ATTEMPT, 1);
    span.fail("never", "seen");
    let context = span.context().unwrap();
    assert_eq!((context.trace_id(), context.flags()), (caller.trace_id(), 0));
    assert_eq!(context.tracestate(), caller.tracestate());
    let child = Span::start("b", Kind::Internal, span.context());
    assert!(!child.context().unwrap().is_sampled());
    let mut stderr = Stderr::new(child.context(), invocation(), &SkillKey::normalise("a").unwrap());
    stderr.push(b"a line\n");
    drop((stderr, child, span));
    // A new trace is sampled, and shows that everything before it has gone through.
    let root = Span::start("root", Kind::Internal, None);
    let trace_id = root.context().unwrap().trace_id().to_owned();
    root.end();
    telemetry.shutdown(SOON);
    let spans = collector.trace(&trace_id, 1, SOON);
    collector::assert_tree(&spans, None);
    assert_eq!((collector.spans().len(), collector.logs().len()), (1, 0));
}

#[test]
fn a_sampler_that_samples_nothing_says_so_to_whoever_follows() {
    let collector = Collector::start();
    let telemetry = start_with(&collector, &[("OTEL_TRACES_SAMPLER", "always_off")]);
    let root = Span::start("root", Kind::Internal, None);
    assert_eq!(root.context().unwrap().flags(), 0);
    assert_eq!(Span::start("child", Kind::Client, root.context()).context().unwrap().flags(), 0);
    drop(root);
    telemetry.shutdown(SOON);
    assert!(collector.spans().is_empty());
}

#[test]
fn without_telemetry_the_context_goes_through_unchanged() {
    let telemetry = start(&[]);
    for flags in ["00", "01", "ff"] {
        let caller = caller(flags);
        let mut span =
            Span::builder("a", Kind::Server, Some(&caller)).attribute("k", 1).link(&caller).start();
        span.set("k", "v");
        span.fail("a", "b");
        assert_eq!(span.context(), Some(&caller));
        assert_eq!(Span::start("b", Kind::Client, span.context()).context(), Some(&caller));
        Stderr::new(span.context(), invocation(), &SkillKey::normalise("a").unwrap()).push(b"x\n");
    }
    assert_eq!(Span::start("root", Kind::Server, None).context(), None);
    telemetry.shutdown(Duration::ZERO);
}

#[test]
fn after_the_end_the_context_goes_through_unchanged() {
    let collector = Collector::start();
    let caller = caller("01");
    let early;
    {
        let _telemetry = start_with(&collector, &[]);
        early = Span::start("early", Kind::Server, Some(&caller));
        Span::start("sent", Kind::Server, Some(&caller)).end();
        // Dropped without a word.
    }
    assert_eq!(Span::start("late", Kind::Server, Some(&caller)).context(), Some(&caller));
    assert_eq!(Span::start("late", Kind::Server, None).context(), None);
    drop(early);
    let names: Vec<_> = collector.spans().into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["sent"]);
}

#[test]
fn lines_of_stderr_are_log_records_of_their_trace() {
    let collector = Collector::start();
    let telemetry = start_with(&collector, &[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")]);
    let span = Span::start("process", Kind::Client, None);
    let (invocation, skill) = (invocation(), SkillKey::normalise("disk_usage").unwrap());
    let mut stderr = Stderr::new(span.context(), invocation, &skill);
    stderr.push(b"plain\n{\"level\":\"er");
    stderr.push(b"ror\",\"msg\":\"x\"}\nno text: \xff\n");
    stderr.push(&[b'x'; 10_000]);
    drop(stderr);
    let context = span.context().unwrap().clone();
    drop(span);
    telemetry.shutdown(SOON);

    let logs = collector.logs();
    let seen: Vec<_> = logs.iter().map(|log| (&*log.severity, &*log.body)).collect();
    let long = "x".repeat(8192);
    let expected = [
        ("INFO", "plain"),
        ("ERROR", r#"{"level":"error","msg":"x"}"#),
        ("INFO", "no text: \u{fffd}"),
        ("INFO", &*long),
    ];
    assert_eq!(seen, expected);
    for (log, number) in logs.iter().zip(1..) {
        assert_eq!((&*log.trace_id, &*log.span_id), (context.trace_id(), context.span_id()));
        assert_eq!(log.attributes[fields::LOG_IOSTREAM], json!("stderr"));
        assert_eq!(log.attributes[fields::INVOCATION_ID], json!(invocation.to_string()));
        assert_eq!(log.attributes[fields::SKILL_KEY], json!("disk_usage"));
        assert_eq!(log.attributes[fields::STDERR_LINE], json!(number));
        assert_eq!(log.resource["service.name"], json!("weft-node"));
    }
    assert_eq!(logs[3].attributes[fields::STDERR_CUT], json!(10_000 - 8192));
}

#[test]
fn figures_go_to_the_collector_as_well() {
    let collector = Collector::start();
    let telemetry = start_with(&collector, &[]);
    let (metrics, skill) = (Metrics::of("weft-node"), SkillKey::normalise("disk_usage").unwrap());
    metrics.invocation_ended(&skill, Class::Safe, Outcome::TimedOut, Duration::from_millis(1500));
    let point = eventually("the duration at the collector", SOON, || {
        collector.metrics().into_iter().find(|point| point.name == "weft.invocation.duration")
    });
    assert_eq!((&*point.unit, &*point.scope, point.value, point.count), ("s", "weft-node", 1.5, 1));
    assert_eq!(
        json!(point.attributes),
        json!({"skill": "disk_usage", "class": "safe", "outcome": "TIMED_OUT"})
    );
    assert_eq!(point.resource["service.version"], json!("1.2.3"));
    let beginning = r#"weft_invocation_duration_seconds_sum{class="safe""#;
    assert_eq!(sample(beginning), 1.5);
    telemetry.shutdown(SOON);
}

#[test]
fn a_command_that_measures_nothing_sends_no_figures() {
    let collector = Collector::start();
    let telemetry = start_with(&collector, &[("OTEL_TRACES_EXPORTER", "none")]);
    telemetry.shutdown(SOON);
    assert_eq!((collector.requests(), collector.metrics().len()), (0, 0));
}

#[test]
fn it_can_start_and_end_inside_any_runtime() {
    let collector = Collector::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let telemetry = start_with(&collector, &[]);
        Span::start("inside", Kind::Internal, None).end();
        telemetry.shutdown(SOON);
    });
    assert_eq!(collector.spans().len(), 1);
}

/// Resident memory, in bytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_collector_that_says_nothing_costs_neither_time_nor_memory() {
    const SPANS: u32 = 1_000_000;
    let collector = Collector::behaving(Mode::BlackHole);
    let telemetry = start_with(&collector, &[]);
    let caller = caller("01");
    let (before, began) = (memory(), Instant::now());
    for number in 0..SPANS {
        let span = Span::builder("a", Kind::Internal, Some(&caller)).attribute("number", number).start();
        span.end();
    }
    let (took, grown) = (began.elapsed(), memory().saturating_sub(before));
    eprintln!("{:?} a span, {} KiB more", took / SPANS, grown / 1024);
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(grown < 32 * 1024 * 1024, "{grown} bytes more");
    // All but what is in the queue and on the way.
    assert!(lost("traces") >= f64::from(SPANS - 2048 - 512), "{}", lost("traces"));

    let skill = SkillKey::normalise("a").unwrap();
    let mut stderr = Stderr::new(Some(&caller), invocation(), &skill);
    for _ in 0..100_000 {
        stderr.push(b"a line\n");
    }
    assert!(lost("logs") >= f64::from(100_000 - 2048 - 512), "{}", lost("logs"));

    let began = Instant::now();
    telemetry.shutdown(Duration::from_millis(300));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    Span::start("late", Kind::Internal, Some(&caller)).end();
}

#[test]
fn what_a_collector_refuses_is_counted_and_does_not_hold_up_the_end() {
    let collector = Collector::behaving(Mode::Refusing);
    let telemetry = start_with(&collector, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "300")]);
    for _ in 0..10 {
        Span::start("a", Kind::Internal, None).end();
    }
    eventually("the spans to be counted as lost", SOON, || (lost("traces") == 10.0).then_some(()));
    assert!(collector.requests() > 0);
    let began = Instant::now();
    telemetry.shutdown(SOON);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_collector_that_is_gone_is_lived_without_and_found_again() {
    let mut collector = Collector::start();
    let telemetry = start_with(&collector, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "500")]);
    Span::start("before", Kind::Internal, None).end();
    eventually("the first span", SOON, || (collector.spans().len() == 1).then_some(()));
    collector.stop();
    Span::start("lost", Kind::Internal, None).end();
    eventually("the loss", SOON, || (lost("traces") == 1.0).then_some(()));
    let collector = collector.again();
    let found = || {
        Span::start("after", Kind::Internal, None).end();
        collector.spans().iter().any(|span| span.name == "after").then_some(())
    };
    eventually("a span at the second collector", SOON, found);
    telemetry.shutdown(SOON);
}

#[test]
fn a_connection_that_says_nothing_is_given_up_for_a_new_one() {
    let collector = Collector::behaving(Mode::BlackHole);
    let more = [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "200"),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "none"),
    ];
    let telemetry = start_with(&collector, &more);
    eventually("another connection", SOON, || {
        Span::start("a", Kind::Internal, None).end();
        (collector.requests() > 1).then_some(())
    });
    telemetry.shutdown(Duration::from_millis(100));
}

#[test]
fn a_slow_collector_is_waited_for_at_the_end_but_never_before() {
    let collector = Collector::behaving(Mode::Slow(Duration::from_millis(700)));
    let telemetry = start_with(&collector, &[("OTEL_METRICS_EXPORTER", "none")]);
    let began = Instant::now();
    for _ in 0..1000 {
        Span::start("a", Kind::Internal, None).end();
    }
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
    telemetry.shutdown(SOON);
    assert_eq!(collector.spans().len(), 1000);
}
