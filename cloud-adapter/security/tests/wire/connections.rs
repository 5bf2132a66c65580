//! What a connection may not do: stay silent, grow old, hold up others.

use std::time::Duration;

use cloud_adapter_security::{Times, TlsFiles, testing::Ca};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::bench::{Bench, NAME, PATIENCE, Setting, mounted, until, wall};

const METHOD: &str = "/cloudadapter.v1alpha1.AdapterService/GetInfo";

#[tokio::test]
async fn slow_handshakes_hold_up_nobody() {
    let ca = Ca::new("ours");
    let dir = tempfile::tempdir().expect("a folder");
    let identity = mounted(&dir, &ca.server(NAME, wall() + Duration::from_hours(24)));
    let tls = Some(TlsFiles { identity, client_ca: None });
    let bench = Bench::start(Setting { tls, ..Setting::default() }).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(bench.address).await.expect("taken");
        stream.write_all(&[22, 3, 1]).await.expect("the beginning of a greeting");
        slow.push(stream);
    }
    until("all of them", async || bench.page().contains("connections 100")).await;
    let answer = tokio::time::timeout(Duration::from_secs(2), bench.secure(&ca, None).call(METHOD)).await;
    assert!(answer.expect("at once").is_ok());
    let mut ends = Vec::new();
    for mut stream in slow {
        let read = stream.read_to_end(&mut ends);
        // Reset or closed: it is over either way.
        let _over = tokio::time::timeout(PATIENCE, read).await.expect("is ended").is_ok();
    }
    let page = bench.page();
    assert!(page.contains(r#"connections_ended_total{why="slow_handshake"} 100"#), "{page}");
}

/// They make no handshake, each of which may take five seconds.
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
    assert!(answer.expect("before the first handshake has timed out").is_ok());
    assert!(bench.page().contains(r#"connections_ended_total{why="silent"}"#), "the oldest were closed");
}

#[tokio::test]
async fn a_connection_over_which_nobody_comes_is_ended() {
    let times = Times { silence: Duration::from_millis(100), ..Times::default() };
    let bench = Bench::start(Setting { times, ..Setting::default() }).await;
    let client = bench.plain();
    client.call(METHOD).await.expect("admitted");
    let mut silent = TcpStream::connect(bench.address).await.expect("taken");
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the preface");
    silent.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("empty settings");
    let mut said = Vec::new();
    let read = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut said)).await;
    let _over = read.expect("is ended").is_ok();
    until("the count", async || bench.page().contains(r#"connections_ended_total{why="silent"} 1"#)).await;
    client.call(METHOD).await.expect("whoever called before stays");
    assert!(bench.page().contains("connections 1\n"), "{}", bench.page());
}

#[tokio::test]
async fn an_old_connection_is_replaced_and_no_call_fails() {
    let times = Times { age: Duration::from_millis(50), grace: Duration::from_secs(5), ..Times::default() };
    let bench = Bench::start(Setting { times, ..Setting::default() }).await;
    let client = bench.plain();
    until("a few ends of age", async || {
        client.call_until_sent(METHOD).await.expect("no call fails");
        let page = bench.page();
        let ended =
            page.lines().find_map(|line| line.strip_prefix(r#"connections_ended_total{why="aged"} "#));
        ended.is_some_and(|count| count.parse::<u32>().expect("a number") >= 3)
    })
    .await;
}

#[tokio::test]
async fn what_does_not_end_is_cut_after_the_grace() {
    let times =
        Times { age: Duration::from_millis(50), grace: Duration::from_millis(50), ..Times::default() };
    let bench = Bench::start(Setting { times, ..Setting::default() }).await;
    let client = bench.plain();
    let hanging = client.ask("/cloudadapter.v1alpha1.AdapterService/Hang");
    let cut = tokio::time::timeout(PATIENCE, hanging).await.expect("is cut");
    assert!(cut.is_err());
}

#[tokio::test]
async fn told_to_stop_it_finishes_what_is_under_way() {
    let mut bench = Bench::start(Setting::default()).await;
    let client = bench.plain();
    client.call(METHOD).await.expect("serves");
    bench.stop.cancel();
    let ended = tokio::time::timeout(PATIENCE, bench.serving.join_next()).await.expect("in time");
    assert!(ended.expect("one task").is_ok());
    assert!(TcpStream::connect(bench.address).await.is_err(), "new callers are refused at once");
}

#[tokio::test]
async fn what_is_no_grpc_is_ended_at_once_and_not_answered() {
    let bench = Bench::start(Setting::default()).await;
    let mut stream = TcpStream::connect(bench.address).await.expect("taken");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let mut said = Vec::new();
    // A close or a reset: what matters is that it ends, and by the protocol, not by the time for silence.
    let _closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("is ended");
    assert!(!said.starts_with(b"HTTP/"), "{said:?}");
    until("the end is counted", async || bench.page().contains(r#"connections_ended_total{why="broken"} 1"#))
        .await;
}

#[tokio::test]
async fn strangers_take_no_places_of_callers() {
    let bench = Bench::start(Setting::default()).await;
    let (caller, mut strangers) = (bench.plain(), Vec::new());
    caller.call(METHOD).await.expect("admitted");
    for _ in 0..600 {
        strangers.push(TcpStream::connect(bench.address).await.expect("taken"));
    }
    let newest = tokio::time::timeout(Duration::from_secs(5), bench.plain().call(METHOD)).await;
    newest.expect("at once, and not when the strangers' time is over").expect("served");
    caller.call(METHOD).await.expect("whoever called before stays");
    until("the oldest strangers have gone", async || {
        let page = bench.page();
        let open = page.lines().find_map(|line| line.split_once("connections ")?.1.parse::<u32>().ok());
        open.is_some_and(|open| open <= 130)
    })
    .await;
}
