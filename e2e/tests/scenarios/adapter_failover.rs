//! Tests with two adapters. The leader is killed or shut down while users are at work.

#![expect(clippy::print_stdout, reason = "the measured times are worth reading")]

use std::collections::BTreeMap;
use std::time::Duration;

use adapter_sim::simcloud::counts::LogEntry;
use anyhow::Context;
use e2e::{ADAPTER, Bed, GrpcPort, Load, Outcome, eventually};
use serde_json::json;
use tokio::time::Instant;

/// Time limit of an unplanned change of leader, and of a planned one, which takes a second on an idle host.
const FAILOVER: Duration = Duration::from_secs(12);
const HANDOVER: Duration = Duration::from_secs(3);
/// If a watch lasted this long, controllers treat its end as a change of leader.
const STEADY: Duration = Duration::from_secs(10);
/// The other replica.
const OTHER: &str = "cloud-adapter-1";
/// Rate limits of the cloud: calls per second, and burst.
const LIMITS: [(&str, f64, f64); 3] =
    [("compute", 10.0, 20.0), ("loadbalancer", 20.0, 40.0), ("network", 10.0, 20.0)];
/// The maximum time in seconds from the sending of a call to its entry in the cloud's log.
const ON_THE_WAY: f64 = 0.3;

#[tokio::test]
async fn adapter_failover_fails_no_call_of_a_controller() {
    let buckets: BTreeMap<_, _> =
        LIMITS.iter().map(|(name, rate, burst)| (*name, json!({ "rate": rate, "burst": burst }))).collect();
    // Routes are listed often, so that routes to deleted instances are removed soon.
    let cache = json!({ "routes": { "maxAge": "5s" } });
    let values = json!({ "adapter": { "replicas": "active-standby", "limits": { "buckets": buckets }, "cache": cache } });
    let mut bed = Bed::start_with(&values).await.unwrap();
    let mut load = Load::start(&bed).await.unwrap();
    load.work_for(STEADY).await.unwrap();

    let first = leader(&mut bed).await;
    let second = other(first);
    let standby = port(&mut bed, second);
    standby.look_serving().await.expect_err("two replicas serve at once");
    let killed = Instant::now();
    bed.cluster.pods.get(first).unwrap().kill().await.unwrap();
    serves(&standby).await;
    let took = killed.elapsed();
    println!("kill -9 of the leader: the other one serves after {took:?}");
    assert!(took <= FAILOVER, "{took:?}");
    load.rounds(10).await.unwrap();

    bed.cluster.pods.get(first).unwrap().start().unwrap();
    bed.ready().await.unwrap();
    load.work_for(STEADY).await.unwrap();
    let standby = port(&mut bed, first);
    let stopped = Instant::now();
    let leading = bed.cluster.pods.get(second).unwrap();
    let (ended, took) = tokio::join!(leading.terminate(), async {
        serves(&standby).await;
        stopped.elapsed()
    });
    ended.unwrap();
    let log = std::fs::read_to_string(bed.cluster.pods.get(second).unwrap().log()).unwrap();
    assert!(!log.contains("stopped before all work was done"), "{log}");
    println!("SIGTERM of the leader: the other one serves after {took:?}");
    assert!(took <= HANDOVER, "{took:?}");
    load.rounds(10).await.unwrap();

    let outcome = load.stop().await.unwrap();
    settled(&bed, &outcome).await;
    unnoticed(&mut bed).await;
    within_budget(&bed.cluster.cloud.requests().await.unwrap());
}

/// No call of a controller fails for its user, because a call that must be repeated is repeated in the same reconcile.
async fn unnoticed(bed: &mut Bed) {
    let calls = bed.adapter_calls().await.unwrap();
    println!("calls of the controllers: {calls:?}");
    // A new leader does not know the backend sets; the controllers send them again.
    let failed: Vec<_> =
        calls.keys().filter(|it| !["OK", "BACKEND_SET_UNKNOWN"].contains(&it.as_str())).collect();
    assert!(failed.is_empty(), "{calls:?}");
    assert_eq!(bed.warnings().await.unwrap(), Vec::<String>::new());
}

/// At no time does the cloud get more calls than a single replica may send.
fn within_budget(log: &[LogEntry]) {
    for (family, rate, burst) in LIMITS {
        let of_family = |entry: &&LogEntry| json!(entry.operation.family()) == family;
        let mut at: Vec<_> = log.iter().filter(of_family).map(|entry| entry.at_ms).collect();
        // Calls that arrive together are logged in any order.
        at.sort_unstable();
        let mut fullest = 0.0_f64;
        for (n, from) in at.iter().enumerate() {
            for (calls, to) in at.iter().skip(n).enumerate() {
                let seconds = Duration::from_millis(to - from).as_secs_f64() + ON_THE_WAY;
                let share = f64::from(u32::try_from(calls + 1).unwrap()) / (burst + rate * seconds);
                fullest = fullest.max(share);
            }
        }
        println!("{family}: {} calls, at most {:.0} % of the limit at any time", at.len(), fullest * 100.0);
        assert!(!at.is_empty() && fullest <= 1.0, "{family}: {fullest}");
    }
}

/// Waits until each Service has one complete load balancer, each node has its route, and nothing else is left.
async fn settled(bed: &Bed, outcome: &Outcome) {
    bed.until_cloud("each object exists exactly once", |state| outcome.check(state, &[])).await.unwrap();
}

async fn leader(bed: &mut Bed) -> &'static str {
    let ports = [ADAPTER, OTHER].map(|name| (name, port(bed, name)));
    let look = || async {
        for (name, port) in &ports {
            if port.look_serving().await.is_ok() {
                return Ok(*name);
            }
        }
        Err(anyhow::anyhow!("none")).context("no replica serves")
    };
    eventually("a replica serves", e2e::WITHIN, look).await.unwrap()
}

fn other(replica: &str) -> &'static str {
    if replica == ADAPTER { OTHER } else { ADAPTER }
}

/// The port of a replica, as a controller calls it.
fn port(bed: &mut Bed, replica: &str) -> GrpcPort {
    let (ca, token) = {
        let controller = bed.cluster.pods.get("service-controller").unwrap();
        let file = |flag| Some(controller.flag(flag).unwrap().into());
        (file("--adapter-ca-file"), file("--adapter-token-file"))
    };
    GrpcPort::open(bed.cluster.pods.get(replica).unwrap(), ca, token).unwrap()
}

async fn serves(port: &GrpcPort) {
    eventually("the other replica serves", FAILOVER * 2, || port.look_serving()).await.unwrap();
}
