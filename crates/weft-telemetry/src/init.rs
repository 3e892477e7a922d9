//! How telemetry starts and ends.

use std::time::Duration;

use crate::{
    logging, metrics,
    pipeline::{Pipeline, PipelineError},
    resource::resource,
    settings::{Malformed, Settings},
};

/// How long what waits may take to be sent when a process forgets to say.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// What a process is, for whoever receives its telemetry.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its role: `weft-coordinator`, `weft-node`, `weft-dev`, or `weft` for the command line.
    pub name: &'static str,
    /// The version of weft.
    pub version: &'static str,
    /// What tells it from all other processes of its role.
    pub instance: String,
}

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// `WEFT_LOG` is not a filter.
    #[error("WEFT_LOG: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// `WEFT_LOG_FORMAT` is not a format.
    #[error("WEFT_LOG_FORMAT: {0}")]
    Format(String),
    /// Telemetry was started before.
    #[error("logging has been started already")]
    Twice,
    /// An `OTEL_*` variable is malformed.
    #[error(transparent)]
    Variable(#[from] Malformed),
    /// What is to be sent cannot be.
    #[error("telemetry cannot be sent: {0}")]
    Pipeline(#[from] PipelineError),
}

/// Starts logging to stderr and nothing else. `default_filter` counts when `WEFT_LOG` is not set or empty.
///
/// # Errors
/// When an environment variable is malformed, or logging has been started before.
pub fn init(default_filter: &str) -> Result<(), InitError> {
    logging::start(default_filter, &from_environment)
}

/// Starts logging to stderr, and whatever the `OTEL_*` variables ask for. `default_filter` counts when `WEFT_LOG` is
/// not set or empty. Needs no runtime, and may be called inside one.
///
/// # Errors
/// When an environment variable is malformed, or telemetry has been started before.
pub fn start(process: &Process, default_filter: &str) -> Result<Telemetry, InitError> {
    start_with(process, default_filter, &from_environment)
}

/// The same with variables from elsewhere.
///
/// # Errors
/// As for [`start`].
pub fn start_with(
    process: &Process,
    default_filter: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Telemetry, InitError> {
    let settings = Settings::read(lookup)?;
    logging::start(default_filter, lookup)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let resource = resource(process, &settings.attributes);
    metrics::describe(resource.clone());
    let pipeline = settings.any().then(|| Pipeline::start(&settings, &resource)).transpose()?;
    Ok(Telemetry { pipeline })
}

fn from_environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Telemetry that has started. What waits to be sent is lost unless this is shut down or dropped.
#[must_use = "what waits to be sent is sent when this is shut down or dropped"]
pub struct Telemetry {
    pipeline: Option<Pipeline>,
}

impl Telemetry {
    /// Sends what waits, and blocks for that, but no longer than `most`. Nothing is sent afterwards. Belongs at the end
    /// of `main`, after the runtime; in a task it would hold up its thread.
    pub fn shutdown(mut self, most: Duration) {
        self.end(most);
    }

    fn end(&mut self, most: Duration) {
        if self.pipeline.take().is_some_and(|pipeline| !pipeline.shutdown(most)) {
            tracing::warn!(?most, "some telemetry was not sent in time");
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.end(FORGOTTEN);
    }
}
