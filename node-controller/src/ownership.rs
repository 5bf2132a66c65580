//! Decides from labels and the provider ID which nodes belong to this release, and which nodes are never deleted. The code is pure.
//!
//! A cluster may have nodes of several clouds, and one release of the chart for each cloud. Each release must change only its own nodes.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use controller_core::{ProviderId, selector::Selector};
use jiff::Timestamp;

use crate::plan::{Claim, Instance, Node};

/// The default key of the label that names the cloud of a node.
pub(crate) const OWNER_LABEL: &str = "cloudadapter.dev/cloud";
/// The default key of the label that excludes a node from deletion.
pub(crate) const EXCLUSION_LABEL: &str = "node.kubernetes.io/exclude-from-lifecycle-management";
/// Age at which a new node without an owner is reported. Another release needs less time to initialise its node.
pub(crate) const GRACE: Duration = Duration::from_mins(2);

/// What the labels of nodes mean. Flags set the fields.
#[derive(Clone, Debug)]
pub(crate) struct LabelRules {
    /// The nodes without provider ID that belong to this release. `None`: all.
    pub(crate) selector: Option<Selector>,
    /// The label of all nodes of this release. `None`: nodes get no such label.
    pub(crate) owner: Option<OwnerLabel>,
    /// The key of the label that excludes a node from deletion.
    pub(crate) exclusion: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerLabel {
    pub(crate) key: String,
    /// The name of this release's cloud.
    pub(crate) cloud: String,
}

impl Default for LabelRules {
    fn default() -> Self {
        Self { selector: None, owner: None, exclusion: EXCLUSION_LABEL.to_owned() }
    }
}

type Labels = BTreeMap<String, String>;

impl LabelRules {
    /// Whether the cluster may have nodes of other releases.
    pub(crate) fn shares_nodes(&self) -> bool {
        self.selector.is_some() || self.owner.is_some()
    }

    pub(crate) fn claim(&self, labels: &Labels) -> Claim {
        if let Some(OwnerLabel { key, cloud }) = &self.owner
            && let Some(value) = labels.get(key)
        {
            let label = || format!("{key}={value}");
            return if value == cloud { Claim::Claimed } else { Claim::Other { label: label() } };
        }
        match &self.selector {
            Some(selector) if !selector.matches(labels) => Claim::NotSelected,
            Some(_) | None => Claim::Claimed,
        }
    }

    /// Whether the node is never deleted. The value counts as in the former cloud controller manager's label for load balancers: only a
    /// value that Go parses as false has no effect.
    pub(crate) fn excludes(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.exclusion);
        value.is_some_and(|value| !matches!(value.as_str(), "0" | "f" | "F" | "false" | "FALSE" | "False"))
    }

    /// Adds the owner label to the labels that the instance gives to its node. A label of the vendor with this key is ignored.
    pub(crate) fn label(&self, instance: Arc<Instance>) -> Arc<Instance> {
        let Some(OwnerLabel { key, cloud }) = &self.owner else { return instance };
        let others = instance.extra_labels.iter().filter(|(other, _)| other != key);
        let extra_labels = others.chain([(key.as_str(), cloud.as_str())]).collect();
        Arc::new(Instance { extra_labels, ..Instance::clone(&instance) })
    }
}

/// Why this controller does nothing to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Apart {
    /// The owner label names another cloud.
    Label { label: String, cloud: String },
    /// The provider ID has another scheme than this cloud.
    Scheme { id: String, scheme: String },
    /// The scheme of this cloud is not known yet, and the node may belong to another cloud.
    SchemeNotKnown { id: String },
    /// The node has neither provider ID nor owner label, and the selector does not match.
    NotSelected { selector: String },
}

/// Returns why this controller does nothing to a node, or `None` if the node belongs to this release.
///
/// If the release shares no nodes, a new node with the provider ID of another cloud waits like other new nodes, since no other release can
/// initialise it.
pub(crate) fn apart(node: &Node, rules: &LabelRules, scheme: Option<&str>) -> Option<Apart> {
    if let Claim::Other { label } = &node.claim {
        let cloud = rules.owner.as_ref().map(|owner| owner.cloud.clone()).unwrap_or_default();
        return Some(Apart::Label { label: label.clone(), cloud });
    }
    let Some(id) = &node.provider_id else {
        let selector = || rules.selector.as_ref().map(ToString::to_string).unwrap_or_default();
        return (node.claim == Claim::NotSelected).then(|| Apart::NotSelected { selector: selector() });
    };
    let Some(scheme) = scheme else {
        return rules.shares_nodes().then(|| Apart::SchemeNotKnown { id: id.clone() });
    };
    let is_another = id.parse::<ProviderId>().is_ok_and(|id| id.scheme() != scheme);
    let is_set_apart = is_another && (rules.shares_nodes() || !node.is_uninitialised());
    is_set_apart.then(|| Apart::Scheme { id: id.clone(), scheme: scheme.to_owned() })
}

impl Apart {
    /// Whether a new node of this kind may belong to no release at all.
    pub(crate) fn may_have_no_owner(&self) -> bool {
        match self {
            Self::Scheme { .. } | Self::NotSelected { .. } => true,
            Self::Label { .. } | Self::SchemeNotKnown { .. } => false,
        }
    }
}

/// The text for the status pages.
impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not this release's node: ")?;
        match self {
            Self::Label { label, cloud } => {
                write!(f, "it has the label {label}, and the cloud of this release is {cloud}")
            }
            Self::Scheme { id, scheme } => {
                write!(f, "its provider ID {id} does not belong to cloud {scheme}://")
            }
            Self::SchemeNotKnown { id } => {
                write!(
                    f,
                    "the adapter has not reported yet whether its provider ID {id} belongs to this cloud"
                )
            }
            Self::NotSelected { selector } => write!(
                f,
                "it has no provider ID, and its labels do not match nodeController.nodes.selector \
                 (--node-selector): {selector}"
            ),
        }
    }
}

/// Returns how long to wait before a new node without an owner is reported, or `None` if it must be reported now.
pub(crate) fn grace(node: &Node, now: Timestamp) -> Option<Duration> {
    let age = node.created.map(|created| now.duration_since(created));
    let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
    GRACE.checked_sub(age).filter(|rest| !rest.is_zero())
}

#[cfg(test)]
mod tests;
