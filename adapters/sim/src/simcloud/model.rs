//! The objects of the cloud as they go over the wire. Readers ignore fields that they do not know.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Labels that callers put on an object.
pub type Tags = BTreeMap<String, String>;

/// Who is calling, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// The account that pays.
    pub account: String,
    /// The project that all objects belong to.
    pub project: String,
    /// The region that this endpoint serves.
    pub region: String,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// `i-0001`.
    pub id: String,
    /// Not unique.
    pub name: String,
    /// Where it is in its life.
    pub status: InstanceStatus,
    /// The machine type, e.g. `s.medium`.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// Zone within the region.
    pub zone: String,
    /// The region of the endpoint.
    pub region: String,
    /// In the vendor's order, primary ones first.
    pub addresses: Vec<InstanceAddress>,
    /// Free labels.
    pub tags: Tags,
    /// When it was ordered.
    pub created_at: Timestamp,
}

/// Where an instance is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceStatus {
    /// Ordered, not up yet.
    Building,
    /// Up.
    Running,
    /// On the way down; keeps its disk.
    Stopping,
    /// Down; can be started again.
    Stopped,
    /// On the way to deletion.
    ShuttingDown,
    /// Deleted, still listed.
    Terminated,
    /// Failed; a person must look.
    Error,
}

/// One address of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceAddress {
    /// What the address is for.
    pub kind: AddressKind,
    /// An IP address, or a name for the kinds that are names.
    pub address: String,
    /// The network that it is on.
    #[serde(default = "default_network")]
    pub network: String,
}

/// The network of addresses that do not say otherwise.
pub(super) fn default_network() -> String {
    "default".to_owned()
}

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressKind {
    /// IP address inside the project's network.
    Internal,
    /// IP address that the internet reaches.
    External,
    /// The machine's own name.
    Hostname,
    /// A name that resolves inside the project.
    InternalDns,
    /// A name that resolves everywhere.
    ExternalDns,
}

/// A load balancer with all that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// `lb-0001`.
    pub id: String,
    /// Not unique.
    pub name: String,
    /// Who reaches it.
    pub scheme: Scheme,
    /// Address families of its virtual addresses.
    pub families: Vec<IpFamily>,
    /// Covers the whole tree: while it is pending, nothing of the load balancer can be changed.
    pub status: ProvisioningStatus,
    /// Its addresses, one a family; empty until it was ACTIVE once.
    pub vips: Vec<IpAddr>,
    /// Where and how large it is. Never changes.
    #[serde(default)]
    pub placement: Placement,
    /// Free labels.
    pub tags: Tags,
    /// Oldest first.
    pub listeners: Vec<Listener>,
    /// Oldest first.
    pub pools: Vec<Pool>,
    /// When it was ordered.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// Where and how large a load balancer is, in words that this cloud takes as they come. What is not said is the cloud's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// Where its addresses are taken from.
    pub address_pool: Option<String>,
    /// The subnets that it is in, in order of preference.
    pub subnets: Vec<String>,
    /// How large it is.
    pub size: Option<String>,
    /// Where it runs.
    pub zone: Option<String>,
}

/// Who reaches a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Everybody.
    Internet,
    /// The project's network.
    Internal,
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpFamily {
    /// Version 4.
    Ipv4,
    /// Version 6.
    Ipv6,
}

impl IpFamily {
    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// Whether the cloud is done with the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProvisioningStatus {
    /// Being built.
    PendingCreate,
    /// A change of it, or of something below it, is under way.
    PendingUpdate,
    /// On the way out.
    PendingDelete,
    /// Done.
    Active,
    /// The last change failed; only deletion is left.
    Error,
}

impl ProvisioningStatus {
    /// Busy, so that writes are refused.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::PendingCreate | Self::PendingUpdate | Self::PendingDelete)
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::PendingCreate => "PENDING_CREATE",
            Self::PendingUpdate => "PENDING_UPDATE",
            Self::PendingDelete => "PENDING_DELETE",
            Self::Active => "ACTIVE",
            Self::Error => "ERROR",
        }
    }
}

