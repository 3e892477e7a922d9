//! Blocks whose meaning is not weft's.

use std::{fmt, ops::Deref};

use serde_json::Value;

/// A block that weft carries and does not interpret. Its `Debug` shows nothing of it: it may hold anything.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Free(pub Value);

impl Deref for Free {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl fmt::Debug for Free {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Free(…)")
    }
}
