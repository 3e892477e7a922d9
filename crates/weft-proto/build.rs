//! Compiles `proto/` without `protoc`, and keeps the descriptor set for reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    let files = [
        "weft/v1/catalog.proto",
        "weft/v1/invocation.proto",
        "weft/v1/node.proto",
        "weft/v1/session.proto",
        "weft/v1/types.proto",
        "weft/link/v1/link.proto",
        "weft/state/v1/state.proto",
    ];
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(files, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("weft_descriptor.bin"), descriptors.encode_to_vec())?;
    // Without the `connect` helpers: they collide with the RPC of that name, and channels come from weft-client.
    tonic_prost_build::configure().bytes(".").build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
