//! Computes the desired state of a load balancer, in the vendor's terms and within its limits. Pure functions.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Location, VendorError},
    kit::{self, Region, in_listener, invalid, port_number, unsupported, whole_seconds},
};
use cloud_api_proto::v1alpha1::{
    self as contract, Backend, Protocol, health_check, listener, load_balancer_spec, session_affinity,
};
use ipnet::IpNet;

use crate::{
    SCHEME, ownership,
    parameters::Parameters,
    simcloud::model::{
        Algorithm, Application, HealthMonitor, IpFamily, ListenerProtocol, Member, MonitorProtocol,
        Persistence, PersistenceKind, Placement, PoolProtocol, Scheme, Tags, Traffic,
    },
    step::Port,
};

const WEIGHT_MAX: u32 = 256;
/// Default idle timeout in seconds. The vendor has the same default.
const IDLE_TIMEOUT: u32 = 60;
/// Default health check, used if the Service does not set one. Times are in seconds.
const MONITOR_INTERVAL: u32 = 10;
const MONITOR_TIMEOUT: u32 = 5;
const MONITOR_HEALTHY: u32 = 2;
const MONITOR_UNHEALTHY: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) scheme: Scheme,
    /// Address families in order of preference.
    pub(super) families: Vec<IpFamily>,
    pub(super) vips: Vec<IpAddr>,
    pub(super) placement: Placement,
    /// All tags except the hash.
    pub(super) tags: Tags,
    pub(super) ports: BTreeMap<Port, WantedPort>,
}

#[derive(Clone, Debug)]
pub(super) struct WantedPort {
    /// Idle timeout in seconds.
    pub(super) idle_timeout: u32,
    /// The allowed source ranges. Empty: all clients are allowed.
    pub(super) allowed: BTreeSet<IpNet>,
    pub(super) traffic: Traffic,
    pub(super) pool: WantedPool,
}

#[derive(Clone, Debug)]
pub(super) struct WantedPool {
    pub(super) protocol: PoolProtocol,
    pub(super) algorithm: Algorithm,
    pub(super) persistence: Option<Persistence>,
    pub(super) monitor: Option<HealthMonitor>,
    pub(super) members: BTreeMap<(IpAddr, u16), Member>,
}

impl Wanted {
    pub(super) fn read(desired: &DesiredLoadBalancer, region: &str) -> Result<Self, VendorError> {
        let spec = &desired.spec;
        if let Some(key) = spec.tags.keys().find(|key| ownership::is_reserved(key)) {
            return Err(invalid(
                format!("spec.tags[{key}]"),
                "is reserved for the adapter: choose another key",
            ));
        }
        let scheme = match spec.scheme() {
            load_balancer_spec::Scheme::Unspecified | load_balancer_spec::Scheme::Internet => {
                Scheme::Internet
            }
            load_balancer_spec::Scheme::Internal => Scheme::Internal,
        };
        let families = families(spec)?;
        let vips = vips(spec, &families)?;
        let all = Pools::read(desired, &families, region)?;
        let mut ports = BTreeMap::new();
        for (at, listener) in spec.listeners.iter().enumerate() {
            let (port, wanted) = all.port(listener).map_err(|error| in_listener(at, error))?;
            ports.insert(port, wanted);
        }
        let (placement, tags) = (placement(spec), ownership::balancer_tags(desired));
        Ok(Self { scheme, families, vips, placement, tags, ports })
    }
}

/// Settings shared by all ports.
struct Pools<'a> {
    parameters: Parameters,
    allowed: BTreeSet<IpNet>,
    persistence: Option<Persistence>,
    check: Option<&'a contract::HealthCheck>,
    /// The members of every pool. Their ports are set later, for each pool.
    members: Vec<Member>,
}

impl<'a> Pools<'a> {
    fn read(
        desired: &'a DesiredLoadBalancer,
        families: &[IpFamily],
        region: &str,
    ) -> Result<Self, VendorError> {
        let spec = &desired.spec;
        let members = desired.backends.iter().map(|backend| members(backend, families, region));
        let members: Result<Vec<_>, _> = members.collect();
        Ok(Self {
            parameters: Parameters::read(&spec.parameters)?,
            allowed: allowed(spec)?,
            persistence: persistence(spec)?,
            check: spec.health_check.as_ref(),
            members: members?.into_iter().flatten().collect(),
        })
    }

