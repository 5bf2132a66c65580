//! Tests of the simulated cloud over HTTP on a loopback port, with paused time. They check the behaviour that is visible only over the
//! network.

#![expect(clippy::unwrap_used, reason = "a test should panic on an unexpected result")]

use std::time::Duration;

use adapter_sim::simcloud::model::Project;
use adapter_sim::simcloud::{Cloud, SharedCloud, serve};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct Server {
    client: Client,
    url: String,
    shutdown: CancellationToken,
    serving: JoinSet<std::io::Result<()>>,
}

async fn start(token: Option<&str>) -> Server {
    let project = Project { account: "sim".into(), project: "demo".into(), region: "sim-1".into() };
    let cloud = Cloud::new(project);
    let cloud = if let Some(token) = token { cloud.with_token(token) } else { cloud };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    serving.spawn(serve(listener, SharedCloud::new(cloud), shutdown.clone()));
    // A connection pool has timers. When the test pauses the time, tokio would jump to these timers.
    #[expect(
        clippy::disallowed_methods,
        reason = "tests act as the vendor's operator, which needs no budget"
    )]
    let client = Client::builder().pool_max_idle_per_host(0).no_proxy().build().unwrap();
    Server { client, url, shutdown, serving }
}

impl Server {
    async fn try_send(&self, method: Method, path: &str, body: Value) -> reqwest::Result<Response> {
        let request = self.client.request(method, format!("{}{path}", self.url));
        if body.is_null() { request.send().await } else { request.json(&body).send().await }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let response = self.try_send(method, path, body).await.unwrap();
        assert!(response.headers().contains_key("x-request-id"), "{path}");
        (response.status(), response.json().await.unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }

    async fn admin(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, body) = self.send(method, &format!("/admin/{path}"), body).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }

    async fn create(&self) -> (StatusCode, Value) {
        self.send(Method::POST, "/v1/load-balancers", json!({ "name": "web", "scheme": "internet" })).await
    }
}

