//! Translates the desired state of a load balancer to the terms and limits of Octavia. Pure functions.

mod checks;
mod members;
mod vip;

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, VendorError},
    kit::{in_listener, invalid, port_number, unsupported, whole_seconds},
};
use cloud_api_proto::v1alpha1::{
    self as contract, Protocol,
    health_check::Kind,
    listener::{self, Algorithm, Application},
    load_balancer_spec::Scheme,
    session_affinity,
};
use ipnet::IpNet;

use self::members::Hosts;
pub(super) use self::vip::Vip;
use crate::{
    api::{
        requests::{ListenerSettings, NewMember, NewMonitor, NewPersistence, Timeouts},
        version::Version,
    },
    load_balancers::settings::Site,
    ownership::{self, Expectation, Tags},
    parameters::{Parameters, within_max},
    port::{Port, Transport},
};

/// The default timeouts in milliseconds. They are the same as Octavia's defaults.
const DATA_TIMEOUT: u32 = 50_000;
const CONNECT: u32 = 5_000;
/// The default connection limit, which means that the number is unlimited.
const UNLIMITED: i64 = -1;

#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) vip: Vip,
    /// The floating IP. `None`: the load balancer gets none.
    pub(super) public: Option<Public>,
    pub(super) parameters: Parameters,
    /// The tags, except the hash and the fence.
    pub(super) tags: Tags,
    pub(super) ports: BTreeMap<Port, WantedPort>,
}

#[derive(Clone, Debug)]
pub(super) struct Public {
    /// The requested address. `None`: any address.
    pub(super) address: Option<IpAddr>,
    /// The name or ID of the network or of one of its subnets, as written in the Service. If set, `network` is not known yet.
    pub(super) pool: Option<String>,
    pub(super) network: Option<String>,
    pub(super) subnet: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct WantedPort {
    pub(super) protocol: &'static str,
    pub(super) settings: ListenerSettings,
    pub(super) pool: WantedPool,
}

#[derive(Clone, Debug)]
pub(super) struct WantedPool {
    pub(super) protocol: &'static str,
    pub(super) algorithm: &'static str,
    pub(super) persistence: Option<NewPersistence>,
    pub(super) monitor: Option<NewMonitor>,
    pub(super) members: BTreeMap<(IpAddr, u16), NewMember>,
}

impl Wanted {
    pub(super) fn read(desired: &DesiredLoadBalancer, site: &Site<'_>) -> Result<Self, VendorError> {
        let spec = &desired.spec;
        let parameters = Parameters::read(&spec.parameters)?;
        let vip = Vip::read(desired, &parameters, site.options)?;
        let public = public(spec, &parameters, site);
        let expectation = if public.is_some() { Expectation::FloatingIp } else { Expectation::None };
        let tags = ownership::wanted(desired, expectation)?;
        let ports = ports(desired, &parameters, site)?;
        Ok(Self { vip, public, parameters, tags, ports })
    }

    /// Translates the desired state of a Service that only shares a load balancer. This state consists only of the Service's ports.
    pub(super) fn shared(desired: &DesiredLoadBalancer, site: &Site<'_>) -> Result<Self, VendorError> {
        let parameters = Parameters::read(&desired.spec.parameters)?;
        let ports = ports(desired, &parameters, site)?;
        Ok(Self { vip: Vip::default(), public: None, parameters, tags: Tags::new(), ports })
    }
}

fn ports(
    desired: &DesiredLoadBalancer,
    parameters: &Parameters,
    site: &Site<'_>,
) -> Result<BTreeMap<Port, WantedPort>, VendorError> {
    let all = Ports::read(desired, parameters, site)?;
    let listeners = desired.spec.listeners.iter().enumerate();
    listeners.map(|(at, listener)| all.port(listener).map_err(|error| in_listener(at, error))).collect()
}

/// Returns the desired floating IP. IPv6 addresses are public without a floating IP.
fn public(spec: &contract::LoadBalancerSpec, parameters: &Parameters, site: &Site<'_>) -> Option<Public> {
    if spec.scheme() == Scheme::Internal || !spec.ip_families().any(|one| one == contract::IpFamily::Ipv4) {
        return None;
    }
    let asked = spec.requested_addresses.iter().filter_map(|text| text.parse().ok());
    let options = site.options;
    let address = asked.into_iter().find(IpAddr::is_ipv4);
    let subnet = parameters.floating_subnet.as_ref();
    if !spec.address_pool.is_empty() {
        // The configured subnet may be in a network other than the pool of the Service.
        let pool = Some(spec.address_pool.clone());
        return Some(Public { address, pool, network: None, subnet: subnet.cloned() });
    }
    let subnet = subnet.or(options.floating_subnet_id.as_ref()).cloned();
    Some(Public { address, pool: None, network: options.floating_network_id.clone(), subnet })
}

/// Settings that all ports share.
struct Ports<'a> {
    parameters: &'a Parameters,
    site: &'a Site<'a>,
    allowed: Vec<IpNet>,
    affinity: Option<&'a contract::SessionAffinity>,
    check: contract::HealthCheck,
    has_tcp: bool,
    hosts: Hosts,
}

