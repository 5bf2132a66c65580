//! Runs a controller's process from `main` to a graceful stop.
//!
//! The API server and the adapter need not be available, because the mirrors wait for both and report the outage. Only a process without
//! `--cluster-id` needs the API server at its start. A process ends early only if its configuration cannot work, the cluster ID cannot be
//! read, or an address cannot be bound. It also ends if a task ends unexpectedly, or if another process has taken its only Lease.

mod cluster_id;
mod evidence;
mod metrics;
mod pages;
mod tasks;
mod thread;
mod watchdog;

use std::{
    fmt, future::Future, io::Write as _, path::PathBuf, pin::Pin, process::ExitCode, sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use kube::Client;
use telemetry::{
    http::{self, Endpoints, Listener, Readers, Tls},
    logging::Logging,
};
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::{evidence::Evidence, pages::Pages, stored_scope::StoredScope, tasks::Tasks, watchdog::Watchdog};
use crate::{
    Clock,
    adapter::Adapter,
    config::{Cluster, CommonConfig, Listing},
    events::{self, Recorder},
    explain::{self, Explain, Identity},
    health::{self, Health},
    kube_api::{self, Requests},
    leadership::{Candidate, ShardPass, Shards, Term, host},
    metrics::{AdapterMetrics, Registry, controller_registry},
};

/// The log directive that silences kube's client, which logs each failed attempt as an error. The mirrors already log outages. A user's
/// directive comes later and takes precedence.
const KUBE_CLIENT_LOG_OFF: &str = "kube_client::client::builder=off";
/// Time limit for work in progress after a stop.
const GRACE: Duration = Duration::from_secs(20);
/// The two additional time limits, first for Events and pages, then for the Lease. All limits together, with a second for the last traces,
/// are below the 30 s between SIGTERM and SIGKILL in Kubernetes.
const LAST_GRACE: Duration = Duration::from_secs(4);

/// The names of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The name in logs and in the metric label `controller`, such as `node-controller`.
    pub controller: &'static str,
    /// The name in Events, the same as in the former cloud controller manager, such as `cloud-node-controller`.
    pub component: &'static str,
    /// The names in the metric `running_managed_controllers`, the same as in the former cloud controller manager, such as `cloud-node`.
    pub managed: &'static [&'static str],
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The environment of a running controller.
pub struct Process {
    /// The names of the controller.
    pub names: Names,
    /// The client of the API server.
    pub kube: Client,
    /// The way in which mirrors of the API server get their initial objects.
    pub listing: Listing,
    /// The client of the cloud adapter.
    pub adapter: Adapter,
    /// The recorder of Events.
    pub recorder: Recorder,
    /// The clock for the time of day.
    pub clock: Clock,
    /// The shards of the work. The tasks of a shard start when this process holds the shard.
    pub shards: Shards,
    /// The token that is cancelled when the process must stop and take no new work.
    pub stop: CancellationToken,
    /// The readiness and liveness checks.
    pub health: Health,
    /// The data about the controller's objects that the status pages show.
    pub explain: Explain,
    /// Whether this is a dry run. See [`Process::read_only`].
    pub dry_run: bool,
    /// The registry of metrics by their full names. See [`Process::metrics`].
    pub registry: Registry,
    /// The tasks of the controller. They start when the term (the time for which this process holds a Lease) begins.
    tasks: Vec<(&'static str, Task)>,
    candidate: Option<Candidate>,
    listener: Option<Listener>,
    secure: Option<(Listener, Arc<Tls>)>,
    readers: Readers,
    events: events::Writer,
    evidence: Evidence,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Process {
    /// Creates a process with given clients, without HTTP pages. [`run`] creates a complete process.
    #[must_use]
    pub fn new(names: Names, kube: Client, adapter: Adapter, clock: Clock) -> Self {
        let mut registry = Registry::default();
        let ours = controller_registry(&mut registry, names.controller);
        let adapter = adapter.counting(AdapterMetrics::register(ours));
        let (recorder, events) = events::recorder(kube.clone(), names.component, host(), clock);
        events.register(ours);
        let (health, calls) = (Health::default(), adapter.call_health().clone());
        health.ready_if("adapter", move || calls.readiness());
        let term = Term::of_one_process(&clock, adapter.cluster_id());
        let shards = Shards::new(names.controller, vec![term]);
        Self {
            names,
            kube,
            listing: Listing::default(),
            adapter,
            recorder,
            clock,
            shards,
            stop: CancellationToken::new(),
            health,
            explain: Explain::default(),
            dry_run: false,
            registry,
            tasks: Vec::new(),
            candidate: None,
            listener: None,
            secure: None,
            readers: Readers::default(),
            events,
            evidence: Evidence::default(),
        }
    }

    /// Turns the process into a dry run, which plans changes but makes none in the cluster or in the cloud.
    #[must_use]
    pub fn read_only(self) -> Self {
        let (adapter, recorder) = (self.adapter.read_only(), self.recorder.only_logging());
        Self { adapter, recorder, dry_run: true, ..self }
    }

    /// Returns the registry for metrics that begin with `cloud_controller_` and have the label `controller`.
    pub fn metrics(&mut self) -> &mut Registry {
        controller_registry(&mut self.registry, self.names.controller)
    }

    /// Adds a task that may be dropped at any point, such as a mirror's task. The task is dropped when `stop` is cancelled.
    pub fn background(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.task(name, async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Adds a task that reacts to `stop` itself and finishes its work in progress, such as a queue's task. If the task ends before `stop`
    /// is cancelled, the process ends with an error.
    pub fn task(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let watchdog = Watchdog::default();
        let watched = watchdog.clone();
        self.health.alive_if(name, move || watched.check());
        self.tasks.push((name, Box::pin(watchdog.of(task))));
    }

    /// Adds a search for evidence that the controller made something in the cloud. If no search finds any, and no node is initialised, the
    /// controller follows the adapter to another scope without the operator's confirmation.
    pub fn evidence<F>(&mut self, search: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<bool, kube_api::Error>> + Send + 'static,
    {
        self.evidence.add(search);
    }

    /// Serves the pages, writes Events, and starts the tasks when the process holds a shard. After `stop`, the function waits until the
    /// tasks have finished their work in progress.
    pub async fn finish(mut self) -> anyhow::Result<()> {
        metrics::register(&mut self);
        self.keep_scope();
        self.explain.is_of(Identity {
            controller: self.names.controller,
            adapter: self.adapter.clone(),
            shards: self.shards.clone(),
            clock: self.clock,
            dry_run: self.dry_run,
            runtime: Handle::current(),
        });
        let (shards, stop, health) = (self.shards, self.stop, self.health);
        shards.ends_by(&stop);
        // Pages and Events are served until after the work has ended, so that the end of the work can be observed and reported.
        let (last, release) = (CancellationToken::new(), CancellationToken::new());
        let (mut background, mut election) = (Tasks::default(), Tasks::default());
        background.spawn("events", self.events.run(last.clone()));
        if let Some(candidate) = self.candidate {
            let (stands_by, works, lives) = (shards.clone(), shards.clone(), shards.clone());
            health.stands_by(move || stands_by.standby_readiness());
            health.ready_if("leaderElection", move || works.readiness());
            health.alive_if("leaderElection", move || lives.liveness());
            election.spawn("election", candidate.run(stop.clone(), release.clone()));
        }
        let (open, status) = (health::routes(health.clone(), self.registry), explain::routes(self.explain));
        let all = Endpoints::new(open, status, self.readers);
        if let Some(listener) = self.listener {
            let (all, last) = (all.clone(), last.clone());
            let serve = || http::serve(listener, all, last);
            background.spawn("pages", thread::run("pages", serve));
        }
        if let Some((listener, tls)) = self.secure {
            let last = last.clone();
            let serve = || http::serve_tls(listener, tls, all, last);
            background.spawn("pages over TLS", thread::run("pages over TLS", serve));
        }
        // With a single shard, this value keeps the Lease until the tasks have ended. Some work does not run within a `ShardPass` of its
        // own.
        let mut alone = None;
        let work = work(&shards, &stop, &health, self.tasks, &mut alone);
        let ended = tokio::select! {
            biased;
            lost = shards.is_lost() => return Err(lost),
            ended = work => ended,
        };
        last.cancel();
        background.until(&last, LAST_GRACE).await?;
        drop(alone);
        // The Lease is released only now, since no work of this process may be in progress when the next leader starts.
        release.cancel();
        election.until(&release, LAST_GRACE).await?;
        ended
    }

    /// Blocks changes in the cloud until the adapter is known to work in the same scope (part of the cloud) as before.
    fn keep_scope(&mut self) {
        let guard = self.adapter.scope().clone();
        let evidence = std::mem::take(&mut self.evidence);
        let keeper = StoredScope::new(&self.shards, &self.kube, &self.recorder, &guard, evidence);
        let readiness = guard.clone();
        self.health.ready_if("scope", move || readiness.readiness());
        self.metrics().register_collector(Box::new(stored_scope::Moved(guard)));
        self.background("scope", async move { match keeper.run().await {} });
    }
}

/// Waits until this process holds a shard, and then runs the tasks until they have ended.
async fn work(
    shards: &Shards,
    stop: &CancellationToken,
    health: &Health,
    tasks: Vec<(&'static str, Task)>,
    alone: &mut Option<ShardPass>,
) -> anyhow::Result<()> {
    if stop.run_until_cancelled(shards.begin()).await.is_none() {
        return Ok(());
    }
    *alone = shards.enter_alone();
    health.works();
    let mut running = Tasks::default();
    for (name, task) in tasks {
        running.spawn(name, task);
    }
    running.until(stop, GRACE).await
}

/// Runs a controller as a process. This includes the crypto provider, the log, the clients and the signals.
///
/// Returns exit code 0 after a requested stop, and 1 after an error, which is logged.
pub fn run<F, R>(names: Names, config: &CommonConfig, controller: F) -> ExitCode
where
    F: FnOnce(Process) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let filter = format!("{KUBE_CLIENT_LOG_OFF},{}", config.log_level);
    let traces = Logging { format: config.log_format, filter, flat: true }.start(names.controller);
    let code = match serve(names, config, controller) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(controller = names.controller, error = format!("{error:#}"), "Exiting with an error");
            ExitCode::FAILURE
        }
    };
    traces.end();
    code
}

fn serve<F, R>(names: Names, config: &CommonConfig, controller: F) -> anyhow::Result<()>
where
    F: FnOnce(Process) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    choose_crypto()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the tokio runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        // Signals are handled from the start, because the first process of a container has no default action for them.
        let mut signals = JoinSet::new();
        signals.spawn(stop_on_signal(stop.clone())?);
        let Some(process) = stop.run_until_cancelled(process(names, config)).await.transpose()? else {
            return Ok(());
        };
        let process = Process { stop, ..process };
        let cluster_id = process.adapter.cluster_id();
        let endpoint = config.adapter.target();
        let version = env!("CARGO_PKG_VERSION");
        info!(controller = names.controller, version, cluster_id, %endpoint, "Starting the controller");
        if config.dry_run {
            warn!("Running with --dry-run: this controller changes nothing and shows its plans at /plan");
        }
        Box::pin(controller(process)).await?;
        info!(controller = names.controller, "Stopped the controller");
        Ok(())
    })
}

