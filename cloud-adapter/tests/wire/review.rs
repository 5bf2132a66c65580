//! Tests with a fake API server that reviews tokens and publishes keys. Token reviews and keys are not stored objects, so this test serves
//! them through routes of its own.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::IntoResponse,
    routing::{get, post},
};
use cloud_adapter::{
    auth::{ApiServer, Authentication, Bearers, KeySource, Keys},
    testing::{AUDIENCE, ISSUER, TokenKey, claims, jwks},
};
use cloud_api_proto::Reason;
use controller_core::testing::{FakeKube, KubePort};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::bench::{Bench, Setting, until};

const METHOD: &str = "/cloudadapter.v1alpha1.AdapterService/GetInfo";
const WHO: &str = "kube-system:node-controller";
const IDENTITIES: [&str; 1] = ["node-controller=kube-system/node-controller"];

/// The current answer of the API server, and the requests that it received.
#[derive(Debug, Default)]
struct ApiServerState {
    status: Value,
    jwks: String,
    away: bool,
    reviews: Vec<Value>,
}

/// Number of reviews that the API server answers concurrently, unless a test holds reviews back.
const HANDS: u32 = 1000;

type Shared = Arc<Mutex<ApiServerState>>;

struct Cluster {
    answers: Shared,
    /// Each review holds a permit while it is answered.
    turn: Arc<Semaphore>,
    port: KubePort,
}

impl Cluster {
    async fn start() -> Self {
        let answers = Shared::default();
        let turn = Arc::new(Semaphore::new(HANDS as usize));
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/openid/v1/jwks", get(keys))
            .with_state(Arc::clone(&answers))
            .route(
                "/apis/authentication.k8s.io/v1/tokenreviews",
                post(review).with_state((Arc::clone(&answers), Arc::clone(&turn))),
            );
        let port = FakeKube::new().listen_with(routes).await.expect("a port");
        Self { answers, turn, port }
    }

    fn api(&self) -> ApiServer {
        ApiServer::new(Some(self.port.kubeconfig.path().to_path_buf()))
    }

    fn set(&self, change: impl FnOnce(&mut ApiServerState)) {
        change(&mut self.answers.lock().expect("whole"));
    }

    fn reviews(&self) -> usize {
        self.answers.lock().expect("whole").reviews.len()
    }
}

async fn discovery(State(answers): State<Shared>) -> axum::response::Response {
    let answers = answers.lock().expect("whole");
    if answers.away {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    // The discovery document contains an address that the test cannot reach.
    Json(json!({ "issuer": ISSUER, "jwks_uri": "https://192.0.2.1:6443/openid/v1/jwks" })).into_response()
}

async fn keys(State(answers): State<Shared>) -> String {
    answers.lock().expect("whole").jwks.clone()
}

async fn review(
    State((answers, turn)): State<(Shared, Arc<Semaphore>)>,
    Json(review): Json<Value>,
) -> axum::response::Response {
    let _turn = turn.acquire().await;
    let mut answers = answers.lock().expect("whole");
    if answers.away {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    answers.reviews.push(review["spec"].clone());
    let status = answers.status.clone();
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}, "status": status });
    (StatusCode::CREATED, Json(review)).into_response()
}

async fn asking(cluster: &Cluster) -> Bench {
    let authentication =
        Authentication::Bearer(Box::new(Bearers::review(AUDIENCE.to_owned(), cluster.api())));
    Bench::start(Setting { authentication, identities: &IDENTITIES, ..Setting::default() }).await
}

fn accepted(audiences: &Value, user: &str) -> Value {
    json!({ "authenticated": true, "audiences": audiences, "user": { "username": user } })
}

#[tokio::test]
async fn reviews_ask_for_the_audience_and_are_cached() {
    let (cluster, key) = (Cluster::start().await, TokenKey::elliptic("a"));
    let bench = asking(&cluster).await;
    let user = format!("system:serviceaccount:{WHO}");
    cluster.set(|answers| answers.status = accepted(&json!([AUDIENCE]), &user));
    let token = key.token(WHO);
    let client = bench.plain().with(&token);
    for _ in 0..3 {
        assert_eq!(client.call(METHOD).await, Ok(format!("node-controller {user}")));
    }
    let asked = cluster.answers.lock().expect("whole").reviews.clone();
    assert_eq!(
        asked,
        [json!({ "token": token, "audiences": [AUDIENCE] })],
        "one request, for the adapter's audience"
    );
}

