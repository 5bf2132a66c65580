//! A real `adapter-sim` process, which can be killed by SIGKILL.

use std::{process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinSet,
};
use tonic::transport::{Channel, Endpoint};

use crate::crash::world::{Conditions, HORIZON_MS};

/// Time limit for every wait, long enough for a busy host.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Process {
    pub(crate) channel: Channel,
    child: Child,
    /// Reads the log, so that the process never blocks on it.
    _reader: JoinSet<()>,
}

impl Process {
    /// Starts the process, and returns when its port is open.
    pub(crate) async fn start(cloud: &str, conditions: Conditions) -> Self {
        let horizon = HORIZON_MS.to_string();
        let create_horizon = conditions.create_horizon_ms.to_string();
        let tokens = if conditions.client_tokens { "sent" } else { "unknown" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_adapter-sim"));
        command
            .args(["--endpoint", cloud, "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"])
            .args(["--consistency-horizon-ms", &horizon, "--client-tokens", tokens, "--log-format", "json"])
            .args(["--create-horizon-ms", &create_horizon])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("runs");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = tokio::time::timeout(PATIENCE, async {
            loop {
                let line = log.next_line().await.expect("text").expect("does not end");
                let line: Value = serde_json::from_str(&line).expect("JSON");
                if let Some(address) = line["fields"]["grpc"].as_str() {
                    return address.to_owned();
                }
            }
        });
        let url = format!("http://{}", address.await.expect("listens"));
        let channel = Endpoint::try_from(url).expect("an address").connect_lazy();
        let mut reader = JoinSet::new();
        reader.spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Self { channel, child, _reader: reader }
    }

    /// Sends SIGKILL, and returns when the process is gone.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("the process was running");
    }
}
