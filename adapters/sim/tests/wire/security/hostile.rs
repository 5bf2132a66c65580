//! Tests of hostile clients. Each client gets an error, uses bounded memory, and delays no other caller.

mod attacks;
mod raw;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};

use crate::{
    security::program::{CLUSTER, info, memory, open_files, start},
    support::cloud::TestCloud,
};

/// The memory limit of an attack, in bytes. The attack that needs most memory opens 11,000 streams of about 10 KiB in an unoptimised build.
const MEMORY: usize = 160 * 1024 * 1024;
/// Maximum delay of another caller, on a busy host.
const CALL: Duration = Duration::from_secs(5);
const PROBE: Duration = Duration::from_secs(2);
/// The maximum number of connections to the port of metrics and probes, plus some margin for other open files.
const PLAIN: usize = 64 + 20;

pub(crate) struct Target {
    pub(crate) address: SocketAddr,
}

/// Runs an attack, makes calls as a normal client at the same time, and measures the memory afterwards.
async fn attacked<F: Future<Output = ()> + Send + 'static>(attack: impl FnOnce(Target) -> F) {
    let adapter = start(&["--grpc-address", "127.0.0.1:0"]).await;
    adapter.ready(CLUSTER).await;
    let before = memory(&adapter);
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let mut attacking = JoinSet::new();
    let (attack, reported) =
        (attack(Target { address: adapter.grpc.parse().expect("TCP") }), std::sync::Arc::clone(&over));
    attacking.spawn(async move {
        attack.await;
        reported.store(true, Ordering::Relaxed);
    });
    let kept = adapter.channel.clone();
    let (mut answers, mut most) = (0, before);
    while !over.load(Ordering::Relaxed) && !attacking.is_empty() {
        // The first channel is an existing connection; the second is a new one.
        for channel in [kept.clone(), adapter.channel.clone()] {
            let answer = tokio::time::timeout(CALL, info(&channel)).await;
            assert!(answer.expect("soon"), "a normal caller is answered");
            answers += 1;
        }
        most = most.max(memory(&adapter));
        tokio::time::sleep(Duration::from_millis(20)).await;
        if let Some(ended) = attacking.try_join_next() {
            ended.expect("the attack goes as expected");
        }
    }
    while let Some(ended) = attacking.join_next().await {
        ended.expect("the attack goes as expected");
    }
    let (cost, bound) = (most.saturating_sub(before), MEMORY);
    println!("{answers} answers; memory grew by {} KiB from {} KiB", cost / 1024, before / 1024);
    assert!(answers > 0);
    assert!(cost < bound, "memory grew by {cost} bytes");
}

#[tokio::test]
async fn random_bytes_end_the_connection() {
    attacked(attacks::random_bytes).await;
}

#[tokio::test]
async fn endless_headers_are_refused() {
    attacked(attacks::huge_headers).await;
}

#[tokio::test]
async fn flood_of_resets_delays_no_other_caller() {
    attacked(attacks::reset_flood).await;
}

#[tokio::test]
async fn clients_that_do_not_read_are_not_buffered() {
    attacked(attacks::slow_readers).await;
}

#[tokio::test]
async fn ten_thousand_idle_streams_end_in_time() {
    attacked(attacks::idle_streams).await;
}

#[tokio::test]
async fn messages_that_are_too_large_or_never_end_are_refused() {
    attacked(attacks::oversized_messages).await;
}

#[tokio::test]
async fn malformed_messages_are_refused() {
    attacked(attacks::malformed_messages).await;
}

/// The adapter sends a listing in parts. A client that does not read uses the memory of one part, regardless of the size of the cloud. The
/// adapter allows 256 watches.
#[tokio::test]
async fn slow_watchers_of_a_large_cloud_cost_little_memory() {
    let cloud = TestCloud::start(serde_json::json!({})).await;
    cloud.machines(5_000).await;
    let adapter = start(&["--grpc-address", "127.0.0.1:0", "--endpoint", &cloud.url]).await;
    adapter.ready(CLUSTER).await;
    let target = Target { address: adapter.grpc.parse().expect("TCP") };
    let one = attacks::deaf_watchers(&target, 1).await;
    let before = memory(&adapter);
    let mut many = attacks::deaf_watchers(&target, 255).await;
    let cost = memory(&adapter).saturating_sub(before);
    println!("{} KiB for 255 clients that do not read", cost / 1024);
    assert!(cost < MEMORY, "memory grew by {cost} bytes");
    attacks::one_watcher_too_many(&target).await;
    assert!(info(&adapter.channel.clone()).await, "a normal caller is answered");
    many.pop();
    attacks::one_watcher_in_time(&target).await;
    drop((one, many));
}

/// The port of metrics and probes does not authenticate callers, so any client may attack it.
#[tokio::test]
async fn thousands_of_half_sent_requests_delay_no_probe() {
    let adapter = start(&["--grpc-address", "127.0.0.1:0"]).await;
    adapter.ready(CLUSTER).await;
    let (files, before) = (open_files(&adapter), memory(&adapter));
    let (mut kept, mut most) = (VecDeque::new(), files);
    for half in 0..3_000 {
        let mut stream = TcpStream::connect(adapter.http).await.expect("taken");
        // The server may have closed this connection already to accept a newer one.
        let _sent = stream.write_all(b"GET /metrics HTTP/1.1\r\nx-never: ").await.is_ok();
        kept.push_back(stream);
        // A process can hold about this number of connections open with the usual limits.
        if kept.len() > 500 {
            kept.pop_front();
        }
        if half % 100 == 99 {
            let page = tokio::time::timeout(PROBE, adapter.page("/metrics")).await.expect("soon");
            assert!(page.contains("# EOF"), "{page}");
            most = most.max(open_files(&adapter));
        }
    }
    assert!(most < files + PLAIN, "{most} open files, {files} before the attack");
    let cost = memory(&adapter).saturating_sub(before);
    assert!(cost < MEMORY, "memory grew by {cost} bytes");
}
