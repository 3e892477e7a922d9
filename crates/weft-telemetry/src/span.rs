//! Spans of a call's trace, made by hand from contexts that travel inside messages.
//!
//! A node hears of an invocation in a message on a stream that lives as long as its session, so there is no ambient
//! span to be the child of: who starts a span names its parent. Without telemetry, or below a caller that does not
//! record its trace, a span is nothing but the context of its parent, which goes on unchanged.

use std::{borrow::Cow, fmt, sync::OnceLock, time::SystemTime};

use opentelemetry::{
    Context, Key, KeyValue, Value,
    trace::{
        Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _,
        TraceFlags, TraceId, TraceState, Tracer as _,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};
use weft_core::{fields, trace::TraceContext};

/// Sampled, and that the id of the trace is random. What others mean is for who sets them.
const KNOWN_FLAGS: u8 = 0b11;

/// What spans are recorded with.
#[derive(Debug)]
struct Recorder {
    tracer: SdkTracer,
    /// Whether a trace that its caller does not record is not recorded here either.
    parent_decides: bool,
}

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// From now on spans are recorded with this.
pub(crate) fn install(tracer: SdkTracer, parent_decides: bool) {
    // A second one cannot be: logging refuses to start twice before it comes to this.
    let _ = RECORDER.set(Recorder { tracer, parent_decides });
}

/// The side of a call that a span describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Work for a caller elsewhere.
    Server,
    /// A call to somebody elsewhere, a child process included.
    Client,
    /// Work within.
    Internal,
}

impl From<Kind> for SpanKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Server => Self::Server,
            Kind::Client => Self::Client,
            Kind::Internal => Self::Internal,
        }
    }
}

/// What can be the value of an attribute. It is converted only when the span is recorded, so `format_args!` costs
/// nothing without telemetry.
pub trait Attribute {
    /// The value to record.
    fn into_value(self) -> Value;
}

macro_rules! attributes {
    ($($type:ty, $value:ident => $into:expr;)*) => {
        $(impl Attribute for $type {
            fn into_value(self) -> Value {
                let $value = self;
                $into
            }
        })*
    };
}

attributes! {
    &str, value => value.to_owned().into();
    String, value => value.into();
    fmt::Arguments<'_>, value => value.to_string().into();
    bool, value => value.into();
    i32, value => i64::from(value).into();
    i64, value => value.into();
    u16, value => i64::from(value).into();
    u32, value => i64::from(value).into();
    u64, value => i64::try_from(value).unwrap_or(i64::MAX).into();
    usize, value => i64::try_from(value).unwrap_or(i64::MAX).into();
    f64, value => value.into();
}

/// A span that is about to start.
#[derive(Debug)]
#[must_use = "a span starts with `start`"]
pub struct Builder<'a> {
    parent: Option<&'a TraceContext>,
    /// `None` when nothing will be recorded. Boxed, so that handing it on costs nothing then.
    recording: Option<Box<Begun>>,
}

#[derive(Debug)]
struct Begun {
    tracer: &'static SdkTracer,
    builder: SpanBuilder,
}

impl Builder<'_> {
    /// Sets an attribute.
    pub fn attribute(mut self, key: &'static str, value: impl Attribute) -> Self {
        if let Some(begun) = &mut self.recording {
            begun.builder.attributes.get_or_insert_default().push(attribute(key, value));
        }
        self
    }

    /// Says that it began at this time, not now.
    pub fn started_at(mut self, time: SystemTime) -> Self {
        if let Some(begun) = &mut self.recording {
            begun.builder.start_time = Some(time);
        }
        self
    }

    /// Links it to a span that is not its parent: the attempt before a retry, the call that asked to resume.
    pub fn link(mut self, other: &TraceContext) -> Self {
        if let Some(begun) = &mut self.recording {
            begun.builder.links.get_or_insert_default().push(Link::with_context(remote(other)));
        }
        self
    }

    /// Starts it.
    pub fn start(self) -> Span {
        let idle = |context: Option<&TraceContext>| Span { state: State::Idle(context.cloned()) };
        let Some(begun) = self.recording else { return idle(self.parent) };
        let around = match self.parent {
            Some(parent) => Context::new().with_remote_span_context(remote(parent)),
            None => Context::new(),
        };
        let span = begun.tracer.build_with_context(begun.builder, &around);
        let its = span.span_context();
        let Some(context) =
            TraceContext::new(its.trace_id().to_bytes(), its.span_id().to_bytes(), its.trace_flags().to_u8())
        else {
            // Telemetry has been shut down.
            return idle(self.parent);
        };
        let context = context.with_tracestate(self.parent.map_or("", TraceContext::tracestate));
        match span.is_recording() {
            true => Span { state: State::Recording(Box::new(Recording { span, context })) },
            false => Span { state: State::Idle(Some(context)) },
        }
    }
}

