//! Translates field names of the contract, as used by the adapter, into the Service fields and annotations that users write.

use std::collections::BTreeSet;

use cloud_api_proto::AdapterError;

use super::origins::Origins;
use crate::plan::annotations::keys::{self, Key};

/// The prefix of all fields in the contract's load balancer specification.
const ROOT: &str = "spec.";
/// The field that holds the ID of a load balancer to adopt.
const KNOWN: &str = "known.vendor_ids";

pub(super) fn named(error: &AdapterError) -> BTreeSet<&str> {
    let violated = error.violations.iter().map(|violation| violation.field.as_str());
    let listed = error.metadata.get("fields").into_iter().flat_map(|fields| fields.split(','));
    violated.chain(listed).filter(|field| !field.is_empty()).collect()
}

/// Replaces every field of the contract in a text with the place that the user or the operator wrote, and each grant for a default with one
/// for all namespaces. Leaves the rest unchanged.
pub(super) fn in_users_words(text: &str, origins: &Origins) -> String {
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, found)) = rest.split_once(ROOT) {
        let end = found.find(|letter| !is_of_a_path(letter)).unwrap_or(found.len());
        let (run, after) = found.split_at(end);
        // A full stop after the path ends the sentence and is not part of the path.
        let (path, stop) = run.split_at(run.trim_end_matches('.').len());
        words.push_str(before);
        match users_field(path, origins).filter(|_| !before.ends_with(is_of_a_path)) {
            Some(field) => words.push_str(&field),
            None => words.extend([ROOT, path]),
        }
        words.push_str(stop);
        rest = after;
    }
    origins.with_grants_for_all((words + rest).replace(KNOWN, &origins.place(keys::ID)))
}

fn is_of_a_path(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_.[]-".contains(letter)
}

/// The Service field or annotation for `path`, which is a field of the contract without the prefix. `None`: not a field of the contract, or
/// not from a Service.
///
/// The indexes of IP families are kept. The indexes of ports are already translated (see `places`). Source ranges are sent sorted, so their
/// index is dropped. Addresses need no index because there is only one.
fn users_field(path: &str, origins: &Origins) -> Option<String> {
    let (head, tail) = path.split_once('.').unwrap_or((path, ""));
    let (name, index) = head.split_at(head.find('[').unwrap_or(head.len()));
    if name == "listeners"
        && let Some(key) = of_port(tail)
    {
        let at = index.trim_matches(['[', ']']).parse().ok();
        return Some(format!("{} (spec.ports{index})", origins.place_of_port(at, key)));
    }
    if let Some(key) = of_service(name, tail) {
        return Some(origins.place(key));
    }
    Some(match (name, tail) {
        ("ip_families", _) => format!("spec.ipFamilies{index}"),
        ("requested_addresses", _) => origins.place_of_address(),
        ("source_ranges", _) => "spec.loadBalancerSourceRanges".to_owned(),
        ("parameters", _) => origins.place_of_parameter(index.trim_matches(['[', ']'])),
        ("listeners", "node_port") => format!("spec.ports{index}.nodePort"),
        ("listeners", "app_protocol") => format!("spec.ports{index}.appProtocol"),
        ("listeners", "name" | "protocol" | "port") => format!("spec.ports{index}.{tail}"),
        ("listeners", _) => format!("spec.ports{index}"),
        ("session_affinity", "timeout") => "spec.sessionAffinityConfig.clientIP.timeoutSeconds".to_owned(),
        ("session_affinity", _) => "spec.sessionAffinity".to_owned(),
        ("health_check", "port") => "spec.healthCheckNodePort".to_owned(),
        ("health_check" | "traffic_policy", _) => "spec.externalTrafficPolicy".to_owned(),
        _ => return None,
    })
}

/// The annotation that sets this field of a listener.
fn of_port(field: &str) -> Option<Key> {
    // Drops the index of a list entry.
    Some(match field.split('[').next()? {
        "idle_timeout" => keys::IDLE_TIMEOUT,
        "proxy_protocol" => keys::PROXY_PROTOCOL,
        "algorithm" => keys::ALGORITHM,
        "application" => keys::LISTENER_PROTOCOL,
        "tls_refs" => keys::TLS_CERT_REFS,
        "connect_timeout" => keys::CONNECT_TIMEOUT,
        "connection_limit" => keys::CONNECTION_LIMIT,
        _ => return None,
    })
}

