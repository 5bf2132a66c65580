//! A Service, reduced to the fields that matter for its load balancer, and whether this controller manages it.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use sha2::{Digest as _, Sha256};

use super::{Refusal, conditions::Conditions, digest::short, foreign::Foreign};
use crate::CONTROLLER;

/// Maximum length of a field manager's name in the API server. Unit: bytes.
const MANAGER_MAX: usize = 128;

/// The finalizer that keeps a Service until its load balancer is deleted. Kubernetes defines the name.
pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Identifies a Service by the UID. Namespace and name are used for messages and for API paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceId {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// `spec.type`, reduced to the values that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    LoadBalancer,
    #[default]
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    Sctp,
}

impl Transport {
    /// The name of the transport in the Kubernetes API.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) transport: Transport,
    pub(crate) port: u16,
    /// The node port. 0: no node port was allocated, as requested.
    pub(crate) node_port: u16,
    /// The application protocol (`appProtocol`) that the user set. Empty: the user set none.
    pub(crate) app_protocol: String,
}

impl Port {
    pub(crate) fn plain(transport: Transport, port: u16, node_port: u16) -> Self {
        Self { name: String::new(), transport, port, node_port, app_protocol: String::new() }
    }
}

/// An address family, as in `spec.ipFamilies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Whether a single address family is sufficient, as with `PreferDualStack` and `SingleStack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FamilyPolicy {
    #[default]
    OneWillDo,
    BothRequired,
}

/// `spec.externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Traffic {
    #[default]
    Cluster,
    /// `spec.healthCheckNodePort`. 0: no port was allocated.
    Local { health_check_node_port: u16 },
}

/// `spec.sessionAffinity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Affinity {
    #[default]
    None,
    /// Session affinity by client address, with `spec.sessionAffinityConfig.clientIP.timeoutSeconds`.
    ClientIp { timeout_seconds: Option<u32> },
}

/// Whether node ports are allocated: `spec.allocateLoadBalancerNodePorts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodePorts {
    #[default]
    Allocated,
    /// The user disabled the allocation.
    Disabled,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ingress {
    pub(crate) ip: Option<String>,
    pub(crate) hostname: Option<String>,
    /// `VIP` or `Proxy`. Set only if the entry contains an IP address.
    pub(crate) ip_mode: Option<String>,
    pub(crate) ports: Vec<IngressPort>,
}

impl Ingress {
    /// Whether the API server treats both entries as equal. The API server sets `VIP` for an IP without a mode.
    ///
    /// Without this rule, the status would always differ from what was written, and each reconcile would write it again.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.ip == other.ip
            && self.hostname == other.hostname
            && self.mode() == other.mode()
            && self.ports == other.ports
    }

    fn mode(&self) -> Option<&str> {
        self.ip.as_ref().map(|_| self.ip_mode.as_deref().unwrap_or("VIP"))
    }
}

impl fmt::Display for Ingress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.ip.as_deref().or(self.hostname.as_deref()).unwrap_or("?"))?;
        if let Some(mode) = self.ip_mode.as_deref().filter(|mode| *mode != "VIP") {
            write!(f, " ({mode})")?;
        }
        Ok(())
    }
}

/// One entry of `status.loadBalancer.ingress[].ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IngressPort {
    pub(crate) port: u16,
    pub(crate) transport: Transport,
    pub(crate) error: Option<String>,
}

/// Whether the API server treats two statuses as equal. The sequence of entries matters. A missing list equals an empty list.
pub(crate) fn same_ingress(ours: &[Ingress], theirs: &[Ingress]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a.same_as(b))
}

/// The controller to which `spec.loadBalancerClass` belongs. The empty string is a class, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `None`: the Service names no class.
    Ours(Option<String>),
    /// The class belongs to another controller.
    Others,
    /// The API server removed the class because the type changed, and it is not certain that this controller wrote the finalizer and the
    /// status. Ownership then needs another proof.
    Lost,
}

impl Default for Class {
    fn default() -> Self {
        Self::Ours(None)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    pub(crate) own: Option<String>,
    /// Whether this controller also manages Services without a class.
    pub(crate) unclassed: bool,
}

impl Default for Classes {
    fn default() -> Self {
        Self { own: None, unclassed: true }
    }
}

impl Classes {
    pub(crate) fn class(&self, class: Option<String>) -> Class {
        match class {
            None if self.unclassed => Class::Ours(None),
            Some(_) if class == self.own => Class::Ours(class),
            Some(_) | None => Class::Others,
        }
    }

    /// Explains why a Service of this class is not managed. The text contains both classes, so that users can see typos.
    pub(crate) fn of_another(&self, class: Option<&str>) -> String {
        let theirs = class.map_or("a Service without a class".to_owned(), |class| format!("class {class:?}"));
        let own = self.own.as_deref().map_or("none".to_owned(), |own| format!("{own:?}"));
        format!("nothing: {theirs} is not managed by this controller (--load-balancer-class: {own})")
    }

