//! `cargo xtask test cluster`: builds what the scenarios on nodes need, and plays them one after the other.

use std::os::unix::process::CommandExt;

use anyhow::{Context as _, bail};

use super::programs;
use crate::images::{self, Linked};
use crate::python::Python;
use crate::{cargo, cluster};

/// What the chart runs there, and what its adapter asks.
const IMAGES: [&str; 4] = ["adapter-sim", "node-controller", "route-controller", "service-controller"];
/// Plays the scenarios that the arguments choose, on images that are linked so.
pub(crate) fn run(args: &[String], linked: Linked) -> anyhow::Result<()> {
    // Before minutes of building.
    e2e_cluster::root()?;
    let status = e2e_cluster::status(&cluster::layout()?);
    if status.any && status.all {
        bail!("a cluster runs, which these scenarios would end; end it first: `cargo xtask cluster down`");
    }
    let program = programs::build("cluster")?;
    let python = Python::get()?;
    let images = images::for_tests(&IMAGES, linked)?;
    // In our place: a signal to this process reaches the scenarios, which clean up.
    let error = programs::command(&program, &cargo::root().join("e2e"))
        .arg("--test-threads=1")
        .args(args)
        .env("CLUSTER_IMAGES", images)
        .env("CLUSTER_XTASK", cargo::built("xtask"))
        .env("CLUSTER_PYTHON", python.home())
        .exec();
    Err(error).context("cannot start the scenarios")
}
