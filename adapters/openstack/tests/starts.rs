//! The program serves even if the cloud cannot be reached, and reports errors in its credentials.

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

const CLOUDS: &str = "
clouds:
  test:
    auth: { auth_url: 'http://127.0.0.1:1/v3', application_credential_id: a, application_credential_secret: s3cret }
    region_name: r1
";

type Log = Lines<BufReader<ChildStderr>>;

#[tokio::test]
async fn program_starts_and_waits_for_the_cloud() {
    let (_adapter, _log, channel) = start().await;
    let context = Some(RequestContext { cluster_id: "c".to_owned(), ..RequestContext::default() });

    let info = AdapterServiceClient::new(channel.clone())
        .get_info(GetInfoRequest { context: context.clone() })
        .await
        .expect("the program answers without a cloud")
        .into_inner();
    assert_eq!((info.adapter_name.as_str(), info.provider.as_str()), ("adapter-openstack", "openstack"));
    let capabilities: Vec<&str> = info.capabilities.iter().map(|one| one.name.as_str()).collect();
    for wanted in ["instances", "instances.shutdown-state", "loadbalancers", "lb.ownership-tags"] {
        assert!(capabilities.contains(&wanted), "{wanted} is not in {capabilities:?}");
    }
    assert!(
        !capabilities.contains(&"routes"),
        "the adapter has no routes without a router: {capabilities:?}"
    );

    let mut health = HealthClient::new(channel.clone());
    for (service, wanted) in
        [("", ServingStatus::Serving), ("cloudadapter.v1alpha1.InstanceService", ServingStatus::NotServing)]
    {
        let asked = health.check(HealthCheckRequest { service: service.to_owned() }).await;
        assert_eq!(asked.expect("known service").into_inner().status(), wanted, "{service:?}");
    }

    let mut instances = InstanceServiceClient::new(channel);
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            let watch =
                WatchInstancesRequest { context: context.clone(), ..WatchInstancesRequest::default() };
            let refused = instances.watch_instances(watch).await.expect_err("the cloud cannot be reached");
            let error = AdapterError::from(refused);
            assert_eq!(error.reason, Reason::Starting, "{error}");
            if error.message.contains("CreateToken: 127.0.0.1") {
                return;
            }
            tokio::time::sleep(TICK).await;
        }
    });
    told.await.expect("the program reports what it waits for");
}

#[tokio::test]
async fn invalid_credentials_are_wrong_usage() {
    let mut adapter = Command::new(env!("CARGO_BIN_EXE_adapter-openstack"));
    adapter
        .env_clear()
        .env("OS_AUTH_URL", "http://127.0.0.1:1/v3")
        .env("OS_PASWORD", "hunter2")
        .env("OS_REGION_NAME", "r1");
    let ended = tokio::time::timeout(PATIENCE, adapter.stdin(Stdio::null()).output())
        .await
        .expect("ends")
        .expect("runs");
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{text}");
    for wanted in
        ["OS_PASWORD: unknown key: did you mean OS_PASSWORD?", "OS_PASSWORD: is missing: set a password"]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

/// Checks that docs/clouds/openstack.md lists each flag of this adapter, in the order of `--help`, and no other flag.
#[tokio::test]
async fn operator_page_lists_all_flags() {
    let adapter = Command::new(env!("CARGO_BIN_EXE_adapter-openstack")).arg("--help").output();
    let help = String::from_utf8(adapter.await.expect("runs").stdout).expect("text");
    let heading = |line: &&str| !line.is_empty() && !line.starts_with(' ');
    let mut flags = Vec::new();
    for own in ["OpenStack:", "Load balancers:"] {
        let section = help.lines().skip_while(|line| *line != own).skip(1).take_while(|line| !heading(line));
        // The descriptions are indented further than flags, and mention other flags.
        let names = section.filter_map(|line| line.strip_prefix("      --")?.split(' ').next());
        flags.extend(names);
    }
    let page = include_str!("../../../docs/clouds/openstack.md");
    let told: Vec<&str> =
        page.lines().filter_map(|line| Some(line.strip_prefix("| `--")?.split_once('`')?.0)).collect();
    assert!(flags.len() > 10, "{help}");
    assert_eq!(told, flags);
}

/// Starts the program on free ports. The caller must read its log. The program is killed when the child is dropped.
async fn start() -> (Child, Log, Channel) {
    let mut clouds = tempfile::NamedTempFile::new().expect("a file");
    writeln!(clouds, "{CLOUDS}").expect("room");
    let mut adapter = Command::new(env!("CARGO_BIN_EXE_adapter-openstack"))
        .arg("--clouds-file")
        .arg(clouds.path())
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
