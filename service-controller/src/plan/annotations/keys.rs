//! The annotations of a Service, each as a documented constant. docs/reference/annotations.md is generated from these comments.
//!
//! Nothing here is specific to a vendor: vendor settings are written as `x.<adapter>.<key>` and become parameters of the adapter.

use std::fmt;

/// Prefix of all annotations of this controller, derived from the domain of the contract. Defined only here.
pub(crate) const PREFIX: &str = "lb.cloudadapter.dev/";

/// The prefix without `lb.`, which users may write by mistake. No annotation of a Service begins with it.
pub(crate) const MISTAKEN_PREFIX: &str = "cloudadapter.dev/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Each port. `port.<number or name>.<key>` sets the value for a single port.
    Port,
    Service,
    /// The load balancer of a single Service, so a cluster default is not possible.
    One,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The name without the prefix.
    pub(crate) name: &'static str,
    pub(crate) reach: Reach,
}

impl Key {
    const fn port(name: &'static str) -> Self {
        Self { name, reach: Reach::Port }
    }

    const fn service(name: &'static str) -> Self {
        Self { name, reach: Reach::Service }
    }

    const fn one(name: &'static str) -> Self {
        Self { name, reach: Reach::One }
    }

    pub(crate) fn find(name: &str) -> Option<Self> {
        ALL.into_iter().find(|key| key.name == name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.name)
    }
}

/// Make the load balancer reachable only from inside the cloud network.
///
/// Type: `true` or `false`
/// Default: `false`
/// Unit: -
/// Needs: `lb.internal` for `true`
pub(crate) const INTERNAL: Key = Key::service("internal");

/// The vendor's ID of an existing load balancer. Requires `adopt`.
///
/// Type: text
/// Default: a new load balancer
/// Unit: -
/// Needs: -
pub(crate) const ID: Key = Key::one("id");

/// Use an existing load balancer. `owned` adopts a load balancer without an owner, which is found by `id` or by the name that this
/// controller would give. An adoption by `id` needs the tag `cloudadapter.dev/adopt=<namespace>` on the load balancer or the operator's
/// grant; when the Service is deleted, such a load balancer is released instead of deleted. `shared` adds the Service's ports to load
/// balancer `id`, if its owner is in the same namespace or lists this namespace in `share-with`; the owner keeps its addresses, name and
/// size.
///
/// Type: `none`, `owned` or `shared`
/// Default: `none`
/// Unit: -
/// Needs: `lb.shared` and `id` for `shared`
pub(crate) const ADOPT: Key = Key::service("adopt");

/// Other namespaces whose Services may share the load balancer with `adopt: shared`.
///
/// Type: list of namespaces
/// Default: none
/// Unit: -
/// Needs: `lb.shared`
pub(crate) const SHARE_WITH: Key = Key::one("share-with");

/// What happens to the addresses when the Service is deleted. Set this before the deletion: it takes effect once the load balancer is
/// updated.
///
/// Type: `delete` or `keep-address`
/// Default: `delete`
/// Unit: -
/// Needs: `lb.keep-address` for `keep-address`
pub(crate) const ON_DELETE: Key = Key::service("on-delete");

/// Display name in the cloud, which never decides ownership. An existing load balancer is renamed in place if the vendor supports that, and
/// is never recreated. Names that a Go cloud controller manager may treat as its own are refused: those that begin with `kube_service_`,
/// and `a` with 31 hexadecimal digits. The template may still produce such names.
///
/// Type: name
/// Default: `--load-balancer-name-template`, else the adapter's
/// Unit: 1 to 255 letters, digits, `-`, `_` and `.`
/// Needs: `lb.name`
pub(crate) const NAME: Key = Key::one("name");