/// One operation of a trace. Ends when it is dropped, or with [`Span::end`].
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    state: State,
}

enum State {
    /// Nothing is recorded: there is no telemetry, or the trace is not sampled.
    Idle(Option<TraceContext>),
    Recording(Box<Recording>),
}

struct Recording {
    span: SdkSpan,
    context: TraceContext,
}

impl Span {
    /// A span to which more can be said before it starts. The name is written out only when there is telemetry.
    pub fn builder(name: impl fmt::Display, kind: Kind, parent: Option<&TraceContext>) -> Builder<'_> {
        let wanted =
            |recorder: &&Recorder| !recorder.parent_decides || parent.is_none_or(TraceContext::is_sampled);
        let recording = RECORDER.get().filter(wanted).map(|recorder| {
            let builder = SpanBuilder::from_name(name.to_string()).with_kind(kind.into());
            Box::new(Begun { tracer: &recorder.tracer, builder })
        });
        Builder { parent, recording }
    }

    /// Starts a span: the root of a new trace when it has no parent.
    pub fn start(name: impl fmt::Display, kind: Kind, parent: Option<&TraceContext>) -> Self {
        Self::builder(name, kind, parent).start()
    }

    /// The context for whatever follows from this span: its own, or its parent's when the span is not recorded because
    /// there is no telemetry or the parent is not sampled.
    pub fn context(&self) -> Option<&TraceContext> {
        match &self.state {
            State::Idle(context) => context.as_ref(),
            State::Recording(recording) => Some(&recording.context),
        }
    }

    /// Whether what is said of it goes anywhere.
    pub fn is_recording(&self) -> bool {
        matches!(self.state, State::Recording(_))
    }

    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Attribute) {
        if let State::Recording(recording) = &mut self.state {
            recording.span.set_attribute(attribute(key, value));
        }
    }

    /// Says that the operation failed: with what kind of error, one of few words, and why.
    pub fn fail(&mut self, error_type: &str, description: impl fmt::Display) {
        if let State::Recording(recording) = &mut self.state {
            recording.span.set_attribute(attribute(fields::ERROR_TYPE, error_type));
            recording.span.set_status(Status::Error { description: Cow::Owned(description.to_string()) });
        }
    }

    /// Ends it now.
    pub fn end(self) {}
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").field("context", &self.context()).finish_non_exhaustive()
    }
}

fn attribute(key: &'static str, value: impl Attribute) -> KeyValue {
    KeyValue::new(Key::from_static_str(key), value.into_value())
}

/// The SDK's form of a context that came in a message.
fn remote(context: &TraceContext) -> SpanContext {
    let (trace_id, span_id) = ids(context);
    // One that the SDK does not take is still passed on as it came.
    let state: TraceState = match context.tracestate() {
        "" => TraceState::NONE,
        text => text.parse().unwrap_or_default(),
    };
    SpanContext::new(trace_id, span_id, TraceFlags::new(context.flags() & KNOWN_FLAGS), true, state)
}

/// The SDK's form of the ids of a context.
pub(crate) fn ids(context: &TraceContext) -> (TraceId, SpanId) {
    let trace_id = TraceId::from_hex(context.trace_id()).unwrap_or(TraceId::INVALID);
    (trace_id, SpanId::from_hex(context.span_id()).unwrap_or(SpanId::INVALID))
}
