//! Decides which labels a node should get from its instance.

use std::{collections::BTreeMap, fmt};

use super::{Instance, Pairs};

/// The type, the zone and the region, each under its current name and under the older name that some clients still read.
pub(crate) const PAIRS: [[&str; 2]; 3] = [
    ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"],
    ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"],
    ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"],
];

type Labels = BTreeMap<String, String>;

/// Number of former values kept per label. A node hardly misses more changes while the API server is unavailable.
const FORMER_MAX: usize = 4;

/// Former values of extra labels by key, oldest first. If a node has such a value, this controller wrote it.
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

/// A vendor's label that the node does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Withheld {
    pub(crate) key: String,
    /// The value in the cloud.
    pub(crate) value: String,
    pub(crate) why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The domain is reserved for Kubernetes.
    KubernetesOwn,
    /// The label is invalid, and the API server would refuse the whole patch.
    NoLabel,
    /// The node already has another value under this key.
    Taken {
        /// The node's value.
        kept: String,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubernetesOwn => f.write_str("only Kubernetes may use this domain"),
            Self::NoLabel => f.write_str("not a valid Kubernetes label"),
            Self::Taken { kept } => write!(f, "the node already has the value {kept:?}"),
        }
    }
}

/// Returns the labels that differ on a node that is being initialised, and the vendor's labels that the node does not get.
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

/// Returns the labels that differ on a node whose instance is known: type, zone, region, and the vendor's extra labels that are allowed.
///
/// Type, zone and region follow the cloud under both names, if the value is a valid label value. Extra labels are added and never removed.
/// A different value is overwritten only if it is a former value from the cloud.
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

/// Returns type, zone and region from the cloud, each with its two names.
fn ours(instance: &Instance) -> impl Iterator<Item = (&'static [&'static str; 2], &String)> {
    PAIRS.iter().zip([&instance.instance_type, &instance.zone, &instance.region])
}

/// Returns the labels that differ on a node whose instance is not known. Only the older names are updated, from the current ones.
pub(super) fn mirrored(labels: &Pairs) -> Labels {
    PAIRS.iter().filter_map(|pair| mirror(labels, pair)).collect()
}

/// The current name takes precedence. A value is copied from the older name only if the current name is absent.
fn mirror(labels: &Pairs, [today, older]: &[&str; 2]) -> Option<(String, String)> {
    match (labels.get(today), labels.get(older)) {
        (Some(value), other) if other != Some(value) => Some(((*older).to_owned(), value.to_owned())),
        (None, Some(value)) => Some(((*today).to_owned(), value.to_owned())),
        (Some(_) | None, _) => None,
    }
}

/// Whether the cloud may set this label on a node.
pub(crate) fn may_be_ours(key: &str) -> bool {
    PAIRS.as_flattened().contains(&key) || !is_kubernetes_own(key)
}

/// Whether the key's domain is `kubernetes.io` or `k8s.io`, or a subdomain of these.
fn is_kubernetes_own(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain.strip_suffix(own).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

/// Whether the API server accepts the label. Source: Kubernetes, object names and labels, "syntax and character set".
pub(crate) fn is_label(key: &str, value: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_part = |part: &str| !part.is_empty() && is_word(part) && !part.contains(['_', '.']);
    let is_domain = |domain: &str| {
        domain.len() <= 253
            && domain.split('.').all(is_part)
            && !domain.contains(|letter: char| letter.is_ascii_uppercase())
    };
    domain.is_none_or(is_domain) && !name.is_empty() && [name, value].into_iter().all(is_value)
}

/// Whether the API server accepts the text as a label value.
pub(crate) fn is_value(text: &str) -> bool {
    text.len() <= 63 && is_word(text)
}

/// Whether the text is empty, or consists of letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_word(text: &str) -> bool {
    let within = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    text.chars().all(within) && !text.starts_with(['-', '_', '.']) && !text.ends_with(['-', '_', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    // Behaviour: NA3, W7
    #[test]
    fn older_label_name_follows_the_current_one() {
        let [today, older] = PAIRS[0];
        // Each case contains the value under the current name, the value under the older name, and what is written.
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
            assert!(mirrored(&after.iter().collect()).is_empty(), "not stable: {after:?}");
        }
    }

    #[test]
    fn number_of_former_values_is_limited() {
        let mut former = Former::default();
        for n in 0..FORMER_MAX + 3 {
            former.note("k", &n.to_string());
        }
        assert!(!former.has("k", "0"));
        assert!(former.has("k", &(FORMER_MAX + 2).to_string()));
        assert_eq!(former.0["k"].len(), FORMER_MAX);
    }

    #[test]
    fn invalid_labels_are_withheld() {
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

    // Behaviour: NI12
    #[test]
    fn only_kubernetes_domains_are_reserved() {
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
