//! Kubernetes objects, reduced to the fields that this controller uses. A kubelet's heartbeat changes none of these fields.

mod managed;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        LoadBalancerIngress, Node as KubeNode, PortStatus, Service as KubeService, ServicePort, ServiceSpec,
    },
    apimachinery::pkg::apis::meta::v1::{Condition as KubeCondition, Time},
};

use super::Reading;
use crate::plan::{
    Refusal,
    annotations::keys,
    compat::{Translation, is_foreign, translate},
    conditions::{Condition, Conditions, PORTS_ERROR, READY},
    left_out::{AUTOSCALER_TAINT, EXCLUDE_LABEL},
    service::{
        Affinity, Class, FINALIZER, Family, FamilyPolicy, Holder, Ingress, IngressPort, Kind, NodePorts,
        Port, Service, ServiceId, Traffic, Transport,
    },
    source_ranges,
    targets::Node,
};

/// Labels of a node's zone, the current one first.
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

/// Converts a Service. `None`: the object has no namespace, name or UID. No API server would send such an object.
pub(crate) fn service(object: &KubeService, reading: &Reading) -> Option<Service> {
    let meta = &object.metadata;
    let own = meta.annotations.as_ref().map(ours).unwrap_or_default();
    let Translation { annotations, foreign } = translate(reading.compat, own);
    let spec = object.spec.clone().unwrap_or_default();
    let kind = match spec.type_.as_deref() {
        Some("LoadBalancer") => Kind::LoadBalancer,
        Some(_) | None => Kind::Other,
    };
    let class = match kind {
        Kind::LoadBalancer => reading.classes.class(spec.load_balancer_class.clone()),
        Kind::Other if managed::is_held_by_us(meta, reading) => Class::Ours(None),
        Kind::Other => Class::Lost,
    };
    let holder = if kind == Kind::Other { managed::holder(meta, reading) } else { Holder::default() };
    let goes = reading.none_wanted && matches!(class, Class::Ours(_));
    let (ports, unread_ports, unread_node_ports) = ports(&spec);
    let status = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_ref());
    Some(Service {
        id: ServiceId {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
        },
        version: meta.resource_version.clone().unwrap_or_default(),
        generation: meta.generation,
        kind: if goes { Kind::Other } else { kind },
        class,
        named_class: spec.load_balancer_class.clone(),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta.finalizers.iter().flatten().any(|it| it == FINALIZER),
        ports,
        unread_ports,
        unread_node_ports,
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
        ingress_of_another: managed::has_another_ones_ingress(meta),
        conditions: conditions(object, reading),
        holder,
    })
}

/// Whether the Service may have a load balancer: it has the finalizer, which the controller sets before it creates one, or an address.
pub(crate) fn may_have_load_balancer(object: &KubeService) -> bool {
    let status = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let has_ingress = status.is_some_and(|status| status.ingress.iter().flatten().next().is_some());
    has_ingress || object.metadata.finalizers.iter().flatten().any(|it| it == FINALIZER)
}

/// Converts a node. `None`: the object has no name. No API server would send such an object.
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

/// Returns the conditions of this controller. A condition with the name that Kubernetes defines is left out if another client wrote it.
fn conditions(object: &KubeService, reading: &Reading) -> Conditions {
    let all = object.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let condition = |name: &str| {
        let found = all.iter().find(|it| it.type_ == name)?;
        Some(Condition {
            status: found.status == "True",
            reason: found.reason.clone(),
            message: found.message.clone(),
            generation: found.observed_generation,
            since: Some(found.last_transition_time.0),
        })
    };
    let is_ours = |name: &str| managed::wrote_condition(&object.metadata, name, reading);
    let (ready, ports) = (condition(READY), condition(PORTS_ERROR).filter(|_| is_ours(PORTS_ERROR)));
    let are_ours = ports.is_some() || (ready.is_some() && is_ours(READY));
    Conditions { ready, ports, are_ours }
}

/// Converts a condition into the form that the API server expects. `now` is the transition time of a condition without `since`.
pub(crate) fn to_condition(name: &str, condition: &Condition, now: Timestamp) -> KubeCondition {
    KubeCondition {
        type_: name.to_owned(),
        status: if condition.status { "True" } else { "False" }.to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        observed_generation: condition.generation,
        last_transition_time: Time(condition.since.unwrap_or(now)),
    }
}

/// Returns the valid ports, and for the invalid ports the errors and the node ports. Current API servers do not allow invalid ports. If a
/// later version allows invalid ports, the controller must not ignore them silently.
fn ports(spec: &ServiceSpec) -> (Vec<Port>, Vec<Refusal>, Vec<u16>) {
    let (mut ports, mut unread, mut node_ports) = (Vec::new(), Vec::new(), Vec::new());
    for (at, given) in spec.ports.iter().flatten().enumerate() {
        match port(given) {
            Ok(port) => ports.push(port),
            Err((field, why)) => {
                unread.push(Refusal::new(format!("spec.ports[{at}].{field}"), why));
                node_ports.extend(given.node_port.and_then(|port| u16::try_from(port).ok()));
            }
        }
    }
    (ports, unread, node_ports)
}

/// Returns the port, or the name of the invalid field and the error.
fn port(port: &ServicePort) -> Result<Port, (&'static str, String)> {
    let number = |field, number: i32| {
        u16::try_from(number).map_err(|_range| (field, format!("invalid port {number}: write 1 to 65535")))
    };
    let protocol = port.protocol.as_deref();
    let unknown = || {
        let given = protocol.unwrap_or_default();
        (
            "protocol",
            format!(
                "unknown protocol '{given}': use one of: TCP, UDP, SCTP, or move that port to a Service of another type"
            ),
        )
    };
    Ok(Port {
        name: port.name.clone().unwrap_or_default(),
        transport: transport(protocol).ok_or_else(unknown)?,
        port: number("port", port.port)?,
        node_port: number("nodePort", port.node_port.unwrap_or_default())?,
        app_protocol: port.app_protocol.clone().unwrap_or_default(),
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

/// Current API servers always set the families. Old versions did not set them, and used IPv4.
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
            let is_own = [keys::PREFIX, keys::MISTAKEN_PREFIX].iter().any(|prefix| key.starts_with(prefix));
            is_own || *key == source_ranges::ANNOTATION || is_foreign(key)
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
