//! The cloud's token: the adapter sends it to the cloud only, makes no calls with a rejected token, and accepts a new token.

use std::{fs, process::Stdio, time::Duration};

use adapter_sim::simcloud::{Cloud, Operation, SharedCloud, model::Project, serve};
use cloud_api_proto::{
    Reason,
    v1alpha1::{
        BatchGetInstancesRequest, GetInfoRequest, InstanceRef, WatchStatusRequest,
        adapter_service_client::AdapterServiceClient, instance_ref::Ref,
        instance_service_client::InstanceServiceClient,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::TcpListener,
    process::Command,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use crate::{
    adapter::bench::{PATIENCE, bench, context, live, refused, until},
    support::wanted::{backend, spec, tcp},
};

const CANARY: &str = "canary-7f3a-secret";

/// A cloud that requires the canary token, and repeats it in all its errors.
async fn indiscreet_cloud(serving: &mut JoinSet<std::io::Result<()>>) -> (String, SharedCloud) {
    let project = Project { account: "sim".into(), project: "demo".into(), region: "sim-1".into() };
    let cloud = SharedCloud::new(Cloud::new(project).with_token(CANARY));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    serving.spawn(serve(listener, cloud.clone(), CancellationToken::new()));
    // With a prefix of this length, an excerpt would end inside of the token.
    let body = json!({ "code": "odd", "message": format!("{}{CANARY} is what you sent", "x".repeat(100)) });
    let respond = json!({ "respond": { "status": 500, "body": body } });
    let rule = json!({ "match": { "operation": "ListInstances" }, "when": { "next": 3 }, "action": respond });
    admin(&url, "faults", &rule).await;
    (url, cloud)
}

async fn admin(url: &str, path: &str, body: &Value) {
    #[expect(
        clippy::disallowed_methods,
        reason = "tests act as the vendor's operator, which needs no budget"
    )]
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = client.post(format!("{url}/admin/{path}")).bearer_auth(CANARY).json(body);
    assert!(request.send().await.expect("an answer").status().is_success());
}

/// Collects everything that callers receive.
async fn answers(channel: Channel) -> String {
    let mut told = String::new();
    let mut info = AdapterServiceClient::new(channel.clone());
    until("the self-check", async || {
        let answer = info.get_info(GetInfoRequest { context: Some(context()) }).await;
        answer.is_ok_and(|answer| answer.into_inner().scope.is_some())
    })
    .await;
    let mut instances = InstanceServiceClient::new(channel);
    for _ in 0..4 {
        let one = InstanceRef { r#ref: Some(Ref::NodeName("node-1".into())), ..InstanceRef::default() };
        let request = BatchGetInstancesRequest { context: Some(live()), refs: vec![one] };
        told.push_str(&format!("{:?}\n", instances.batch_get_instances(request).await));
    }
    let status = info.watch_status(WatchStatusRequest { context: Some(context()) }).await;
    told.push_str(&format!("{:?}", status.expect("a stream").get_mut().message().await));
    told
}

#[tokio::test]
async fn the_token_is_in_no_answer_no_metric_and_no_log_line() {
    let mut serving = JoinSet::new();
    let (url, _cloud) = indiscreet_cloud(&mut serving).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), CANARY).expect("room");
    let mut adapter = Command::new(env!("CARGO_BIN_EXE_adapter-sim"))
        .args(["--endpoint", &url, "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"])
        .args(["--log-level", "trace", "--log-format", "json", "--token-file"])
        .arg(file.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("runs");
    let mut log = BufReader::new(adapter.stderr.take().expect("piped"));
    let mut text = String::new();
    let started = loop {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, log.read_line(&mut line)).await;
        assert!(read.expect("in time").expect("text") > 0, "it ended: {text}");
        text.push_str(&line);
        let line: Value = serde_json::from_str(&line).expect("JSON");
        if line["fields"]["grpc"].is_string() {
            break line["fields"].clone();
        }
    };
    let mut rest = JoinSet::new();
    rest.spawn(async move {
        let mut text = String::new();
        log.read_to_string(&mut text).await.expect("text");
        text
    });
    let grpc = started["grpc"].as_str().expect("told");
    let channel = Endpoint::try_from(format!("http://{grpc}")).expect("an address").connect_lazy();
    let answers = answers(channel).await;
    assert!(answers.contains("[secret] is what you"), "the cloud repeated the token: {answers}");
    #[expect(clippy::disallowed_methods, reason = "the test acts as Prometheus")]
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let page = format!("http://{}/metrics", started["http"].as_str().expect("told"));
    let metrics = client.get(page).send().await.expect("a page").text().await.expect("text");
    assert!(metrics.contains("cloud_adapter_vendor_calls_total"));
    adapter.kill().await.expect("runs");
    text.push_str(&rest.join_next().await.expect("reads").expect("to the end"));
    assert!(text.contains("Vendor request"), "the log is verbose enough");
    for (name, told) in [("answers", answers), ("metrics", metrics), ("log", text)] {
        let leak = told.lines().find(|line| line.contains(CANARY));
        assert_eq!(leak, None, "{name}");
    }
}

#[tokio::test]
async fn rejected_credentials_stop_calls_and_prove_no_absence() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    let node = || [Ref::NodeName("node-1".into())];
    bench.adapter.batch_get(live(), node()).await.expect("possible");
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let unauthorized = json!({ "match": { "operation": "*" }, "action": { "respond": { "status": 401 } } });
    bench.cloud.fault(unauthorized).await;
    let (reason, _) = refused(bench.adapter.batch_get(live(), node()).await);
    assert_eq!(reason, Reason::VendorAuth);
    until("the self-check", async || bench.cloud.count(Operation::GetProject) == 1).await;
    until("the refusal", async || {
        let error = bench.adapter.batch_get(context(), node()).await.err();
        error.is_some_and(|error| {
            error.reason == Reason::VendorAuth && error.retry_after >= Some(Duration::from_secs(30))
        })
    })
    .await;
    let before = bench.cloud.counts().total;
    assert_eq!(refused(bench.adapter.ensure(&request).await).0, Reason::VendorAuth);
    assert_eq!(refused(bench.adapter.batch_get(live(), node()).await).0, Reason::VendorAuth);
    assert_eq!(
        bench.cloud.counts().total,
        before,
        "rejected calls are not repeated, because vendors lock accounts"
    );
}
