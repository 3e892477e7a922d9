//! Times and durations.

use std::time::Duration;

use jiff::Timestamp;

use super::Malformed;

/// A time for the wire.
pub fn timestamp_to_wire(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: time.as_second(), nanos: time.subsec_nanosecond() }
}

/// A time from the wire.
///
/// # Errors
/// When no such time exists.
pub fn timestamp_from_wire(
    field: &'static str,
    time: prost_types::Timestamp,
) -> Result<Timestamp, Malformed> {
    Timestamp::new(time.seconds, time.nanos).map_err(|error| Malformed::new(field, error))
}

/// A duration for the wire.
pub fn duration_to_wire(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// A duration from the wire.
///
/// # Errors
/// When it is negative or malformed.
pub fn duration_from_wire(
    field: &'static str,
    duration: prost_types::Duration,
) -> Result<Duration, Malformed> {
    duration.try_into().map_err(|_| Malformed::new(field, "must be a duration of zero or more"))
}
