//! A Service as far as its load balancer cares, and whose job it is. Holds no behaviour beyond those two questions.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use sha2::{Digest as _, Sha256};

use super::{Refusal, compat::Foreign, targets::short};
use crate::CONTROLLER;

/// Longer names of managers no API server takes. Unit: bytes.
const MANAGER_MAX: usize = 128;

/// The finalizer that keeps a Service until its load balancer is gone. The name is Kubernetes' own.
pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Which Service: the UID is the identity, the names are for people and for the API server's paths.
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

/// `spec.type`, as far as anybody here asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    LoadBalancer,
    #[default]
    Other,
}

/// A port's transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    Sctp,
}

impl Transport {
    /// As Kubernetes spells it.
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
    /// 0: the API server was asked not to allocate one.
    pub(crate) node_port: u16,
    /// What is spoken, in the user's words. Empty: they do not say.
    pub(crate) app_protocol: String,
}

impl Port {
    /// One without a name, of which nothing else is said.
    pub(crate) fn plain(transport: Transport, port: u16, node_port: u16) -> Self {
        Self { name: String::new(), transport, port, node_port, app_protocol: String::new() }
    }
}

/// An address family, in the order of `spec.ipFamilies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The one that an address has.
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

/// Whether one address family would do: only `PreferDualStack` and `SingleStack` say so.
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
    /// `spec.healthCheckNodePort`; 0: none was allocated.
    Local { health_check_node_port: u16 },
}

/// `spec.sessionAffinity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Affinity {
    #[default]
    None,
    /// With `spec.sessionAffinityConfig.clientIP.timeoutSeconds`.
    ClientIp { timeout_seconds: Option<u32> },
}

/// Who allocates node ports: `spec.allocateLoadBalancerNodePorts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodePorts {
    #[default]
    Allocated,
    /// The user asked for none.
    Disabled,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ingress {
    pub(crate) ip: Option<String>,
    pub(crate) hostname: Option<String>,
    /// `VIP` or `Proxy`; only beside an IP.
    pub(crate) ip_mode: Option<String>,
    pub(crate) ports: Vec<IngressPort>,
}

impl Ingress {
    /// The same for the API server, which fills in `VIP` where an IP has no mode.
    ///
    /// Without this every comparison would differ from what was written, and each look would cost a write.
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

/// Whether two statuses are the same for the API server: ordered; nothing and an empty list are one.
pub(crate) fn same_ingress(ours: &[Ingress], theirs: &[Ingress]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a.same_as(b))
}

/// `spec.loadBalancerClass`, and whose it is. The empty string is a class too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `None`: the Service names no class.
    Ours(Option<String>),
    /// Another controller's.
    Others,
    /// It is no load balancer any more, the API server took its class away, and what stands on it is not known to be ours: whose it was
    /// must be proven.
    Lost,
}

impl Default for Class {
    fn default() -> Self {
        Self::Ours(None)
    }
}

/// Which classes are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    /// The one that is, if any.
    pub(crate) own: Option<String>,
    /// Whether Services without a class are ours, too.
    pub(crate) unclassed: bool,
}

impl Default for Classes {
    fn default() -> Self {
        Self { own: None, unclassed: true }
    }
}

impl Classes {
    /// Whose a load balancer of this class is.
    pub(crate) fn class(&self, class: Option<String>) -> Class {
        match class {
            None if self.unclassed => Class::Ours(None),
            Some(_) if class == self.own => Class::Ours(class),
            Some(_) | None => Class::Others,
        }
    }

    /// Why a Service of this class is not ours, for people: a typo on either side shows.
    pub(crate) fn of_another(&self, class: Option<&str>) -> String {
        let theirs = class.map_or("a Service without a class".to_owned(), |class| format!("class {class:?}"));
        let own = self.own.as_deref().map_or("none".to_owned(), |own| format!("{own:?}"));
        format!("nothing: {theirs} is not ours (--load-balancer-class: {own})")
    }

