//! Starts logging.

use std::{io, str::FromStr};

use tracing_subscriber::{EnvFilter, Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("log format {word:?} is not one of text, json")),
        }
    }
}

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// `WEFT_LOG` is not a filter.
    #[error("WEFT_LOG: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// `WEFT_LOG_FORMAT` is not a format.
    #[error("WEFT_LOG_FORMAT: {0}")]
    Format(String),
    /// Logging was started before.
    #[error("logging has been started already")]
    Twice,
}

/// Starts logging to stderr. `default_filter` counts when `WEFT_LOG` is not set or empty.
///
/// # Errors
/// When an environment variable is malformed, or logging has been started before.
pub fn init(default_filter: &str) -> Result<(), InitError> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let filter = EnvFilter::try_new(variable("WEFT_LOG").as_deref().unwrap_or(default_filter))?;
    let format = match variable("WEFT_LOG_FORMAT") {
        Some(word) => word.parse().map_err(InitError::Format)?,
        None => Format::default(),
    };
    let colour = variable("NO_COLOR").is_none() && io::IsTerminal::is_terminal(&io::stderr());
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = match format {
        Format::Text => layer.with_ansi(colour).with_target(false).boxed(),
        Format::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).try_init().map_err(|_| InitError::Twice)
}
