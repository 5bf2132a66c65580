//! Tests credentials of another project.

use super::*;

/// Credentials of another project, at runtime or from the start, delete nothing, whatever the state of the nodes.
#[tokio::test]
async fn credentials_of_another_project_are_reported() {
    // A node would be deleted after the second proof that its instance is gone.
    let soon = json!({ "nodeController": { "deletion": { "monitorPeriod": "1s", "confirmAfter": "1s" } } });
    scenario_with(&soon, wrong_project).await;
}

async fn wrong_project(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", Some("10.244.1.0/24")).await?;
    bed.expose("web", 80).await?;
    bed.all_quiet().await?;
    let other = Project::make().await?;
    let seen = AssertUnwindSafe(in_another(bed, &other)).catch_unwind().await;
    let used = other.state().await;
    other.remove().await?;
    seen.map_err(|_panic| anyhow::anyhow!("panicked"))??;
    let used = used?;
    ensure!(
        used.balancers.is_empty() && used.floating_ips.is_empty(),
        "created in the other project: {used:?}"
    );
    Ok(())
}

async fn in_another(bed: &mut Bed, other: &Project) -> anyhow::Result<()> {
    let cloud = bed.cluster.cloud.clone();
    let before = cloud.project.state().await?;
    let mut keys = other.application_credential().await?;
    bed.give(&keys).await?;
    e2e::set_ready(&bed.client(), "a", Ready::Unknown).await?;
    let adapter = &*bed.cluster.pods.get(ADAPTER)?;
    eventually("the adapter logs that it refuses them", bed.within, || async {
        let text = std::fs::read_to_string(adapter.log())?;
        ensure!(text.contains("continuing with the old ones"), "{}", adapter.tail());
        Ok(())
    })
    .await?;
    unharmed(bed, &before).await?;

    // After a restart, only the configuration names the right project.
    merge(&mut keys, &json!({ "project_id": cloud.project.member.project }));
    bed.give(&keys).await?;
    bed.cluster.pods.get(ADAPTER)?.restart().await?;
    let ports = json!([{ "name": "tls", "port": 443, "protocol": "TCP" }]);
    bed.patch_service("web", &json!({ "spec": { "ports": ports } })).await?;
    let said = bed.wait_for_event("Service", "web", "SyncLoadBalancerFailed").await?;
    ensure!(said.contains(&other.member.project) && said.contains("project_id"), "{said}");
    println!("{said}");
    let earlier = refusals(bed.cluster.pods.get(ADAPTER)?).await?;
    bed.cluster.pods.get("node-controller")?.restart().await?;
    // Each refused call is a watch or a look-up for the node. Two look-ups would be enough to delete a node.
    for number in 1..=4 {
        let adapter = &*bed.cluster.pods.get(ADAPTER)?;
        eventually(&format!("node-controller was refused {number} times"), bed.within, || async {
            let now = refusals(adapter).await?;
            ensure!(now >= earlier + f64::from(number), "{earlier} before, {now} now");
            Ok(())
        })
        .await?;
        unharmed(bed, &before).await?;
    }

    bed.give(&cloud.project.keys()).await?;
    e2e::set_ready(&bed.client(), "a", Ready::True).await?;
    bed.until_cloud("web listens on its second port", |state| {
        let web = balancer(state, "web")?;
        ensure!(web.is_active() && web.listeners.len() == 2, "{web:?}");
        Ok(())
    })
    .await?;
    let events = bed.events("Service", "web").await?;
    let failures = events.iter().filter(|it| it.reason.as_deref() == Some("SyncLoadBalancerFailed"));
    ensure!(failures.count() == 1, "one Event is expected, not one per retry: {:?}", bed.warnings().await?);
    Ok(())
}

/// How often the adapter has refused calls about instances from the node-controller. A watch is counted when it ends.
async fn refusals(adapter: &Pod) -> anyhow::Result<f64> {
    let page = adapter.metrics().await?;
    let counts = |line: &&str| {
        let asks = ["WatchInstances", "BatchGetInstances"];
        line.starts_with("cloud_adapter_rpc_duration_seconds_count{")
            && asks.iter().any(|it| line.contains(&format!("method=\"{it}\"")))
            && line.contains("controller=\"node-controller\"")
            && !line.contains("reason=\"\"")
    };
    let value = |line: &str| line.rsplit(' ').next().unwrap_or_default().parse::<f64>();
    page.lines().filter(counts).map(value).sum::<Result<f64, _>>().context("the page has no such metric")
}

async fn unharmed(bed: &Bed, before: &State) -> anyhow::Result<()> {
    let after = bed.cluster.cloud.project.state().await?;
    ensure!(bed.nodes().get_opt("a").await?.is_some(), "the node was deleted");
    ensure!(after.routes == before.routes && ids(&after) == ids(before), "{before:?}\n{after:?}");
    Ok(())
}
