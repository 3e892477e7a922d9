//! What came, in a form that is easy to compare.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    },
    common::v1::{AnyValue, KeyValue, any_value},
    metrics::v1::{Metric, metric::Data, number_data_point},
    resource::v1::Resource,
    trace::v1::{span::SpanKind, status::StatusCode},
};
use serde_json::Value;

/// Attributes by their names.
pub type Values = BTreeMap<String, Value>;

/// A span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// The span id of its parent; empty when it has none.
    pub parent_id: String,
    /// The state that travels with the trace, as it was exported.
    pub trace_state: String,
    /// What it is called.
    pub name: String,
    /// `SERVER`, `CLIENT` or `INTERNAL`.
    pub kind: &'static str,
    /// When it started.
    pub start: SystemTime,
    /// How long it lasted.
    pub duration: Duration,
    /// What it says.
    pub attributes: Values,
    /// Why it failed, when it did.
    pub error: Option<String>,
    /// Trace and span ids of what it is linked to.
    pub links: Vec<(String, String)>,
    /// What process it comes from.
    pub resource: Values,
}

impl Span {
    /// The name of the service that it comes from.
    pub fn service(&self) -> &str {
        self.resource.get("service.name").and_then(Value::as_str).unwrap_or_default()
    }
}

/// A log record.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// `INFO`, `ERROR` …
    pub severity: String,
    /// The line.
    pub body: String,
    /// What else it says.
    pub attributes: Values,
    /// What process it comes from.
    pub resource: Values,
}

/// One data point of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// What the metric is called.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// What reports it.
    pub scope: String,
    /// Its labels.
    pub attributes: Values,
    /// The value; of a histogram the sum.
    pub value: f64,
    /// How many values a histogram has.
    pub count: u64,
    /// What process it comes from.
    pub resource: Values,
}

pub(super) fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = resource(of_resource.resource);
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let kind = match span.kind() {
                SpanKind::Server => "SERVER",
                SpanKind::Client => "CLIENT",
                SpanKind::Internal => "INTERNAL",
                other => panic!("a span of kind {other:?}"),
            };
            let failed = span.status.filter(|status| status.code() == StatusCode::Error);
            spans.push(Span {
                trace_id: hex(&span.trace_id),
                span_id: hex(&span.span_id),
                parent_id: hex(&span.parent_span_id),
                trace_state: span.trace_state,
                name: span.name,
                kind,
                start: SystemTime::UNIX_EPOCH + Duration::from_nanos(span.start_time_unix_nano),
                duration: Duration::from_nanos(
                    span.end_time_unix_nano.checked_sub(span.start_time_unix_nano).unwrap(),
                ),
                attributes: values(span.attributes),
                error: failed.map(|status| status.message),
                links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
                resource: resource.clone(),
            });
        }
    }
    spans
}

pub(super) fn logs(request: ExportLogsServiceRequest) -> Vec<LogRecord> {
    let mut records = Vec::new();
    for of_resource in request.resource_logs {
        let resource = resource(of_resource.resource);
        for record in of_resource.scope_logs.into_iter().flat_map(|scope| scope.log_records) {
            let body = value(record.body);
            records.push(LogRecord {
                trace_id: hex(&record.trace_id),
                span_id: hex(&record.span_id),
                severity: record.severity_text,
                body: body.as_str().map_or_else(|| body.to_string(), ToOwned::to_owned),
                attributes: values(record.attributes),
                resource: resource.clone(),
            });
        }
    }
    records
}

pub(super) fn points(request: ExportMetricsServiceRequest) -> Vec<Point> {
    let mut points = Vec::new();
    for of_resource in request.resource_metrics {
        let resource = resource(of_resource.resource);
        for of_scope in of_resource.scope_metrics {
            let scope = of_scope.scope.map(|scope| scope.name).unwrap_or_default();
            for metric in of_scope.metrics {
                let (name, unit) = (metric.name.clone(), metric.unit.clone());
                points.extend(samples(metric).into_iter().map(|(attributes, value, count)| Point {
                    name: name.clone(),
                    unit: unit.clone(),
                    scope: scope.clone(),
                    attributes,
                    value,
                    count,
                    resource: resource.clone(),
                }));
            }
        }
    }
    points
}

/// Labels, value and count of each data point.
fn samples(metric: Metric) -> Vec<(Values, f64, u64)> {
    let number = |value| match value {
        Some(number_data_point::Value::AsDouble(number)) => number,
        Some(number_data_point::Value::AsInt(number)) => number as f64,
        None => panic!("a data point without a value"),
    };
    match metric.data {
        Some(Data::Gauge(gauge)) => {
            gauge.data_points.into_iter().map(|p| (values(p.attributes), number(p.value), 1)).collect()
        }
        Some(Data::Sum(sum)) => {
            sum.data_points.into_iter().map(|p| (values(p.attributes), number(p.value), 1)).collect()
        }
        Some(Data::Histogram(histogram)) => histogram
            .data_points
            .into_iter()
            .map(|p| (values(p.attributes), p.sum.unwrap_or_default(), p.count))
            .collect(),
        other => panic!("a metric of another kind: {other:?}"),
    }
}

fn resource(resource: Option<Resource>) -> Values {
    values(resource.unwrap_or_default().attributes)
}

fn values(attributes: Vec<KeyValue>) -> Values {
    attributes.into_iter().map(|pair| (pair.key, value(pair.value))).collect()
}

fn value(any: Option<AnyValue>) -> Value {
    match any.and_then(|any| any.value) {
        Some(any_value::Value::StringValue(text)) => text.into(),
        Some(any_value::Value::BoolValue(flag)) => flag.into(),
        Some(any_value::Value::IntValue(number)) => number.into(),
        Some(any_value::Value::DoubleValue(number)) => number.into(),
        None => Value::Null,
        other => panic!("a value of another kind: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
