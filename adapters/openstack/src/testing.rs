//! A fake OpenStack for tests. It listens on a loopback port and answers as Keystone, Nova and Neutron do. A driver calls the fake in a
//! [`Session`].

mod balancers;
pub(crate) mod routers;
pub(crate) mod security_groups;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use cloud_adapter::{
    driver::Classify,
    kit::encode,
    metrics::Metrics,
    vendor::{Purpose, Session, Vendor},
};
use cloud_api_proto::v1alpha1::Priority;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use self::routers::Routers;
use crate::{
    driver::{OpenStackDriver, Settings},
    identity::{
        cloud::{Cloud, Given},
        source::{Environment, Source},
    },
    instances::Networking,
    load_balancers::settings::LoadBalancerOptions,
    provider_id::Form,
};

/// The project of password credentials.
pub(crate) const PROJECT: &str = "0f3a6b1c5d7e4f209a8b7c6d5e4f3a2b";

pub(crate) struct Store {
    /// The requests, such as `GET /compute/v2.1/servers/detail?limit=2`.
    pub(crate) requests: Vec<String>,
    pub(crate) headers: Vec<HeaderMap>,
    pub(crate) bodies: Vec<Value>,
    pub(crate) servers: Vec<Value>,
    pub(crate) ports: Vec<Value>,
    pub(crate) routers: Routers,
    /// The other collections, keyed by path. Each collection has a name and items.
    pub(crate) lists: BTreeMap<String, (&'static str, Vec<Value>)>,
    /// The maximum number of items on a page. A request cannot raise this maximum.
    pub(crate) page: usize,
    /// Valid tokens.
    pub(crate) tokens: BTreeSet<String>,
    pub(crate) life: Duration,
    /// Whether Keystone refuses to log clients in.
    pub(crate) locked: bool,
    /// Whether the credentials were deleted in Keystone.
    pub(crate) deleted: bool,
    /// The answers to the next calls. Log-ins do not use them.
    pub(crate) faults: VecDeque<(u16, Value)>,
    issued: usize,
}

/// The fake stops when this value is dropped.
pub(crate) struct FakeCloud {
    pub(crate) url: String,
    store: Arc<Mutex<Store>>,
    /// The number of further log-ins that the fake answers.
    pub(crate) gate: Arc<Semaphore>,
    _serving: JoinSet<std::io::Result<()>>,
}

#[derive(Clone)]
struct Shared {
    url: String,
    store: Arc<Mutex<Store>>,
    gate: Arc<Semaphore>,
}

impl FakeCloud {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let store = Store {
            requests: Vec::new(),
            headers: Vec::new(),
            bodies: Vec::new(),
            servers: Vec::new(),
            ports: Vec::new(),
            routers: Routers::default(),
            lists: BTreeMap::new(),
            page: 1000,
            tokens: BTreeSet::new(),
            life: Duration::from_hours(1),
            locked: false,
            deleted: false,
            faults: VecDeque::new(),
            issued: 0,
        };
        let (store, gate) = (Arc::new(Mutex::new(store)), Arc::new(Semaphore::new(1_000)));
        let shared = Shared { url: url.clone(), store: Arc::clone(&store), gate: Arc::clone(&gate) };
        let app = Router::new().fallback(answer).with_state(shared);
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await });
        Self { url, store, gate, _serving: serving }
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("not poisoned")
    }

    /// Returns the requests so far whose method and path have this prefix.
    pub(crate) fn asked(&self, beginning: &str) -> Vec<String> {
        self.store().requests.iter().filter(|one| one.starts_with(beginning)).cloned().collect()
    }

    pub(crate) fn log_ins(&self) -> usize {
        self.asked("POST /identity/v3/auth/tokens").len()
    }

    pub(crate) fn environment(&self) -> Environment {
        let variables = [
            ("OS_AUTH_URL", format!("{}/identity", self.url)),
            ("OS_USERNAME", "demo".to_owned()),
            ("OS_PASSWORD", "correct horse".to_owned()),
            ("OS_USER_DOMAIN_NAME", "Default".to_owned()),
            ("OS_PROJECT_NAME", "shop".to_owned()),
            ("OS_PROJECT_DOMAIN_NAME", "Default".to_owned()),
            ("OS_REGION_NAME", "RegionOne".to_owned()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }

    pub(crate) fn cloud(&self) -> Cloud {
        Source::Environment(self.environment()).read(&Given::default()).expect("valid keys")
    }

    pub(crate) fn driver(&self) -> OpenStackDriver {
        self.driver_with(LoadBalancerOptions::default())
    }

    pub(crate) fn driver_with(&self, load_balancers: LoadBalancerOptions) -> OpenStackDriver {
        let settings = Settings {
            source: Source::Environment(self.environment()),
            given: Given::default(),
            networking: Networking::default(),
            form: Form::Plain,
            router: None,
            load_balancers,
        };
        OpenStackDriver::new(self.cloud(), None, settings)
    }
}

/// Returns a session that classifies answers with a driver's table.
pub(crate) fn session(driver: &OpenStackDriver) -> Session {
    // If a crypto provider is already installed in this process, the installation fails and that provider stays.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let classify: Arc<dyn Classify> = Arc::new(driver.clone());
    let vendor = Vendor::new(&cloud_budget::Config::default(), classify, &Metrics::new()).expect("a client");
    Arc::new(vendor).session(Purpose::own(Priority::Interactive, "test"))
}

async fn answer(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
    {
        let mut store = shared.store.lock().expect("not poisoned");
        store.requests.push(format!("{method} {uri}"));
        store.headers.push(headers.clone());
        store.bodies.push(serde_json::from_slice(&body).unwrap_or_default());
    }
    if (&method, path.as_str()) == (&Method::POST, "/identity/v3/auth/tokens") {
        let permit = shared.gate.acquire().await.expect("is never closed");
        permit.forget();
        return log_in(&shared);
    }
    let mut store = shared.store.lock().expect("not poisoned");
    let named = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !store.tokens.contains(named("x-auth-token")) {
        let body = "The request you have made requires authentication.";
        return answer_with(
            401,
            &json!({ "error": { "code": 401, "title": "Unauthorized", "message": body } }),
        );
    }
    if let Some((status, body)) = store.faults.pop_front() {
        return answer_with(status, &body);
    }
    let Store { routers, ports, lists, .. } = &mut *store;
    if let Some(answer) = routers.answer(ports, &method, &path, &headers, &body) {
        return answer;
    }
    if let Some(answer) = balancers::answer(lists, &method, &path, &body) {
        return answer;
    }
    if let Some(answer) = security_groups::answer(lists, ports, &method, &path, &body) {
        return answer;
    }
    let query: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    serve(&store, &method, &path, &query)
}

fn serve(store: &Store, method: &Method, path: &str, query: &[(&str, &str)]) -> Response {
    let of = |key: &str| query.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    if let ("GET", Some((name, items))) = (method.as_str(), store.lists.get(path)) {
        return paged(name, items.iter().filter(|item| is_asked(item, query)).collect(), query, store.page);
    }
    match (method.as_str(), path) {
        ("PUT", path) if path.starts_with("/load-balancer/") => answer_with(202, &json!({})),
        ("PUT", path) if path.starts_with("/network/v2.0/floatingips/") => answer_with(200, &json!({})),
        ("DELETE", path) if path.starts_with("/load-balancer/") => answer_with(204, &Value::Null),
        ("GET", "/identity/v3/auth/tokens") => answer_with(200, &json!({ "token": {} })),
        ("GET", "/compute/v2.1/servers/detail") => {
            paged("servers", store.servers.iter().collect(), query, store.page)
        }
        ("GET", "/network/v2.0/ports") => {
            let fits = |port: &&Value| {
                let asked = |key: &'static str| {
                    query.iter().filter(move |(name, _)| *name == key).map(|(_, value)| *value)
                };
                let is = |key: &'static str| {
                    asked(key).next().is_none() || asked(key).any(|wanted| port[key] == wanted)
                };
                let addresses = port["fixed_ips"].as_array().into_iter().flatten();
                let has = |wanted: &str| {
                    let mut all = addresses.clone().filter_map(|one| one["ip_address"].as_str());
                    all.any(|one| wanted == format!("ip_address%3D{}", one.replace(':', "%3A")))
                };
                let in_group = |wanted: &str| {
                    port["security_groups"].as_array().into_iter().flatten().any(|one| one == wanted)
                };
                is("id")
                    && is("device_id")
                    && is("project_id")
                    && of("security_groups").is_none_or(in_group)
                    && (of("fixed_ips").is_none() || asked("fixed_ips").any(has))
            };
            paged("ports", store.ports.iter().filter(fits).collect(), query, store.page)
        }
        (
            "POST",
            "/network/v2.0/routers" | "/network/v2.0/floatingips" | "/load-balancer/v2/lbaas/loadbalancers",
        ) => answer_with(201, &json!({})),
        ("GET", path) => {
            let id = path.strip_prefix("/compute/v2.1/servers/").unwrap_or_default();
            match store.servers.iter().find(|server| server["id"] == id) {
                Some(server) => answer_with(200, &json!({ "server": server })),
                None => {
                    let message = format!("Instance {id} could not be found.");
                    answer_with(404, &json!({ "itemNotFound": { "code": 404, "message": message } }))
                }
            }
        }
        _ => answer_with(405, &Value::Null),
    }
}

