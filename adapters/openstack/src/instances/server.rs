//! Converts a server and its ports to the message `Instance`. The functions have no side effects.

use cloud_adapter::kit;
use cloud_api_proto::v1alpha1::{
    Instance, InstanceState,
    instance_address::{Type, Value},
};

use super::{
    address::{Networking, addresses},
    label::label,
};
use crate::{
    api::server::{Port, Server},
    provider_id,
};

/// Settings that are the same for all instances of the adapter.
#[derive(Clone, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) region: &'a str,
    pub(crate) networking: &'a Networking,
    pub(crate) form: provider_id::Form,
}

impl Server {
    /// Maps Nova's status. Source: Compute API, "Server concepts".
    fn state(&self) -> InstanceState {
        const SHUT_DOWN: u8 = 4;
        match (self.status.as_str(), self.task.as_str()) {
            // A soft-deleted server has left its cluster, and only an operator of the cloud can restore the server.
            ("DELETED" | "SOFT_DELETED", _) => InstanceState::Terminated,
            (_, "deleting" | "soft-deleting") => InstanceState::Terminating,
            ("SHUTOFF", _) => InstanceState::Stopped,
            // The hypervisor has shut the server down, but Nova does not show this in the status yet.
            ("ACTIVE", _) if self.power == Some(SHUT_DOWN) => InstanceState::Stopped,
            ("BUILD" | "REBUILD", _) => InstanceState::Starting,
            (
                "ACTIVE" | "REBOOT" | "HARD_REBOOT" | "PASSWORD" | "RESCUE" | "RESIZE" | "VERIFY_RESIZE"
                | "REVERT_RESIZE" | "MIGRATING",
                _,
            ) => InstanceState::Running,
            // These servers do not run, but are not shut down either, so their volumes may be in use.
            ("PAUSED" | "SUSPENDED" | "SHELVED" | "SHELVED_OFFLOADED", _) => InstanceState::Stopping,
            ("ERROR", _) => InstanceState::Error,
            // An unknown status never counts as a deletion.
            _ => InstanceState::Unknown,
        }
    }
}

/// `ports` are the ports of this server, in the sequence that Neutron returns.
pub(super) fn instance(server: &Server, ports: &[&Port], place: &Shared<'_>) -> Instance {
    let Shared { region, networking, form } = place;
    let addresses = addresses(server, ports, networking);
    let provider_id = provider_id::write(*form, region, &server.id);
    let (state, kind, zone) = (server.state(), label(&server.flavor.original_name), label(&server.zone));
    // The fingerprint covers only the properties that are used to initialise a Node.
    let mut node = vec![provider_id.as_str(), &server.name, state.as_str_name(), &kind, &zone, region];
    for address in &addresses {
        node.push(Type::try_from(address.r#type).unwrap_or_default().as_str_name());
        node.push(match &address.value {
            Some(Value::Ip(text) | Value::Name(text)) => text,
            None => "",
        });
    }
    let fingerprint = kit::digest(&node);
    Instance {
        name: server.name.clone(),
        state: state.into(),
        instance_type: kind,
        region: (*region).to_owned(),
        zone,
        created_at: server.created.parse().ok(),
        vendor_state: server.status.clone(),
        fingerprint,
        addresses,
        provider_id,
        ..Instance::default()
    }
}
