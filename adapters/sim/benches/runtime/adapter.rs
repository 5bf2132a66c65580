//! The program `adapter-sim`, started as a separate process.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, bail};
use cloud_api_proto::v1alpha1::{
    Budget, GetInfoRequest, WatchStatusRequest, adapter_service_client::AdapterServiceClient,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    task::JoinSet,
};
use tonic::transport::{Channel, Endpoint};

use crate::requests::context;

/// The time limit for every wait. It is long enough for a busy host.
const TIMEOUT: Duration = Duration::from_mins(2);
const TICK: Duration = Duration::from_millis(50);
/// A queue that has not changed for this long has reached its maximum.
const SETTLED: Duration = Duration::from_secs(5);
/// The calls that must wait, and their rate, which is almost zero. Listings are not slowed down.
const WAITING: &str = "loadbalancer:CreateLoadBalancer";
const SLOW: f64 = 0.01;

/// Dropping this value ends the adapter.
pub(crate) struct Adapter {
    grpc: String,
    channel: Channel,
    config: PathBuf,
    child: Child,
    _directory: TempDir,
    _log: JoinSet<()>,
}

/// The current and the highest resident memory, in bytes. Source: proc(5), `/proc/pid/status`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Adapter {
    /// Starts an adapter whose rate limits are too high to matter, and waits until it has passed its self-check.
    pub(crate) async fn start(cloud: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let config = directory.path().join("config.yaml");
        fs::write(&config, limits(100_000.0, 10_000))?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_adapter-sim"))
            .args(["--endpoint", cloud, "--log-format", "json", "--config"])
            .arg(&config)
            .args(["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"])
            // The same setting as in the chart.
            .env("MALLOC_TRIM_THRESHOLD_", "131072")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start adapter-sim")?;
        let mut log = BufReader::new(child.stderr.take().context("standard error is a pipe")?).lines();
        let grpc = within_timeout("the adapter to listen", address(&mut log)).await??;
        let mut reading = JoinSet::new();
        reading.spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        let channel = Endpoint::try_from(grpc.clone())?.connect_lazy();
        let adapter = Self { grpc, channel, config, child, _directory: directory, _log: reading };
        within_timeout("the adapter to know its cloud", adapter.ready()).await?;
        Ok(adapter)
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Opens a separate connection, because each connection carries only a limited number of concurrent requests.
    pub(crate) fn connect(&self) -> anyhow::Result<Channel> {
        Ok(Endpoint::try_from(self.grpc.clone())?.connect_lazy())
    }

    /// Changes the limits so that almost no load balancers are created, and the calls that create them wait.
    pub(crate) async fn slow_down(&self) -> anyhow::Result<()> {
        fs::write(&self.config, limits(SLOW, 1))?;
        let slow = async {
            while self.budget().await?.ceiling > SLOW {
                tokio::time::sleep(TICK).await;
            }
            anyhow::Ok(())
        };
        within_timeout("the adapter to load its configuration", slow).await?
    }

    /// Returns the number of queued calls that create load balancers, once this number no longer grows.
    pub(crate) async fn queued(&self) -> anyhow::Result<u64> {
        let settled = async {
            let mut queued = 0;
            loop {
                tokio::time::sleep(SETTLED).await;
                match self.budget().await?.queued {
                    same if same == queued && same > 0 => return anyhow::Ok(queued),
                    more => queued = more,
                }
            }
        };
        within_timeout("calls to queue", settled).await?
    }

    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        let id = self.child.id().context("the adapter has ended")?;
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let field = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .context("the status has no such field")?;
            let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
            anyhow::Ok(kib * 1024)
        };
        Ok(Memory { resident: field("VmRSS:")?, peak: field("VmHWM:")? })
    }

    /// Returns the processor time that all threads have used so far. Source: the kernel's documentation, `scheduler/sched-stats.rst`.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let id = self.child.id().context("the adapter has ended")?;
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{id}/task"))? {
            // An idle thread ends after some time, so its file may be gone.
            let Ok(counts) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            let spent = counts.split_whitespace().next().context("schedstat is empty")?;
            nanos += spent.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    async fn budget(&self) -> anyhow::Result<Budget> {
        let mut client = AdapterServiceClient::new(self.channel());
        let request = WatchStatusRequest { context: Some(context()) };
        let status = client.watch_status(request).await?.into_inner().message().await?;
        let budgets = status.context("the status stream ended")?.budgets;
        budgets.into_iter().find(|budget| budget.bucket == WAITING).context("no such bucket")
    }

    async fn ready(&self) {
        let mut client = AdapterServiceClient::new(self.channel());
        loop {
            let info = client.get_info(GetInfoRequest { context: Some(context()) }).await;
            if info.is_ok_and(|info| info.into_inner().scope.is_some()) {
                return;
            }
            tokio::time::sleep(TICK).await;
        }
    }
}

async fn address(log: &mut Lines<BufReader<ChildStderr>>) -> anyhow::Result<String> {
    let mut said = String::new();
    while let Some(line) = log.next_line().await? {
        let entry: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(grpc) = entry.pointer("/fields/grpc").and_then(Value::as_str) {
            return Ok(format!("http://{grpc}"));
        }
        said = line;
    }
    bail!("the adapter ended: {said}")
}

async fn within_timeout<T>(what: &str, wait: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(TIMEOUT, wait).await.with_context(|| format!("timeout while waiting for {what}"))
}

fn limits(rate: f64, burst: u32) -> String {
    let fast = "{rate: 100000, burst: 10000}";
    format!(
        "limits: {{buckets: {{compute: {fast}, network: {fast}, identity: {fast}, loadbalancer: {fast}, \
         \"{WAITING}\": {{parent: loadbalancer, rate: {rate}, burst: {burst}}}}}}}\n"
    )
}
