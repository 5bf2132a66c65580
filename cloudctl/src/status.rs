//! `cloudctl status`: shows the status of the adapter and the controllers.

mod table;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use serde::{Deserialize, Serialize};
use telemetry::report::{AdapterStatus, BreakerState, ControllerStatus, Waiting, grouped};

use crate::{
    cluster::is_held,
    missing::Missing,
    options::{Common, Component},
    release::Release,
    session::{Page, Process, Session, Usage},
    words,
};

/// If an object is out of sync for this long, the report lists it as a problem.
const LONG_WAIT: SignedDuration = SignedDuration::from_mins(5);
/// Maximum number of objects with a long wait that are named for each controller.
const MAX_NAMED: usize = 3;
/// Reasons that are about the adapter or the cloud, and not about one object. Source: the contract.
const OF_ADAPTER: [&str; 5] = ["NOT_LEADER", "STARTING", "DRAINING", "VENDOR_UNAVAILABLE", "VENDOR_AUTH"];

/// The status of the adapter and the controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// The namespace of the release.
    pub namespace: String,
    /// Time at which the pages were read.
    pub at: Timestamp,
    /// The replicas of the adapter.
    pub adapters: Vec<ProcessReport<AdapterStatus>>,
    /// The replicas of the controllers.
    pub controllers: Vec<ProcessReport<ControllerStatus>>,
    /// The shards of all controllers and their holders.
    pub shards: Vec<Shard>,
    /// Problems, one line for each.
    pub troubles: Vec<String>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// A page of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessReport<T> {
    /// The name of the process's pod, or the address of its pages.
    pub process: String,
    /// The page.
    pub page: T,
}

/// A shard. One replica does the work in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shard {
    /// The controller, such as `service-controller`. The adapter has one shard if it has a standby.
    pub controller: String,
    /// The number of the shard.
    pub shard: u32,
    /// The replica that holds the shard. `None`: no replica holds it.
    pub holder: Option<String>,
    /// Time since which the replica holds the shard.
    pub since: Option<Timestamp>,
    /// Time at which the holder last renewed the Lease.
    pub renewed: Option<Timestamp>,
}

pub(crate) async fn read(common: &Common, now: Timestamp) -> Result<StatusReport, Usage> {
    let components = [&[Component::CloudAdapter][..], &Component::CONTROLLERS].concat();
    let mut session = Session::open(common, &components, now).await?;
    session.locate(common).await?;
    let mut report = of_session(&mut session).await;
    let named = common.release_namespace.is_some() && session.cluster.is_some();
    if named && !report.controllers.is_empty() && !session.processes.iter().any(Process::is_pod) {
        report.missing.extend(elsewhere(&session.release, &report.shards));
    }
    Ok(report)
}

pub(crate) async fn of_session(session: &mut Session) -> StatusReport {
    let adapters = session.pages::<AdapterStatus>(&[Component::CloudAdapter], "/status.json").await;
    let controllers = session.pages::<ControllerStatus>(&Component::CONTROLLERS, "/status").await;
    let leases = match &session.cluster {
        Some(cluster) => cluster.leases(&session.release.namespace).await,
        None => Ok(Vec::new()),
    };
    let leases = leases.unwrap_or_else(|why| {
        session.missing.push(why);
        Vec::new()
    });
    report(session, adapters, controllers, &leases)
}

/// Returns why the namespace from `--release-namespace` may be wrong, or `None` if a controller has a Lease there. This check is needed
/// only if all processes are given by `--url`, because then no pod was looked up in the namespace.
fn elsewhere(release: &Release, shards: &[Shard]) -> Option<Missing> {
    let of_lease = |it: &Shard| it.renewed.is_some() && it.controller != Component::CloudAdapter.name();
    let namespace = &release.namespace;
    let why = format!(
        "none of the controllers has a Lease in {namespace}: if the chart is installed elsewhere, use --release-namespace NAMESPACE"
    );
    (!shards.iter().any(of_lease)).then(|| Missing::new("leases", why))
}

fn report(
    session: &Session,
    adapters: Vec<Page<AdapterStatus>>,
    controllers: Vec<Page<ControllerStatus>>,
    leases: &[Lease],
) -> StatusReport {
    let adapters = reports(adapters);
    let controllers = reports(controllers);
    let shards = shards(&session.release, &controllers, leases, session.now);
    let missing = session.lacks();
    let (namespace, at) = (session.release.namespace.clone(), session.now);
    let report = StatusReport { namespace, at, adapters, controllers, shards, troubles: Vec::new(), missing };
    let troubles = troubles(&report).into_iter().map(|(line, _)| line).collect();
    StatusReport { troubles, ..report }
}

