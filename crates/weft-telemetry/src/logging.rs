//! Log lines on stderr.

use std::{
    collections::HashMap,
    io,
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{
    Event, Level, Metadata, callsite::Identifier, level_filters::LevelFilter, subscriber::Interest,
};
use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::FilterExt as _,
    layer::{Context, Filter, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use crate::{InitError, settings::Lookup};

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

/// Starts logging to stderr. `default_filter` counts when `WEFT_LOG` is not set or empty.
pub(crate) fn start(default_filter: &str, lookup: Lookup<'_>) -> Result<(), InitError> {
    let variable = |name| lookup(name).filter(|value| !value.is_empty());
    let asked = variable("WEFT_LOG");
    let filter = EnvFilter::try_new(asked.as_deref().unwrap_or(default_filter))?;
    let format = match variable("WEFT_LOG_FORMAT") {
        Some(word) => word.parse().map_err(InitError::Format)?,
        None => Format::default(),
    };
    let calm = Calm { wanted: asked.is_some_and(|asked| asked.contains("opentelemetry")), ..Calm::default() };
    let colour = variable("NO_COLOR").is_none() && io::IsTerminal::is_terminal(&io::stderr());
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = match format {
        Format::Text => layer.with_ansi(colour).with_target(false).boxed(),
        Format::Json => layer.json().flatten_event(true).boxed(),
    };
    let layer = layer.with_filter(filter.and(calm));
    tracing_subscriber::registry().with(layer).try_init().map_err(|_| InitError::Twice)
}

/// How often a line of the SDK may be repeated.
const REPEAT_EVERY: Duration = Duration::from_secs(60);

/// Keeps the SDK from telling every batch that failed. What [`crate::losses`] tells in words is left out, the rest
/// comes once a minute; unless `WEFT_LOG` names `opentelemetry`.
#[derive(Debug, Default)]
struct Calm {
    wanted: bool,
    /// By the place in the SDK's code, of which there is a fixed number.
    told: Mutex<HashMap<Identifier, Instant>>,
}

impl Calm {
    /// Whether events of this place are ever let through, and need no look.
    fn interest(&self, metadata: &Metadata<'_>) -> Interest {
        if self.wanted || !metadata.target().starts_with("opentelemetry") {
            return Interest::always();
        }
        let name = metadata.name();
        match name.contains("Export") || name.contains("Shutdown") || *metadata.level() > Level::WARN {
            true => Interest::never(),
            false => Interest::sometimes(),
        }
    }

    /// Whether this one has not been told lately.
    fn is_news(&self, place: Identifier) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if told.get(&place).is_some_and(|at| now.duration_since(*at) < REPEAT_EVERY) {
            return false;
        }
        told.insert(place, now);
        true
    }
}

impl<S> Filter<S> for Calm {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        !self.interest(metadata).is_never()
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.interest(metadata)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        !self.interest(metadata).is_sometimes() || self.is_news(metadata.callsite())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};

    use tracing_subscriber::Layer;

    use super::*;

    /// Counts events.
    struct Count(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn seen(calm: Calm, tell: impl FnOnce()) -> usize {
        let count = Arc::new(AtomicUsize::new(0));
        let layer = Count(count.clone()).with_filter(EnvFilter::new("debug").and(calm));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), tell);
        count.load(Ordering::Relaxed)
    }

    #[test]
    fn the_sdk_repeats_itself_once_a_minute_and_others_as_they_like() {
        let tell = || {
            for _ in 0..10 {
                tracing::warn!(name: "Client.PartialSuccess", target: "opentelemetry-otlp", "odd");
                tracing::error!(name: "Processor.ExportError", target: "opentelemetry_sdk", "told by us");
                tracing::info!(target: "opentelemetry_sdk", "chatter");
                tracing::debug!(target: "weft_node", "ours");
            }
        };
        assert_eq!(seen(Calm::default(), tell), 11);
        assert_eq!(seen(Calm { wanted: true, ..Calm::default() }, tell), 40);
    }
}
