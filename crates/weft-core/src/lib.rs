//! The domain of weft: skills, the merged catalog, invocations and their events, the policy decision.
//!
//! Everything here is pure. No I/O, no async, no clock of its own, no wire types: the crates around it read
//! files, start processes and speak gRPC, and ask this one what the answer is. Read [`skill`] first (what a
//! skill is), then [`catalog`] (what a fleet offers) and [`invocation`] (the life of one execution).

pub mod advert;
pub mod agents;
pub mod args;
pub mod catalog;
pub mod credit;
pub mod entries;
pub mod event;
pub mod fields;
pub mod ids;
pub mod invocation;
pub mod json;
pub mod limits;
pub mod node;
pub mod outcome;
pub mod policy;
pub mod prompt;
pub mod refusal;
pub mod schema;
pub mod skill;
pub mod snapshot;
pub mod text;
pub mod tools;
pub mod trace;