/// What a problem is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// No replica of the adapter leads.
    Leader,
    /// The adapter's calls to the cloud fail.
    Cloud,
    /// This controller does not reach the adapter.
    Link(String),
    /// This controller holds back changes.
    HeldBack(String),
    /// A watch of this controller fails.
    Watch(String),
    /// Objects of this controller are out of sync because of the adapter or the cloud.
    Object(String),
    /// A shard of this controller has no holder.
    Shard(String),
    /// None of these.
    Own,
}

/// Returns the problems, each with its subject.
pub(crate) fn troubles(report: &StatusReport) -> Vec<(String, Subject)> {
    let StatusReport { adapters, controllers, shards, at, .. } = report;
    let mut all = of_adapters(adapters);
    all.extend(controllers.iter().flat_map(of_controller));
    all.extend(controllers.iter().flat_map(|it| long_waits(it, *at)));
    let open = shards.iter().filter(|it| it.holder.is_none());
    all.extend(open.map(|it| (unheld(it), Subject::Shard(it.controller.clone()))));
    let idlers = controllers.iter().filter(|it| is_idle(&it.page, shards));
    all.extend(idlers.map(|it| (idle(it), Subject::Own)));
    all
}

fn reports<T>(pages: Vec<Page<T>>) -> Vec<ProcessReport<T>> {
    pages.into_iter().map(|it| ProcessReport { process: it.process.name, page: it.content }).collect()
}

/// Returns the shards according to the Leases. If the Leases cannot be read, returns the shards according to the replicas.
fn shards(
    release: &Release,
    controllers: &[ProcessReport<ControllerStatus>],
    leases: &[Lease],
    now: Timestamp,
) -> Vec<Shard> {
    let mut all = Vec::new();
    for component in [&[Component::CloudAdapter][..], &Component::CONTROLLERS].concat() {
        let its = || controllers.iter().filter(|it| it.page.controller == component.name());
        let said = its().map(|it| it.page.shards).max();
        let shard = |lease| Some(of_lease(component, release.shard(component, lease)?, lease, now));
        let mut of_leases: Vec<Shard> = leases.iter().filter_map(shard).collect();
        of_leases.sort_by_key(|it| it.shard);
        // If the number of shards was reduced, Leases of the removed shards may still exist. Such a Lease needs no holder.
        of_leases.retain(|it| said.is_none_or(|said| it.shard < said) || it.holder.is_some());
        for shard in 0..said.unwrap_or_default() {
            let holder = its().find(|it| it.page.held.contains(&shard)).map(|it| it.process.clone());
            if !of_leases.iter().any(|it| it.shard == shard) {
                let controller = component.name().to_owned();
                of_leases.push(Shard { controller, shard, holder, ..Shard::default() });
            }
        }
        all.extend(of_leases);
    }
    all
}

fn of_lease(component: Component, shard: u32, lease: &Lease, now: Timestamp) -> Shard {
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|MicroTime(at)| *at);
    let held = is_held(&spec, now);
    let holder = spec.holder_identity.filter(|_| held);
    let since = spec.acquire_time.map(|MicroTime(at)| at).filter(|_| holder.is_some());
    Shard { controller: component.name().to_owned(), shard, holder, since, renewed }
}

fn unheld(shard: &Shard) -> String {
    format!(
        "shard {} of {}: no replica holds it, so its objects are not reconciled",
        shard.shard, shard.controller
    )
}

/// Whether a replica holds no shard, and no holder of any other shard of its controller is known either.
fn is_idle(page: &ControllerStatus, shards: &[Shard]) -> bool {
    page.held.is_empty() && !shards.iter().any(|it| it.controller == page.controller)
}

fn idle(ProcessReport { process, page }: &ProcessReport<ControllerStatus>) -> String {
    format!("{} {process}: it holds no shard, and no holder of a shard is known", page.controller)
}

