//! A replica as a separate process.

use std::io::Write as _;

use cloud_api_proto::v1alpha1::{
    SnapshotStatus, WatchStatusRequest, WatchStatusResponse, adapter_service_client::AdapterServiceClient,
};
use controller_core::testing::{FakeKube, KubePort};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    failover::api_server,
    support::{PROGRAM, Program, TIMEOUT, cloud::TestCloud, context, until},
};

/// The bucket of one family in all tests: calls per second, and burst.
pub(crate) const RATE: f64 = 5.0;
pub(crate) const BURST: f64 = 10.0;

/// A running process. It is killed when this value is dropped.
pub(crate) struct Replica {
    pub(crate) process: Program,
    pub(crate) address: String,
    pub(crate) channel: Channel,
    pub(crate) api: KubePort,
    _config: NamedTempFile,
}

impl Replica {
    pub(crate) async fn start(cloud: &str, api: &FakeKube) -> Self {
        let address = test_support::ports::loopback().expect("a free port").to_string();
        let port = api.listen().await.expect("a port");
        let mut config = NamedTempFile::new().expect("a file");
        let others = "{rate: 1000, burst: 1000}";
        write!(
            config,
            "limits: {{safety: 1.0, buckets: {{compute: {{rate: {RATE}, burst: {BURST}}}, network: {others}, \
             loadbalancer: {others}, identity: {others}}}}}"
        )
        .expect("a written file");
        let [kubeconfig, file] =
            [&port.kubeconfig, &config].map(|file| file.path().to_str().expect("a plain path"));
        let cloud = ["--endpoint", cloud, "--replicas", "active-standby"];
        let ports = ["--grpc-address", &address, "--advertise-address", &address];
        let files = ["--kubeconfig", kubeconfig, "--config", file];
        let process = Program::start_at(PROGRAM, [cloud, ports, files].concat()).await;
        Self { channel: process.channel.clone(), process, address, api: port, _config: config }
    }

    /// Starts another replica, and waits until the health of its process is SERVING.
    pub(crate) async fn standby(cloud: &str, api: &FakeKube) -> Self {
        let replica = Self::start(cloud, api).await;
        until("the process", async || replica.health("").await == Some(ServingStatus::Serving)).await;
        replica
    }

    pub(crate) async fn serves(&self) {
        let what = "leadership";
        tokio::time::timeout(TIMEOUT, until(what, async || self.is_serving().await))
            .await
            .unwrap_or_else(|_| panic!("{}", self.process.log()));
    }

    pub(crate) async fn is_serving(&self) -> bool {
        self.health("cloudadapter.v1alpha1.InstanceService").await == Some(ServingStatus::Serving)
    }

    pub(crate) async fn health(&self, service: &str) -> Option<ServingStatus> {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = HealthClient::new(self.channel.clone()).check(request).await.ok()?;
        ServingStatus::try_from(answer.into_inner().status).ok()
    }

    pub(crate) async fn status(&self) -> WatchStatusResponse {
        let request = WatchStatusRequest { context: Some(context()) };
        let mut client = AdapterServiceClient::new(self.channel.clone());
        let mut stream = client.watch_status(request).await.expect("also of a standby").into_inner();
        stream.message().await.expect("no error").expect("a report")
    }

    pub(crate) async fn instances(&self) -> SnapshotStatus {
        let snapshots = self.status().await.snapshots;
        snapshots.into_iter().find(|one| one.collection == "instances").expect("one of the replicas leads")
    }
}

/// Starts a cloud with this number of instances, an API server, and a replica that leads.
pub(crate) async fn leading(machines: u64) -> (TestCloud, FakeKube, Replica) {
    let (cloud, api) = (TestCloud::start(json!({})).await, api_server::start());
    cloud.machines(machines).await;
    let leader = Replica::start(&cloud.url, &api).await;
    leader.serves().await;
    (cloud, api, leader)
}

/// Returns the times of all replicas' requests for instances, in milliseconds since the cloud was started.
pub(crate) async fn instance_calls(cloud: &TestCloud) -> Vec<u64> {
    let log = cloud.admin(Method::GET, "log?limit=10000", Value::Null).await;
    let requests = log["requests"].as_array().expect("a list").iter();
    requests
        .filter(|request| request["operation"].as_str().is_some_and(|name| name.contains("Instance")))
        .map(|request| request["at_ms"].as_u64().expect("a number"))
        .collect()
}

/// Asserts that any window of w seconds contains at most burst + rate * w calls. The tolerance of 50 ms covers the time that calls need to
/// arrive.
#[track_caller]
pub(crate) fn within_budget(calls: &[u64]) {
    const TOLERANCE: f64 = 0.05;
    assert!(calls.len() > 20, "the load is too small: {calls:?}");
    let seconds: Vec<f64> =
        calls.iter().map(|at| std::time::Duration::from_millis(*at).as_secs_f64()).collect();
    for (first, begin) in seconds.iter().enumerate() {
        let mut count = 0.0;
        for end in seconds.iter().skip(first) {
            count += 1.0;
            let may = BURST + RATE * (end - begin + TOLERANCE);
            assert!(count <= may, "{count} calls in {} s, above the limit of {may}: {calls:?}", end - begin);
        }
    }
}
