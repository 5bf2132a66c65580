//! The program serves even without a cloud, and reports which parts are not written yet. Delete the last test with the first part.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails at the first unexpected result"
)]

use std::{io::Write as _, process::Stdio, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        GetInfoRequest, RequestContext, WatchInstancesRequest, adapter_service_client::AdapterServiceClient,
        instance_service_client::InstanceServiceClient,
    },
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// Timeout that is long enough for a busy host.
const PATIENCE: Duration = Duration::from_mins(1);
/// Interval between polls of a condition.
const TICK: Duration = Duration::from_millis(10);

type Log = Lines<BufReader<ChildStderr>>;

#[tokio::test]
async fn program_serves_without_a_cloud() {
    let (_adapter, _log, channel) = start().await;

    let info = AdapterServiceClient::new(channel.clone())
        .get_info(GetInfoRequest { context: context() })
        .await
        .expect("the program answers without a cloud")
        .into_inner();
    assert_eq!(info.adapter_name, "adapter-skeleton");

    let mut health = HealthClient::new(channel);
    for (service, wanted) in
        [("", ServingStatus::Serving), ("cloudadapter.v1alpha1.InstanceService", ServingStatus::NotServing)]
    {
        let asked = health.check(HealthCheckRequest { service: service.to_owned() }).await;
        assert_eq!(asked.expect("known service").into_inner().status(), wanted, "{service:?}");
    }
}

#[tokio::test]
async fn it_says_what_is_not_written_yet() {
    let (_adapter, _log, channel) = start().await;
    let mut instances = InstanceServiceClient::new(channel);
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            let watch = WatchInstancesRequest { context: context(), ..WatchInstancesRequest::default() };
            let refused = instances.watch_instances(watch).await.expect_err("the cloud cannot be reached");
            let error = AdapterError::from(refused);
            assert_eq!(error.reason, Reason::Starting, "{error}");
            let parts =
                ["not written yet", "1. self_check", "src/instances.rs", "src/plan.rs", "src/routes.rs"];
            if parts.iter().all(|part| error.message.contains(part)) {
                return;
            }
            tokio::time::sleep(TICK).await;
        }
    });
    told.await.expect("the program reports the missing parts");
}

fn context() -> Option<RequestContext> {
    Some(RequestContext { cluster_id: "c".to_owned(), ..RequestContext::default() })
}

/// Starts the program on free ports. The caller must read its log. The program is killed when the child is dropped.
async fn start() -> (Child, Log, Channel) {
    let mut token = tempfile::NamedTempFile::new().expect("a file");
    writeln!(token, "s3cret").expect("room");
    let mut adapter = Command::new(env!("CARGO_BIN_EXE_adapter-skeleton"))
        .args(["--endpoint", "http://127.0.0.1:1", "--region", "r1", "--token-file"])
        .arg(token.path())
        .args(["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--log-format", "json"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("runs");
    let mut log = BufReader::new(adapter.stderr.take().expect("piped")).lines();
    let listens = tokio::time::timeout(PATIENCE, async {
        loop {
            let line = log.next_line().await.expect("text").expect("the program does not end");
            let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            if let Some(grpc) = line["fields"]["grpc"].as_str() {
                return grpc.to_owned();
            }
        }
    });
    let url = format!("http://{}", listens.await.expect("listens"));
    (adapter, log, Endpoint::try_from(url).expect("a URL").connect_lazy())
}
