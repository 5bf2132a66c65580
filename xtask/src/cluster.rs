//! `cargo xtask cluster`: a complete Kubernetes cluster on this host, with nodes that run pods.

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use e2e_tools::cluster::Programs;
use e2e_tools::cluster::layout::NODES_MAX;
use e2e_tools::cluster::up::Cloud;
use e2e_tools::cluster::{Layout, Order};
use e2e_tools::{Environment, Estimate, Terminal, Tool};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::cargo;
use crate::step::say;

/// The usual time of the build of the simulated cloud, without those of its crates that this program has, too. On two cores.
const SIMCLOUD: Duration = Duration::from_mins(5);

#[derive(Debug, clap::Args)]
#[command(
    about = "Starts, stops and uses a Kubernetes cluster on this host",
    long_about = "Starts, stops and uses a Kubernetes cluster on this host: a control plane and \
    one to three nodes that run pods, in separate network namespaces, as root. The kubelets run with \
    --cloud-provider=external, so the nodes keep the taint \
    node.cloudprovider.kubernetes.io/uninitialized until a controller removes it. The cluster has no \
    access to other networks or registries: images come from archives.",
    after_help = "Examples:\n  \
                  cargo xtask cluster up --nodes 2 --sim      two nodes, and a simulated cloud at http://10.90.0.1:9797\n  \
                  cargo xtask cluster load dist/images/*.tar  load what `cargo xtask images` built onto each node\n  \
                  cargo xtask cluster kubectl -- get nodes    run kubectl from any folder\n  \
                  cargo xtask cluster down\n\n\
                  Exit codes:\n  \
                  0    success; status: all processes are running\n  \
                  1    failure, see the lines above; status: a process has ended\n  \
                  3    status: the cluster is not running\n  \
                  130  ended by Ctrl-C: `up` has removed everything again"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Starts the missing processes of the cluster, and prints the path of the kubeconfig
    ///
    /// The first start builds missing programs from Go modules, which takes 3 minutes in addition to `cargo xtask tools`; later starts take
    /// about 10 seconds. Installs missing Debian packages. On a running cluster, restarts processes that have died and adds nodes.
    Up {
        /// Number of nodes
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(NODES_MAX)))]
        nodes: u8,
        /// Start a simulated cloud with the nodes as instances, and apply its routes: pods of different nodes reach each other only through
        /// these routes
        #[arg(long)]
        sim: bool,
    },
    /// Stops all processes and removes all files and networks; also after a crash
    Down,
    /// Shows each process and its log
    Status,
    /// Runs kubectl as the administrator
    Kubectl {
        /// Arguments for kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<String>,
    },
    /// Loads images onto all running nodes
    Load {
        /// Archives of `cargo xtask images` or `docker save`, which include the names of the images
        #[arg(required = true, value_name = "IMAGE.tar")]
        images: Vec<PathBuf>,
    },
    #[command(hide = true)]
    Register { nodes: u8 },
    #[command(hide = true)]
    DataPlane,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let layout = layout()?;
    match &args.what {
        What::Up { nodes, sim } => return up(&layout, *nodes, *sim),
        What::Down => {
            e2e_tools::cluster::root()?;
            let _lock = e2e_tools::cluster::lock(&layout)?;
            runtime()?.block_on(e2e_tools::cluster::down(&layout))?;
        }
        What::Status => return status(&layout),
        What::Kubectl { args } => {
            e2e_tools::cluster::check(&layout)?;
            let error = e2e_tools::cluster::kubectl(&layout, &programs(&[Tool::Kubectl])?)?.args(args).exec();
            return Err(error).context("cannot start kubectl");
        }
        What::Load { images } => {
            e2e_tools::cluster::check(&layout)?;
            e2e_tools::cluster::load(&layout, &programs(&[Tool::Ctr])?, images)?;
        }
        What::Register { nodes } => runtime()?.block_on(e2e_tools::cluster::cloud::register(*nodes))?,
        What::DataPlane => runtime()?.block_on(e2e_tools::cluster::data_plane::run()),
    }
    Ok(ExitCode::SUCCESS)
}

