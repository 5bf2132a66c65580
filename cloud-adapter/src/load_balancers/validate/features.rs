//! Refuses fields of a specification that need a capability that the driver does not declare. This module is pure.
//!
//! The patterns name every field of the contract. Therefore a new field does not compile until its capability is decided here, and no
//! driver can silently ignore it.

use std::collections::BTreeSet;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        HealthCheck, Listener, LoadBalancerSpec, Protocol, SessionAffinity, health_check,
        listener::{Algorithm, Application, ProxyProtocol, TargetKind},
        load_balancer_spec::{AddressRetention, Scheme},
        session_affinity,
    },
};

use crate::driver::Description;

/// The attribute of a capability that lists its supported values. Source: adapter_service.proto, `Capability`.
const VALUES: &str = "values";

/// The capability of adapters that use the application protocol of a port.
const APP_PROTOCOL: &str = "lb.app-protocol";

/// A requested feature that some clouds lack.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    field: &'static str,
    capability: &'static str,
    /// The requested value, if the feature has several values.
    value: Option<String>,
}

impl Need {
    fn of(field: &'static str, capability: &'static str) -> Self {
        Self { field, capability, value: None }
    }

    fn refusal(&self, cloud: &Description) -> Option<AdapterError> {
        let Self { field, capability, value } = self;
        let text = match (cloud.capability(capability), value) {
            (None, _) => format!("{field}: this cloud does not support {capability}"),
            (Some(there), Some(value)) => {
                let values = there.attributes.get(VALUES)?;
                if values.split(',').any(|one| one == value) {
                    return None;
                }
                format!("{field}: the {capability} of this cloud supports {values}, but not {value}")
            }
            (Some(_), None) => return None,
        };
        let error = AdapterError::new(Reason::UnsupportedFeature, text);
        Some(error.with("field", *field).with("capability", *capability))
    }
}

/// Refuses the first requested feature whose capability this cloud lacks.
///
/// # Errors
/// Returns `UNSUPPORTED_FEATURE` with `field` and `capability`.
pub(super) fn check(spec: &LoadBalancerSpec, cloud: &Description) -> Result<(), AdapterError> {
    needs(spec).iter().find_map(|need| need.refusal(cloud)).map_or(Ok(()), Err)
}

/// Removes hints that this cloud ignores. Hints are not hashed, so that neither a change nor an upgrade causes writes.
pub(super) fn forget_unread(spec: &mut LoadBalancerSpec, cloud: &Description) {
    if !cloud.can(APP_PROTOCOL) {
        spec.listeners.iter_mut().for_each(|listener| listener.app_protocol.clear());
    }
}

fn needs(spec: &LoadBalancerSpec) -> Vec<Need> {
    let LoadBalancerSpec {
        scheme: _,
        ip_families,
        requested_addresses,
        listeners,
        health_check,
        source_ranges,
        session_affinity,
        address_pool,
        subnets,
        size,
        zone,
        name,
        load_balancer_id,
        shared_with,
        address_retention: _,
        // All clouds support these fields.
        class: _,
        backend_set_id: _,
        traffic_policy: _,
        parameters: _,
        tags: _,
    } = spec;
    let keeps = spec.address_retention() == AddressRetention::Keep;
    let rows = [
        ("spec.scheme", "lb.internal", spec.scheme() == Scheme::Internal),
        ("spec.source_ranges", "lb.source-ranges", !source_ranges.is_empty()),
        ("spec.health_check", "lb.health-check.http", health_check.as_ref().is_some_and(is_http)),
        ("spec.session_affinity", "lb.session-affinity", session_affinity.as_ref().is_some_and(is_sticky)),
        ("spec.ip_families", "lb.dual-stack", ip_families.len() > 1),
        ("spec.requested_addresses", "lb.reserved-ip", !requested_addresses.is_empty()),
        ("spec.address_pool", "lb.address-pool", !address_pool.is_empty()),
        ("spec.subnets", "lb.subnets", !subnets.is_empty()),
        ("spec.size", "lb.size", !size.is_empty()),
        ("spec.zone", "lb.zone", !zone.is_empty()),
        ("spec.name", "lb.name", !name.is_empty()),
        ("spec.load_balancer_id", "lb.shared", !load_balancer_id.is_empty()),
        ("spec.shared_with", "lb.shared", !shared_with.is_empty()),
        ("spec.address_retention", "lb.keep-address", keeps),
    ];
    let of_spec = rows.into_iter().filter(|(_, _, needed)| *needed);
    let of_spec = of_spec.map(|(field, capability, _)| Need::of(field, capability));
    of_spec.chain(protocols(listeners)).chain(listeners.iter().flat_map(of_listener)).collect()
}

