//! The two configuration files of weft: what may stand in them, what each word means, what is wrong with one, and
//! how a running process notices that one changed.
//!
//! A file is YAML, of which JSON is a part. Every key is optional, and may be written in `snake_case` or in
//! `camelCase`; a key that is unknown is refused. A reader never sees half of a file: either everything in it holds
//! or the [`Error`] lists every problem. No message and no `Debug` ever shows a secret.
//!
//! This crate starts no task, knows no command line, no environment and no default that depends on the host: what a
//! file does not say is `None` wherever a flag, a variable or the host may still say it. It never decides anything
//! either: [`weft_core::agents::Agents`] does. Read [`NodeFile`] and [`CoordinatorFile`] first, then [`Follower`].

mod agents;
mod check;
mod configuration;
mod coordinator;
mod entries;
mod file;
mod finding;
mod follow;
mod free;
mod home;
mod leniency;
mod node;
mod plugins;
mod secret;
mod skills;
mod suggest;
mod table;
mod tree;

pub use configuration::Configuration;
pub use coordinator::CoordinatorFile;
pub use file::MAX_BYTES;
pub use finding::{Error, Finding, Parsed};
pub use follow::{Follower, Loaded, Reload};
pub use free::Free;
pub use home::Home;
pub use leniency::Leniency;
pub use node::NodeFile;
pub use plugins::{Plugin, Plugins};
pub use skills::{DEBOUNCE, Skills};