fn up(layout: &Layout, nodes: u8, sim: bool) -> anyhow::Result<ExitCode> {
    // This check comes first, because the build takes minutes.
    e2e_tools::cluster::root()?;
    estimate(sim)?;
    let cloud = if sim { Some(cloud(nodes)?) } else { None };
    let _lock = e2e_tools::cluster::lock(layout)?;
    let order = Order { nodes, cloud, pod_network: true, programs: programs(&Tool::CLUSTER)? };
    runtime()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
        let mut hang_up = signal(SignalKind::hangup()).context("cannot catch SIGHUP, which the end \
        of the terminal sends")?;
        tokio::select! {
            done = e2e_tools::cluster::up(layout, &order) => {
                done.context("the started processes are kept for inspection; `cargo xtask cluster down` removes them")?;
                let path = layout.kubeconfig();
                writeln!(io::stdout(), "{}", path.display()).context("cannot write to standard output")?;
                return Ok(ExitCode::SUCCESS);
            }
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            _ = hang_up.recv() => (),
        }
        say("Interrupted; removing the processes that were started");
        e2e_tools::cluster::down(layout).await?;
        Ok(ExitCode::from(130))
    })
}

/// Prints how long the missing programs take to build.
fn estimate(sim: bool) -> anyhow::Result<()> {
    let mut estimate = Estimate::default();
    if sim && !cargo::built("simcloud").is_file() {
        estimate = estimate.with_rust(SIMCLOUD);
    }
    let tools = e2e_tools::missing(&Tool::CLUSTER, &Environment::of_this_process()?)?;
    if let Some(line) = estimate.with_tools(&tools).line() {
        say(&line);
    }
    Ok(())
}

fn status(layout: &Layout) -> anyhow::Result<ExitCode> {
    let status = e2e_tools::cluster::status(layout);
    if !status.any {
        say("the cluster is not running");
        return Ok(ExitCode::from(3));
    }
    write!(io::stdout(), "{}", status.text).context("cannot write to standard output")?;
    Ok(if status.all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the simulated cloud and returns its path, next to this program.
pub(crate) fn build_simcloud() -> anyhow::Result<PathBuf> {
    build(&["--package", "adapter-sim", "--bin", "simcloud"])?;
    let ourselves = env::current_exe().context("cannot find cargo's folder of programs")?;
    Ok(ourselves.with_file_name("simcloud"))
}

fn build(what: &[&str]) -> anyhow::Result<()> {
    let built = Command::new(cargo::program()).arg("build").args(what).current_dir(cargo::root()).status();
    if !built.context("cannot start cargo")?.success() {
        bail!("cargo build {} failed; fix what cargo reports above", what.join(" "));
    }
    Ok(())
}

fn cloud(nodes: u8) -> anyhow::Result<Cloud> {
    let simcloud = build_simcloud()?;
    let ourselves = env::current_exe().context("cannot find cargo's folder of programs")?;
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Ok(Cloud {
        simcloud,
        register: words(&["cluster", "register", &nodes.to_string()]),
        data_plane: words(&["cluster", "data-plane"]),
        ourselves,
    })
}

/// Finds or builds these programs, with progress on standard error.
fn programs(tools: &[Tool]) -> anyhow::Result<Programs> {
    let environment = Environment::of_this_process()?;
    let mut progress = Terminal::new();
    let found = tools.iter().map(|&tool| {
        let found = e2e_tools::find(tool, &environment, &mut progress)?;
        // Processes in the mount namespace of a node have another working directory.
        Ok((tool, std::path::absolute(found.path).context("cannot read the working directory")?))
    });
    Ok(Programs(found.collect::<anyhow::Result<_>>()?))
}

pub(crate) fn layout() -> anyhow::Result<Layout> {
    let environment = Environment::of_this_process()?;
    let cache = environment.cache.parent().context("a program in the cache has a folder")?;
    Ok(Layout::below(cache))
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start a runtime")
}
