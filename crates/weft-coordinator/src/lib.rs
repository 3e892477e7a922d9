//! The coordinator: node sessions, the merged catalog, admission, routing, the event log, the gRPC services.
//!
//! It never starts a process and never reads a skill's files: nodes do. Read `server` for how the parts are
//! put together, `invocations` for the life of an invocation, `nodes` and `links` for the fleet, `visible` for what an agent
//! sees of it.

mod admission;
mod catalog;
mod config;
mod files;
mod grpc;
mod invocations;
mod links;
mod nodes;
mod router;
mod saved;
mod server;
mod sessions;
mod settings;
mod sweep;
mod visible;
mod watch;

pub use config::{Config, Timings};
pub use server::{BuildError, Coordinator, Handle, ServeError};
pub use settings::Settings;
