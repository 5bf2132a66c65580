//! The program as a separate process. The test reads all its output.

use std::{
    io::Write as _,
    net::SocketAddr,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinSet,
};
use tonic::transport::{Channel, Endpoint};

/// Time limit for every wait, long enough for a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two evaluations of a condition.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// A running adapter. It is killed when this value is dropped.
pub(crate) struct Program {
    pub(crate) channel: Channel,
    http: SocketAddr,
    child: Child,
    log: Arc<Mutex<String>>,
    reading: JoinSet<()>,
    pub(crate) _config: NamedTempFile,
}

impl Program {
    /// Starts the program, and returns when its ports are open. `config`: the content of its configuration file.
    pub(crate) async fn start(cloud: &str, config: &str, flags: &[&str]) -> Self {
        let mut file = NamedTempFile::new().expect("a file");
        writeln!(file, "{config}").expect("room");
        let mut command = Command::new(env!("CARGO_BIN_EXE_adapter-sim"));
        command
            .args(["--endpoint", cloud, "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"])
            .args(["--log-format", "json", "--consistency-horizon-ms", "50"])
            .arg("--config")
            .arg(file.path())
            .args(flags)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let (mut reading, said) = (JoinSet::new(), Arc::clone(&log));
        reading.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut said = said.lock().expect("whole");
                said.push_str(&line);
                said.push('\n');
            }
        });
        let mut ports = None;
        until("open ports", async || {
            ports = log.lock().expect("whole").lines().find_map(listens);
            ports.is_some()
        })
        .await;
        let (grpc, http) = ports.expect("open");
        let channel = Endpoint::try_from(format!("http://{grpc}")).expect("an address").connect_lazy();
        Self { channel, http, child, log, reading, _config: file }
    }

    /// Reads a page of the port of metrics and probes.
    pub(crate) async fn page(&self, path: &str) -> String {
        #[expect(
            clippy::disallowed_methods,
            reason = "tests act as the vendor's operator, which needs no budget"
        )]
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let answer = client.get(format!("http://{}{path}", self.http)).send().await.expect("an answer");
        answer.text().await.expect("text")
    }

    /// Sends SIGTERM.
    pub(crate) async fn stop(&self) {
        let id = self.child.id().expect("runs").to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().await.expect("`kill` can be started");
        assert!(told.success());
    }

    /// Waits for the exit code.
    pub(crate) async fn exited(&mut self) -> Option<i32> {
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        status.expect("ends").expect("waiting for the process succeeds").code()
    }

    /// Ends the program, and returns all its output.
    pub(crate) async fn ended(mut self) -> String {
        self.stop().await;
        assert_eq!(self.exited().await, Some(0));
        self.reading.join_next().await;
        self.log.lock().expect("whole").clone()
    }
}

/// Parses the addresses, if this line has them.
fn listens(line: &str) -> Option<(String, SocketAddr)> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let field = |name: &str| line["fields"][name].as_str().map(str::to_owned);
    Some((field("grpc")?, field("http")?.parse().ok()?))
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
