//! Where the repository and cargo are, and which binaries the end-to-end tests need.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The packages whose binaries the harness runs in place of containers, and as a person does.
const SERVERS: [&str; 6] = [
    "adapter-openstack",
    "adapter-sim",
    "cloudctl",
    "node-controller",
    "route-controller",
    "service-controller",
];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs us, so that the toolchain stays the same.
pub(crate) fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The arguments that build the binaries which the harness runs.
pub(crate) fn build_servers() -> Vec<String> {
    let packages = SERVERS.iter().flat_map(|package| ["--package", package]);
    ["build", "--bins"].into_iter().chain(packages).map(str::to_owned).collect()
}
