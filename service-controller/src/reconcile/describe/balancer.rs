//! Describes a load balancer as the adapter last listed it.

use super::count;
use crate::plan::{
    cloud::{Balancer, Details, State},
    service::Ingress,
};

/// Maximum number of parts that are listed.
const PARTS: usize = 30;
/// The kind of the part that is the load balancer itself. Its ID begins the description.
const ITSELF: &str = "loadbalancer";

/// Returns a line with the state, and an indented line for each detail that the adapter reports.
pub(super) fn balancer(it: &Balancer) -> Vec<String> {
    let mut line = format!("{} {}", it.vendor_id, state(it.state));
    for address in &it.ingress {
        line = format!("{line} {address}");
    }
    line = format!("{line}, {}", count(usize::try_from(it.backends).unwrap_or(usize::MAX), "backend"));
    if !it.listeners.is_empty() {
        line = format!("{line}, {}", it.listeners.join(" "));
    }
    let incomplete = it.applied_hash.is_empty().then(|| "no settings were applied completely yet".to_owned());
    let faults = it.ingress.iter().flat_map(faults);
    let details = incomplete.into_iter().chain(faults).chain(details(it));
    [line].into_iter().chain(details.map(|detail| format!("  {detail}"))).collect()
}

/// Returns the ports with errors.
fn faults(address: &Ingress) -> impl Iterator<Item = String> {
    address.ports.iter().filter_map(move |port| {
        let error = port.error.as_deref()?;
        Some(format!("{} {} of {address}: {error}", port.transport, port.port))
    })
}

fn details(Balancer { vendor_id, details, .. }: &Balancer) -> Vec<String> {
    let Details { name, created_at, parts } = details;
    let name = (!name.is_empty()).then(|| format!("name {name}"));
    let created = created_at.map(|at| format!("created {at}"));
    let mut parts = parts.iter().filter(|(kind, id)| *kind != ITSELF || *id != vendor_id);
    let shown: Vec<String> = parts.by_ref().take(PARTS).map(|(kind, id)| format!("{kind} {id}")).collect();
    let more = parts.count();
    let more = (more > 0).then(|| format!("{more} more"));
    name.into_iter().chain(created).chain(shown).chain(more).collect()
}

/// Returns the name of the state as in the contract.
const fn state(state: State) -> &'static str {
    match state {
        State::Unknown => "UNKNOWN",
        State::Pending => "PENDING",
        State::Active => "ACTIVE",
        State::Degraded => "DEGRADED",
        State::Error => "ERROR",
        State::Deleting => "DELETING",
        State::Absent => "ABSENT",
    }
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{
        LoadBalancer, LoadBalancerAddress, LoadBalancerState, PortStatus, Protocol, VendorIds,
        load_balancer_address::{IpMode, Value},
    };

    use super::*;

    fn listed() -> LoadBalancer {
        LoadBalancer {
            vendor_id: "lb-1".to_owned(),
            state: LoadBalancerState::Degraded.into(),
            applied_hash: "h".to_owned(),
            backends: 1,
            ..LoadBalancer::default()
        }
    }

    fn shown(item: &LoadBalancer) -> Vec<String> {
        balancer(&item.into())
    }

    #[test]
    fn everything_that_the_adapter_lists_is_shown() {
        let port = |port, error: Option<&str>| PortStatus {
            port,
            protocol: Protocol::Tcp.into(),
            error: error.map(str::to_owned),
        };
        let ids = [("loadbalancer", "lb-1"), ("listener/tcp/80", "li-1"), ("pool/tcp/80", "po-1")];
        let item = LoadBalancer {
            addresses: vec![LoadBalancerAddress {
                value: Some(Value::Ip("203.0.113.1".to_owned())),
                ip_mode: IpMode::Proxy.into(),
                ports: vec![port(80, None), port(443, Some("CertificateGone"))],
            }],
            listeners: vec!["tcp/80".to_owned(), "tcp/443".to_owned()],
            name: "web".to_owned(),
            created_at: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            vendor_ids: Some(VendorIds {
                ids: ids.map(|(kind, id)| (kind.to_owned(), id.to_owned())).into_iter().collect(),
            }),
            ..listed()
        };
        insta::assert_snapshot!(shown(&item).join("\n"), @r"
        lb-1 DEGRADED 203.0.113.1 (Proxy), 1 backend, tcp/443 tcp/80
          TCP 443 of 203.0.113.1 (Proxy): CertificateGone
          name web
          created 1970-01-01T00:00:00Z
          listener/tcp/80 li-1
          pool/tcp/80 po-1
        ");
    }

    #[test]
    fn what_the_adapter_does_not_list_is_left_out() {
        assert_eq!(shown(&listed()), ["lb-1 DEGRADED, 1 backend"]);
        let incomplete = LoadBalancer { applied_hash: String::new(), ..listed() };
        assert_eq!(shown(&incomplete)[1..], ["  no settings were applied completely yet"]);
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let ids = (0..100).map(|port| (format!("pool/tcp/{port}"), "po".to_owned())).collect();
        let lines = shown(&LoadBalancer { vendor_ids: Some(VendorIds { ids }), ..listed() });
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (32, Some("  70 more")));
    }
}
