//! Does the work of the endpoint slice controller: publishes the addresses of the pods behind a Service. Here, each replica has its own
//! ports, and therefore its own slice.

use std::net::IpAddr;

use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::container::Ports;

#[derive(Debug)]
pub(crate) struct Replica<'a> {
    pub(crate) deployment: &'a Deployment,
    pub(crate) pod: String,
    pub(crate) ports: Ports,
}

/// Writes a slice for each Service and each replica behind it.
pub(crate) async fn publish(
    client: &Client,
    services: &[Service],
    replicas: &[Replica<'_>],
    ip: IpAddr,
) -> anyhow::Result<()> {
    for service in services {
        let namespace = service.namespace().unwrap_or_default();
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
        for replica in replicas.iter().filter(|replica| selects(service, replica.deployment)) {
            let slice = slice(service, replica, ip);
            let name = name(service, replica);
            let written =
                slices.patch(&name, &PatchParams::apply("e2e").force(), &Patch::Apply(&slice)).await;
            written.with_context(|| format!("cannot write EndpointSlice {name}"))?;
        }
    }
    Ok(())
}

fn name(service: &Service, replica: &Replica<'_>) -> String {
    format!("{}-{}", service.name_any(), replica.pod)
}

fn slice(service: &Service, replica: &Replica<'_>, ip: IpAddr) -> Value {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports = ports.map(|port| {
        let target = match &port.target_port {
            Some(IntOrString::Int(number)) => *number,
            Some(IntOrString::String(name)) => named(name, replica.deployment).unwrap_or(port.port),
            None => port.port,
        };
        json!({ "name": port.name, "port": replica.ports.of(target), "protocol": "TCP" })
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": name(service, replica), "labels": { "kubernetes.io/service-name": service.name_any() } },
        "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{
            "addresses": [ip],
            "conditions": { "ready": true },
            "targetRef": { "kind": "Pod", "name": replica.pod, "namespace": service.namespace() },
        }],
        "ports": ports.collect::<Vec<_>>(),
    })
}

fn selects(service: &Service, deployment: &Deployment) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let labels = template.and_then(|metadata| metadata.labels.as_ref());
    match (selector, labels) {
        (Some(selector), Some(labels)) if !selector.is_empty() => {
            selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        }
        (_, _) => false,
    }
}

fn named(name: &str, deployment: &Deployment) -> Option<i32> {
    let containers = &deployment.spec.as_ref()?.template.spec.as_ref()?.containers;
    let mut ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
    ports.find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::{Ports, Replica, selects, slice};

    #[test]
    fn slice_has_the_ports_of_a_replica() {
        let service = |selector: &str| {
            from_value(json!({
                "metadata": { "name": "cloud-adapter", "namespace": "kube-system" },
                "spec": { "selector": { "app": selector },
                          "ports": [{ "name": "grpc", "port": 443, "targetPort": "grpc" }, { "name": "b", "port": 80, "targetPort": 8080 }] },
            }))
            .unwrap()
        };
        let deployment = from_value(json!({
            "spec": { "selector": {}, "template": {
                "metadata": { "labels": { "app": "adapter", "more": "labels" } },
                "spec": { "containers": [{ "name": "a", "ports": [{ "name": "grpc", "containerPort": 8443 }] }] },
            } },
        }))
        .unwrap();
        assert!(selects(&service("adapter"), &deployment));
        assert!(!selects(&service("other"), &deployment));
        let ports = Ports::from([(8443, 20001)]);
        let replica = Replica { deployment: &deployment, pod: "adapter-1".to_owned(), ports };
        let slice = slice(&service("adapter"), &replica, "192.0.2.7".parse().unwrap());
        assert_eq!(slice["ports"][0]["port"], 20001, "moved");
        assert_eq!(slice["ports"][1]["port"], 8080, "unchanged port");
        assert_eq!(slice["endpoints"][0]["addresses"][0], "192.0.2.7");
    }
}
