//! The search: which of the places has a program that will do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::build::{self, Lock};
use crate::environment::Environment;
use crate::progress::Progress;
use crate::recipe::Recipe;
use crate::tool::Tool;
use crate::version::Version;

/// The programs of a control plane for tests.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The store.
    pub etcd: Found,
    /// The API server.
    pub kube_apiserver: Found,
    /// The command-line client.
    pub kubectl: Found,
    /// The installer.
    pub helm: Found,
}

/// A program and where it comes from.
#[derive(Clone, Debug)]
pub struct Found {
    /// Which one.
    pub tool: Tool,
    /// The executable file.
    pub path: PathBuf,
    /// What it says of itself, or what it was built as.
    pub version: Version,
    /// Which place had it.
    pub origin: Origin,
}

/// The places, in the order of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `KUBEBUILDER_ASSETS`.
    Assets,
    /// `PATH`.
    Path,
    /// Built by an earlier call.
    Cache,
    /// Built by this call.
    Built,
}

/// Why there is no complete set of programs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no directory for what is built.
    #[error(
        "neither XDG_CACHE_HOME nor HOME names a directory; set XDG_CACHE_HOME to one that may be written to"
    )]
    NoCache,
    /// There is no compiler.
    #[error(
        "{tool} {} is not in KUBEBUILDER_ASSETS, PATH or the cache, and cannot be built because there is no `go` in PATH; \
         install Go 1.26 or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a directory that has it",
        .tool.version()
    )]
    NoGo {
        /// The program that was to be built.
        tool: Tool,
    },
    /// The compiler is too old to fetch the one that the pins want.
    #[error(
        "{tool} {} is not in KUBEBUILDER_ASSETS, PATH or the cache, and cannot be built because the `go` in PATH is {found}; \
         install Go 1.26 or newer (https://go.dev/dl; 1.21 or newer will do where it may download the rest), or set \
         KUBEBUILDER_ASSETS to a directory that has etcd, kube-apiserver, kubectl and helm of these versions",
        .tool.version()
    )]
    OldGo {
        /// The program that was to be built.
        tool: Tool,
        /// What the compiler calls itself, such as `go1.19.13`.
        found: String,
    },
    /// The compiler, or the download of a module, failed.
    #[error("`go build` of {tool} failed; its last lines are:\n{output}")]
    Build {
        /// The program that was to be built.
        tool: Tool,
        /// What the compiler said.
        output: String,
    },
    /// Neither `PATH` nor apt has Prometheus.
    #[error(
        "prometheus and promtool are not in PATH, and Debian's package cannot be had: {output}; run `apt-get update` as root, or \
         install Prometheus (https://prometheus.io/download) into a directory of PATH"
    )]
    NoPrometheus {
        /// What apt said.
        output: String,
    },
    /// A file operation failed.
    #[error("{what} {}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Tools {
    /// Finds all four, and builds those that are nowhere.
    ///
    /// Cost: one short-lived process for each candidate outside the cache; about 6 minutes if all have to be built.
    ///
    /// # Errors
    /// When a program is nowhere and cannot be built.
    pub fn get(environment: &Environment, progress: &mut dyn Progress) -> Result<Self, Error> {
        Ok(Self {
            etcd: find(Tool::Etcd, environment, progress)?,
            kube_apiserver: find(Tool::KubeApiserver, environment, progress)?,
            kubectl: find(Tool::Kubectl, environment, progress)?,
            helm: find(Tool::Helm, environment, progress)?,
        })
    }

    /// All of them, in the order of [`Tool::ALL`].
    pub fn all(&self) -> [&Found; 4] {
        [&self.etcd, &self.kube_apiserver, &self.kubectl, &self.helm]
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Assets => "KUBEBUILDER_ASSETS",
            Self::Path => "PATH",
            Self::Cache => "cache",
            Self::Built => "built",
        })
    }
}

/// Finds one program, or builds it.
///
/// Cost: one short-lived process for each candidate outside the cache; what `Tool::build_time` says if it has to be built.
///
/// # Errors
/// When it is nowhere and cannot be built.
pub fn find(tool: Tool, environment: &Environment, progress: &mut dyn Progress) -> Result<Found, Error> {
    let candidates = environment.assets.iter().map(|dir| (Origin::Assets, dir));
    for (origin, dir) in candidates.chain(environment.path.iter().map(|dir| (Origin::Path, dir))) {
        match judge(tool, &dir.join(tool.name())) {
            Verdict::Absent => {}
            Verdict::PassedOver(why) => progress.note(&format!("{origin}: passed over {why}")),
            Verdict::Good(path, version) => return Ok(Found { tool, path, version, origin }),
        }
    }
    let recipe = Recipe::read(tool, &environment.modules)?;
    let found = |path, origin| Found { tool, path, version: tool.version(), origin };
    let path = recipe.executable(&environment.cache);
    if path.is_file() {
        return Ok(found(path, Origin::Cache));
    }
    let lock = Lock::take(&environment.cache, progress)?;
    if path.is_file() {
        // The process that held the lock built it meanwhile.
        return Ok(found(path, Origin::Cache));
    }
    build::build(&recipe, &environment.cache, &lock, progress).map(|path| found(path, Origin::Built))
}

/// What to think of a file that has the right name.
enum Verdict {
    Absent,
    PassedOver(String),
    Good(PathBuf, Version),
}

fn judge(tool: Tool, path: &Path) -> Verdict {
    if !path.is_file() {
        return Verdict::Absent;
    }
    let shown = path.display();
    let answer = match Command::new(path).args(tool.version_args()).stdin(Stdio::null()).output() {
        Ok(answer) => answer,
        Err(error) => return Verdict::PassedOver(format!("{shown}: it does not start: {error}")),
    };
    match Version::find(&String::from_utf8_lossy(&answer.stdout)) {
        Some(version) if version.stands_in_for(tool.version()) => Verdict::Good(path.to_path_buf(), version),
        Some(version) => {
            Verdict::PassedOver(format!("{shown}: it is {version}, wanted is {}", tool.version()))
        }
        None => Verdict::PassedOver(format!("{shown}: it does not tell its version")),
    }
}

#[cfg(test)]
mod tests;
