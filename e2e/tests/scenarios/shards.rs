//! Three replicas of each controller share the work. They are killed, suspended, shut down and started again while users create objects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use adapter_sim::simcloud::counts::Counts;
use adapter_sim::simcloud::{Access, Family, Operation};
use e2e::{Bed, CONTROLLERS, node, service};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::Instant;

const SHARDS: usize = 4;
const REPLICAS: usize = 3;
/// This Lease duration is shorter than the default, with which the test would mostly wait for the expiry.
const LEASE: Duration = Duration::from_secs(8);
/// Flags for short Leases, and for the initial list from a watch.
const FLAGS: [&str; 4] = [
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=1s",
    "--streaming-lists",
];
/// A standby polls once a second, and a busy host is slow.
const MARGIN: Duration = Duration::from_secs(5);
/// Time limit of a planned move of shards, including the calls in progress.
const HANDOVER: Duration = Duration::from_secs(4);

// Behaviour: P9
#[tokio::test]
async fn replicas_share_shards_however_one_of_them_ends() {
    let mut bed = install(SHARDS).await;
    shared_evenly(&mut bed, &[0, 1, 2]).await;
    let mut users = Users::default();
    each_works(&mut bed, &mut users).await;

    // When a replica is killed, other replicas take over its shards as soon as the Leases have expired. Work for the other shards
    // continues.
    let killed = Instant::now();
    for controller in CONTROLLERS {
        bed.cluster.pods.get(&replica(controller, 0)).unwrap().kill().await.unwrap();
    }
    users.work(&bed, 8, "killed").await;
    held_by_all(&mut bed, &[1, 2]).await;
    let took = killed.elapsed();
    println!("kill -9 of one of three: all work is done by the others after {took:?}");
    assert!(took <= LEASE + MARGIN, "{took:?}");

    // A new replica gets its share.
    start(&mut bed, 0).await;
    shared_evenly(&mut bed, &[0, 1, 2]).await;
    users.work(&bed, 4, "joined").await;

    // A replica is suspended for longer than the Leases last, and other replicas take over. When it resumes, it continues with the shards
    // that it then gets.
    for controller in CONTROLLERS {
        signal(&mut bed, &replica(controller, 1), Signal::STOP);
    }
    users.work(&bed, 8, "held-up").await;
    held_by_all(&mut bed, &[0, 2]).await;
    for controller in CONTROLLERS {
        signal(&mut bed, &replica(controller, 1), Signal::CONT);
    }
    shared_evenly(&mut bed, &[0, 1, 2]).await;
    users.work(&bed, 4, "awake").await;

    // When a replica shuts down, the other replicas take over at once and make no calls to the cloud except listings.
    for controller in CONTROLLERS {
        all_quiet(&mut bed, controller, &[0, 1, 2]).await;
    }
    let (moves, before) = (Instant::now(), bed.cluster.cloud.counts().await.unwrap());
    for controller in CONTROLLERS {
        bed.cluster.pods.get(&replica(controller, 2)).unwrap().terminate().await.unwrap();
        let stopped = Instant::now();
        held(&mut bed, controller, &[0, 1]).await;
        let took = stopped.elapsed();
        println!("SIGTERM of one {controller} of three: the others have its shards after {took:?}");
        assert!(took <= HANDOVER, "{controller}: {took:?}");
        all_quiet(&mut bed, controller, &[0, 1]).await;
    }
    assert_only_listed(&bed, &before, moves).await;
    users.work(&bed, 4, "stopped").await;
    users.nothing_twice(&mut bed).await;
}

// Behaviour: P9
#[tokio::test]
async fn a_new_number_of_shards_waits_for_old_replicas() {
    let mut bed = install(2).await;
    shared_evenly_over(&mut bed, &[0, 1, 2], 2).await;
    let mut users = Users::default();
    users.work(&bed, 4, "two").await;
    let client = bed.client();
    for number in 0..REPLICAS {
        for controller in CONTROLLERS {
            let pod = bed.cluster.pods.get(&replica(controller, number)).unwrap();
            pod.stop().await.unwrap();
            pod.set_flag("--shards", "3").unwrap();
            pod.start().unwrap();
        }
        bed.ready().await.unwrap();
        // While a replica with the former number of shards runs, the replicas with the new number do not hold the shard that only they
        // know.
        if number + 1 < REPLICAS {
            let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
            for controller in CONTROLLERS {
                assert!(
                    leases
                        .get_opt(&format!("cloud-{controller}-2"))
                        .await
                        .unwrap()
                        .is_none_or(|it| { it.spec.and_then(|spec| spec.holder_identity).is_none() })
                );
            }
        }
        users.work(&bed, 2, &format!("rolled-{number}")).await;
    }
    shared_evenly_over(&mut bed, &[0, 1, 2], 3).await;
    users.work(&bed, 4, "three").await;
    users.nothing_twice(&mut bed).await;
}

