//! A controller's process from `main` to a graceful stop.
//!
//! The API server and the adapter need not be there: nothing here connects, mirrors wait and say so. What ends a process early is
//! a configuration that cannot work, an address that cannot be bound, or a task that ended though nobody asked it to.

mod logging;
mod tasks;

use std::{fmt, future::Future, process::ExitCode, time::Duration};

use anyhow::Context as _;
use kube::Client;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use self::tasks::Tasks;
use crate::{
    Clock,
    adapter::Adapter,
    config::CommonConfig,
    events::{self, Recorder},
    health::{self, Health},
    kube_api,
    metrics::{AdapterMetrics, Registry, controller_registry},
};

/// What is under way gets this long after a stop …
const GRACE: Duration = Duration::from_secs(20);
/// … and then Events and pages this long: in all, less than Kubernetes' own 30 s between SIGTERM and SIGKILL.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// Under which names a controller is known.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// In logs and as metric label `controller`: `node-controller`.
    pub controller: &'static str,
    /// In Events, kept from the classic cloud controller manager: `cloud-node-controller`.
    pub component: &'static str,
}

/// What a running controller is given.
pub struct Process {
    /// Under which names it is known.
    pub names: Names,
    /// The API server.
    pub kube: Client,
    /// The cloud.
    pub adapter: Adapter,
    /// Tells people.
    pub recorder: Recorder,
    /// The time of day.
    pub clock: Clock,
    /// Cancelled when the process shall stop: take no new work.
    pub stop: CancellationToken,
    /// What must hold for it to be ready.
    pub health: Health,
    /// Metrics under their full names; see [`Process::metrics`].
    pub registry: Registry,
    tasks: Tasks,
    listener: Option<TcpListener>,
    events: events::Writer,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Process {
    /// A process over given clients, without HTTP pages. [`run`] makes a whole one.
    #[must_use]
    pub fn new(names: Names, kube: Client, adapter: Adapter, clock: Clock) -> Self {
        let mut registry = Registry::default();
        let ours = controller_registry(&mut registry, names.controller);
        let adapter = adapter.counting(AdapterMetrics::register(ours));
        let (recorder, events) = events::recorder(kube.clone(), names.component, instance(&names), clock);
        events.register(ours);
        let (health, standing) = (Health::default(), adapter.standing().clone());
        health.ready_if(move || standing.readiness());
        Self {
            names,
            kube,
            adapter,
            recorder,
            clock,
            stop: CancellationToken::new(),
            health,
            registry,
            tasks: Tasks::default(),
            listener: None,
            events,
        }
    }

    /// Where metrics are registered that begin with `cloud_controller_` and carry the label `controller`.
    pub fn metrics(&mut self) -> &mut Registry {
        controller_registry(&mut self.registry, self.names.controller)
    }

    /// Starts a task that may be dropped at any point, such as a mirror's: `stop` ends it.
    pub fn background(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(name, async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Starts a task that heeds `stop` itself and finishes what it is at, such as a queue's. Should it end before, the process
    /// ends with an error.
    pub fn task(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(name, task);
    }

    /// Serves the pages, writes Events, and waits: for `stop`, and then until the tasks have finished what they were at.
    ///
    /// # Errors
    /// A task ended before anybody asked it to.
    pub async fn finish(self) -> anyhow::Result<()> {
        // Pages and Events outlive the work, so that its end can be seen and told.
        let last = CancellationToken::new();
        let mut background = Tasks::default();
        background.spawn("events", self.events.run(last.clone()));
        if let Some(listener) = self.listener {
            let pages = health::serve(listener, self.health, self.registry, last.clone());
            background.spawn("pages", pages);
        }
        let ended = self.tasks.until(&self.stop, GRACE).await;
        last.cancel();
        background.until(&last, LAST_GRACE).await?;
        ended
    }
}

/// Runs a controller as a process: crypto provider, log, clients, signals, the controller itself, exit code.
///
/// The exit code is 0 after a stop that was asked for, 1 after an error, which is logged.
pub fn run<F, R>(names: Names, config: &CommonConfig, controller: F) -> ExitCode
where
    F: FnOnce(Process) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    logging::start(config);
    match serve(names, config, controller) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(controller = names.controller, error = format!("{error:#}"), "Ends with an error");
            ExitCode::FAILURE
        }
    }
}

fn serve<F, R>(names: Names, config: &CommonConfig, controller: F) -> anyhow::Result<()>
where
    F: FnOnce(Process) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    // First of all: rustls panics at its first use if it cannot tell which provider to take.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    if provider.install_default().is_err() {
        anyhow::bail!("another TLS crypto provider is installed already");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio runtime")?;
    runtime.block_on(async {
        let process = process(names, config).await?;
        let stop = process.stop.clone();
        let signals = stop_on_signal(stop)?;
        let cluster_id = &config.cluster.id;
        let endpoint = config.adapter.target();
        let version = env!("CARGO_PKG_VERSION");
        info!(controller = names.controller, version, cluster_id, %endpoint, "Starts");
        tokio::select! {
            ended = Box::pin(controller(process)) => ended?,
            never = signals => match never {},
        }
        info!(controller = names.controller, "Stopped");
        Ok(())
    })
}

async fn process(names: Names, config: &CommonConfig) -> anyhow::Result<Process> {
    let clock = Clock::system();
    let kube =
        kube_api::client(&config.kubeconfig).await.context("configuration of the API server's client")?;
    let channel = config.adapter.clone().through(kube.clone()).open();
    let channel = channel.with_context(|| format!("--adapter-endpoint {}", config.adapter.target()))?;
    let adapter = Adapter::over(channel, config.cluster.clone(), &clock);
    let address = config.http_address;
    let listener = TcpListener::bind(address).await.with_context(|| format!("--http-address {address}"))?;
    Ok(Process { listener: Some(listener), ..Process::new(names, kube, adapter, clock) })
}

/// Cancels `stop` on SIGTERM and SIGINT.
fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<impl Future<Output = std::convert::Infallible>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        info!(signal = name, "Stops: finishes what is under way");
        stop.cancel();
        std::future::pending().await
    })
}

/// Which replica speaks: in a pod, its name.
fn instance(names: &Names) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    if host.is_empty() { names.controller.to_owned() } else { host.to_owned() }
}
