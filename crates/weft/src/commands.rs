//! One module a subcommand.

pub(crate) mod bench;
pub(crate) mod call;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod coordinator;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod follow;
pub(crate) mod invocations;
pub(crate) mod node;
pub(crate) mod nodes;
pub(crate) mod prompt;
pub(crate) mod skill;
pub(crate) mod skills;
pub(crate) mod tools;
pub(crate) mod watch;
pub(crate) mod why;
