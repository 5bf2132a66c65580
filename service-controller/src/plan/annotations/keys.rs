//! The annotations of a Service, each a documented constant. docs/reference/annotations.md is made from these comments.
//!
//! Nothing here is about one vendor: what only one has is said with `x.<adapter>.<key>`, and becomes a parameter of the adapter.

use std::fmt;

/// Every annotation of ours begins with this. Stands only here; it is made of the contract's domain.
pub(crate) const PREFIX: &str = "lb.cloudadapter.dev/";

/// What a setting is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Each port: `port.<number or name>.<key>` says it of one alone.
    Port,
    /// The whole load balancer.
    Service,
    /// The whole load balancer, and of no other: it has no cluster default.
    One,
}

/// An annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Without the prefix.
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

    /// The key of this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        ALL.into_iter().find(|key| key.name == name)
    }
}

/// The whole annotation.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.name)
    }
}

/// Whether the load balancer is reached from inside the cloud's network only.
///
/// Type: `true` or `false`
/// Default: `false`
/// Unit: -
/// Needs: `lb.internal` for `true`
pub(crate) const INTERNAL: Key = Key::service("internal");

/// The vendor's ID of a load balancer that is there and shall serve this Service. Goes with `adopt`.
///
/// Type: text
/// Default: one is made
/// Unit: -
/// Needs: -
pub(crate) const ID: Key = Key::one("id");

/// Use a load balancer that is there. `owned` takes one over that has no owner, by `id`, or by the name that ours would have; by `id` it
/// needs a tag on the load balancer (`cloudadapter.dev/adopt=<namespace>`) or the operator's grant, and is released with the Service, not
/// deleted. `shared` gives this Service ports of its own on the one of that `id`, if its owner is of the same namespace or names this one
/// in `share-with`; addresses, name and size stay its owner's.
///
/// Type: `none`, `owned` or `shared`
/// Default: `none`
/// Unit: -
/// Needs: `lb.shared` and `id` for `shared`
pub(crate) const ADOPT: Key = Key::service("adopt");

/// Namespaces whose Services may share this Service's load balancer with `adopt: shared`, beside those of its own namespace.
///
/// Type: list of namespaces
/// Default: none
/// Unit: -
/// Needs: `lb.shared`
pub(crate) const SHARE_WITH: Key = Key::one("share-with");

/// What becomes of the addresses that the load balancer was given, once the Service goes. Takes effect as soon as the load balancer is
/// told, so set it before the Service is deleted.
///
/// Type: `delete` or `keep-address`
/// Default: `delete`
/// Unit: -
/// Needs: `lb.keep-address` for `keep-address`
pub(crate) const ON_DELETE: Key = Key::service("on-delete");

/// The name of the load balancer at the vendor, for people; whose it is never depends on it. One that is there is renamed in place if the
/// vendor can, and never made anew for it. Without it: `--load-balancer-name-template`, else the adapter's own. A name that a Go cloud
/// controller manager may take for its own is refused: one that begins with `kube_service_`, or `a` and 31 hexadecimal digits. The
/// template may still give such names.
///
/// Type: name
/// Default: the cluster's template, else the adapter's
/// Unit: 1 to 255 letters, digits, `-`, `_` and `.`
/// Needs: `lb.name`
pub(crate) const NAME: Key = Key::one("name");

/// The addresses that the load balancer shall have, at most one a family. `spec.loadBalancerIP` says the same of one.
///
/// Type: list of IP addresses
/// Default: the vendor's choice
/// Unit: -
/// Needs: `lb.reserved-ip`
pub(crate) const ADDRESS: Key = Key::one("address");

/// Where its addresses are taken from, in the vendor's words. A pool that the load balancer does not have yet needs the operator's grant
/// `pool`.
///
/// Type: text
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.address-pool`
pub(crate) const ADDRESS_POOL: Key = Key::service("address-pool");

/// The subnets that the load balancer is put into, by the vendor's IDs, in order of preference. Each that it is not in yet needs the
/// operator's grant `subnet`.
///
/// Type: list of texts
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.subnets`
pub(crate) const SUBNET: Key = Key::service("subnet");

/// The PROXY protocol header that is sent ahead of each TCP connection, so that pods learn the client's address.
///
/// Type: `off`, `v1` or `v2`
/// Default: `off`
/// Unit: -
/// Needs: `lb.proxy-protocol` for `v1` and `v2`; a TCP port
pub(crate) const PROXY_PROTOCOL: Key = Key::port("proxy-protocol");

