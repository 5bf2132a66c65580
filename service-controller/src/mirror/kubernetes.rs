//! Kubernetes objects, trimmed to the fields that decide anything here. A kubelet's heartbeat changes none of a node's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LoadBalancerIngress, Node as KubeNode, PortStatus, Service as KubeService, ServicePort, ServiceSpec,
};

use crate::plan::{
    annotations::keys,
    compat::{Compat, Translation, is_foreign, translate},
    service::{
        Affinity, FINALIZER, Family, FamilyPolicy, Ingress, IngressPort, Kind, NodePorts, Port, Service,
        ServiceId, Traffic, Transport,
    },
    source_ranges,
    targets::{AUTOSCALER_TAINT, EXCLUDE_LABEL, Node},
};

/// Labels of a node's zone, the current one first.
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

/// A Service as far as its load balancer cares. `None`: an object that no API server would send.
///
/// `compat`: whose annotations are understood beside ours.
pub(crate) fn service(object: &KubeService, compat: Option<Compat>) -> Option<Service> {
    let meta = &object.metadata;
    let own = meta.annotations.as_ref().map(ours).unwrap_or_default();
    let Translation { annotations, foreign } = translate(compat, own);
    let spec = object.spec.clone().unwrap_or_default();
    let status = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_ref());
    Some(Service {
        id: ServiceId {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
        },
        version: meta.resource_version.clone().unwrap_or_default(),
        kind: match spec.type_.as_deref() {
            Some("LoadBalancer") => Kind::LoadBalancer,
            Some(_) | None => Kind::Other,
        },
        class: spec.load_balancer_class.clone(),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta.finalizers.iter().flatten().any(|it| it == FINALIZER),
        ports: spec.ports.iter().flatten().filter_map(port).collect(),
        node_ports: match spec.allocate_load_balancer_node_ports {
            Some(false) => NodePorts::Disabled,
            Some(true) | None => NodePorts::Allocated,
        },
        families: families(&spec),
        family_policy: match spec.ip_family_policy.as_deref() {
            Some("RequireDualStack") => FamilyPolicy::BothRequired,
            Some(_) | None => FamilyPolicy::OneWillDo,
        },
        affinity: affinity(&spec),
        traffic: traffic(&spec),
        requested_address: spec.load_balancer_ip.filter(|ip| !ip.is_empty()),
        source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
        annotations,
        foreign,
        ingress: ingress.into_iter().flatten().map(ingress_entry).collect(),
    })
}

/// A node as far as load balancers care. `None`: an object that no API server would send.
pub(crate) fn node(object: &KubeNode) -> Option<Node> {
    let meta = &object.metadata;
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let spec = object.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    let addresses = object.status.as_ref().and_then(|status| status.addresses.as_ref());
    let internal = addresses.into_iter().flatten().filter(|it| it.type_ == "InternalIP");
    Some(Node {
        name: meta.name.clone()?,
        provider_id: spec.and_then(|spec| spec.provider_id.clone()).filter(|id| !id.is_empty()),
        addresses: internal.filter_map(|it| it.address.parse().ok()).collect(),
        zone: ZONE_LABELS.into_iter().find_map(label).filter(|zone| !zone.is_empty()),
        deleting: meta.deletion_timestamp.is_some(),
        exclude: label(EXCLUDE_LABEL),
        leaving: taints.into_iter().flatten().any(|taint| taint.key == AUTOSCALER_TAINT),
        labels: meta.labels.clone().unwrap_or_default(),
    })
}

/// The status entry that the API server gets.
pub(crate) fn to_ingress(ingress: &Ingress) -> LoadBalancerIngress {
    let port = |it: &IngressPort| PortStatus {
        port: it.port.into(),
        protocol: it.transport.word().to_owned(),
        error: it.error.clone(),
    };
    let ports: Vec<PortStatus> = ingress.ports.iter().map(port).collect();
    LoadBalancerIngress {
        ip: ingress.ip.clone(),
        hostname: ingress.hostname.clone(),
        ip_mode: ingress.ip_mode.clone(),
        ports: (!ports.is_empty()).then_some(ports),
    }
}

fn ingress_entry(entry: &LoadBalancerIngress) -> Ingress {
    let port = |it: &PortStatus| {
        Some(IngressPort {
            port: u16::try_from(it.port).ok()?,
            transport: transport(Some(&it.protocol))?,
            error: it.error.clone(),
        })
    };
    Ingress {
        ip: entry.ip.clone().filter(|ip| !ip.is_empty()),
        hostname: entry.hostname.clone().filter(|name| !name.is_empty()),
        ip_mode: entry.ip_mode.clone(),
        ports: entry.ports.iter().flatten().filter_map(port).collect(),
    }
}

fn port(port: &ServicePort) -> Option<Port> {
    Some(Port {
        name: port.name.clone().unwrap_or_default(),
        transport: transport(port.protocol.as_deref())?,
        port: u16::try_from(port.port).ok()?,
        node_port: port.node_port.map_or(Some(0), |it| u16::try_from(it).ok())?,
    })
}

fn transport(protocol: Option<&str>) -> Option<Transport> {
    match protocol {
        None | Some("TCP") => Some(Transport::Tcp),
        Some("UDP") => Some(Transport::Udp),
        Some("SCTP") => Some(Transport::Sctp),
        Some(_) => None,
    }
}