    /// Whether what stands under this manager's name on a Service was written for one of these.
    pub(crate) fn write_as(&self, name: &str) -> bool {
        (self.unclassed && name == manager(None))
            || self.own.as_deref().is_some_and(|it| name == manager(Some(it)))
    }
}

/// The name under which a Service of this class is written to. It stands in `metadata.managedFields` and tells whose the finalizer is
/// when the API server has taken the class away: another process of this kind, for another class, writes under another name.
pub(crate) fn manager(class: Option<&str>) -> String {
    let Some(class) = class else { return CONTROLLER.to_owned() };
    let name = format!("{CONTROLLER} {class}");
    if name.len() <= MANAGER_MAX { name } else { format!("{CONTROLLER} {}", short(&Sha256::digest(class))) }
}

/// A Service as far as its load balancer cares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) id: ServiceId,
    /// `metadata.resourceVersion`: tells whether the cache has seen our last write.
    pub(crate) version: String,
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    /// `spec.loadBalancerClass` to the letter, for people.
    pub(crate) named_class: Option<String>,
    pub(crate) deleting: bool,
    /// Whether *our* finalizer is on it.
    pub(crate) finalizer: bool,
    pub(crate) ports: Vec<Port>,
    /// What is wrong with further entries of `spec.ports`, which nobody here can read.
    pub(crate) unread_ports: Vec<Refusal>,
    /// The node ports of those entries.
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
    /// Only the keys that mean something here, in our words.
    pub(crate) annotations: BTreeMap<String, String>,
    /// What is to be said of annotations of another controller.
    pub(crate) foreign: Foreign,
    pub(crate) ingress: Vec<Ingress>,
    /// Whether somebody else is known to have written [`Self::ingress`].
    pub(crate) ingress_of_another: bool,
    /// Of one without a class any more that carries our finalizer: who put it there.
    pub(crate) holder: Holder,
}

/// Who put our finalizer on a Service, if it was not us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody knows.
    #[default]
    Unknown,
    /// Whoever wrote the Service did, and no controller has given it an address since.
    Author,
    /// These, of whom one may be a controller.
    Others(String),
}

/// What is to be done for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It shall have a load balancer.
    Wanted,
    /// It had one and shall have none: our finalizer says so.
    Cleanup,
    /// Not ours: another class, another type, or gone for us already.
    Ignored,
}

impl Service {
    /// Whose job this Service is.
    ///
    /// A Service of another's class is not touched, not even if it carries our finalizer: its own controller put it there.
    /// One that is being deleted without our finalizer cannot get it any more, so nothing may be built for it.
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

    /// Whether one of its ports has this node port. The API server gives a node port to one Service at a time.
    pub(crate) fn has_node_port(&self, port: u32) -> bool {
        let of_ports = self.ports.iter().map(|port| port.node_port);
        // 0 stands for none.
        port != 0 && of_ports.chain(self.unread_node_ports.iter().copied()).any(|own| u32::from(own) == port)
    }

    /// Whether this is its `spec.healthCheckNodePort`.
    pub(crate) fn has_health_check_node_port(&self, port: u32) -> bool {
        let own = match self.traffic {
            Traffic::Local { health_check_node_port } => health_check_node_port,
            Traffic::Cluster => 0,
        };
        own != 0 && u32::from(own) == port
    }

    /// Whether a load balancer with these addresses serves whoever reads the status: one of them stands there, or a name alone, which
    /// may stand in place of any address, unless somebody else wrote it.
    pub(crate) fn shows(&self, addresses: &[Ingress]) -> bool {
        let same = |a: &Ingress, b: &Ingress| {
            (a.ip.is_some() && a.ip == b.ip) || (a.hostname.is_some() && a.hostname == b.hostname)
        };
        let named = !self.ingress.is_empty() && self.ingress.iter().all(|shown| shown.ip.is_none());
        (named && !self.ingress_of_another)
            || self.ingress.iter().any(|shown| addresses.iter().any(|address| same(shown, address)))
    }
}