#[tokio::test(start_paused = true)]
async fn instances_are_listed_in_pages_by_id_and_by_name() {
    let server = start(None).await;
    server.admin(Method::POST, "instances", json!({ "count": 7, "name": "node-{n}" })).await;
    let first = server.get("/v1/instances?limit=4").await;
    let next = first["next"].as_str().unwrap();
    let second = server.get(&format!("/v1/instances?limit=4&cursor={next}")).await;
    assert_eq!(
        (&first["instances"][3]["id"], &second["instances"][0]["id"]),
        (&json!("i-0004"), &json!("i-0005"))
    );
    assert_eq!(second["next"], Value::Null);
    assert_eq!(server.get("/v1/instances?ids=i-0002,i-0099").await["missing"], json!(["i-0099"]));
    assert_eq!(server.get("/v1/instances?name=node-3").await["instances"][0]["id"], json!("i-0003"));
    assert_eq!(server.get("/v1/instances/i-0007").await["addresses"][0]["address"], json!("10.0.0.7"));

    let (_, refusal) = server.send(Method::GET, "/v1/instances?cursor=i5", Value::Null).await;
    assert_eq!(refusal["details"]["field"], json!("cursor"));
    assert!(refusal["request_id"].as_str().unwrap().starts_with("req-"), "{refusal}");
    let counts = server.admin(Method::GET, "counts", Value::Null).await;
    assert_eq!(
        counts["by_operation"],
        json!({ "ListInstances": 3, "BatchGetInstances": 1, "FindInstances": 1, "GetInstance": 1 })
    );
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_cannot_be_changed_until_it_is_built() {
    let server = start(None).await;
    let (status, balancer) = server.create().await;
    assert_eq!((status, &balancer["status"]), (StatusCode::ACCEPTED, &json!("PENDING_CREATE")));
    let listener = json!({ "protocol": "TCP", "port": 80, "pool": { "protocol": "TCP" } });
    let listeners = "/v1/load-balancers/lb-0001/listeners";
    let (status, refusal) = server.send(Method::POST, listeners, listener.clone()).await;
    assert_eq!((status, &refusal["code"]), (StatusCode::CONFLICT, &json!("immutable")));

    tokio::time::advance(Duration::from_millis(300)).await;
    assert_eq!(server.send(Method::POST, listeners, listener).await.0, StatusCode::ACCEPTED);
    tokio::time::advance(Duration::from_millis(100)).await;
    let members = json!({ "add": [{ "address": "10.0.0.1", "port": 30080 }] });
    let (status, answer) = server.send(Method::POST, "/v1/pools/pool-0001/members:update", members).await;
    assert_eq!((status, &answer["members"]), (StatusCode::ACCEPTED, &json!(1)));
    tokio::time::advance(Duration::from_millis(100)).await;
    let path = "/v1/load-balancers/lb-0001?cascade=true";
    assert_eq!(server.send(Method::DELETE, path, Value::Null).await.0, StatusCode::ACCEPTED);
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(server.get("/v1/load-balancers").await["load_balancers"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn throttled_calls_say_when_to_come_back() {
    let server = start(None).await;
    let limits = json!({ "rate_limits": { "account": { "rate": 0.1, "burst": 1 } } });
    server.admin(Method::PATCH, "settings", limits).await;
    server.get("/v1/project").await;
    let refused = server.try_send(Method::GET, "/v1/routes", Value::Null).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let header = |name: &str| refused.headers()[name].to_str().unwrap();
    let headers = ["retry-after", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"].map(header);
    assert_eq!(headers, ["10", "1", "0", "10"]);
    tokio::time::advance(Duration::from_secs(10)).await;
    server.get("/v1/routes").await;
}

#[tokio::test(start_paused = true)]
async fn quotas_and_the_consistency_lag_show_over_http() {
    let server = start(None).await;
    let settings = json!({ "consistency_ms": 500, "quotas": { "load_balancers": 1 } });
    server.admin(Method::PATCH, "settings", settings).await;
    server.create().await;
    assert_eq!(server.get("/v1/load-balancers").await["load_balancers"], json!([]));
    let (status, refusal) = server.create().await;
    assert_eq!((status, &refusal["details"]["quota"]), (StatusCode::FORBIDDEN, &json!("load_balancers")));
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(server.get("/v1/load-balancers").await["load_balancers"][0]["id"], json!("lb-0001"));
}

#[tokio::test(start_paused = true)]
async fn connection_closes_before_or_after_execution() {
    for (action, made) in [("close_before", 0), ("close_after", 1)] {
        let server = start(None).await;
        let rule = json!({ "match": { "operation": "CreateLoadBalancer" }, "when": { "next": 1 }, "action": action });
        server.admin(Method::POST, "faults", rule).await;
        let body = json!({ "name": "web", "scheme": "internet" });
        let error = server.try_send(Method::POST, "/v1/load-balancers", body).await.unwrap_err();
        assert!(error.is_request(), "{action}: {error:?}");
        let state = server.admin(Method::GET, "state", Value::Null).await;
        assert_eq!(state["load_balancers"].as_array().unwrap().len(), made, "{action}");
        let counts = server.admin(Method::GET, "counts", Value::Null).await;
        assert_eq!(counts["by_status"], json!({ "closed": 1 }), "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn truncated_answer_has_full_content_length() {
    let server = start(None).await;
    let rule = json!({ "match": { "operation": "ListRoutes" }, "action": "truncate_body" });
    server.admin(Method::POST, "faults", rule).await;
    let response = server.try_send(Method::GET, "/v1/routes", Value::Null).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let announced = response.content_length().unwrap();
    assert_eq!(announced, r#"{"next":null,"routes":[]}"#.len() as u64);
    assert!(response.bytes().await.is_err(), "the connection ends early");
    server.admin(Method::DELETE, "faults/f-0001", Value::Null).await;
    server.get("/v1/routes").await;
}

#[tokio::test(start_paused = true)]
async fn call_executes_at_once_and_answer_has_latency() {
    let server = start(None).await;
    server.admin(Method::PATCH, "settings", json!({ "latency": { "default_ms": 5000 } })).await;
    let asked = Instant::now();
    server.get("/v1/project").await;
    assert!(asked.elapsed() >= Duration::from_secs(5), "{:?}", asked.elapsed());

    let request = server.client.post(format!("{}/v1/load-balancers", server.url));
    let request =
        request.json(&json!({ "name": "web", "scheme": "internal" })).timeout(Duration::from_secs(1));
    assert!(request.send().await.unwrap_err().is_timeout());
    let state = server.admin(Method::GET, "state", Value::Null).await;
    assert_eq!(state["load_balancers"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_path_requires_the_token() {
    let server = start(Some("secret")).await;
    for path in ["/v1/project", "/v1/instances", "/admin/state", "/admin/counts"] {
        let (status, refusal) = server.send(Method::GET, path, Value::Null).await;
        assert_eq!((status, &refusal["code"]), (StatusCode::UNAUTHORIZED, &json!("unauthorized")), "{path}");
    }
    let request = server.client.get(format!("{}/v1/project", server.url)).bearer_auth("secret");
    let project: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(project, json!({ "account": "sim", "project": "demo", "region": "sim-1" }));
}

#[tokio::test(start_paused = true)]
async fn unknown_path_is_refused_and_shutdown_is_clean() {
    let mut server = start(None).await;
    for (method, path) in
        [(Method::GET, "/v2/project"), (Method::DELETE, "/v1/project"), (Method::GET, "/admin")]
    {
        let (status, refusal) = server.send(method, path, Value::Null).await;
        assert_eq!(
            (status, &refusal["code"]),
            (StatusCode::NOT_FOUND, &json!("no_such_operation")),
            "{path}"
        );
    }
    server.shutdown.cancel();
    server.serving.join_next().await.unwrap().unwrap().unwrap();
}

/// Users copy these lines, so each line must do what the text promises.
#[tokio::test(start_paused = true)]
async fn the_examples_of_the_readme_work() {
    let server = start(None).await;
    let readme = include_str!("../../README.md");
    let mut n_examples = 0;
    for line in readme.lines().filter_map(|line| line.strip_prefix("$ curl -X ")) {
        let (method, rest) = line.split_once(" localhost:9797").unwrap();
        let (path, body) = rest.split_once(" -d ").unwrap_or((rest, "null"));
        let body = serde_json::from_str(body.trim_matches('\'')).unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let (status, answer) = server.send(method, path, body).await;
        assert_eq!(status, StatusCode::OK, "{line}: {answer}");
        n_examples += 1;
    }
    assert!(n_examples >= 10, "only {n_examples} examples were found");
}
