//! Telemetry: where logs, spans and metrics go, and how a trace goes on from one process to the next.
//!
//! Settings come from the environment (`WEFT_LOG`, `WEFT_LOG_FORMAT`, `OTEL_*`), so that it starts before any
//! configuration is read and errors at start have a voice. Without an `OTEL_*` variable that asks for it nothing
//! leaves the process, and [`Span`] only hands on the context that it was given. Nothing here ever waits for a
//! collector: queues are bounded, and what does not fit is dropped and counted.
//!
//! Read [`mod@init`] first (how it starts and ends), then [`span`] (the tree of a call), [`stderr`] and [`metrics`].

pub mod init;
mod logging;
mod losses;
pub mod metrics;
mod pipeline;
mod resource;
mod settings;
pub mod span;
pub mod stderr;

pub use init::{InitError, Process, Telemetry, init, start};
pub use logging::Format;
pub use metrics::Metrics;
pub use pipeline::PipelineError;
pub use settings::Malformed;
pub use span::{Kind, Span};
pub use stderr::Stderr;
