//! Tests of the adapter for OpenStack with the real controllers, on the real services of `cargo xtask openstack`. They cover failures, and
//! the number of calls, which a proxy in front of the services counts.
//!
//! Each scenario has its own project, and leaves nothing in it. `cargo xtask test openstack-e2e` runs the scenarios. Without the services,
//! the scenarios fail.

#![expect(clippy::unwrap_used, reason = "clippy recognises tests, but not their helpers")]
#![expect(clippy::print_stdout, reason = "counts of passed tests are shown with --nocapture")]

mod costs;
mod node_access;
mod others;
mod settings;
mod shared;
mod trouble;
mod wrong_project;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use adapter_conformance::params::Pattern;
use adapter_conformance::proxy::{Action, Calls, Rule};
use anyhow::{Context, bail, ensure};
use e2e::openstack::{Balancer, OpenStack, Project, Service as Api, State, operation};
use e2e::{ADAPTER, CONTROLLERS, Pod, Ready, eventually, merge, node, seconds, service};
use futures::FutureExt;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, from_str, from_value, json};
use tokio::sync::Mutex;

type Bed = e2e::Bed<OpenStack>;

const OWNER: &str = "cloudadapter.dev/owner-name=";

#[tokio::test]
async fn the_demo_passes_on_openstack() {
    let _alone = STAGE.lock().await;
    let demo = tokio::process::Command::new(env!("CARGO_BIN_EXE_demo"))
        .args(["--cloud=openstack", "--once", "--json", "--nodes=2"])
        .output();
    let demo = demo.await.unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&demo.stdout), String::from_utf8_lossy(&demo.stderr));
    assert!(demo.status.success(), "{}: {printed}\n{errors}", demo.status);
    let lines: Vec<Value> = printed.lines().map(|line| from_str(line).unwrap()).collect();
    let summary = lines.iter().find(|line| line["event"] == "summary").unwrap();
    assert_eq!(summary["passed"], true);
    let cost = |step: &str| {
        let steps = summary["steps"].as_array().unwrap();
        let row = steps.iter().find(|row| row["step"] == step).unwrap();
        (row["vendor_calls"]["by_operation"].clone(), row["vendor_calls"]["writes"].as_u64().unwrap())
    };
    assert_eq!((cost("nodes").1, cost("restart").1), (0, 0));
    let (calls, writes) = cost("service");
    assert_eq!((&calls["POST loadbalancers"], writes), (&json!(1), 2), "{calls}");
}

/// Only one scenario runs at a time, because the cloud runs on the same processors, and two concurrent scenarios take longer in total.
static STAGE: Mutex<()> = Mutex::const_new(());

/// Runs a scenario in a project of its own. Then all Services, nodes and instances are deleted, and nothing may be left.
async fn scenario(play: impl AsyncFnOnce(&mut Bed) -> anyhow::Result<()>) {
    scenario_with(&json!({}), play).await;
}

/// Like [`scenario`], with additional values of the chart.
async fn scenario_with(values: &Value, play: impl AsyncFnOnce(&mut Bed) -> anyhow::Result<()>) {
    let _alone = STAGE.lock().await;
    let project = Arc::new(Project::make().await.unwrap());
    let played = AssertUnwindSafe(played(Arc::clone(&project), values, play)).catch_unwind().await;
    project.remove().await.unwrap();
    match played {
        Ok(done) => done.unwrap(),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

async fn played(
    project: Arc<Project>,
    values: &Value,
    play: impl AsyncFnOnce(&mut Bed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let before = project.count().await?;
    // At the end, all nodes and their routes are deleted before the instances, so the share of routes that may be removed is not limited.
    let mut all = json!({ "routeController": { "removal": { "maxShare": 100 } } });
    merge(&mut all, values);
    let mut bed = Bed::on_openstack_with(Arc::clone(&project), &all).await?;
    let done = match play(&mut bed).await {
        Ok(()) => clear(&bed).await,
        failed => failed,
    };
    if let Err(error) = done {
        let adapter = bed.cluster.pods.get(ADAPTER)?.tail();
        bed.cluster.control_plane.keep_logs();
        return Err(error.context(adapter));
    }
    eventually("the project has the same objects as before", bed.within, || async {
        let after = project.count().await?;
        ensure!(after == before, "before: {before:?}, after: {after:?}");
        Ok(())
    })
    .await
}

/// Deletes everything as users do: Services, nodes, instances.
async fn clear(bed: &Bed) -> anyhow::Result<()> {
    for service in bed.services().list(&ListParams::default()).await?.items {
        let is_balanced =
            service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
        if is_balanced {
            bed.delete_service(&service.name_any()).await?;
        }
    }
    for node in bed.nodes().list(&ListParams::default()).await?.items {
        bed.nodes().delete(&node.name_any(), &DeleteParams::default()).await?;
    }
    bed.wait_cloud("no route is left", |state| state.routes.is_empty()).await?;
    let project = &bed.cluster.cloud.project;
    for server in project.state().await?.servers {
        project.delete_server(&server.name).await?;
    }
    Ok(())
}

/// Creates several instances at once, which takes no longer than creating one instance.
async fn join_many(bed: &mut Bed, nodes: u32) -> anyhow::Result<()> {
    let count = usize::try_from(nodes)?;
    bed.cluster.cloud.project.create_servers("node", count).await?;
    for number in 1..=nodes {
        node(&format!("node-{number}")).register(&bed.client()).await?;
    }
    for number in 1..=nodes {
        bed.initialised(&format!("node-{number}")).await?;
    }
    bed.targets(nodes).await
}

/// Waits until a Service has exactly one load balancer, and it is active.
async fn only_balancer(bed: &Bed, service: &str) -> anyhow::Result<Balancer> {
    bed.until_cloud(&format!("{service} has its only load balancer"), |state| {
        let found = balancer(state, service)?;
        ensure!(found.is_active(), "the status is {}", found.provisioning_status);
        Ok(found.clone())
    })
    .await
}

fn balancer<'a>(state: &'a State, service: &str) -> anyhow::Result<&'a Balancer> {
    let tag = format!("{OWNER}{service}");
    let found: Vec<_> = state.balancers.iter().filter(|it| it.tags.contains(&tag)).collect();
    let &[balancer] = found.as_slice() else { bail!("not exactly one load balancer: {found:?}") };
    Ok(balancer)
}

/// IDs of the objects that must not be deleted.
fn ids(state: &State) -> Vec<&str> {
    let balancers = state.balancers.iter().map(|it| &it.id);
    let ips = state.floating_ips.iter().map(|it| &it.id);
    balancers.chain(ips).chain(state.servers.iter().map(|it| &it.id)).map(String::as_str).collect()
}

fn count(calls: &Calls) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for call in &calls.0 {
        *counts.entry(operation(call)).or_default() += 1;
    }
    counts
}

fn counted(calls: &[(&str, u64)]) -> BTreeMap<String, u64> {
    calls.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

fn of(counts: &BTreeMap<String, u64>, operation: &str) -> u64 {
    counts.get(operation).copied().unwrap_or_default()
}

/// Prints the number of calls, for readers of the output of a passed test.
fn print_calls(what: &str, counts: &BTreeMap<String, u64>) {
    let calls: Vec<_> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
    println!("{what}: {}", calls.join(", "));
}

fn pattern(text: &str) -> Pattern {
    from_value(json!(text)).unwrap()
}
