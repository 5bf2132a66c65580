//! `cargo xtask test cluster`: builds the programs and images for the scenarios on nodes, and runs the scenarios one after the other.

use std::os::unix::process::CommandExt;

use anyhow::{Context as _, bail};

use super::{programs, release};
use crate::images::{self, Linked};
use crate::python::Python;
use crate::{cargo, cluster};

/// The images that the chart runs in these scenarios, and the simulated cloud.
const IMAGES: [&str; 5] =
    ["adapter-sim", "cloudctl", "node-controller", "route-controller", "service-controller"];
pub(crate) fn run(args: &[String], linked: Linked) -> anyhow::Result<()> {
    // This check comes first, because the build takes minutes.
    e2e_tools::cluster::root()?;
    let status = e2e_tools::cluster::status(&cluster::layout()?);
    if status.any && status.all {
        bail!(
            "a cluster is running, and these scenarios would stop it; stop it first: `cargo xtask cluster down`"
        );
    }
    let program = programs::build("cluster")?;
    let python = Python::get()?;
    let images = images::for_tests(&IMAGES, linked)?;
    // The process replaces itself with `exec`, so that signals reach the scenarios, which clean up.
    let error = programs::command(&program, &cargo::root().join("e2e"))
        .args(["--test-threads=1", "--skip", release::SCENARIO])
        .args(args)
        .env("CLUSTER_IMAGES", images)
        .env("CLUSTER_XTASK", cargo::built("xtask"))
        .env("CLUSTER_PYTHON", python.home())
        .exec();
    Err(error).context("cannot start the scenarios")
}
