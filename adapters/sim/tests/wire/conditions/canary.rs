//! Tests that secrets are not disclosed. No answer, log line or metric contains the cloud's token or a caller's token, even if the vendor
//! repeats a token that it received. Logs are tested at level trace, for all targets.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use cloud_adapter::testing::{AUDIENCE, TokenKey, claims};
use cloud_api_proto::v1alpha1::{
    BatchGetInstancesRequest, DeleteLoadBalancerRequest, GetInfoRequest, InstanceRef, RequestContext,
    WatchStatusRequest, adapter_service_client::AdapterServiceClient, instance_ref::Ref,
    instance_service_client::InstanceServiceClient, load_balancer_service_client::LoadBalancerServiceClient,
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use crate::{
    conditions::callers::{Guarded, bearing},
    conditions::program::Program,
    conditions::world::{UNLIMITED, cloud},
    support::until,
    support::wanted::{key, owner},
    support::{context, fence},
};

const CANARY: &str = "canary-7c0ffee-b1rd-of-the-mine";

/// A vendor that can be set to refuse all requests. The body and a header of the refusals repeat the received token.
#[derive(Clone, Default)]
struct Echo {
    /// The status of all responses except the response to the self-check.
    status: Arc<AtomicU16>,
    heard: Arc<AtomicU64>,
}

impl Echo {
    async fn serve(&self, serving: &mut JoinSet<()>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = Router::new().fallback(answer).with_state(self.clone());
        serving.spawn(async move { axum::serve(listener, router).await.expect("serves") });
        url
    }
}

async fn answer(State(echo): State<Echo>, uri: Uri, headers: HeaderMap) -> Response {
    let got = headers.get("authorization").map(|value| value.to_str().expect("ASCII")).unwrap_or_default();
    echo.heard.fetch_add(u64::from(got.contains(CANARY)), Ordering::Relaxed);
    let status = StatusCode::from_u16(echo.status.load(Ordering::Relaxed)).expect("a status");
    if uri.path() == "/v1/project" {
        let project = json!({ "account": "sim", "project": "demo", "region": "sim-1" });
        return project.to_string().into_response();
    }
    let words = format!("no good: {got}");
    let refusal = json!({ "code": format!("bad {got}"), "message": words, "request_id": words });
    match status.as_u16() {
        200 => json!({ "instances": [], "next": null, "load_balancers": [] }).to_string().into_response(),
        // This response is an HTML page, as from a proxy.
        502 => (status, format!("<html>{words}</html>")).into_response(),
        // This response is a success, but its body is not a listing.
        203 => (StatusCode::OK, json!({ "instances": words }).to_string()).into_response(),
        _ => (status, [("x-request-id", words)], refusal.to_string()).into_response(),
    }
}

#[derive(Default)]
struct Heard(String);

impl Heard {
    fn note(&mut self, what: &impl std::fmt::Debug) {
        self.0.push_str(&format!("{what:?}\n"));
    }
}

/// Sends every request that a caller with all roles can make.
async fn ask(guarded: &Guarded, heard: &mut Heard) {
    let (operator, node, service) =
        (guarded.token("operator"), guarded.token("node-controller"), guarded.token("service-controller"));
    let info = GetInfoRequest { context: Some(context()) };
    heard.note(&guarded.info().get_info(bearing(&operator, info)).await);
    let status = WatchStatusRequest { context: Some(context()) };
    let mut stream =
        guarded.info().watch_status(bearing(&operator, status)).await.expect("admitted").into_inner();
    heard.note(&stream.message().await);
    let now = RequestContext { max_staleness: Some(prost_types::Duration::default()), ..context() };
    for one in [Ref::ProviderId("sim://sim-1/i-0001".into()), Ref::NodeName("node-1".into())] {
        let refs = vec![InstanceRef { r#ref: Some(one), ..InstanceRef::default() }];
        let request = BatchGetInstancesRequest { context: Some(now.clone()), refs };
        let mut request = bearing(&node, request);
        request.set_timeout(Duration::from_secs(2));
        let mut client = InstanceServiceClient::new(guarded.adapter.channel.clone());
        heard.note(&client.batch_get_instances(request).await);
    }
    let delete = DeleteLoadBalancerRequest {
        context: Some(now),
        key: Some(key("web")),
        owner: Some(owner("web")),
        fence: Some(fence(1, 1)),
        ..DeleteLoadBalancerRequest::default()
    };
    let mut client = LoadBalancerServiceClient::new(guarded.adapter.channel.clone());
    heard.note(&client.delete_load_balancer(bearing(&service, delete)).await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(guarded.adapter.channel.clone());
    let request = bearing(&operator, tokio_stream::once(request));
    heard.note(&client.server_reflection_info(request).await.expect("admitted").into_inner().message().await);
    for page in ["/metrics", "/readyz", "/healthz"] {
        heard.note(&guarded.adapter.page(page).await);
    }
}

/// Returns tokens that are refused, each for a different reason.
fn bad_tokens(guarded: &Guarded) -> Vec<String> {
    let account = "kube-system:service-controller";
    let wrong = |claim: &str, value: serde_json::Value| {
        let mut claims = claims(account);
        claims[claim] = value;
        guarded.key.sign(&claims)
    };
    let good = guarded.token("service-controller");
    vec![
        wrong("exp", json!(1)),
        wrong("aud", json!(["https://kubernetes.default.svc"])),
        wrong("iss", json!("https://elsewhere")),
        wrong("sub", json!("system:serviceaccount:kube-system:stranger")),
        TokenKey::elliptic("a").token(account),
        TokenKey::elliptic("unheard-of").token(account),
        good.strip_suffix(|_: char| true).expect("a character").to_owned(),
        format!("{good}.more"),
        "no-token-at-all-but-surely-secret".to_owned(),
    ]
}

#[tokio::test]
async fn no_secret_is_disclosed() {
    let (echo, mut serving) = (Echo::default(), JoinSet::new());
    echo.status.store(200, Ordering::Relaxed);
    let url = echo.serve(&mut serving).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("{CANARY}\n")).expect("a written file");
    let path = file.path().to_str().expect("a plain path");
    let guarded = Guarded::before(&url, &["--token-file", path, "--log-level", "trace"]).await;
    guarded.ready().await;

    let mut heard = Heard::default();
    for status in [200, 203, 401, 403, 404, 429, 500, 502] {
        echo.status.store(status, Ordering::Relaxed);
        ask(&guarded, &mut heard).await;
    }
    let bad = bad_tokens(&guarded);
    for token in &bad {
        let request = bearing(token, GetInfoRequest { context: Some(context()) });
        heard.note(&guarded.info().get_info(request).await.expect_err("a bad token"));
    }
    heard.note(&guarded.adapter.page("/metrics").await);
    let good = ["operator", "node-controller", "service-controller"].map(|name| guarded.token(name));
    assert!(echo.heard.load(Ordering::Relaxed) > 8, "the cloud received its token");
    let log = guarded.adapter.process.ended().await;

    for proof in [r#""level":"TRACE""#, r#""target":"h2::"#, "Vendor request"] {
        assert!(log.contains(proof), "the log is not at its most verbose level: {proof} is missing");
    }
    // The adapter passes on the vendor's messages, but without the secret. The three cases are a refusal, a proxy's page, and a success
    // with an unreadable body.
    for words in ["no good: Bearer [secret]", "502 Bad Gateway: <html>no good", "cannot parse the answer"] {
        assert!(heard.0.contains(words), "{words} is not in\n{}", heard.0);
    }
    let secrets = bad.iter().chain(&good).map(String::as_str).chain([CANARY]);
    kept(secrets, &[("an answer", &heard.0), ("the log", &log)]);
}

/// Asserts that no part of a secret is in any of the texts. Short parts are skipped; for a token, the signature is checked.
#[track_caller]
fn kept<'a>(secrets: impl IntoIterator<Item = &'a str>, texts: &[(&str, &str)]) {
    for part in secrets.into_iter().flat_map(|secret| secret.split('.')).filter(|part| part.len() > 12) {
        for (place, text) in texts {
            let found = text.lines().find(|line| line.contains(part));
            assert_eq!(found, None, "{part} is in {place}");
        }
    }
}

/// The tokens that the API server receives: the adapter's own token, and the tokens to review.
type Asked = Arc<Mutex<String>>;

async fn api_server(asked: &Asked, serving: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let router = Router::new().fallback(review).with_state(Arc::clone(asked));
    serving.spawn(async move { axum::serve(listener, router).await.expect("serves") });
    url
}

async fn review(State(asked): State<Asked>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    asked.lock().expect("whole").push_str(&format!("{headers:?} {body}\n"));
    if !uri.path().ends_with("/tokenreviews") {
        let refusal = json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no" });
        return (StatusCode::FORBIDDEN, refusal.to_string()).into_response();
    }
    let user = json!({ "username": "system:serviceaccount:kube-system:operator" });
    let status = json!({ "authenticated": true, "user": user, "audiences": [AUDIENCE] });
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {}, "status": status,
    });
    review.to_string().into_response()
}

