//! `simcloud`: the simulated cloud as a server of its own.

use std::io::Write as _;
use std::net::SocketAddr;

use adapter_sim::simcloud::{Cloud, SharedCloud, model::Project, serve};
use anyhow::Context as _;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What to try first. No `{n}` in here: clap would make a line break of it.
const EXAMPLES: &str = r#"Examples, for the default address:
  Make a machine:
    curl -X POST localhost:9797/admin/instances -d '{"name": "node-1"}'
  See what there is, and what was asked of the cloud:
    curl localhost:9797/admin/state
    curl localhost:9797/admin/counts
  Make it slow:
    curl -X PATCH localhost:9797/admin/settings -d '{"latency": {"default_ms": 200}}'
  Lose the answer to the next load balancer that is ordered:
    curl -X POST localhost:9797/admin/faults \
      -d '{"match": {"operation": "Create*"}, "when": {"next": 1}, "action": "close_after"}'

adapters/sim/README.md has all operations, settings and faults."#;

/// A small cloud on your machine: instances, load balancers and routes behind an HTTP API, with latency, limits and faults
/// to order. It lives in memory and forgets everything when it ends (Ctrl-C).
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// Address to listen on; port 0 takes any free port
    #[arg(long, default_value = "127.0.0.1:9797", value_name = "IP:PORT", value_parser = address)]
    listen: SocketAddr,
    /// Ask every request, /admin included, for `Authorization: Bearer <TOKEN>`
    #[arg(long, env = "SIMCLOUD_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The region that this endpoint serves
    #[arg(long, default_value = "sim-1")]
    region: String,
    /// The project that all objects belong to
    #[arg(long, default_value = "demo")]
    project: String,
    /// The account that pays
    #[arg(long, default_value = "sim")]
    account: String,
    /// Chooses the jitter of latencies: the same seed gives the same jitter
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error| format!("{error}: use an IP address and a port, such as 127.0.0.1:9797"))
}

#[expect(clippy::disallowed_methods, reason = "a cloud tells when it made things")]
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("--listen {}: is another simcloud running there?", args.listen))?;
    let address = listener.local_addr()?;
    let project = Project { account: args.account, project: args.project, region: args.region };
    let mut cloud = Cloud::new(project).with_seed(args.seed).switched_on_at(jiff::Timestamp::now());
    if let Some(token) = args.token {
        cloud = cloud.with_token(token);
    }

    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let shutdown = CancellationToken::new();
    let mut served = std::pin::pin!(serve(listener, SharedCloud::new(cloud), shutdown.clone()));
    // Whoever started this process waits for the line; from here on Ctrl-C ends it in order.
    writeln!(std::io::stdout(), "simcloud listens on http://{address}")?;
    tokio::select! {
        ended = served.as_mut() => return ended.context("the server ended early"),
        _ = tokio::signal::ctrl_c() => (),
        _ = terminate.recv() => (),
    }
    shutdown.cancel();
    served.await.context("the server did not end in order")
}
