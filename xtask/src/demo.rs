//! `cargo xtask demo`: builds what the demo needs and becomes it.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};

use e2e_tools::demo::Cloud;

use crate::{cargo, openstack};

/// The demo's own: help and wrong usage are told before anything is built.
pub(crate) use e2e_tools::demo::Args;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // One build for all, so that what they share is compiled once; cargo shows its progress on standard error.
    let adapter = match args.cloud {
        Cloud::Sim => &[][..],
        Cloud::Openstack => &["--package", "adapter-openstack"],
    };
    let built = Command::new(cargo::program())
        .args(cargo::build_demo())
        .args(adapter)
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the demo, the controllers or the adapter do not build; mend what cargo names above");
    }
    // Becoming the demo, instead of waiting for it, leaves one process to hear Ctrl-C: the one that cleans up.
    let program = env::current_exe().context("cannot tell where cargo puts programs")?.with_file_name("demo");
    let mut demo = match args.cloud {
        Cloud::Sim => Command::new(&program),
        Cloud::Openstack => {
            let mut script = openstack::script("run.sh");
            script.arg(&program);
            script
        }
    };
    let error = demo.args(args.to_flags()).exec();
    Err(error).with_context(|| {
        format!("cannot start {}; `cargo xtask` is of another profile than `cargo build`", program.display())
    })
}
