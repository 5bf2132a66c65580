//! The nodes behind load balancers. Each set is computed once per selector, and shared by all Services with that selector.
//!
//! Readiness, cordons and other taints are deliberately ignored, because the load balancer's health check covers them. So a restart of a
//! kubelet costs no vendor call (KEP-3458).

use std::{collections::BTreeMap, fmt, net::IpAddr};

use cloud_api_proto::v1alpha1::{Backend, BackendDelta, BackendList};
use controller_core::selector::Selector;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::{
    digest::short,
    left_out::{Counts, LeftOut},
};

/// Maximum number of node names in an Event.
const NAMES_MAX: usize = 20;

/// A node, reduced to the fields that matter for load balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) provider_id: Option<String>,
    /// Addresses of type `InternalIP`, in the order of the status.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) zone: Option<String>,
    pub(crate) deleting: bool,
    /// The value of [`super::left_out::EXCLUDE_LABEL`], if the label is set.
    pub(crate) exclude: Option<String>,
    /// Whether the node has the taint [`super::left_out::AUTOSCALER_TAINT`], with any value and effect.
    pub(crate) leaving: bool,
    pub(crate) labels: BTreeMap<String, String>,
}

#[cfg(test)]
impl Node {
    /// Returns a node that can be behind load balancers.
    pub(crate) fn testing(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            provider_id: Some(format!("sim://r1/{name}")),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            ..Self::default()
        }
    }
}

impl Node {
    pub(crate) fn is_target(&self) -> bool {
        !self.deleting && !self.leaving && !self.is_excluded()
    }

    fn is_excluded(&self) -> bool {
        self.exclude.as_deref().is_some_and(excludes)
    }

    /// Returns why the node is not behind a load balancer with this selector. `None`: the node is, unless another node has its provider ID.
    fn left_out(&self, selector: Option<&Selector>) -> Option<LeftOut> {
        let causes = [
            (selector.is_some_and(|it| !it.matches(&self.labels)), LeftOut::Unselected),
            (self.is_excluded(), LeftOut::Excluded),
            (self.deleting, LeftOut::Deleting),
            (self.leaving, LeftOut::Leaving),
            (self.provider_id.as_deref().unwrap_or_default().is_empty(), LeftOut::NoProviderId),
            (self.addresses.is_empty(), LeftOut::NoAddress),
        ];
        causes.into_iter().find(|(applies, _)| *applies).map(|(_, cause)| cause)
    }
}

/// Whether this value of the label excludes the node. Only values that Go parses as false do not exclude the node.
fn excludes(value: &str) -> bool {
    !matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False")
}

/// Names of nodes for Events, up to a limit, and the total number of these nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    names: Vec<String>,
    total: usize,
    /// Digest of the instances and their addresses, without their zones.
    digest: String,
}

impl Hosts {
    fn of(backends: &BTreeMap<String, Backend>) -> Self {
        let mut names: Vec<&String> = backends.values().map(|it| &it.node_name).collect();
        names.sort();
        let names = names.into_iter().take(NAMES_MAX).cloned().collect();
        let bare = |it: &Backend| Backend { zone: String::new(), ..it.clone() };
        Self { names, total: backends.len(), digest: digest(backends.values().map(bare).collect()) }
    }

    #[cfg(test)]
    pub(super) fn some() -> Self {
        Self { names: vec!["a".to_owned()], total: 1, digest: String::new() }
    }

    /// Returns the same set without the names, so that only its size is shown.
    pub(crate) fn unnamed(&self) -> Self {
        Self { names: Vec::new(), ..self.clone() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }
}

/// Lists the names in the format of the former cloud controller manager.
impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = self.total.saturating_sub(self.names.len());
        let more = (more > 0).then(|| format!("<{more} more>"));
        let words: Vec<&str> = self.names.iter().chain(&more).map(String::as_str).collect();
        write!(f, "[{}] [node names limited, total number of nodes: {}]", words.join(" "), self.total)
    }
}

