//! What people read on the Node: one constructor an Event.

use controller_core::events::{Kind, Notice};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    plan::{Node, Refusal},
    requeue::Error,
};

const ACTION: &str = "Initialise";

/// The node that an Event is about.
pub(crate) fn about(node: &Node) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        uid: Some(node.uid.clone()),
        ..ObjectReference::default()
    }
}

/// The node is ready for use. Words and reason are those of the classic cloud controller manager.
pub(crate) fn synced() -> Notice {
    let note = "Node synced successfully".to_owned();
    Notice { kind: Kind::Normal, reason: "Synced", action: ACTION, note }
}

/// The API server refused what was written.
pub(crate) fn sync_failed(error: &Error, cause: &str) -> Notice {
    Notice { kind: Kind::Warning, reason: "SyncFailed", action: ACTION, note: format!("{error}: {cause}") }
}

/// The node waits.
pub(crate) fn refused(node: &Node, refusal: &Refusal) -> Notice {
    let looked_for = match &node.provider_id {
        Some(id) => format!("instance {id}"),
        None => format!("an instance named {:?}", node.name),
    };
    let note = match refusal {
        Refusal::NotVisible => format!(
            "Waits for the cloud to show {looked_for}: it does not yet. Check that the instance exists in the project and \
             region that the cloud adapter looks at, and that its name is the node's"
        ),
        Refusal::Foreign => {
            format!(
                "Leaves the node alone: the cloud adapter says that {looked_for} belongs to another cloud or region"
            )
        }
        Refusal::Ambiguous { provider_ids } => format!(
            "Waits: {} instances are named {:?} ({}). Rename all but one, or set the node's provider ID in its kubelet",
            provider_ids.len(),
            node.name,
            provider_ids.join(", ")
        ),
        Refusal::Failed { error, .. } => format!("Waits: the cloud cannot tell about {looked_for}: {error}"),
        Refusal::Away { link } => format!("Waits for the cloud adapter, which is {link}"),
        Refusal::NoProviderId => {
            format!("Waits: the cloud names no provider ID for {looked_for}, nor does the node")
        }
        Refusal::ProvidedNodeIp { error } => {
            format!("Waits: annotation alpha.kubernetes.io/provided-node-ip cannot be followed: {error}")
        }
    };
    Notice { kind: Kind::Warning, reason: refusal.reason(), action: ACTION, note }
}

impl Refusal {
    /// One word: the Event's reason and the metric's label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotVisible => "InstanceNotVisible",
            Self::Foreign => "InstanceForeign",
            Self::Ambiguous { .. } => "InstanceAmbiguous",
            Self::Failed { .. } => "CloudProviderFailed",
            Self::Away { .. } => "CloudProviderUnavailable",
            Self::NoProviderId => "InstanceWithoutProviderID",
            Self::ProvidedNodeIp { .. } => "ProvidedNodeIPInvalid",
        }
    }
}
