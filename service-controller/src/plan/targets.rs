//! Which nodes stand behind the load balancers: one set a selection, computed once, shared by all Services that select the same.
//!
//! Readiness, cordons and other taints are deliberately not looked at: the load balancer's health check does that, so a
//! restarted kubelet costs no vendor call (KEP-3458).

use std::{collections::BTreeMap, fmt, net::IpAddr};

use cloud_api_proto::v1alpha1::{Backend, BackendDelta, BackendList};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::annotations::selector::Selector;

/// Takes a node out of every load balancer; its value is read as Go reads a bool.
pub(crate) const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Set by the cluster autoscaler on a node that it is about to remove.
pub(crate) const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Bytes of the digest that name a set: 128 bits, so that two sets never meet.
const ID_BYTES: usize = 16;

/// More names of nodes than this nobody reads.
const NAMES_MAX: usize = 20;

/// A node as far as load balancers care.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) provider_id: Option<String>,
    /// All of type `InternalIP`, in the order of the status.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) zone: Option<String>,
    pub(crate) deleting: bool,
    /// The value of [`EXCLUDE_LABEL`], if the label is there.
    pub(crate) exclude: Option<String>,
    /// Whether [`AUTOSCALER_TAINT`] is on it, with any value and effect.
    pub(crate) leaving: bool,
    /// For selectors.
    pub(crate) labels: BTreeMap<String, String>,
}

impl Node {
    /// Whether this node shall get traffic from load balancers.
    pub(crate) fn is_target(&self) -> bool {
        !self.deleting && !self.leaving && !self.exclude.as_deref().is_some_and(excludes)
    }
}

/// A label that is there excludes, unless Go would read its value as false.
fn excludes(value: &str) -> bool {
    !matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False")
}

/// Names of nodes for people: so many, and how many there are in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    names: Vec<String>,
    total: usize,
    /// A digest of what makes other hosts: machines and their addresses, and not where they are.
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

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }
}

/// As the classic controller writes them.
impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = self.total.saturating_sub(self.names.len());
        let more = (more > 0).then(|| format!("<{more} more>"));
        let words: Vec<&str> = self.names.iter().chain(&more).map(String::as_str).collect();
        write!(f, "[{}] [node names limited, total number of nodes: {}]", words.join(" "), self.total)
    }
}

/// The nodes behind load balancers that select them, and the name of exactly this set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Targets {
    /// A digest of the content: equal sets have equal names, in every process.
    pub(crate) id: String,
    /// What selects them. `None`: nothing is selected, all are behind it.
    pub(crate) selector: Option<Selector>,
    /// By provider ID, which names a member at the vendor.
    backends: BTreeMap<String, Backend>,
    /// Whether there is a selector and no node, target or not, has the labels.
    unmatched: bool,
    /// Nodes that would be targets and cannot be addressed yet.
    pub(crate) withheld: usize,
    /// Their names, for people.
    pub(crate) hosts: Hosts,
    /// No node is listed at all, and nobody said that the last one went: an API server that was restored, or that answers wrongly, looks
    /// the same.
    pub(crate) blind: bool,
}

impl Targets {
    /// Applies the rules to all nodes, or to those that are selected. Cost: no vendor calls, O(n log n).
    ///
    /// Withheld are nodes without provider ID or internal address, and the second of two that claim one machine.
    pub(crate) fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>, selector: Option<&Selector>) -> Self {
        let selected = |node: &&Node| selector.is_none_or(|selector| selector.matches(&node.labels));
        let mut wanted: Vec<&Node> = nodes.into_iter().filter(selected).collect();
        let unmatched = selector.is_some() && wanted.is_empty();
        wanted.retain(|node| node.is_target());
        wanted.sort_by(|a, b| a.name.cmp(&b.name));
        let mut backends = BTreeMap::new();
        for backend in wanted.iter().filter_map(|node| backend(node)) {
            backends.entry(backend.provider_id.clone()).or_insert(backend);
        }
        let withheld = wanted.len().saturating_sub(backends.len());
        let id = digest(backends.values().cloned().collect());
        let hosts = Hosts::of(&backends);
        Self { id, selector: selector.cloned(), backends, unmatched, withheld, hosts, blind: false }
    }

    /// The selector that no node matches, if that is why there are no targets.
    pub(crate) fn unmatched(&self) -> Option<&Selector> {
        self.selector.as_ref().filter(|_| self.unmatched)
    }

    /// How many nodes get traffic.
    pub(crate) fn len(&self) -> usize {
        self.backends.len()
    }

    /// The whole set, for an adapter that knows none.
    pub(crate) fn full(&self) -> BackendList {
        BackendList { backends: self.backends.values().cloned().collect() }
    }

    /// What turns `base` into this set, for an adapter that knows `base`.
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

/// Names exactly this list.
fn digest(backends: Vec<Backend>) -> String {
    short(&Sha256::digest(BackendList { backends }.encode_to_vec()))
}

/// The first bytes of a digest, in hex.
pub(crate) fn short(digest: &[u8]) -> String {
    digest.iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