/// The nodes behind load balancers with the same selector, and the ID of this set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Targets {
    /// Digest of the content: equal sets have equal IDs, in every process.
    pub(crate) id: String,
    /// The selector. `None`: all nodes.
    pub(crate) selector: Option<Selector>,
    /// The backends, keyed by provider ID, which identifies a member in the cloud.
    backends: BTreeMap<String, Backend>,
    /// The number of nodes that are not backends, by cause. Empty if there are backends.
    pub(super) left_out: Counts,
    /// Number of nodes that would be targets but have no usable address or provider ID.
    pub(crate) withheld: usize,
    pub(crate) hosts: Hosts,
    /// Whether the node list is empty although no deletion of the last node was observed. A restored or faulty API server would look the
    /// same.
    pub(crate) blind: bool,
}

impl Targets {
    /// Computes the set of all nodes, or of the selected ones. Cost: no vendor calls, O(n log n).
    ///
    /// Leaves out nodes without a provider ID or an internal address. Of two nodes with the same provider ID, the second is left out.
    pub(crate) fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>, selector: Option<&Selector>) -> Self {
        let selected = |node: &&Node| selector.is_none_or(|selector| selector.matches(&node.labels));
        let all: Vec<&Node> = nodes.into_iter().collect();
        let mut wanted: Vec<&Node> = all.iter().copied().filter(selected).collect();
        wanted.retain(|node| node.is_target());
        wanted.sort_by(|a, b| a.name.cmp(&b.name));
        let mut backends = BTreeMap::new();
        for backend in wanted.iter().filter_map(|node| backend(node)) {
            backends.entry(backend.provider_id.clone()).or_insert(backend);
        }
        let withheld = wanted.len().saturating_sub(backends.len());
        let mut left_out = Counts::new();
        if backends.is_empty() {
            for cause in all.iter().filter_map(|node| node.left_out(selector)) {
                let count = left_out.entry(cause).or_default();
                *count = count.saturating_add(1);
            }
        }
        let id = digest(backends.values().cloned().collect());
        let hosts = Hosts::of(&backends);
        Self { id, selector: selector.cloned(), backends, left_out, withheld, hosts, blind: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.backends.len()
    }

    /// The whole set, for an adapter that has no earlier set.
    pub(crate) fn full(&self) -> BackendList {
        BackendList { backends: self.backends.values().cloned().collect() }
    }

    /// The difference from `base`, for an adapter that has `base`.
    pub(crate) fn since(&self, base: &Self) -> BackendDelta {
        let changed = |(id, backend): &(&String, &Backend)| base.backends.get(*id) != Some(*backend);
        BackendDelta {
            base_id: base.id.clone(),
            add: self.backends.iter().filter(changed).map(|(_, backend)| backend.clone()).collect(),
            remove: base.backends.keys().filter(|id| !self.backends.contains_key(*id)).cloned().collect(),
        }
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.backends.values().map(|it| it.node_name.as_str()).collect();
        write!(f, "[{}], {} withheld", names.join(" "), self.withheld)
    }
}

fn backend(node: &Node) -> Option<Backend> {
    let first = |wanted: fn(&&IpAddr) -> bool| node.addresses.iter().find(wanted);
    let addresses: Vec<String> = [first(|ip| ip.is_ipv4()), first(|ip| ip.is_ipv6())]
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let provider_id = node.provider_id.clone().filter(|id| !id.is_empty())?;
    (!addresses.is_empty()).then(|| Backend {
        provider_id,
        node_name: node.name.clone(),
        addresses,
        zone: node.zone.clone().unwrap_or_default(),
        weight: None,
        draining: false,
    })
}

fn digest(backends: Vec<Backend>) -> String {
    short(&Sha256::digest(BackendList { backends }.encode_to_vec()))
}

#[cfg(test)]
mod tests;
