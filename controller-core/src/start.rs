//! A controller's process from `main` to a graceful stop.
//!
//! The API server and the adapter need not be there: nothing here connects, mirrors wait and say so. What ends a process early is
//! a configuration that cannot work, an address that cannot be bound, a task that ended though nobody asked it to, or another process
//! that has taken its only Lease.

mod apart;
mod election;
mod logging;
mod metrics;
mod pulse;
mod scope;
mod shards;
mod tasks;
mod term;

use std::{
    fmt, future::Future, io::Write as _, path::PathBuf, pin::Pin, process::ExitCode, sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use kube::Client;
use pages::{Listener, Pages, Readers, Tls};
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::{election::Candidate, pulse::Pulse, scope::Keeper, tasks::Tasks};
pub use self::{
    shards::{Gains, Holdings, Shards, Share, Turn},
    term::Term,
};
use crate::{
    Clock,
    adapter::Adapter,
    config::{CommonConfig, SecurePages},
    events::{self, Recorder},
    explain::{self, Explain, Identity},
    health::{self, Health},
    kube_api::{self, Requests},
    metrics::{AdapterMetrics, Registry, controller_registry},
    mirror::kubernetes::Listing,
};

/// What is under way gets this long after a stop …
const GRACE: Duration = Duration::from_secs(20);
/// … and then first Events and pages, and then the Lease this long: in all, with a second for the last traces, less than Kubernetes'
/// own 30 s between SIGTERM and SIGKILL.
const LAST_GRACE: Duration = Duration::from_secs(4);

/// Under which names a controller is known.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// In logs and as metric label `controller`: `node-controller`.
    pub controller: &'static str,
    /// In Events, kept from the classic cloud controller manager: `cloud-node-controller`.
    pub component: &'static str,
    /// In the metric `running_managed_controllers`, kept from there, too: `cloud-node`.
    pub managed: &'static [&'static str],
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a running controller is given.
pub struct Process {
    /// Under which names it is known.
    pub names: Names,
    /// The API server.
    pub kube: Client,
    /// How mirrors of it begin.
    pub listing: Listing,
    /// The cloud.
    pub adapter: Adapter,
    /// Tells people.
    pub recorder: Recorder,
    /// The time of day.
    pub clock: Clock,
    /// Which part of the work it has. Its tasks start when it has some.
    pub shards: Shards,
    /// Cancelled when the process shall stop: take no new work.
    pub stop: CancellationToken,
    /// What must hold for it to be ready.
    pub health: Health,
    /// What is told of its objects.
    pub explain: Explain,
    /// It looks and plans, and changes nothing: see [`Process::only_looking`].
    pub dry_run: bool,
    /// Metrics under their full names; see [`Process::metrics`].
    pub registry: Registry,
    /// What the controller consists of; nothing of it runs before the term begins.
    tasks: Vec<(&'static str, Task)>,
    candidate: Option<Candidate>,
    listener: Option<Listener>,
    secure: Option<(Listener, Arc<Tls>)>,
    /// Of the status pages.
    readers: Readers,
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
        let (recorder, events) = events::recorder(kube.clone(), names.component, host(), clock);
        events.register(ours);
        let (health, standing) = (Health::default(), adapter.standing().clone());
        health.ready_if("adapter", move || standing.readiness());
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
        }
    }

    /// The same process, which looks and plans, and changes nothing, neither in the cluster nor at the cloud.
    #[must_use]
    pub fn only_looking(self) -> Self {
        let (adapter, recorder) = (self.adapter.only_looking(), self.recorder.only_logging());
        Self { adapter, recorder, dry_run: true, ..self }
    }

    /// Where metrics are registered that begin with `cloud_controller_` and carry the label `controller`.
    pub fn metrics(&mut self) -> &mut Registry {
        controller_registry(&mut self.registry, self.names.controller)
    }

    /// A task that may be dropped at any point, such as a mirror's: `stop` ends it.
    pub fn background(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.task(name, async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// A task that heeds `stop` itself and finishes what it is at, such as a queue's. Should it end before, the process
    /// ends with an error.
    pub fn task(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let pulse = Pulse::default();
        let watched = pulse.clone();
        self.health.alive_if(name, move || watched.judge());
        self.tasks.push((name, Box::pin(pulse.of(task))));
    }

    /// Serves the pages, writes Events, starts the tasks when the term begins, and waits: for `stop`, and then until the tasks have
    /// finished what they were at.
    ///
    /// # Errors
    /// A task ended before anybody asked it to, or another process leads: then nothing more is written, and nothing waited for.
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
        // Pages and Events outlive the work, so that its end can be seen and told.
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
        let (open, status) = (health::pages(health.clone(), self.registry), explain::pages(self.explain));
        let all = Pages::new(open, status, self.readers);
        if let Some(listener) = self.listener {
            let (all, last) = (all.clone(), last.clone());
            let serve = || pages::serve(listener, all, last);
            background.spawn("pages", apart::run("pages", serve));
        }
        if let Some((listener, tls)) = self.secure {
            let last = last.clone();
            let serve = || pages::serve_tls(listener, tls, all, last);
            background.spawn("pages over TLS", apart::run("pages over TLS", serve));
        }
        // What is alone at work gives its Lease back last of all: not all that it does is in a turn.
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
        // Only now: whoever follows must find nothing of ours under way.
        release.cancel();
        election.until(&release, LAST_GRACE).await?;
        ended
    }

    /// Nothing is changed in the cloud before it is known to be the part that this controller has worked in so far.
    fn keep_scope(&mut self) {
        let guard = self.adapter.scope().clone();
        let keeper = Keeper::new(&self.shards, &self.kube, &self.recorder, &guard);
        let readiness = guard.clone();
        self.health.ready_if("scope", move || readiness.readiness());
        self.metrics().register_collector(Box::new(scope::Moved(guard)));
        self.background("scope", async move { match keeper.run().await {} });
    }
}

