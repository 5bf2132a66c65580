//! `cargo xtask test cluster`: builds what the scenarios on nodes need, and runs them one after the other.

use std::os::unix::process::CommandExt;

use anyhow::{Context as _, bail};

use super::programs;
use crate::images::{self, Linked};
use crate::python::Python;
use crate::{cargo, cluster};

/// The images that the chart runs there, and the simulated cloud.
const IMAGES: [&str; 4] = ["adapter-sim", "node-controller", "route-controller", "service-controller"];
/// Runs the selected scenarios, on images that are linked in this way.
pub(crate) fn run(args: &[String], linked: Linked) -> anyhow::Result<()> {
    // Checked before the build, which takes minutes.
    e2e_cluster::root()?;
    let status = e2e_cluster::status(&cluster::layout()?);
    if status.any && status.all {
        bail!(
            "a cluster is running, which these scenarios would stop; stop it first: `cargo xtask cluster down`"
        );
    }
    let program = programs::build("cluster")?;
    let python = Python::get()?;
    let images = images::for_tests(&IMAGES, linked)?;
    // `exec`: signals then reach the scenarios, which clean up.
    let error = programs::command(&program, &cargo::root().join("e2e"))
        .arg("--test-threads=1")
        .args(args)
        .env("CLUSTER_IMAGES", images)
        .env("CLUSTER_XTASK", cargo::built("xtask"))
        .env("CLUSTER_PYTHON", python.home())
        .exec();
    Err(error).context("cannot start the scenarios")
}
