//! What any long-lived process of weft needs: signals, a drain in two steps, owned tasks, readiness.
//!
//! Nothing here knows what the process does. Read [`drain`] first: it is the order in which everything ends.

pub mod drain;
pub mod readiness;
pub mod signal;
pub mod tasks;

pub use drain::Drain;
pub use readiness::Readiness;
pub use tasks::TaskGroup;
