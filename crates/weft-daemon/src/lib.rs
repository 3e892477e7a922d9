//! What any long-lived process of weft needs: signals, a drain in two steps, owned tasks.
//!
//! Nothing here knows what the process does. Read [`drain`] first: it is the order in which everything ends.

pub mod drain;
pub mod signal;
pub mod tasks;

pub use drain::Drain;
pub use tasks::TaskGroup;
