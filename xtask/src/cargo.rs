//! Paths of the repository, of cargo and of its output, and the arguments of builds.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The packages whose programs the demo runs: the controllers and the adapter as processes instead of containers, and `cloudctl` as a user
/// would.
const OF_THE_DEMO: [&str; 6] =
    ["adapter-sim", "cloudctl", "e2e", "node-controller", "route-controller", "service-controller"];

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that started this program, so that the toolchain stays the same.
pub(crate) fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

/// The path of a program that cargo built for development. Does not use the path of the running program, because a later build may have
/// replaced that file.
pub(crate) fn built(program: &str) -> PathBuf {
    target().join("debug").join(program)
}

/// The arguments that build all programs and tests of the workspace. All commands that run these programs use the same arguments, because
/// cargo unifies the features of dependencies over the selected packages. A different selection would recompile most dependencies.
pub(crate) fn build_all() -> Vec<String> {
    ["build", "--workspace", "--bins", "--tests"].map(str::to_owned).to_vec()
}

/// The arguments that build the demo and its programs without tests, which is faster.
pub(crate) fn build_demo() -> Vec<String> {
    let packages = OF_THE_DEMO.iter().flat_map(|package| ["--package", package]);
    ["build", "--bins"].into_iter().chain(packages).map(str::to_owned).collect()
}
