//! Talks to a coordinator: addresses and channels, typed calls, and following an invocation through broken
//! connections and restarts.
//!
//! It never decides what a caller wants: it reports. Read [`Client`] first, then [`follow`].

pub mod backoff;
pub mod channel;
mod client;
mod error;
pub mod follow;

pub use channel::Coordinator;
pub use client::{Client, SkillPage, SkillQuery};
pub use error::Error;
pub use follow::{Follow, Followed};