fn values(shards: usize) -> Value {
    let many = json!({ "replicas": REPLICAS, "shards": shards, "extraArgs": FLAGS });
    let values = CONTROLLERS.map(|name| (name.replace("-controller", "Controller"), many.clone()));
    values.into_iter().collect::<serde_json::Map<_, _>>().into()
}

async fn install(shards: usize) -> Bed {
    let mut bed = Bed::install_with(&values(shards)).await.unwrap();
    bed.start_pods().await.unwrap();
    bed
}

fn replica(controller: &str, number: usize) -> String {
    if number == 0 { controller.to_owned() } else { format!("{controller}-{number}") }
}

fn lease(controller: &str, shard: usize) -> String {
    if shard == 0 { format!("cloud-{controller}") } else { format!("cloud-{controller}-{shard}") }
}

async fn start(bed: &mut Bed, number: usize) {
    for controller in CONTROLLERS {
        bed.cluster.pods.get(&replica(controller, number)).unwrap().start().unwrap();
    }
    bed.ready().await.unwrap();
}

fn signal(bed: &mut Bed, name: &str, signal: Signal) {
    let id = bed.cluster.pods.get(name).unwrap().id().unwrap();
    let id = Pid::from_raw(id.try_into().unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}

/// Shards that a replica holds according to its metrics.
async fn shards(
    bed: &mut Bed,
    controller: &str,
    number: usize,
    of: usize,
) -> anyhow::Result<BTreeSet<usize>> {
    let page = bed.cluster.pods.get(&replica(controller, number))?.metrics().await?;
    let has = |shard: &usize| {
        page.contains(&format!("leader_election_master_status{{name=\"{}\"}} 1\n", lease(controller, *shard)))
    };
    Ok((0..of).filter(has).collect())
}

/// Waits until these replicas of a controller hold all shards, and returns the number of shards of each.
async fn held(bed: &mut Bed, controller: &str, numbers: &[usize]) -> BTreeMap<usize, usize> {
    held_of(bed, controller, numbers, SHARDS).await
}

async fn held_of(bed: &mut Bed, controller: &str, numbers: &[usize], of: usize) -> BTreeMap<usize, usize> {
    let deadline = Instant::now() + e2e::WITHIN;
    loop {
        let (mut all, mut counts) = (BTreeSet::new(), BTreeMap::new());
        for number in numbers {
            let own = shards(bed, controller, *number, of).await.unwrap_or_default();
            counts.insert(*number, own.len());
            all.extend(own);
        }
        if all.len() == of {
            return counts;
        }
        assert!(
            Instant::now() < deadline,
            "{controller}: replicas {numbers:?} hold {counts:?} of {of} shards"
        );
        tokio::task::yield_now().await;
    }
}

async fn held_by_all(bed: &mut Bed, numbers: &[usize]) {
    for controller in CONTROLLERS {
        held(bed, controller, numbers).await;
    }
}

async fn shared_evenly(bed: &mut Bed, numbers: &[usize]) {
    shared_evenly_over(bed, numbers, SHARDS).await;
}

/// Waits until each of these replicas holds the same number of shards, or at most one more than another replica.
async fn shared_evenly_over(bed: &mut Bed, numbers: &[usize], of: usize) {
    for controller in CONTROLLERS {
        let deadline = Instant::now() + e2e::WITHIN;
        loop {
            let counts = held_of(bed, controller, numbers, of).await;
            let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            if most - least <= 1 {
                break;
            }
            assert!(Instant::now() < deadline, "{controller}: {counts:?}");
        }
    }
}

async fn all_quiet(bed: &mut Bed, controller: &str, numbers: &[usize]) {
    for number in numbers {
        bed.quiet(&replica(controller, *number)).await.unwrap();
    }
}

/// Checks that the cloud got only listings: at most one per half minute for each of the three collections.
async fn assert_only_listed(bed: &Bed, before: &Counts, since: Instant) {
    let now = bed.cluster.cloud.counts().await.unwrap();
    let listings = [Operation::ListInstances, Operation::ListLoadBalancers, Operation::ListRoutes];
    let n_listings =
        |counts: &Counts| -> u64 { listings.into_iter().map(|operation| counts.of(operation)).sum() };
    let listed = n_listings(&now) - n_listings(before);
    assert_eq!(now.total - before.total, listed, "{before:?}, {now:?}");
    let (most, collections) = (since.elapsed().as_secs() / 30 + 1, 3);
    assert!(listed <= most * collections, "{before:?}, {now:?}");
}

/// Creates Services until each replica of the service-controller has created load balancers. The shards of Services are random. With twelve
/// Services, one of the three replicas gets none in one of fifty runs.
async fn each_works(bed: &mut Bed, users: &mut Users) {
    for round in 0.. {
        users.work(bed, 12, &format!("first-{round}")).await;
        let mut idle = Vec::new();
        for name in (0..REPLICAS).map(|number| replica("service-controller", number)) {
            let pod = bed.cluster.pods.get(&name).unwrap();
            let calls = pod.counted("cloud_controller_adapter_calls_total", "call").await.unwrap();
            if calls.get("EnsureLoadBalancer").is_none_or(|n| *n == 0.0) {
                idle.push(format!("{name}: {calls:?}"));
            }
        }
        if idle.is_empty() {
            return;
        }
        assert!(round < 3, "{idle:#?}");
    }
}

#[derive(Default)]
struct Users {
    nodes: Vec<String>,
    services: Vec<String>,
}

impl Users {
    /// Creates `n` nodes with routes and `n` Services, and waits until all are ready.
    async fn work(&mut self, bed: &Bed, n: usize, name: &str) {
        let client = bed.client();
        for number in 0..n {
            let (node_name, service_name) = (format!("n-{name}-{number}"), format!("s-{name}-{number}"));
            bed.cluster.cloud.create_instance(&node_name).await.unwrap();
            let cidr = format!("10.244.{}.0/24", self.nodes.len());
            node(&node_name).pods(&cidr).register(&client).await.unwrap();
            service(&service_name).port(80).create(&client).await.unwrap();
            self.nodes.push(node_name);
            self.services.push(service_name);
        }
        for (node, service) in self.nodes.iter().zip(&self.services).rev().take(n) {
            bed.initialised(node).await.unwrap();
            bed.address(service).await.unwrap();
        }
        let want = self.nodes.len();
        bed.wait_cloud(&format!("there are {want} routes"), |state| state.routes.len() == want)
            .await
            .unwrap();
    }

    /// Checks that no node was initialised twice, no load balancer created twice, and that there are no warnings.
    async fn nothing_twice(&self, bed: &mut Bed) {
        // A replica that reconciles a Service for the first time while nodes join cannot know whether anything else changed, so it may emit
        // the Event again.
        let kinds =
            [("Node", &self.nodes, "Synced", 1), ("Service", &self.services, "EnsuredLoadBalancer", 2)];
        for (kind, names, reason, most) in kinds {
            for name in names {
                bed.wait_for_event(kind, name, reason).await.unwrap();
                let events = bed.events(kind, name).await.unwrap();
                let n = events.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
                assert!((1..=most).contains(&n), "{reason} on {name}: {n} times");
            }
        }
        let cloud = bed.cluster.cloud.state().await.unwrap();
        assert_eq!((cloud.load_balancers.len(), cloud.routes.len()), (self.services.len(), self.nodes.len()));
        let counts = bed.cluster.cloud.counts().await.unwrap();
        // Each load balancer is created by one set of vendor writes. Later writes change only the backends, for the nodes that joined.
        let once = u64::try_from(self.services.len()).unwrap();
        let made = [Operation::CreateLoadBalancer, Operation::CreateListener, Operation::UpdateLoadBalancer];
        assert_eq!(made.map(|it| counts.of(it)), [once; 3], "{counts:?}");
        let members = counts.of(Operation::SetMembers) + counts.of(Operation::UpdateMembers);
        let nodes = u64::try_from(self.nodes.len()).unwrap();
        let writes = counts
            .by_operation
            .iter()
            .filter(|(it, _)| it.family() == Family::Loadbalancer && it.access() == Access::Write);
        assert_eq!(writes.map(|(_, n)| n).sum::<u64>(), 3 * once + members, "{counts:?}");
        assert!(members <= once * nodes, "{counts:?}");
        let mut warnings = bed.warnings().await.unwrap();
        // A Service that is created just before the first node is ready may get an Event that there is no node yet.
        warnings.retain(|warning| !warning.contains("UnAvailableLoadBalancer"));
        assert!(warnings.is_empty(), "{warnings:#?}");
    }
}
