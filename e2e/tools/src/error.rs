//! The reasons why a program is missing.

use std::io;
use std::path::PathBuf;

use crate::tool::Tool;

/// The reason why a program is missing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no directory for the cache.
    #[error("neither XDG_CACHE_HOME nor HOME names a directory; set XDG_CACHE_HOME to a writable one")]
    NoCache,
    /// There is no Go compiler.
    #[error(
        "{tool} {} is not in KUBEBUILDER_ASSETS, PATH or the cache, and cannot be built because `go` \
         is not in PATH; install Go 1.26 or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a \
         directory that has it",
        .tool.version()
    )]
    NoGo {
        /// The program to build.
        tool: Tool,
    },
    /// The compiler is too old to download the version that the pins require.
    #[error(
        "{tool} {} is not in KUBEBUILDER_ASSETS, PATH or the cache, and cannot be built because the `go` in PATH is {found}; \
         install Go 1.26 or newer (https://go.dev/dl; 1.21 or newer will do where it may download the rest), or set \
         KUBEBUILDER_ASSETS to a directory that has etcd, kube-apiserver, kubectl and helm of these versions",
        .tool.version()
    )]
    OldGo {
        /// The program to build.
        tool: Tool,
        /// The reported version of the compiler, such as `go1.19.13`.
        found: String,
    },
    /// The compiler, or the download of a module, failed.
    #[error("`go build` of {tool} failed; its last lines are:\n{output}")]
    Build {
        /// The program to build.
        tool: Tool,
        /// The end of the output.
        output: String,
    },
    /// Neither `PATH` nor apt has Prometheus.
    #[error(
        "prometheus and promtool are not in PATH, and Debian's package cannot be downloaded: \
         {output}; run `apt-get update` as root, or install Prometheus (https://prometheus.io/download) \
         into a directory of PATH"
    )]
    NoPrometheus {
        /// The output of apt.
        output: String,
    },
    /// A file operation failed.
    #[error("{what} {}", .path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}
