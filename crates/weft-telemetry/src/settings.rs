//! What the standard `OTEL_*` variables ask for.
//!
//! As the specification wants it, a number or a word that is not understood is ignored with a warning. What would
//! send telemetry to the wrong place, or in the wrong hands, is an error.

use std::{fmt, str::FromStr, time::Duration};

use opentelemetry_sdk::trace::Sampler;
use tonic::{
    metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap},
    transport::Uri,
};

/// Reads one environment variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Most that may wait in a queue, whatever a variable says.
const MAX_QUEUE: u64 = 1_000_000;

/// A variable that makes a start impossible.
#[derive(Debug, thiserror::Error)]
#[error("{variable}: {reason}")]
pub struct Malformed {
    variable: String,
    reason: String,
}

/// One of the three things that telemetry consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    /// The word for it in metrics and logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }

    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and its like.
    fn variable(self, name: &str) -> String {
        format!("OTEL_EXPORTER_OTLP_{}_{name}", self.as_str().to_ascii_uppercase())
    }
}

/// Where a signal goes.
#[derive(Debug, Clone)]
pub(crate) struct Export {
    pub(crate) endpoint: Uri,
    pub(crate) headers: MetadataMap,
    pub(crate) timeout: Duration,
    pub(crate) gzip: bool,
}

/// How much waits how long for being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batching {
    pub(crate) queue: usize,
    pub(crate) batch: usize,
    pub(crate) delay: Duration,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) traces: Option<Export>,
    pub(crate) metrics: Option<Export>,
    pub(crate) logs: Option<Export>,
    pub(crate) sampler: Sampler,
    pub(crate) span_batching: Batching,
    pub(crate) log_batching: Batching,
    pub(crate) metric_interval: Duration,
    /// `OTEL_RESOURCE_ATTRIBUTES`, and `OTEL_SERVICE_NAME`, which wins, at the end.
    pub(crate) attributes: Vec<(String, String)>,
    /// What was ignored, for the log.
    pub(crate) warnings: Vec<String>,
}

impl Settings {
    /// Reads the variables.
    pub(crate) fn read(lookup: Lookup<'_>) -> Result<Self, Malformed> {
        let mut reader = Reader { lookup, warnings: Vec::new() };
        let disabled = reader.flag("OTEL_SDK_DISABLED");
        let mut export = |signal| match disabled {
            true => Ok(None),
            false => reader.export(signal),
        };
        let (traces, metrics, logs) =
            (export(Signal::Traces)?, export(Signal::Metrics)?, export(Signal::Logs)?);
        Ok(Self {
            traces,
            metrics,
            logs,
            sampler: reader.sampler(),
            span_batching: reader.batching("BSP", Duration::from_secs(5)),
            log_batching: reader.batching("BLRP", Duration::from_secs(1)),
            metric_interval: reader.milliseconds("OTEL_METRIC_EXPORT_INTERVAL", Duration::from_secs(60)),
            attributes: reader.attributes(),
            warnings: reader.warnings,
        })
    }

    /// Whether anything leaves the process.
    pub(crate) fn any(&self) -> bool {
        self.traces.is_some() || self.metrics.is_some() || self.logs.is_some()
    }
}