fn is_asked(item: &Value, query: &[(&str, &str)]) -> bool {
    ["id", "name", "description"].into_iter().all(|key| {
        let mut wanted = query.iter().filter(|(name, _)| *name == key).map(|(_, value)| *value).peekable();
        let text = encode(item[key].as_str().unwrap_or_default());
        wanted.peek().is_none() || wanted.any(|one| one == text)
    })
}

/// Splits a listing into pages as Nova and Neutron do. A full page has a next link even if no item follows. The host in the link is
/// replaced, as a proxy would do.
fn paged(collection: &str, items: Vec<&Value>, query: &[(&str, &str)], max: usize) -> Response {
    let of = |key: &str| query.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let limit = of("limit").and_then(|limit| limit.parse().ok()).unwrap_or(max).min(max);
    let from = of("marker")
        .map_or(0, |marker| items.iter().position(|item| item["id"] == marker).map_or(0, |at| at + 1));
    let page: Vec<&Value> = items.into_iter().skip(from).take(limit).collect();
    let mut body = json!({ collection: page });
    if page.len() == limit {
        let others =
            query.iter().filter(|(name, _)| *name != "marker").map(|(name, value)| format!("{name}={value}"));
        let others: Vec<String> = others.collect();
        let marker = page.last().and_then(|item| item["id"].as_str()).unwrap_or_default();
        let href = format!("http://inside.example:1/else?{}&marker={marker}", others.join("&"));
        body[format!("{collection}_links")] = json!([{ "rel": "next", "href": href }]);
    }
    answer_with(200, &body)
}

