//! The checks of an installed release.

pub(super) mod controllers;
pub(super) mod deployments;
pub(super) mod events;
pub(super) mod objects;
mod others;
mod services;
mod starting;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use telemetry::report::{AdapterStatus, ControllerStatus};

use self::controllers::Controllers;
use super::{
    About, Check, CheckResult, before,
    causes::{Need, to_reconcile},
    releases,
};
use crate::{
    cluster::Cluster,
    missing::Missing,
    options::Component,
    session::Session,
    status::{self, ProcessReport, Shard, StatusReport, Subject},
};

const VERSIONS: About = About {
    name: "all processes have the same version",
    hint: "wait for the rollout, or run helm upgrade",
    link: "docs/upgrade.md#what-must-run-together",
};
const ADAPTER: About = About {
    name: "the controllers reach the adapter",
    hint: "see the adapter's pods and the controllers' logs",
    link: "docs/troubleshoot.md",
};
const CLOUD: About = About {
    name: "the adapter reaches the cloud",
    hint: "check the endpoint of the cloud in the credentials or values of the adapter, and the network to it",
    link: "docs/troubleshoot.md#reasons-of-the-adapter",
};
const CREDENTIALS: About = About {
    name: "the cloud accepts the adapter's credentials",
    hint: "check the credentials",
    link: "docs/troubleshoot.md#reasons-of-the-adapter",
};
const LEASES: About = About {
    name: "each shard has a holder that renews its Lease",
    hint: "see `cloudctl status` and the logs of that controller",
    link: "docs/replicas.md",
};
const HELD_BACK: About = About {
    name: "no changes are held back",
    hint: "see `cloudctl status`",
    link: "docs/troubleshoot.md#events",
};
const STATUS: About = About {
    name: "`cloudctl status` reports nothing as not well",
    hint: "see `cloudctl status`",
    link: "docs/cloudctl.md#status",
};

/// The end of a text about a watch that the API server refuses. Source: controller-core/src/mirror/kubernetes.rs.
const SEE_CHECK: &str = "; see `cloudctl check`";
/// The start of the text about another scope. Source: controller-core/src/adapter/scope.rs.
const MOVED: &str = "The cloud adapter now uses ";
/// The adapter's answer while the cloud is not reachable. Source: cloud-adapter/src/rpc.rs.
const WITHOUT_CLOUD: &str = "the adapter cannot reach the cloud";

/// The reasons for which the cloud does not accept the credentials.
const REJECTED: [&str; 2] = ["VENDOR_AUTH", "VENDOR_FORBIDDEN"];

pub(super) async fn checks(session: &mut Session) -> Vec<Check> {
    let status = status::of_session(session).await;
    let mut all = Vec::new();
    if let Some(cluster) = &session.cluster {
        all.push(before::version(cluster.version().await));
        all.push(releases::after(cluster).await);
        all.push(deployments::check(cluster, &session.release).await);
        all.push(objects::cluster_roles(cluster, &session.release).await);
        all.push(objects::authority(cluster, &session.release).await);
    }
    all.extend(of_pages(&status));
    if let Some(cluster) = &session.cluster {
        let own = controllers::read(cluster, &session.release).await;
        all.extend(of_nodes(cluster, own.as_ref(), session.now).await);
        all.extend(match &own {
            Ok(own) => services::check(cluster, &own.classes, &reasons(&status)).await,
            Err(why) => services::unknown(why),
        });
        all.push(events::check(cluster, &session.release, session.now).await);
    }
    all
}

/// Without a node-controller, another cloud controller manager may have the task to initialise the nodes.
pub(super) async fn of_nodes(
    cluster: &Cluster,
    own: Result<&Controllers, &Missing>,
    now: Timestamp,
) -> Vec<Check> {
    let [kubelets, initialised] = objects::nodes(cluster, now).await;
    match own {
        Ok(own) if !own.has(Component::NodeController) => vec![initialised],
        Ok(own) => vec![others::check(cluster, own, now).await, kubelets, initialised],
        Err(why) => vec![others::OTHERS.unknown(why), kubelets, initialised],
    }
}

/// The checks that need only status pages and Leases.
pub(super) fn of_pages(status: &StatusReport) -> Vec<Check> {
    let [cloud, credentials] = cloud(&status.adapters);
    vec![
        versions(&status.adapters, &status.controllers),
        reached(&status.controllers),
        cloud,
        credentials,
        held(&status.shards),
        held_back(&status.controllers),
        troubles(status),
    ]
}