/// Requested addresses of the load balancer, at most one per family. `spec.loadBalancerIP` requests a single address.
///
/// Type: list of IP addresses
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.reserved-ip`
pub(crate) const ADDRESS: Key = Key::one("address");

/// Name or ID of the vendor's address pool. A pool that the load balancer does not use yet needs the operator's grant `pool`.
///
/// Type: text
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.address-pool`
pub(crate) const ADDRESS_POOL: Key = Key::service("address-pool");

/// The vendor's IDs of subnets, in order of preference. A subnet that the load balancer does not use yet needs the operator's grant
/// `subnet`.
///
/// Type: list of strings
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.subnets`
pub(crate) const SUBNET: Key = Key::service("subnet");

/// Version of the PROXY protocol header, from which pods learn the client's address.
///
/// Type: `off`, `v1` or `v2`
/// Default: `off`
/// Unit: -
/// Needs: `lb.proxy-protocol` for `v1` and `v2`; a TCP port
pub(crate) const PROXY_PROTOCOL: Key = Key::port("proxy-protocol");

/// How the load balancer chooses a node for a connection.
///
/// Type: `round-robin`, `least-connections`, `source-ip` or `source-ip-port`
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.algorithm`
pub(crate) const ALGORITHM: Key = Key::port("algorithm");

/// Protocol that the load balancer handles: `http` parses requests; `https` and `tls` terminate TLS; `tcp` and `udp` only forward.
///
/// Type: `tcp`, `udp`, `http`, `https` or `tls`
/// Default: the port's protocol
/// Unit: -
/// Needs: `lb.listener-protocol` for `http`, `https` and `tls`; a TCP port
pub(crate) const LISTENER_PROTOCOL: Key = Key::port("listener-protocol");

/// References to certificates in the cloud, never secrets. A certificate that the load balancer does not use yet needs the operator's grant
/// `certificate`.
///
/// Type: list of strings
/// Default: none
/// Unit: -
/// Needs: `lb.tls`; `listener-protocol` of `https` or `tls`
pub(crate) const TLS_CERT_REFS: Key = Key::port("tls-cert-refs");

/// Idle time after which a connection is closed.
///
/// Type: duration
/// Default: the vendor's
/// Unit: 1s to 24h
/// Needs: -
pub(crate) const IDLE_TIMEOUT: Key = Key::port("idle-timeout");

/// Timeout for connecting to a node.
///
/// Type: duration
/// Default: the vendor's
/// Unit: 1s to 24h
/// Needs: `lb.connect-timeout`
pub(crate) const CONNECT_TIMEOUT: Key = Key::port("connect-timeout");

/// Maximum number of concurrent connections.
///
/// Type: number
/// Default: the vendor's
/// Unit: connections, 1 or more
/// Needs: `lb.connection-limit`
pub(crate) const CONNECTION_LIMIT: Key = Key::port("connection-limit");

/// Whether the load balancer checks the health of the nodes.
///
/// Type: `true` or `false`
/// Default: `true`
/// Unit: -
/// Needs: -
pub(crate) const HEALTH_ENABLED: Key = Key::service("health-check.enabled");

/// `node-port`: a TCP connection to the node port. `kube-proxy`: HTTP `/healthz` on port 10256. `local`: HTTP `/healthz` on
/// `spec.healthCheckNodePort`. `auto`: `local` for `externalTrafficPolicy: Local`, else `node-port`.
///
/// Type: `auto`, `node-port`, `kube-proxy` or `local`
/// Default: `auto`
/// Unit: -
/// Needs: `lb.health-check.http` for `kube-proxy` and `local`
pub(crate) const HEALTH_MODE: Key = Key::service("health-check.mode");

/// Overrides the protocol that the mode implies.
///
/// Type: `tcp` or `http`
/// Default: the mode's
/// Unit: -
/// Needs: `lb.health-check.http` for `http`
pub(crate) const HEALTH_PROTOCOL: Key = Key::service("health-check.protocol");