fn of_adapters(adapters: &[ProcessReport<AdapterStatus>]) -> Vec<(String, Subject)> {
    let (mut all, mut own) = (Vec::new(), Vec::new());
    let leaderless = !adapters.is_empty() && !adapters.iter().any(|it| it.page.leader);
    let line = "cloud-adapter: no replica leads, so no vendor calls are made".to_owned();
    let leaderless = leaderless.then_some((line, Subject::Leader));
    for ProcessReport { process, page } in adapters {
        all.extend(page.trouble.iter().map(|why| format!("cloud-adapter {process}: {why}")));
        own.extend(page.config_refused.iter().map(|why| refusing(process, why)));
        let open = page.breakers.iter().filter(|it| it.state != BreakerState::Closed);
        all.extend(open.map(|it| {
            format!("cloud-adapter {process}: the breaker of {} is {}", it.family, breaker(it.state))
        }));
        let stale = page.snapshots.iter().filter_map(|it| Some((it, it.error.as_ref()?)));
        all.extend(
            stale.map(|(it, why)| {
                format!("cloud-adapter {process}: {} cannot be listed: {why}", it.collection)
            }),
        );
    }
    let own = own.into_iter().map(|line| (line, Subject::Own));
    let all = all.into_iter().map(|line| (line, Subject::Cloud));
    leaderless.into_iter().chain(own).chain(all).collect()
}

fn refusing(process: &str, why: &str) -> String {
    format!("cloud-adapter {process}: the adapter refuses its new configuration: {why}; a restart would fail")
}

fn of_controller(
    ProcessReport { process, page }: &ProcessReport<ControllerStatus>,
) -> Vec<(String, Subject)> {
    let watches = page.failing_watches.iter().map(|why| (why, Subject::Watch(page.controller.clone())));
    let links = page.adapter.trouble.iter().map(|why| (why, Subject::Link(page.controller.clone())));
    let held = page.held_back.iter().map(|why| (why, Subject::HeldBack(page.controller.clone())));
    let all = watches.chain(links).chain(held);
    all.map(|(why, subject)| (format!("{} {process}: {why}", page.controller), subject)).collect()
}

/// Returns lines about the objects that have been out of sync for a long time. Objects above the limit share one line. In a dry run,
/// returns no lines.
fn long_waits(
    ProcessReport { process, page }: &ProcessReport<ControllerStatus>,
    now: Timestamp,
) -> Vec<(String, Subject)> {
    let old = |it: &&Waiting| it.since.is_some_and(|since| now.duration_since(since) >= LONG_WAIT);
    let all: Vec<&Waiting> = page.waits.iter().filter(old).filter(|_| !page.dry_run).collect();
    let line = |it: &&Waiting| {
        let Waiting { kind, key, since, waits_for, .. } = it;
        let why = waits_for.as_deref().unwrap_or("it is being reconciled");
        format!(
            "{} {process}: {kind} {key} has not been in sync for {}: {why}",
            page.controller,
            age(now, *since)
        )
    };
    let subject = |waits: &[&Waiting]| match waits.iter().all(|it| is_of_adapter(it, page)) {
        true => Subject::Object(page.controller.clone()),
        false => Subject::Own,
    };
    let named = all.iter().take(MAX_NAMED);
    let mut lines: Vec<(String, Subject)> = named.map(|it| (line(it), subject(&[it]))).collect();
    let more = all.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        let least = if all.len() == page.waits.len() { "at least " } else { "" };
        let long = words::duration(LONG_WAIT.as_secs_f64());
        let others: Vec<&Waiting> = all.iter().skip(MAX_NAMED).copied().collect();
        let causes =
            others.iter().map(|it| it.reason.as_deref().or(it.waits_for.as_deref()).unwrap_or("in progress"));
        let causes: Vec<&str> = causes.collect();
        let causes = grouped(&causes);
        let text =
            format!("{} {process}: {least}{more} more for longer than {long}: {causes}", page.controller);
        lines.push((text, subject(&others)));
    }
    lines
}

/// Whether an object waits for the adapter or for the cloud. The adapter gives no reason while it cannot be reached.
fn is_of_adapter(object: &Waiting, page: &ControllerStatus) -> bool {
    match object.reason.as_deref() {
        Some(reason) => OF_ADAPTER.contains(&reason),
        None => page.adapter.trouble.is_some(),
    }
}

pub(crate) fn breaker(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::HalfOpen => "half open",
        BreakerState::Open => "open",
    }
}

fn age(now: Timestamp, at: Option<Timestamp>) -> String {
    at.map_or_else(|| words::NOTHING.to_owned(), |at| words::age(now, at))
}