/// Tests two more tokens of a replica: the token for the API server, and the token for watching the leader.
#[tokio::test]
async fn tokens_for_the_api_server_are_not_disclosed() {
    const OWN: &str = "canary-of-the-pod-itself-0123456789";
    const PEER: &str = "canary-among-replicas-0123456789";
    let (asked, mut serving, cloud) = (Asked::default(), JoinSet::new(), cloud().await);
    let api = api_server(&asked, &mut serving).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (kubeconfig, peer) = (folder.path().join("kubeconfig"), folder.path().join("peer"));
    let text = format!(
        "{{apiVersion: v1, kind: Config, clusters: [{{name: c, cluster: {{server: \"{api}\"}}}}], users: [{{name: u, user: {{token: \
         {OWN}}}}}], contexts: [{{name: x, context: {{cluster: c, user: u}}}}], current-context: x}}"
    );
    std::fs::write(&kubeconfig, text).expect("a written file");
    std::fs::write(&peer, PEER).expect("a written file");
    let flags = [
        "--authentication=token-review",
        "--cluster-id=c-1",
        "--token-audience",
        AUDIENCE,
        "--identity=operator=kube-system/operator",
        "--kubeconfig",
        kubeconfig.to_str().expect("a plain path"),
        "--replicas=active-standby",
        "--advertise-address=127.0.0.1:1",
        "--lease-namespace=n",
        "--peer-token-file",
        peer.to_str().expect("a plain path"),
        "--log-level=trace",
    ];
    let adapter = Program::start(&cloud.url, UNLIMITED, &flags).await;
    let token = TokenKey::elliptic("a").token("kube-system:operator");
    let mut heard = Heard::default();
    let mut info = AdapterServiceClient::new(adapter.channel.clone());
    let request = GetInfoRequest { context: Some(context()) };
    heard.note(&info.get_info(bearing(&token, request)).await.expect("the token review succeeded"));
    until("a request for the Lease", async || asked.lock().expect("whole").lines().count() > 1).await;
    heard.note(&adapter.page("/metrics").await);
    heard.note(&adapter.page("/readyz").await);
    let log = adapter.process.ended().await;
    let asked = asked.lock().expect("whole").clone();
    assert!(asked.contains(OWN) && asked.contains(&token), "the API server received:\n{asked}");
    assert!(log.contains("Access to the Lease is forbidden"), "{log}");
    kept([OWN, PEER, &token], &[("an answer", &heard.0), ("the log", &log)]);
}
