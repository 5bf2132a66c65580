//! Two replicas of each controller run. The leader is killed, shut down, or suspended, and the other replica takes over.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::{Bed, CONTROLLERS, eventually, node, service};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::Instant;

/// This Lease duration is shorter than the default, with which the test would mostly wait for the expiry.
const LEASE: Duration = Duration::from_secs(8);
const FLAGS: [&str; 3] = [
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=1s",
];
/// A standby polls once a second, and a busy host is slow.
const MARGIN: Duration = Duration::from_secs(4);
/// Time limit of a planned change of leader, including the calls in progress.
const HANDOVER: Duration = Duration::from_secs(3);

// Behaviour: P8
#[tokio::test]
async fn standby_takes_over_however_the_leader_ends() {
    let two = json!({ "replicas": 2, "extraArgs": FLAGS });
    let values = CONTROLLERS.map(|name| (key(name), two.clone()));
    let values: Value = values.into_iter().collect::<serde_json::Map<_, _>>().into();
    let mut bed = Bed::start_with(&values).await.unwrap();
    let client = bed.client();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    service("web").port(80).create(&client).await.unwrap();
    let address = bed.address("web").await.unwrap();
    let first = leaders(&mut bed).await;

    // When a leader is killed, the other replica waits until the Lease expires.
    let killed = Instant::now();
    for name in first.values() {
        bed.cluster.pods.get(name).unwrap().kill().await.unwrap();
    }
    let second = leaders(&mut bed).await;
    let took = killed.elapsed();
    println!("kill -9 of all leaders: the others work after {took:?}");
    assert!(took <= LEASE + MARGIN, "{took:?}");
    assert!(CONTROLLERS.iter().all(|it| first[*it] != second[*it]), "{first:?} {second:?}");
    work(&bed, "b", "10.244.2.0/24", "killed").await;

    // When a leader is shut down, the other replica takes over at once.
    for name in first.values() {
        bed.cluster.pods.get(name).unwrap().start().unwrap();
    }
    bed.ready().await.unwrap();
    for controller in CONTROLLERS {
        let stopped = Instant::now();
        bed.cluster.pods.get(&second[controller]).unwrap().terminate().await.unwrap();
        leader(&mut bed, controller).await;
        let took = stopped.elapsed();
        println!("SIGTERM of {controller}: the other one works after {took:?}");
        assert!(took <= HANDOVER, "{controller}: {took:?}");
    }
    work(&bed, "c", "10.244.3.0/24", "stopped").await;

    held_up(&mut bed, &second).await;
    work(&bed, "d", "10.244.4.0/24", "held-up").await;

    assert_eq!(bed.address("web").await.unwrap(), address);
    nothing_twice(&mut bed).await;
}

/// A leader is suspended for longer than the Lease, and finds that another replica leads. It writes nothing, and exits with an error.
async fn held_up(bed: &mut Bed, idle: &BTreeMap<&'static str, String>) {
    for name in idle.values() {
        bed.cluster.pods.get(name).unwrap().start().unwrap();
    }
    bed.ready().await.unwrap();
    let held_up = leaders(bed).await;
    for name in held_up.values() {
        signal(bed, name, Signal::STOP);
    }
    for (controller, name) in &held_up {
        let other = other(controller, name);
        let pod = &*bed.cluster.pods.get(&other).unwrap();
        eventually(&format!("{other} leads"), e2e::WITHIN, || async {
            ensure!(leads(&pod.metrics().await?, controller), "it is a standby");
            Ok(())
        })
        .await
        .unwrap();
    }
    for (controller, name) in &held_up {
        signal(bed, name, Signal::CONT);
        let pod = bed.cluster.pods.get(name).unwrap();
        let what = format!("{name} has ended");
        let status = eventually(&what, e2e::WITHIN, || {
            let status = pod.exit_status();
            async move { status?.context("it still runs") }
        });
        let status = status.await.unwrap();
        let tail = bed.cluster.pods.get(name).unwrap().tail();
        assert_eq!(status.code(), Some(1), "{name}: {tail}");
        assert!(tail.contains(&format!("cloud-{controller} was lost to")), "{name}: {tail}");
    }
}