/// Overrides the port that the mode implies: a node port of this Service, its `spec.healthCheckNodePort`, or a port that the operator
/// allows with `--health-check-ports` (10256).
///
/// Type: number
/// Default: the mode's
/// Unit: port, 1 to 65535
/// Needs: -
pub(crate) const HEALTH_PORT: Key = Key::service("health-check.port");

/// Overrides the path that the mode implies.
///
/// Type: path, with a slash in front
/// Default: the mode's, else `/`
/// Unit: -
/// Needs: a probe by HTTP
pub(crate) const HEALTH_PATH: Key = Key::service("health-check.path");

/// Time between health checks.
///
/// Type: duration
/// Default: the vendor's
/// Unit: 1s to 24h
/// Needs: -
pub(crate) const HEALTH_INTERVAL: Key = Key::service("health-check.interval");

/// Timeout of one health check, at most the interval.
///
/// Type: duration
/// Default: the vendor's
/// Unit: 1s to 24h
/// Needs: -
pub(crate) const HEALTH_TIMEOUT: Key = Key::service("health-check.timeout");

/// Consecutive successes after which a node gets traffic again.
///
/// Type: number
/// Default: the vendor's
/// Unit: probes, 1 to 100
/// Needs: -
pub(crate) const HEALTH_HEALTHY: Key = Key::service("health-check.healthy-threshold");

/// Consecutive failures after which a node gets no traffic.
///
/// Type: number
/// Default: the vendor's
/// Unit: probes, 1 to 100
/// Needs: -
pub(crate) const HEALTH_UNHEALTHY: Key = Key::service("health-check.unhealthy-threshold");

/// Selects the nodes behind the load balancer from all eligible nodes.
///
/// Type: label selector, as of `kubectl get --selector`
/// Default: all
/// Unit: -
/// Needs: -
pub(crate) const NODE_SELECTOR: Key = Key::service("node-selector");

/// Hostname shown in the Service's status instead of the addresses. Create its DNS records yourself.
///
/// Type: DNS name
/// Default: none
/// Unit: -
/// Needs: -
pub(crate) const HOSTNAME: Key = Key::one("hostname");

/// How traffic arrives at the nodes, for kube-proxy: `VIP` allows a shortcut inside the cluster, `Proxy` does not allow one, and `auto`
/// leaves the choice to the adapter.
///
/// Type: `VIP`, `Proxy` or `auto`
/// Default: `auto`
/// Unit: -
/// Needs: -
pub(crate) const IP_MODE: Key = Key::service("ip-mode");

/// Tags in addition to those that the adapter sets.
///
/// Type: list of `key=value`
/// Default: none
/// Unit: -
/// Needs: -
pub(crate) const TAGS: Key = Key::service("tags");

/// The vendor's name or ID of a load balancer size.
///
/// Type: text
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.size`
pub(crate) const SIZE: Key = Key::service("size");

/// The vendor's name or ID of a zone.
///
/// Type: text
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.zone`
pub(crate) const ZONE: Key = Key::service("zone");

/// All keys, in the order above.
pub(crate) const ALL: [Key; 31] = [
    INTERNAL,
    ID,
    ADOPT,
    SHARE_WITH,
    ON_DELETE,
    NAME,
    ADDRESS,
    ADDRESS_POOL,
    SUBNET,
    PROXY_PROTOCOL,
    ALGORITHM,
    LISTENER_PROTOCOL,
    TLS_CERT_REFS,
    IDLE_TIMEOUT,
    CONNECT_TIMEOUT,
    CONNECTION_LIMIT,
    HEALTH_ENABLED,
    HEALTH_MODE,
    HEALTH_PROTOCOL,
    HEALTH_PORT,
    HEALTH_PATH,
    HEALTH_INTERVAL,
    HEALTH_TIMEOUT,
    HEALTH_HEALTHY,
    HEALTH_UNHEALTHY,
    NODE_SELECTOR,
    HOSTNAME,
    IP_MODE,
    TAGS,
    SIZE,
    ZONE,
];
