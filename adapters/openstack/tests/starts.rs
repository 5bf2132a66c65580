//! Tests that the program serves even if the cloud cannot be reached, and that it reports errors in its credentials.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use cloud_adapter::kit::testing::Program;

const PROGRAM: &str = env!("CARGO_BIN_EXE_adapter-openstack");

const CLOUDS: &str = "
clouds:
  test:
    auth: { auth_url: 'http://127.0.0.1:1/v3', application_credential_id: a, application_credential_secret: s3cret }
    region_name: r1
";

#[tokio::test]
async fn program_starts_and_waits_for_the_cloud() {
    let mut clouds = tempfile::NamedTempFile::new().expect("a file");
    writeln!(clouds, "{CLOUDS}").expect("a written file");
    let path = clouds.path().to_str().expect("a plain path");
    let adapter = Program::start(PROGRAM, ["--clouds-file", path]).await;
    let info = adapter.info("c").await;
    assert_eq!((info.adapter_name.as_str(), info.provider.as_str()), ("adapter-openstack", "openstack"));
    let capabilities: Vec<&str> = info.capabilities.iter().map(|one| one.name.as_str()).collect();
    for wanted in ["instances", "instances.shutdown-state", "loadbalancers", "lb.ownership-tags"] {
        assert!(capabilities.contains(&wanted), "{wanted} is not in {capabilities:?}");
    }
    assert!(
        !capabilities.contains(&"routes"),
        "the adapter has no routes without a router: {capabilities:?}"
    );
    adapter.serves_without_cloud().await;
    adapter.waits_for(&["CreateToken: 127.0.0.1"]).await;
}

#[test]
fn invalid_credentials_are_wrong_usage() {
    let mut adapter = Command::new(PROGRAM);
    adapter
        .env_clear()
        .env("OS_AUTH_URL", "http://127.0.0.1:1/v3")
        .env("OS_PASWORD", "hunter2")
        .env("OS_REGION_NAME", "r1");
    let ended = adapter.stdin(Stdio::null()).output().expect("runs");
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{text}");
    for wanted in
        ["OS_PASWORD: unknown key, did you mean 'OS_PASSWORD'?", "OS_PASSWORD: is missing: set a password"]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

/// Checks that docs/clouds/openstack.md lists each flag of this adapter, in the order of `--help`, and no other flag.
#[test]
fn operator_page_lists_all_flags() {
    let adapter = Command::new(PROGRAM).arg("--help").output();
    let help = String::from_utf8(adapter.expect("runs").stdout).expect("text");
    let heading = |line: &&str| !line.is_empty() && !line.starts_with(' ');
    let mut flags = Vec::new();
    for own in ["OpenStack:", "Load balancers:"] {
        let section = help.lines().skip_while(|line| *line != own).skip(1).take_while(|line| !heading(line));
        // The descriptions are indented further than flags, and mention other flags.
        let names = section.filter_map(|line| line.strip_prefix("      --")?.split(' ').next());
        flags.extend(names);
    }
    let page = include_str!("../../../docs/clouds/openstack.md");
    let listed: Vec<&str> =
        page.lines().filter_map(|line| Some(line.strip_prefix("| `--")?.split_once('`')?.0)).collect();
    assert!(flags.len() > 10, "{help}");
    assert_eq!(listed, flags);
}
