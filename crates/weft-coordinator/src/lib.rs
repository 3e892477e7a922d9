//! The coordinator: node sessions, the merged catalog, admission, routing, the event log, the gRPC services.
//!
//! It never starts a process and never reads a skill's files: nodes do. Read `server` for how the parts are
//! put together, `invocations` for the life of an invocation, `nodes` and `links` for the fleet.

mod admission;
mod catalog;
mod config;
mod grpc;
mod invocations;
mod links;
mod nodes;
mod router;
mod server;
mod sweep;
mod watch;

pub use config::{Config, Timings};
pub use server::{Coordinator, ServeError};
