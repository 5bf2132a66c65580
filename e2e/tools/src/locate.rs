//! Searches all places for a suitable program.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::build::{self, Lock};
use crate::environment::Environment;
use crate::error::Error;
use crate::progress::{Progress, Quiet};
use crate::recipe::Recipe;
use crate::tool::Tool;
use crate::version::Version;

/// The programs of a control plane for tests.
#[derive(Clone, Debug)]
pub struct Tools {
    /// etcd.
    pub etcd: Found,
    /// The API server.
    pub kube_apiserver: Found,
    /// kubectl.
    pub kubectl: Found,
    /// Helm.
    pub helm: Found,
}

/// A program and its origin.
#[derive(Clone, Debug)]
pub struct Found {
    /// The program.
    pub tool: Tool,
    /// The executable file.
    pub path: PathBuf,
    /// The reported version, or the version that was built.
    pub version: Version,
    /// The place where the program was found.
    pub origin: Origin,
}

/// The places where programs are searched, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `KUBEBUILDER_ASSETS`.
    Assets,
    /// `PATH`.
    Path,
    /// The cache, filled by an earlier build.
    Cache,
    /// A build by this call.
    Built,
}

impl Tools {
    /// Finds all four programs, and builds the missing ones.
    ///
    /// Cost: one short-lived process for each candidate outside the cache; about 6 minutes if all have to be built.
    pub fn get(environment: &Environment, progress: &mut dyn Progress) -> Result<Self, Error> {
        Ok(Self {
            etcd: find(Tool::Etcd, environment, progress)?,
            kube_apiserver: find(Tool::KubeApiserver, environment, progress)?,
            kubectl: find(Tool::Kubectl, environment, progress)?,
            helm: find(Tool::Helm, environment, progress)?,
        })
    }

    /// All programs, in the order of [`Tool::ALL`].
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
/// Cost: one short-lived process for each candidate outside the cache; `Tool::build_time` if the program is not found and has to be built.
pub fn find(tool: Tool, environment: &Environment, progress: &mut dyn Progress) -> Result<Found, Error> {
    let recipe = match search(tool, environment, progress)? {
        Search::Found(found) => return Ok(found),
        Search::Missing(recipe) => recipe,
    };
    let found = |path, origin| Found { tool, path, version: tool.version(), origin };
    let path = recipe.executable(&environment.cache);
    let lock = Lock::take(&environment.cache, progress)?;
    if path.is_file() {
        // Another process that held the lock may have built the program in the meantime.
        return Ok(found(path, Origin::Cache));
    }
    build::build(&recipe, &environment.cache, &lock, progress).map(|path| found(path, Origin::Built))
}

/// Returns the programs that [`find`] would have to build.
///
/// Cost: one short-lived process for each candidate outside the cache.
pub fn missing(tools: &[Tool], environment: &Environment) -> Result<Vec<Tool>, Error> {
    let mut all = Vec::new();
    for &tool in tools {
        match search(tool, environment, &mut Quiet)? {
            Search::Found(_) => {}
            Search::Missing(_) => all.push(tool),
        }
    }
    Ok(all)
}

enum Search {
    Found(Found),
    Missing(Recipe),
}

fn search(tool: Tool, environment: &Environment, progress: &mut dyn Progress) -> Result<Search, Error> {
    let candidates = environment.assets.iter().map(|dir| (Origin::Assets, dir));
    for (origin, dir) in candidates.chain(environment.path.iter().map(|dir| (Origin::Path, dir))) {
        match judge(tool, &dir.join(tool.name())) {
            Verdict::Absent => {}
            Verdict::PassedOver(why) => progress.note(&format!("{origin}: skipped {why}")),
            Verdict::Good(path, version) => return Ok(Search::Found(Found { tool, path, version, origin })),
        }
    }
    let recipe = Recipe::read(tool, &environment.modules)?;
    let path = recipe.executable(&environment.cache);
    Ok(match path.is_file() {
        true => Search::Found(Found { tool, path, version: tool.version(), origin: Origin::Cache }),
        false => Search::Missing(recipe),
    })
}

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
        Err(error) => return Verdict::PassedOver(format!("{shown}: cannot start: {error}")),
    };
    match Version::find(&String::from_utf8_lossy(&answer.stdout)) {
        Some(version) if version.stands_in_for(tool.version()) => Verdict::Good(path.to_path_buf(), version),
        Some(version) => Verdict::PassedOver(format!(
            "{shown}: the version is {version}, but {} is required",
            tool.version()
        )),
        None => Verdict::PassedOver(format!("{shown}: does not report its version")),
    }
}

#[cfg(test)]
mod tests;