impl<'a> Ports<'a> {
    fn read(
        desired: &'a DesiredLoadBalancer,
        parameters: &'a Parameters,
        site: &'a Site<'a>,
    ) -> Result<Self, VendorError> {
        let spec = &desired.spec;
        let member_subnet = parameters.member_subnet.as_ref().or(site.options.member_subnet_id.as_ref());
        let families: Vec<_> = spec.ip_families().collect();
        let sticky =
            |affinity: &&contract::SessionAffinity| affinity.kind() == session_affinity::Kind::ClientIp;
        Ok(Self {
            parameters,
            site,
            allowed: allowed(spec)?,
            affinity: spec.session_affinity.as_ref().filter(sticky),
            check: spec.health_check.clone().unwrap_or_default(),
            has_tcp: spec.listeners.iter().any(|one| one.protocol() == Protocol::Tcp),
            hosts: Hosts::read(&desired.backends, &families, member_subnet)?,
        })
    }

    fn port(&self, listener: &contract::Listener) -> Result<(Port, WantedPort), VendorError> {
        let transport = self.transport(listener)?;
        if listener.target_kind() == listener::TargetKind::NodeDirect {
            return Err(unsupported("target_kind", "this cloud reaches pods through node ports only"));
        }
        let port = Port { transport, number: port_number("port", listener.port)? };
        let missing = || invalid("node_port", "is missing: this cloud reaches pods through node ports");
        let node_port = port_number("node_port", listener.node_port.ok_or_else(missing)?)?;
        let protocol = self.listener_protocol(transport, listener)?;
        let (monitor, probed) = self.probe(port)?;
        let pool = WantedPool {
            protocol: self.pool_protocol(protocol, listener)?,
            algorithm: self.algorithm(listener)?,
            persistence: self.persistence(transport)?,
            monitor,
            members: self.hosts.members(transport, node_port, probed),
        };
        Ok((port, WantedPort { protocol, settings: self.settings(protocol, listener)?, pool }))
    }

    /// Returns the health monitor of a port's pool, and the port that the monitor probes. If the second value is `None`, the monitor probes
    /// the member's own port.
    ///
    /// Old versions of Octavia can probe a member of a UDP pool only with a UDP packet to the member's own port. The adapter accepts this
    /// probe as a substitute if the Service also has a TCP port. HTTP checks have no substitute. They exclude nodes without pods, and such
    /// nodes neither answer nor refuse a UDP packet.
    fn probe(&self, port: Port) -> Result<(Option<NewMonitor>, Option<u16>), VendorError> {
        let monitor = checks::monitor(&self.check, port)?;
        let by_another = |one: &NewMonitor| port.transport == Transport::Udp && one.kind != checks::OF_UDP;
        if !monitor.as_ref().is_some_and(by_another) || self.site.version >= Version::UDP_BY_TCP {
            return Ok((monitor, checks::port(&self.check)?));
        }
        if self.check.kind() == Kind::Http || !self.has_tcp {
            return Err(self.too_old("spec.health_check.kind", Version::UDP_BY_TCP));
        }
        let own = contract::HealthCheck { port: None, ..self.check.clone() };
        Ok((checks::monitor(&own, port)?, None))
    }

