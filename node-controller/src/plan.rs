//! Step 2: makes a [`Plan`] from a node and what is known about its instance. The code is pure.
//!
//! The rules for single fields are in [`addresses`] and [`labels`].

pub(crate) mod addresses;
pub(crate) mod labels;
mod pairs;

use std::{collections::BTreeMap, fmt, time::Duration};

use cloud_api_proto::Reason;
use jiff::Timestamp;
use serde::Serialize;

use controller_core::{Again, node::UNINITIALISED};

pub(crate) use self::{addresses::Address, labels::Withheld, pairs::Pairs};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum View {
    /// The cache is incomplete, or the adapter is unavailable. Nothing can be concluded from the cache.
    None,
    /// The cache is complete, but the vendor's last listing is old. The instances in it existed, but may have changed since.
    Old,
    /// The cache is complete and recent.
    Fresh,
}

/// Delay before a waiting node is reconciled and the cause is reported again, while the adapter is unavailable or works in another scope.
/// When the connection to the adapter changes, uninitialised nodes are reconciled at once.
const REMIND: Duration = Duration::from_mins(5);

/// Maximum wait for an answer; longer than the deadline of the call.
const ANSWER: Duration = Duration::from_mins(1);

/// Time after which the adapter's scope, or the listing of that scope, is probably known.
const SCOPE_RETRY: Duration = Duration::from_secs(1);

/// The fields of a Node that this controller uses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) created: Option<Timestamp>,
    /// `spec.providerID`, never empty.
    pub(crate) provider_id: Option<String>,
    /// All labels of an uninitialised node, else only those that may come from the cloud.
    pub(crate) labels: Pairs,
    /// All taints of an uninitialised node in their order. Empty for an initialised node.
    pub(crate) taints: Vec<Taint>,
    /// Addresses with their types, in their order.
    pub(crate) addresses: Pairs,
    /// The annotation `alpha.kubernetes.io/provided-node-ip`.
    pub(crate) provided_node_ip: Option<String>,
    pub(crate) claim: Claim,
    pub(crate) life: Life,
}

/// The fields that decide about the shutdown taint and the deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) ready: Ready,
    /// Whether the node has the shutdown taint.
    pub(crate) shutdown: bool,
    /// Whether the node is being deleted and still has a finalizer.
    pub(crate) deleting: bool,
    /// Whether an operator released the node from the brake, or the autoscaler marked it for removal.
    pub(crate) let_go: bool,
    pub(crate) deletion: Deletion,
}

/// What the labels of a node say about its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The node has the owner label of this release, or it has no owner label and the selector matches.
    Claimed,
    /// The node has no owner label, and the selector does not match.
    NotSelected,
    /// The owner label names another cloud.
    Other { label: String },
}

/// Whether the controller may delete the node, and set the shutdown taint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Deletion {
    #[default]
    Allowed,
    /// A label excludes the node.
    Excluded,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Pods can run.
    True,
    /// Pods cannot run, or the condition is unknown or absent.
    #[default]
    NotTrue,
}

impl Node {
    /// Any taint with the key counts, regardless of value and effect.
    pub(crate) fn is_uninitialised(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == UNINITIALISED)
    }
}

impl Plan {
    /// Whether the node is in sync once the plan is executed.
    pub(crate) fn settles(&self, node: &Node) -> bool {
        let waits =
            node.is_uninitialised() && !self.actions.iter().any(|it| matches!(it, Action::Initialise(_)));
        !waits && self.refusal.is_none()
    }

    pub(crate) fn writes(&self) -> bool {
        self.actions.iter().any(|action| !matches!(action, Action::LookUp))
    }

    pub(crate) fn asks(&self) -> bool {
        self.actions == [Action::LookUp]
    }
}

/// A taint exactly as in the Node, since the patch tests equality with the API server's copy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Taint {
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    pub(crate) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_added: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instance {
    pub(crate) provider_id: String,
    /// The name in the cloud, by which a node without a provider ID finds its instance.
    pub(crate) name: String,
    /// Whether the instance is gone or is being deleted. No new node can run on such an instance.
    pub(crate) ends: bool,
    /// Whether the instance is switched off or has ended; false during the transition to these states.
    pub(crate) stopped: bool,
    /// Addresses with their types, in the order in which a Node lists them.
    pub(crate) addresses: Pairs,
    pub(crate) instance_type: String,
    pub(crate) region: String,
    pub(crate) zone: String,
    pub(crate) extra_labels: Pairs,
    /// Earlier values of the extra labels. Empty in the cache; the look-up for a reconcile adds them here.
    pub(crate) former: labels::Former,
}