/// A new node and a new Service are handled, whichever replica leads.
async fn work(bed: &Bed, node: &str, pods: &str, name: &str) {
    bed.join(node, Some(pods)).await.unwrap();
    bed.expose(name, 80).await.unwrap();
    bed.wait_cloud(&format!("{node} has its route"), |state| {
        state.routes.iter().any(|route| route.destination.to_string() == pods)
    })
    .await
    .unwrap();
}

/// Checks that no node was initialised twice, that no load balancer was ensured by two replicas, and that no writer was refused as
/// outdated.
async fn nothing_twice(bed: &mut Bed) {
    for (kind, names, reason) in [
        ("Node", ["a", "b", "c", "d"], "Synced"),
        ("Service", ["web", "killed", "stopped", "held-up"], "EnsuredLoadBalancer"),
    ] {
        for name in names {
            // The controller emits the Event after it writes the address.
            bed.wait_for_event(kind, name, reason).await.unwrap();
            assert_eq!(times(bed, kind, name, reason).await, 1, "{reason} on {name}");
        }
    }
    let cloud = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((cloud.load_balancers.len(), cloud.routes.len()), (4, 4), "{cloud:#?}");
    for name in bed.cluster.pods.names() {
        let pod = bed.cluster.pods.get(&name).unwrap();
        if pod.is_running() {
            let outcomes = pod.counted("cloud_controller_adapter_calls_total", "outcome").await.unwrap();
            assert!(!outcomes.contains_key("STALE_FENCE"), "{name}: {outcomes:?}");
        }
    }
    // A Service that is created just after the first node may get an Event that there is no node yet.
    let mut warnings = bed.warnings().await.unwrap();
    warnings.retain(|warning| !warning.contains("UnAvailableLoadBalancer"));
    assert!(warnings.is_empty(), "{warnings:#?}");
}

async fn leaders(bed: &mut Bed) -> BTreeMap<&'static str, String> {
    let mut leaders = BTreeMap::new();
    for controller in CONTROLLERS {
        leaders.insert(controller, leader(bed, controller).await);
    }
    leaders
}

async fn leader(bed: &mut Bed, controller: &'static str) -> String {
    let names = [controller.to_owned(), format!("{controller}-1")];
    let deadline = Instant::now() + e2e::WITHIN;
    loop {
        for name in &names {
            let pod = bed.cluster.pods.get(name).unwrap();
            if pod.is_running() && pod.metrics().await.is_ok_and(|page| leads(&page, controller)) {
                return name.clone();
            }
        }
        assert!(Instant::now() < deadline, "no replica of {controller} leads");
        tokio::task::yield_now().await;
    }
}

fn leads(metrics: &str, controller: &str) -> bool {
    metrics.contains(&format!("leader_election_master_status{{name=\"cloud-{controller}\"}} 1"))
}

fn other(controller: &str, name: &str) -> String {
    if name == controller { format!("{controller}-1") } else { controller.to_owned() }
}

