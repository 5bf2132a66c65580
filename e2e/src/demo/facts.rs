//! The conditions for the end of a step. Pure functions: each takes observed objects and returns the facts to report, or an error with the
//! missing condition.

use std::net::IpAddr;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;

use crate::UNINITIALIZED;

use super::cloud::{Balancer, Route};
use super::report::{BalancerFact, NodeFact, RouteFact};

const ZONE: &str = "topology.kubernetes.io/zone";

/// The node has no taint, and has all properties that its initialisation sets.
pub(super) fn initialised(node: &Node) -> anyhow::Result<NodeFact> {
    let name = node.name_any();
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    ensure!(!taints.any(|taint| taint.key == UNINITIALIZED), "{name} still has the taint {UNINITIALIZED}");
    let provider_id = spec.and_then(|spec| spec.provider_id.clone());
    let provider_id = provider_id.with_context(|| format!("{name} lost its taint without a provider ID"))?;
    let zone = node.labels().get(ZONE).cloned();
    let zone = zone.with_context(|| format!("{name} lost its taint without the label {ZONE}"))?;
    let addresses = status.iter().flat_map(|status| status.addresses.iter().flatten());
    let addresses: Vec<_> = addresses.map(|it| format!("{} {}", it.type_, it.address)).collect();
    let internal = addresses.iter().any(|address| address.starts_with("InternalIP "));
    ensure!(internal, "{name} lost its taint without an InternalIP: {addresses:?}");
    Ok(NodeFact { name, provider_id, zone, addresses })
}

/// The cloud has routes to the node's pods, and the node's condition shows this.
pub(super) fn connected(node: &Node) -> anyhow::Result<()> {
    let name = node.name_any();
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.find(|condition| condition.type_ == "NetworkUnavailable");
    let condition = condition.with_context(|| format!("{name} has no condition NetworkUnavailable"))?;
    let why = condition.message.as_deref().unwrap_or_default();
    ensure!(condition.status == "False", "{name}: NetworkUnavailable is {}: {why}", condition.status);
    Ok(())
}

/// A route that the cloud reports as working.
pub(super) fn laid(route: &Route) -> anyhow::Result<RouteFact> {
    let Route { destination, via, active } = route;
    ensure!(*active, "the route to {destination} does not work yet");
    let via = via.clone().with_context(|| format!("the route to {destination} has no target"))?;
    Ok(RouteFact { destination: destination.clone(), via })
}

/// The address of the Service, which users connect to.
pub(super) fn address(service: &Service) -> anyhow::Result<IpAddr> {
    let name = service.name_any();
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|it| it.ingress.as_ref()).and_then(|ingress| ingress.first());
    let ip = ingress.and_then(|ingress| ingress.ip.as_ref());
    let ip = ip.with_context(|| format!("Service {name} has no address yet"))?;
    ip.parse().with_context(|| format!("Service {name} has the address {ip}"))
}

/// The complete load balancer with the Service's address. Each listener must have this number of members.
pub(super) fn balanced(
    service: &Service,
    balancers: &[Balancer],
    members: usize,
) -> anyhow::Result<BalancerFact> {
    let (name, address) = (service.name_any(), address(service)?);
    let behind: Vec<_> = balancers.iter().filter(|it| it.addresses.contains(&address)).collect();
    let &[balancer] = behind.as_slice() else {
        bail!("{} load balancers have the address {address} of Service {name}", behind.len());
    };
    let id = &balancer.id;
    ensure!(balancer.active, "{id} is {}", balancer.status);
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).count();
    let listeners = balancer.listeners.len();
    ensure!(listeners == ports, "{id} has {listeners} listeners, and Service {name} {ports} ports");
    for listener in &balancer.listeners {
        let found = listener.members;
        ensure!(found == members, "{id}, port {}: {found} members, expected {members}", listener.port);
    }
    let listeners = balancer.listeners.iter().map(|it| format!("{} {}", it.protocol, it.port));
    Ok(BalancerFact {
        service: name,
        id: id.clone(),
        address: address.to_string(),
        listeners: listeners.collect(),
        members,
    })
}

/// The Events from the output of `kubectl describe`.
pub(super) fn events_of(description: &str) -> Vec<String> {
    description.lines().skip_while(|line| !line.starts_with("Events:")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::super::cloud::Listener;
    use super::*;

    fn node(taints: &Value, provider_id: &Value, addresses: &Value) -> Node {
        let object = json!({
            "metadata": { "name": "a", "labels": { ZONE: "z" } },
            "spec": { "taints": taints, "providerID": provider_id },
            "status": {
                "addresses": addresses,
                "conditions": [{ "type": "NetworkUnavailable", "status": "True", "message": "no route" }],
            },
        });
        from_value(object).unwrap()
    }

    #[test]
    fn initialised_node_is_complete() {
        let (id, taint) = (json!("sim://r/i-1"), json!([{ "key": UNINITIALIZED, "effect": "NoSchedule" }]));
        let addresses = json!([{ "type": "InternalIP", "address": "10.0.0.1" }]);
        let fact = initialised(&node(&json!([]), &id, &addresses)).unwrap();
        assert_eq!(
            (fact.zone.as_str(), fact.addresses.as_slice()),
            ("z", &["InternalIP 10.0.0.1".to_owned()][..])
        );
        let cases = [
            (node(&taint, &id, &addresses), "still has the taint"),
            (node(&json!([]), &Value::Null, &addresses), "without a provider ID"),
            (node(&json!([]), &id, &json!([])), "without an InternalIP"),
        ];
        for (node, missing) in cases {
            let error = initialised(&node).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    #[test]
    fn node_without_routes_has_a_reason() {
        let error = connected(&node(&json!([]), &Value::Null, &json!([]))).unwrap_err();
        assert_eq!(error.to_string(), "a: NetworkUnavailable is True: no route");
        assert!(connected(&Node::default()).is_err());
    }

    fn web(address: &str) -> Service {
        let object = json!({
            "metadata": { "name": "web" },
            "spec": { "ports": [{ "port": 80 }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": address }] } },
        });
        from_value(object).unwrap()
    }

    fn balancer(members: usize) -> Balancer {
        Balancer {
            id: "lb-0001".to_owned(),
            status: "ACTIVE".to_owned(),
            active: true,
            addresses: vec!["203.0.113.1".parse().unwrap()],
            listeners: vec![Listener { protocol: "TCP".to_owned(), port: 80, members }],
        }
    }

    #[test]
    fn load_balancer_is_complete_with_all_members() {
        let fact = balanced(&web("203.0.113.1"), &[balancer(3)], 3).unwrap();
        assert_eq!(
            (fact.id.as_str(), fact.listeners, fact.members),
            ("lb-0001", vec!["TCP 80".to_owned()], 3)
        );
        let cases = [
            (web("203.0.113.1"), vec![balancer(2)], "2 members, expected 3"),
            (web("203.0.113.1"), vec![balancer(3), balancer(3)], "2 load balancers have the address"),
            (web("203.0.113.9"), vec![balancer(3)], "0 load balancers have the address"),
            (Service::default(), vec![], "has no address yet"),
        ];
        for (service, balancers, missing) in cases {
            let error = balanced(&service, &balancers, 3).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    #[test]
    fn events_are_the_end_of_the_description() {
        assert_eq!(events_of("Name: web\nEvents:\n  Type\n"), ["Events:", "  Type"]);
    }
}
