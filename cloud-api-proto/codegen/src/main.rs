//! Writes `src/generated/` from the `.proto` files. With `--check` it writes nothing and fails if a file would change.
//!
//! The generated code is committed: no build script, no protobuf compiler for whoever builds, and a change of the contract
//! shows in the diff.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};
use prost::Message as _;

const FILES: [&str; 5] = [
    "cloudadapter/v1alpha1/adapter_service.proto",
    "cloudadapter/v1alpha1/common.proto",
    "cloudadapter/v1alpha1/instance_service.proto",
    "cloudadapter/v1alpha1/load_balancer_service.proto",
    "cloudadapter/v1alpha1/route_service.proto",
];
const OUTPUTS: [&str; 2] = ["cloudadapter.v1alpha1.rs", "descriptor.bin"];

fn main() -> Result<()> {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => bail!("unknown argument {other}: the only one is --check"),
    };
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let fresh = tempfile::tempdir()?;
    generate(&root.join("proto"), fresh.path())?;
    let committed = root.join("src/generated");
    fs::create_dir_all(&committed)?;
    let mut stale = Vec::new();
    for name in OUTPUTS {
        let new = fs::read(fresh.path().join(name)).with_context(|| format!("generated no {name}"))?;
        if fs::read(committed.join(name)).is_ok_and(|old| old == new) {
            continue;
        }
        stale.push(name);
        if !check {
            fs::write(committed.join(name), new)?;
        }
    }
    if check && !stale.is_empty() {
        bail!("cloud-api-proto/src/generated is stale ({}): run `cargo xtask codegen`", stale.join(", "));
    }
    Ok(())
}

/// Compiles the contract into `out`.
fn generate(proto: &Path, out: &Path) -> Result<()> {
    let descriptors = protox::compile(FILES, [proto])?;
    fs::write(out.join("descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().btree_map(".").out_dir(out).compile_fds(descriptors)?;
    Ok(())
}