    fn port(&self, listener: &contract::Listener) -> Result<(Port, WantedPort), VendorError> {
        let (protocol, plain) = match listener.protocol() {
            Protocol::Tcp => (ListenerProtocol::Tcp, PoolProtocol::Tcp),
            Protocol::Udp => (ListenerProtocol::Udp, PoolProtocol::Udp),
            Protocol::Sctp => (ListenerProtocol::Sctp, PoolProtocol::Sctp),
            Protocol::Unspecified => {
                return Err(invalid("protocol", "unknown protocol: use one of: TCP, UDP, SCTP"));
            }
        };
        if listener.target_kind() == listener::TargetKind::NodeDirect {
            return Err(unsupported("target_kind", "this cloud reaches pods through node ports only"));
        }
        let port = Port { protocol, number: port_number("port", listener.port)? };
        let node_port = port_of_node(listener)?;
        let pool = WantedPool {
            protocol: proxied(listener, plain)?,
            algorithm: algorithm(listener)?.unwrap_or(self.parameters.algorithm),
            persistence: self.persistence,
            monitor: self.monitor(protocol)?,
            members: self.members(node_port),
        };
        let idle_timeout = whole_seconds("idle_timeout", listener.idle_timeout)?.unwrap_or(IDLE_TIMEOUT);
        let traffic = traffic(listener)?;
        Ok((port, WantedPort { idle_timeout, allowed: self.allowed.clone(), traffic, pool }))
    }

    fn members(&self, port: u16) -> BTreeMap<(IpAddr, u16), Member> {
        let members = self.members.iter().map(|member| Member { port, ..member.clone() });
        members.map(|member| ((member.address, member.port), member)).collect()
    }

    /// Returns the health monitor of a pool. UDP and SCTP node ports answer no health check. If no other port can be checked, all members
    /// count as healthy.
    fn monitor(&self, protocol: ListenerProtocol) -> Result<Option<HealthMonitor>, VendorError> {
        let check = self.check.cloned().unwrap_or_default();
        if check.kind() == health_check::Kind::None
            || (protocol != ListenerProtocol::Tcp && check.port.is_none())
        {
            return Ok(None);
        }
        let field = |name: &str| format!("spec.health_check.{name}");
        let interval = whole_seconds(&field("interval"), check.interval)?;
        let timeout = whole_seconds(&field("timeout"), check.timeout)?;
        // Unset fields get values that match the fields that are set.
        let interval = interval.unwrap_or_else(|| timeout.unwrap_or_default().max(MONITOR_INTERVAL));
        let timeout = timeout.unwrap_or(MONITOR_TIMEOUT.min(interval));
        if timeout > interval {
            return Err(invalid(
                field("timeout"),
                format!("{timeout} s is longer than the interval, {interval} s"),
            ));
        }
        let http = check.kind() == health_check::Kind::Http;
        Ok(Some(HealthMonitor {
            protocol: match (http, self.parameters.health_check_tls) {
                (false, _) => MonitorProtocol::Tcp,
                (true, false) => MonitorProtocol::Http,
                (true, true) => MonitorProtocol::Https,
            },
            port: check.port.map(|number| port_number(&field("port"), number)).transpose()?,
            path: http.then(|| check.path.clone()),
            interval,
            timeout,
            healthy_threshold: threshold(
                &field("healthy_threshold"),
                check.healthy_threshold,
                MONITOR_HEALTHY,
            )?,
            unhealthy_threshold: threshold(
                &field("unhealthy_threshold"),
                check.unhealthy_threshold,
                MONITOR_UNHEALTHY,
            )?,
        }))
    }
}

fn placement(spec: &contract::LoadBalancerSpec) -> Placement {
    Placement {
        address_pool: said(&spec.address_pool),
        subnets: spec.subnets.clone(),
        size: said(&spec.size),
        zone: said(&spec.zone),
    }
}

