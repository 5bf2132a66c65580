//! `cargo xtask metrics`: generates the tables of docs/reference/metrics.md. The unit tests that compare the tables also write them.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::cargo;

/// The packages whose unit tests write the tables.
const CRATES: [&str; 5] =
    ["cloud-adapter", "controller-core", "node-controller", "service-controller", "route-controller"];

pub(crate) fn write() -> anyhow::Result<()> {
    for name in CRATES {
        let written = Command::new(cargo::program())
            .args(["test", "--quiet", "--package", name, "--lib"])
            .args(["--", "in_the_reference", "--test-threads=1"])
            .env("UPDATE_REFERENCE", "1")
            .current_dir(cargo::root())
            .status()
            .context("cannot start cargo")?;
        ensure!(written.success(), "the test of {name} failed; fix what it reports above");
    }
    Ok(())
}