struct Reader<'a> {
    lookup: Lookup<'a>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    /// A variable that is set and not empty.
    fn value(&self, name: &str) -> Option<String> {
        (self.lookup)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The signal's own variable, or the one for all signals; with its name.
    fn own_or_common(&self, signal: Signal, name: &str) -> Option<(String, String)> {
        [signal.variable(name), format!("OTEL_EXPORTER_OTLP_{name}")]
            .into_iter()
            .find_map(|variable| self.value(&variable).map(|value| (variable, value)))
    }

    fn ignore(&mut self, variable: &str, reason: impl fmt::Display) {
        let warning = format!("{variable} is ignored: {reason}");
        // A variable for all signals is read once for each.
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn flag(&mut self, variable: &str) -> bool {
        match self.value(variable).map(|value| value.to_ascii_lowercase()).as_deref() {
            Some("true") => true,
            None | Some("false") => false,
            Some(_) => {
                self.ignore(variable, "it is neither true nor false");
                false
            }
        }
    }

    fn number<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        variable: &str,
        default: T,
        least: T,
        most: T,
    ) -> T {
        match self.value(variable).map(|value| value.parse::<T>()) {
            None => default,
            Some(Ok(number)) if number >= least && number <= most => number,
            Some(_) => {
                self.ignore(variable, format_args!("it is no number from {least} to {most}"));
                default
            }
        }
    }

    fn milliseconds(&mut self, variable: &str, default: Duration) -> Duration {
        // A day.
        let most = 86_400_000;
        Duration::from_millis(self.number(variable, default.as_millis() as u64, 1, most))
    }

    fn batching(&mut self, prefix: &str, delay: Duration) -> Batching {
        let delay = self.milliseconds(&format!("OTEL_{prefix}_SCHEDULE_DELAY"), delay);
        let queue = self.number(&format!("OTEL_{prefix}_MAX_QUEUE_SIZE"), 2048, 1, MAX_QUEUE);
        let batch = self.number(&format!("OTEL_{prefix}_MAX_EXPORT_BATCH_SIZE"), queue.min(512), 1, queue);
        Batching { queue: queue as usize, batch: batch as usize, delay }
    }

    fn sampler(&mut self) -> Sampler {
        let parent_based = |root| Sampler::ParentBased(Box::new(root));
        let default = || parent_based(Sampler::AlwaysOn);
        let variable = "OTEL_TRACES_SAMPLER";
        let ratio = |reader: &mut Self| {
            Sampler::TraceIdRatioBased(reader.number("OTEL_TRACES_SAMPLER_ARG", 1.0, 0.0, 1.0))
        };
        match self.value(variable).map(|value| value.to_ascii_lowercase()).as_deref() {
            None | Some("parentbased_always_on") => default(),
            Some("always_on") => Sampler::AlwaysOn,
            Some("always_off") => Sampler::AlwaysOff,
            Some("traceidratio") => ratio(self),
            Some("parentbased_always_off") => parent_based(Sampler::AlwaysOff),
            Some("parentbased_traceidratio") => parent_based(ratio(self)),
            Some(_) => {
                self.ignore(variable, "weft knows no such sampler");
                default()
            }
        }
    }

    /// Where a signal goes, when it is asked for and weft can send it there.
    fn export(&mut self, signal: Signal) -> Result<Option<Export>, Malformed> {
        let endpoint = self.own_or_common(signal, "ENDPOINT");
        if !self.wanted(signal, endpoint.is_some()) {
            return Ok(None);
        }
        if let Some((variable, _)) = self
            .own_or_common(signal, "PROTOCOL")
            .filter(|(_, protocol)| !protocol.eq_ignore_ascii_case("grpc"))
        {
            self.warnings.push(format!("{variable}: weft sends gRPC only; no {} are sent", signal.as_str()));
            return Ok(None);
        }
        let Some(endpoint) = self.endpoint(signal, endpoint)? else { return Ok(None) };
        let headers = match self.own_or_common(signal, "HEADERS") {
            Some((variable, list)) => headers(&list).map_err(|reason| Malformed { variable, reason })?,
            None => MetadataMap::new(),
        };
        Ok(Some(Export { endpoint, headers, timeout: self.timeout(signal), gzip: self.gzip(signal) }))
    }

    /// Whether `OTEL_TRACES_EXPORTER` or the presence of an endpoint asks for the signal.
    fn wanted(&mut self, signal: Signal, has_endpoint: bool) -> bool {
        let variable = format!("OTEL_{}_EXPORTER", signal.as_str().to_ascii_uppercase());
        let Some(list) = self.value(&variable) else { return has_endpoint };
        let mut wanted = false;
        for exporter in list.split(',').map(str::trim) {
            match exporter.to_ascii_lowercase().as_str() {
                "otlp" => wanted = true,
                "none" => {}
                // `/metrics` needs no variable.
                "prometheus" if signal == Signal::Metrics => {}
                _ => self.ignore(&variable, format_args!("weft has no exporter {exporter:?}")),
            }
        }
        wanted
    }

    fn endpoint(
        &mut self,
        signal: Signal,
        found: Option<(String, String)>,
    ) -> Result<Option<Uri>, Malformed> {
        let Some((variable, text)) = found else {
            return Ok(Some(Uri::from_static("http://localhost:4317")));
        };
        let insecure = self
            .own_or_common(signal, "INSECURE")
            .is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
        let full = match text.contains("://") {
            true => text,
            false if insecure => format!("http://{text}"),
            false => format!("https://{text}"),
        };
        let uri: Uri = match full.parse() {
            Ok(uri) => uri,
            Err(error) => return Err(Malformed { variable, reason: format!("not a URL: {error}") }),
        };
        match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(host)) if !host.is_empty() => Ok(Some(uri)),
            (Some("https"), Some(host)) if !host.is_empty() => {
                self.warnings.push(format!(
                    "{variable} asks for TLS, which weft does not speak to a collector; no {} are sent. Name a \
                     collector with http://",
                    signal.as_str()
                ));
                Ok(None)
            }
            _ => Err(Malformed { variable, reason: "not a URL of the form http://HOST:PORT".into() }),
        }
    }

    fn timeout(&mut self, signal: Signal) -> Duration {
        let variable = self
            .own_or_common(signal, "TIMEOUT")
            .map_or("OTEL_EXPORTER_OTLP_TIMEOUT".into(), |(variable, _)| variable);
        self.milliseconds(&variable, Duration::from_secs(10))
    }

    fn gzip(&mut self, signal: Signal) -> bool {
        let Some((variable, word)) = self.own_or_common(signal, "COMPRESSION") else { return false };
        match word.to_ascii_lowercase().as_str() {
            "gzip" => true,
            "none" => false,
            _ => {
                self.ignore(&variable, "it is neither gzip nor none");
                false
            }
        }
    }

    fn attributes(&mut self) -> Vec<(String, String)> {
        let variable = "OTEL_RESOURCE_ATTRIBUTES";
        let list = self.value(variable).unwrap_or_default();
        let mut attributes = match pairs(&list) {
            Ok(attributes) => attributes,
            Err(reason) => {
                self.ignore(variable, reason);
                Vec::new()
            }
        };
        if let Some(name) = self.value("OTEL_SERVICE_NAME") {
            attributes.push(("service.name".into(), name));
        }
        attributes
    }
}