#[derive(Clone, Debug)]
pub(crate) enum InstanceStatus<'a> {
    Seen(&'a Instance),
    /// The cache does not show the instance, and the controller has not asked the cloud.
    Unasked,
    /// The first listing of the cloud is in progress.
    Listing,
    /// The controller asked the cloud, which does not show the instance. This proves nothing.
    NotVisible,
    /// Like `NotVisible`, and the cloud lists no instance at all.
    NothingListed {
        /// The part of the cloud that the adapter uses. Empty: not known.
        place: String,
    },
    /// The provider ID belongs to another cloud.
    Foreign,
    /// Several instances have the node's name.
    Ambiguous {
        provider_ids: Vec<String>,
    },
    Failed {
        reason: Reason,
        error: String,
        again: Again,
    },
    Away {
        /// Since when the adapter is unavailable, and the error.
        link: String,
    },
    /// The adapter works in another scope, where another instance may have the node's name.
    Elsewhere {
        /// A clause that says how the adapter's scope has changed.
        why: String,
    },
    /// The adapter's scope is not known yet, or its instances are not listed yet.
    Unplaced,
}

/// What to do for a node. An empty plan means that the node is in sync.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    /// The actions in the order of execution. The addresses precede the removal of the taint, so that no pod lands on a node without
    /// addresses.
    pub(crate) actions: Vec<Action>,
    pub(crate) refusal: Option<Refusal>,
    /// When to reconcile again if all actions succeed.
    pub(crate) again: Again,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Add the node to the next look-up in the cloud.
    LookUp,
    /// Replace `status.addresses`.
    SetAddresses(Vec<Address>),
    /// Write labels of an initialised node.
    SetLabels(BTreeMap<String, String>),
    /// Write the missing fields and remove the taint, in one patch.
    Initialise(Initialisation),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Initialisation {
    /// Set only if the node has no provider ID, because the field is immutable.
    pub(crate) provider_id: Option<String>,
    /// Only the labels that differ.
    pub(crate) labels: BTreeMap<String, String>,
    /// The vendor's labels that are not allowed, for the log.
    pub(crate) withheld: Vec<Withheld>,
    /// All taints except the uninitialised taint, in their order.
    pub(crate) taints: Vec<Taint>,
}

/// Why a node is not initialised. The Event on the node has this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotVisible,
    NothingListed { place: String },
    Foreign,
    Ambiguous { provider_ids: Vec<String> },
    Failed { reason: Reason, error: String },
    Away { link: String },
    Elsewhere { why: String },
    NoProviderId,
    NoAddresses,
    ProvidedNodeIp { error: String },
}

/// Compares a node with its instance. Cost: no vendor calls. The look-up that may follow is shared by all new nodes.
pub(crate) fn plan(node: &Node, status: &InstanceStatus<'_>) -> Plan {
    match (node.is_uninitialised(), status) {
        (true, InstanceStatus::Seen(instance)) => initialise(node, instance),
        (true, status) => wait(status),
        (false, InstanceStatus::Seen(instance)) => refresh(node, instance),
        // Without a known instance, only the older label names of an initialised node are updated. `lifecycle` handles the end of nodes.
        (false, _) => done(relabel(labels::mirrored(&node.labels))),
    }
}

fn initialise(node: &Node, instance: &Instance) -> Plan {
    if instance.provider_id.is_empty() && node.provider_id.is_none() {
        return refuse(Refusal::NoProviderId, Again::OnChange);
    }
    let addresses = match addresses::wanted(node, instance) {
        Ok(addresses) => addresses,
        Err(error) => return refuse(Refusal::ProvidedNodeIp { error: error.to_string() }, Again::OnChange),
    };
    if addresses.is_none() && !addresses::has_any(node) {
        return refuse(Refusal::NoAddresses, Again::OnChange);
    }
    let taints = node.taints.iter().filter(|taint| taint.key != UNINITIALISED).cloned().collect();
    let provider_id = match &node.provider_id {
        Some(_) => None,
        None => Some(instance.provider_id.clone()),
    };
    let (labels, withheld) = labels::of_a_new_node(&node.labels, instance);
    let initialisation = Initialisation { provider_id, labels, withheld, taints };
    let addresses = addresses.map(Action::SetAddresses);
    done(addresses.into_iter().chain([Action::Initialise(initialisation)]).collect())
}

