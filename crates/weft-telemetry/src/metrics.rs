//! Figures about the process: once to a collector when asked for, and always as text for `/metrics`.
//!
//! No id is ever a label. The label `skill` takes a bounded number of values; all later ones are `other`.
//!
//! Neither this version of the SDK nor its Prometheus exporter collects exemplars, so a histogram does not point to
//! traces.

mod process;
mod skills;

use std::{
    sync::{Once, OnceLock},
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, Meter, MeterProvider as _, UpDownCounter},
};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::{
    Resource,
    metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream},
};
use prometheus::{Registry, TextEncoder};
use weft_core::{ids::SkillKey, outcome::Outcome, skill::Class};

use crate::{
    losses::{self, Told},
    metrics::skills::Skills,
};

/// Upper bounds of the buckets of how long an invocation takes, in seconds: from a shell's start to an hour.
const DURATIONS: [f64; 16] =
    [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0];

/// Most combinations of labels that one instrument keeps apart; the SDK puts all others together.
const COMBINATIONS: usize = 10_000;

/// What all components of a process share.
struct Shared {
    provider: SdkMeterProvider,
    registry: Registry,
    skills: Skills,
    /// Figures of the process itself, and of telemetry, once there is a component: a command that ends in a moment
    /// has none to tell, and each would be a new process to whoever collects them.
    own: Once,
}

static SHARED: OnceLock<Shared> = OnceLock::new();
static RESOURCE: OnceLock<Resource> = OnceLock::new();

impl Shared {
    fn build(reader: Option<PeriodicReader<Told<MetricExporter>>>) -> Self {
        let registry = Registry::new();
        let text = opentelemetry_prometheus::exporter().with_registry(registry.clone()).build();
        let mut provider = SdkMeterProvider::builder()
            .with_resource(RESOURCE.get().cloned().unwrap_or_else(|| Resource::builder_empty().build()))
            .with_reader(text.expect("the registry is new, so nothing in it is in the way"))
            .with_view(|instrument: &Instrument| {
                let per_skill = instrument.name().starts_with("weft.invocation.");
                per_skill
                    .then(|| Stream::builder().with_cardinality_limit(COMBINATIONS).build().ok())
                    .flatten()
            });
        if let Some(reader) = reader {
            provider = provider.with_reader(reader);
        }
        Self { provider: provider.build(), registry, skills: Skills::default(), own: Once::new() }
    }

    fn register_own(&self) {
        let meter = self.provider.meter("weft-telemetry");
        process::register(&meter);
        meter
            .u64_observable_counter("weft.telemetry.dropped")
            .with_description("Spans and log records that did not fit in their queue or could not be sent.")
            .with_callback(|observer| {
                for (signal, count) in losses::lost() {
                    observer.observe(count, &[KeyValue::new("signal", signal.as_str())]);
                }
            })
            .build();
    }
}

/// Built when it is first needed.
fn shared() -> &'static Shared {
    SHARED.get_or_init(|| Shared::build(None))
}

/// Says what process the figures come from.
pub(crate) fn describe(resource: Resource) {
    let _ = RESOURCE.set(resource);
}

/// From now on figures go where this reader sends them, too.
pub(crate) fn install(reader: PeriodicReader<Told<MetricExporter>>) -> &'static SdkMeterProvider {
    &SHARED.get_or_init(|| Shared::build(Some(reader))).provider
}

/// All figures of the process in Prometheus' text format, version 0.0.4. Takes its time when there are many: not for
/// a thread that must not block.
pub fn render() -> String {
    let families = shared().registry.gather();
    TextEncoder::new().encode_to_string(&families).unwrap_or_else(|error| {
        tracing::error!(%error, "metrics cannot be written");
        String::new()
    })
}

/// The instruments of one component. Cheap to clone; live whether or not anybody reads them.
#[derive(Debug, Clone)]
pub struct Metrics {
    duration: Histogram<f64>,
    queue_duration: Histogram<f64>,
    active: UpDownCounter<i64>,
    nodes: UpDownCounter<i64>,
    skills: Gauge<u64>,
    denied: Counter<u64>,
    stderr_dropped: Counter<u64>,
}

