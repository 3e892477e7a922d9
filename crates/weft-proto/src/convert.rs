//! Conversions between the wire and `weft-core`.
//!
//! Towards the wire nothing can fail. From the wire everything is checked: a peer may send anything. A number
//! that names no known class means `dangerous`, the safest reading; other unknown numbers are refused or left
//! out, as each function says.

mod catalog;
mod invocation;
mod time;

pub use catalog::{
    NodeSight, decode_definition, dialect, encode_definition, gate, labels_from_wire, layer, shadowed_copy,
};
pub use invocation::{
    authorisation_from_wire, authorisation_to_wire, class, dispatch_digest, event_from_wire, news_from_wire,
    own, trace_from_wire, trace_to_wire,
};
pub use time::{duration_from_wire, duration_to_wire, timestamp_from_wire, timestamp_to_wire};

/// A message that does not keep the rules of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Malformed {
    /// The field, as the proto file names it.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

impl Malformed {
    /// A malformed field.
    pub fn new(field: &'static str, message: impl ToString) -> Self {
        Self { field, message: message.to_string() }
    }
}

/// The digest in a `bytes` field.
fn digest(field: &'static str, bytes: &[u8]) -> Result<weft_core::ids::Digest, Malformed> {
    let bytes = bytes.try_into().map_err(|_| Malformed::new(field, "a SHA-256 has 32 bytes"))?;
    Ok(weft_core::ids::Digest::from_bytes(bytes))
}

/// Parses an identifier in a field.
pub fn parse<T: std::str::FromStr<Err: ToString>>(field: &'static str, text: &str) -> Result<T, Malformed> {
    text.parse().map_err(|error: T::Err| Malformed::new(field, error))
}

/// Parses an identifier in a field that may be empty.
pub fn parse_optional<T: std::str::FromStr<Err: ToString>>(
    field: &'static str,
    text: &str,
) -> Result<Option<T>, Malformed> {
    if text.is_empty() { Ok(None) } else { parse(field, text).map(Some) }
}

/// Requires a message field.
pub fn required<T>(field: &'static str, value: Option<T>) -> Result<T, Malformed> {
    value.ok_or_else(|| Malformed::new(field, "is missing"))
}