/// The API server always fills this in; one that did not meant IPv4.
fn families(spec: &ServiceSpec) -> Vec<Family> {
    let families: Vec<Family> = spec
        .ip_families
        .iter()
        .flatten()
        .map(|family| if family == "IPv6" { Family::V6 } else { Family::V4 })
        .collect();
    if families.is_empty() { vec![Family::V4] } else { families }
}

fn affinity(spec: &ServiceSpec) -> Affinity {
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    match spec.session_affinity.as_deref() {
        Some("ClientIP") => Affinity::ClientIp {
            timeout_seconds: config
                .and_then(|client_ip| client_ip.timeout_seconds)
                .and_then(|seconds| u32::try_from(seconds).ok()),
        },
        Some(_) | None => Affinity::None,
    }
}

fn traffic(spec: &ServiceSpec) -> Traffic {
    let port = spec.health_check_node_port.and_then(|port| u16::try_from(port).ok());
    match spec.external_traffic_policy.as_deref() {
        Some("Local") => Traffic::Local { health_check_node_port: port.unwrap_or(0) },
        Some(_) | None => Traffic::Cluster,
    }
}

fn ours(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations
        .iter()
        .filter(|(key, _)| {
            key.starts_with(keys::PREFIX) || *key == source_ranges::ANNOTATION || is_foreign(key)
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn object() -> KubeService {
        read(json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "u-1", "resourceVersion": "7",
                "finalizers": ["example.com/other", "service.kubernetes.io/load-balancer-cleanup"],
                "annotations": {
                    "example.com/owner": "me",
                    "lb.cloudadapter.dev/internal": "true",
                    "lb.cloudadapter.dev/port.http.algorithm": "source-ip",
                    "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8",
                },
            },
            "spec": {
                "type": "LoadBalancer",
                "ports": [
                    {"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"},
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                ],
                "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack",
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
                "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "allocateLoadBalancerNodePorts": false,
                "loadBalancerIP": "192.0.2.7",
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7", "ipMode": "VIP"}]}},
        }))
    }

    #[test]
    fn what_matters_of_a_service_is_kept() {
        let service = service(&object(), None).unwrap();
        assert_eq!(service.id.to_string(), "shop/web");
        assert_eq!((service.kind, service.class, service.finalizer), (Kind::LoadBalancer, None, true));
        assert_eq!(service.families, [Family::V6, Family::V4]);
        assert_eq!(service.family_policy, FamilyPolicy::BothRequired);
        assert_eq!(service.traffic, Traffic::Local { health_check_node_port: 32_000 });
        assert_eq!(service.affinity, Affinity::ClientIp { timeout_seconds: Some(60) });
        assert_eq!(service.node_ports, NodePorts::Disabled);
        assert_eq!(service.requested_address.as_deref(), Some("192.0.2.7"));
        let ports: Vec<_> = service.ports.iter().map(|it| (it.transport, it.port, it.node_port)).collect();
        assert_eq!(ports, [(Transport::Tcp, 80, 30_080), (Transport::Udp, 53, 0)]);
        let keys: Vec<&str> = service.annotations.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "lb.cloudadapter.dev/internal",
                "lb.cloudadapter.dev/port.http.algorithm",
                source_ranges::ANNOTATION
            ]
        );
        assert_eq!(service.ingress.len(), 1);
    }

    #[test]
    fn an_empty_class_is_a_class() {
        let mut object = object();
        object.spec.as_mut().unwrap().load_balancer_class = Some(String::new());
        assert_eq!(service(&object, None).unwrap().class.as_deref(), Some(""));
    }

    #[test]
    fn an_ingress_survives_the_way_there_and_back() {
        let entry = Ingress {
            ip: Some("192.0.2.1".to_owned()),
            ip_mode: Some("Proxy".to_owned()),
            ports: vec![IngressPort { port: 80, transport: Transport::Tcp, error: Some("Bad".to_owned()) }],
            ..Ingress::default()
        };
        assert_eq!(ingress_entry(&to_ingress(&entry)), entry);
    }

    #[test]
    fn a_missing_mode_beside_an_ip_is_vip() {
        let bare = Ingress { ip: Some("192.0.2.1".to_owned()), ..Ingress::default() };
        let vip = Ingress { ip_mode: Some("VIP".to_owned()), ..bare.clone() };
        let proxy = Ingress { ip_mode: Some("Proxy".to_owned()), ..bare.clone() };
        assert!(bare.same_as(&vip) && vip.same_as(&bare) && !bare.same_as(&proxy));
    }

    #[test]
    fn what_matters_of_a_node_is_kept() {
        let object: KubeNode = read(json!({
            "metadata": {"name": "a", "labels": {
                "topology.kubernetes.io/zone": "z1",
                "node.kubernetes.io/exclude-from-external-load-balancers": "",
            }},
            "spec": {
                "providerID": "sim://r1/a",
                "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}],
            },
            "status": {"addresses": [
                {"type": "Hostname", "address": "a"},
                {"type": "ExternalIP", "address": "192.0.2.1"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "2001:db8::1"},
            ]},
        }));
        let node = node(&object).unwrap();
        assert_eq!(node.provider_id.as_deref(), Some("sim://r1/a"));
        assert_eq!(node.zone.as_deref(), Some("z1"));
        assert_eq!(node.labels.len(), 2, "selectors need them all");
        assert_eq!((node.exclude.as_deref(), node.leaving, node.deleting), (Some(""), true, false));
        let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "2001:db8::1"]);
    }
}