/// A port that a load balancer listens on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// `ls-0001`.
    pub id: String,
    /// Not unique.
    pub name: String,
    /// Transport protocol.
    pub protocol: ListenerProtocol,
    /// Port on the virtual addresses.
    pub port: u16,
    /// Seconds after which a silent connection is cut.
    pub idle_timeout: u32,
    /// Who may connect; empty means everybody.
    pub allowed_cidrs: Vec<IpNet>,
    /// How it treats what comes in.
    #[serde(default)]
    pub traffic: Traffic,
    /// Where traffic goes.
    pub pool_id: Option<String>,
    /// Its part of the tree's status.
    pub status: ProvisioningStatus,
}

/// How a listener treats what comes in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// What it understands of it.
    pub application: Application,
    /// References to certificates; for what ends TLS here.
    pub certificates: Vec<String>,
    /// Connections at once; nothing means no limit.
    pub connection_limit: Option<u32>,
    /// Seconds for a connection to a member; nothing means the vendor's default.
    pub connect_timeout: Option<u32>,
    /// What is spoken, in the user's words: noted, and shown in the console.
    pub app_protocol: Option<String>,
}

/// What a listener understands of what comes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Application {
    /// Nothing.
    #[default]
    Pass,
    /// HTTP.
    Http,
    /// HTTP in TLS, which ends here.
    Https,
    /// Anything in TLS, which ends here.
    Tls,
}

/// Transport protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ListenerProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A set of backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// `pool-0001`.
    pub id: String,
    /// Not unique.
    pub name: String,
    /// How traffic is handed to the members.
    pub protocol: PoolProtocol,
    /// How members are chosen.
    pub algorithm: Algorithm,
    /// Whether a client stays with its member.
    pub persistence: Option<Persistence>,
    /// How members are probed; without it all count as healthy.
    pub health_monitor: Option<HealthMonitor>,
    /// In the order given.
    pub members: Vec<Member>,
    /// Its part of the tree's status.
    pub status: ProvisioningStatus,
}

/// How traffic is handed to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PoolProtocol {
    /// TCP as it is.
    Tcp,
    /// UDP as it is.
    Udp,
    /// SCTP as it is.
    Sctp,
    /// TCP with a PROXY protocol header, version 2.
    Proxy,
}

/// How members are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// In turn.
    #[default]
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
    /// By the client's address.
    SourceIp,
}

/// Whether a client stays with its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Persistence {
    /// What makes a client the same.
    pub kind: PersistenceKind,
    /// Seconds for which it holds; nothing means the vendor's default.
    #[serde(default)]
    pub timeout: Option<u32>,
}

/// What makes a client the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersistenceKind {
    /// Its address.
    SourceIp,
}

/// How members are probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthMonitor {
    /// What kind of probe.
    pub protocol: MonitorProtocol,
    /// Port to probe; nothing means the member's own.
    #[serde(default)]
    pub port: Option<u16>,
    /// Path for HTTP probes.
    #[serde(default)]
    pub path: Option<String>,
    /// Seconds between probes.
    pub interval: u32,
    /// Seconds until a probe counts as failed.
    pub timeout: u32,
    /// Good probes until a member is healthy.
    pub healthy_threshold: u32,
    /// Bad probes until it is not.
    pub unhealthy_threshold: u32,
}

/// What kind of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MonitorProtocol {
    /// A connection.
    Tcp,
    /// A GET that must answer 200.
    Http,
    /// The same over TLS, without looking at the certificate.
    Https,
}

/// A backend. Address and port are its key within the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Where traffic goes.
    pub address: IpAddr,
    /// Port at the address.
    pub port: u16,
    /// Share of the traffic, 0..=256; 0 gets no new connections.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// The instance behind the address, for people; not checked.
    #[serde(default)]
    pub instance_id: Option<String>,
}

const fn default_weight() -> u16 {
    1
}

impl Member {
    pub(super) const fn key(&self) -> (IpAddr, u16) {
        (self.address, self.port)
    }
}

/// An entry of the project's route table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// `rt-0001`.
    pub id: String,
    /// The table; there is only `main`.
    pub table: String,
    /// Where packets want to go; unique in the table.
    pub destination: IpNet,
    /// The instance that takes them.
    pub next_hop_instance: Option<String>,
    /// The address that takes them.
    pub next_hop_address: Option<IpAddr>,
    /// Free labels.
    pub tags: Tags,
    /// Whether packets arrive.
    pub status: RouteStatus,
    /// When it was added.
    pub created_at: Timestamp,
}

/// Whether packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteStatus {
    /// They do.
    Active,
    /// The next hop's instance is gone.
    Blackhole,
    /// The table could not be programmed.
    Error,
}
