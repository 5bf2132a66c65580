//! A snapshot of nodes, Services and the cloud as users see them, for a comparison with a later state.

use std::collections::BTreeMap;
use std::fmt::Debug;

use adapter_sim::simcloud::model::{LoadBalancer, ProvisioningStatus, Route};
use anyhow::{bail, ensure};
use e2e::State;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::bed::Bed;

/// Objects that users must not see change.
#[derive(Debug)]
pub(crate) struct Picture {
    /// UID, specification, labels, addresses.
    nodes: BTreeMap<String, Value>,
    /// UID, specification, addresses.
    services: BTreeMap<String, Value>,
    /// Load balancers without their tags, which record the owner.
    pub(crate) balancers: Vec<LoadBalancer>,
    /// Complete routes.
    pub(crate) routes: Vec<Route>,
}

impl Picture {
    /// Takes a snapshot, as soon as no load balancer is being changed.
    pub(crate) async fn take(bed: &Bed) -> anyhow::Result<Self> {
        let (nodes, services): (Api<Node>, Api<Service>) =
            (Api::all(bed.client.clone()), Api::default_namespaced(bed.client.clone()));
        let nodes = nodes.list(&ListParams::default()).await?.items.into_iter().map(|node| {
            let (meta, status, mut spec) =
                (node.metadata, node.status.unwrap_or_default(), node.spec.unwrap_or_default());
            // Taints that Kubernetes itself sets because of the kubelet are ignored.
            spec.taints.get_or_insert_default().retain(|it| !it.key.starts_with("node.kubernetes.io/"));
            let network = status.conditions.into_iter().flatten().find(|it| it.type_ == "NetworkUnavailable");
            let network = network.map(|it| (it.status, it.reason));
            let seen = json!([meta.uid, spec, meta.labels, status.addresses, network]);
            (meta.name.unwrap_or_default(), seen)
        });
        let services = services.list(&ListParams::default()).await?.items.into_iter().map(|service| {
            let meta = service.metadata;
            let balancer = service.status.and_then(|status| status.load_balancer);
            (meta.name.unwrap_or_default(), json!([meta.uid, service.spec, meta.finalizers, balancer]))
        });
        let (nodes, services) = (nodes.collect(), services.collect());
        let State { load_balancers, routes, .. } = bed
            .until_cloud("no load balancer is being changed", |state| {
                let mut all = state.load_balancers.iter();
                ensure!(all.all(|it| it.status == ProvisioningStatus::Active), "{:?}", state.load_balancers);
                Ok(state.clone())
            })
            .await?;
        let apart =
            |it: LoadBalancer| LoadBalancer { tags: BTreeMap::new(), updated_at: it.created_at, ..it };
        Ok(Self { nodes, services, balancers: load_balancers.into_iter().map(apart).collect(), routes })
    }

    /// Checks that everything in the snapshot is unchanged. New objects are allowed.
    pub(crate) async fn is_still_so(&self, bed: &Bed) -> anyhow::Result<()> {
        let mut now = Self::take(bed).await?;
        now.services.retain(|name, _| self.services.contains_key(name));
        now.balancers.retain(|now| self.balancers.iter().any(|it| it.id == now.id));
        self.differs_in_nothing_from(&now)?;
        bed.step("nodes, Services, load balancers and routes are unchanged");
        Ok(())
    }

    fn differs_in_nothing_from(&self, now: &Self) -> anyhow::Result<()> {
        same("nodes", &self.nodes, &now.nodes)?;
        same("Services", &self.services, &now.services)?;
        same("load balancers", &self.balancers, &now.balancers)?;
        same("routes", &self.routes, &now.routes)
    }

    /// Compares only the UIDs and specifications of the nodes.
    pub(crate) async fn nodes_are_still_so(&self, bed: &Bed) -> anyhow::Result<()> {
        let who = |it: &Self| -> Vec<_> {
            it.nodes
                .iter()
                .map(|(name, node)| (name.clone(), [node.get(0).cloned(), node.get(1).cloned()]))
                .collect()
        };
        same("nodes", &who(self), &who(&Self::take(bed).await?))?;
        bed.step("nodes are unchanged");
        Ok(())
    }

    pub(crate) fn without(mut self, service: &str) -> Self {
        self.services.remove(service);
        self.balancers.retain(|it| !it.name.contains(service));
        self
    }
}

/// Fails with the lines that differ.
fn same<T: Debug + PartialEq>(what: &str, before: &T, now: &T) -> anyhow::Result<()> {
    if before == now {
        return Ok(());
    }
    let [before, now] = [before, now].map(|it| format!("{it:#?}"));
    let only = |of: &str, other: &str| {
        let lines = of.lines().filter(|line| !other.lines().any(|it| it == *line));
        lines.collect::<Vec<_>>().join("\n")
    };
    bail!("{what} have changed; before:\n{}\nnow:\n{}", only(&before, &now), only(&now, &before))
}