/// Plans for an initialised node. A node without a provider ID gets no labels from the cloud. An instance may have the node's name by
/// coincidence, and a user may have set the labels. The addresses of such a node are updated.
fn refresh(node: &Node, instance: &Instance) -> Plan {
    let labels = relabel(match &node.provider_id {
        Some(_) => labels::of_a_known_node(&node.labels, instance),
        None => labels::mirrored(&node.labels),
    });
    match addresses::wanted(node, instance) {
        Ok(addresses) => done(addresses.map(Action::SetAddresses).into_iter().chain(labels).collect()),
        Err(error) => {
            Plan { refusal: Some(Refusal::ProvidedNodeIp { error: error.to_string() }), ..done(labels) }
        }
    }
}

fn relabel(labels: BTreeMap<String, String>) -> Vec<Action> {
    if labels.is_empty() { Vec::new() } else { vec![Action::SetLabels(labels)] }
}

fn wait(status: &InstanceStatus<'_>) -> Plan {
    match status.clone() {
        InstanceStatus::Seen(_) | InstanceStatus::Listing => {
            Plan { again: Again::OnChange, ..done(Vec::new()) }
        }
        // The answer queues the node again. Until then, `Again::After` keeps the number of failures, so that the backoff continues.
        InstanceStatus::Unasked => Plan { again: Again::After(ANSWER), ..done(vec![Action::LookUp]) },
        InstanceStatus::NotVisible => refuse(Refusal::NotVisible, Again::Backoff),
        InstanceStatus::NothingListed { place } => refuse(Refusal::NothingListed { place }, Again::Backoff),
        InstanceStatus::Foreign => refuse(Refusal::Foreign, Again::OnChange),
        InstanceStatus::Ambiguous { provider_ids } => {
            refuse(Refusal::Ambiguous { provider_ids }, Again::OnChange)
        }
        InstanceStatus::Failed { reason, error, again } => refuse(Refusal::Failed { reason, error }, again),
        InstanceStatus::Away { link } => refuse(Refusal::Away { link }, Again::After(REMIND)),
        InstanceStatus::Elsewhere { why } => refuse(Refusal::Elsewhere { why }, Again::After(REMIND)),
        InstanceStatus::Unplaced => Plan { again: Again::After(SCOPE_RETRY), ..done(Vec::new()) },
    }
}

fn done(actions: Vec<Action>) -> Plan {
    Plan { actions, refusal: None, again: Again::Done }
}

fn refuse(refusal: Refusal, again: Again) -> Plan {
    Plan { actions: Vec::new(), refusal: Some(refusal), again }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in &self.actions {
            writeln!(f, "{action}")?;
        }
        match &self.refusal {
            Some(refusal) => writeln!(f, "wait       {}; retried {}", refusal.reason(), self.again),
            None => Ok(()),
        }
    }
}

/// Prints one line per action, followed by one line per label.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LookUp => f.write_str("look up"),
            Self::SetAddresses(addresses) => {
                let words = addresses.iter().map(|Address { type_, address }| format!("{type_}={address}"));
                write!(f, "addresses  {}", words.collect::<Vec<_>>().join(" "))
            }
            Self::SetLabels(labels) => {
                f.write_str("relabel")?;
                lines(f, labels)
            }
            Self::Initialise(Initialisation { provider_id, labels, withheld, taints }) => {
                let provider_id = provider_id.as_deref().unwrap_or("unchanged");
                let taints: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).collect();
                write!(f, "initialise provider ID {provider_id}, taints left {taints:?}")?;
                lines(f, labels)?;
                withheld.iter().try_for_each(|Withheld { key, value, why }| {
                    write!(f, "\n  withheld {key}={value}, {why}")
                })
            }
        }
    }
}

fn lines(f: &mut fmt::Formatter<'_>, labels: &BTreeMap<String, String>) -> fmt::Result {
    labels.iter().try_for_each(|(key, value)| write!(f, "\n  label    {key}={value}"))
}

#[cfg(test)]
mod tests;