#[tokio::test]
async fn a_review_without_the_audience_is_refused() {
    let (cluster, key) = (Cluster::start().await, TokenKey::elliptic("a"));
    let bench = asking(&cluster).await;
    let user = format!("system:serviceaccount:{WHO}");
    for (name, status) in [
        ("the token is not accepted", json!({ "authenticated": false })),
        ("the API server does not answer", json!({})),
        (
            "an API server without support for audiences",
            json!({ "authenticated": true, "user": { "username": user } }),
        ),
        ("the token is for another audience", accepted(&json!(["other"]), &user)),
        ("a person", accepted(&json!([AUDIENCE]), "alice")),
    ] {
        cluster.set(|answers| answers.status = status);
        // Use a separate token for each case, because results are cached.
        let refused = bench.plain().with(&key.token(WHO)).call(METHOD).await.expect_err(name);
        assert_eq!(refused.reason, Reason::CallerUnauthenticated, "{name}");
    }
}

#[tokio::test]
async fn a_token_with_other_audiences_is_not_reviewed() {
    let (cluster, key) = (Cluster::start().await, TokenKey::elliptic("a"));
    let bench = asking(&cluster).await;
    let user = format!("system:serviceaccount:{WHO}");
    cluster.set(|answers| answers.status = accepted(&json!([AUDIENCE]), &user));
    let mut shared = claims(WHO);
    shared["aud"] = json!([AUDIENCE, ISSUER]);
    let mut others = claims(WHO);
    others["aud"] = json!([ISSUER]);
    for token in [key.sign(&shared), key.sign(&others), "nonsense".to_owned()] {
        let refused = bench.plain().with(&token).call(METHOD).await.expect_err("refused");
        assert_eq!(refused.reason, Reason::CallerUnauthenticated);
    }
    assert_eq!(cluster.reviews(), 0);
}

#[tokio::test]
async fn callers_retry_while_the_api_server_is_not_reachable() {
    let (cluster, key) = (Cluster::start().await, TokenKey::elliptic("a"));
    let bench = asking(&cluster).await;
    cluster.set(|answers| answers.away = true);
    let client = bench.plain().with(&key.token(WHO));
    let refused = client.call(METHOD).await.expect_err("away");
    assert_eq!(refused.reason, Reason::Starting);
    let user = format!("system:serviceaccount:{WHO}");
    cluster.set(|answers| (answers.away, answers.status) = (false, accepted(&json!([AUDIENCE]), &user)));
    assert!(client.call(METHOD).await.is_ok(), "a failed review is not cached");
}

#[tokio::test]
async fn forged_tokens_evict_no_valid_ones() {
    let (cluster, key) = (Cluster::start().await, TokenKey::elliptic("a"));
    let bearers = Bearers::review(AUDIENCE.to_owned(), cluster.api());
    let authentication = Authentication::Bearer(Box::new(bearers));
    let bench = Bench::start(Setting { authentication, identities: &IDENTITIES, ..Setting::default() }).await;
    let client = bench.plain().with(&key.token(WHO));
    let user = format!("system:serviceaccount:{WHO}");
    cluster.set(|answers| answers.status = accepted(&json!([AUDIENCE]), &user));
    client.call(METHOD).await.expect("good");
    let held = cluster.turn.clone().acquire_many_owned(HANDS).await.expect("open");
    cluster.set(|answers| answers.status = json!({ "authenticated": false }));
    let (mut asking, reasons) = (JoinSet::new(), Arc::new(Mutex::new(Vec::new())));
    for number in 0..100 {
        let mut made_up = claims(WHO);
        made_up["iat"] = json!(number);
        let (caller, reasons) = (bench.plain().with(&key.sign(&made_up)), Arc::clone(&reasons));
        asking.spawn(async move {
            let refused = caller.call(METHOD).await.expect_err("forged");
            reasons.lock().expect("whole").push(refused.reason);
        });
    }
    let starting = || reasons.lock().expect("whole").iter().filter(|why| **why == Reason::Starting).count();
    until("callers beyond the limit are asked to retry", async || starting() == 32).await;
    client.call(METHOD).await.expect("the result is cached, and no request is sent");
    drop(held);
    asking.join_all().await;
    assert_eq!(starting(), 32, "the waiting callers got an answer");
}

#[tokio::test]
async fn keys_and_issuer_are_discovered() {
    let (cluster, key) = (Cluster::start().await, TokenKey::rsa("a"));
    cluster.set(|answers| answers.jwks = jwks(&[&key]));
    let keys = Arc::new(Keys::new(KeySource::ApiServer { api: cluster.api(), issuer: None }));
    let authentication =
        Authentication::Bearer(Box::new(Bearers::offline(AUDIENCE.to_owned(), Arc::clone(&keys))));
    let bench = Bench::start(Setting { authentication, identities: &IDENTITIES, ..Setting::default() }).await;
    let client = bench.plain().with(&key.token(WHO));
    assert!(client.call(METHOD).await.is_ok());
    cluster.set(|answers| answers.away = true);
    keys.fetch().await.expect_err("away");
    assert!(client.call(METHOD).await.is_ok(), "known keys are still used");
    assert!(bench.plain().with(&key.token("kube-system:node-controller")).call(METHOD).await.is_ok());
    assert_eq!(cluster.reviews(), 0, "no token is reviewed");
}
