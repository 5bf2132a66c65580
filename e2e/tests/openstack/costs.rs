//! Tests how many vendor calls events in the cluster cause.

use super::*;

/// Services, nodes and restarts cost what the adapter's README says, and a refresh costs two pages.
#[tokio::test]
async fn vendor_calls_match_the_openstack_readme() {
    scenario(costs).await;
}

async fn costs(bed: &mut Bed) -> anyhow::Result<()> {
    join_many(bed, 3).await?;
    let proxy = bed.cluster.cloud.proxy.clone();

    let mark = proxy.mark();
    let swept = eventually("the instances are listed twice", bed.within, || async {
        let calls = count(&proxy.since(mark));
        ensure!(calls.get("GET servers/detail") >= Some(&2), "{calls:?}");
        Ok(proxy.since(mark))
    });
    let swept = count(&swept.await?);
    print_calls("two refreshes of 3 instances", &swept);
    let (servers, ports) = (of(&swept, "GET servers/detail"), of(&swept, "GET ports"));
    ensure!(servers.abs_diff(ports) <= 1 && of(&swept, "GET servers/*") == 0, "{swept:?}");
    one_that_is_not_ready_costs_nothing(bed).await?;

    let mark = proxy.mark();
    let began = tokio::time::Instant::now();
    for name in ["web", "shop"] {
        service(name).port(80).port(443).port(8080).create(&bed.client()).await?;
    }
    for name in ["web", "shop"] {
        bed.address(name).await?;
    }
    let polls = began.elapsed().as_secs() / 2 + 4;
    bed.quiet("service-controller").await?;
    let calls = proxy.since(mark);
    let made = count(&calls);
    print_calls("two Services of three ports each", &made);
    let writes = count(&calls.writes());
    ensure!(writes == counted(&[("POST loadbalancers", 2), ("POST floatingips", 2)]), "{writes:?}");
    ensure!(
        of(&made, "GET loadbalancers") <= polls && of(&made, "GET loadbalancers/*") == 0,
        "{polls}: {made:?}"
    );

    bed.cluster.cloud.project.create_servers("node-4", 1).await?;
    let mark = proxy.mark();
    node("node-4").register(&bed.client()).await?;
    bed.wait_cloud("all pools have 4 members", |state| {
        let behind = |it: &Balancer| it.is_active() && it.listeners.iter().all(|one| one.members.len() == 4);
        state.balancers.iter().all(behind)
    })
    .await?;
    bed.quiet("service-controller").await?;
    let calls = proxy.since(mark);
    let joined = count(&calls);
    print_calls("a node joins, with six pools", &joined);
    let writes = count(&calls.writes());
    ensure!(writes == counted(&[("PUT pools/*/members", 6)]), "{writes:?}");
    // A listing may read a pool while it changes, and then reads the pool again.
    ensure!(
        of(&joined, "GET pools/*/members") <= 12,
        "a pool that changed is read at most twice: {joined:?}"
    );
    let one_by_one = ["GET loadbalancers/*", "GET ports/*"].map(|it| of(&joined, it));
    ensure!(one_by_one == [0, 0], "objects are read one by one: {joined:?}");

    let mark = proxy.mark();
    for name in CONTROLLERS {
        let pod = bed.cluster.pods.get(name)?;
        pod.terminate().await?;
        pod.start()?;
        bed.quiet(name).await?;
    }
    let calls = proxy.since(mark);
    print_calls("all controllers are restarted", &count(&calls));
    ensure!(calls.writes().is_empty(), "{}", calls.writes());

    let mark = proxy.mark();
    bed.cluster.pods.get(ADAPTER)?.restart().await?;
    bed.ready().await?;
    eventually("everything is listed again", bed.within, || async {
        let calls = count(&proxy.since(mark));
        let listed = ["GET servers/detail", "GET loadbalancers", "GET routers/*"].map(|it| of(&calls, it));
        ensure!(listed.iter().all(|&n| n >= 2) && of(&calls, "GET pools/*/members") >= 6, "{calls:?}");
        Ok(())
    })
    .await?;
    bed.all_quiet().await?;
    let calls = proxy.since(mark);
    let after = count(&calls);
    print_calls("the adapter is killed and started", &after);
    ensure!(calls.writes().is_empty(), "{}", calls.writes());
    let single = |name: &&String| name.ends_with("/*") && !name.contains("routers");
    ensure!(!after.keys().any(|name| single(&name)), "objects are read one by one: {after:?}");
    Ok(())
}

/// A refresh is one page of instances and one of their ports, for up to a thousand instances, whatever the state of the nodes.
async fn one_that_is_not_ready_costs_nothing(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    e2e::set_ready(&bed.client(), "node-1", Ready::Unknown).await?;
    let adapter = &*bed.cluster.pods.get(ADAPTER)?;
    let (mark, earlier) = (proxy.mark(), refreshes(adapter).await?);
    let done = eventually("the instances are refreshed three times", bed.within, || async {
        let done = refreshes(adapter).await? - earlier;
        ensure!(done >= 3.0, "{done} times");
        Ok(done)
    });
    let done = done.await?;
    let calls = count(&proxy.since(mark));
    print_calls(&format!("{done} refreshes of 3 instances, with one node that is not ready"), &calls);
    // One refresh may be in progress at the beginning of the measurement, and one at the end.
    let most = (1..).take_while(|n| f64::from(*n) <= done).count() + 2;
    let pages = ["GET servers/detail", "GET ports"].map(|it| of(&calls, it));
    ensure!(pages.iter().all(|n| usize::try_from(*n).is_ok_and(|n| n <= most)), "{most}: {calls:?}");
    ensure!(of(&calls, "GET servers/*") == 0, "objects are read one by one: {calls:?}");
    e2e::set_ready(&bed.client(), "node-1", Ready::True).await
}

/// Number of listings of the instances.
async fn refreshes(adapter: &Pod) -> anyhow::Result<f64> {
    let counts = adapter.counted("cloud_adapter_snapshot_refresh_total", "collection").await?;
    Ok(counts.get("instances").copied().unwrap_or_default())
}
