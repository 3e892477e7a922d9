//! What stands in a configuration file holds, within seconds, and what is wrong in it is told.

mod checked;
mod entries;
mod followed;
mod gates;
