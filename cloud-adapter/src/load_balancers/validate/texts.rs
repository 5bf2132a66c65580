//! Checks the lengths of a specification's strings. This module is pure.

use std::collections::BTreeMap;

use cloud_api_proto::{
    error::Violation,
    v1alpha1::{Listener, LoadBalancerSpec},
};

use crate::strings::{item_too_long, too_long};

/// Maximum length, in characters, of a map's key in the path of a fault.
const KEY_SHOWN: usize = 64;

/// Returns the strings that are too long, as violations with their paths. Addresses and CIDRs are excluded, because their format is checked
/// elsewhere.
pub(super) fn faults(spec: &LoadBalancerSpec) -> Vec<Violation> {
    let class = spec.class.as_deref().unwrap_or_default();
    let LoadBalancerSpec { address_pool, size, zone, backend_set_id, load_balancer_id, .. } = spec;
    let mut faults = too_long(
        "spec",
        [
            ("class", class),
            ("backend_set_id", backend_set_id),
            ("address_pool", address_pool),
            ("size", size),
            ("zone", zone),
            ("load_balancer_id", load_balancer_id),
        ],
    );
    let path = spec.health_check.as_ref().map_or("", |check| &check.path);
    faults.extend(too_long("spec.health_check", [("path", path)]));
    faults.extend(list("spec.subnets", &spec.subnets));
    faults.extend(list("spec.shared_with", &spec.shared_with));
    faults.extend(map("spec.parameters", &spec.parameters));
    faults.extend(map("spec.tags", &spec.tags));
    for (at, Listener { name, tls_refs, app_protocol, .. }) in spec.listeners.iter().enumerate() {
        let path = format!("spec.listeners[{at}]");
        faults.extend(too_long(&path, [("name", name.as_str()), ("app_protocol", app_protocol)]));
        faults.extend(list(&format!("{path}.tls_refs"), tls_refs));
    }
    faults
}

fn list(path: &str, texts: &[String]) -> Vec<Violation> {
    let each = texts.iter().enumerate();
    each.filter_map(|(at, text)| item_too_long(format!("{path}[{at}]"), text)).collect()
}

/// Each path contains the truncated key.
fn map(path: &str, texts: &BTreeMap<String, String>) -> Vec<Violation> {
    let each = texts.iter().flat_map(|(key, value)| {
        let shown: String = key.chars().take(KEY_SHOWN).collect();
        [key, value].map(|text| item_too_long(format!("{path}[{shown}]"), text))
    });
    each.flatten().collect()
}
