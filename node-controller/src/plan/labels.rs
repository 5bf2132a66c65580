//! Which labels a node shall have from its instance.

use std::{collections::BTreeMap, fmt};

use super::{Instance, Pairs};

/// Size, zone and region, each under its name of today and the older one that some still read.
pub(crate) const PAIRS: [[&str; 2]; 3] = [
    ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"],
    ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"],
    ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"],
];

type Labels = BTreeMap<String, String>;

/// So many former values of a label are remembered: more changes than a node misses while its API server is away for a while.
const FORMER_MAX: usize = 4;

/// What extra labels said before, by key, oldest first. A node that still has such a value has it from us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Former(BTreeMap<String, Vec<String>>);

impl Former {
    pub(crate) fn note(&mut self, key: &str, value: &str) {
        let values = self.0.entry(key.to_owned()).or_default();
        values.retain(|known| known != value);
        values.push(value.to_owned());
        if values.len() > FORMER_MAX {
            values.remove(0);
        }
    }

    fn has(&self, key: &str, value: &str) -> bool {
        self.0.get(key).is_some_and(|values| values.iter().any(|known| known == value))
    }
}

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
    /// Kubernetes knows no such labels, and would refuse all that is written together with it.
    NoLabel,
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
            Self::NoLabel => f.write_str("Kubernetes does not take it as a label"),
            Self::Taken { kept } => write!(f, "the node has the value {kept:?} already"),
        }
    }
}

/// What differs on a node that is being initialised, and which of the vendor's extras may not be set.
pub(super) fn of_a_new_node(labels: &Pairs, instance: &Instance) -> (Labels, Vec<Withheld>) {
    let differing = of_a_known_node(labels, instance);
    let illegal = ours(instance).filter(|(_, value)| !is_value(value)).map(|([today, _], value)| Withheld {
        key: (*today).to_owned(),
        value: value.clone(),
        why: Why::NoLabel,
    });
    let withheld = instance.extra_labels.iter().filter_map(|(key, value)| {
        let why = match labels.get(key) {
            _ if !is_label(key, value) => Why::NoLabel,
            _ if is_kubernetes_own(key) => Why::KubernetesOwn,
            Some(kept) if kept != value && !differing.contains_key(key) => {
                Why::Taken { kept: kept.to_owned() }
            }
            Some(_) | None => return None,
        };
        Some(Withheld { key: key.to_owned(), value: value.to_owned(), why })
    });
    let withheld = illegal.chain(withheld).collect();
    (differing, withheld)
}

/// What differs on any node that is known to run on the machine: ours, and the vendor's extras as far as they may be set.
///
/// Of ours the cloud is the truth, and both names get its word, if it is one that a label can have. Extras are added and never removed;
/// one with another value is somebody else's, unless it is what the cloud said before.
pub(super) fn of_a_known_node(labels: &Pairs, instance: &Instance) -> Labels {
    let extras = instance.extra_labels.iter().filter(|(key, value)| match labels.get(key) {
        _ if !is_label(key, value) || is_kubernetes_own(key) => false,
        None => true,
        Some(has) => has != *value && instance.former.has(key, has),
    });
    let mut differing: Labels = extras.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    for (pair, value) in ours(instance) {
        if value.is_empty() || !is_value(value) {
            differing.extend(mirror(labels, pair));
            continue;
        }
        let wanted = pair.iter().map(|key| ((*key).to_owned(), value.clone()));
        differing.extend(wanted.filter(|(key, value)| labels.get(key) != Some(value.as_str())));
    }
    differing
}

/// What the cloud says of ours, each with its names.
fn ours(instance: &Instance) -> impl Iterator<Item = (&'static [&'static str; 2], &String)> {
    PAIRS.iter().zip([&instance.instance_type, &instance.zone, &instance.region])
}

/// What differs on a node of whose machine the cloud says nothing: the older names follow those of today.
pub(super) fn mirrored(labels: &Pairs) -> Labels {
    PAIRS.iter().filter_map(|pair| mirror(labels, pair)).collect()
}

