//! The objects in the JSON API. Readers ignore unknown fields.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Key-value pairs that callers set on an object.
pub type Tags = BTreeMap<String, String>;

/// The project of a caller, and the region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// The account of the project.
    pub account: String,
    /// The project that all objects belong to.
    pub project: String,
    /// The region that this endpoint serves.
    pub region: String,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// ID, such as `i-0001`.
    pub id: String,
    /// Display name; not unique.
    pub name: String,
    /// The state of the instance in its life cycle.
    pub status: InstanceStatus,
    /// The instance type, e.g. `s.medium`.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// Zone within the region.
    pub zone: String,
    /// The region of the endpoint.
    pub region: String,
    /// Addresses in the vendor's order, primary addresses first.
    pub addresses: Vec<InstanceAddress>,
    /// Arbitrary tags.
    pub tags: Tags,
    /// Time of the request that created the object.
    pub created_at: Timestamp,
}

/// States in the life cycle of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceStatus {
    /// Being created.
    Building,
    /// Running.
    Running,
    /// The instance is being shut down and keeps its disk.
    Stopping,
    /// The instance is shut down and can be started again.
    Stopped,
    /// Being deleted.
    ShuttingDown,
    /// The instance is deleted, but still listed.
    Terminated,
    /// The creation or a change failed; the vendor's operator must act.
    Error,
}

/// One address of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceAddress {
    /// The kind of the address.
    pub kind: AddressKind,
    /// The IP address, or the hostname or DNS name, depending on `kind`.
    pub address: String,
    /// The network to which the address belongs.
    #[serde(default = "default_network")]
    pub network: String,
}

pub(super) fn default_network() -> String {
    "default".to_owned()
}

/// Kinds of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressKind {
    /// IP address inside the project's network.
    Internal,
    /// Public IP address.
    External,
    /// The hostname of the instance.
    Hostname,
    /// A DNS name that resolves inside the project.
    InternalDns,
    /// A DNS name that resolves everywhere.
    ExternalDns,
}

/// A load balancer with all its listeners, pools and members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// ID, such as `lb-0001`.
    pub id: String,
    /// Display name; not unique.
    pub name: String,
    /// The network that can reach the load balancer.
    pub scheme: Scheme,
    /// The IP families of the load balancer's virtual addresses.
    pub families: Vec<IpFamily>,
    /// The status of the whole load balancer. While it is pending, neither the load balancer nor its listeners, pools and members can be
    /// changed.
    pub status: ProvisioningStatus,
    /// The addresses of the load balancer, one per IP family. Empty until the load balancer is ACTIVE for the first time.
    pub vips: Vec<IpAddr>,
    /// Location and size of the load balancer. Immutable.
    #[serde(default)]
    pub placement: Placement,
    /// Arbitrary tags.
    pub tags: Tags,
    /// Listeners, oldest first.
    pub listeners: Vec<Listener>,
    /// Pools, oldest first.
    pub pools: Vec<Pool>,
    /// Time of the request that created the object.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// The requested location and size of a load balancer. The cloud stores these values without interpreting them, and chooses a value for
/// each unset field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// Name of the pool from which the addresses of the load balancer are allocated.
    pub address_pool: Option<String>,
    /// Subnets of the load balancer, in order of preference.
    pub subnets: Vec<String>,
    /// Size of the load balancer.
    pub size: Option<String>,
    /// Zone of the load balancer.
    pub zone: Option<String>,
}

/// The network that can reach a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// The internet.
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
    /// Returns the family of an address.
    pub const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// The status of the last change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProvisioningStatus {
    /// Being created.
    PendingCreate,
    /// A change of the object, or of an object that it contains, is in progress.
    PendingUpdate,
    /// Being deleted.
    PendingDelete,
    /// Complete.
    Active,
    /// The last change failed; the object can only be deleted.
    Error,
}

impl ProvisioningStatus {
    /// Returns whether a change is in progress. Writes are refused until the change is complete.
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
    /// ID, such as `ls-0001`.
    pub id: String,
    /// Display name; not unique.
    pub name: String,
    /// Transport protocol.
    pub protocol: ListenerProtocol,
    /// Port on the virtual addresses.
    pub port: u16,
    /// Idle timeout in seconds.
    pub idle_timeout: u32,
    /// Source ranges that may connect; empty: all clients.
    pub allowed_cidrs: Vec<IpNet>,
    /// How the listener processes traffic.
    #[serde(default)]
    pub traffic: Traffic,
    /// The pool that gets the traffic.
    pub pool_id: Option<String>,
    /// Status of the listener itself.
    pub status: ProvisioningStatus,
}

