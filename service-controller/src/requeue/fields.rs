//! The adapter names fields of the contract; people wrote fields and annotations of a Service. A table from one to the other.

use crate::plan::annotations::{IDLE_TIMEOUT, PROXY_PROTOCOL, SCHEME};

/// Where every path of the contract's specification begins.
const ROOT: &str = "spec.";

/// The text with every path of the contract replaced by what the user wrote. Anything else stays as it is.
pub(super) fn in_users_words(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, found)) = rest.split_once(ROOT) {
        let end = found.find(|letter| !is_of_a_path(letter)).unwrap_or(found.len());
        let (run, after) = found.split_at(end);
        // A full stop behind the path ends the sentence.
        let (path, stop) = run.split_at(run.trim_end_matches('.').len());
        words.push_str(before);
        match users_field(path).filter(|_| !before.ends_with(is_of_a_path)) {
            Some(field) => words.push_str(&field),
            None => words.extend([ROOT, path]),
        }
        words.push_str(stop);
        rest = after;
    }
    words + rest
}

fn is_of_a_path(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_.[]".contains(letter)
}

/// `path` without its root. None: not a field of the contract that comes from a Service.
///
/// Ports and families keep their order on the way, so their index stays right. Source ranges are sorted, and there is one address.
fn users_field(path: &str) -> Option<String> {
    let (head, tail) = path.split_once('.').unwrap_or((path, ""));
    let (name, index) = head.split_at(head.find('[').unwrap_or(head.len()));
    Some(match (name, tail) {
        ("scheme", _) => format!("annotation {SCHEME}"),
        ("ip_families", _) => format!("spec.ipFamilies{index}"),
        ("requested_addresses", _) => "spec.loadBalancerIP".to_owned(),
        ("source_ranges", _) => "spec.loadBalancerSourceRanges".to_owned(),
        ("listeners", "idle_timeout") => format!("annotation {IDLE_TIMEOUT} (spec.ports{index})"),
        ("listeners", "proxy_protocol") => format!("annotation {PROXY_PROTOCOL} (spec.ports{index})"),
        ("listeners", "node_port") => format!("spec.ports{index}.nodePort"),
        ("listeners", "name" | "protocol" | "port") => format!("spec.ports{index}.{tail}"),
        ("listeners", _) => format!("spec.ports{index}"),
        ("session_affinity", "timeout") => "spec.sessionAffinityConfig.clientIP.timeoutSeconds".to_owned(),
        ("session_affinity", _) => "spec.sessionAffinity".to_owned(),
        ("health_check", "port") => "spec.healthCheckNodePort".to_owned(),
        ("health_check" | "traffic_policy", _) => "spec.externalTrafficPolicy".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_contract_are_told_as_fields_of_the_service() {
        let rows = [
            ("spec.scheme", "annotation cloudadapter.dev/load-balancer-scheme"),
            ("spec.ip_families", "spec.ipFamilies"),
            ("spec.ip_families[1]", "spec.ipFamilies[1]"),
            ("spec.requested_addresses[0]", "spec.loadBalancerIP"),
            ("spec.source_ranges[3]", "spec.loadBalancerSourceRanges"),
            ("spec.listeners", "spec.ports"),
            ("spec.listeners[2].port", "spec.ports[2].port"),
            ("spec.listeners[2].node_port", "spec.ports[2].nodePort"),
            ("spec.listeners[2].protocol", "spec.ports[2].protocol"),
            ("spec.listeners[2].tls_refs", "spec.ports[2]"),
            (
                "spec.listeners[1].idle_timeout",
                "annotation cloudadapter.dev/load-balancer-idle-timeout (spec.ports[1])",
            ),
            (
                "spec.listeners[1].proxy_protocol",
                "annotation cloudadapter.dev/load-balancer-proxy-protocol (spec.ports[1])",
            ),
            ("spec.session_affinity", "spec.sessionAffinity"),
            ("spec.session_affinity.timeout", "spec.sessionAffinityConfig.clientIP.timeoutSeconds"),
            ("spec.health_check.port", "spec.healthCheckNodePort"),
            ("spec.health_check.interval", "spec.externalTrafficPolicy"),
            ("spec.traffic_policy", "spec.externalTrafficPolicy"),
            // Not of the contract, or not from a Service.
            ("spec.loadBalancerIP", "spec.loadBalancerIP"),
            ("spec.parameters[algorithm]", "spec.parameters[algorithm]"),
            ("status.spec.scheme", "status.spec.scheme"),
            ("spec.", "spec."),
        ];
        for (path, want) in rows {
            assert_eq!(in_users_words(path), want, "{path}");
        }
    }

    #[test]
    fn the_rest_of_the_sentence_stays() {
        let text = "spec.source_ranges[0]: \"x\"; change (spec.ip_families), not spec.listeners[0].port. Bye";
        let want =
            "spec.loadBalancerSourceRanges: \"x\"; change (spec.ipFamilies), not spec.ports[0].port. Bye";
        assert_eq!(in_users_words(text), want);
        assert_eq!(in_users_words("no field at all"), "no field at all");
    }
}