/// The name of today is the truth; it is taken from the older one only if it is not there.
fn mirror(labels: &Pairs, [today, older]: &[&str; 2]) -> Option<(String, String)> {
    match (labels.get(today), labels.get(older)) {
        (Some(value), other) if other != Some(value) => Some(((*older).to_owned(), value.to_owned())),
        (None, Some(value)) => Some(((*today).to_owned(), value.to_owned())),
        (Some(_) | None, _) => None,
    }
}

/// Whether the cloud may have something to say of this label of a node.
pub(crate) fn may_be_ours(key: &str) -> bool {
    PAIRS.as_flattened().contains(&key) || !is_kubernetes_own(key)
}

/// Whether the key's domain is `kubernetes.io` or `k8s.io`, or below one of them.
fn is_kubernetes_own(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain.strip_suffix(own).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

/// Whether the API server takes it. Source: Kubernetes, object names and labels, "syntax and character set".
fn is_label(key: &str, value: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_part = |part: &str| !part.is_empty() && is_word(part) && !part.contains(['_', '.']);
    let is_domain = |domain: &str| {
        domain.len() <= 253
            && domain.split('.').all(is_part)
            && !domain.contains(|letter: char| letter.is_ascii_uppercase())
    };
    domain.is_none_or(is_domain) && !name.is_empty() && [name, value].into_iter().all(is_value)
}

/// Whether the API server takes it as a label's value.
fn is_value(text: &str) -> bool {
    text.len() <= 63 && is_word(text)
}

/// Letters, digits, `-`, `_` and `.`, of which the last three are at no end; or nothing.
fn is_word(text: &str) -> bool {
    let within = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    text.chars().all(within) && !text.starts_with(['-', '_', '.']) && !text.ends_with(['-', '_', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_today_is_the_truth_and_the_older_one_follows() {
        let [today, older] = PAIRS[0];
        // today, older, what is written
        let cases = [
            (None, None, None),
            (Some("a"), None, Some((older, "a"))),
            (None, Some("b"), Some((today, "b"))),
            (Some("a"), Some("a"), None),
            (Some("a"), Some("b"), Some((older, "a"))),
            (Some(""), Some("b"), Some((older, ""))),
            (Some("a"), Some(""), Some((older, "a"))),
            (None, Some(""), Some((today, ""))),
        ];
        for (is_today, is_older, written) in cases {
            let pair = [(today, is_today), (older, is_older)];
            let labels: Labels = pair
                .iter()
                .filter_map(|(key, value)| Some(((*key).to_owned(), (*value)?.to_owned())))
                .collect();
            let written: Labels =
                written.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            assert_eq!(mirrored(&labels.iter().collect()), written, "{labels:?}");
            let mut after = labels;
            after.extend(written);
            assert!(mirrored(&after.iter().collect()).is_empty(), "does not settle: {after:?}");
        }
    }

    #[test]
    fn no_more_former_values_are_kept_than_somebody_can_have_missed() {
        let mut former = Former::default();
        for n in 0..FORMER_MAX + 3 {
            former.note("k", &n.to_string());
        }
        assert!(!former.has("k", "0"));
        assert!(former.has("k", &(FORMER_MAX + 2).to_string()));
        assert_eq!(former.0["k"].len(), FORMER_MAX);
    }

    #[test]
    fn what_the_api_server_would_refuse_is_no_label() {
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        let deep = format!("{}/k", "a.".repeat(126) + "a");
        let deeper = format!("{}/k", "a.".repeat(127) + "a");
        let cases = [
            ("k", "", true),
            ("example.com/My_key.1", "My-value_1.a", true),
            (&long, &long, true),
            (&deep, "", true),
            ("", "v", false),
            ("/k", "v", false),
            ("example.com/", "v", false),
            ("a/b/c", "v", false),
            ("Example.com/k", "v", false),
            ("example..com/k", "v", false),
            ("ex_ample.com/k", "v", false),
            ("-example.com/k", "v", false),
            ("two words", "v", false),
            ("k", "two words", false),
            ("k-", "v", false),
            ("k", ".v", false),
            ("k", "straße", false),
            (&longer, "v", false),
            ("k", &longer, false),
            (&deeper, "v", false),
        ];
        for (key, value, fits) in cases {
            assert_eq!(is_label(key, value), fits, "{key:?} {value:?}");
        }
    }

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
