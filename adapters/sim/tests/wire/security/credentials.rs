//! Tests in which the cloud's token is replaced while the adapter runs. A gateway in front of two clouds selects the cloud by the token.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::Method, http::StatusCode, http::Uri};
use cloud_api_proto::v1alpha1::{
    BatchGetInstancesRequest, Existence, InstanceRef, RequestContext, WatchStatusRequest,
    WatchStatusResponse, adapter_service_client::AdapterServiceClient, breaker, instance_ref::Ref,
    instance_service_client::InstanceServiceClient,
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    security::program::{CLUSTER, context, info, start},
    support::{Program, until},
};

#[derive(Clone)]
struct Gateway {
    ours: String,
    other: String,
    client: reqwest::Client,
    /// The tokens of the calls so far, without consecutive repetitions.
    seen: Arc<Mutex<Vec<String>>>,
}

async fn forward(
    State(gateway): State<Gateway>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Vec<u8>) {
    let token = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = token.trim_start_matches("Bearer ").to_owned();
    {
        let mut seen = gateway.seen.lock().expect("whole");
        if seen.last() != Some(&token) {
            seen.push(token.clone());
        }
    }
    let cloud = match token.as_str() {
        "ours-1" | "ours-2" => &gateway.ours,
        "other" => &gateway.other,
        _ => {
            let refusal = json!({ "error": { "code": "unauthenticated", "message": "no such token" } });
            return (StatusCode::UNAUTHORIZED, refusal.to_string().into_bytes());
        }
    };
    let path = uri.path_and_query().expect("a path");
    let request = gateway.client.request(method, format!("{cloud}{path}")).body(body);
    let answer = request.header("content-type", "application/json").send().await.expect("an answer");
    (answer.status(), answer.bytes().await.expect("whole").to_vec())
}

async fn cloud(project: &str, clouds: &mut JoinSet<()>) -> String {
    use adapter_sim::simcloud::{Cloud, SharedCloud, model::Project, serve};
    let project = Project { account: "sim".into(), project: project.into(), region: "sim-1".into() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let cloud = SharedCloud::new(Cloud::new(project));
    let stop = tokio_util::sync::CancellationToken::new();
    clouds.spawn(async move { serve(listener, cloud, stop).await.expect("serves") });
    url
}

fn put(path: &Path, token: &str) {
    std::fs::write(path, token).expect("a written file");
}

async fn existence(adapter: &Program, r#ref: Ref) -> Result<Existence, tonic::Status> {
    let now = RequestContext { max_staleness: Some(prost_types::Duration::default()), ..context() };
    let one = InstanceRef { r#ref: Some(r#ref), ..InstanceRef::default() };
    let request = BatchGetInstancesRequest { context: Some(now), refs: vec![one] };
    let answer = InstanceServiceClient::new(adapter.channel.clone()).batch_get_instances(request).await?;
    Ok(answer.into_inner().results[0].existence())
}

async fn status(adapter: &Program) -> WatchStatusResponse {
    let request = WatchStatusRequest { context: Some(context()) };
    let stream = AdapterServiceClient::new(adapter.channel.clone()).watch_status(request).await;
    stream.expect("streams").into_inner().message().await.expect("the stream continues").expect("a first one")
}

#[tokio::test]
async fn new_token_is_checked_and_other_projects_refused() {
    let mut clouds = JoinSet::new();
    let (ours, other) = (cloud("ours", &mut clouds).await, cloud("other", &mut clouds).await);
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let machine = json!({ "count": 1, "name": "node-{n}" });
    let made = client.post(format!("{ours}/admin/instances")).json(&machine).send().await.expect("an answer");
    assert!(made.status().is_success(), "{made:?}");
    let gateway = Gateway { ours, other, client, seen: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let router = Router::new().fallback(forward).with_state(gateway.clone());
    clouds.spawn(async move { axum::serve(listener, router).await.expect("serves") });
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("token");
    put(&path, "ours-1");
    let file = path.to_str().expect("plain");
    let adapter = start(&["--grpc-address", "127.0.0.1:0", "--endpoint", &url, "--token-file", file]).await;
    adapter.ready(CLUSTER).await;

    let reported = async |result: &str, count: u32| {
        let line = format!(r#"config_reload_total{{kind="credentials",result="{result}"}} {count}"#);
        until(&line, async || adapter.page("/metrics").await.contains(&line)).await;
        let refused = format!(r#"config_refused{{kind="credentials"}} {}"#, u8::from(result == "failed"));
        assert!(adapter.page("/metrics").await.contains(&refused), "{refused}");
    };
    put(&path, "other");
    reported("failed", 1).await;
    put(&path, "mistyped");
    reported("failed", 2).await;
    // The valid token stays active: calls continue, and a live request is answered.
    let asked = existence(&adapter, Ref::ProviderId("sim://sim-1/i-0001".into())).await;
    assert_eq!(asked.expect("answered"), Existence::Exists);
    assert_eq!(gateway.seen.lock().expect("whole").last().map(String::as_str), Some("ours-1"));
    let status = status(&adapter).await;
    assert_eq!(status.self_check_error, None, "the check of the current credentials passed");
    let stopped = status.breakers.iter().find(|breaker| breaker.state() != breaker::State::Closed);
    assert_eq!(stopped, None);
    put(&path, "");
    reported("failed", 3).await;
    put(&path, "ours-2");
    reported("ok", 1).await;
    assert!(info(&adapter.channel.clone()).await);
    // The next listing uses only the new token.
    gateway.seen.lock().expect("whole").clear();
    let by_name = Ref::NodeName("a".into());
    until("a listing", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        existence(&adapter, by_name.clone()).await.is_ok() && !gateway.seen.lock().expect("whole").is_empty()
    })
    .await;
    assert_eq!(*gateway.seen.lock().expect("whole"), ["ours-2"]);
}
