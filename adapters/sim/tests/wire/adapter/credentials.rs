//! Tests of the cloud's token. The adapter sends the token only to the cloud, makes no calls with a rejected token, and accepts a new
//! token.

use std::{fs, time::Duration};

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
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::{
    adapter::bench::{bench, refused},
    support::wanted::{backend, spec, tcp},
    support::{PROGRAM, Program, until},
    support::{context, live},
};

const CANARY: &str = "canary-7f3a-secret";

/// Starts a cloud that requires the canary token and repeats this token in all its errors.
async fn indiscreet_cloud(serving: &mut JoinSet<std::io::Result<()>>) -> (String, SharedCloud) {
    let project = Project { account: "sim".into(), project: "demo".into(), region: "sim-1".into() };
    let cloud = SharedCloud::new(Cloud::new(project).with_token(CANARY));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    serving.spawn(serve(listener, cloud.clone(), CancellationToken::new()));
    // The prefix is long enough that an excerpt of the error ends inside the token.
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

async fn answers(channel: Channel) -> String {
    let mut answers = String::new();
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
        answers.push_str(&format!("{:?}\n", instances.batch_get_instances(request).await));
    }
    let status = info.watch_status(WatchStatusRequest { context: Some(context()) }).await;
    answers.push_str(&format!("{:?}", status.expect("a stream").get_mut().message().await));
    answers
}

#[tokio::test]
async fn the_token_is_in_no_answer_no_metric_and_no_log_line() {
    let mut serving = JoinSet::new();
    let (url, _cloud) = indiscreet_cloud(&mut serving).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), CANARY).expect("a written file");
    let path = file.path().to_str().expect("a plain path");
    let flags = ["--endpoint", &url, "--log-level", "trace", "--token-file", path];
    let adapter = Program::start(PROGRAM, flags).await;
    let answers = answers(adapter.channel.clone()).await;
    assert!(answers.contains("[secret] is what you"), "the cloud repeated the token: {answers}");
    let metrics = adapter.page("/metrics").await;
    assert!(metrics.contains("cloud_adapter_vendor_calls_total"));
    let text = adapter.ended().await;
    assert!(text.contains("Vendor request"), "the log is verbose enough");
    for (name, text) in [("answers", answers), ("metrics", metrics), ("log", text)] {
        let leak = text.lines().find(|line| line.contains(CANARY));
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
