//! Where the repository, cargo and what it builds are, and how it builds.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The packages whose programs the demo runs in place of containers, and as a user does.
const OF_THE_DEMO: [&str; 6] =
    ["adapter-sim", "cloudctl", "e2e", "node-controller", "route-controller", "service-controller"];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs us, so that the toolchain stays the same.
pub(crate) fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

/// A program that cargo has built for development. This process may be an older file of the same name, which a build has replaced.
pub(crate) fn built(program: &str) -> PathBuf {
    target().join("debug").join(program)
}

/// The arguments that build all programs and tests of the workspace. Everything that runs programs of ours builds them this way: features of
/// dependencies are united over what is built, so that another choice of packages would compile most dependencies again.
pub(crate) fn build_all() -> Vec<String> {
    ["build", "--workspace", "--bins", "--tests"].map(str::to_owned).to_vec()
}

/// The arguments that build the demo and what it runs, and no tests: a visitor waits for it.
pub(crate) fn build_demo() -> Vec<String> {
    let packages = OF_THE_DEMO.iter().flat_map(|package| ["--package", package]);
    ["build", "--bins"].into_iter().chain(packages).map(str::to_owned).collect()
}