/// The replicas of a controller, and several controllers, can hold back changes for the same reason.
fn held_back(controllers: &[ProcessReport<ControllerStatus>]) -> Check {
    let mut texts: Vec<String> = controllers.iter().flat_map(|it| it.page.held_back.clone()).collect();
    let mut seen = BTreeSet::new();
    texts.retain(|it| seen.insert(it.clone()));
    let mut lacking = Vec::new();
    for ProcessReport { page, .. } in controllers {
        let Some(controller) = Component::named(&page.controller) else { continue };
        lacking.extend((!page.held_back.is_empty()).then_some(Need::Released(controller)));
        let moved = page.held_back.iter().any(|it| it.starts_with(MOVED));
        lacking.extend(moved.then_some(Need::Scope(controller)));
    }
    HELD_BACK.judged(&texts, "").without(lacking)
}

fn held(shards: &[Shard]) -> Check {
    let unheld: Vec<&Shard> = shards.iter().filter(|it| it.holder.is_none()).collect();
    if unheld.is_empty() {
        return LEASES.ok(format!("{} shards", shards.len()));
    }
    let names: Vec<String> =
        unheld.iter().map(|it| format!("{} shard {}", it.controller, it.shard)).collect();
    let components = || unheld.iter().map(|it| Component::named(&it.controller));
    let faults = components().map(|it| it.map(Need::Runs).into_iter().collect()).collect();
    let lacking = components().flatten().map(Need::Holder).collect();
    let found = format!("no holder: {}", names.join(", "));
    LEASES.result(CheckResult::Failed, found).following(faults).without(lacking)
}

/// Names the first trouble of `cloudctl status`, such as an open breaker, a failing listing, or an object that is out of sync.
fn troubles(status: &StatusReport) -> Check {
    let check = match status.troubles.as_slice() {
        [] if status.adapters.is_empty() && status.controllers.is_empty() => {
            let hint = Some("let cloudctl read a status page first".to_owned());
            Check { hint, ..STATUS.result(CheckResult::Unknown, "not known: no status page was read") }
        }
        [] => STATUS.ok(""),
        [only] => STATUS.result(CheckResult::Failed, here(only)),
        [first, more @ ..] => {
            STATUS.result(CheckResult::Failed, format!("{} (and {} more)", here(first), more.len()))
        }
    };
    let subjects: BTreeMap<String, Subject> = status::troubles(status).into_iter().collect();
    let needs = |it: &String| subjects.get(it).map(needs).unwrap_or_default();
    check.following(status.troubles.iter().map(needs).collect())
}

/// Removes the advice to run this command.
fn here(trouble: &str) -> &str {
    trouble.strip_suffix(SEE_CHECK).unwrap_or(trouble)
}

/// What a trouble of `cloudctl status` follows from, if another check reports it, too.
fn needs(subject: &Subject) -> Vec<Need> {
    let of = |name: &str, need: fn(Component) -> Need| Component::named(name).map(need).into_iter().collect();
    match subject {
        Subject::Leader => vec![Need::Leader],
        Subject::Cloud => vec![Need::Cloud],
        Subject::HeldBack(controller) => of(controller, Need::Released),
        Subject::Watch(controller) => of(controller, Need::Rights),
        Subject::Link(controller) => of(controller, Need::Adapter),
        Subject::Shard(controller) => of(controller, Need::Holder),
        Subject::Object(controller) => Component::named(controller).map(to_reconcile).unwrap_or_default(),
        Subject::Own => Vec::new(),
    }
}

/// An adapter of another project has its own version numbers, so its version is not compared with the controllers' versions.
fn versions(
    adapters: &[ProcessReport<AdapterStatus>],
    controllers: &[ProcessReport<ControllerStatus>],
) -> Check {
    let own = |it: &&ProcessReport<AdapterStatus>| {
        ["adapter-sim", "adapter-openstack"].contains(&it.page.adapter.as_str())
    };
    let adapters =
        adapters.iter().filter(own).map(|it| (Component::CloudAdapter.name(), it.page.version.as_str()));
    let controllers = controllers.iter().map(|it| (it.page.controller.as_str(), it.page.version.as_str()));
    let all: BTreeSet<(&str, &str)> = adapters.chain(controllers).collect();
    let versions: BTreeSet<&str> = all.iter().map(|(_, version)| *version).collect();
    let list: Vec<String> = all.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let trouble = (versions.len() > 1).then(|| list.join(", "));
    let found = versions.into_iter().collect::<Vec<_>>().join(", ");
    VERSIONS.judged(&trouble.into_iter().collect::<Vec<_>>(), found)
}

