//! Neutron's answers about security groups, for tests. They were recorded from version 29. Listings are answered as for all other
//! collections.

use std::collections::BTreeMap;

use axum::{body::Bytes, http::Method, response::Response};
use serde_json::{Value, json};

use super::{PROJECT, answer_with};

pub(crate) const GROUPS: &str = "/network/v2.0/security-groups";
/// The creation time of all groups and default rules. Neutron copies an operator's default rules into each new group.
pub(crate) const MADE_AT: &str = "2026-11-22T03:00:00Z";
const RULES: &str = "/network/v2.0/security-group-rules";

type Lists = BTreeMap<String, (&'static str, Vec<Value>)>;

/// Returns the answer if the request is for groups but is not a listing.
pub(super) fn answer(
    lists: &mut Lists,
    ports: &[Value],
    method: &Method,
    path: &str,
    body: &Bytes,
) -> Option<Response> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let groups = &mut lists.get_mut(GROUPS)?.1;
    let of = |base: &str| path.strip_prefix(base)?.strip_prefix('/');
    Some(match (method, path) {
        (&Method::POST, GROUPS) => {
            let mut group = body["security_group"].clone();
            let id = format!("group-{}", groups.len() + 1);
            let given = [("IPv4", "egress"), ("IPv6", "egress"), ("of-operator", "ingress")];
            let given = given.map(|(what, direction)| {
                json!({ "id": format!("{id}-{what}"), "direction": direction, "ethertype": if what == "IPv6" { what } else { "IPv4" }, "protocol": null,
                    "port_range_min": null, "port_range_max": null, "remote_ip_prefix": null, "remote_group_id": null,
                    "description": null, "created_at": MADE_AT })
            });
            group["id"] = json!(id);
            group["created_at"] = json!(MADE_AT);
            group["project_id"] = json!(PROJECT);
            group["security_group_rules"] = json!(given);
            groups.push(group.clone());
            answer_with(201, &json!({ "security_group": group }))
        }
        (&Method::POST, RULES) => add(groups, &body),
        (&Method::DELETE, _) => match (of(RULES), of(GROUPS)) {
            (Some(rule), _) => {
                let all = |group: &Value| group["security_group_rules"].as_array().expect("rules").clone();
                let Some(group) = groups.iter_mut().find(|one| all(one).iter().any(|one| one["id"] == rule))
                else {
                    return Some(absent("SecurityGroupRuleNotFound", &format!("Security group rule {rule}")));
                };
                group["security_group_rules"].as_array_mut().expect("rules").retain(|one| one["id"] != rule);
                answer_with(204, &Value::Null)
            }
            (None, Some(group)) => {
                let is_in = |port: &Value| {
                    port["security_groups"].as_array().expect("groups").iter().any(|one| one == group)
                };
                if ports.iter().any(is_in) {
                    return Some(refused("SecurityGroupInUse", &format!("Security Group {group} in use.")));
                }
                if groups.iter().all(|one| one["id"] != group) {
                    return Some(absent("SecurityGroupNotFound", &format!("Security group {group}")));
                }
                groups.retain(|one| one["id"] != group);
                answer_with(204, &Value::Null)
            }
            (None, None) => return None,
        },
        _ => return None,
    })
}

/// Creates either all given rules or none of them.
fn add(groups: &mut [Value], body: &Value) -> Response {
    const SAME: [&str; 7] = [
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_ip_prefix",
        "security_group_id",
    ];
    let new = body["security_group_rules"].as_array().expect("rules");
    let there = |groups: &[Value], rule: &Value| {
        let all = groups.iter().flat_map(|group| group["security_group_rules"].as_array().expect("rules"));
        all.clone().any(|one| SAME.iter().all(|key| one[key] == rule[key]))
    };
    if new.iter().any(|rule| there(groups, rule)) {
        return refused("SecurityGroupRuleExists", "Security group rule already exists.");
    }
    for (n, rule) in new.iter().enumerate() {
        let group = groups.iter_mut().find(|group| group["id"] == rule["security_group_id"]).expect("there");
        let rules = group["security_group_rules"].as_array_mut().expect("rules");
        let mut rule = rule.clone();
        let port = &rule["port_range_min"];
        rule["id"] = json!(format!("rule-{port}-{}-{n}", rules.len()));
        rules.push(rule);
    }
    answer_with(201, &json!({ "security_group_rules": new }))
}

fn absent(kind: &str, what: &str) -> Response {
    let message = format!("{what} does not exist");
    answer_with(404, &json!({ "NeutronError": { "type": kind, "message": message, "detail": "" } }))
}

fn refused(kind: &str, message: &str) -> Response {
    answer_with(409, &json!({ "NeutronError": { "type": kind, "message": message, "detail": "" } }))
}