    fn transport(&self, listener: &contract::Listener) -> Result<Transport, VendorError> {
        match listener.protocol() {
            Protocol::Tcp => Ok(Transport::Tcp),
            Protocol::Udp => Ok(Transport::Udp),
            Protocol::Sctp if self.site.version >= Version::SCTP => Ok(Transport::Sctp),
            Protocol::Sctp => Err(self.too_old("protocol", Version::SCTP)),
            Protocol::Unspecified => Err(invalid("protocol", "unknown protocol: use one of: TCP, UDP, SCTP")),
        }
    }

    fn listener_protocol(
        &self,
        transport: Transport,
        listener: &contract::Listener,
    ) -> Result<&'static str, VendorError> {
        let ends_tls = !listener.tls_refs.is_empty();
        let only_tcp = |field: &str| Err(unsupported(field, "is only supported for TCP ports"));
        match (transport, listener.application(), ends_tls) {
            (_, Application::Tls, _) => {
                let text = "this cloud terminates TLS only for HTTP: use HTTPS, or PASS and terminate it in the pods";
                Err(unsupported("application", text))
            }
            (Transport::Tcp, Application::Https, false) => Err(invalid(
                "tls_refs",
                "is empty: HTTPS needs a certificate, as the reference of its Barbican container",
            )),
            (Transport::Tcp, Application::Http | Application::Pass, true) => {
                Err(invalid("tls_refs", "terminates TLS, which the application does not support: use HTTPS"))
            }
            (Transport::Tcp, Application::Unspecified | Application::Https, true) => Ok("TERMINATED_HTTPS"),
            (Transport::Tcp, Application::Http, false) => Ok("HTTP"),
            (Transport::Tcp, Application::Unspecified | Application::Pass, false) => Ok("TCP"),
            (Transport::Udp | Transport::Sctp, Application::Http | Application::Https, _) => {
                only_tcp("application")
            }
            (Transport::Udp | Transport::Sctp, _, true) => only_tcp("tls_refs"),
            (Transport::Udp, Application::Unspecified | Application::Pass, false) => Ok("UDP"),
            (Transport::Sctp, Application::Unspecified | Application::Pass, false) => Ok("SCTP"),
        }
    }

    /// Returns the protocol of a pool. Source: Octavia's table of valid combinations of listener and pool protocols.
    fn pool_protocol(
        &self,
        of: &'static str,
        listener: &contract::Listener,
    ) -> Result<&'static str, VendorError> {
        let field = "proxy_protocol";
        let proxied = match listener.proxy_protocol() {
            listener::ProxyProtocol::Unspecified | listener::ProxyProtocol::Off => None,
            listener::ProxyProtocol::V1 => Some("PROXY"),
            listener::ProxyProtocol::V2 if self.site.version >= Version::PROXY_V2 => Some("PROXYV2"),
            listener::ProxyProtocol::V2 => return Err(self.too_old(field, Version::PROXY_V2)),
        };
        match (of, proxied) {
            ("UDP" | "SCTP", Some(_)) => Err(unsupported(field, "is only supported for TCP ports")),
            (_, Some(proxied)) => Ok(proxied),
            ("TERMINATED_HTTPS", None) => Ok("HTTP"),
            (plain, None) => Ok(plain),
        }
    }

    fn algorithm(&self, listener: &contract::Listener) -> Result<&'static str, VendorError> {
        let there = self.site.options.algorithms();
        let asked = match listener.algorithm() {
            Algorithm::Unspecified => return Ok(there.first().map_or("ROUND_ROBIN", |(_, word)| word)),
            Algorithm::RoundRobin => "ROUND_ROBIN",
            Algorithm::LeastConnections => "LEAST_CONNECTIONS",
            Algorithm::SourceIp => "SOURCE_IP",
            Algorithm::SourceIpPort => "SOURCE_IP_PORT",
        };
        if there.iter().any(|(_, word)| *word == asked) {
            return Ok(asked);
        }
        let words: Vec<&str> = there.iter().map(|(word, _)| *word).collect();
        Err(unsupported("algorithm", &format!("the provider supports only {}", words.join(", "))))
    }

    /// Returns the session affinity. For TCP, Octavia ignores the timeout and forgets a client only when its table is full.
    fn persistence(&self, transport: Transport) -> Result<Option<NewPersistence>, VendorError> {
        let Some(affinity) = self.affinity else { return Ok(None) };
        let persistence_timeout = match transport {
            Transport::Tcp => None,
            Transport::Udp | Transport::Sctp => {
                whole_seconds("spec.session_affinity.timeout", affinity.timeout)?
            }
        };
        Ok(Some(NewPersistence { kind: "SOURCE_IP", persistence_timeout }))
    }

    fn settings(
        &self,
        protocol: &str,
        listener: &contract::Listener,
    ) -> Result<ListenerSettings, VendorError> {
        let Parameters { client_timeout, member_timeout, inspect_timeout, .. } = self.parameters;
        let idle = timeout("idle_timeout", listener.idle_timeout)?;
        let connect = timeout("connect_timeout", listener.connect_timeout)?;
        let mut refs = listener.tls_refs.iter().cloned();
        if self.site.options.is_ovn() {
            let timeouts = [&idle, &connect, client_timeout, member_timeout, inspect_timeout];
            if timeouts.iter().any(|one| one.is_some()) {
                return Err(unsupported("idle_timeout", "the provider ovn does not support timeouts"));
            }
            return Ok(ListenerSettings::default());
        }
        let http = ["HTTP", "TERMINATED_HTTPS"].contains(&protocol);
        let understood = matches!(listener.application(), Application::Http | Application::Https);
        let header = || ("X-Forwarded-For".to_owned(), "true".to_owned());
        let headers = || understood.then(header).into_iter().collect();
        let limit = listener.connection_limit.map_or(UNLIMITED, i64::from);
        Ok(ListenerSettings {
            tags: None,
            connection_limit: Some(limit),
            timeouts: Timeouts {
                client_data: client_timeout.or(idle).or(Some(DATA_TIMEOUT)),
                member_connect: connect.or(Some(CONNECT)),
                member_data: member_timeout.or(idle).or(Some(DATA_TIMEOUT)),
                tcp_inspect: inspect_timeout.or(Some(0)),
            },
            allowed_cidrs: Some(self.allowed.clone()),
            default_tls_container_ref: refs.next(),
            sni_container_refs: (protocol == "TERMINATED_HTTPS").then(|| refs.collect()),
            insert_headers: http.then(headers),
        })
    }

    fn too_old(&self, field: &str, needed: Version) -> VendorError {
        let there = self.site.version;
        unsupported(
            field,
            &format!("this cloud's Octavia API has version {there}, but this feature needs {needed}"),
        )
    }
}

