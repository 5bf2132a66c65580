//! `simcloud`: the simulated cloud as a server.

use std::io::Write as _;
use std::net::SocketAddr;

use adapter_sim::simcloud::{Cloud, SharedCloud, model::Project, serve};
use anyhow::Context as _;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Printed after the flags in the help. It must not contain `{n}`, which clap would replace by a line break.
const EXAMPLES: &str = r#"Examples, for the default address:
  Create an instance:
    curl -X POST localhost:9797/admin/instances -d '{"name": "node-1"}'
  Show all objects, and count the requests:
    curl localhost:9797/admin/state
    curl localhost:9797/admin/counts
  Delay all answers:
    curl -X PATCH localhost:9797/admin/settings -d '{"latency": {"default_ms": 200}}'
  Lose the answer to the next creation of a load balancer:
    curl -X POST localhost:9797/admin/faults \
      -d '{"match": {"operation": "Create*"}, "when": {"next": 1}, "action": "close_after"}'

adapters/sim/README.md has all operations, settings and faults."#;

/// A small cloud on your computer: instances, load balancers and routes behind an HTTP API, with configurable latency, limits and faults.
/// All state is in memory and is lost when the process ends (Ctrl-C).
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// Address to listen on; port 0 takes any free port
    #[arg(long, default_value = "127.0.0.1:9797", value_name = "IP:PORT", value_parser = address)]
    listen: SocketAddr,
    /// Require `Authorization: Bearer <TOKEN>` on every request, including /admin
    #[arg(long, env = "SIMCLOUD_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Region that this endpoint serves
    #[arg(long, default_value = "sim-1")]
    region: String,
    /// Project that all objects belong to
    #[arg(long, default_value = "demo")]
    project: String,
    /// Account of the project
    #[arg(long, default_value = "sim")]
    account: String,
    /// Seed of the jitter of latencies
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error| format!("{error}: use an IP address and a port, such as 127.0.0.1:9797"))
}

#[expect(clippy::disallowed_methods, reason = "creation times are wall-clock times")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let listener = TcpListener::bind(args.listen).await.with_context(|| {
        format!("--listen {}: cannot listen, is another simcloud running there?", args.listen)
    })?;
    let address = listener.local_addr()?;
    let project = Project { account: args.account, project: args.project, region: args.region };
    let mut cloud = Cloud::new(project).with_seed(args.seed).switched_on_at(jiff::Timestamp::now());
    if let Some(token) = args.token {
        cloud = cloud.with_token(token);
    }

    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let shutdown = CancellationToken::new();
    let mut served = std::pin::pin!(serve(listener, SharedCloud::new(cloud), shutdown.clone()));
    // A program that starts simcloud waits for this line; the signal handlers are installed before it.
    writeln!(std::io::stdout(), "simcloud listens on http://{address}")?;
    tokio::select! {
        ended = served.as_mut() => return ended.context("the server ended early"),
        _ = tokio::signal::ctrl_c() => (),
        _ = terminate.recv() => (),
    }
    shutdown.cancel();
    served.await.context("the server did not shut down cleanly")
}
