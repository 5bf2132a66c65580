//! Several Services share a load balancer: each has its own ports, and the load balancer is deleted with the last Service.

use super::{node_access::Guards, settings, *};

const KEY: &str = "lb.cloudadapter.dev";

/// Services join a load balancer and leave it, its owner first, and nothing is left at the end.
// Behaviour: SF14
#[tokio::test]
async fn services_share_a_load_balancer_with_ports_of_their_own() {
    let values = json!({ "adapter": { "openstack": { "loadBalancers": { "manageSecurityGroups": true } } } });
    scenario_with(&values, shared_load_balancer).await;
}

async fn shared_load_balancer(bed: &mut Bed) -> anyhow::Result<()> {
    join_many(bed, 2).await?;
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    let before = (project.count().await?, Guards::of(&project).await?);
    let address = bed.expose("web", 80).await?;
    bed.quiet("service-controller").await?;
    let web = only_balancer(bed, "web").await?;

    let mark = proxy.mark();
    share(bed, "api", 443, &web.id).await?;
    ensure!(bed.address("api").await? == address, "the address of api differs");
    listens(bed, &web.id, &[80, 443]).await?;
    bed.quiet("service-controller").await?;
    let writes = count(&proxy.since(mark).writes());
    print_calls("a Service of one port shares a load balancer", &writes);
    let parts = ["POST pools", "PUT pools/*/members", "POST healthmonitors", "POST listeners"];
    ensure!(parts.iter().all(|it| of(&writes, it) == 1), "{writes:?}");
    ensure!(of(&writes, "POST loadbalancers") == 0 && of(&writes, "POST floatingips") == 0, "{writes:?}");

    let mark = proxy.mark();
    share(bed, "shop", 80, &web.id).await?;
    let said = bed.wait_for_event("Service", "shop", "SyncLoadBalancerFailed").await?;
    println!("{said}");
    ensure!(said.contains("tcp/80") && said.contains("/web of cluster"), "{said}");
    bed.quiet("service-controller").await?;
    ensure!(
        proxy.since(mark).writes().is_empty(),
        "writes for a refused Service: {}",
        proxy.since(mark).writes()
    );
    let ports = json!([{ "$patch": "replace" }, { "name": "http", "port": 8080, "protocol": "TCP" }]);
    bed.patch_service("shop", &json!({ "spec": { "ports": ports } })).await?;
    ensure!(bed.address("shop").await? == address, "the address of shop differs");
    listens(bed, &web.id, &[80, 443, 8080]).await?;
    bed.quiet("service-controller").await?;

    settings::restarted(bed).await?;

    let mark = proxy.mark();
    bed.delete_service("web").await?;
    print_calls("the owner is deleted first", &count(&proxy.since(mark).writes()));
    listens(bed, &web.id, &[443, 8080]).await?;
    for name in ["api", "shop"] {
        ensure!(bed.address(name).await? == address, "the address of {name} has changed");
    }
    bed.delete_service("api").await?;
    listens(bed, &web.id, &[8080]).await?;
    let mark = proxy.mark();
    bed.delete_service("shop").await?;
    print_calls("the last Service is deleted", &count(&proxy.since(mark).writes()));
    eventually("the project has the same objects as before the Services", bed.within, || async {
        let after = (project.count().await?, Guards::of(&project).await?);
        ensure!(after.0 == before.0, "before: {:?}, after: {:?}", before.0, after.0);
        ensure!(after.1.rules.is_none() && before.1.rules.is_none(), "{:?}", after.1);
        Ok(())
    })
    .await
}

async fn share(bed: &Bed, name: &str, port: u16, balancer: &str) -> anyhow::Result<()> {
    service(name)
        .port(port)
        .annotation(&format!("{KEY}/id"), balancer)
        .annotation(&format!("{KEY}/adopt"), "shared")
        .create(&bed.client())
        .await?;
    Ok(())
}

/// Waits until the only load balancer listens on these ports, with two backends each.
async fn listens(bed: &Bed, id: &str, ports: &[u16]) -> anyhow::Result<()> {
    bed.until_cloud(&format!("it listens on {ports:?}"), |state| {
        let [balancer] = state.balancers.as_slice() else { bail!("{:?}", state.balancers) };
        let mut there: Vec<u16> = balancer.listeners.iter().map(|one| one.protocol_port).collect();
        there.sort_unstable();
        ensure!(balancer.id == id && balancer.is_active() && there == ports, "{balancer:?}");
        ensure!(balancer.listeners.iter().all(|one| one.members.len() == 2), "{balancer:?}");
        Ok(())
    })
    .await
}
