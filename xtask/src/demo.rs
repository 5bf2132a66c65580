//! `cargo xtask demo`: builds the programs of the demo and replaces itself with the demo.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use e2e_tools::demo::Cloud;
use e2e_tools::{Environment, Estimate, Tool};

use crate::step::say;
use crate::{cargo, openstack};

/// The demo parses these arguments itself: it prints help and usage errors before anything is built.
pub(crate) use e2e_tools::demo::Args;

/// The usual time of the build of these programs in a new clone, on two cores.
const RUST: Duration = Duration::from_mins(10);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // A single build compiles shared crates once; cargo prints its progress to standard error.
    let adapter = match args.cloud {
        Cloud::Sim => &[][..],
        Cloud::Openstack => &["--package", "adapter-openstack"],
    };
    estimate(args.cloud)?;
    let built = Command::new(cargo::program())
        .args(cargo::build_demo())
        .args(adapter)
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the demo, the controllers or the adapter do not build; fix what cargo reports above");
    }
    // This process replaces itself with `exec` instead of waiting for a child, so that only the demo receives Ctrl-C and cleans up.
    let program =
        env::current_exe().context("cannot find cargo's folder of programs")?.with_file_name("demo");
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
        format!(
            "cannot start {}; `cargo xtask` was built with another profile than `cargo build` uses",
            program.display()
        )
    })
}

/// Prints how long the missing programs take to build. The demo builds its tools only after cargo has built the demo.
fn estimate(cloud: Cloud) -> anyhow::Result<()> {
    let adapter = match cloud {
        Cloud::Sim => "adapter-sim",
        Cloud::Openstack => "adapter-openstack",
    };
    let is_missing = |program: &&str| !cargo::built(program).is_file();
    let mut estimate = Estimate::default();
    if ["demo", "cloudctl", adapter].iter().any(is_missing) {
        estimate = estimate.with_rust(RUST);
    }
    let tools = e2e_tools::missing(&Tool::ALL, &Environment::of_this_process()?)?;
    if let Some(line) = estimate.with_tools(&tools).line() {
        say(&line);
    }
    Ok(())
}
