//! The vendor calls of events on Services: the column "vendor calls" of the table in the service-controller's README, row by row. The rows
//! of orphans and shards are counted in their own tests.

use std::collections::BTreeMap;

use adapter_sim::simcloud::Operation::{
    self, CreateListener, CreateLoadBalancer, DeleteListener, DeleteLoadBalancer, DeletePool,
    ListLoadBalancers, SetMembers, UpdateListener, UpdateLoadBalancer, UpdateMembers,
};
use adapter_sim::simcloud::{Access, Family};
use anyhow::{Context, ensure};
use e2e::{ADAPTER, Bed, Pod, WITHIN, address, eventually, seconds, service};
use futures::future::try_join_all;
use http::Method;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

const CONTROLLER: &str = "service-controller";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Interval of listings.
const PERIOD: Duration = seconds(2);
/// One Service for each row that would disturb another row.
const SERVICES: [&str; 8] = ["calm", "same", "shown", "mode", "cleared", "stripped", "type", "vanishes"];
/// Nodes that leave and join while the others stay.
const FEW: [&str; 3] = ["b", "c", "d"];
/// A load balancer, its listener with the backends, and the tag that marks it as complete.
const MADE: [(Operation, u64); 3] = [(CreateLoadBalancer, 1), (CreateListener, 1), (UpdateLoadBalancer, 1)];

/// Vendor calls by operation.
type Calls = BTreeMap<Operation, u64>;

