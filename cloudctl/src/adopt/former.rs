//! Finds what another cloud controller manager left in the cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod, Service},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde::{Deserialize, Serialize};

use crate::{
    cluster::{Cluster, is_held},
    labels::component_of,
    missing::Missing,
    options::Component,
};

/// Namespace and name of the Lease of the other cloud controller manager. Source: k8s.io/cloud-provider, `--leader-elect-resource-name`.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "cloud-controller-manager";
/// The finalizer that cloud controller managers add to Services with a load balancer. The service-controller uses the same finalizer.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The taint that kubelets set on nodes that no cloud provider has initialised.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

pub(super) const LEASES: &str = "leases";
pub(super) const PODS: &str = "pods";
pub(super) const SERVICES: &str = "services";
pub(super) const NODES: &str = "nodes";

/// What another cloud controller manager left in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Former {
    /// The other cloud controller manager's Lease, `kube-system/cloud-controller-manager`.
    pub lease: Option<FormerLease>,
    /// Pods in `kube-system` that look like a cloud controller manager.
    pub pods: Vec<String>,
    /// Services of type `LoadBalancer` with the finalizer of a load balancer.
    pub services: Vec<String>,
    /// Nodes that no cloud provider has initialised yet.
    pub uninitialised: Vec<String>,
    /// The resources that could not be read, with the causes: `leases`, `pods`, `services`, `nodes`. Whether they exist is not known.
    pub unread: BTreeMap<String, String>,
}

impl Former {
    pub(crate) fn runs(&self) -> bool {
        let unread = [LEASES, PODS].iter().any(|what| self.unread.contains_key(*what));
        unread || !self.pods.is_empty() || self.lease.as_ref().is_some_and(|it| it.running)
    }

    pub(crate) fn unread(why: &str) -> Self {
        let unread = [LEASES, PODS, SERVICES, NODES].map(|what| (what.to_owned(), why.to_owned())).into();
        Self { unread, ..Self::default() }
    }
}

/// The Lease of the other cloud controller manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormerLease {
    /// The last holder.
    pub holder: String,
    /// Time of the last renewal.
    pub renewed: Option<Timestamp>,
    /// Whether the last renewal is recent.
    pub running: bool,
}

/// The signs that another cloud controller manager runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signs {
    pub(crate) lease: Option<FormerLease>,
    /// Pods in `kube-system` that look like a cloud controller manager.
    pub(crate) pods: Vec<Pod>,
    /// What could not be read, by resource: `leases`, `pods`.
    pub(crate) unread: Vec<(&'static str, Missing)>,
}

pub(crate) async fn signs(cluster: &Cluster, now: Timestamp) -> Signs {
    let mut signs = Signs::default();
    let leases: Api<Lease> = cluster.namespaced(NAMESPACE);
    // The pod of `helm test` may list Leases, but not get them.
    let named = ListParams::default().fields(&format!("metadata.name={NAME}"));
    match cluster.ask(LEASES, async { leases.list(&named).await }).await {
        Ok(found) => {
            let found = found.items.into_iter().find(|it| it.name_any() == NAME);
            signs.lease = found.map(|it| lease(it, now));
        }
        Err(why) => signs.unread.push((LEASES, why)),
    }
    let pods: Api<Pod> = cluster.namespaced(NAMESPACE);
    match cluster.ask(PODS, async { pods.list(&ListParams::default()).await }).await {
        Ok(all) => signs.pods = all.items.into_iter().filter(is_former_ccm).collect(),
        Err(why) => signs.unread.push((PODS, why)),
    }
    signs
}

pub(crate) async fn read(cluster: &Cluster, now: Timestamp) -> (Former, Vec<Missing>) {
    let signs = signs(cluster, now).await;
    let pods = signs.pods.iter().map(|it| it.name_any()).collect();
    let mut former = Former { lease: signs.lease, pods, ..Former::default() };
    let (mut missing, mut unread) = (Vec::new(), BTreeMap::new());
    let mut lacks = |what: &str, why: Missing| {
        unread.insert(what.to_owned(), why.why.clone());
        missing.push(why);
    };
    for (what, why) in signs.unread {
        lacks(what, why);
    }
    let services: Api<Service> = cluster.all();
    match cluster.ask(SERVICES, async { services.list(&ListParams::default()).await }).await {
        Ok(all) => former.services = all.items.iter().filter(|it| has_balancer(it)).map(key).collect(),
        Err(why) => lacks(SERVICES, why),
    }
    let nodes: Api<Node> = cluster.all();
    match cluster.ask(NODES, async { nodes.list(&ListParams::default()).await }).await {
        Ok(all) => {
            former.uninitialised =
                all.items.iter().filter(|it| is_uninitialised(it)).map(|it| it.name_any()).collect();
        }
        Err(why) => lacks(NODES, why),
    }
    (Former { unread, ..former }, missing)
}

fn lease(lease: Lease, now: Timestamp) -> FormerLease {
    let spec = lease.spec.unwrap_or_default();
    FormerLease {
        running: is_held(&spec, now),
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|MicroTime(at)| at),
    }
}

/// The controllers of a cloud controller manager, with their current and their earlier names. Source: k8s.io/cloud-provider/names.
const TASKS: [(Component, [&str; 2]); 4] = [
    (Component::NodeController, ["cloud-node-controller", "cloud-node"]),
    (Component::NodeController, ["cloud-node-lifecycle-controller", "cloud-node-lifecycle"]),
    (Component::ServiceController, ["service-lb-controller", "service"]),
    (Component::RouteController, ["node-route-controller", "route"]),
];

