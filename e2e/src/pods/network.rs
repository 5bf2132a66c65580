//! What DNS and kube-proxy do: a Service's name and port lead to the process behind it, on loopback.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

/// From the hosts by which Services are known to the ports behind theirs.
#[derive(Debug, Default)]
pub(crate) struct Network {
    hosts: BTreeMap<String, BTreeMap<String, i32>>,
}

impl Network {
    /// Knows the Services whose selector fits a Deployment's pods.
    pub(crate) fn new(services: &[Service], deployments: &[Deployment]) -> Self {
        let mut hosts = BTreeMap::new();
        for service in services {
            let Some(behind) = deployments.iter().find(|deployment| selects(service, deployment)) else {
                continue;
            };
            let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
            let ports: BTreeMap<_, _> =
                ports.map(|port| (port.port.to_string(), target(port, behind))).collect();
            hosts.extend(names(service).into_iter().map(|name| (name, ports.clone())));
        }
        Self { hosts }
    }

    /// Leads the addresses in an argument or a variable to loopback: `--flag=http://cloud-adapter.ns.svc:8443/path`.
    pub(crate) fn route(&self, text: &str) -> String {
        let (flag, value) = match text.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (format!("{flag}="), value),
            Some(_) | None => (String::new(), text),
        };
        let values: Vec<_> = value.split(',').map(|address| self.route_one(address)).collect();
        flag + &values.join(",")
    }

    fn route_one(&self, address: &str) -> String {
        let (scheme, rest) = match address.split_once("://") {
            Some((scheme, rest)) => (format!("{scheme}://"), rest),
            None => (String::new(), address),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let Some((host, port)) = authority.rsplit_once(':') else { return address.to_owned() };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match self.hosts.get(host).and_then(|ports| ports.get(port)) {
            Some(target) => format!("{scheme}127.0.0.1:{target}{path}"),
            None => address.to_owned(),
        }
    }
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

/// The names of cluster DNS, from the pods of the same namespace, and the cluster IP.
fn names(service: &Service) -> Vec<String> {
    let (name, namespace) = (service.name_any(), service.namespace().unwrap_or_default());
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
    let dns = [
        name.clone(),
        format!("{name}.{namespace}"),
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
    ];
    dns.into_iter().chain(ip).collect()
}

/// The port that the process listens on.
fn target(port: &ServicePort, behind: &Deployment) -> i32 {
    match &port.target_port {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => named(name, behind).unwrap_or(port.port),
        None => port.port,
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

    use super::Network;

    fn network() -> Network {
        let service = json!({
            "metadata": { "name": "cloud-adapter", "namespace": "kube-system" },
            "spec": { "clusterIP": "10.96.0.9", "selector": { "app": "adapter" },
                      "ports": [{ "port": 443, "targetPort": "grpc" }, { "port": 80, "targetPort": 8080 }] },
        });
        let elsewhere = json!({
            "metadata": { "name": "other", "namespace": "kube-system" },
            "spec": { "selector": { "app": "other" }, "ports": [{ "port": 443 }] },
        });
        let deployment = json!({
            "spec": { "selector": {}, "template": {
                "metadata": { "labels": { "app": "adapter", "more": "labels" } },
                "spec": { "containers": [{ "name": "a", "ports": [{ "name": "grpc", "containerPort": 8443 }] }] },
            } },
        });
        let services = [from_value(service).unwrap(), from_value(elsewhere).unwrap()];
        Network::new(&services, &[from_value(deployment).unwrap()])
    }

    #[test]
    fn services_lead_to_the_process_behind_them() {
        let cases = [
            ("a URL", "--e=http://cloud-adapter.kube-system.svc:443", "--e=http://127.0.0.1:8443"),
            ("a path", "http://cloud-adapter:443/a:b", "http://127.0.0.1:8443/a:b"),
            ("a number as target", "cloud-adapter.kube-system:80", "127.0.0.1:8080"),
            ("the cluster IP", "--e=10.96.0.9:443", "--e=127.0.0.1:8443"),
            ("a list", "cloud-adapter:443,cloud-adapter:80", "127.0.0.1:8443,127.0.0.1:8080"),
            ("a Service without a process", "http://other:443", "http://other:443"),
            ("a port that the Service has not", "http://cloud-adapter:9", "http://cloud-adapter:9"),
            ("a word", "--name=cloud-adapter", "--name=cloud-adapter"),
            ("a filter", "--log-level=info,a=debug", "--log-level=info,a=debug"),
        ];
        for (name, text, wanted) in cases {
            assert_eq!(network().route(text), wanted, "{name}");
        }
    }
}
