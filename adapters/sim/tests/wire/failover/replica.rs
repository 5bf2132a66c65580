//! A replica as a separate process.

use std::{fs::File, io::Write as _, process::Stdio};

use cloud_api_proto::v1alpha1::{
    RequestContext, SnapshotStatus, WatchStatusRequest, WatchStatusResponse,
    adapter_service_client::AdapterServiceClient,
};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    failover::PATIENCE,
    failover::api_server::{ApiServer, Way},
    failover::until,
};

/// The bucket of one family in all tests: calls per second, and burst.
pub(crate) const RATE: f64 = 5.0;
pub(crate) const BURST: f64 = 10.0;

/// A running process. It is killed when this value is dropped.
pub(crate) struct Replica {
    pub(crate) address: String,
    pub(crate) http: String,
    pub(crate) channel: Channel,
    pub(crate) way: Way,
    process: Child,
    _config: NamedTempFile,
    log: TempDir,
}

impl Replica {
    pub(crate) async fn start(cloud: &str, api: &ApiServer) -> Self {
        let (address, http, way) = (free_port(), free_port(), api.way().await);
        let log = TempDir::new().expect("a folder");
        let mut config = NamedTempFile::new().expect("a file");
        let others = "{rate: 1000, burst: 1000}";
        write!(
            config,
            "limits: {{safety: 1.0, buckets: {{compute: {{rate: {RATE}, burst: {BURST}}}, network: {others}, \
             loadbalancer: {others}, identity: {others}}}}}"
        )
        .expect("room");
        let mut command = Command::new(env!("CARGO_BIN_EXE_adapter-sim"));
        command.args(["--endpoint", cloud, "--replicas", "active-standby", "--log-level", "info"]);
        command.args(["--grpc-address", &address, "--advertise-address", &address, "--http-address", &http]);
        command.arg("--kubeconfig").arg(way.kubeconfig.path()).arg("--config").arg(config.path());
        command.env_remove("KUBECONFIG").stdin(Stdio::null()).kill_on_drop(true);
        command.stderr(File::create(log.path().join("log")).expect("a file"));
        let process = command.spawn().expect("runs");
        let url = format!("http://{address}");
        let channel = Endpoint::try_from(url).expect("an address").connect_lazy();
        Self { address, http, channel, way, process, _config: config, log }
    }

    /// Waits until the process has started, as leader or as standby.
    pub(crate) async fn is_up(&self) {
        until("the process", async || self.health("").await == Some(ServingStatus::Serving)).await;
    }

    /// Waits until the replica serves controllers.
    pub(crate) async fn serves(&self) {
        let what = "leadership";
        tokio::time::timeout(PATIENCE, until(what, async || self.is_serving().await))
            .await
            .unwrap_or_else(|_| panic!("{}", self.log()));
    }

    pub(crate) async fn is_serving(&self) -> bool {
        self.health("cloudadapter.v1alpha1.InstanceService").await == Some(ServingStatus::Serving)
    }

    pub(crate) async fn health(&self, service: &str) -> Option<ServingStatus> {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = HealthClient::new(self.channel.clone()).check(request).await.ok()?;
        ServingStatus::try_from(answer.into_inner().status).ok()
    }

    /// The first status that the replica reports.
    pub(crate) async fn status(&self) -> WatchStatusResponse {
        let context = RequestContext { cluster_id: "c-1".into(), ..RequestContext::default() };
        let request = WatchStatusRequest { context: Some(context) };
        let mut client = AdapterServiceClient::new(self.channel.clone());
        let mut stream = client.watch_status(request).await.expect("also of a standby").into_inner();
        stream.message().await.expect("no error").expect("a report")
    }

    pub(crate) async fn instances(&self) -> SnapshotStatus {
        let snapshots = self.status().await.snapshots;
        snapshots.into_iter().find(|one| one.collection == "instances").expect("one of the replicas leads")
    }

    /// Sends SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("the process was running");
    }

    /// Sends SIGTERM.
    pub(crate) async fn terminate(&self) {
        let id = self.process.id().expect("the process is running").to_string();
        let signalled =
            Command::new("kill").args(["-TERM", &id]).status().await.expect("`kill` can be started");
        assert!(signalled.success());
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(PATIENCE, self.process.wait()).await.expect("ends");
        ended.expect("waiting for the process succeeds").code()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("asked").is_none()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log.path().join("log")).expect("text")
    }
}

fn free_port() -> String {
    test_support::ports::loopback().expect("a free port").to_string()
}

/// Times of all replicas' requests for instances, in milliseconds since the cloud was started.
pub(crate) fn asked_for_instances(log: &Value) -> Vec<u64> {
    let requests = log["requests"].as_array().expect("a list").iter();
    requests
        .filter(|request| request["operation"].as_str().is_some_and(|name| name.contains("Instance")))
        .map(|request| request["at_ms"].as_u64().expect("a number"))
        .collect()
}

/// Asserts that any window of length w has at most burst + rate * w calls. Calls are counted on arrival, so 50 ms of tolerance are added.
#[track_caller]
pub(crate) fn within_budget(calls: &[u64]) {
    const SLACK: f64 = 0.05;
    assert!(calls.len() > 20, "the load is too small: {calls:?}");
    let seconds: Vec<f64> =
        calls.iter().map(|at| std::time::Duration::from_millis(*at).as_secs_f64()).collect();
    for (first, begin) in seconds.iter().enumerate() {
        let mut count = 0.0;
        for end in seconds.iter().skip(first) {
            count += 1.0;
            let may = BURST + RATE * (end - begin + SLACK);
            assert!(count <= may, "{count} calls in {} s, above the limit of {may}: {calls:?}", end - begin);
        }
    }
}