fn is_http(check: &HealthCheck) -> bool {
    let HealthCheck {
        kind: _,
        // All clouds support these fields, or the driver refuses them.
        port: _,
        path: _,
        interval: _,
        timeout: _,
        unhealthy_threshold: _,
        healthy_threshold: _,
    } = check;
    check.kind() == health_check::Kind::Http
}

fn is_sticky(affinity: &SessionAffinity) -> bool {
    let SessionAffinity { kind: _, timeout: _ } = affinity;
    affinity.kind() == session_affinity::Kind::ClientIp
}

fn protocols(listeners: &[Listener]) -> Vec<Need> {
    let protocols: BTreeSet<i32> = listeners.iter().map(|listener| listener.protocol).collect();
    let has = |protocol: Protocol| protocols.contains(&i32::from(protocol));
    let rows = [
        ("lb.udp", has(Protocol::Udp)),
        ("lb.sctp", has(Protocol::Sctp)),
        ("lb.mixed-protocols", protocols.len() > 1),
    ];
    let needed = rows.into_iter().filter(|(_, needed)| *needed);
    needed.map(|(capability, _)| Need::of("spec.listeners.protocol", capability)).collect()
}

fn of_listener(listener: &Listener) -> Vec<Need> {
    let Listener {
        protocol: _,
        target_kind: _,
        proxy_protocol: _,
        tls_refs,
        algorithm: _,
        application: _,
        connect_timeout,
        connection_limit,
        // All clouds support these fields, or the driver refuses them.
        name: _,
        port: _,
        node_port: _,
        idle_timeout: _,
        // This field is removed for adapters that do not use it.
        app_protocol: _,
    } = listener;
    let direct = listener.target_kind() == TargetKind::NodeDirect;
    let rows = [
        ("spec.listeners.target_kind", "lb.node-direct", direct),
        ("spec.listeners.tls_refs", "lb.tls", !tls_refs.is_empty()),
        ("spec.listeners.connect_timeout", "lb.connect-timeout", connect_timeout.is_some()),
        ("spec.listeners.connection_limit", "lb.connection-limit", connection_limit.is_some()),
    ];
    let plain = rows.into_iter().filter(|(_, _, needed)| *needed);
    let plain = plain.map(|(field, capability, _)| Need::of(field, capability));
    plain.chain(choices(listener)).collect()
}

fn choices(listener: &Listener) -> impl Iterator<Item = Need> {
    let proxy = match listener.proxy_protocol() {
        ProxyProtocol::Unspecified | ProxyProtocol::Off => None,
        ProxyProtocol::V1 => Some("v1"),
        ProxyProtocol::V2 => Some("v2"),
    };
    let algorithm = match listener.algorithm() {
        Algorithm::Unspecified => None,
        Algorithm::RoundRobin => Some("round-robin"),
        Algorithm::LeastConnections => Some("least-connections"),
        Algorithm::SourceIp => Some("source-ip"),
        Algorithm::SourceIpPort => Some("source-ip-port"),
    };
    let application = match listener.application() {
        Application::Unspecified | Application::Pass => None,
        Application::Http => Some("http"),
        Application::Https => Some("https"),
        Application::Tls => Some("tls"),
    };
    let rows = [
        ("spec.listeners.proxy_protocol", "lb.proxy-protocol", proxy),
        ("spec.listeners.algorithm", "lb.algorithm", algorithm),
        ("spec.listeners.application", "lb.listener-protocol", application),
    ];
    rows.into_iter().filter_map(|(field, capability, value)| {
        value.map(|value| Need { value: Some(value.to_owned()), ..Need::of(field, capability) })
    })
}

#[cfg(test)]
mod tests;
