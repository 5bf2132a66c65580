//! The program `adapter-sim`: flags, the cloud inside the process, signals, exit codes.

use std::{
    io::Write as _,
    process::{Output, Stdio},
};

use cloud_api_proto::v1alpha1::{GetInfoRequest, adapter_service_client::AdapterServiceClient};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::adapter::bench::{PATIENCE, context, until};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adapter-sim"));
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        tokio::time::timeout(PATIENCE, program(arguments).output()).await.expect("ends").expect("runs");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[tokio::test]
async fn invalid_flag_exits_with_2_and_a_suggestion() {
    for (arguments, wanted) in [
        (&["--endpiont", "http://127.0.0.1:1"][..], "--endpoint"),
        (&["--endpoint", "127.0.0.1:9797"], "http://127.0.0.1:9797"),
        (&["--grpc-address", "here"], "such as 0.0.0.0:8443"),
        (&["--log-format", "jsn"], "json"),
        (&["--region", "a/b"], "--region"),
    ] {
        let (code, text) = ended(arguments).await;
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.contains(wanted), "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn unusable_file_exits_with_2_and_names_the_flag() {
    let endpoint = [
        "--endpoint",
        "http://127.0.0.1:1",
        "--grpc-address",
        "127.0.0.1:0",
        "--http-address",
        "127.0.0.1:0",
    ];
    let empty = tempfile::NamedTempFile::new().expect("a file");
    let empty = empty.path().to_str().expect("a plain path");
    let mut odd = tempfile::NamedTempFile::new().expect("a file");
    writeln!(odd, "s3\u{7}cret").expect("room");
    let odd = odd.path().to_str().expect("a plain path");
    for (flag, path, named) in [
        ("--token-file", "/nowhere/token", "/nowhere/token"),
        ("--token-file", empty, "is empty"),
        ("--token-file", odd, "not allowed in an HTTP header"),
        ("--config", "/nowhere/config.yaml", "/nowhere/config.yaml"),
    ] {
        let (code, text) = ended(&[&endpoint[..], &[flag, path]].concat()).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(flag) && text.contains(named), "{text}");
    }
}

#[tokio::test]
async fn without_endpoint_it_starts_its_own_cloud() {
    let mut token = tempfile::NamedTempFile::new().expect("a file");
    writeln!(token, "s3cret").expect("room");
    let token = token.path().to_str().expect("a plain path");
    let ports = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"];
    let arguments = [&ports[..], &["--log-format", "json", "--token-file", token]].concat();
    let mut adapter = program(&arguments).stderr(Stdio::piped()).spawn().expect("runs");
    let mut log = BufReader::new(adapter.stderr.take().expect("piped")).lines();
    let grpc = tokio::time::timeout(PATIENCE, async {
        loop {
            let line = log.next_line().await.expect("text").expect("does not end");
            let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            if let Some(grpc) = line["fields"]["grpc"].as_str() {
                return grpc.to_owned();
            }
        }
    });
    let url = format!("http://{}", grpc.await.expect("listens"));
    let mut client =
        AdapterServiceClient::new(tonic::transport::Endpoint::try_from(url).expect("a URL").connect_lazy());
    until("the cloud inside the process", async || {
        let info = client.get_info(GetInfoRequest { context: Some(context()) }).await;
        info.is_ok_and(|info| info.into_inner().scope.is_some())
    })
    .await;
    let id = adapter.id().expect("runs").to_string();
    let signalled = Command::new("kill").args(["-TERM", &id]).status().await.expect("`kill` can be started");
    assert!(signalled.success());
    let status = tokio::time::timeout(PATIENCE, adapter.wait()).await.expect("ends").expect(
        "waiting \
    for the process succeeds",
    );
    assert_eq!(status.code(), Some(0));
}
