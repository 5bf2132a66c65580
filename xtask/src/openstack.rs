//! `cargo xtask openstack`: a real OpenStack control plane on this host, run by the scripts of `e2e/openstack`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Subcommand;

use crate::cargo;
use crate::conformance::with_junit;
use crate::step::{NamedCommand, Outcome};

#[derive(Debug, clap::Args)]
#[command(
    about = "Starts, stops and shows a real OpenStack on this host",
    long_about = "Starts, stops and shows a real OpenStack on this host: Keystone, Nova, Neutron, Octavia, Placement and \
                  Glance with MariaDB and RabbitMQ, on loopback ports, with simulated instances and load balancers. \
                  e2e/openstack/README.md describes it.",
    after_help = "Examples:\n  \
                  eval \"$(cargo xtask openstack up)\"        start it, and let clients of this shell find it\n  \
                  adapter-openstack --cloud demo            clouds.yaml is found by OS_CLIENT_CONFIG_FILE\n  \
                  openstack server list                     the client is in venv/bin below the home\n  \
                  cargo xtask openstack down --wipe         stop it and remove its data\n\n\
                  Exit codes:\n  \
                  0    success; status: all services answer\n  \
                  1    failure, see the lines above; status: a service does not answer\n  \
                  3    status: OpenStack is not running\n  \
                  130  ended by Ctrl-C: the next `up` continues, `down` stops the running processes"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Folder of programs, data and logs, at most 80 characters long [default: $OSTACK_HOME, else ~/.cache/cloud-controllers/openstack]
    #[arg(long, global = true, value_name = "FOLDER")]
    home: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Installs missing programs, starts stopped services, and prints the variables for clients
    ///
    /// The first start takes some minutes and 900 MB of disk space, later starts half a minute. The running services take 2.4 GB of memory.
    /// Progress goes to standard error, `export` lines to standard output. Missing Debian packages are installed if the user is root,
    /// otherwise listed. On a running OpenStack, restarts processes that have died.
    Up,
    /// Stops the processes that `up` started
    Down {
        /// Also remove the data; programs are kept
        #[arg(long)]
        wipe: bool,
    },
    /// Shows the port, the process and the state of each service
    Status,
}

/// Replaces this process with the script.
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

/// Builds everything, including the adapter and the suite, and replaces this process with the script that runs them. `flags` are for the
/// suite.
pub(crate) fn test(flags: &[String]) -> anyhow::Result<()> {
    let build = NamedCommand::cargo("build", cargo::build_all(), "fix what cargo reports above");
    if let Outcome::Failed(why) = build.run() {
        bail!("the adapter or the suite does not build: {why}");
    }
    let target = cargo::target();
    let mut script = script("test.sh");
    script.arg(target.join("debug")).arg(target.join("conformance").join("openstack"));
    script.args(with_junit("openstack", flags)?);
    become_it(script)
}

/// Returns a command for a script of `e2e/openstack`. The script `run.sh` runs a command with access to the cloud. If the cloud is not
/// running, `run.sh` starts the cloud, and stops it after the command.
pub(crate) fn script(name: &str) -> Command {
    Command::new(cargo::root().join("e2e").join("openstack").join(name))
}

/// Replaces this process with `exec`, so that only the script receives Ctrl-C and cleans up.
fn become_it(mut script: Command) -> anyhow::Result<()> {
    let error = script.exec();
    Err(error).with_context(|| format!("cannot start {}", script.get_program().display()))
}