fn reached(controllers: &[ProcessReport<ControllerStatus>]) -> Check {
    if controllers.is_empty() {
        let needs = Component::CONTROLLERS.map(Need::Runs).to_vec();
        return ADAPTER.result(CheckResult::Failed, "no controller could be read").following(vec![needs]);
    }
    let trouble = |it: &ProcessReport<ControllerStatus>| {
        it.page.adapter.trouble.as_ref().map(|why| format!("{} {}: {why}", it.page.controller, it.process))
    };
    let troubles: Vec<String> = controllers.iter().filter_map(trouble).collect();
    let faults = controllers.iter().filter_map(|it| it.page.adapter.trouble.as_deref()).map(to_reach);
    let faults = faults.collect();
    let failing = controllers.iter().filter(|it| it.page.adapter.trouble.is_some());
    let failing = failing.filter_map(|it| Component::named(&it.page.controller)).map(Need::Adapter);
    ADAPTER
        .judged(&troubles, format!("{} replicas do", controllers.len()))
        .following(faults)
        .without(failing.collect())
}

/// What a controller lacks that cannot use the adapter. An adapter that cannot reach the cloud answers the controller, and says so.
fn to_reach(trouble: &str) -> Vec<Need> {
    let runs = Need::Runs(Component::CloudAdapter);
    if trouble.contains(WITHOUT_CLOUD) { vec![runs, Need::Cloud] } else { vec![runs] }
}

/// Whether the cloud can be reached, and whether it accepts the credentials, which is not known before it answers.
fn cloud(adapters: &[ProcessReport<AdapterStatus>]) -> [Check; 2] {
    let unreached = |cloud: Check| {
        let hint = Some("first let the adapter reach the cloud".to_owned());
        let found = "not known: the cloud cannot be reached";
        [cloud, Check { hint, ..CREDENTIALS.result(CheckResult::Unknown, found) }]
    };
    let Some(leader) = adapters.iter().find(|it| it.page.leader) else {
        let hint = Some("see the adapter's pods".to_owned());
        let found = "no replica of the adapter that was read is the leader";
        let cloud = Check { hint, ..CLOUD.result(CheckResult::Failed, found) };
        let runs = Need::Runs(Component::CloudAdapter);
        return unreached(cloud.following(vec![vec![runs]]).without(vec![Need::Leader]));
    };
    let AdapterStatus { trouble, trouble_reason, snapshots, scope, .. } = &leader.page;
    let rejects = trouble_reason.as_deref().is_some_and(|it| REJECTED.contains(&it));
    // A cloud that accepted the credentials earlier may not be reachable any more.
    let listed = snapshots.iter().filter(|it| it.error.is_some() || it.age_seconds.is_some());
    let errors: Option<Vec<&String>> = listed.map(|it| it.error.as_ref()).collect();
    let fails = errors.and_then(|all| all.first().copied());
    let failed = |about: About, why: &str| about.result(CheckResult::Failed, why).without(vec![Need::Cloud]);
    match (trouble, fails) {
        (Some(why), _) if rejects => [CLOUD.ok(""), failed(CREDENTIALS, why)],
        (Some(why), _) | (None, Some(why)) => unreached(failed(CLOUD, why)),
        (None, None) => [CLOUD.ok(""), CREDENTIALS.ok(scope.clone().unwrap_or_default())],
    }
}

/// What each Service waits for, according to the status pages.
fn reasons(status: &StatusReport) -> BTreeMap<String, String> {
    let tasks = status.adapters.iter().flat_map(|it| &it.page.tasks);
    let tasks = tasks.map(|it| (it.name.clone(), it.waits_for.clone()));
    let waits = status.controllers.iter().flat_map(|it| &it.page.waits).filter(|it| it.kind == "Service");
    let waits = waits.filter_map(|it| Some((it.key.clone(), it.waits_for.clone()?)));
    tasks.chain(waits).collect()
}
