//! A fake load balancer of Octavia for tests. Clients read, tag and delete it by its ID.

use std::collections::BTreeMap;

use axum::{body::Bytes, http::Method, response::Response};
use serde_json::{Value, json};

use super::answer_with;

const ALL: &str = "/load-balancer/v2/lbaas/loadbalancers";
const LISTENERS: &str = "/load-balancer/v2/lbaas/listeners";

type Lists = BTreeMap<String, (&'static str, Vec<Value>)>;

/// Returns the answer if the request is for a listed load balancer.
pub(super) fn answer(lists: &mut Lists, method: &Method, path: &str, body: &Bytes) -> Option<Response> {
    let id = path.strip_prefix(ALL)?.strip_prefix('/')?;
    let listeners = lists.get(LISTENERS).map(|(_, all)| all.clone()).unwrap_or_default();
    let (_, all) = lists.get_mut(ALL)?;
    let at = all.iter().position(|one| one["id"] == *id)?;
    match method.as_str() {
        "GET" => {
            let mut one = all[at].clone();
            let own = listeners.iter().filter(|listener| listener["loadbalancers"][0]["id"] == *id);
            one["listeners"] = own.map(|listener| json!({ "id": listener["id"] })).collect();
            Some(answer_with(200, &json!({ "loadbalancer": one })))
        }
        "PUT" => {
            let body: Value = serde_json::from_slice(body).expect("JSON");
            let change: BTreeMap<String, Value> =
                serde_json::from_value(body["loadbalancer"].clone()).expect("an object");
            all[at].as_object_mut().expect("an object").extend(change);
            Some(answer_with(202, &json!({})))
        }
        "DELETE" => {
            all.remove(at);
            Some(answer_with(204, &Value::Null))
        }
        _ => None,
    }
}
