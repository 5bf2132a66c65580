//! Limits that the operator sets for all Services.
//!
//! A user with access to one namespace writes a Service, but its load balancer affects all nodes and uses the permissions of the cloud
//! account.

use std::{collections::BTreeSet, fmt};

use super::service::Service;

/// Port of kube-proxy's health endpoint. Source: kube-proxy, `--healthz-bind-address`.
pub(crate) const KUBE_PROXY_PORT: u32 = 10_256;

/// Maximum number of ports listed in a message.
const PORTS_NAMED: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Ports of nodes that any Service may use for health checks.
    pub(crate) health_check_ports: Ports,
    /// Maximum number of members of a new load balancer, which is the number of listeners times the number of nodes.
    pub(crate) members: usize,
}

/// The default is enough for four ports on 5,000 nodes.
pub(crate) const MEMBERS: usize = 20_000;

impl Default for Bounds {
    fn default() -> Self {
        Self { health_check_ports: Ports(BTreeSet::from([KUBE_PROXY_PORT])), members: MEMBERS }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports(BTreeSet<u32>);

impl FromIterator<u32> for Ports {
    fn from_iter<I: IntoIterator<Item = u32>>(ports: I) -> Self {
        Self(ports.into_iter().collect())
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let named: Vec<String> = self.0.iter().take(PORTS_NAMED).map(ToString::to_string).collect();
        f.write_str(&named.join(", "))?;
        if self.0.len() > PORTS_NAMED { f.write_str(", ...") } else { Ok(()) }
    }
}

impl Ports {
    /// Returns the port if every Service may use it for health checks.
    pub(crate) fn for_all(&self, port: u32) -> Result<u32, String> {
        let wrong = || format!("port {port} is not in --health-check-ports ({self}): add it to this flag");
        self.0.contains(&port).then_some(port).ok_or_else(wrong)
    }

    /// Returns the port if this Service may use it for health checks. Any other port may belong to another Service or to a process on the
    /// node. A health check reaches such a port from inside the cloud network.
    pub(crate) fn for_one(&self, service: &Service, port: u32) -> Result<u32, String> {
        let is_own = service.has_node_port(port) || service.has_health_check_node_port(port);
        let wrong = || {
            format!(
                "port {port} is not allowed: write a node port or the healthCheckNodePort of this Service, or a port \
                 in serviceController.healthCheckPorts ({self})"
            )
        };
        (is_own || self.0.contains(&port)).then_some(port).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::service::{Port, Traffic, Transport};

    fn service(traffic: Traffic) -> Service {
        let ports = vec![Port::plain(Transport::Tcp, 80, 30_080), Port::plain(Transport::Udp, 53, 30_053)];
        Service { ports, traffic, ..Service::default() }
    }

    #[test]
    fn allowed_health_check_ports() {
        let local = Traffic::Local { health_check_node_port: 32_000 };
        let ports: Ports = [10_256, 9_000].into_iter().collect();
        let rows = [
            (Traffic::Cluster, 30_080, true),
            (Traffic::Cluster, 30_053, true),
            (Traffic::Cluster, 10_256, true),
            (Traffic::Cluster, 9_000, true),
            (local, 32_000, true),
            (Traffic::Cluster, 32_000, false),
            (Traffic::Local { health_check_node_port: 0 }, 32_000, false),
            (local, 80, false),
            (local, 30_081, false),
            (local, 10_250, false),
        ];
        for (traffic, port, allowed) in rows {
            assert_eq!(ports.for_one(&service(traffic), port).is_ok(), allowed, "{traffic:?} {port}");
        }
        assert_eq!(ports.for_all(9_000), Ok(9_000));
        assert!(ports.for_all(30_080).is_err(), "it belongs to a single Service");
    }

    #[test]
    fn refused_health_check_port_lists_allowed_ones() {
        let (web, many) = (service(Traffic::Cluster), (9_001..9_009).collect::<Ports>());
        let faults = [
            Bounds::default().health_check_ports.for_one(&web, 10_250),
            many.for_one(&web, 10_250),
            Ports::default().for_all(10_256),
        ];
        insta::assert_snapshot!(faults.map(Result::unwrap_err).join("\n"), @r"
        port 10250 is not allowed: write a node port or the healthCheckNodePort of this Service, or a port in serviceController.healthCheckPorts (10256)
        port 10250 is not allowed: write a node port or the healthCheckNodePort of this Service, or a port in serviceController.healthCheckPorts (9001, 9002, 9003, 9004, ...)
        port 10256 is not in --health-check-ports (none): add it to this flag
        ");
    }
}
