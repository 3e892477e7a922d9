//! The wire: types generated from `proto/`, and conversions between them and `weft-core`.
//!
//! Nothing else lives here. Generated types stay in the `grpc` and `link` modules of the crates that use them;
//! a value that crosses into other code is converted first, here. Read [`convert`] for the rules.

pub mod convert;
pub mod json;
pub mod parts;
pub mod status;

/// The generated types of `weft.v1`, `weft.link.v1` and `weft.state.v1`.
pub mod generated {
    #![allow(missing_docs, unreachable_pub, clippy::all)]

    /// What kernels and people speak.
    pub mod weft {
        pub mod v1 {
            tonic::include_proto!("weft.v1");
        }
        pub mod link {
            pub mod v1 {
                tonic::include_proto!("weft.link.v1");
            }
        }
        /// What a coordinator keeps on disk.
        pub mod state {
            pub mod v1 {
                tonic::include_proto!("weft.state.v1");
            }
        }
    }
}

pub use generated::weft::{link::v1 as link, state::v1 as state, v1};

/// The encoded descriptors of every message and service, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/weft_descriptor.bin"));

/// The protocol versions of the node link that this build speaks: newest and oldest.
pub const LINK_VERSIONS: (u32, u32) = (1, 1);