impl Metrics {
    /// The instruments of the component with this name (`weft-coordinator`, `weft-node`), which tells its figures from
    /// those of another one in the same process by the label `otel_scope_name`.
    pub fn of(component: &'static str) -> Self {
        let shared = shared();
        shared.own.call_once(|| shared.register_own());
        Self::on(&shared.provider.meter(component))
    }

    fn on(meter: &Meter) -> Self {
        let seconds = |name, description| {
            meter
                .f64_histogram(name)
                .with_unit("s")
                .with_description(description)
                .with_boundaries(DURATIONS.to_vec())
                .build()
        };
        let level = |name, unit, description| {
            meter.i64_up_down_counter(name).with_unit(unit).with_description(description).build()
        };
        let total = |name, unit, description| {
            meter.u64_counter(name).with_unit(unit).with_description(description).build()
        };
        Self {
            duration: seconds("weft.invocation.duration", "How long invocations took, until their outcome."),
            queue_duration: seconds(
                "weft.invocation.queue.duration",
                "How long invocations waited for a place to run.",
            ),
            active: level("weft.invocation.active", "{invocation}", "Invocations without an outcome yet."),
            nodes: level("weft.node.connected", "{node}", "Nodes with an open session."),
            skills: meter
                .u64_gauge("weft.catalog.skills")
                .with_unit("{skill}")
                .with_description("Skills of the merged catalog.")
                .build(),
            denied: total("weft.policy.denied", "{invocation}", "Invocations that the policy denied."),
            stderr_dropped: total("weft.stderr.dropped", "By", "Bytes of stderr that found no room."),
        }
    }

    /// Counts an invocation as active until what is returned is dropped.
    pub fn invocation_active(&self, skill: &SkillKey, class: Class) -> Active {
        Active::new(&self.active, of_skill(skill, class).to_vec())
    }

    /// Records how long an invocation waited for a place to run.
    pub fn invocation_queued(&self, skill: &SkillKey, class: Class, waited: Duration) {
        self.queue_duration.record(waited.as_secs_f64(), &of_skill(skill, class));
    }

    /// Records how an invocation ended, and how long it took.
    pub fn invocation_ended(&self, skill: &SkillKey, class: Class, outcome: Outcome, took: Duration) {
        let [skill, class] = of_skill(skill, class);
        let labels = [skill, class, KeyValue::new("outcome", outcome.as_str())];
        self.duration.record(took.as_secs_f64(), &labels);
    }

    /// Counts a node as connected until what is returned is dropped.
    pub fn node_connected(&self) -> Active {
        Active::new(&self.nodes, Vec::new())
    }

    /// Says how many skills of the catalog are in a state; one of few words.
    pub fn catalog_skills(&self, state: &'static str, count: u64) {
        self.skills.record(count, &[KeyValue::new("state", state)]);
    }

    /// Counts an invocation that the policy denied.
    pub fn policy_denied(&self, class: Class) {
        self.denied.add(1, &[KeyValue::new("class", class.as_str())]);
    }

    /// Counts bytes of stderr that found no room.
    pub fn stderr_dropped(&self, bytes: u64) {
        self.stderr_dropped.add(bytes, &[]);
    }
}

/// The labels that every figure about a skill has.
fn of_skill(skill: &SkillKey, class: Class) -> [KeyValue; 2] {
    [KeyValue::new("skill", shared().skills.label(skill)), KeyValue::new("class", class.as_str())]
}

/// One of what an instrument counts, for as long as this lives.
#[derive(Debug)]
#[must_use = "it is counted until this is dropped"]
pub struct Active {
    counter: UpDownCounter<i64>,
    labels: Vec<KeyValue>,
}

