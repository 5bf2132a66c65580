//! Defines the Events on Nodes, with a constructor for each.

use controller_core::events::{Kind, NOTE_MAX, Notice, ended};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    error::Error,
    ownership,
    plan::{Node, Refusal},
};

const ACTION: &str = "Initialise";
/// Maximum length of the clause that says what moved, in characters. The values fit if each has at most 32 characters.
pub(crate) const MOVED_MAX: usize = 95;

pub(crate) fn about(node: &Node) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        uid: Some(node.uid.clone()),
        ..ObjectReference::default()
    }
}

/// The Event for an initialised node. The note and the reason are those of the former cloud controller manager.
pub(crate) fn synced() -> Notice {
    let note = "Node synced successfully".to_owned();
    Notice { kind: Kind::Normal, reason: "Synced", action: ACTION, note }
}

/// The Event for a write that the API server refused.
pub(crate) fn sync_failed(error: &Error, cause: &str) -> Notice {
    Notice { kind: Kind::Warning, reason: "SyncFailed", action: ACTION, note: format!("{error}: {cause}") }
}

/// The Event for a node that cannot be initialised yet.
pub(crate) fn refused(node: &Node, refusal: &Refusal) -> Notice {
    let looked_for = match &node.provider_id {
        Some(id) => format!("instance {id}"),
        None => format!("an instance named {:?}", node.name),
    };
    let note = match refusal {
        Refusal::NotVisible => format!(
            "Waiting until the cloud lists {looked_for}. Check that it exists in the cloud adapter's \
             project and region, and has the same name as the node"
        ),
        Refusal::NothingListed { place } => nothing_listed(&looked_for, place),
        Refusal::Foreign => {
            format!(
                "Ignoring the node until its provider ID changes: the cloud adapter says that {looked_for} \
                 belongs to another cloud or region"
            )
        }
        Refusal::Ambiguous { provider_ids } => ambiguous(provider_ids),
        Refusal::Failed { error, .. } => {
            format!("Waiting because the cloud returned an error for {looked_for}: {error}")
        }
        Refusal::Away { link } => format!("Waiting for the cloud adapter, {link}"),
        Refusal::Elsewhere { why } => {
            format!(
                "Waiting: instances are not looked up by node name, because the {why}. \
                 `cloudctl status` says what to do"
            )
        }
        Refusal::NoProviderId => {
            format!("Waiting: neither the cloud nor the node has a provider ID for {looked_for}")
        }
        Refusal::NoAddresses => {
            format!(
                "Waiting: neither the cloud nor the node lists an address for {looked_for}. \
                Without one, Pods on this node would be unreachable"
            )
        }
        Refusal::ProvidedNodeIp { error } => {
            format!(
                "Waiting because annotation alpha.kubernetes.io/provided-node-ip cannot be satisfied: {error}"
            )
        }
    };
    Notice { kind: Kind::Warning, reason: refusal.reason(), action: ACTION, note }
}

/// The Event for a new node that no release initialises. Several releases emit it, so it names none of them.
pub(crate) fn unclaimed(node: &Node) -> Notice {
    let front = format!(
        "No release has claimed this node for {} min. Unless another Event says what it waits for,",
        ownership::GRACE.as_secs() / 60
    );
    let note = match &node.provider_id {
        Some(id) => ended(
            &format!("{front} no release has the cloud of its provider ID {id}"),
            ". Check --provider-id of its kubelet",
        ),
        None => format!(
            "{front} its labels match no nodeController.nodes.selector: add a label, or --provider-id"
        ),
    };
    Notice { kind: Kind::Warning, reason: "NodeUnclaimed", action: ACTION, note }
}

/// Names the place, because a new adapter often looks in the wrong project, or in a simulated cloud that has no instances yet.
fn nothing_listed(looked_for: &str, place: &str) -> String {
    let front = format!("Waiting until the cloud lists {looked_for}.");
    let end = match place {
        "" => " It lists no instances at all. Check the cloud adapter's project and region".to_owned(),
        place => format!(" It lists no instances at all in {place}"),
    };
    ended(&front, &end)
}

/// Lists all instances with the node's name if the list fits into the Event. Otherwise the text contains the first instance and the number
/// of the other instances.
fn ambiguous(provider_ids: &[String]) -> String {
    let note = |ids: &str| {
        format!(
            "Waiting: {} instances have the node's name ({ids}). Rename all but one, or set \
            --provider-id on the node's kubelet",
            provider_ids.len()
        )
    };
    let whole = note(&provider_ids.join(", "));
    if whole.chars().count() <= NOTE_MAX {
        return whole;
    }
    let first = provider_ids.first().map_or("", String::as_str);
    note(&format!("{first} and {} more", provider_ids.len().saturating_sub(1)))
}

