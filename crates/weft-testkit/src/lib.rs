//! What tests of weft need: fixture skills, processes of the real binary that end with the test, waiting for a
//! condition instead of a time. For tests only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod collector;
pub mod fabric;
pub mod observed;
pub mod preload;
pub mod process;
pub mod proxy;
pub mod skill;
pub mod stub_node;
pub mod wait;

pub use collector::Collector;
pub use fabric::{Fabric, Spec};
pub use observed::{Observed, request};
pub use process::{Daemon, Finished};
pub use proxy::{End, Proxy};
pub use skill::Skill;
pub use stub_node::StubNode;
pub use wait::eventually;
