//! The conditions for the end of a step. Each function is pure: it takes observed objects and returns a line to print, or an error that
//! names the missing condition.

use std::net::IpAddr;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;

use crate::UNINITIALIZED;

use super::cloud::Balancer;

const ZONE: &str = "topology.kubernetes.io/zone";

/// The node has no taint, and has all properties that its initialisation sets.
pub(super) fn initialised(node: &Node) -> anyhow::Result<String> {
    let name = node.name_any();
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    ensure!(!taints.any(|taint| taint.key == UNINITIALIZED), "{name} still has the taint {UNINITIALIZED}");
    let provider_id = spec.and_then(|spec| spec.provider_id.clone());
    let provider_id = provider_id.with_context(|| format!("{name} lost its taint without a provider ID"))?;
    let zone = node.labels().get(ZONE);
    let zone = zone.with_context(|| format!("{name} lost its taint without the label {ZONE}"))?;
    let mut addresses = status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.find(|it| it.type_ == "InternalIP");
    let internal = internal.with_context(|| format!("{name} lost its taint without an InternalIP"))?;
    Ok(format!("{name:<9} {provider_id}  zone {zone}  InternalIP {}", internal.address))
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

/// The complete load balancer with the Service's address. Each listener must have this number of members.
pub(super) fn balanced<'a>(
    service: &Service,
    balancers: &'a [Balancer],
    members: usize,
) -> anyhow::Result<(IpAddr, &'a Balancer)> {
    let name = service.name_any();
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|it| it.ingress.as_ref()).and_then(|ingress| ingress.first());
    let address = ingress.and_then(|ingress| ingress.ip.as_ref());
    let address = address.with_context(|| format!("Service {name} has no address yet"))?;
    let address: IpAddr =
        address.parse().with_context(|| format!("Service {name} has the address {address}"))?;
    let behind: Vec<_> = balancers.iter().filter(|it| it.addresses.contains(&address)).collect();
    let &[balancer] = behind.as_slice() else {
        bail!("{} load balancers have the address {address} of Service {name}", behind.len());
    };
    let id = &balancer.id;
    ensure!(balancer.active, "{id} is {}", balancer.status);
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).count();
    let expected = vec![members; ports];
    ensure!(balancer.members == expected, "{id}: members {:?}, expected {expected:?}", balancer.members);
    Ok((address, balancer))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

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
        let line = initialised(&node(&json!([]), &id, &addresses)).unwrap();
        assert_eq!(line, "a         sim://r/i-1  zone z  InternalIP 10.0.0.1");
        let cases = [
            (node(&taint, &id, &addresses), "still has the taint"),
            (node(&json!([]), &Value::Null, &addresses), "without a provider ID"),
            (node(&json!([]), &id, &json!([])), "without an InternalIP"),
        ];
        for (node, missing) in cases {
            let error = initialised(&node).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
        let error = connected(&node(&json!([]), &Value::Null, &json!([]))).unwrap_err();
        assert_eq!(error.to_string(), "a: NetworkUnavailable is True: no route");
        assert!(connected(&Node::default()).is_err());
    }

    #[test]
    fn load_balancer_is_complete_with_all_members() {
        let web = |address: &str| -> Service {
            let object = json!({
                "metadata": { "name": "web" },
                "spec": { "ports": [{ "port": 80 }] },
                "status": { "loadBalancer": { "ingress": [{ "ip": address }] } },
            });
            from_value(object).unwrap()
        };
        let balancer = |members| Balancer {
            id: "lb-0001".to_owned(),
            status: "ACTIVE".to_owned(),
            active: true,
            addresses: vec!["203.0.113.1".parse().unwrap()],
            members: vec![members],
        };
        assert!(balanced(&web("203.0.113.1"), &[balancer(3)], 3).is_ok());
        let cases = [
            (web("203.0.113.1"), vec![balancer(2)], "members [2], expected [3]"),
            (web("203.0.113.1"), vec![balancer(3), balancer(3)], "2 load balancers have the address"),
            (web("203.0.113.9"), vec![balancer(3)], "0 load balancers have the address"),
            (Service::default(), vec![], "has no address yet"),
        ];
        for (service, balancers, missing) in cases {
            let error = balanced(&service, &balancers, 3).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }
}
