//! What a coordinator must remember: invocations, their events, and what request ids stand for.
//!
//! [`Store`] is the trait; [`Memory`] keeps everything in memory and forgets it with the process. The crate
//! knows nothing of nodes, links or gRPC.

mod memory;
mod store;

pub use memory::Memory;
pub use store::{Appended, Created, Filter, Page, Recorded, Store, StoreError};
