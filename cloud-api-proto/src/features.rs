//! The capabilities that a load balancer's specification needs. The adapter and its callers use this single table.
//!
//! The patterns name every field of the contract. Therefore a new field compiles only after its capability is decided here, and no driver
//! can silently ignore the field.

use std::collections::BTreeSet;

use crate::v1alpha1::{
    Capability, HealthCheck, Listener, LoadBalancerSpec, Protocol, SessionAffinity, health_check,
    listener::{Algorithm, Application, ProxyProtocol, TargetKind},
    load_balancer_spec::{AddressRetention, Scheme},
    session_affinity,
};

/// Names of capabilities that a load balancer may need. Source: contract, `Capability`.
#[expect(missing_docs, reason = "the contract describes each name")]
pub mod name {
    pub const LOAD_BALANCERS: &str = "loadbalancers";
    pub const INTERNAL: &str = "lb.internal";
    pub const SOURCE_RANGES: &str = "lb.source-ranges";
    pub const PROXY_PROTOCOL: &str = "lb.proxy-protocol";
    pub const HTTP_HEALTH_CHECK: &str = "lb.health-check.http";
    pub const SESSION_AFFINITY: &str = "lb.session-affinity";
    pub const UDP: &str = "lb.udp";
    pub const SCTP: &str = "lb.sctp";
    pub const MIXED_PROTOCOLS: &str = "lb.mixed-protocols";
    pub const DUAL_STACK: &str = "lb.dual-stack";
    pub const RESERVED_IP: &str = "lb.reserved-ip";
    pub const NODE_DIRECT: &str = "lb.node-direct";
    pub const TLS: &str = "lb.tls";
    pub const ADDRESS_POOL: &str = "lb.address-pool";
    pub const SUBNETS: &str = "lb.subnets";
    pub const SIZE: &str = "lb.size";
    pub const ZONE: &str = "lb.zone";
    pub const NAME: &str = "lb.name";
    pub const SHARED: &str = "lb.shared";
    pub const KEEP_ADDRESS: &str = "lb.keep-address";
    pub const ALGORITHM: &str = "lb.algorithm";
    pub const LISTENER_PROTOCOL: &str = "lb.listener-protocol";
    pub const CONNECT_TIMEOUT: &str = "lb.connect-timeout";
    pub const CONNECTION_LIMIT: &str = "lb.connection-limit";
    pub const APP_PROTOCOL: &str = "lb.app-protocol";
}

impl Capability {
    /// Returns the supported values of a feature that has several values, or `None` if all are supported.
    pub fn values(&self) -> Option<impl Iterator<Item = &str>> {
        self.attributes.get("values").map(|list| list.split(','))
    }
}

/// A requested feature that some clouds do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The field of the contract, such as `spec.scheme` or `spec.listeners.algorithm`.
    pub field: &'static str,
    /// Index of the listener that contains the field, or `None` if the field does not belong to a listener.
    pub listener: Option<usize>,
    /// The name of the capability.
    pub capability: &'static str,
    /// The requested value, if the feature has several values.
    pub value: Option<&'static str>,
}

impl Need {
    fn new(field: &'static str, capability: &'static str) -> Self {
        Self { field, listener: None, capability, value: None }
    }
}

/// The features that a load balancer with this specification needs.
#[must_use]
pub fn needs(spec: &LoadBalancerSpec) -> Vec<Need> {
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
        // All clouds support these fields of the specification.
        class: _,
        backend_set_id: _,
        traffic_policy: _,
        parameters: _,
        tags: _,
    } = spec;
    let protocols: BTreeSet<i32> = listeners.iter().map(|listener| listener.protocol).collect();
    let has = |protocol: Protocol| protocols.contains(&i32::from(protocol));
    let keeps = spec.address_retention() == AddressRetention::Keep;
    let rows = [
        ("spec.listeners.protocol", name::UDP, has(Protocol::Udp)),
        ("spec.listeners.protocol", name::SCTP, has(Protocol::Sctp)),
        ("spec.listeners.protocol", name::MIXED_PROTOCOLS, protocols.len() > 1),
        ("spec.source_ranges", name::SOURCE_RANGES, !source_ranges.is_empty()),
        ("spec.requested_addresses", name::RESERVED_IP, !requested_addresses.is_empty()),
        ("spec.ip_families", name::DUAL_STACK, ip_families.len() > 1),
        ("spec.load_balancer_id", name::SHARED, !load_balancer_id.is_empty()),
        ("spec.shared_with", name::SHARED, !shared_with.is_empty()),
        ("spec.scheme", name::INTERNAL, spec.scheme() == Scheme::Internal),
        ("spec.address_retention", name::KEEP_ADDRESS, keeps),
        ("spec.name", name::NAME, !name.is_empty()),
        ("spec.address_pool", name::ADDRESS_POOL, !address_pool.is_empty()),
        ("spec.subnets", name::SUBNETS, !subnets.is_empty()),
        ("spec.size", name::SIZE, !size.is_empty()),
        ("spec.zone", name::ZONE, !zone.is_empty()),
        ("spec.session_affinity", name::SESSION_AFFINITY, session_affinity.as_ref().is_some_and(is_sticky)),
    ];
    let of_spec = rows.into_iter().filter(|(_, _, needed)| *needed);
    let mut needs: Vec<Need> = of_spec.map(|(field, capability, _)| Need::new(field, capability)).collect();
    for (at, listener) in listeners.iter().enumerate() {
        needs.extend(of_listener(listener).map(|need| Need { listener: Some(at), ..need }));
    }
    if health_check.as_ref().is_some_and(is_http) {
        needs.push(Need::new("spec.health_check", name::HTTP_HEALTH_CHECK));
    }
    needs
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

fn of_listener(listener: &Listener) -> impl Iterator<Item = Need> + use<> {
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
        // The adapter removes this field if its driver does not use it.
        app_protocol: _,
    } = listener;
    let direct = listener.target_kind() == TargetKind::NodeDirect;
    let rows = [
        ("spec.listeners.target_kind", name::NODE_DIRECT, direct),
        ("spec.listeners.tls_refs", name::TLS, !tls_refs.is_empty()),
        ("spec.listeners.connect_timeout", name::CONNECT_TIMEOUT, connect_timeout.is_some()),
        ("spec.listeners.connection_limit", name::CONNECTION_LIMIT, connection_limit.is_some()),
    ];
    let plain = rows.into_iter().filter(|(_, _, needed)| *needed);
    choices(listener).chain(plain.map(|(field, capability, _)| Need::new(field, capability)))
}

fn choices(listener: &Listener) -> impl Iterator<Item = Need> + use<> {
    let application = match listener.application() {
        Application::Unspecified | Application::Pass => None,
        Application::Http => Some("http"),
        Application::Https => Some("https"),
        Application::Tls => Some("tls"),
    };
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
    let rows = [
        ("spec.listeners.application", name::LISTENER_PROTOCOL, application),
        ("spec.listeners.proxy_protocol", name::PROXY_PROTOCOL, proxy),
        ("spec.listeners.algorithm", name::ALGORITHM, algorithm),
    ];
    rows.into_iter()
        .filter(|(_, _, value)| value.is_some())
        .map(|(field, capability, value)| Need { value, ..Need::new(field, capability) })
}
