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

pub(crate) async fn read(cluster: &Cluster, now: Timestamp) -> (Former, Vec<Missing>) {
    let (mut former, mut missing, mut unread) = (Former::default(), Vec::new(), BTreeMap::new());
    let mut lacks = |what: &str, why: Missing| {
        unread.insert(what.to_owned(), why.why.clone());
        missing.push(why);
    };
    let leases: Api<Lease> = cluster.namespaced(NAMESPACE);
    match cluster.ask(LEASES, async { leases.get_opt(NAME).await }).await {
        Ok(found) => former.lease = found.map(|it| lease(it, now)),
        Err(why) => lacks(LEASES, why),
    }
    let pods: Api<Pod> = cluster.namespaced(NAMESPACE);
    match cluster.ask(PODS, async { pods.list(&ListParams::default()).await }).await {
        Ok(all) => {
            former.pods = all.items.iter().filter(|it| is_former_ccm(it)).map(|it| it.name_any()).collect();
        }
        Err(why) => lacks(PODS, why),
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

/// Whether a pod looks like the former cloud controller manager, by its image, its program or its cloud provider.
fn is_former_ccm(pod: &Pod) -> bool {
    if component_of(pod).is_some() {
        return false;
    }
    let containers = || pod.spec.iter().flat_map(|spec| &spec.containers);
    if containers().filter_map(|it| it.image.as_ref()).any(|image| image.contains(NAME)) {
        return true;
    }
    let mut words = containers().flat_map(|it| it.command.iter().chain(&it.args).flatten());
    words.any(|word| {
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
