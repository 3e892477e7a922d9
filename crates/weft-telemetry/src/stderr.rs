//! What a skill writes to stderr, as log records of its trace.
//!
//! One record a line. Nothing is kept for a trace that is not sampled, and nothing ever waits: a record for which
//! the queue has no room is dropped and counted.

mod lines;

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use opentelemetry::{
    SpanId, TraceFlags, TraceId,
    logs::{AnyValue, LogRecord as _, Logger as _, Severity},
};
use opentelemetry_sdk::logs::SdkLogger;
use serde::Deserialize;
use weft_core::{
    fields,
    ids::{InvocationId, SkillKey},
    trace::TraceContext,
};

use crate::{span, stderr::lines::Lines};

static LOGGER: OnceLock<SdkLogger> = OnceLock::new();

/// From now on lines are recorded with this.
pub(crate) fn install(logger: SdkLogger) {
    let _ = LOGGER.set(logger);
}

/// Turns the stderr of one attempt into log records. What is left of a line when it is dropped is a line as well.
pub struct Stderr {
    /// `None` when nothing is recorded.
    recording: Option<Box<(Lines, Source)>>,
}

/// What every record of one attempt says.
struct Source {
    logger: &'static SdkLogger,
    trace_id: TraceId,
    span_id: SpanId,
    invocation: Arc<str>,
    skill: Arc<str>,
    number: i64,
}

impl Stderr {
    /// For the process that this context was given to.
    pub fn new(context: Option<&TraceContext>, invocation: InvocationId, skill: &SkillKey) -> Self {
        let sampled = context.filter(|context| context.is_sampled());
        let recording = LOGGER.get().zip(sampled).map(|(logger, context)| {
            let (trace_id, span_id) = span::ids(context);
            let (invocation, skill) = (invocation.to_string().into(), skill.as_str().into());
            Box::new((Lines::default(), Source { logger, trace_id, span_id, invocation, skill, number: 0 }))
        });
        Self { recording }
    }

    /// Takes the next bytes, wherever in a line they end.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Some((lines, source)) = self.recording.as_deref_mut() {
            lines.push(bytes, |line, cut| source.tell(line, cut));
        }
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        if let Some((lines, source)) = self.recording.as_deref_mut() {
            lines.finish(|line, cut| source.tell(line, cut));
        }
    }
}

impl fmt::Debug for Stderr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stderr").field("recording", &self.recording.is_some()).finish()
    }
}

impl Source {
    fn tell(&mut self, line: &[u8], cut: usize) {
        self.number += 1;
        let text = String::from_utf8_lossy(line).into_owned();
        let (severity, word) = severity(&text);
        let now = SystemTime::now();
        let mut record = self.logger.create_log_record();
        record.set_timestamp(now);
        record.set_observed_timestamp(now);
        record.set_severity_number(severity);
        record.set_severity_text(word);
        record.set_trace_context(self.trace_id, self.span_id, Some(TraceFlags::SAMPLED));
        record.add_attribute(fields::LOG_IOSTREAM, "stderr");
        record.add_attribute(fields::INVOCATION_ID, AnyValue::String(self.invocation.clone().into()));
        record.add_attribute(fields::SKILL_KEY, AnyValue::String(self.skill.clone().into()));
        record.add_attribute(fields::STDERR_LINE, self.number);
        if cut > 0 {
            record.add_attribute(fields::STDERR_CUT, i64::try_from(cut).unwrap_or(i64::MAX));
        }
        record.set_body(AnyValue::String(text.into()));
        self.logger.emit(record);
    }
}

/// The severity that a JSON line gives itself; any other line is information.
fn severity(line: &str) -> (Severity, &'static str) {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        level: Level<'a>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Level<'a> {
        Word(#[serde(borrow)] Cow<'a, str>),
        /// As pino and bunyan count: 30 is information.
        Number(u64),
    }

    const INFO: (Severity, &str) = (Severity::Info, "INFO");
    if !line.trim_start().starts_with('{') {
        return INFO;
    }
    match serde_json::from_str(line).map(|Line { level }| level) {
        Ok(Level::Word(word)) => match word.to_ascii_lowercase().as_str() {
            "trace" => (Severity::Trace, "TRACE"),
            "debug" => (Severity::Debug, "DEBUG"),
            "notice" => (Severity::Info2, "NOTICE"),
            "warn" | "warning" => (Severity::Warn, "WARN"),
            "err" | "error" => (Severity::Error, "ERROR"),
            "crit" | "critical" | "alert" | "emerg" | "emergency" | "fatal" | "panic" => {
                (Severity::Fatal, "FATAL")
            }
            _ => INFO,
        },
        Ok(Level::Number(number)) => match number {
            10..20 => (Severity::Trace, "TRACE"),
            20..30 => (Severity::Debug, "DEBUG"),
            40..50 => (Severity::Warn, "WARN"),
            50..60 => (Severity::Error, "ERROR"),
            60.. => (Severity::Fatal, "FATAL"),
            _ => INFO,
        },
        Err(_) => INFO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_line_says_its_own_severity() {
        for (line, expected) in [
            ("plain", Severity::Info),
            (r#"{"level":"warning","msg":"x"}"#, Severity::Warn),
            (r#" {"msg":"x","level":"ERROR","n":[1,{}]}"#, Severity::Error),
            (r#"{"level":50}"#, Severity::Error),
            (r#"{"level":30}"#, Severity::Info),
            (r#"{"level":"f\u0061tal"}"#, Severity::Fatal),
            (r#"{"level":null}"#, Severity::Info),
            (r#"{"level":"#, Severity::Info),
            (r#"["error"]"#, Severity::Info),
            ("error", Severity::Info),
        ] {
            assert_eq!(severity(line).0, expected, "{line}");
        }
        assert_eq!(severity(&("{\"a\":".repeat(1500) + "1")).0, Severity::Info);
    }
}