/// Runs the tasks from when this process has work until they have ended.
async fn work(
    shards: &Shards,
    stop: &CancellationToken,
    health: &Health,
    tasks: Vec<(&'static str, Task)>,
    alone: &mut Option<Turn>,
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

/// Runs a controller as a process: crypto provider, log, clients, signals, the controller itself, exit code.
///
/// The exit code is 0 after a stop that was asked for, 1 after an error, which is logged.
pub fn run<F, R>(names: Names, config: &CommonConfig, controller: F) -> ExitCode
where
    F: FnOnce(Process) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let traces = logging::start(names.controller, config);
    let code = match serve(names, config, controller) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(controller = names.controller, error = format!("{error:#}"), "Ends with an error");
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
        if config.dry_run {
            warn!(
                "Runs with --dry-run: looks and plans, and changes nothing; what would be done is at /plan"
            );
        }
        tokio::select! {
            ended = Box::pin(controller(process)) => ended?,
            never = signals => match never {},
        }
        info!(controller = names.controller, "Stopped");
        Ok(())
    })
}

/// Runs a command that talks to the API server and ends by itself. The exit code is 0, or 1 after an error, which is written to
/// standard error.
pub fn run_once<F, R>(kubeconfig: &[PathBuf], command: F) -> ExitCode
where
    F: FnOnce(Client) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let run = || -> anyhow::Result<()> {
        choose_crypto()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("tokio runtime")?.block_on(async {
            let config = kube_api::config(kubeconfig).await;
            let config = config.context("configuration of the API server's client")?;
            command(kube_api::plain_client(config)?).await
        })
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If nobody listens, the exit code says it.
            let _unheard = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// First of all: rustls panics at its first use if it cannot tell which provider to take.
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
    let kubeconfig = kubeconfig.context("configuration of the API server's client")?;
    let candidate = match &config.election {
        None => None,
        Some(election) => {
            let client = kube_api::plain_client(kubeconfig.clone())?;
            Some(Candidate::new(names, election, client, &clock)?)
        }
    };
    let terms = match &candidate {
        Some(candidate) => candidate.terms.clone(),
        None => vec![Term::of_one_process(&clock, &config.cluster.id)],
    };
    let shards = Shards::new(names.controller, terms);
    let requests = Requests::new(shards.clone(), config.kube_api_rate);
    let requests = if config.dry_run { requests.only_reading() } else { requests };
    let kube = kube_api::client(kubeconfig, &requests)?;
    let channel = config.adapter.clone().through(kube.clone()).open();
    let channel = channel.with_context(|| format!("--adapter-endpoint {}", config.adapter.target()))?;
    let adapter = Adapter::over(channel, config.cluster.clone(), &clock).writing_in(shards.clone());
    let address = config.http_address;
    let listener = Listener::bind(address).with_context(|| format!("--http-address {address}"))?;
    let secure = match &config.secure_pages {
        None => None,
        Some(SecurePages { address, tls }) => {
            let listener = Listener::bind(*address);
            Some((listener.with_context(|| format!("--secure-port: {address}"))?, Arc::clone(tls)))
        }
    };
    let process = Process::new(names, kube, adapter, clock);
    let mut process = if config.dry_run { process.only_looking() } else { process };
    requests.register(&mut process.registry);
    let (listing, readers) = (config.listing, config.readers);
    Ok(Process { listener: Some(listener), secure, readers, shards, candidate, listing, ..process })
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

/// The machine that this process thinks it has: in a pod, its name.
fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    if host.is_empty() { "localhost".to_owned() } else { host.to_owned() }
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
