//! Tests of failures in a cluster. Each container of this project fails in turn, and the API server fails.

use std::collections::BTreeMap;
use std::time::Duration;

use adapter_sim::simcloud::Operation;
use anyhow::{Context, ensure};
use e2e::{Simcloud, eventually, seconds, service};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{Instant, interval};

use crate::bed::{Bed, IMAGES, NAMESPACE, WITHIN, scenario};
use crate::processes::{component, id, of, pods, signal};
use crate::users::Users;

/// A Lease lasts 15 s, and standbys poll every 2 s. The other 23 s are for the start of a process on a host with two cores.
const LONGEST_WAIT: Duration = seconds(40);
/// Longer than all Leases and token caches, and than the 50 s after which Kubernetes considers a node unreachable.
const MINUTE: Duration = seconds(60);

#[test]
fn killed_containers_restart_and_services_wait_at_most_a_lease() {
    scenario(1, async |bed| {
        bed.install(&json!({})).await?;
        bed.until_initialised().await?;
        let before = pods(bed, ".metadata.uid").await?;
        let users = Users::default();
        for image in IMAGES {
            users.work_while(bed, &format!("without-{image}"), killed(bed, image)).await?;
            ensure!(users.longest() <= LONGEST_WAIT, "{:?}", users.longest());
        }
        users.nothing_lost_or_twice(bed).await?;
        ensure!(pods(bed, ".metadata.uid").await? == before, "the pods were replaced");
        ensure!(
            pods(bed, ".status.containerStatuses[*].restartCount").await? == ["1"; 4],
            "each \
             container must restart once"
        );
        Ok(())
    });
}

/// Kills a container, and waits until it is ready again and works.
async fn killed(bed: &Bed, image: &str) -> anyhow::Result<()> {
    let (component, former) = (component(image), id(1, image)?);
    signal(former, Signal::KILL)?;
    bed.step(&format!("{image} is killed"));
    let selector = format!("app.kubernetes.io/component={component}");
    let path = "jsonpath={range .items[*].status.containerStatuses[*]}{.restartCount} {.ready}{end}";
    let args = ["get", "pods", "--namespace", NAMESPACE, "--selector", &selector, "--output", path];
    bed.until(&format!("{component} is restarted and ready"), &args, |state| state == "1 true").await?;
    ensure!(id(1, image)? != former, "the process is still the same");
    match image {
        "node-controller" => label_is_put_right(bed).await,
        "route-controller" => condition_is_put_right(bed).await,
        // The users' Services show whether this container works.
        _ => Ok(()),
    }
}

/// Checks that a label of the node gets the cloud's value again after another client has changed the label.
async fn label_is_put_right(bed: &Bed) -> anyhow::Result<()> {
    let label = "topology.kubernetes.io/zone";
    let get =
        ["get", "node", "node-1", "--output", "jsonpath={.metadata.labels.topology\\.kubernetes\\.io/zone}"];
    let right = bed.kubectl(&get).await?;
    ensure!(!right.is_empty(), "the node has no {label}");
    bed.kubectl(&["label", "node", "node-1", "--overwrite", &format!("{label}=by-hand")]).await?;
    bed.until("the label is reverted", &get, |now| now == right).await.map(drop)
}

/// Checks that a condition about the routes of the node is corrected after another client has changed the condition.
async fn condition_is_put_right(bed: &Bed) -> anyhow::Result<()> {
    let condition =
        json!({ "type": "NetworkUnavailable", "status": "False", "reason": "ByHand", "message": "" });
    let patch = json!({ "status": { "conditions": [condition] } }).to_string();
    bed.kubectl(&["patch", "node", "node-1", "--subresource=status", "--patch", &patch]).await?;
    let path = "jsonpath={.status.conditions[?(@.type==\"NetworkUnavailable\")].reason}";
    let args = ["get", "node", "node-1", "--output", path];
    bed.until("the condition is reverted", &args, |reason| reason == "RouteCreated").await.map(drop)
}

#[test]
fn a_minute_without_the_api_server_loses_nothing() {
    scenario(1, async |bed| {
        bed.install(&json!({})).await?;
        bed.until_initialised().await?;
        let users = Users::default();
        users.make(bed, "web").await?;
        let (node, processes) = (uid(bed).await?, of(1)?);

        // One Service is in progress, and vendor calls may still follow.
        service("in-flight").port(80).create(&bed.client).await?;
        let down = Instant::now();
        e2e_tools::cluster::stop(bed.layout(), "kube-apiserver").await?;
        bed.step("the API server is down");
        let before = served(&bed.cloud).await?;
        let mut ticks = interval(seconds(1));
        while down.elapsed() < MINUTE {
            ticks.tick().await;
            ensure!(of(1)? == processes, "a process has ended after {:?}", down.elapsed());
            let now = served(&bed.cloud).await?;
            let kept = before.iter().all(|(name, vips)| vips.is_empty() || now.get(name) == Some(vips));
            ensure!(kept, "load balancers were {before:?} and are {now:?}");
            let removed = bed.cloud.counts().await?.of(Operation::DeleteLoadBalancer);
            ensure!(removed == 0, "a load balancer was deleted");
        }
        bed.give_pods_a_network(1).await?;
        bed.step("the API server is back");

        let back = Instant::now();
        bed.address("in-flight").await?;
        service("after").port(80).create(&bed.client).await?;
        bed.address("after").await?;
        bed.step(&format!(
            "Services are served {:.1} s after the API server is back",
            back.elapsed().as_secs_f64()
        ));
        ready(bed).await?;
        ensure!(of(1)? == processes, "a process was restarted");
        ensure!(pods(bed, ".status.containerStatuses[*].restartCount").await? == ["0"; 4], "restarts");
        ensure!(uid(bed).await? == node, "the node has changed");
        let made = bed.cloud.counts().await?.of(Operation::CreateLoadBalancer);
        ensure!(made == 3, "{made} load balancers were created for three Services");
        let now = served(&bed.cloud).await?;
        ensure!(now.len() == 3 && now.get("web") == before.get("web"), "{now:?}");
        Ok(())
    });
}

async fn uid(bed: &Bed) -> anyhow::Result<String> {
    bed.kubectl(&["get", "node", "node-1", "--output", "jsonpath={.metadata.uid} {.spec.taints}"]).await
}

/// Waits until all pods of this project are ready and the node has no taints, after the node was considered unreachable.
async fn ready(bed: &Bed) -> anyhow::Result<()> {
    eventually("all pods are ready", WITHIN, || async {
        let ready = pods(bed, ".status.containerStatuses[*].ready").await?;
        ensure!(ready == ["true"; 4], "{ready:?}");
        let taints = bed.kubectl(&["get", "node", "node-1", "--output", "jsonpath={.spec.taints}"]).await?;
        ensure!(taints.is_empty(), "{taints}");
        Ok(())
    })
    .await
}

/// The addresses of each load balancer, by the name of its Service.
async fn served(cloud: &Simcloud) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let state = cloud.state().await?;
    let of = |balancer: &adapter_sim::simcloud::model::LoadBalancer| {
        let name =
            balancer.tags.get("cloudadapter.dev/owner-name").context("a load balancer without an owner")?;
        Ok((name.clone(), balancer.vips.iter().map(ToString::to_string).collect()))
    };
    state.load_balancers.iter().map(of).collect()
}
