//! Skills on disk: finds them, reads them, gates them, digests them and notices when they change.
//!
//! This crate owns everything between a directory and a [`Definition`](weft_core::skill::Definition): the walk
//! below the allow-listed roots, the manifests `skill.json` and `SKILL.md`, which copy of a name wins, whether
//! its conditions hold on this host, what the operator's entry gives its child, and the digest of its files. The
//! product is an [`Inventory`]; a [`Watcher`] keeps one current.
//!
//! It never starts a skill, never changes its own environment, speaks no gRPC and needs no async runtime. One
//! bad file is a [`Diagnostic`](weft_core::skill::Diagnostic) and never an error of the whole. Nothing of the
//! host, such as a path, gets into a definition: the same files give the same definition everywhere.
//!
//! Read [`loader`] first: it is the order in which things happen.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

pub mod entry;
pub mod exact;
pub mod host;
pub mod injected;
pub mod inventory;
pub mod lint;
pub mod loader;
pub mod plugins;
pub mod secrets;
pub mod source;
pub mod variables;
pub mod watch;

mod digest;
mod directories;
mod exposure;
mod files;
mod frontmatter;
mod gates;
mod instructions;
mod manifest;
mod platform;
mod programs;
mod reading;
mod report;
mod requirements;
mod walk;

#[cfg(test)]
mod testing;

pub use entry::{CheckError, EntryError, resolve_entry};
pub use exact::{Exact, ExactCopies, ExactError};
pub use host::{Environment, Host};
pub use injected::{Injected, Unresolved};
pub use inventory::{Copy, Inventory, Stamp};
pub use loader::{Compat, Config, Loader};
pub use plugins::Plugins;
pub use reading::ReadError;
pub use secrets::{SecretError, resolve};
pub use source::{Source, parse_dirs};
pub use variables::is_loader_variable;
pub use watch::{WatchOptions, Watcher};
