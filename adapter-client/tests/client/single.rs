//! Tests with one endpoint: TLS, identities, and errors without delay.

use std::{fs, sync::atomic::Ordering, time::Duration};

use adapter_client::ChannelSecurity;
use cloud_api_proto::{AdapterError, Reason};
use tonic::Code;

use crate::{
    ask, ask_within,
    certificates::Authority,
    open,
    replica::{Replica, Setup},
};

#[tokio::test]
async fn an_adapter_without_a_health_service_is_called() {
    let replica = Replica::start(Setup { health: false, ..Setup::new("a") }).await;
    let channel = open(&format!("http://{}", replica.host_port()), &ChannelSecurity::default());
    assert_eq!(ask(&channel).await.unwrap(), "a");
}

#[tokio::test]
async fn a_socket_of_this_host_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("adapter.sock");
    let _replica = Replica::at_socket("a", &path).await;
    let channel = open(&format!("unix:{}", path.display()), &ChannelSecurity::default());
    assert_eq!(ask(&channel).await.unwrap(), "a");
}

#[tokio::test]
async fn unavailable_endpoint_is_reported_at_once() {
    let port = test_support::ports::take().unwrap();
    let channel = open(&format!("http://127.0.0.1:{port}"), &ChannelSecurity::default());
    let error = ask(&channel).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    assert!(texts.iter().any(|text| text.contains("refused")), "{texts:?}");
}

#[tokio::test]
async fn who_stands_by_says_so_itself() {
    let replica = Replica::start(Setup::new("a")).await;
    replica.lead_in_name_only();
    let channel = open(&format!("http://{}", replica.host_port()), &ChannelSecurity::default());
    let error = AdapterError::from(ask(&channel).await.unwrap_err());
    assert_eq!(error.reason, Reason::NotLeader);
    assert_eq!(replica.calls(), 1);
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    let replica = Replica::start(Setup::new("a")).await;
    replica.shared.holds.store(true, Ordering::SeqCst);
    let channel = open(&format!("http://{}", replica.host_port()), &ChannelSecurity::default());
    let error = ask_within(&channel, Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error.code(), Code::Cancelled | Code::DeadlineExceeded), "{error:?}");
    assert_eq!(replica.calls(), 1, "no time is left to repeat the call");
}

#[tokio::test]
async fn the_server_proves_its_name() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let tls = Some(ours.server("cloud-adapter"));
    let replica = Replica::start(Setup { tls, ..Setup::new("a") }).await;
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("ours.pem"), dir.path().join("theirs.pem"));
    fs::write(&good, ours.pem()).unwrap();
    fs::write(&bad, theirs.pem()).unwrap();
    let endpoint = format!("https://{}", replica.host_port());
    let named = |name: &str| Some(name.to_owned());
    for (ca, server_name, answer) in [
        (&good, named("cloud-adapter"), Ok("a")),
        (&good, named("other"), Err("not valid for name")),
        (&good, None, Err("not valid for name")),
        (&bad, named("cloud-adapter"), Err("UnknownIssuer")),
    ] {
        let security = ChannelSecurity { ca: Some(ca.clone()), server_name, ..ChannelSecurity::default() };
        let result = ask(&open(&endpoint, &security)).await.map_err(|error| format!("{error:?}"));
        match (result, answer) {
            (Ok(name), Ok(expected)) => assert_eq!(name, expected),
            (Err(error), Err(words)) => assert!(error.contains(words), "{error}"),
            (result, _) => panic!("{security:?}: {result:?}"),
        }
    }
}

#[tokio::test]
async fn the_client_proves_who_it_is() {
    let authority = Authority::new("ours");
    let tls = Some(authority.strict_server("cloud-adapter"));
    let replica = Replica::start(Setup { tls, ..Setup::new("a") }).await;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let pair = authority.sign("node-controller");
    fs::write(path("ca.pem"), authority.pem()).unwrap();
    fs::write(path("tls.crt"), pair.certificate).unwrap();
    fs::write(path("tls.key"), pair.key).unwrap();
    let endpoint = format!("https://{}", replica.host_port());
    let server_name = Some("cloud-adapter".to_owned());
    let anonymous = ChannelSecurity { ca: Some(path("ca.pem")), server_name, ..ChannelSecurity::default() };
    assert!(ask(&open(&endpoint, &anonymous)).await.is_err());
    let (client_certificate, client_key) = (Some(path("tls.crt")), Some(path("tls.key")));
    let known = ChannelSecurity { client_certificate, client_key, ..anonymous };
    assert_eq!(ask(&open(&endpoint, &known)).await.unwrap(), "a");
}
