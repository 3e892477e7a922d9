//! The args of an invocation: raw JSON bytes that are checked but never re-written.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    json, limits,
    schema::{Schema, Violation},
};

/// Args that are one JSON object with each member once, as the caller sent them.
#[derive(Debug, Clone)]
pub struct Args {
    bytes: Bytes,
    value: Value,
}

/// Why args are refused before any schema is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// More than [`limits::ARGS_BYTES`].
    #[error("the args have {0} bytes, the limit is {limit}", limit = limits::ARGS_BYTES)]
    TooLarge(usize),
    /// Not JSON, or JSON that two parsers could read differently.
    #[error("the args are not JSON: {0}")]
    Syntax(json::Error),
    /// JSON, but not an object.
    #[error("the args must be one JSON object")]
    NotAnObject,
}

impl Args {
    /// Checks the bytes. Blank bytes mean `{}`.
    ///
    /// # Errors
    /// When the bytes are too many or are not one JSON object.
    pub fn parse(bytes: Bytes) -> Result<Self, ArgsError> {
        if bytes.len() > limits::ARGS_BYTES {
            return Err(ArgsError::TooLarge(bytes.len()));
        }
        let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { Bytes::from_static(b"{}") } else { bytes };
        let value = json::parse(&bytes).map_err(ArgsError::Syntax)?;
        if !value.is_object() {
            return Err(ArgsError::NotAnObject);
        }
        Ok(Self { bytes, value })
    }

    /// Checks the args against a schema.
    ///
    /// # Errors
    /// With what does not fit.
    pub fn validate(&self, schema: &Schema) -> Result<(), Vec<Violation>> {
        schema.validate(&self.value)
    }

    /// The bytes that the child reads.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_args_are_an_empty_object_and_others_stay_as_sent() {
        assert_eq!(Args::parse(Bytes::from_static(b" \n")).unwrap().bytes(), &b"{}"[..]);
        let sent = Bytes::from_static(br#"{ "id":1915883588174806058, "d":1.10 , "n":-0}"#);
        assert_eq!(Args::parse(sent.clone()).unwrap().bytes(), &sent);
    }

    #[test]
    fn args_that_are_no_object_are_refused() {
        for bytes in [&b"[1]"[..], b"42", b"null"] {
            assert_eq!(Args::parse(Bytes::copy_from_slice(bytes)).unwrap_err(), ArgsError::NotAnObject);
        }
        assert!(matches!(Args::parse(Bytes::from_static(b"{")), Err(ArgsError::Syntax(_))));
        assert!(matches!(Args::parse(Bytes::from(vec![b' '; (1 << 20) + 1])), Err(ArgsError::TooLarge(_))));
    }
}
