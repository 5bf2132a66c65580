//! Tests that the program serves even without a cloud, and that it reports which parts are not written yet. Delete the last test when the
//! first part is written.

#![expect(clippy::expect_used, reason = "a test fails at the first unexpected result")]

use std::io::Write as _;

use cloud_adapter::kit::testing::Program;

#[tokio::test]
async fn program_serves_without_a_cloud() {
    let adapter = start().await;
    assert_eq!(adapter.info("c").await.adapter_name, "adapter-skeleton");
    adapter.serves_without_cloud().await;
}

async fn start() -> Program {
    let mut token = tempfile::NamedTempFile::new().expect("a file");
    writeln!(token, "s3cret").expect("a written file");
    let path = token.path().to_str().expect("a plain path");
    let flags = ["--endpoint", "http://127.0.0.1:1", "--region", "r1", "--token-file", path];
    Program::start(env!("CARGO_BIN_EXE_adapter-skeleton"), flags).await
}

#[tokio::test]
async fn it_says_what_is_not_written_yet() {
    let parts = ["not written yet", "1. self_check", "src/instances.rs", "src/plan.rs", "src/routes.rs"];
    start().await.waits_for(&parts).await;
}