impl Active {
    fn new(counter: &UpDownCounter<i64>, labels: Vec<KeyValue>) -> Self {
        counter.add(1, &labels);
        Self { counter: counter.clone(), labels }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.counter.add(-1, &self.labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SkillKey {
        SkillKey::normalise(name).unwrap()
    }

    /// The value of the sample that begins like this.
    fn sample(text: &str, beginning: &str) -> f64 {
        let line = text.lines().find(|line| line.starts_with(beginning));
        let line = line.unwrap_or_else(|| panic!("no {beginning} in\n{text}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    #[test]
    fn the_text_has_what_a_scraper_expects() {
        let metrics = Metrics::of("weft-node");
        let disk = key("disk_usage");
        let active = metrics.invocation_active(&disk, Class::Safe);
        metrics.invocation_queued(&disk, Class::Safe, Duration::from_millis(3));
        metrics.invocation_ended(&disk, Class::Safe, Outcome::Succeeded, Duration::from_millis(30));
        metrics.policy_denied(Class::Dangerous);
        metrics.stderr_dropped(4096);
        metrics.catalog_skills("ready", 7);
        let node = metrics.node_connected();

        let text = render();
        let scope = r#"otel_scope_name="weft-node""#;
        let of_disk = r#"{class="safe""#;
        assert_eq!(sample(&text, &format!("weft_invocation_active{of_disk}")), 1.0);
        assert_eq!(sample(&text, "weft_node_connected{"), 1.0);
        assert_eq!(sample(&text, "weft_catalog_skills{"), 7.0);
        assert_eq!(sample(&text, r#"weft_policy_denied_total{class="dangerous""#), 1.0);
        assert_eq!(sample(&text, "weft_stderr_dropped_bytes_total{"), 4096.0);
        assert_eq!(sample(&text, "weft_invocation_queue_duration_seconds_count{"), 1.0);
        assert_eq!(sample(&text, "weft_invocation_duration_seconds_sum{"), 0.03);
        let ended = format!(
            r#"weft_invocation_duration_seconds_bucket{{class="safe",outcome="SUCCEEDED",skill="disk_usage",{scope},le="0.05"}} 1"#
        );
        assert!(text.contains(&ended), "no {ended} in\n{text}");
        assert!(sample(&text, r#"weft_telemetry_dropped_total{"#) >= 0.0);
        assert!(sample(&text, "process_memory_usage_bytes{") > 1e6);
        for line in [
            "# HELP weft_invocation_duration_seconds How long invocations took",
            "# TYPE weft_invocation_duration_seconds histogram",
            "# TYPE weft_invocation_active gauge",
            "# TYPE weft_policy_denied_total counter",
            "# TYPE process_cpu_time_seconds_total counter",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }

        drop((active, node));
        let text = render();
        assert_eq!(sample(&text, &format!("weft_invocation_active{of_disk}")), 0.0);
        assert_eq!(sample(&text, "weft_node_connected{"), 0.0);
    }

    #[test]
    fn two_components_of_one_process_are_told_apart() {
        let (coordinator, node) = (Metrics::of("weft-coordinator"), Metrics::of("weft-node"));
        coordinator.policy_denied(Class::Mutating);
        node.policy_denied(Class::Mutating);
        let text = render();
        let denied =
            |scope| format!(r#"weft_policy_denied_total{{class="mutating",otel_scope_name="{scope}"}}"#);
        assert_eq!(sample(&text, &denied("weft-coordinator")), 1.0);
        assert_eq!(sample(&text, &denied("weft-node")), 1.0);
        assert_eq!(text.matches("# TYPE weft_policy_denied_total counter").count(), 1);
    }

    #[test]
    fn a_flood_of_skills_costs_a_bounded_number_of_series() {
        let metrics = Metrics::of("weft-node");
        for number in 0..5000 {
            metrics.invocation_queued(&key(&format!("skill_{number}")), Class::Safe, Duration::ZERO);
        }
        let text = render();
        let series =
            text.lines().filter(|line| line.starts_with("weft_invocation_queue_duration_seconds_count"));
        assert_eq!(series.count(), 2001);
        let other =
            text.lines().find(|line| line.contains(r#"_count{"#) && line.contains(r#"skill="other""#));
        assert!(other.unwrap().ends_with(" 3000"), "{other:?}");
    }
}
