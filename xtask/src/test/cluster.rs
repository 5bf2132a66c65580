//! `cargo xtask test cluster`: builds what the scenarios on nodes need, and plays them one after the other.

use std::env;
use std::process::Command;

use anyhow::{Context, bail};

use crate::python::Python;
use crate::{cargo, images};

/// What the chart runs there, and what its adapter asks.
const IMAGES: [&str; 4] = ["adapter-sim", "node-controller", "route-controller", "service-controller"];

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    // Before minutes of building.
    e2e_cluster::root()?;
    let status = e2e_cluster::status(&crate::cluster::layout()?);
    if status.any && status.all {
        bail!("a cluster runs, which these scenarios would end; end it first: `cargo xtask cluster down`");
    }
    let python = Python::get()?;
    let images = images::for_tests(&IMAGES)?;
    build()?;
    let xtask = env::current_exe().context("cannot tell where cargo puts programs")?;
    let status = Command::new(cargo::program())
        .args(["test", "--package", "e2e", "--features", "cluster", "--test", "cluster", "--"])
        .arg("--test-threads=1")
        .args(args)
        .env("CLUSTER_IMAGES", images)
        .env("CLUSTER_XTASK", xtask)
        .env("CLUSTER_PYTHON", python.home())
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!(
            "read the failure above, which names the logs it kept; one test again: `cargo xtask test cluster -- <test>`"
        );
    }
    Ok(())
}

/// The cloud that runs beside the cluster.
fn build() -> anyhow::Result<()> {
    let status = Command::new(cargo::program())
        .args(["build", "--package", "adapter-sim", "--bin", "simcloud"])
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the simulated cloud does not build; mend what cargo names above");
    }
    Ok(())
}
