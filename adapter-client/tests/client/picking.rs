//! Tests with several replicas, only one of which serves.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use adapter_client::{AdapterChannel, ChannelSecurity, Connection, Resolve};
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{WatchStatusRequest, adapter_service_client::AdapterServiceClient},
};
use futures::{FutureExt as _, future::BoxFuture};
use tokio::time::Instant;
use tonic::Code;

use crate::{
    Load, ask, ask_within, open,
    relay::Relay,
    replica::{Replica, Setup},
    until,
};

async fn two() -> (Replica, Replica, AdapterChannel) {
    let (a, b) = (Replica::start(Setup::new("a")).await, Replica::start(Setup::new("b")).await);
    b.lead(false).await;
    let target = format!("static:///{},{}", a.host_port(), b.host_port());
    let channel = open(&target, &ChannelSecurity::default());
    (a, b, channel)
}

/// Waits until no replica leads. In that state, a call gets no answer within its deadline.
async fn no_replica_leads(channel: &AdapterChannel) {
    let start = Instant::now();
    while ask_within(channel, Duration::from_millis(50)).await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(10), "a leader is found each time");
    }
}

#[tokio::test]
async fn only_the_replica_that_serves_is_called() {
    let (a, b, channel) = two().await;
    for _ in 0..10 {
        assert_eq!(ask(&channel).await.unwrap(), "a");
    }
    assert_eq!((a.calls(), b.calls()), (10, 0));
}

#[tokio::test]
async fn a_planned_hand_over_fails_no_call() {
    let (a, b, channel) = two().await;
    let load = Load::start(&channel);
    for _ in 0..3 {
        for (from, to) in [(&a, &b), (&b, &a)] {
            load.answers(20).await;
            from.lead(false).await;
            no_replica_leads(&channel).await;
            to.lead(true).await;
            let calls = to.calls();
            until("the new leader is called", || to.calls() > calls).await;
        }
    }
    load.end().await;
}

#[tokio::test]
async fn a_killed_leader_fails_no_call() {
    let (a, b, channel) = two().await;
    let load = Load::start(&channel);
    load.answers(20).await;
    drop(a);
    no_replica_leads(&channel).await;
    assert_eq!(b.calls(), 0, "a standby is not called");
    b.lead(true).await;
    load.answers(20).await;
    load.end().await;
    assert!(b.calls() >= 20);
}

#[tokio::test]
async fn a_call_in_flight_at_a_killed_leader_is_repeated() {
    let (a, b, channel) = two().await;
    a.shared.holds.store(true, Ordering::SeqCst);
    let asked = ask(&channel);
    let kill = async {
        until("the call arrives at the replica", || a.calls() == 1).await;
        b.lead(true).await;
        drop(a);
    };
    let (answer, ()) = tokio::join!(asked, kill);
    assert_eq!(answer.unwrap(), "b");
}

/// The connection stays open and answers pings, but the process hangs.
#[tokio::test]
async fn a_call_that_hangs_at_a_replaced_leader_is_repeated() {
    let (a, b, channel) = two().await;
    a.shared.holds.store(true, Ordering::SeqCst);
    let asked = ask_within(&channel, Duration::from_mins(1));
    let replace = async {
        until("the call arrives at the replica", || a.calls() == 1).await;
        b.lead(true).await;
    };
    let (answer, ()) = tokio::join!(asked, replace);
    assert_eq!(answer.unwrap(), "b");
}

/// As after a power failure of the replica's host, the connection gets neither a reset nor data. With usual settings, the client would need
/// 30 s to detect the failure.
#[tokio::test]
async fn a_leader_that_vanished_is_left_for_the_next() {
    let (a, b) = (Replica::start(Setup::new("a")).await, Replica::start(Setup::new("b")).await);
    b.lead(false).await;
    let relay = Relay::start(a.address).await;
    let target = format!("static:///{},{}", relay.address, b.host_port());
    let channel = open(&target, &ChannelSecurity::default());
    assert_eq!(ask(&channel).await.unwrap(), "a");
    relay.fall_silent();
    let asked = ask_within(&channel, Duration::from_secs(20));
    let (answer, ()) = tokio::join!(asked, b.lead(true));
    assert_eq!(answer.unwrap(), "b");
    assert_eq!(ask(&channel).await.unwrap(), "b");
}