/// How a listener processes traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// The protocol that the listener interprets.
    pub application: Application,
    /// References to certificates, if the listener terminates TLS.
    pub certificates: Vec<String>,
    /// Maximum connections; unset: unlimited.
    pub connection_limit: Option<u32>,
    /// The time limit for connecting to a member, in seconds. Unset: the vendor's default.
    pub connect_timeout: Option<u32>,
    /// The application protocol that the user set. The cloud only stores it and shows it in the console.
    pub app_protocol: Option<String>,
}

/// The application protocol that a listener interprets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Application {
    /// No application protocol: the listener forwards bytes.
    #[default]
    Pass,
    /// HTTP.
    Http,
    /// HTTP over TLS; the listener terminates TLS.
    Https,
    /// Any protocol over TLS; the listener terminates TLS.
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

/// A pool: a set of backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// ID, such as `pool-0001`.
    pub id: String,
    /// Display name; not unique.
    pub name: String,
    /// The protocol towards members.
    pub protocol: PoolProtocol,
    /// The algorithm that chooses a member.
    pub algorithm: Algorithm,
    /// Session affinity of clients.
    pub persistence: Option<Persistence>,
    /// The health check of members. Unset: all members count as healthy.
    pub health_monitor: Option<HealthMonitor>,
    /// Members, in the order of the request.
    pub members: Vec<Member>,
    /// Status of the pool itself.
    pub status: ProvisioningStatus,
}

/// The protocol towards members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PoolProtocol {
    /// Plain TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// TCP with a PROXY protocol header, version 2.
    Proxy,
}

/// The algorithm that chooses a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Round robin.
    #[default]
    RoundRobin,
    /// The member with the fewest connections.
    LeastConnections,
    /// Chooses the member by the client's address.
    SourceIp,
}

/// Session affinity of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Persistence {
    /// The property that identifies a client.
    pub kind: PersistenceKind,
    /// Timeout in seconds; unset: the vendor's default.
    #[serde(default)]
    pub timeout: Option<u32>,
}

/// The property that identifies a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersistenceKind {
    /// The client's address.
    SourceIp,
}

/// The health check of members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthMonitor {
    /// The kind of check.
    pub protocol: MonitorProtocol,
    /// The port to check. Unset: the member's own port.
    #[serde(default)]
    pub port: Option<u16>,
    /// Path of HTTP checks.
    #[serde(default)]
    pub path: Option<String>,
    /// The interval between checks, in seconds.
    pub interval: u32,
    /// The time after which a check without an answer fails, in seconds.
    pub timeout: u32,
    /// The number of successful checks after which a member is healthy.
    pub healthy_threshold: u32,
    /// The number of failed checks after which a member is unhealthy.
    pub unhealthy_threshold: u32,
}

/// The kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MonitorProtocol {
    /// A TCP connection.
    Tcp,
    /// A GET request, to which the member must answer 200.
    Http,
    /// An HTTPS GET request, to which the member must answer 200. The certificate is not verified.
    Https,
}

/// A backend. Address and port are its key within the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Address that gets the traffic.
    pub address: IpAddr,
    /// Port at the address.
    pub port: u16,
    /// The member's share of the traffic, 0..=256. A member with weight 0 gets no new connections.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// The instance with this address, for display only; not verified.
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
    /// ID, such as `rt-0001`.
    pub id: String,
    /// The table; there is only `main`.
    pub table: String,
    /// Destination of packets; unique in the table.
    pub destination: IpNet,
    /// The next hop, as an instance.
    pub next_hop_instance: Option<String>,
    /// The next hop, as an address.
    pub next_hop_address: Option<IpAddr>,
    /// Arbitrary tags.
    pub tags: Tags,
    /// Whether packets are forwarded.
    pub status: RouteStatus,
    /// Time when the route was added.
    pub created_at: Timestamp,
}

/// Whether packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteStatus {
    /// Packets are forwarded.
    Active,
    /// The instance of the next hop was deleted.
    Blackhole,
    /// The table could not be updated.
    Error,
}