impl Refusal {
    /// Returns the Event's reason, which is also used as the metric's label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotVisible | Self::NothingListed { .. } => "InstanceNotVisible",
            Self::Foreign => "InstanceForeign",
            Self::Ambiguous { .. } => "InstanceAmbiguous",
            Self::Failed { .. } => "CloudProviderFailed",
            Self::Away { .. } => "CloudProviderUnavailable",
            Self::Elsewhere { .. } => "CloudMoved",
            Self::NoProviderId => "InstanceWithoutProviderID",
            Self::NoAddresses => "InstanceWithoutAddresses",
            Self::ProvidedNodeIp { .. } => "ProvidedNodeIPInvalid",
        }
    }
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::Reason;
    use controller_core::{kube_api, testing};

    use super::*;
    use crate::{lifecycle, mirror::trim_node};

    #[test]
    fn events_are_in_the_reference() {
        let worker = testing::node("worker-1");
        let new = trim_node(&worker.clone().build());
        let old = trim_node(&worker.provider_id("sim://sim-1/i-0001").build());
        let refusals = [
            Refusal::NotVisible,
            Refusal::NothingListed {
                place: "project demo, region sim-1, endpoint https://cloud.example".to_owned(),
            },
            Refusal::Ambiguous {
                provider_ids: vec!["sim://sim-1/i-0001".to_owned(), "sim://sim-1/i-0002".to_owned()],
            },
            Refusal::Failed {
                reason: Reason::VendorAuth,
                error: "VENDOR_AUTH: the token was rejected".to_owned(),
            },
            Refusal::Away { link: "unavailable since 12:00:00 (connection refused)".to_owned() },
            Refusal::Elsewhere { why: "adapter now uses project b, not a".to_owned() },
            Refusal::NoProviderId,
            Refusal::NoAddresses,
            Refusal::ProvidedNodeIp {
                error: "the cloud lists no address 192.0.2.1 for this node".to_owned(),
            },
        ];
        let source = kube_api::Error::Held(kube_api::Held::NotLeading);
        let failed = sync_failed(&Error::Labels { source }, "nodes \"worker-1\" is forbidden");
        let mut all =
            vec![synced(), failed, refused(&old, &Refusal::Foreign), unclaimed(&new), unclaimed(&old)];
        all.extend(refusals.iter().map(|refusal| refused(&new, refusal)));
        all.extend(lifecycle::examples(&old));
        let event = |Notice { kind, reason, note, .. }| test_support::reference::Event {
            reason,
            kind: kind.word(),
            words: note,
        };
        let all: Vec<_> = all.into_iter().map(event).collect();
        test_support::reference::assert_events_up_to_date("node-controller", &all);
    }

    #[test]
    fn event_about_a_node_without_an_owner_is_short() {
        let short = unclaimed(&trim_node(&testing::node("a").build())).note;
        let long = testing::node("a").provider_id(&format!("openstack:///{}", "i".repeat(250)));
        let long = unclaimed(&trim_node(&long.build())).note;
        assert!(
            short.chars().count() <= NOTE_MAX && short.contains("nodeController.nodes.selector"),
            "{short}"
        );
        assert!(
            long.chars().count() <= NOTE_MAX && long.ends_with(" --provider-id of its kubelet"),
            "{long}"
        );
    }

    #[test]
    fn event_about_an_empty_cloud_names_the_place() {
        let place = "project demo, region sim-1, endpoint built into adapter-sim (starts empty; set adapter.sim.endpoint)";
        for name in ["worker-1".to_owned(), "n".repeat(253)] {
            let new = trim_node(&testing::node(&name).build());
            let note = refused(&new, &Refusal::NothingListed { place: place.to_owned() }).note;
            assert!(note.chars().count() <= NOTE_MAX, "{note}");
            assert!(note.ends_with(&format!(" It lists no instances at all in {place}")), "{note}");
        }
    }

    #[test]
    fn event_about_two_projects_is_whole() {
        let new = trim_node(&testing::node("worker-1").build());
        let why = format!("adapter now uses project {}, not {}", "b".repeat(32), "a".repeat(32));
        assert!(why.chars().count() <= MOVED_MAX, "{why}");
        let longest = Refusal::Elsewhere { why: "x".repeat(MOVED_MAX) };
        let note = refused(&new, &longest).note;
        assert!(note.chars().count() <= NOTE_MAX, "{note}");
    }
}