/// How a node is chosen for a new connection.
///
/// Type: `round-robin`, `least-connections`, `source-ip` or `source-ip-port`
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.algorithm`
pub(crate) const ALGORITHM: Key = Key::port("algorithm");

/// What the load balancer understands of what passes: nothing for `tcp` and `udp`, requests for `http`; `https` and `tls` end TLS.
///
/// Type: `tcp`, `udp`, `http`, `https` or `tls`
/// Default: the port's protocol
/// Unit: -
/// Needs: `lb.listener-protocol` for `http`, `https` and `tls`; a TCP port
pub(crate) const LISTENER_PROTOCOL: Key = Key::port("listener-protocol");

/// Certificates that are at the vendor already, by reference. Never a secret. Each that the load balancer does not use yet needs the
/// operator's grant `certificate`.
///
/// Type: list of texts
/// Default: none
/// Unit: -
/// Needs: `lb.tls`; `listener-protocol` of `https` or `tls`
pub(crate) const TLS_CERT_REFS: Key = Key::port("tls-cert-refs");

/// After how long without data a connection is closed.
///
/// Type: duration
/// Default: the vendor's
/// Unit: a whole number with `s`, `m` or `h`, 1s to 24h
/// Needs: -
pub(crate) const IDLE_TIMEOUT: Key = Key::port("idle-timeout");

/// How long a connection to a node may take to be made.
///
/// Type: duration
/// Default: the vendor's
/// Unit: a whole number with `s`, `m` or `h`, 1s to 24h
/// Needs: `lb.connect-timeout`
pub(crate) const CONNECT_TIMEOUT: Key = Key::port("connect-timeout");

/// How many connections a port takes at once.
///
/// Type: number
/// Default: the vendor's
/// Unit: connections, 1 or more
/// Needs: `lb.connection-limit`
pub(crate) const CONNECTION_LIMIT: Key = Key::port("connection-limit");

/// Whether nodes are probed at all.
///
/// Type: `true` or `false`
/// Default: `true`
/// Unit: -
/// Needs: -
pub(crate) const HEALTH_ENABLED: Key = Key::service("health-check.enabled");

/// What is probed: `node-port` a TCP connection to the node port, `kube-proxy` HTTP `/healthz` on port 10256 of each node, `local` HTTP
/// `/healthz` on `spec.healthCheckNodePort`. `auto` is `local` for `externalTrafficPolicy: Local`, else `node-port`.
///
/// Type: `auto`, `node-port`, `kube-proxy` or `local`
/// Default: `auto`
/// Unit: -
/// Needs: `lb.health-check.http` for `kube-proxy` and `local`
pub(crate) const HEALTH_MODE: Key = Key::service("health-check.mode");

/// With what nodes are probed, whatever the mode says.
///
/// Type: `tcp` or `http`
/// Default: the mode's
/// Unit: -
/// Needs: `lb.health-check.http` for `http`
pub(crate) const HEALTH_PROTOCOL: Key = Key::service("health-check.protocol");

/// Which port of the nodes is probed, whatever the mode says: a node port of this Service, its `spec.healthCheckNodePort`, or one that
/// the operator allows with `--health-check-ports` (10256). Any other port is refused.
///
/// Type: number
/// Default: the mode's
/// Unit: port, 1 to 65535
/// Needs: -
pub(crate) const HEALTH_PORT: Key = Key::service("health-check.port");

/// Which path is asked for by HTTP, whatever the mode says.
///
/// Type: path, with a slash in front
/// Default: the mode's, else `/`
/// Unit: -
/// Needs: a probe by HTTP
pub(crate) const HEALTH_PATH: Key = Key::service("health-check.path");

/// How often each node is probed.
///
/// Type: duration
/// Default: the vendor's
/// Unit: a whole number with `s`, `m` or `h`, 1s to 24h
/// Needs: -
pub(crate) const HEALTH_INTERVAL: Key = Key::service("health-check.interval");

/// How long a node has to answer a probe; not longer than the interval.
///
/// Type: duration
/// Default: the vendor's
/// Unit: a whole number with `s`, `m` or `h`, 1s to 24h
/// Needs: -
pub(crate) const HEALTH_TIMEOUT: Key = Key::service("health-check.timeout");

/// Probes in a row that a node must pass until it serves again.
///
/// Type: number
/// Default: the vendor's
/// Unit: probes, 1 to 100
/// Needs: -
pub(crate) const HEALTH_HEALTHY: Key = Key::service("health-check.healthy-threshold");

/// Probes in a row that a node must fail until it is out.
///
/// Type: number
/// Default: the vendor's
/// Unit: probes, 1 to 100
/// Needs: -
pub(crate) const HEALTH_UNHEALTHY: Key = Key::service("health-check.unhealthy-threshold");

/// Which nodes stand behind the load balancer, of those that would.
///
/// Type: label selector, as of `kubectl get --selector`
/// Default: all
/// Unit: -
/// Needs: -
pub(crate) const NODE_SELECTOR: Key = Key::service("node-selector");

/// The name that the Service's status shows in place of the addresses. Nobody makes it: let it point to them.
///
/// Type: DNS name
/// Default: the addresses are shown
/// Unit: -
/// Needs: -
pub(crate) const HOSTNAME: Key = Key::one("hostname");

/// How packets arrive at the nodes, as the Service's status tells kube-proxy: `VIP` lets it short-cut, `Proxy` does not, `auto` is what
/// the adapter says.
///
/// Type: `VIP`, `Proxy` or `auto`
/// Default: `auto`
/// Unit: -
/// Needs: -
pub(crate) const IP_MODE: Key = Key::service("ip-mode");

/// Tags that the load balancer carries at the vendor, beside ours.
///
/// Type: list of `key=value`
/// Default: none
/// Unit: -
/// Needs: -
pub(crate) const TAGS: Key = Key::service("tags");

/// How large the load balancer is, in the vendor's words.
///
/// Type: text
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.size`
pub(crate) const SIZE: Key = Key::service("size");

/// Where the load balancer runs, in the vendor's words.
///
/// Type: text
/// Default: the vendor's
/// Unit: -
/// Needs: `lb.zone`
pub(crate) const ZONE: Key = Key::service("zone");

/// All of them, in the order above.
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