/// The annotation that sets the field for the whole load balancer.
fn of_service(name: &str, tail: &str) -> Option<Key> {
    Some(match (name, tail) {
        ("scheme", _) => keys::INTERNAL,
        ("address_pool", _) => keys::ADDRESS_POOL,
        ("subnets", _) => keys::SUBNET,
        ("size", _) => keys::SIZE,
        ("zone", _) => keys::ZONE,
        ("name", _) => keys::NAME,
        ("load_balancer_id", _) => keys::ID,
        ("shared_with", _) => keys::SHARE_WITH,
        ("address_retention", _) => keys::ON_DELETE,
        ("tags", _) => keys::TAGS,
        ("health_check", "path") => keys::HEALTH_PATH,
        ("health_check", "interval") => keys::HEALTH_INTERVAL,
        ("health_check", "timeout") => keys::HEALTH_TIMEOUT,
        ("health_check", "healthy_threshold") => keys::HEALTH_HEALTHY,
        ("health_check", "unhealthy_threshold") => keys::HEALTH_UNHEALTHY,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_fields_are_translated_to_service_fields() {
        let rows = [
            ("spec.scheme", "annotation lb.cloudadapter.dev/internal"),
            ("spec.ip_families", "spec.ipFamilies"),
            ("spec.ip_families[1]", "spec.ipFamilies[1]"),
            ("spec.requested_addresses[0]", "spec.loadBalancerIP (annotation lb.cloudadapter.dev/address)"),
            ("spec.address_pool", "annotation lb.cloudadapter.dev/address-pool"),
            ("spec.subnets[1]", "annotation lb.cloudadapter.dev/subnet"),
            ("spec.address_retention", "annotation lb.cloudadapter.dev/on-delete"),
            ("spec.tags[team]", "annotation lb.cloudadapter.dev/tags"),
            ("known.vendor_ids", "annotation lb.cloudadapter.dev/id"),
            (
                "spec.listeners[1].application",
                "annotation lb.cloudadapter.dev/listener-protocol (spec.ports[1])",
            ),
            ("spec.health_check.timeout", "annotation lb.cloudadapter.dev/health-check.timeout"),
            ("spec.source_ranges[3]", "spec.loadBalancerSourceRanges"),
            ("spec.listeners", "spec.ports"),
            ("spec.listeners[2].port", "spec.ports[2].port"),
            ("spec.listeners[2].node_port", "spec.ports[2].nodePort"),
            ("spec.listeners[2].protocol", "spec.ports[2].protocol"),
            ("spec.listeners[2].app_protocol", "spec.ports[2].appProtocol"),
            ("spec.listeners[2].tls_refs[0]", "annotation lb.cloudadapter.dev/tls-cert-refs (spec.ports[2])"),
            ("spec.listeners[1].idle_timeout", "annotation lb.cloudadapter.dev/idle-timeout (spec.ports[1])"),
            (
                "spec.listeners[1].proxy_protocol",
                "annotation lb.cloudadapter.dev/proxy-protocol (spec.ports[1])",
            ),
            ("spec.session_affinity", "spec.sessionAffinity"),
            ("spec.session_affinity.timeout", "spec.sessionAffinityConfig.clientIP.timeoutSeconds"),
            ("spec.health_check.port", "spec.healthCheckNodePort"),
            ("spec.health_check.interval", "annotation lb.cloudadapter.dev/health-check.interval"),
            ("spec.health_check.kind", "spec.externalTrafficPolicy"),
            ("spec.traffic_policy", "spec.externalTrafficPolicy"),
            // These texts are not fields of the contract, or do not come from a Service.
            ("spec.loadBalancerIP", "spec.loadBalancerIP"),
            ("spec.parameter[algorithm]", "spec.parameter[algorithm]"),
            ("spec.parameters[flavor-id]", "annotation lb.cloudadapter.dev/x.<adapter>.flavor-id"),
            ("status.spec.scheme", "status.spec.scheme"),
            ("spec.", "spec."),
        ];
        for (path, want) in rows {
            assert_eq!(in_users_words(path, &Origins::default()), want, "{path}");
        }
    }

    #[test]
    fn text_around_translated_fields_is_kept() {
        let text = "spec.source_ranges[0]: \"x\"; change (spec.ip_families), not spec.listeners[0].port. Bye";
        let want =
            "spec.loadBalancerSourceRanges: \"x\"; change (spec.ipFamilies), not spec.ports[0].port. Bye";
        assert_eq!(in_users_words(text, &Origins::default()), want);
        assert_eq!(in_users_words("no field at all", &Origins::default()), "no field at all");
    }
}
