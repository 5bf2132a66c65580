//! Builds what the status pages show for a node. These are lines made from the current caches, and the note of the Event that names what
//! the node waits for.

use cloud_api_proto::Reason;
use controller_core::{
    events::Notice,
    explain::{Describe, Object, Seen, Waits},
    mirror::ObjectName,
};

use crate::{
    error::Error,
    events,
    mirror::{Found, Mirrors},
    plan::{Deletion, Instance, Node, Pairs, Refusal},
};

pub(crate) fn refused(node: &Node, refusal: &Refusal) -> Waits {
    let reason = match refusal {
        Refusal::Failed { reason, .. } => Some(*reason).filter(|it| *it != Reason::Unspecified),
        Refusal::NotVisible
        | Refusal::NothingListed { .. }
        | Refusal::Foreign
        | Refusal::Ambiguous { .. }
        | Refusal::Away { .. }
        | Refusal::Elsewhere { .. }
        | Refusal::NoProviderId
        | Refusal::NoAddresses
        | Refusal::ProvidedNodeIp { .. } => None,
    };
    Waits {
        text: events::refused(node, refusal).note,
        reason: reason.map(Reason::word),
        topic: refusal.reason().to_owned(),
        // For initialised nodes the controller only logs the cause and emits no Event.
        reported: node.is_uninitialised(),
    }
}

/// Returns the wait of a node whose provider ID the adapter does not know, if another release may have the node's cloud.
pub(crate) fn foreign(node: &Node) -> Waits {
    Waits { reported: false, ..refused(node, &Refusal::Foreign) }
}

pub(crate) fn failing(error: &Error, notice: &Notice) -> Waits {
    Waits { text: notice.note.clone(), reason: None, topic: error.to_string(), reported: error.refused() }
}

/// Returns the wait for the first listing of the cloud's instances. This state is normal and has no Event.
pub(crate) fn listing() -> Waits {
    let text = "Waiting for the first listing of the cloud's instances".to_owned();
    Waits { text, reason: None, topic: "listing".to_owned(), reported: false }
}

impl Describe for Mirrors {
    fn uid(&self, name: &ObjectName) -> Option<String> {
        self.nodes.get(name).map(|node| node.uid.clone())
    }

    fn all(&self) -> Vec<Object> {
        self.nodes.read(|all| all.values().map(|node| Object::node(&node.name, &node.uid)).collect())
    }

    fn listed(&self) -> bool {
        self.nodes.is_synced() && self.instances.is_synced()
    }

    fn describe(&self, object: &Object) -> Seen {
        let Some(node) = self.nodes.get(&object.name).filter(|node| node.uid == object.uid) else {
            return Seen::default();
        };
        if let Some(apart) = self.apart(&node) {
            return Seen { wanted: vec![apart.to_string()], apart: true, ..Seen::default() };
        }
        let found = self.find(&node);
        let listed = self.instances.is_synced();
        let apart = listed && matches!(found, Found::Nothing) && is_without_instance(&node);
        let (wanted, cloud) = match &found {
            Found::Nothing if apart => (vec![not_looked_for(&node)], Vec::new()),
            Found::One(instance) => (as_it_says(instance), vec![shown(instance)]),
            Found::Many(ids) => (asked(&node), ids.clone()),
            Found::Nothing if !listed => (asked(&node), vec!["not listed yet".to_owned()]),
            Found::Nothing => (asked(&node), Vec::new()),
        };
        let excluded = (node.life.deletion == Deletion::Excluded).then(|| excluded(&self.rules.exclusion));
        let wanted = wanted.into_iter().chain(excluded).collect();
        Seen { wanted, cloud, unseen: false, apart }
    }
}

/// Describes the desired state of a node whose instance is not known.
fn asked(node: &Node) -> Vec<String> {
    vec![match &node.provider_id {
        Some(id) => format!("the instance {id}"),
        None => format!("an instance named {}", node.name),
    }]
}

/// Whether the node has no provider ID and no taint of a new node. Such a node probably has no instance in this cloud.
fn is_without_instance(node: &Node) -> bool {
    node.provider_id.is_none() && !node.is_uninitialised()
}

fn not_looked_for(node: &Node) -> String {
    format!(
        "nothing: the node has neither a provider ID nor the taint of a new node, so the controller does not \
         look for its instance, and the cloud lists no instance named {}",
        node.name
    )
}

fn excluded(key: &str) -> String {
    format!(
        "excluded from deletion by label {key}: the controller neither deletes the node nor adds the shutdown taint"
    )
}

/// Describes what the node should show according to its instance.
fn as_it_says(instance: &Instance) -> Vec<String> {
    let Instance { provider_id, instance_type, region, zone, .. } = instance;
    let labels = [("instance type", instance_type), ("region", region), ("zone", zone)];
    let labels = labels.iter().filter(|(_, value)| !value.is_empty());
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name} {value}")).collect();
    let lines = [format!("provider ID {provider_id}"), addresses(&instance.addresses), labels.join(", ")];
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

fn shown(instance: &Instance) -> String {
    let state = match (instance.ends, instance.stopped) {
        (true, _) => "ends",
        (false, true) => "switched off",
        (false, false) => "there",
    };
    format!("{} {} {state}", instance.provider_id, instance.name)
}

fn addresses(pairs: &Pairs) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let words: Vec<String> = pairs.iter().map(|(type_, address)| format!("{type_}={address}")).collect();
    format!("addresses {}", words.join(" "))
}