/// Runs a command that talks to the API server and then ends. Returns exit code 0, or 1 after an error, which is written to standard error.
pub fn run_once<F, R>(kubeconfig: &[PathBuf], command: F) -> ExitCode
where
    F: FnOnce(Client) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let run = || -> anyhow::Result<()> {
        choose_crypto()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("cannot start the tokio runtime")?.block_on(async {
            let config = kube_api::config(kubeconfig).await;
            let config = config.context("cannot configure the client for the API server")?;
            command(kube_api::plain_client(config)?).await
        })
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Writing fails if standard error is closed. The exit code reports the error in any case.
            let _unheard = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Installs the TLS crypto provider. Must be called before any other function of rustls, because rustls panics if it cannot tell which
/// provider to use.
fn choose_crypto() -> anyhow::Result<()> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    if provider.install_default().is_err() {
        anyhow::bail!("another TLS crypto provider is installed already");
    }
    Ok(())
}

async fn process(names: Names, config: &CommonConfig) -> anyhow::Result<Process> {
    let clock = Clock::system();
    let kubeconfig = kube_api::config(&config.kubeconfig).await;
    let kubeconfig = kubeconfig.context("cannot configure the client for the API server")?;
    let pages = Pages::bind(config)?;
    let id = match &config.cluster_id {
        Some(id) => id.clone(),
        None => {
            let client = kube_api::plain_client(kubeconfig.clone())?;
            let progress = cluster_id::Progress::default();
            let read = cluster_id::read(client, &progress);
            Box::pin(pages.serve_during(progress.health(), read)).await??
        }
    };
    let cluster = Cluster { id, name: config.cluster_name.clone() };
    let candidate = match &config.election {
        None => None,
        Some(election) => {
            let client = kube_api::plain_client(kubeconfig.clone())?;
            Some(Candidate::new(names.controller, election, client, &clock)?)
        }
    };
    let terms = match &candidate {
        Some(candidate) => candidate.terms.clone(),
        None => vec![Term::of_one_process(&clock, &cluster.id)],
    };
    let shards = Shards::new(names.controller, terms);
    let requests = Requests::new(shards.clone(), config.kube_api_rate);
    let requests = if config.dry_run { requests.only_reading() } else { requests };
    let kube = kube_api::client(kubeconfig, &requests)?;
    let channel = config.adapter.clone().through(kube.clone()).open();
    let channel = channel.with_context(|| format!("--adapter-endpoint {}", config.adapter.target()))?;
    let adapter = Adapter::over(channel, cluster, &clock).writing_in(shards.clone());
    let process = Process::new(names, kube, adapter, clock);
    let mut process = if config.dry_run { process.read_only() } else { process };
    requests.register(&mut process.registry);
    let (listing, Pages { listener, secure, readers }) = (config.listing, pages);
    Ok(Process { listener: Some(listener), secure, readers, shards, candidate, listing, ..process })
}

fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        info!(signal = name, "Received a signal to stop; finishing the work in progress");
        stop.cancel();
    })
}

#[cfg(test)]
mod reference;
mod stored_scope;
#[cfg(test)]
mod tests;
