//! Room 2: pure; a node and what is known of its instance to a [`Plan`].
//!
//! The rules for the single fields are in [`addresses`] and [`labels`].

pub(crate) mod addresses;
pub(crate) mod labels;
mod pairs;
mod provided_node_ip;

use std::{collections::BTreeMap, fmt, time::Duration};

use cloud_api_proto::Reason;
use jiff::Timestamp;
use serde::Serialize;

use controller_core::{Again, node::UNINITIALISED};

pub(crate) use self::{addresses::Address, labels::Withheld, pairs::Pairs};

/// Whoever waits for an adapter that is away is woken when it is back; until then people are reminded this often.
const REMIND: Duration = Duration::from_mins(5);

/// An answer that has not come after this time is not waited for: the deadline of the call is shorter.
const ANSWER: Duration = Duration::from_mins(1);

/// So soon it is known which part of the cloud the adapter works in, or listed what that has.
const PLACED: Duration = Duration::from_secs(1);

/// A node as far as this controller cares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) created: Option<Timestamp>,
    /// `spec.providerID`, never empty.
    pub(crate) provider_id: Option<String>,
    /// All of an uninitialised node, else only those that may be from the cloud.
    pub(crate) labels: Pairs,
    /// All of an uninitialised node in their order, else none.
    pub(crate) taints: Vec<Taint>,
    /// Each with its type, in their order.
    pub(crate) addresses: Pairs,
    /// The annotation `alpha.kubernetes.io/provided-node-ip`.
    pub(crate) provided_node_ip: Option<String>,
    /// What its end depends on.
    pub(crate) life: Life,
}

/// What the end of a node depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) ready: Ready,
    /// It has the shutdown taint.
    pub(crate) shutdown: bool,
    /// Somebody has deleted it; a finalizer holds it.
    pub(crate) deleting: bool,
    /// A person said that it may be deleted whatever the brake says, or the autoscaler that it removes the machine.
    pub(crate) let_go: bool,
}

/// What the kubelet says of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Pods can run.
    True,
    /// They cannot, or nobody knows, or nobody has said anything.
    #[default]
    NotTrue,
}

impl Node {
    /// Any taint with the key counts, whatever its value and effect.
    pub(crate) fn is_uninitialised(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == UNINITIALISED)
    }
}

impl Plan {
    /// Whether a node is as it should be once this is carried out.
    pub(crate) fn settles(&self, node: &Node) -> bool {
        let waits =
            node.is_uninitialised() && !self.actions.iter().any(|it| matches!(it, Action::Initialise(_)));
        !waits && self.refusal.is_none()
    }

    /// Whether something is to be written.
    pub(crate) fn writes(&self) -> bool {
        self.actions.iter().any(|action| !matches!(action, Action::LookUp))
    }

    /// Whether it does nothing but ask.
    pub(crate) fn asks(&self) -> bool {
        self.actions == [Action::LookUp]
    }
}

/// A taint as it stands in the Node: it is compared with the API server's copy.
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

/// An instance as far as nodes care.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instance {
    pub(crate) provider_id: String,
    /// The name at the vendor: a node without a provider ID is found by it.
    pub(crate) name: String,
    /// Gone, or about to be: no new node runs on it.
    pub(crate) ends: bool,
    /// Switched off for good or for a while, and not about to be.
    pub(crate) stopped: bool,
    /// Each with its type, in the order in which a Node lists them.
    pub(crate) addresses: Pairs,
    pub(crate) instance_type: String,
    pub(crate) region: String,
    pub(crate) zone: String,
    pub(crate) extra_labels: Pairs,
    /// What these said before, joined in when a node is looked at.
    pub(crate) former: labels::Former,
}

