//! Tests of the program `adapter-sim`: flags, the cloud inside the process, signals and exit codes.

use std::io::Write as _;

use crate::support::{PROGRAM, Program, wanted::CLUSTER};

#[tokio::test]
async fn invalid_flag_exits_with_2_and_a_suggestion() {
    for (arguments, wanted) in [
        (&["--endpiont", "http://127.0.0.1:1"][..], "--endpoint"),
        (&["--endpoint", "127.0.0.1:9797"], "http://127.0.0.1:9797"),
        (&["--grpc-address", "here"], "such as 0.0.0.0:8443"),
        (&["--log-format", "jsn"], "json"),
        (&["--region", "a/b"], "--region"),
    ] {
        let (code, text) = Program::ends(PROGRAM, arguments).await;
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
    writeln!(odd, "s3\u{7}cret").expect("a written file");
    let odd = odd.path().to_str().expect("a plain path");
    for (flag, path, named) in [
        ("--token-file", "/nowhere/token", "/nowhere/token"),
        ("--token-file", empty, "is empty"),
        ("--token-file", odd, "not allowed in an HTTP header"),
        ("--config", "/nowhere/config.yaml", "/nowhere/config.yaml"),
    ] {
        let (code, text) = Program::ends(PROGRAM, [&endpoint[..], &[flag, path]].concat()).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(flag) && text.contains(named), "{text}");
    }
}

#[tokio::test]
async fn without_endpoint_it_starts_its_own_cloud() {
    let mut token = tempfile::NamedTempFile::new().expect("a file");
    writeln!(token, "s3cret").expect("a written file");
    let token = token.path().to_str().expect("a plain path");
    let mut adapter = Program::start(PROGRAM, ["--token-file", token]).await;
    adapter.ready(CLUSTER).await;
    adapter.stop().await;
    assert_eq!(adapter.exited().await, Some(0));
}