fn said(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the algorithm of a listener. The parameter `algorithm` applies only to listeners that set none.
fn algorithm(listener: &contract::Listener) -> Result<Option<Algorithm>, VendorError> {
    match listener.algorithm() {
        listener::Algorithm::Unspecified => Ok(None),
        listener::Algorithm::RoundRobin => Ok(Some(Algorithm::RoundRobin)),
        listener::Algorithm::LeastConnections => Ok(Some(Algorithm::LeastConnections)),
        listener::Algorithm::SourceIp => Ok(Some(Algorithm::SourceIp)),
        listener::Algorithm::SourceIpPort => {
            Err(unsupported("algorithm", "this cloud cannot balance by client port: use SOURCE_IP"))
        }
    }
}

fn traffic(listener: &contract::Listener) -> Result<Traffic, VendorError> {
    let application = match listener.application() {
        // The listener has only certificates, so the vendor's default applies.
        listener::Application::Unspecified if !listener.tls_refs.is_empty() => Application::Tls,
        listener::Application::Unspecified | listener::Application::Pass => Application::Pass,
        listener::Application::Http => Application::Http,
        listener::Application::Https => Application::Https,
        listener::Application::Tls => Application::Tls,
    };
    Ok(Traffic {
        application,
        certificates: listener.tls_refs.clone(),
        connection_limit: listener.connection_limit,
        connect_timeout: whole_seconds("connect_timeout", listener.connect_timeout)?,
        app_protocol: said(&listener.app_protocol),
    })
}

fn families(spec: &contract::LoadBalancerSpec) -> Result<Vec<IpFamily>, VendorError> {
    let family = |family| match family {
        contract::IpFamily::Ipv4 => Ok(IpFamily::Ipv4),
        contract::IpFamily::Ipv6 => Ok(IpFamily::Ipv6),
        contract::IpFamily::Unspecified => {
            Err(invalid("spec.ip_families", "unknown IP family: use one of: IPV4, IPV6"))
        }
    };
    spec.ip_families().map(family).collect()
}

fn vips(spec: &contract::LoadBalancerSpec, families: &[IpFamily]) -> Result<Vec<IpAddr>, VendorError> {
    let mut taken = BTreeSet::new();
    let mut vips = Vec::new();
    for (at, text) in spec.requested_addresses.iter().enumerate() {
        let field = format!("spec.requested_addresses[{at}]");
        let vip: IpAddr = text.parse().map_err(|error| invalid(&field, format!("{text:?}: {error}")))?;
        if !families.contains(&IpFamily::of(vip)) {
            return Err(invalid(field, format!("{vip} is of a family that spec.ip_families does not name")));
        }
        if !taken.insert(IpFamily::of(vip)) {
            return Err(invalid(
                field,
                format!("{vip} is the second address of its family: this cloud takes one per family"),
            ));
        }
        vips.push(vip);
    }
    Ok(vips)
}

fn allowed(spec: &contract::LoadBalancerSpec) -> Result<BTreeSet<IpNet>, VendorError> {
    let parse = |(at, text): (usize, &String)| match text.parse::<IpNet>() {
        Ok(range) => Ok(range.trunc()),
        Err(error) => Err(invalid(format!("spec.source_ranges[{at}]"), format!("{text:?}: {error}"))),
    };
    spec.source_ranges.iter().enumerate().map(parse).collect()
}

fn persistence(spec: &contract::LoadBalancerSpec) -> Result<Option<Persistence>, VendorError> {
    let Some(affinity) = &spec.session_affinity else { return Ok(None) };
    match affinity.kind() {
        session_affinity::Kind::Unspecified | session_affinity::Kind::None => Ok(None),
        session_affinity::Kind::ClientIp => {
            let timeout = whole_seconds("spec.session_affinity.timeout", affinity.timeout)?;
            Ok(Some(Persistence { kind: PersistenceKind::SourceIp, timeout }))
        }
    }
}

/// Builds one member for each family of the load balancer in which the backend has an address.
fn members(backend: &Backend, families: &[IpFamily], region: &str) -> Result<Vec<Member>, VendorError> {
    let field = |name: &str| format!("backends[{}].{name}", backend.provider_id);
    let weight = match (backend.draining, backend.weight) {
        (true, _) => 0,
        (false, None) => 1,
        (false, Some(weight)) => weight,
    };
    let weight = u16::try_from(weight).ok().filter(|weight| u32::from(*weight) <= WEIGHT_MAX);
    let weight =
        weight.ok_or_else(|| invalid(field("weight"), format!("is above the maximum of {WEIGHT_MAX}")))?;
    let instance_id = match kit::locate(SCHEME, Region::Required(region), &backend.provider_id) {
        Location::Here(id) => Some(id),
        Location::Elsewhere | Location::Malformed => None,
    };
    let mut members = Vec::new();
    for text in &backend.addresses {
        let address: IpAddr =
            text.parse().map_err(|error| invalid(field("addresses"), format!("{text:?}: {error}")))?;
        if families.contains(&IpFamily::of(address)) {
            members.push(Member { address, port: 0, weight, instance_id: instance_id.clone() });
        }
    }
    Ok(members)
}

fn proxied(listener: &contract::Listener, plain: PoolProtocol) -> Result<PoolProtocol, VendorError> {
    match (listener.proxy_protocol(), plain) {
        (listener::ProxyProtocol::Unspecified | listener::ProxyProtocol::Off, plain) => Ok(plain),
        (listener::ProxyProtocol::V1, _) => {
            Err(unsupported("proxy_protocol", "this cloud supports version 2 only: use V2"))
        }
        (listener::ProxyProtocol::V2, PoolProtocol::Udp | PoolProtocol::Sctp) => {
            Err(unsupported("proxy_protocol", "this cloud supports V2 for TCP only"))
        }
        (listener::ProxyProtocol::V2, PoolProtocol::Tcp | PoolProtocol::Proxy) => Ok(PoolProtocol::Proxy),
    }
}

fn port_of_node(listener: &contract::Listener) -> Result<u16, VendorError> {
    let missing = || invalid("node_port", "is missing: this cloud reaches pods through node ports");
    port_number("node_port", listener.node_port.ok_or_else(missing)?)
}

fn threshold(field: &str, asked: Option<u32>, default: u32) -> Result<u32, VendorError> {
    match asked {
        None => Ok(default),
        Some(0) => Err(invalid(field, "must be at least 1")),
        Some(asked) => Ok(asked),
    }
}
