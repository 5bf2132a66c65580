//! Tests with other owners in the same project: users, and a second cluster.

use super::*;

#[tokio::test]
async fn changes_by_others_are_reverted_and_their_objects_stay() {
    scenario(others).await;
}

async fn others(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", None).await?;
    let project = Arc::clone(&bed.cluster.cloud.project);
    let address = bed.expose("web", 80).await?;
    bed.quiet("service-controller").await?;
    let web = only_balancer(bed, "web").await?;

    let order = json!({ "listener": {
        "name": "mine", "loadbalancer_id": web.id, "protocol": "TCP", "protocol_port": 9000,
    }});
    project.member.post(Api::LoadBalancer, "/v2/lbaas/listeners", &order).await?;
    let ports = json!([{ "name": "tls", "port": 443, "protocol": "TCP" }]);
    bed.patch_service("web", &json!({ "spec": { "ports": ports } })).await?;
    bed.until_cloud("web has its own listeners, and the listener of another owner", |state| {
        let web = balancer(state, "web")?;
        let listeners: Vec<_> =
            web.listeners.iter().map(|it| (it.protocol_port, it.name == "mine")).collect();
        ensure!(web.is_active(), "{}", web.provisioning_status);
        ensure!(listeners == [(80, false), (443, false), (9000, true)], "{listeners:?}");
        Ok(())
    })
    .await?;
    ensure!(bed.address("web").await? == address, "the address has changed");

    let lost = only_balancer(bed, "web").await?;
    project.delete_balancer(&lost.id).await?;
    let made = bed.until_cloud("web has another load balancer at its address", |state| {
        let web = balancer(state, "web")?;
        ensure!(web.id != lost.id && web.is_active() && web.listeners.len() == 2, "{web:?}");
        // The floating IP was not deleted, because users know the address.
        ensure!(web.address().is_some_and(|it| it.to_string() == address), "{web:?}");
        Ok(web.clone())
    });
    let made = made.await?;
    ensure!(bed.address("web").await? == address, "the address has changed");

    // A failed load balancer is not recreated, because users know its address. The failure is reported, and the users decide.
    project.break_balancer(&made.id).await?;
    let said = bed.wait_for_event("Service", "web", "SyncLoadBalancerFailed").await?;
    println!("ERROR: {said}");
    ensure!(said.contains("in error"), "{said}");
    ensure!(balancer(&project.state().await?, "web")?.id == made.id, "it was recreated without a request");
    Ok(())
}

/// Two clusters in one project use the same names: each has its own objects, and deletes only those.
#[tokio::test]
async fn two_clusters_with_the_same_names_stay_separate() {
    scenario(twins).await;
}

async fn twins(bed: &mut Bed) -> anyhow::Result<()> {
    let project = Arc::clone(&bed.cluster.cloud.project);
    let twin = Bed::on_openstack(Arc::clone(&project)).await?;
    bed.join("a", None).await?;
    // Both clusters use the same instance.
    node("a").register(&twin.client()).await?;
    twin.initialised("a").await?;
    for bed in [&*bed, &twin] {
        service("web").port(80).create(&bed.client()).await?;
    }
    let (one, two) = (bed.address("web").await?, twin.address("web").await?);
    ensure!(one != two, "both have {one}");
    let state = project.state().await?;
    ensure!(state.balancers.len() == 2 && state.floating_ips.len() == 2, "{state:?}");

    twin.delete_service("web").await?;
    let left = project.state().await?;
    let left: Vec<_> = left.balancers.iter().filter_map(Balancer::address).map(|it| it.to_string()).collect();
    ensure!(left == [one.as_str()], "{left:?}");
    ensure!(bed.address("web").await? == one, "the address of the other cluster has changed");
    Ok(())
}