fn log_in(shared: &Shared) -> Response {
    let mut store = shared.store.lock().expect("not poisoned");
    if store.deleted {
        let body = "Could not find Application Credential: 1afa666b2d0242b7af9190175687132d.";
        return answer_with(404, &json!({ "error": { "code": 404, "title": "Not Found", "message": body } }));
    }
    if store.locked {
        let body = "The request you have made requires authentication.";
        return answer_with(
            401,
            &json!({ "error": { "code": 401, "title": "Unauthorized", "message": body } }),
        );
    }
    store.issued += 1;
    let token = format!("token-{}", store.issued);
    store.tokens.insert(token.clone());
    let issued: Timestamp = "2026-11-21T08:00:00Z".parse().expect("a time");
    let expires = issued + SignedDuration::try_from(store.life).expect("short");
    let entry = |kind: &str, path: &str| {
        let url = format!("{}{path}", shared.url);
        json!({ "type": kind, "name": kind, "endpoints": [
            { "id": "1", "interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": url },
        ] })
    };
    let mut catalogue = vec![entry("compute", "/compute/v2.1"), entry("network", "/network")];
    // The service catalogue lists a load balancer service only if the cloud has load balancers.
    if store.lists.keys().any(|path| path.starts_with("/load-balancer/")) {
        catalogue.push(entry("load-balancer", "/load-balancer"));
    }
    let body = json!({ "token": {
        "methods": ["password"],
        "issued_at": issued, "expires_at": expires,
        "project": { "id": PROJECT, "name": "shop", "domain": { "id": "default", "name": "Default" } },
        "user": { "id": "1", "name": "demo", "domain": { "id": "default", "name": "Default" } },
        "roles": [{ "id": "2", "name": "member" }],
        "catalog": catalogue,
    } });
    let mut response = answer_with(201, &body);
    response.headers_mut().insert("x-subject-token", token.parse().expect("a header"));
    response
}

fn answer_with(status: u16, body: &Value) -> Response {
    (StatusCode::from_u16(status).expect("a status"), axum::Json(body.clone())).into_response()
}
