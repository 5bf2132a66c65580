//! Describes the fields of a Service that concern its load balancer and differ from their defaults. The ports are described elsewhere.

use crate::plan::{
    service::{Affinity, Family, FamilyPolicy, NodePorts, Service, Traffic},
    source_ranges::ANNOTATION,
};

/// Default of `spec.sessionAffinityConfig.clientIP.timeoutSeconds`. Source: the API of Kubernetes.
const AFFINITY_SECONDS: u32 = 10_800;

/// Returns a line for each field, in the form of the lines about annotations.
///
/// The default of `spec.ipFamilies` depends on the cluster. IPv4 alone counts as the default.
pub(super) fn fields(service: &Service) -> Vec<String> {
    let families = (service.families != [Family::V4]).then(|| joined(&service.families));
    let policy = match service.family_policy {
        // The API server allows a second family only with this policy. With a single family, the policy changes nothing.
        FamilyPolicy::OneWillDo if service.families.len() > 1 => Some("PreferDualStack".to_owned()),
        FamilyPolicy::OneWillDo => None,
        FamilyPolicy::BothRequired => Some("RequireDualStack".to_owned()),
    };
    let (external, health_check) = match service.traffic {
        Traffic::Cluster => (None, None),
        Traffic::Local { health_check_node_port: 0 } => (Some("Local"), None),
        Traffic::Local { health_check_node_port: port } => (Some("Local"), Some(port.to_string())),
    };
    let (affinity, timeout) = match service.affinity {
        Affinity::None => (None, None),
        Affinity::ClientIp { timeout_seconds } => (Some("ClientIP"), timeout_seconds),
    };
    let timeout = timeout.filter(|it| *it != AFFINITY_SECONDS).map(|it| it.to_string());
    let node_ports = match service.node_ports {
        NodePorts::Allocated => None,
        NodePorts::Disabled => Some("false".to_owned()),
    };
    let lines = [
        ("loadBalancerClass", service.named_class.clone()),
        ("ipFamilies", families),
        ("ipFamilyPolicy", policy),
        ("loadBalancerIP", service.requested_address.clone()),
        ("externalTrafficPolicy", external.map(str::to_owned)),
        ("healthCheckNodePort", health_check),
        ("sessionAffinity", affinity.map(str::to_owned)),
        ("sessionAffinityConfig.clientIP.timeoutSeconds", timeout),
        ("allocateLoadBalancerNodePorts", node_ports),
    ];
    let lines = lines.into_iter().filter_map(|(field, value)| Some(format!("spec.{field}: {}", value?)));
    lines.chain(source_ranges(service)).collect()
}

/// Returns the source ranges as the user wrote them. The field takes precedence over the annotation.
fn source_ranges(service: &Service) -> Option<String> {
    if !service.source_ranges.is_empty() {
        return Some(format!("spec.loadBalancerSourceRanges: {}", service.source_ranges.join(", ")));
    }
    let annotation = service.annotations.get(ANNOTATION).filter(|it| !it.trim().is_empty())?;
    Some(format!("annotation {ANNOTATION}: {annotation}"))
}

fn joined(families: &[Family]) -> String {
    families.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Service {
        Service { families: vec![Family::V4], ..Service::default() }
    }

    #[test]
    fn defaults_are_left_out() {
        assert_eq!(fields(&plain()), [""; 0]);
        let both = Service { families: vec![Family::V4, Family::V6], ..Service::default() };
        assert_eq!(fields(&both), ["spec.ipFamilies: IPv4, IPv6", "spec.ipFamilyPolicy: PreferDualStack"]);
        let affinity = Affinity::ClientIp { timeout_seconds: Some(AFFINITY_SECONDS) };
        assert_eq!(fields(&Service { affinity, ..plain() }), ["spec.sessionAffinity: ClientIP"]);
    }

    #[test]
    fn each_field_that_differs_from_its_default_is_shown() {
        let service = Service {
            named_class: Some("a.example/b".to_owned()),
            families: vec![Family::V6, Family::V4],
            family_policy: FamilyPolicy::BothRequired,
            requested_address: Some("203.0.113.9".to_owned()),
            traffic: Traffic::Local { health_check_node_port: 32_000 },
            affinity: Affinity::ClientIp { timeout_seconds: Some(60) },
            node_ports: NodePorts::Disabled,
            source_ranges: vec!["10.0.0.0/8".to_owned(), "192.0.2.0/24".to_owned()],
            annotations: [(ANNOTATION.to_owned(), "198.51.100.0/24".to_owned())].into_iter().collect(),
            ..plain()
        };
        insta::assert_snapshot!(fields(&service).join("\n"), @r"
        spec.loadBalancerClass: a.example/b
        spec.ipFamilies: IPv6, IPv4
        spec.ipFamilyPolicy: RequireDualStack
        spec.loadBalancerIP: 203.0.113.9
        spec.externalTrafficPolicy: Local
        spec.healthCheckNodePort: 32000
        spec.sessionAffinity: ClientIP
        spec.sessionAffinityConfig.clientIP.timeoutSeconds: 60
        spec.allocateLoadBalancerNodePorts: false
        spec.loadBalancerSourceRanges: 10.0.0.0/8, 192.0.2.0/24
        ");
        let annotated = Service { source_ranges: Vec::new(), ..service };
        let line = "annotation service.beta.kubernetes.io/load-balancer-source-ranges: 198.51.100.0/24";
        assert_eq!(fields(&annotated).last().map(String::as_str), Some(line));
    }
}
