//! The program of an adapter as a separate process. The tests read all output of the program, so that it never blocks.

use std::{
    ffi::OsStr,
    net::SocketAddr,
    process::{Output, Stdio},
    sync::{Arc, Mutex},
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        GetInfoRequest, GetInfoResponse, WatchInstancesRequest, adapter_service_client::AdapterServiceClient,
        instance_service_client::InstanceServiceClient,
    },
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinSet,
};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{TIMEOUT, context, until};

/// The flags that select free ports.
const PORTS: [&str; 4] = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"];

/// A running adapter. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Program {
    /// A channel to the gRPC port.
    pub channel: Channel,
    /// The address of the gRPC port in the log: an IP address, or the path of a socket.
    pub grpc: String,
    /// The port of metrics and probes.
    pub http: SocketAddr,
    child: Child,
    log: Arc<Mutex<String>>,
    reading: JoinSet<()>,
}

impl Program {
    /// Runs the program until it ends. Returns its exit code and its log.
    pub async fn ends(program: &str, flags: impl IntoIterator<Item: AsRef<OsStr>>) -> (Option<i32>, String) {
        let output = tokio::time::timeout(TIMEOUT, command(program, flags).output());
        let Output { status, stderr, .. } = output.await.expect("ends").expect("runs");
        (status.code(), String::from_utf8_lossy(&stderr).into_owned())
    }

    /// Starts the program on free ports, and returns when they are open.
    pub async fn start(program: &str, flags: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        let mut command = command(program, flags);
        command.args(PORTS);
        Self::run(command).await
    }

    /// Starts the program like [`Self::start`], but `flags` must contain the address of the gRPC port.
    pub async fn start_at(program: &str, flags: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        let mut command = command(program, flags);
        let [_, _, http @ ..] = PORTS;
        command.args(http);
        Self::run(command).await
    }

    async fn run(mut command: Command) -> Self {
        command.args(["--log-format", "json"]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let (mut reading, written) = (JoinSet::new(), Arc::clone(&log));
        reading.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut written = written.lock().expect("whole");
                written.push_str(&line);
                written.push('\n');
            }
        });
        let mut ports = None;
        until("open ports", async || {
            ports = log.lock().expect("whole").lines().find_map(listens);
            let ended = child.try_wait().expect("its state");
            assert!(ports.is_some() || ended.is_none(), "it ended:\n{}", log.lock().expect("whole"));
            ports.is_some()
        })
        .await;
        let (grpc, http) = ports.expect("open");
        let channel = Endpoint::try_from(format!("http://{grpc}")).expect("an address").connect_lazy();
        Self { channel, grpc, http, child, log, reading }
    }

    /// Returns the adapter's answer to `GetInfo` for this cluster. The adapter answers even while its cloud is unreachable.
    pub async fn info(&self, cluster: &str) -> GetInfoResponse {
        info(&self.channel, cluster).await.expect("an answer")
    }

    /// Waits until the adapter has passed its self-check.
    pub async fn ready(&self, cluster: &str) {
        until("the self-check", async || is_ready(&self.channel, cluster).await).await;
    }

    /// Asserts that the program is healthy but does not serve controllers yet.
    pub async fn serves_without_cloud(&self) {
        let mut health = HealthClient::new(self.channel.clone());
        for (service, wanted) in [
            ("", ServingStatus::Serving),
            ("cloudadapter.v1alpha1.InstanceService", ServingStatus::NotServing),
        ] {
            let answer = health.check(HealthCheckRequest { service: service.to_owned() }).await;
            assert_eq!(answer.expect("known service").into_inner().status(), wanted, "{service:?}");
        }
    }

    /// Waits until the adapter's reason for not serving controllers contains all these texts.
    pub async fn waits_for(&self, parts: &[&str]) {
        let mut instances = InstanceServiceClient::new(self.channel.clone());
        until(&format!("a reason with {parts:?}"), async || {
            let watch =
                WatchInstancesRequest { context: Some(context("c")), ..WatchInstancesRequest::default() };
            let refused = instances.watch_instances(watch).await.expect_err("the cloud cannot be reached");
            let error = AdapterError::from(refused);
            assert_eq!(error.reason, Reason::Starting, "{error}");
            parts.iter().all(|part| error.message.contains(part))
        })
        .await;
    }

    /// Reads a page from the HTTP port, which serves metrics and probes.
    pub async fn page(&self, path: &str) -> String {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let answer = client.get(format!("http://{}{path}", self.http)).send().await.expect("an answer");
        answer.text().await.expect("text")
    }

    /// Returns the ID of the process.
    pub fn id(&self) -> u32 {
        self.child.id().expect("runs")
    }

    /// Sends SIGTERM.
    pub async fn stop(&self) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().await.expect("`kill` can be started");
        assert!(sent.success());
    }

    /// Sends SIGKILL, and returns when the process is gone.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("the process was running");
    }

    /// Returns whether the process is still running.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("whole").clone()
    }

    /// Waits for the exit code.
    pub async fn exited(&mut self) -> Option<i32> {
        let status = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        status.expect("ends").expect("waiting for the process succeeds").code()
    }

    /// Ends the program, and returns its whole log.
    pub async fn ended(mut self) -> String {
        self.stop().await;
        assert_eq!(self.exited().await, Some(0));
        self.reading.join_next().await;
        self.log()
    }
}

/// Returns whether the adapter has passed its self-check and answers a controller of this cluster.
pub async fn is_ready(channel: &Channel, cluster: &str) -> bool {
    info(channel, cluster).await.is_ok_and(|info| info.scope.is_some())
}

async fn info(channel: &Channel, cluster: &str) -> Result<GetInfoResponse, Status> {
    let request = GetInfoRequest { context: Some(context(cluster)) };
    Ok(AdapterServiceClient::new(channel.clone()).get_info(request).await?.into_inner())
}

fn command(program: &str, flags: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    let mut command = Command::new(program);
    command.args(flags).env_remove("KUBECONFIG").stdin(Stdio::null()).kill_on_drop(true);
    command
}

fn listens(line: &str) -> Option<(String, SocketAddr)> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let field = |name: &str| Some(line.get("fields")?.get(name)?.as_str()?.to_owned());
    Some((field("grpc")?, field("http")?.parse().ok()?))
}