/// The members of `a=1,b=2`, percent-decoded. The error does not repeat values: they may be secrets.
fn pairs(list: &str) -> Result<Vec<(String, String)>, String> {
    list.split(',')
        .map(str::trim)
        .enumerate()
        .filter(|(_, member)| !member.is_empty())
        .map(|(index, member)| {
            let pair = member.split_once('=').and_then(|(name, value)| {
                let name = name.trim();
                Some((name.to_owned(), percent_decoded(value.trim())?)).filter(|_| !name.is_empty())
            });
            pair.ok_or_else(|| format!("member {} is not of the form NAME=VALUE", index + 1))
        })
        .collect()
}

fn headers(list: &str) -> Result<MetadataMap, String> {
    let mut headers = MetadataMap::new();
    for (name, value) in pairs(list)? {
        // The names of headers are the same in any case; gRPC writes them small.
        let key: AsciiMetadataKey =
            name.to_ascii_lowercase().parse().map_err(|_| format!("{name:?} is no name of a header"))?;
        let value: AsciiMetadataValue =
            value.parse().map_err(|_| format!("the value of {name:?} cannot stand in a header"))?;
        headers.insert(key, value);
    }
    Ok(headers)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        match (first, more) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| (byte as char).to_digit(16);
                bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
                rest = after;
            }
            (b'%', _) => return None,
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, Malformed> {
        Settings::read(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");

    #[test]
    fn nothing_is_sent_unless_a_variable_asks_for_it() {
        assert!(!read(&[]).unwrap().any());
        assert!(!read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap().any());
        assert!(!read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]).unwrap().any());
        let settings = read(&[ENDPOINT]).unwrap();
        assert!(settings.traces.is_some() && settings.metrics.is_some() && settings.logs.is_some());
        let settings = read(&[ENDPOINT, ("OTEL_LOGS_EXPORTER", "none")]).unwrap();
        assert!(settings.traces.is_some() && settings.logs.is_none());
        let settings = read(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a:1")]).unwrap();
        assert!(settings.traces.is_some() && settings.metrics.is_none() && settings.logs.is_none());
        let settings = read(&[("OTEL_TRACES_EXPORTER", "otlp")]).unwrap();
        assert_eq!(settings.traces.unwrap().endpoint, "http://localhost:4317/");
        let settings = read(&[ENDPOINT, ("OTEL_METRICS_EXPORTER", "prometheus")]).unwrap();
        assert!(settings.metrics.is_none() && settings.warnings.is_empty());
    }

    #[test]
    fn the_variable_of_a_signal_outranks_the_common_one() {
        let settings = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs:1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "3000"),
            ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "X-Tenant=a%20b, authorization=Bearer%20x"),
        ])
        .unwrap();
        let (traces, logs) = (settings.traces.unwrap(), settings.logs.unwrap());
        assert_eq!(logs.endpoint, "http://logs:1/");
        assert_eq!((traces.timeout, logs.timeout), (Duration::from_secs(3), Duration::from_millis(500)));
        assert!(traces.gzip && !logs.gzip);
        assert_eq!(traces.headers.get("x-tenant").unwrap(), "a b");
        assert_eq!(traces.headers.get("authorization").unwrap(), "Bearer x");
    }

    #[test]
    fn a_malformed_address_or_header_is_refused_by_name_without_its_value() {
        for (variable, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "not a url"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://collector:21"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://[::1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,secret"),
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "na me=secret"),
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "name=secret%0a"),
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "name=secret%zz"),
        ] {
            let error = match variable.ends_with("_ENDPOINT") {
                true => read(&[(variable, value)]),
                false => read(&[ENDPOINT, (variable, value)]),
            }
            .map(|_| ())
            .unwrap_err()
            .to_string();
            assert!(error.starts_with(variable), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_the_specification_wants_ignored_is_ignored_and_told() {
        for (variable, value) in [
            ("OTEL_SDK_DISABLED", "yes"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "99999999999"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096"),
            ("OTEL_BLRP_SCHEDULE_DELAY", "1s"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team"),
        ] {
            let settings = read(&[ENDPOINT, (variable, value)]).unwrap();
            assert!(settings.warnings[0].starts_with(variable), "{:?}", settings.warnings);
        }
    }

    #[test]
    fn what_weft_cannot_send_is_not_sent_and_told() {
        for (variable, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ] {
            let mut variables = vec![(variable, value)];
            if variable != ENDPOINT.0 {
                variables.push(ENDPOINT);
            }
            let settings = read(&variables).unwrap();
            assert!(!settings.any());
            assert_eq!(settings.warnings.len(), 3);
            assert!(settings.warnings[0].starts_with(variable), "{:?}", settings.warnings);
        }
        let insecure =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"), ("OTEL_EXPORTER_OTLP_INSECURE", "true")];
        assert_eq!(read(&insecure).unwrap().traces.unwrap().endpoint, "http://collector:4317/");
    }

    #[test]
    fn samplers_are_known_by_their_standard_names() {
        let sampler = |name, ratio| {
            let variables = [("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", ratio)];
            format!("{:?}", read(&variables).unwrap().sampler)
        };
        assert_eq!(sampler("", ""), "ParentBased(AlwaysOn)");
        assert_eq!(sampler("always_off", ""), "AlwaysOff");
        assert_eq!(sampler("traceidratio", "0.25"), "TraceIdRatioBased(0.25)");
        assert_eq!(sampler("parentbased_traceidratio", "2"), "ParentBased(TraceIdRatioBased(1.0))");
    }

    #[test]
    fn the_name_of_the_service_outranks_the_list_of_attributes() {
        let settings = read(&[
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=listed,team=a%2Cb"),
            ("OTEL_SERVICE_NAME", "named"),
        ])
        .unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            settings.attributes,
            [pair("service.name", "listed"), pair("team", "a,b"), pair("service.name", "named")]
        );
    }
}
