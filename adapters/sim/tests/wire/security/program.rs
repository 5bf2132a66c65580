//! The program as a separate process, so that its memory can be measured.

use std::{
    fs,
    net::SocketAddr,
    process::{Output, Stdio},
    time::Duration,
};

use cloud_api_proto::v1alpha1::{
    GetInfoRequest, RequestContext, adapter_service_client::AdapterServiceClient,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinSet,
};
use tonic::transport::{Channel, Endpoint};

/// Time limit, longer than any step of a test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);
pub(crate) const CLUSTER: &str = "c1";

/// A running adapter. It is killed when this value is dropped.
pub(crate) struct Program {
    child: Child,
    /// The address from its log: an IP address, or a socket.
    pub(crate) grpc: String,
    pub(crate) http: SocketAddr,
    /// Reads the log, so that the program never blocks on it.
    _log: JoinSet<()>,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adapter-sim"));
    command.args(arguments).env_remove("KUBECONFIG").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Waits for the exit code and the log.
pub(crate) async fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let output = tokio::time::timeout(PATIENCE, command(arguments).output());
    let Output { status, stderr, .. } = output.await.expect("ends").expect("runs");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

impl Program {
    /// Starts the program with free ports, and a cloud inside its process unless the flags set another cloud.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let given = ["--http-address", "127.0.0.1:0", "--log-format", "json"];
        let given = [&given[..], arguments].concat();
        let mut child = command(&given).stderr(Stdio::piped()).spawn().expect("runs");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let listens = async {
            let mut said = String::new();
            while let Some(line) = log.next_line().await.expect("text") {
                said = format!("{said}{line}\n");
                let Ok(line) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
                let field = |name: &str| line["fields"][name].as_str().map(str::to_owned);
                if let (Some(grpc), Some(http)) = (field("grpc"), field("http")) {
                    return (grpc, http.parse().expect("an address"));
                }
            }
            panic!("it ended:\n{said}")
        };
        let (grpc, http) = tokio::time::timeout(PATIENCE, listens).await.expect("listens");
        let mut reading = JoinSet::new();
        reading.spawn(async move { while log.next_line().await.is_ok_and(|line| line.is_some()) {} });
        Self { child, grpc, http, _log: reading }
    }

    pub(crate) fn channel(&self) -> Channel {
        Endpoint::try_from(format!("http://{}", self.grpc)).expect("an address").connect_lazy()
    }

    pub(crate) async fn page(&self) -> String {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let answer = client.get(format!("http://{}/metrics", self.http)).send().await.expect("an answer");
        answer.text().await.expect("text")
    }

    /// Resident memory in bytes. Source: proc(5), statm.
    pub(crate) fn memory(&self) -> usize {
        const PAGE: usize = 4096;
        let id = self.child.id().expect("runs");
        let statm = fs::read_to_string(format!("/proc/{id}/statm")).expect("it runs");
        let pages: usize = statm.split(' ').nth(1).expect("resident").parse().expect("a number");
        pages * PAGE
    }

    /// Number of open sockets and other files. Source: proc(5), fd.
    pub(crate) fn open_files(&self) -> usize {
        let id = self.child.id().expect("runs");
        fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").count()
    }

    /// Waits until the adapter has passed its self-check.
    pub(crate) async fn ready(&self) {
        let channel = self.channel();
        until("the self-check", async || info(&channel).await).await;
    }
}

/// Whether a normal client gets an answer, and the adapter knows its cloud.
pub(crate) async fn info(channel: &Channel) -> bool {
    let request = GetInfoRequest { context: Some(context()) };
    let answer = AdapterServiceClient::new(channel.clone()).get_info(request).await;
    answer.is_ok_and(|info| info.into_inner().scope.is_some())
}

pub(crate) fn context() -> RequestContext {
    RequestContext { cluster_id: CLUSTER.into(), request_id: "test".into(), ..RequestContext::default() }
}

/// Waits until a condition is true.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so().await {
            tokio::time::sleep(TICK).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("timeout: {what}"));
}
