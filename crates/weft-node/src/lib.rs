//! The node daemon: the skills of one host, the link to its coordinator, and the invocations on it.
//!
//! It decides nothing about who may call what beyond its own caps, and keeps no catalog but its own. Read
//! `node` for how the parts are put together, `supervisor` for the life of an attempt here, `link` for the wire,
//! `local` for a node that has none.

mod advert;
mod attempt;
mod conclude;
mod config;
mod environment;
mod files;
mod introduction;
mod link;
mod local;
mod node;
mod spans;
mod spool;
mod state_dir;
mod supervisor;

pub use config::Config;
pub use introduction::{Introduction, introduce};
pub use local::{Invocation, Local};
pub use node::{BuildError, Handle, Node};
pub use state_dir::StateDirError;
