//! The checks of ClusterRoles, of the Secret of the certificate authority, and of nodes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Node, Secret},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, ResourceExt, api::ListParams};

use super::super::{
    About, Check, CheckResult, before,
    causes::{Need, to_reconcile},
    flags,
};
use crate::{
    adopt::is_uninitialised,
    cluster::Cluster,
    labels::{component_of, is_of_chart, selector},
    options::Component,
    release::Release,
    words::{age, many, named},
};

/// Time in seconds for which a node may keep the taint after it joined.
const INITIALISED_WITHIN_SECONDS: i64 = 120;
/// The adapter's flag with the Secret of the certificate authority. Source: helm/cloud-controllers/templates/_adapter.tpl.
const AUTHORITY_FLAG: &str = "--tls-ca-secret=";

const ROLES: About =
    About { name: "each controller has its ClusterRole", hint: "run helm upgrade", link: "docs/security.md" };
const AUTHORITY: About = About {
    name: "the Secret of the certificate authority is filled",
    hint: "see the log of the adapter, which fills it",
    link: "docs/security.md#certificates",
};
/// The hint for a Secret of the certificate authority that does not exist.
pub(super) const CREATES: &str = "helm upgrade creates it";

const NODES: About = About {
    name: "the nodes are initialised",
    hint: "see the Events of the nodes, and `cloudctl explain node NAME`",
    link: "docs/troubleshoot.md#nodes",
};
pub(in super::super) async fn cluster_roles(cluster: &Cluster, release: &Release) -> Check {
    let api: Api<ClusterRole> = cluster.all();
    let params = ListParams::default().labels(&selector());
    let deployed = cluster.deployments(Some(&release.namespace)).await;
    let roles = cluster.ask("clusterroles", async { api.list_metadata(&params).await }).await;
    let api: Api<ClusterRoleBinding> = cluster.all();
    let bindings = cluster.ask("clusterrolebindings", async { api.list_metadata(&params).await }).await;
    let (deployed, roles, bindings) = match (deployed, roles, bindings) {
        (Ok(deployed), Ok(roles), Ok(bindings)) => (deployed, roles, bindings),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return ROLES.unknown(&why),
    };
    let deployed = deployed.iter().filter(|it| is_of_chart(*it) && release.has(*it)).filter_map(component_of);
    of_roles(&deployed.collect(), &components(&roles.items, release), &components(&bindings.items, release))
}

fn components<T: ResourceExt>(objects: &[T], release: &Release) -> BTreeSet<Component> {
    objects.iter().filter(|it| release.has(*it)).filter_map(component_of).collect()
}

/// A ClusterRole has no effect without a ClusterRoleBinding.
pub(in super::super) fn of_roles(
    deployed: &BTreeSet<Component>,
    roles: &BTreeSet<Component>,
    bindings: &BTreeSet<Component>,
) -> Check {
    let lacking = |it: &Component| match (roles.contains(it), bindings.contains(it)) {
        (false, _) => Some(format!("{} has none", it.name())),
        (true, false) => Some(format!("{} has no ClusterRoleBinding", it.name())),
        (true, true) => None,
    };
    let controllers = deployed.iter().filter(|it| Component::CONTROLLERS.contains(it));
    let lacking: Vec<(Component, String)> = controllers.filter_map(|it| Some((*it, lacking(it)?))).collect();
    let (without, lacking): (Vec<Component>, Vec<String>) = lacking.into_iter().unzip();
    let without = without.into_iter().map(Need::Rights).collect();
    ROLES.judged(&lacking, format!("{} ClusterRoles", roles.len())).without(without)
}