    /// Whether a controller with one of these classes writes under this field manager.
    pub(crate) fn write_as(&self, name: &str) -> bool {
        (self.unclassed && name == manager(None))
            || self.own.as_deref().is_some_and(|it| name == manager(Some(it)))
    }
}

/// Returns the field manager for Services of this class. The name depends on the class. `metadata.managedFields` therefore shows which
/// controller set the finalizer, even after the API server removed the class.
pub(crate) fn manager(class: Option<&str>) -> String {
    let Some(class) = class else { return CONTROLLER.to_owned() };
    let name = format!("{CONTROLLER} {class}");
    if name.len() <= MANAGER_MAX { name } else { format!("{CONTROLLER} {}", short(&Sha256::digest(class))) }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) id: ServiceId,
    /// `metadata.resourceVersion`, which shows whether the cache contains this controller's last write.
    pub(crate) version: String,
    /// `metadata.generation`, if the Service has one. API servers up to Kubernetes 1.36 do not count the changes of Services.
    pub(crate) generation: Option<i64>,
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    /// `spec.loadBalancerClass` as written, for messages.
    pub(crate) named_class: Option<String>,
    pub(crate) deleting: bool,
    /// Whether the finalizer [`FINALIZER`] is set.
    pub(crate) finalizer: bool,
    pub(crate) ports: Vec<Port>,
    /// Errors of the entries of `spec.ports` that cannot be parsed.
    pub(crate) unread_ports: Vec<Refusal>,
    /// The node ports of the entries of `spec.ports` that cannot be parsed.
    pub(crate) unread_node_ports: Vec<u16>,
    pub(crate) node_ports: NodePorts,
    pub(crate) families: Vec<Family>,
    pub(crate) family_policy: FamilyPolicy,
    /// `spec.loadBalancerIP`.
    pub(crate) requested_address: Option<String>,
    /// `spec.loadBalancerSourceRanges`.
    pub(crate) source_ranges: Vec<String>,
    pub(crate) affinity: Affinity,
    pub(crate) traffic: Traffic,
    /// The annotations that matter here, translated to this controller's annotations.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) foreign: Foreign,
    pub(crate) ingress: Vec<Ingress>,
    /// Whether another client is known to have written [`Self::ingress`].
    pub(crate) ingress_of_another: bool,
    pub(crate) conditions: Conditions,
    /// The client that set the finalizer, if the Service still has the finalizer but no class.
    pub(crate) holder: Holder,
}

/// Which other client set the finalizer on a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Not known.
    #[default]
    Unknown,
    /// The client that created the Service set the finalizer, and no controller has written an address since.
    Author,
    /// One of these field managers set the finalizer; at least one of them may be a controller.
    Others(String),
}

impl Holder {
    pub(crate) fn others(&self) -> Option<String> {
        match self {
            Self::Others(holders) => Some(holders.clone()),
            Self::Unknown | Self::Author => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The Service needs a load balancer.
    Wanted,
    /// The Service no longer needs a load balancer; the finalizer shows that it had one.
    Cleanup,
    /// This controller does not manage the Service, because the Service has another class or type, or its deletion is finished.
    Ignored,
}

impl Service {
    /// A Service of another controller's class is not changed, even if the Service has the finalizer, because the other controller set the
    /// finalizer. A Service that is being deleted without the finalizer cannot get the finalizer any more, so nothing may be created for
    /// that Service.
    pub(crate) fn role(&self) -> Role {
        if self.class == Class::Others {
            return Role::Ignored;
        }
        match (self.kind, self.deleting, self.finalizer) {
            (Kind::LoadBalancer, false, _) => Role::Wanted,
            (Kind::LoadBalancer, true, true) | (Kind::Other, _, true) => Role::Cleanup,
            (Kind::LoadBalancer, true, false) | (Kind::Other, _, false) => Role::Ignored,
        }
    }

    /// Whether a port of the Service has this node port. The API server assigns a node port to one Service at a time.
    pub(crate) fn has_node_port(&self, port: u32) -> bool {
        let of_ports = self.ports.iter().map(|port| port.node_port);
        // 0 means no node port.
        port != 0 && of_ports.chain(self.unread_node_ports.iter().copied()).any(|own| u32::from(own) == port)
    }

    pub(crate) fn has_health_check_node_port(&self, port: u32) -> bool {
        let own = match self.traffic {
            Traffic::Local { health_check_node_port } => health_check_node_port,
            Traffic::Cluster => 0,
        };
        own != 0 && u32::from(own) == port
    }

    /// Whether the status leads clients to a load balancer with these addresses. The status must contain one of the addresses, or only
    /// hostnames. A hostname may replace any address, unless another client wrote the hostname.
    pub(crate) fn shows(&self, addresses: &[Ingress]) -> bool {
        let same = |a: &Ingress, b: &Ingress| {
            (a.ip.is_some() && a.ip == b.ip) || (a.hostname.is_some() && a.hostname == b.hostname)
        };
        let named = !self.ingress.is_empty() && self.ingress.iter().all(|shown| shown.ip.is_none());
        (named && !self.ingress_of_another)
            || self.ingress.iter().any(|shown| addresses.iter().any(|address| same(shown, address)))
    }
}
