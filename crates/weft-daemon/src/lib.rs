//! What any long-lived process of weft needs: signals, a drain in two steps, owned tasks, readiness and a port that
//! tells it, a directory of its own.
//!
//! Nothing here knows what the process does. Read [`drain`] first: it is the order in which everything ends.

pub mod drain;
pub mod exclusive;
pub mod health;
pub mod readiness;
pub mod signal;
pub mod tasks;

pub use drain::Drain;
pub use exclusive::{Exclusive, ExclusiveError};
pub use health::Health;
pub use readiness::Readiness;
pub use tasks::TaskGroup;
