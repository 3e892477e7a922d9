//! Logging: where it goes and in what form.
//!
//! Settings come from the environment (`WEFT_LOG`, `WEFT_LOG_FORMAT`), so that logging starts before any
//! configuration is read and errors at start have a voice. Nothing else of a process is decided here.

pub mod init;

pub use init::{Format, init};
