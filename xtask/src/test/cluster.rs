//! `cargo xtask test cluster`: builds what the scenarios on nodes need, and plays them one after the other.

use std::env;
use std::os::unix::process::CommandExt;

use anyhow::{Context, bail};

use super::lanes;
use crate::python::Python;
use crate::{cargo, cluster, images};

/// What the chart runs there, and what its adapter asks.
const IMAGES: [&str; 4] = ["adapter-sim", "node-controller", "route-controller", "service-controller"];
/// The scenarios.
const PROGRAM: [&str; 6] = ["--package", "e2e", "--features", "cluster", "--test", "cluster"];

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    // Before minutes of building.
    e2e_cluster::root()?;
    let status = e2e_cluster::status(&cluster::layout()?);
    if status.any && status.all {
        bail!("a cluster runs, which these scenarios would end; end it first: `cargo xtask cluster down`");
    }
    let python = Python::get()?;
    let images = images::for_tests(&IMAGES)?;
    cluster::build_simcloud()?;
    cluster::build_cloudctl()?;
    let xtask = env::current_exe().context("cannot tell where cargo puts programs")?;
    let program =
        lanes::build(&PROGRAM)?.pop_front().context("cargo does not say where the scenarios are")?;
    // In our place: whoever ends us, by whatever signal, ends the scenarios, which leave nothing.
    let error = program
        .command(&cargo::root().join("e2e"))
        .arg("--test-threads=1")
        .args(args)
        .env("CLUSTER_IMAGES", images)
        .env("CLUSTER_XTASK", xtask)
        .env("CLUSTER_PYTHON", python.home())
        .exec();
    Err(error).context("cannot start the scenarios")
}