#[tokio::test]
async fn vendor_calls_of_services_match_the_readme() {
    let values = json!({
        "routeController": { "enabled": false },
        "adapter": {
            "limits": { "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } },
            "cache": { "loadBalancers": { "maxAge": "2s" } },
        },
    });
    let mut bed = Bed::install_with(&values).await.unwrap();
    // Operations are complete at once, so that calls are only made to check the result.
    let at_once = json!({ "provisioning": { "create_ms": 0, "update_ms": 0, "delete_ms": 0 } });
    bed.cluster.cloud.configure(&at_once).await.unwrap();
    bed.start_pods().await.unwrap();
    for name in ["a", "b", "c", "d"] {
        bed.join(name, None).await.unwrap();
    }
    bed.targets(4).await.unwrap();
    for name in SERVICES {
        service(name).port(80).create(&bed.client()).await.unwrap();
    }
    for name in SERVICES {
        bed.told("Service", name, "EnsuredLoadBalancer").await.unwrap();
    }
    let mut table = Table { bed, wrong: Vec::new() };
    changes_without_calls(&mut table).await;
    settings_of_the_service_alone(&mut table).await;
    new_and_changed_services(&mut table).await;
    deletions_in_the_cloud(&mut table).await;
    nodes_come_and_go(&mut table).await;
    deleted_services(&mut table).await;
    restarts(&mut table).await;
    assert!(table.wrong.is_empty(), "{:#?}", table.wrong);
}

/// Steady state, unrelated changes, other classes and types, settings that are already in effect, and invalid Services.
async fn changes_without_calls(table: &mut Table) {
    table.row("two periods", 0, [], async |bed| listed(bed, 2).await).await;
    table
        .row("heartbeats", 0, [], async |bed| {
            for beat in 0..5 {
                heartbeat(bed, "a", beat).await;
            }
            has_seen(bed, "beats").await;
        })
        .await;
    let unrelated = [
        json!({ "metadata": { "annotations": { "example.com/a": "b" }, "labels": { "example.com/a": "b" } } }),
        json!({ "spec": { "selector": { "app": "another" } } }),
    ];
    let same = json!({ "metadata": { "annotations": { "lb.cloudadapter.dev/internal": "false" } } });
    table
        .row("unrelated changes", 0, [], async |bed| {
            for patch in &unrelated {
                bed.patch_service("calm", patch).await.unwrap();
            }
            has_seen(bed, "unrelated").await;
        })
        .await;
    table
        .row("another class or type, and a setting that is already in effect", 0, [], async |bed| {
            let (theirs, plain) = (service("theirs").port(80), service("plain").port(80));
            theirs
                .spec("loadBalancerClass", json!("example.com/theirs"))
                .create(&bed.client())
                .await
                .unwrap();
            plain.spec("type", json!("ClusterIP")).create(&bed.client()).await.unwrap();
            bed.patch_service("same", &same).await.unwrap();
            has_seen(bed, "others").await;
        })
        .await;
    table.row("an invalid Service", 0, [], async |bed| cannot_work(bed, "wrong").await).await;
}

/// Settings that affect only the Service, not the load balancer.
async fn settings_of_the_service_alone(table: &mut Table) {
    let annotation = |key: &str, value: &str| json!({ "metadata": { "annotations": { key: value } } });
    let hostname = annotation("lb.cloudadapter.dev/hostname", "shop.example.com");
    table
        .row("hostname", 0, [], async |bed| {
            bed.patch_service("shown", &hostname).await.unwrap();
            until(bed, "shown", "shows the name", |it| address(it).as_deref() == Some("shop.example.com"))
                .await;
        })
        .await;
    let proxy = annotation("lb.cloudadapter.dev/ip-mode", "Proxy");
    table
        .row("ip-mode", 0, [], async |bed| {
            bed.patch_service("mode", &proxy).await.unwrap();
            until(bed, "mode", "has the mode in its status", |it| {
                json!(it.status).to_string().contains(r#""ipMode":"Proxy""#)
            })
            .await;
        })
        .await;
    table
        .row("a cleared status", 0, [], async |bed| {
            let none = Patch::Merge(json!({ "status": { "loadBalancer": null } }));
            bed.services().patch_status("cleared", &PatchParams::default(), &none).await.unwrap();
            bed.address("cleared").await.unwrap();
        })
        .await;
    table
        .row("a removed finalizer", 0, [], async |bed| {
            strip(bed, "stripped").await;
            until(bed, "stripped", "has its finalizer again", |it| it.metadata.finalizers.is_some()).await;
        })
        .await;
}

/// The constant k of the README, which is 3 for a load balancer with one port.
async fn new_and_changed_services(table: &mut Table) {
    table
        .row("a new Service", 1, MADE, async |bed| {
            service("new").port(80).create(&bed.client()).await.unwrap();
            bed.told("Service", "new", "EnsuredLoadBalancer").await.unwrap();
        })
        .await;
    let moved = [(CreateListener, 1), (DeleteListener, 1), (DeletePool, 1), (UpdateLoadBalancer, 1)];
    let port =
        Patch::Merge(json!({ "spec": { "ports": [{ "name": "tcp-80", "port": 8080, "protocol": "TCP" }] } }));
    table
        .row("another port", 1, moved, async |bed| {
            bed.services().patch("new", &PatchParams::default(), &port).await.unwrap();
            bed.until_cloud("it has only the new listener", |state| {
                let new = state.balancer("new")?;
                let ports: Vec<_> = new.listeners.iter().map(|it| it.port).collect();
                ensure!(ports == [8080] && new.pools.len() == 1, "{ports:?}");
                Ok(())
            })
            .await
            .unwrap();
            bed.quiet(CONTROLLER).await.unwrap();
        })
        .await;
    let spoken = json!({ "spec": { "ports": [{ "port": 8080, "protocol": "TCP", "appProtocol": "http" }] } });
    table
        .row("another appProtocol", 1, [(UpdateListener, 1), (UpdateLoadBalancer, 1)], async |bed| {
            bed.patch_service("new", &spoken).await.unwrap();
            bed.until_cloud("the listener has the new protocol", |state| {
                let word = state.balancer("new")?.listeners.first().context("no listener")?.traffic.clone();
                ensure!(word.app_protocol.as_deref() == Some("http"), "{word:?}");
                Ok(())
            })
            .await
            .unwrap();
        })
        .await;
}

/// The next listing shows what was removed in the cloud, and the controller creates it again.
async fn deletions_in_the_cloud(table: &mut Table) {
    // The latest writes are only in a listing that begins after them.
    listed(&table.bed, 2).await;
    table
        .row("a load balancer that was removed in the cloud", 1, MADE, async |bed| {
            let id = bed.cluster.cloud.state().await.unwrap().balancer("vanishes").unwrap().id.clone();
            bed.cluster.cloud.delete_load_balancer(&id).await.unwrap();
            let vip = bed.until_cloud("another load balancer exists", |state| {
                let other = state.balancer("vanishes")?;
                ensure!(other.id != id, "it is the same load balancer");
                other.vips.first().map(ToString::to_string).context("no address")
            });
            let vip = vip.await.unwrap();
            until(bed, "vanishes", "has the new address", |it| address(it).as_ref() == Some(&vip)).await;
        })
        .await;
    listed(&table.bed, 2).await;
    // One of these calls is the removal itself.
    table
        .row("backends that were removed in the cloud", 1, [(SetMembers, 2)], async |bed| {
            let state = bed.cluster.cloud.state().await.unwrap();
            let pool = &state.balancer("calm").unwrap().pools.first().unwrap().id;
            let (path, none) = (format!("/v1/pools/{pool}/members"), json!({ "members": [] }));
            bed.cluster.cloud.by_hand(Method::PUT, &path, Some(&none)).await.unwrap();
            members(bed, 4).await;
        })
        .await;
}

/// One write for each load balancer with one port, however many nodes leave or join.
async fn nodes_come_and_go(table: &mut Table) {
    let all = table.bed.cluster.cloud.state().await.unwrap().load_balancers.len();
    let all = u64::try_from(all).unwrap();
    for (what, label, left) in [("nodes leave", json!("true"), 1), ("nodes join", Value::Null, 4)] {
        let sets = puts(&table.bed).await;
        let patch = json!({ "metadata": { "labels": { EXCLUDED: label } } });
        let (calls, _) = table
            .calls(async |bed| {
                try_join_all(FEW.iter().map(|name| bed.patch_node(name, &patch))).await.unwrap();
                members(bed, left).await;
            })
            .await;
        // On a busy machine the change may arrive in two parts.
        let sets = puts(&table.bed).await - sets;
        let writes = [SetMembers, UpdateMembers].iter().filter_map(|it| calls.get(it)).sum::<u64>();
        let others = calls.keys().any(|it| ![SetMembers, UpdateMembers, ListLoadBalancers].contains(it));
        if others || !(1..3).contains(&sets) || writes != sets * all {
            table
                .wrong
                .push(format!("{what}: {sets} PutBackendSet calls for {all} load balancers cost {calls:?}"));
        }
    }
}

/// A load balancer is deleted with its Service, in one call.
async fn deleted_services(table: &mut Table) {
    let gone = [(DeleteLoadBalancer, 1)];
    table
        .row("a deleted Service", 1, gone, async |bed| {
            bed.delete_service("new").await.unwrap();
        })
        .await;
    table
        .row("another type", 1, gone, async |bed| {
            bed.patch_service("type", &json!({ "spec": { "type": "ClusterIP" } })).await.unwrap();
            until(bed, "type", "is released", |it| it.metadata.finalizers.is_none() && address(it).is_none())
                .await;
        })
        .await;
    table
        .row("a Service that is deleted without its finalizer", 1, gone, async |bed| {
            // Suspended, so that the controller does not restore the finalizer before the deletion.
            let controller = bed.cluster.pods.get(CONTROLLER).unwrap().id().unwrap();
            let controller = Pid::from_raw(controller.try_into().unwrap()).unwrap();
            kill_process(controller, Signal::STOP).unwrap();
            strip(bed, "stripped").await;
            bed.services().delete("stripped", &DeleteParams::default()).await.unwrap();
            kill_process(controller, Signal::CONT).unwrap();
            bed.told("Service", "stripped", "DeletedLoadBalancer").await.unwrap();
        })
        .await;
}

/// The controller calls the adapter, which knows the answers; the adapter lists once.
async fn restarts(table: &mut Table) {
    let all = table.bed.cluster.cloud.state().await.unwrap().load_balancers.len();
    table
        .row("a restart of the controller", 0, [], async |bed| {
            bed.cluster.pods.get(CONTROLLER).unwrap().restart().await.unwrap();
            ensured(bed, u64::try_from(all).unwrap()).await;
        })
        .await;
    table
        .row("a restart of the adapter", 1, [], async |bed| {
            bed.cluster.pods.get(ADAPTER).unwrap().restart().await.unwrap();
            bed.ready().await.unwrap();
            // Repeated listings happen only for clients that watch.
            listed(bed, 2).await;
            has_seen(bed, "adapter").await;
        })
        .await;
}

/// The test bed, and the rows whose counts are wrong.
struct Table {
    bed: Bed,
    wrong: Vec<String>,
}

impl Table {
    /// Runs `happens` and compares the vendor calls with `want`. Reads of single load balancers are included; listings, which all load
    /// balancers share, have an upper limit for this number of load balancers.
    async fn row<const N: usize>(
        &mut self,
        what: &str,
        balancers: u64,
        want: [(Operation, u64); N],
        happens: impl AsyncFnOnce(&mut Bed),
    ) {
        let (mut calls, took) = self.calls(happens).await;
        let lists = calls.remove(&ListLoadBalancers).unwrap_or_default();
        let want = Calls::from(want);
        let writes = want.iter().filter(|(it, _)| it.access() == Access::Write).map(|(_, n)| n).sum::<u64>();
        // One read before each write and one after the last; the first read may have to be current.
        let most = took.as_secs() / PERIOD.as_secs() + 1 + 2 * balancers + writes;
        if calls != want {
            self.wrong.push(format!("{what}: {calls:?}"));
        }
        if lists > most {
            self.wrong.push(format!("{what}: {lists} listings in {took:?}"));
        }
    }

    /// Runs `happens`, waits until all work is done, and returns the calls for load balancers and the time.
    async fn calls(&mut self, happens: impl AsyncFnOnce(&mut Bed)) -> (Calls, Duration) {
        let Self { bed, .. } = self;
        bed.quiet(CONTROLLER).await.unwrap();
        bed.cluster.cloud.reset_counts().await.unwrap();
        let begin = Instant::now();
        happens(bed).await;
        bed.quiet(CONTROLLER).await.unwrap();
        let mut calls = bed.cluster.cloud.counts().await.unwrap().by_operation;
        let took = begin.elapsed();
        calls.retain(|operation, _| operation.family() == Family::Loadbalancer);
        (calls, took)
    }
}

/// Waits for this number of listings.
async fn listed(bed: &Bed, times: u64) {
    let before = bed.cluster.cloud.counts().await.unwrap().of(ListLoadBalancers);
    eventually("the cloud is listed", WITHIN, || async {
        let listed = bed.cluster.cloud.counts().await?.of(ListLoadBalancers) - before;
        ensure!(listed >= times, "{listed} times");
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until the controller has reconciled all earlier changes.
async fn has_seen(bed: &Bed, what: &str) {
    let name = format!("canary-{what}");
    cannot_work(bed, &name).await;
    bed.delete_service(&name).await.unwrap();
}

/// Creates an invalid Service and waits for its Event.
async fn cannot_work(bed: &Bed, name: &str) {
    service(name).port(80).spec("loadBalancerIP", json!("none")).create(&bed.client()).await.unwrap();
    bed.told("Service", name, "SyncLoadBalancerFailed").await.unwrap();
}

/// Sends a heartbeat, as a kubelet does.
async fn heartbeat(bed: &Bed, node: &str, beat: u32) {
    let at = format!("2026-01-01T00:00:{:02}Z", 10 * beat);
    let ready = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": at });
    let beat = Patch::Strategic(json!({ "status": { "conditions": [ready] } }));
    bed.nodes().patch_status(node, &PatchParams::default(), &beat).await.unwrap();
}

async fn strip(bed: &Bed, name: &str) {
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    bed.services().patch(name, &PatchParams::default(), &none).await.unwrap();
}

async fn until(bed: &Bed, name: &str, what: &str, is_so: impl Fn(&Service) -> bool) {
    bed.wait_service(name, what, |it| is_so(it)).await.unwrap();
}

/// Waits until each load balancer has this number of backends.
async fn members(bed: &Bed, n: usize) {
    bed.wait_cloud(&format!("each load balancer has {n} backends"), |state| {
        let short = state.load_balancers.iter().flat_map(|it| &it.pools).find(|it| it.members.len() != n);
        short.is_none()
    })
    .await
    .unwrap();
}

/// Waits until the controller has called `EnsureLoadBalancer` this number of times since its start.
async fn ensured(bed: &Bed, times: u64) {
    eventually("each load balancer is ensured", WITHIN, || {
        let pod = bed.cluster.pods.look_at(CONTROLLER);
        async move {
            let asked = counted(pod?, "EnsureLoadBalancer").await?;
            ensure!(asked >= times, "{asked} of {times}");
            Ok(())
        }
    })
    .await
    .unwrap();
}

async fn puts(bed: &Bed) -> u64 {
    counted(bed.cluster.pods.look_at(CONTROLLER).unwrap(), "PutBackendSet").await.unwrap()
}

/// How often the controller has made this call.
async fn counted(pod: &Pod, call: &str) -> anyhow::Result<u64> {
    let calls = pod.counted("cloud_controller_adapter_calls_total", "call").await?;
    Ok(calls.get(call).copied().unwrap_or_default().to_string().parse()?)
}