fn signal(bed: &mut Bed, name: &str, signal: Signal) {
    let id = bed.cluster.pods.get(name).unwrap().id().unwrap();
    let id = Pid::from_raw(id.try_into().unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}

fn key(controller: &str) -> String {
    controller.replace("-controller", "Controller")
}

/// If its Lease is deleted, the leader does not exit. It creates the Lease again and continues in a new term.
// Behaviour: P10
#[tokio::test]
async fn a_deleted_lease_is_created_again_by_its_holder() {
    let mut bed = Bed::start().await.unwrap();
    let leases: Api<Lease> = Api::namespaced(bed.client(), "kube-system");
    for controller in CONTROLLERS {
        let name = format!("cloud-{controller}");
        let what = format!("{name} is held");
        let before = eventually(&what, e2e::WITHIN, || async {
            let spec = leases.get(&name).await?.spec.context("it has never had a holder")?;
            ensure!(spec.holder_identity.is_some(), "it has no holder");
            Ok(spec)
        });
        let before = before.await.unwrap();
        leases.delete(&name, &DeleteParams::default()).await.unwrap();
        let what = format!("{name} exists again");
        let after = eventually(&what, e2e::WITHIN, || async {
            leases.get_opt(&name).await?.context("it does not exist")
        });
        let after = after.await.unwrap().spec.unwrap();
        assert_eq!(after.holder_identity, before.holder_identity, "{controller}");
        assert!(after.acquire_time > before.acquire_time, "{controller}: {before:?} {after:?}");
        assert!(bed.cluster.pods.get(controller).unwrap().is_running(), "{controller}");
    }
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.expose("web", 80).await.unwrap();
}

/// On shutdown, a controller finishes the calls in progress, emits their Events, and releases its Lease. The next process does the
/// remaining work.
// Behaviour: P7
#[tokio::test]
async fn a_controller_finishes_calls_in_progress_on_shutdown() {
    let mut bed = Bed::start().await.unwrap();
    let client = bed.client();
    bed.join("first", None).await.unwrap();
    bed.targets(1).await.unwrap();
    let provisioning = json!({ "provisioning": { "create_ms": 300, "update_ms": 300 } });
    bed.cluster.cloud.configure(&provisioning).await.unwrap();
    let nodes: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    for name in &nodes {
        bed.cluster.cloud.create_instance(name).await.unwrap();
        node(name).register(&client).await.unwrap();
    }
    let services: Vec<String> = (0..6).map(|number| format!("s{number}")).collect();
    for name in &services {
        service(name).port(80).port(443).create(&client).await.unwrap();
    }
    bed.wait_cloud("a load balancer is partly created", |state| !state.load_balancers.is_empty())
        .await
        .unwrap();

    eventually("a second node is initialised", e2e::WITHIN, || async {
        let all = bed.nodes().list(&ListParams::default()).await?;
        let done = all.iter().filter(|node| !e2e::is_uninitialised(node)).count();
        ensure!(done > 1, "no second node is initialised");
        Ok(())
    })
    .await
    .unwrap();

    for controller in ["node-controller", "service-controller"] {
        let pod = bed.cluster.pods.get(controller).unwrap();
        pod.terminate().await.unwrap();
        let log = std::fs::read_to_string(pod.log()).unwrap();
        assert!(log.contains("Lease released"), "{controller}: {}", pod.tail());
        assert!(!log.contains("Some work did not finish in time"), "{controller}: {}", pod.tail());
    }
    let mut finished = 0;
    for name in &nodes {
        if !e2e::is_uninitialised(&bed.nodes().get(name).await.unwrap()) {
            assert_eq!(times(&bed, "Node", name, "Synced").await, 1, "{name} is initialised");
            finished += 1;
        }
    }
    println!("{finished} of {} nodes were initialised when the controller ended", nodes.len());
    assert!(finished > 0);

    for controller in ["node-controller", "service-controller"] {
        bed.cluster.pods.get(controller).unwrap().start().unwrap();
    }
    for name in &nodes {
        bed.initialised(name).await.unwrap();
        bed.wait_for_event("Node", name, "Synced").await.unwrap();
        assert_eq!(times(&bed, "Node", name, "Synced").await, 1, "{name}");
    }
    for name in &services {
        bed.address(name).await.unwrap();
    }
    let cloud = bed.cluster.cloud.state().await.unwrap();
    assert_eq!(cloud.load_balancers.len(), services.len(), "{:#?}", cloud.load_balancers);
}

async fn times(bed: &Bed, kind: &str, name: &str, reason: &str) -> usize {
    let events = bed.events(kind, name).await.unwrap();
    events.iter().filter(|event| event.reason.as_deref() == Some(reason)).count()
}