/// Returns the allowed CIDRs. Octavia refuses CIDRs of an IP family that the load balancer does not have, and an empty list allows every
/// client.
fn allowed(spec: &contract::LoadBalancerSpec) -> Result<Vec<IpNet>, VendorError> {
    let mut ranges = Vec::with_capacity(spec.source_ranges.len());
    for (at, text) in spec.source_ranges.iter().enumerate() {
        let range: IpNet = text
            .parse()
            .map_err(|error| invalid(format!("spec.source_ranges[{at}]"), format!("{text:?}: {error}")))?;
        let family = if range.addr().is_ipv4() { contract::IpFamily::Ipv4 } else { contract::IpFamily::Ipv6 };
        if spec.ip_families().any(|one| one == family) {
            ranges.push(range.trunc());
        }
    }
    if ranges.is_empty() && !spec.source_ranges.is_empty() {
        let text = "contains no range of the load balancer's IP families: no client could connect";
        return Err(invalid("spec.source_ranges", text));
    }
    ranges.sort();
    ranges.dedup();
    Ok(ranges)
}

/// Converts a duration to milliseconds.
fn timeout(field: &str, asked: Option<prost_types::Duration>) -> Result<Option<u32>, VendorError> {
    let Some(asked) = asked else { return Ok(None) };
    let read = Duration::try_from(asked).ok().filter(|one| !one.is_zero()).and_then(within_max);
    read.map(Some).ok_or_else(|| invalid(field, "must be more than 0 and at most 24 days"))
}
