//! Which labels a node shall have from its instance.

use std::{collections::BTreeMap, fmt};

use super::Instance;

/// Size, zone and region, each under its name of today and the older one that some still read.
pub(crate) const PAIRS: [[&str; 2]; 3] = [
    ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"],
    ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"],
    ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"],
];

type Labels = BTreeMap<String, String>;

/// A label of the vendor's that a node does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Withheld {
    pub(crate) key: String,
    /// The vendor's.
    pub(crate) value: String,
    pub(crate) why: Why,
}

/// Why a label is withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its domain is Kubernetes' own: a vendor must not say what only Kubernetes may.
    KubernetesOwn,
    /// The node has the key already, with another value.
    Taken {
        /// The node's.
        kept: String,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubernetesOwn => f.write_str("only Kubernetes may use this domain"),
            Self::Taken { kept } => write!(f, "the node has the value {kept:?} already"),
        }
    }
}

/// What differs on a node that is being initialised, ours and the vendor's extras as far as they may be set, and the extras that
/// may not.
pub(super) fn of_a_new_node(labels: &Labels, instance: &Instance) -> (Labels, Vec<Withheld>) {
    let mut differing = Labels::new();
    let mut withheld = Vec::new();
    for (key, value) in &instance.extra_labels {
        let why = match labels.get(key) {
            _ if is_kubernetes_own(key) => Why::KubernetesOwn,
            Some(kept) if kept == value => continue,
            Some(kept) => Why::Taken { kept: kept.clone() },
            None => {
                differing.insert(key.clone(), value.clone());
                continue;
            }
        };
        withheld.push(Withheld { key: key.clone(), value: value.clone(), why });
    }
    differing.extend(of_a_known_node(labels, instance));
    (differing, withheld)
}

/// What differs on any node: ours only. The cloud is the truth, both names get its word, and what the cloud does not name stays.
pub(super) fn of_a_known_node(labels: &Labels, instance: &Instance) -> Labels {
    let values = [&instance.instance_type, &instance.zone, &instance.region];
    let named = PAIRS.iter().zip(values).filter(|(_, value)| !value.is_empty());
    let wanted =
        named.flat_map(|(pair, value)| pair.iter().map(move |key| ((*key).to_owned(), value.clone())));
    wanted.filter(|(key, value)| labels.get(key) != Some(value)).collect()
}

/// Whether the key's domain is `kubernetes.io` or `k8s.io`, or below one of them.
fn is_kubernetes_own(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain.strip_suffix(own).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kubernetes_own_domains_are_closed_to_vendors() {
        let cases = [
            ("kubernetes.io/os", true),
            ("k8s.io/x", true),
            ("example.kubernetes.io/x", true),
            ("node.k8s.io/x", true),
            ("mykubernetes.io/x", false),
            ("example.com/x", false),
            ("example.com/kubernetes.io", false),
            ("plain", false),
            ("kubernetes.io", false),
        ];
        for (key, own) in cases {
            assert_eq!(is_kubernetes_own(key), own, "{key}");
        }
    }
}