/// What is known of a node's instance.
#[derive(Clone, Debug)]
pub(crate) enum Sighting<'a> {
    /// It is there.
    Seen(&'a Instance),
    /// The mirror does not show it and nobody has asked.
    Unasked,
    /// The first listing of the cloud is under way.
    Listing,
    /// The cloud was asked and does not show it, which proves nothing.
    NotVisible,
    /// The provider ID belongs to another cloud.
    Foreign,
    /// Several instances have the node's name.
    Ambiguous {
        /// Their provider IDs.
        provider_ids: Vec<String>,
    },
    /// The cloud could not tell.
    Failed {
        /// The adapter's typed reason.
        reason: Reason,
        /// Why, in the adapter's words.
        error: String,
        /// When to ask again.
        again: Again,
    },
    /// The adapter is not there.
    Away {
        /// Since when, and why.
        link: String,
    },
    /// The adapter works in another part of the cloud, where a machine of the node's name is another one.
    Elsewhere {
        /// Both parts, and what to do.
        why: String,
    },
    /// It is not known yet which part of the cloud the adapter works in, or that part is not listed yet.
    Unplaced,
}

/// What is to be done about a node. Empty: it is as it should be.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    /// In this order: addresses come before the taint goes, so that no pod lands on a node without them.
    pub(crate) actions: Vec<Action>,
    /// Why it is not done, if something is in the way.
    pub(crate) refusal: Option<Refusal>,
    /// When to look again, if all goes well.
    pub(crate) again: Again,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Put the node on the list of those that the cloud is asked about.
    LookUp,
    /// Replace `status.addresses`.
    SetAddresses(Vec<Address>),
    /// Write labels of an initialised node.
    SetLabels(BTreeMap<String, String>),
    /// Write what is missing and take the taint off, in one patch.
    Initialise(Initialisation),
}

/// What the one patch writes that makes a node ready for use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Initialisation {
    /// Only if the node has none: it can never be changed.
    pub(crate) provider_id: Option<String>,
    /// Only those that differ.
    pub(crate) labels: BTreeMap<String, String>,
    /// Not written: what the vendor would like and may not, for the log.
    pub(crate) withheld: Vec<Withheld>,
    /// All taints but ours, in their order.
    pub(crate) taints: Vec<Taint>,
}

/// Why a node is not initialised, for the person who looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotVisible,
    Foreign,
    Ambiguous { provider_ids: Vec<String> },
    Failed { reason: Reason, error: String },
    Away { link: String },
    Elsewhere { why: String },
    NoProviderId,
    NoAddresses,
    ProvidedNodeIp { error: String },
}

/// Compares a node with its instance. Cost: no vendor calls; the one question that may follow is shared by all new nodes.
pub(crate) fn plan(node: &Node, sighting: &Sighting<'_>) -> Plan {
    match (node.is_uninitialised(), sighting) {
        (true, Sighting::Seen(instance)) => initialise(node, instance),
        (true, sighting) => wait(sighting),
        (false, Sighting::Seen(instance)) => refresh(node, instance),
        // Of an initialised node whose instance is not seen only the older names of labels are kept right: its end is another subject.
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

/// A node that has no provider ID, and never had the taint, is nobody's as far as its labels go: that a machine is called like it may be
/// chance, and a person may have set them. Its addresses are followed, as ever.
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

fn wait(sighting: &Sighting<'_>) -> Plan {
    match sighting.clone() {
        Sighting::Seen(_) | Sighting::Listing => Plan { again: Again::OnChange, ..done(Vec::new()) },
        // The answer wakes the node. Until then earlier failures are not forgotten, or nobody would ever ask less often.
        Sighting::Unasked => Plan { again: Again::After(ANSWER), ..done(vec![Action::LookUp]) },
        Sighting::NotVisible => refuse(Refusal::NotVisible, Again::Backoff),
        Sighting::Foreign => refuse(Refusal::Foreign, Again::OnChange),
        Sighting::Ambiguous { provider_ids } => refuse(Refusal::Ambiguous { provider_ids }, Again::OnChange),
        Sighting::Failed { reason, error, again } => refuse(Refusal::Failed { reason, error }, again),
        Sighting::Away { link } => refuse(Refusal::Away { link }, Again::After(REMIND)),
        Sighting::Elsewhere { why } => refuse(Refusal::Elsewhere { why }, Again::After(REMIND)),
        Sighting::Unplaced => Plan { again: Again::After(PLACED), ..done(Vec::new()) },
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
            Some(refusal) => writeln!(f, "wait       {}; tried again {}", refusal.reason(), self.again),
            None => Ok(()),
        }
    }
}

/// One line an action, and one a label below it.
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
                let provider_id = provider_id.as_deref().unwrap_or("as it is");
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
