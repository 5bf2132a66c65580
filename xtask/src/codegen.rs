//! `cargo xtask codegen`: generates code and reference pages from the `.proto` files. Also generates a reference page and the rules of the
//! chart's admission policy from the annotations of service-controller.
//!
//! The generated code is committed. Builds therefore need no build script and no protobuf compiler, and reviews show changes of the
//! contract.

mod admission;
mod annotations;
mod errors;
mod reference;

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use prost::Message as _;

use crate::cargo;

const FILES: [&str; 5] = [
    "cloudadapter/v1alpha1/adapter_service.proto",
    "cloudadapter/v1alpha1/common.proto",
    "cloudadapter/v1alpha1/instance_service.proto",
    "cloudadapter/v1alpha1/load_balancer_service.proto",
    "cloudadapter/v1alpha1/route_service.proto",
];
/// The files that [`generate`] writes into `out`, and their places in the repository.
const OUTPUTS: [(&str, &str); 6] = [
    ("cloudadapter.v1alpha1.rs", "cloud-api-proto/src/generated/cloudadapter.v1alpha1.rs"),
    ("descriptor.bin", "cloud-api-proto/src/generated/descriptor.bin"),
    ("contract.md", "docs/reference/contract.md"),
    ("errors.md", "docs/reference/errors.md"),
    ("annotations.md", "docs/reference/annotations.md"),
    ("annotations.yaml", "helm/cloud-controllers/files/annotations.yaml"),
];

pub(crate) fn write() -> anyhow::Result<()> {
    for (place, new) in stale()? {
        let committed = cargo::root().join(place);
        committed.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&committed, new).with_context(|| format!("cannot write {place}"))?;
    }
    Ok(())
}

pub(crate) fn check() -> anyhow::Result<()> {
    let stale: Vec<_> = stale()?.into_iter().map(|(place, _)| place).collect();
    ensure!(stale.is_empty(), "out of date: {}: run `cargo xtask codegen`", stale.join(", "));
    Ok(())
}

/// Returns the paths and texts of generated files that differ from the committed files.
fn stale() -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
    let root = cargo::root();
    let fresh = tempfile::tempdir()?;
    generate(&root.join("cloud-api-proto/proto"), fresh.path()).context("fix the .proto files")?;
    let keys = fs::read_to_string(root.join(annotations::SOURCE)).context(annotations::SOURCE)?;
    fs::write(fresh.path().join("annotations.md"), annotations::page(&keys)?)?;
    fs::write(fresh.path().join("annotations.yaml"), admission::rules(&keys)?)?;
    let mut stale = Vec::new();
    for (name, place) in OUTPUTS {
        let new = fs::read(fresh.path().join(name)).with_context(|| format!("{name} was not generated"))?;
        if fs::read(root.join(place)).ok().as_ref() != Some(&new) {
            stale.push((place, new));
        }
    }
    Ok(stale)
}

fn generate(proto: &Path, out: &Path) -> anyhow::Result<()> {
    let descriptors = protox::compile(FILES, [proto])?;
    fs::write(out.join("descriptor.bin"), descriptors.encode_to_vec())?;
    fs::write(out.join("contract.md"), reference::page(&descriptors))?;
    fs::write(out.join("errors.md"), errors::page(&reference::values(&descriptors, "Reason"))?)?;
    tonic_prost_build::configure().btree_map(".").out_dir(out).compile_fds(descriptors)?;
    Ok(())
}
