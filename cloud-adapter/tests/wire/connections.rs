//! Tests the limits of connections: idle connections, old connections and slow handshakes.

use std::time::Duration;

use cloud_adapter::{
    auth::{Times, TlsFiles},
    testing::Ca,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::bench::{Bench, NAME, Setting, TIMEOUT, mounted, until, wall};

const METHOD: &str = "/cloudadapter.v1alpha1.AdapterService/GetInfo";

#[tokio::test]
async fn slow_handshakes_delay_no_other_connection() {
    let ca = Ca::new("ours");
    let dir = tempfile::tempdir().expect("a folder");
    let identity = mounted(&dir, &ca.server(NAME, wall() + Duration::from_hours(24)));
    let tls = Some(TlsFiles { identity, client_ca: None });
    let bench = Bench::start(Setting { tls, ..Setting::default() }).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(bench.address).await.expect("taken");
        stream.write_all(&[22, 3, 1]).await.expect("the beginning of a ClientHello");
        slow.push(stream);
    }
    until("all connections are open", async || bench.page().contains("connections 100")).await;
    let answer = tokio::time::timeout(Duration::from_secs(2), bench.secure(&ca, None).call(METHOD)).await;
    assert!(answer.expect("closed at once").is_ok());
    let mut ends = Vec::new();
    for mut stream in slow {
        let read = stream.read_to_end(&mut ends);
        // The result of the read does not matter, because a reset and a close both end the connection.
        let _over = tokio::time::timeout(TIMEOUT, read).await.expect("the connection has ended").is_ok();
    }
    let page = bench.page();
    assert!(page.contains(r#"connections_ended_total{why="slow_handshake"} 100"#), "{page}");
}

/// The idle peers do not complete the handshake, which may take five seconds.
#[tokio::test]
async fn idle_connections_do_not_delay_a_new_caller() {
    let ca = Ca::new("ours");
    let dir = tempfile::tempdir().expect("a folder");
    let identity = mounted(&dir, &ca.server(NAME, wall() + Duration::from_hours(24)));
    let tls = Some(TlsFiles { identity, client_ca: None });
    let bench = Bench::start(Setting { tls, ..Setting::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(bench.address).await.expect("taken"));
    }
    let answer = tokio::time::timeout(Duration::from_secs(4), bench.secure(&ca, None).call(METHOD)).await;
    assert!(answer.expect("before the first handshake timed out").is_ok());
    assert!(
        bench.page().contains(r#"connections_ended_total{why="silent"}"#),
        "the oldest connections were closed"
    );
}

#[tokio::test]
async fn a_connection_without_calls_is_closed() {
    let times = Times { silence: Duration::from_millis(100), ..Times::default() };
    let bench = Bench::start(Setting { times, ..Setting::default() }).await;
    let client = bench.plain();
    client.call(METHOD).await.expect("admitted");
    let mut silent = TcpStream::connect(bench.address).await.expect("taken");
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the preface");
    silent.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("empty settings");
    let mut said = Vec::new();
    let read = tokio::time::timeout(TIMEOUT, silent.read_to_end(&mut said)).await;
    let _over = read.expect("the connection has ended").is_ok();
    until("the count", async || bench.page().contains(r#"connections_ended_total{why="silent"} 1"#)).await;
    client.call(METHOD).await.expect("connections with earlier calls stay open");
    assert!(bench.page().contains("connections 1\n"), "{}", bench.page());
}

#[tokio::test]
async fn an_old_connection_is_replaced_and_no_call_fails() {
    let times = Times { age: Duration::from_millis(50), grace: Duration::from_secs(5), ..Times::default() };
    let bench = Bench::start(Setting { times, ..Setting::default() }).await;
    let client = bench.plain();
    until("some connections reached their maximum age", async || {
        client.call_until_sent(METHOD).await.expect("no call fails");
        let page = bench.page();
        let ended =
            page.lines().find_map(|line| line.strip_prefix(r#"connections_ended_total{why="aged"} "#));
        ended.is_some_and(|count| count.parse::<u32>().expect("a number") >= 3)
    })
    .await;
}

#[tokio::test]
async fn long_calls_are_cut_after_the_grace_period() {
    let times =
        Times { age: Duration::from_millis(50), grace: Duration::from_millis(50), ..Times::default() };
    let bench = Bench::start(Setting { times, ..Setting::default() }).await;
    let client = bench.plain();
    let hanging = client.ask("/cloudadapter.v1alpha1.AdapterService/Hang");
    let cut = tokio::time::timeout(TIMEOUT, hanging).await.expect("the connection is closed");
    assert!(cut.is_err());
}

#[tokio::test]
async fn shutdown_waits_for_calls_in_flight() {
    let mut bench = Bench::start(Setting::default()).await;
    let client = bench.plain();
    client.call(METHOD).await.expect("serves");
    bench.stop.cancel();
    let ended =
        tokio::time::timeout(TIMEOUT, bench.serving.join_next()).await.expect("the port stops in time");
    assert!(ended.expect("one task is left").is_ok());
    assert!(TcpStream::connect(bench.address).await.is_err(), "new clients are refused at once");
}

#[tokio::test]
async fn other_protocols_than_grpc_are_closed_at_once() {
    let bench = Bench::start(Setting::default()).await;
    let mut stream = TcpStream::connect(bench.address).await.expect("taken");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let mut said = Vec::new();
    // The read ends with a close or a reset. The connection must end because of the protocol error, not because of the timeout.
    let _closed =
        tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut said)).await.expect("the connection ends");
    assert!(!said.starts_with(b"HTTP/"), "{said:?}");
    until("the ended connection is counted", async || {
        bench.page().contains(r#"connections_ended_total{why="broken"} 1"#)
    })
    .await;
}

#[tokio::test]
async fn unknown_peers_cannot_use_up_the_connections() {
    let bench = Bench::start(Setting::default()).await;
    let (caller, mut strangers) = (bench.plain(), Vec::new());
    caller.call(METHOD).await.expect("admitted");
    for _ in 0..600 {
        strangers.push(TcpStream::connect(bench.address).await.expect("taken"));
    }
    let newest = tokio::time::timeout(Duration::from_secs(5), bench.plain().call(METHOD)).await;
    newest.expect("the call succeeds at once, before the unknown peers time out").expect("served");
    caller.call(METHOD).await.expect("connections with earlier calls stay open");
    until("the oldest unknown peers were closed", async || {
        let page = bench.page();
        let open = page.lines().find_map(|line| line.split_once("connections ")?.1.parse::<u32>().ok());
        open.is_some_and(|open| open <= 130)
    })
    .await;
}
