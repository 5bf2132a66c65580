//! Neutron's answers about routers, for tests. They were recorded from version 29.

use axum::{
    body::Bytes,
    http::{HeaderMap, Method, header},
    response::Response,
};
use serde_json::{Value, json};

use super::answer_with;

/// ID of the only router.
pub(crate) const ROUTER: &str = "a375e538-c854-443c-b874-080eaa3a7da3";
const BASE: &str = "/network/v2.0";

pub(crate) struct Routers {
    pub(crate) routes: Vec<Value>,
    pub(crate) revision: u64,
    pub(crate) aliases: Vec<&'static str>,
    pub(crate) max_routes: usize,
    /// Prefixes of the addresses in the router's subnets.
    pub(crate) near: [&'static str; 2],
}

impl Default for Routers {
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            revision: 6,
            aliases: vec!["extraroute", "extraroute-atomic", "allowed-address-pairs", "revision-if-match"],
            max_routes: 30,
            near: ["10.20.", "fd20:"],
        }
    }
}

impl Routers {
    /// Returns the answer if the request is for routers or writes a port.
    pub(super) fn answer(
        &mut self,
        ports: &mut [Value],
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Option<Response> {
        let path = path.strip_prefix(BASE)?;
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let revision = headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok());
        if (method, path) == (&Method::GET, "/extensions") {
            let aliases: Vec<Value> = self.aliases.iter().map(|alias| json!({ "alias": alias })).collect();
            return Some(answer_with(200, &json!({ "extensions": aliases })));
        }
        if let (&Method::PUT, Some(id)) = (method, path.strip_prefix("/ports/")) {
            let port = ports.iter_mut().find(|port| port["id"] == id)?;
            return Some(changed(port, revision, &body));
        }
        let id = path.strip_prefix("/routers/")?;
        let (id, verb) = id.split_once('/').unwrap_or((id, ""));
        if id != ROUTER {
            let message = format!("Router {id} could not be found");
            return Some(refused(404, "RouterNotFound", &message));
        }
        let asked = body["router"]["routes"].as_array().cloned().unwrap_or_default();
        Some(match (method, verb) {
            (&Method::GET, "") => self.shown(),
            (&Method::PUT, "") if revision != Some(&format!("revision_number={}", self.revision)) => stale(),
            (&Method::PUT, "") => self.take(asked),
            (&Method::PUT, "add_extraroutes") => {
                let new = asked.into_iter().filter(|route| !self.routes.contains(route));
                self.take(self.routes.iter().cloned().chain(new).collect())
            }
            (&Method::PUT, "remove_extraroutes") => {
                self.take(self.routes.iter().filter(|route| !asked.contains(route)).cloned().collect())
            }
            _ => answer_with(405, &Value::Null),
        })
    }

    fn take(&mut self, routes: Vec<Value>) -> Response {
        if routes.len() > self.max_routes {
            return refused(409, "OverQuota", "Quota exceeded for resources: ['router_route'].");
        }
        let is_near = |route: &Value| {
            let hop = route["nexthop"].as_str().unwrap_or_default();
            self.near.iter().any(|near| hop.starts_with(near))
        };
        if !routes.iter().all(is_near) {
            let message = "Invalid format for routes: [...], the nexthop is not connected with router";
            return refused(400, "InvalidRoutes", message);
        }
        self.routes = routes;
        self.revision += 1;
        self.shown()
    }

    fn shown(&self) -> Response {
        let router = json!({ "id": ROUTER, "routes": self.routes, "revision_number": self.revision });
        answer_with(200, &json!({ "router": router }))
    }
}

/// Changes the port's security groups or address pairs. Adds the port's MAC address to the pairs, as Neutron does.
fn changed(port: &mut Value, revision: Option<&str>, body: &Value) -> Response {
    let current = port["revision_number"].as_u64().unwrap_or_default();
    if revision != Some(&format!("revision_number={current}")) {
        return stale();
    }
    if body["port"]["security_groups"].is_array() {
        port["security_groups"] = body["port"]["security_groups"].clone();
        port["revision_number"] = json!(current + 1);
        return answer_with(200, &json!({ "port": port }));
    }
    let mut pairs = body["port"]["allowed_address_pairs"].clone();
    for pair in pairs.as_array_mut().into_iter().flatten() {
        if pair["mac_address"].is_null() {
            pair["mac_address"] = json!("fa:16:3e:53:64:a5");
        }
    }
    port["allowed_address_pairs"] = pairs;
    port["revision_number"] = json!(current + 1);
    answer_with(200, &json!({ "port": port }))
}

fn stale() -> Response {
    refused(412, "RevisionNumberConstraintFailed", "Constrained to 1, but current revision is 2")
}

fn refused(status: u16, kind: &str, message: &str) -> Response {
    answer_with(status, &json!({ "NeutronError": { "type": kind, "message": message, "detail": "" } }))
}
