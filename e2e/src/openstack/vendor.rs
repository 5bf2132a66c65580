//! The description of OpenStack for the proxy, and the names of its calls.

use adapter_conformance::params::VendorParams;
use adapter_conformance::proxy::Call;
use serde_json::json;

/// The minimum length of a path segment that is an ID. IDs of Keystone have no dashes, but those of other services do.
const ID_MIN: usize = 32;

/// Names the calls that list objects, and the calls that only read although their method is not GET.
pub(super) fn params() -> anyhow::Result<VendorParams> {
    let list = |collection: &str, call: &str, body: &str| json!({ "collection": collection, "call": call, "emptyBody": body });
    Ok(serde_json::from_value(json!({
        "requestIdHeader": "x-openstack-request-id",
        "reads": ["^POST /identity/v3/auth/tokens"],
        "lists": [
            list("instances", r"^GET /compute/v2\.1/servers/detail", r#"{"servers": []}"#),
            list(
                "load-balancers",
                r"^GET /load-balancer/v2/lbaas/loadbalancers\?",
                r#"{"loadbalancers": [], "loadbalancers_links": []}"#,
            ),
        ],
    }))?)
}

/// The operation without service, version, query and IDs, such as `GET servers/detail` or `PUT pools/*/members`.
pub fn operation(call: &Call) -> String {
    let path = call.path.split('?').next().unwrap_or_default().trim_matches('/');
    let mut parts = path.split('/');
    let service = parts.next().unwrap_or_default();
    let is_version = |part: &str| {
        part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let words: Vec<_> = parts
        .filter(|part| !is_version(part) && *part != "lbaas")
        .map(|part| if part.len() >= ID_MIN { "*" } else { part })
        .collect();
    let what = if words.is_empty() { service.to_owned() } else { words.join("/") };
    format!("{} {what}", call.method)
}