/// Whether a cloud controller manager has the task of this controller, according to its flags.
pub(crate) fn does(pod: &Pod, component: Component) -> bool {
    let words: Vec<&str> = words(pod).collect();
    if component == Component::RouteController && words.contains(&"--configure-cloud-routes=false") {
        return false;
    }
    let Some(list) = words.iter().find_map(|it| it.strip_prefix("--controllers=")) else { return true };
    let list: Vec<&str> = list.split(',').collect();
    let disabled = |name: &&str| list.iter().any(|it| it.strip_prefix('-') == Some(*name));
    let runs = |names: &[&str; 2]| {
        let named = names.iter().any(|it| list.contains(it));
        named || (list.contains(&"*") && !names.iter().any(disabled))
    };
    TASKS.iter().any(|(of, names)| *of == component && runs(names))
}

fn words(pod: &Pod) -> impl Iterator<Item = &str> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.flat_map(|it| it.command.iter().chain(&it.args).flatten()).map(String::as_str)
}

/// Whether a pod looks like the former cloud controller manager, by its image, its program or its cloud provider.
fn is_former_ccm(pod: &Pod) -> bool {
    if component_of(pod).is_some() {
        return false;
    }
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    if containers.any(|it| it.image.as_ref().is_some_and(|image| image.contains(NAME))) {
        return true;
    }
    words(pod).any(|word| {
        let of_cloud = word.strip_prefix("--cloud-provider=");
        of_cloud.is_some_and(|cloud| cloud != "external" && !cloud.is_empty()) || word.ends_with(NAME)
    })
}

fn has_balancer(service: &Service) -> bool {
    let of_type = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    of_type == Some("LoadBalancer") && service.finalizers().iter().any(|it| it == FINALIZER)
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

pub(crate) fn is_uninitialised(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == UNINITIALIZED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::labels::COMPONENT;

    #[test]
    fn it_runs_while_its_lease_is_renewed() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let of = |holder: &str, renewed: &str| {
            let spec = json!({ "holderIdentity": holder, "renewTime": renewed });
            lease(serde_json::from_value(json!({ "metadata": {}, "spec": spec })).expect("a Lease"), now)
                .running
        };
        assert!(of("a", "2026-01-02T03:04:00.000000Z"));
        assert!(!of("a", "2026-01-02T03:00:00.000000Z"), "renewed long ago");
        assert!(!of("", "2026-01-02T03:04:00.000000Z"), "released");
    }

    #[test]
    fn a_former_ccm_is_recognised_by_its_command() {
        let pod = |label: &str, command: &[&str], args: &[&str]| {
            let container = json!({ "name": "it", "command": command, "args": args });
            let pod = json!({ "metadata": { "labels": { COMPONENT: label } }, "spec": { "containers": [container] } });
            serde_json::from_value::<Pod>(pod).expect("a pod")
        };
        assert!(is_former_ccm(&pod("ccm", &["/bin/openstack-cloud-controller-manager"], &[])));
        assert!(is_former_ccm(&pod("ccm", &[], &["--v=2", "--cloud-provider=openstack"])));
        let image = json!({ "name": "it", "image": "registry.k8s.io/cloud-controller-manager:v1" });
        let by_image = json!({ "metadata": {}, "spec": { "containers": [image] } });
        assert!(is_former_ccm(&serde_json::from_value(by_image).expect("a pod")));
        assert!(!is_former_ccm(&pod("kcm", &["kube-controller-manager"], &["--cloud-provider=external"])));
        assert!(!is_former_ccm(&pod("cloud-adapter", &[], &["--cloud-provider=openstack"])));
    }

    #[test]
    fn the_flags_of_a_ccm_say_which_tasks_it_has() {
        let all = [Component::NodeController, Component::ServiceController, Component::RouteController];
        let of = |args: &[&str]| {
            let container = json!({ "name": "it", "args": args });
            let pod = json!({ "metadata": {}, "spec": { "containers": [container] } });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            all.map(|it| does(&pod, it))
        };
        assert_eq!(of(&["--v=2"]), [true; 3]);
        let nodes = "--controllers=*,-cloud-node-controller,-cloud-node-lifecycle-controller";
        assert_eq!(of(&[nodes]), [false, true, true]);
        assert_eq!(of(&["--controllers=*,-cloud-node-controller"]), [true; 3], "it still deletes nodes");
        assert_eq!(of(&["--controllers=*,-service-lb-controller"]), [true, false, true]);
        assert_eq!(of(&["--controllers=*,-service,-route"]), [true, false, false], "the earlier names");
        assert_eq!(of(&["--controllers=node-route-controller"]), [false, false, true]);
        assert_eq!(of(&["--configure-cloud-routes=false"]), [true, true, false]);
    }

    #[test]
    fn services_and_nodes_are_recognised_by_finalizer_and_taint() {
        let service = |kind: &str, finalizer: &str| {
            let service = json!({ "metadata": { "finalizers": [finalizer] }, "spec": { "type": kind } });
            has_balancer(&serde_json::from_value(service).expect("a Service"))
        };
        assert!(service("LoadBalancer", FINALIZER));
        assert!(!service("ClusterIP", FINALIZER));
        assert!(!service("LoadBalancer", "another/controller"));
        let node = |key: &str| {
            let node =
                json!({ "metadata": {}, "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] } });
            is_uninitialised(&serde_json::from_value(node).expect("a node"))
        };
        assert!(node(UNINITIALIZED) && !node("node.kubernetes.io/not-ready"));
    }
}
