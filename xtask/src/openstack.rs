//! `cargo xtask openstack`: a real OpenStack control plane on this machine, by the scripts of `e2e/openstack`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Subcommand;

use crate::cargo;
use crate::conformance::with_junit;
use crate::step::{Outcome, Step};

#[derive(Debug, clap::Args)]
#[command(
    about = "Starts, stops and shows a real OpenStack on this machine",
    long_about = "Starts, stops and shows a real OpenStack on this machine: Keystone, Nova, Neutron, Octavia, Placement and \
                  Glance with MariaDB and RabbitMQ, on loopback ports, with machines and load balancers that do nothing. \
                  e2e/openstack/README.md tells what is in it.",
    after_help = "Examples:\n  \
                  eval \"$(cargo xtask openstack up)\"        start it, and let clients of this shell find it\n  \
                  adapter-openstack --cloud demo            clouds.yaml is found by OS_CLIENT_CONFIG_FILE\n  \
                  openstack server list                     the client is in venv/bin below the home\n  \
                  cargo xtask openstack down --wipe         stop it and remove its data\n\n\
                  Exit codes:\n  \
                  0    done; of status: everything answers\n  \
                  1    it failed, the lines above say where; of status: something does not answer\n  \
                  3    of status: nothing runs\n  \
                  130  ended by Ctrl-C: up goes on from there, down stops what runs"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Where programs, data and logs are kept: at most 80 characters [default: $OSTACK_HOME, else
    /// ~/.cache/cloud-controllers/openstack]
    #[arg(long, global = true, value_name = "FOLDER")]
    home: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Installs what is missing, starts what does not run, and prints what a shell must know
    ///
    /// The first time takes some minutes and 900 MB, half a minute later on; 2.4 GB of memory while it runs. Progress goes to
    /// standard error, `export` lines to standard output. Debian packages that are missing are installed if this is root, and named
    /// if it is not. Again while it runs: starts what has died.
    Up,
    /// Stops what `up` started
    Down {
        /// Remove the data, too; programs stay
        #[arg(long)]
        wipe: bool,
    },
    /// Shows each service, its port, its process, and whether it answers
    Status,
}

/// Becomes the script.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = match args.what {
        What::Up => script("up.sh"),
        What::Down { .. } => script("down.sh"),
        What::Status => script("status.sh"),
    };
    if let What::Down { wipe: true } = args.what {
        script.arg("--wipe");
    }
    if let Some(home) = &args.home {
        let home = std::path::absolute(home).with_context(|| format!("--home {}", home.display()))?;
        script.env("OSTACK_HOME", home);
    }
    become_it(script)
}

/// Builds everything, with it the adapter and the suite, and becomes the script that runs them. `flags`: of the suite.
pub(crate) fn test(flags: &[String]) -> anyhow::Result<()> {
    let build = Step::cargo("build", cargo::build_all(), "fix what cargo names above");
    if let Outcome::Failed(why) = build.run() {
        bail!("the adapter or the suite does not build: {why}");
    }
    let target = cargo::target();
    let mut script = script("test.sh");
    script.arg(target.join("debug")).arg(target.join("conformance").join("openstack"));
    script.args(with_junit("openstack", flags)?);
    become_it(script)
}

/// One of `e2e/openstack`. `run.sh` runs a command that finds the cloud; if nothing of that runs, it is started, and stopped in the end.
pub(crate) fn script(name: &str) -> Command {
    Command::new(cargo::root().join("e2e").join("openstack").join(name))
}

/// Instead of waiting for it: so one process hears Ctrl-C, the one that cleans up.
fn become_it(mut script: Command) -> anyhow::Result<()> {
    let error = script.exec();
    Err(error).with_context(|| format!("cannot start {}", script.get_program().display()))
}
