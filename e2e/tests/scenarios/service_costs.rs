//! What the cloud is asked when something happens to Services: the column "vendor calls" of the table in the service-controller's README,
//! row by row. What the rows of orphans and shards cost is counted where those are tested.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]

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
/// How often the cloud is listed.
const PERIOD: Duration = seconds(2);
/// One a row that would be in another's way.
const SERVICES: [&str; 8] = ["calm", "same", "shown", "mode", "cleared", "stripped", "type", "vanishes"];
/// Those that come and go while the others stay.
const FEW: [&str; 3] = ["b", "c", "d"];
/// A load balancer, its listener with the members, and the tag that says that all of it is there.
const MADE: [(Operation, u64); 3] = [(CreateLoadBalancer, 1), (CreateListener, 1), (UpdateLoadBalancer, 1)];

/// Calls to the cloud, by operation.
type Calls = BTreeMap<Operation, u64>;

#[tokio::test]
async fn each_row_of_the_readme_asks_the_cloud_for_what_it_says() {
    let values = json!({
        "routeController": { "enabled": false },
        "adapter": {
            "limits": { "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } },
            "cache": { "loadBalancers": { "maxAge": "2s" } },
        },
    });
    let mut bed = Bed::install_with(&values).await.unwrap();
    // No call is made but to see that something is done.
    let at_once = json!({ "provisioning": { "create_ms": 0, "update_ms": 0, "delete_ms": 0 } });
    bed.cluster.cloud.configure(&at_once).await.unwrap();
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();
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
    what_costs_nothing(&mut table).await;
    what_is_ours_alone(&mut table).await;
    what_is_built_and_changed(&mut table).await;
    what_others_do(&mut table).await;
    nodes_come_and_go(&mut table).await;
    what_goes(&mut table).await;
    restarts(&mut table).await;
    assert!(table.wrong.is_empty(), "{:#?}", table.wrong);
}

/// Steady state, unrelated changes, other classes and types, what is so anyway, and what cannot work.
async fn what_costs_nothing(table: &mut Table) {
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
        .row("another class or type, and what says the same", 0, [], async |bed| {
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
    table.row("a Service that cannot work", 0, [], async |bed| cannot_work(bed, "wrong").await).await;
}

/// What stands in the Service and not at the cloud.
async fn what_is_ours_alone(table: &mut Table) {
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
            until(bed, "mode", "has it in its status", |it| {
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
        .row("a stripped finalizer", 0, [], async |bed| {
            strip(bed, "stripped").await;
            until(bed, "stripped", "has it again", |it| it.metadata.finalizers.is_some()).await;
        })
        .await;
}

/// k, which is 3 for a load balancer with one port.
async fn what_is_built_and_changed(table: &mut Table) {
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
            bed.until_cloud("it listens there alone", |state| {
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
        .row(
            "another word for what is spoken",
            1,
            [(UpdateListener, 1), (UpdateLoadBalancer, 1)],
            async |bed| {
                bed.patch_service("new", &spoken).await.unwrap();
                bed.until_cloud("it stands there", |state| {
                    let word =
                        state.balancer("new")?.listeners.first().context("no listener")?.traffic.clone();
                    ensure!(word.app_protocol.as_deref() == Some("http"), "{word:?}");
                    Ok(())
                })
                .await
                .unwrap();
            },
        )
        .await;
}

/// What somebody removed is seen by the next listing and made again.
async fn what_others_do(table: &mut Table) {
    // What was written last is shown by a listing that began afterwards.
    listed(&table.bed, 2).await;
    table
        .row("a load balancer that somebody removed", 1, MADE, async |bed| {
            let id = bed.cluster.cloud.state().await.unwrap().balancer("vanishes").unwrap().id.clone();
            bed.cluster.cloud.delete_load_balancer(&id).await.unwrap();
            let vip = bed.until_cloud("another is there", |state| {
                let other = state.balancer("vanishes")?;
                ensure!(other.id != id, "it is the same");
                other.vips.first().map(ToString::to_string).context("it has no address")
            });
            let vip = vip.await.unwrap();
            until(bed, "vanishes", "has the new address", |it| address(it).as_ref() == Some(&vip)).await;
        })
        .await;
    listed(&table.bed, 2).await;
    // One of these calls is that of whoever removed them.
    table
        .row("members that somebody removed", 1, [(SetMembers, 2)], async |bed| {
            let state = bed.cluster.cloud.state().await.unwrap();
            let pool = &state.balancer("calm").unwrap().pools.first().unwrap().id;
            let (path, none) = (format!("/v1/pools/{pool}/members"), json!({ "members": [] }));
            bed.cluster.cloud.by_hand(Method::PUT, &path, Some(&none)).await.unwrap();
            members(bed, 4).await;
        })
        .await;
}

/// One write for each load balancer with one port, however many nodes come or go.
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
        // On a busy machine they may come in two parts.
        let sets = puts(&table.bed).await - sets;
        let writes = [SetMembers, UpdateMembers].iter().filter_map(|it| calls.get(it)).sum::<u64>();
        let others = calls.keys().any(|it| ![SetMembers, UpdateMembers, ListLoadBalancers].contains(it));
        if others || !(1..3).contains(&sets) || writes != sets * all {
            table.wrong.push(format!("{what}: {sets} sets for {all} load balancers cost {calls:?}"));
        }
    }
}

/// A load balancer goes with its Service in one call.
async fn what_goes(table: &mut Table) {
    let gone = [(DeleteLoadBalancer, 1)];
    table
        .row("a Service goes", 1, gone, async |bed| {
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
        .row("a Service goes without its finalizer", 1, gone, async |bed| {
            // Held up, so that it does not put it back before the Service goes.
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

/// The controller asks the adapter, which knows the answers; the adapter lists once.
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
            // It lists again and again only for somebody who watches.
            listed(bed, 2).await;
            has_seen(bed, "adapter").await;
        })
        .await;
}

/// The rows, and those that are wrong.
struct Table {
    bed: Bed,
    wrong: Vec<String>,
}

impl Table {
    /// Something happens, for which so many load balancers are looked at and so much is asked of the cloud. Reads of one alone are among that;
    /// the listing, which all share, is bounded.
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
        // A look before each write and one after the last; the first may have to be as of now.
        let most = took.as_secs() / PERIOD.as_secs() + 1 + 2 * balancers + writes;
        if calls != want {
            self.wrong.push(format!("{what}: {calls:?}"));
        }
        if lists > most {
            self.wrong.push(format!("{what}: {lists} listings in {took:?}"));
        }
    }

    /// Something happens: what is asked about load balancers until all is quiet, and how long that takes.
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

/// Waits until the cloud was listed so often.
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

/// Waits until the controller has seen all that came before.
async fn has_seen(bed: &Bed, what: &str) {
    let name = format!("canary-{what}");
    cannot_work(bed, &name).await;
    bed.delete_service(&name).await.unwrap();
}

/// A Service with a mistake, which is told.
async fn cannot_work(bed: &Bed, name: &str) {
    service(name).port(80).spec("loadBalancerIP", json!("none")).create(&bed.client()).await.unwrap();
    bed.told("Service", name, "SyncLoadBalancerFailed").await.unwrap();
}

/// As a kubelet says that it is alive.
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
    bed.until_service(name, what, |it| {
        ensure!(is_so(it), "{it:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until each load balancer has so many members.
async fn members(bed: &Bed, n: usize) {
    bed.until_cloud(&format!("all have {n} members"), |state| {
        let short = state.load_balancers.iter().flat_map(|it| &it.pools).find(|it| it.members.len() != n);
        ensure!(short.is_none(), "{short:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until the controller has asked for so many load balancers since its start.
async fn ensured(bed: &Bed, times: u64) {
    eventually("all are asked for", WITHIN, || {
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
