//! The Python adapter, `examples/python-adapter`: the environment below target/, the type checks and the tests.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;
use crate::tool::{Tool, run_captured};

const FOLDER: &str = "examples/python-adapter";
const REQUIREMENTS: [&str; 2] = ["requirements.txt", "requirements-dev.txt"];

/// The environment: an interpreter with its packages, and the code generated from the contract.
#[derive(Debug)]
pub(crate) struct Python {
    program: PathBuf,
    generated: PathBuf,
}

impl Python {
    /// Returns the environment; creates it if it is missing or was created for other requirements.
    ///
    /// Cost: a minute the first time, later a second to generate the code of the contract.
    pub(crate) fn get() -> anyhow::Result<Self> {
        let home = cargo::root().join("target").join("python");
        let venv = home.join("venv");
        let python = Self { program: venv.join("bin").join("python3"), generated: home.join("gen") };
        let wanted = requirements()?;
        let stamp = venv.join(".installed");
        if fs::read_to_string(&stamp).ok().as_deref() != Some(wanted.as_str()) {
            python.install(&venv)?;
            fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
        }
        python.generate()?;
        Ok(python)
    }

    /// The folder with `venv` and `gen`.
    pub(crate) fn home(&self) -> &Path {
        self.generated.parent().unwrap_or(&self.generated)
    }

    /// A command for the interpreter, run in the adapter's folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(folder());
        command.env("PYTHONPATH", &self.generated).env("MYPYPATH", &self.generated);
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
        command
    }

    fn install(&self, venv: &Path) -> anyhow::Result<()> {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(venv);
        run_captured(&mut make, "install Python 3.11 or newer with its module venv")?;
        let mut pip = Command::new(&self.program);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]);
        pip.args(["--only-binary", ":all:"]).current_dir(folder());
        for file in REQUIREMENTS {
            pip.args(["-r", file]);
        }
        run_captured(&mut pip, "pip needs PyPI, or a mirror named by PIP_INDEX_URL")
    }

    /// Generates the code of the contract. This happens each time, because the contract may have changed.
    fn generate(&self) -> anyhow::Result<()> {
        let mut script = Command::new(folder().join("generate.sh"));
        script.arg(cargo::root().join("cloud-api-proto/proto")).arg(&self.generated);
        script.env("PATH", self.path()?);
        run_captured(&mut script, "see the output of protoc above")
    }

    /// The environment's programs come first in PATH, so that protoc finds its plugins.
    fn path(&self) -> anyhow::Result<OsString> {
        let bin = self.program.parent().context("a program has a folder")?.to_owned();
        let inherited = env::var_os("PATH").unwrap_or_default();
        let rest = env::split_paths(&inherited);
        Ok(env::join_paths(std::iter::once(bin).chain(rest))?)
    }
}

/// Runs the adapter's type checks and its own tests.
pub(crate) fn check() -> anyhow::Result<()> {
    let python = Python::get()?;
    let cache = cargo::root().join("target/python/mypy").display().to_string();
    for args in [&["-m", "mypy", "--cache-dir", &cache][..], &["-m", "unittest", "--quiet"]] {
        let status = python.command(args).status().context("cannot start Python")?;
        if !status.success() {
            bail!("`python3 {}` failed in {FOLDER} ({status})", args.join(" "));
        }
    }
    Ok(())
}

/// Checks that the chart renders with the adapter's values, and that the rendered chart passes only flags that the adapter accepts.
pub(crate) fn chart() -> anyhow::Result<()> {
    let mut helm = Command::new(Tool::Helm.get()?);
    helm.args([
        "template",
        "example",
        "helm/cloud-controllers",
        "--show-only",
        "templates/cloud-adapter.yaml",
    ]);
    helm.arg("--values").arg(folder().join("values.yaml"));
    let rendered = helm.current_dir(cargo::root()).output().context("cannot start helm")?;
    if !rendered.status.success() {
        bail!("the chart does not render: {}", String::from_utf8_lossy(&rendered.stderr).trim());
    }
    let text = String::from_utf8_lossy(&rendered.stdout);
    let items = text.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let flags: Vec<&str> =
        items.map(|item| item.trim_matches('"')).filter(|item| item.starts_with("--")).collect();
    if flags.is_empty() {
        bail!("the chart passes no flags to the adapter");
    }
    let mut parse = Python::get()?.command(&["-c", "from mem_adapter.__main__ import parse; parse()"]);
    run_captured(parse.args(flags), "the chart passes flags that the adapter does not know")
}

fn folder() -> PathBuf {
    cargo::root().join(FOLDER)
}

/// Returns the texts of the requirements files. The environment is created again when they change.
fn requirements() -> anyhow::Result<String> {
    let read = |file: &&str| {
        let path = folder().join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    REQUIREMENTS.iter().map(read).collect()
}