pub(in super::super) async fn authority(cluster: &Cluster, release: &Release) -> Check {
    let api: Api<Secret> = cluster.namespaced(&release.namespace);
    let params = ListParams::default().labels(&selector());
    let secrets = cluster.ask("secrets", async { api.list(&params).await }).await;
    let api: Api<Deployment> = cluster.namespaced(&release.namespace);
    let deployments = cluster.ask("deployments", async { api.list(&params).await }).await;
    match (secrets, deployments) {
        (Ok(mut secrets), Ok(mut deployments)) => {
            secrets.items.retain(|it| is_of_chart(it) && release.has(it));
            deployments.items.retain(|it| is_of_chart(it) && release.has(it));
            of_secrets(&secrets.items, filled_by_adapter(&deployments.items).as_deref())
        }
        (Err(why), _) if why.forbidden => AUTHORITY.not_permitted(CheckResult::Skipped, "list Secrets"),
        (Err(why), _) | (_, Err(why)) => AUTHORITY.unknown(&why),
    }
}

/// Returns the name of the Secret that the adapter fills, if the chart creates it.
pub(in super::super) fn filled_by_adapter(all: &[Deployment]) -> Option<String> {
    let secret = all.iter().flat_map(flags::args).find_map(|it| it.strip_prefix(AUTHORITY_FLAG))?;
    Some(secret.rsplit('/').next().unwrap_or(secret).to_owned())
}

/// `name`: the Secret that the adapter fills.
pub(in super::super) fn of_secrets(all: &[Secret], name: Option<&str>) -> Check {
    let Some(name) = name else { return AUTHORITY.ok("the chart creates none") };
    let Some(secret) = all.iter().find(|it| it.name_any() == name) else {
        let absent = AUTHORITY.result(CheckResult::Failed, format!("{name} does not exist"));
        return Check { hint: Some(CREATES.to_owned()), ..absent }.without(vec![Need::Authority]);
    };
    let filled =
        |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).is_some_and(|it| !it.0.is_empty());
    let lacking = ["ca.crt", "ca.key"].iter().filter(|key| !filled(key));
    let lacking: Vec<String> = lacking.map(|key| format!("{} has no {key}", secret.name_any())).collect();
    let needs = vec![Need::Runs(Component::CloudAdapter)];
    AUTHORITY.judged(&lacking, secret.name_any()).following(vec![needs; lacking.len()])
}

/// Checks that the kubelets wait for the node-controller, and that it initialises their nodes.
pub(in super::super) async fn nodes(cluster: &Cluster, now: Timestamp) -> [Check; 2] {
    let api: Api<Node> = cluster.all();
    match cluster.ask("nodes", async { api.list(&ListParams::default()).await }).await {
        Ok(nodes) => [before::of_nodes(&nodes.items), of_nodes(&nodes.items, now)],
        Err(why) => [before::KUBELETS.unknown(&why), NODES.unknown(&why)],
    }
}

/// A node that joined a short time ago waits for its first reconcile.
pub(in super::super) fn of_nodes(nodes: &[Node], now: Timestamp) -> Check {
    let joined = |it: &Node| it.metadata.creation_timestamp.as_ref().map(|Time(at)| *at);
    let is_old = |it: &&Node| {
        joined(it).is_none_or(|at| now.duration_since(at).as_secs() > INITIALISED_WITHIN_SECONDS)
    };
    let (old, young): (Vec<&Node>, Vec<&Node>) =
        nodes.iter().filter(|it| is_uninitialised(it)).partition(is_old);
    if !old.is_empty() {
        let old: Vec<String> = old.iter().map(|it| it.name_any()).collect();
        let found = format!("of {} nodes, these have had the taint for 2m: {}", nodes.len(), named(&old));
        let needs = to_reconcile(Component::NodeController);
        return NODES.result(CheckResult::Failed, found).following(vec![needs]);
    }
    let Some(first) = young.iter().filter_map(|it| joined(it)).min() else {
        return NODES.ok(format!("{} nodes", nodes.len()));
    };
    let waiting = many(u64::try_from(young.len()).unwrap_or(u64::MAX), "node");
    let verb = if young.len() == 1 { "waits" } else { "wait" };
    let found =
        format!("{waiting} {verb} to be initialised (for {}); normal for up to 2 minutes", age(now, first));
    NODES.result(CheckResult::Waiting, found)
}
