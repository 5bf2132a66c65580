//! Which labels a node shall have from its instance.

use std::collections::BTreeMap;

use super::Instance;

/// Size, zone and region, each under its name of today and the older one that some still read.
pub(crate) const PAIRS: [[&str; 2]; 3] = [
    ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"],
    ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"],
    ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"],
];

type Labels = BTreeMap<String, String>;

/// What differs on a node that is being initialised: ours, and the vendor's extras as far as they may be set.
///
/// Extras never overwrite, and keys of Kubernetes' own domains are dropped: a vendor must not say what only Kubernetes may.
pub(super) fn of_a_new_node(labels: &Labels, instance: &Instance) -> Labels {
    let extras = instance.extra_labels.iter();
    let allowed = extras.filter(|(key, _)| !labels.contains_key(*key) && !is_kubernetes_own(key));
    let mut differing: Labels = allowed.map(|(key, value)| (key.clone(), value.clone())).collect();
    differing.extend(of_a_known_node(labels, instance));
    differing
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
