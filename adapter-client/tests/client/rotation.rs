//! Tests that replace certificates and tokens under load, without failed calls.

use std::{fs, sync::atomic::Ordering, time::Duration};

use adapter_client::ChannelSecurity;
use cloud_api_proto::{AdapterError, Reason};

use crate::{
    Load, ask,
    certificates::{Authority, Changing},
    open,
    replica::{Replica, Setup},
    until,
};

/// The usual order of a rotation. The client trusts the new CA in addition to the old CA. The server changes its certificate. Then the old
/// CA is removed.
#[tokio::test]
async fn a_new_ca_takes_the_place_of_the_old_one() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let shown = Changing::new(&old.sign("cloud-adapter"));
    let connection_age = Some(Duration::from_millis(100));
    let tls = Some(shown.server());
    let replica = Replica::start(Setup { tls, connection_age, ..Setup::new("a") }).await;
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, old.pem()).unwrap();
    let server_name = Some("cloud-adapter".to_owned());
    let security = ChannelSecurity { ca: Some(ca.clone()), server_name, ..ChannelSecurity::default() };
    let channel = open(&format!("https://{}", replica.host_port()), &security);
    let connections = || replica.shared.connections.load(Ordering::SeqCst);
    let load = Load::start(&channel);
    for (certificates, server) in [
        (old.pem() + &new.pem(), None),
        (old.pem() + &new.pem(), Some(new.sign("cloud-adapter"))),
        (new.pem(), None),
        // The file is empty now, but its last valid content remains in use.
        (String::new(), None),
    ] {
        fs::write(&ca, certificates).unwrap();
        if let Some(pair) = server {
            shown.show(&pair);
        }
        let enough = connections() + 3;
        until("connections are replaced", || connections() >= enough).await;
        load.answers(20).await;
    }
    load.end().await;
}

#[tokio::test]
async fn a_new_token_takes_the_place_of_the_old_one() {
    let replica = Replica::start(Setup::new("a")).await;
    let admit = |tokens: &[&str]| {
        *replica.shared.tokens.lock().unwrap() = tokens.iter().map(|&token| token.to_owned()).collect();
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    fs::write(&file, "first\n").unwrap();
    admit(&["first"]);
    let security = ChannelSecurity { token: Some(file.clone()), ..ChannelSecurity::default() };
    let channel = open(&format!("http://{}", replica.host_port()), &security);
    let load = Load::start(&channel);
    load.answers(20).await;

    admit(&["first", "second"]);
    fs::write(&file, "second\n").unwrap();
    until("the new token is used", || *replica.shared.token.lock().unwrap() == "second").await;
    // From here on, no call with the old token is in flight.
    load.answers(100).await;
    admit(&["second"]);
    load.answers(20).await;
    load.end().await;

    admit(&["third"]);
    let error = AdapterError::from(ask(&channel).await.unwrap_err());
    assert_eq!(error.reason, Reason::CallerUnauthenticated);
}