#[tokio::test]
async fn a_not_leader_answer_moves_the_call() {
    let (a, b, channel) = two().await;
    b.lead(true).await;
    a.lead_in_name_only();
    for _ in 0..10 {
        assert_eq!(ask(&channel).await.unwrap(), "b");
    }
    let answer = AdapterServiceClient::new(channel.clone()).watch_status(WatchStatusRequest::default()).await;
    let first = answer.unwrap().into_inner().message().await.unwrap().unwrap();
    assert_eq!(first.instance_id, "b");
}

#[tokio::test]
async fn replicas_without_health_service_are_called() {
    let silent = |name| Setup { health: false, ..Setup::new(name) };
    let (a, b) = (Replica::start(silent("a")).await, Replica::start(silent("b")).await);
    a.lead_in_name_only();
    let target = format!("static:///{},{}", a.host_port(), b.host_port());
    assert_eq!(ask(&open(&target, &ChannelSecurity::default())).await.unwrap(), "b");
}

#[tokio::test]
async fn if_no_replica_serves_the_error_names_each() {
    let (a, b, channel) = two().await;
    a.lead(false).await;
    let gone = b.host_port();
    drop(b);
    let start = Instant::now();
    let error = ask_within(&channel, Duration::from_millis(700)).await.unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(600), "the call waits almost until its deadline");
    assert_eq!(error.code(), Code::Unavailable);
    let said = error.message();
    assert!(said.contains(&format!("{} does not serve", a.host_port())), "{said}");
    assert!(said.contains(&gone) && said.contains("refused"), "{said}");
}

#[tokio::test]
async fn a_leader_that_cannot_reach_its_cloud_names_the_cause() {
    let (a, b, channel) = two().await;
    b.start_by("the adapter cannot reach the cloud: keystone.example:5000: Connection refused").await;
    a.lead(false).await;
    no_replica_leads(&channel).await;
    let start = Instant::now();
    let error = ask_within(&channel, Duration::from_secs(30)).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(AdapterError::from(&error).reason, Reason::Starting, "{error}");
    assert!(error.message().ends_with("keystone.example:5000: Connection refused"), "{error}");
    assert_eq!(b.calls(), 1, "it is asked once");
}

#[tokio::test]
async fn a_call_that_asked_the_standbys_still_waits_for_a_leader() {
    let (a, b, channel) = two().await;
    a.lead(false).await;
    no_replica_leads(&channel).await;
    let lead = async {
        until("the other standby is asked", || b.calls() == 1).await;
        b.lead(true).await;
    };
    let (answer, ()) = tokio::join!(ask_within(&channel, Duration::from_secs(30)), lead);
    assert_eq!(answer.unwrap(), "b");
}

#[derive(Debug)]
struct Names(Mutex<io::Result<Vec<IpAddr>>>);

impl Names {
    fn are(&self, addresses: io::Result<Vec<IpAddr>>) {
        *self.0.lock().unwrap() = addresses;
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        assert_eq!(host, "cloud-adapter.test");
        let answer = match &*self.0.lock().unwrap() {
            Ok(addresses) => Ok(addresses.clone()),
            Err(error) => Err(error.kind().into()),
        };
        std::future::ready(answer).boxed()
    }
}

/// The new address is found long before the next periodic lookup.
#[tokio::test]
async fn a_broken_connection_triggers_a_lookup() {
    let ip = |n| IpAddr::V4(Ipv4Addr::new(127, 0, 0, n));
    let a = Replica::start(Setup { listen: SocketAddr::new(ip(2), 0), ..Setup::new("a") }).await;
    let port = a.address.port();
    let b = Replica::start(Setup { listen: SocketAddr::new(ip(3), port), ..Setup::new("b") }).await;
    let names = Arc::new(Names(Mutex::new(Ok(vec![ip(2)]))));
    let target = format!("dns:///cloud-adapter.test:{port}").parse().unwrap();
    let connection = Connection::new(target, &ChannelSecurity::default()).unwrap();
    let channel = connection.resolving(Arc::clone(&names) as _).open().unwrap();
    assert_eq!(ask(&channel).await.unwrap(), "a");
    names.are(Ok(vec![ip(3)]));
    drop(a);
    assert_eq!(ask(&channel).await.unwrap(), "b");
    // A failed lookup does not remove replicas.
    names.are(Err(io::ErrorKind::NotFound.into()));
    for _ in 0..5 {
        assert_eq!(ask(&channel).await.unwrap(), "b");
    }
    drop(b);
}
