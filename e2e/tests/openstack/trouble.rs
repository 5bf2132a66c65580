//! Tests with a cloud that has no quota left, fails, loses answers, or rejects the credentials.

use super::*;

/// An exhausted quota is reported on the Service. The request is retried slowly, and succeeds when the quota is raised.
#[tokio::test]
async fn exhausted_quota_is_reported_and_retried() {
    scenario(quotas).await;
}

async fn quotas(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", None).await?;
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    bed.expose("web", 80).await?;
    project.limit_balancers(2).await?;
    project.limit_floating_ips(1).await?;

    let mark = proxy.mark();
    // The quota allows the load balancer, but not its floating IP.
    service("shop").port(80).create(&bed.client()).await?;
    let of_neutron = bed.wait_for_event("Service", "shop", "SyncLoadBalancerFailed").await?;
    service("late").port(80).create(&bed.client()).await?;
    let of_octavia = bed.wait_for_event("Service", "late", "SyncLoadBalancerFailed").await?;
    println!("{of_neutron}\n{of_octavia}");
    for said in [of_neutron, of_octavia] {
        ensure!(said.to_lowercase().contains("quota"), "{said}");
    }
    bed.quiet("service-controller").await?;

    project.limit_balancers(-1).await?;
    project.limit_floating_ips(-1).await?;
    // The next attempt comes five minutes after the last one.
    bed.within += seconds(300);
    bed.address("shop").await?;
    bed.address("late").await?;
    let tries = count(&proxy.since(mark).writes());
    // Each of these calls fails once for one Service, and then succeeds for both Services. One more attempt is possible, because the
    // controller's own write of the finalizer triggers a retry of a new Service.
    for order in ["POST loadbalancers", "POST floatingips"] {
        ensure!((3..=4).contains(&of(&tries, order)), "{tries:?}");
    }
    Ok(())
}

#[tokio::test]
async fn faulty_cloud_gets_each_object_exactly_once() {
    scenario(trouble).await;
}

async fn trouble(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", Some("10.244.1.0/24")).await?;
    let proxy = bed.cluster.cloud.proxy.clone();
    let creation = || Rule::writes().calls(pattern("^POST /load-balancer/v2/lbaas/loadbalancers"));
    let lists = || Rule::lists_of("load-balancers");
    let answer = |status| Action::AnswerWith {
        status,
        headers: vec![("retry-after".to_owned(), "1".to_owned())],
        body: "{}".to_owned(),
    };
    let rules = [
        ("creation answered 401", proxy.inject(creation().nth(1), Action::Answer(401))),
        // After the answer 401, the adapter sends the same call again with a new token. The second answer is for this repetition.
        ("creation answered 413", proxy.inject(creation().nth(2), answer(413))),
        ("creation answered 429", proxy.inject(creation().nth(3), answer(429))),
        ("creation answered 503 unsent", proxy.inject(creation().nth(4), Action::Answer(503))),
        ("creation cut before", proxy.inject(creation().nth(5), Action::ResetBefore)),
        ("creation cut after", proxy.inject(creation().nth(6), Action::ResetAfter)),
        ("listing truncated", proxy.inject(lists().nth(2), Action::Truncate)),
        ("listing answered 503", proxy.inject(lists().nth(3), Action::Answer(503))),
        ("listing cut", proxy.inject(lists().nth(4), Action::ResetBefore)),
    ];
    let mark = proxy.mark();
    bed.expose("web", 80).await?;
    only_balancer(bed, "web").await?;
    for (what, rule) in &rules {
        ensure!(rule.fired() == 1, "{what}: {} times; {}", rule.fired(), proxy.since(mark));
    }
    drop(rules);
    println!("the Service has its load balancer after {}", proxy.since(mark).writes());

    empty_pages(bed).await?;
    no_balancers(bed).await?;
    revoked_token(bed).await?;
    forbidden(bed).await
}

/// An empty listing does not prove that no object exists. Objects that seem to be gone are looked up, and not created again.
async fn empty_pages(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let before = bed.cluster.cloud.project.state().await?;
    let empty = proxy.inject(Rule::lists_of("instances"), Action::EmptyPage);
    e2e::set_ready(&bed.client(), "a", Ready::Unknown).await?;
    eventually("three listings of instances were empty", bed.within, || async {
        ensure!(empty.fired() >= 3, "{} times", empty.fired());
        Ok(())
    })
    .await?;
    drop(empty);
    let after = bed.cluster.cloud.project.state().await?;
    ensure!(bed.nodes().get_opt("a").await?.is_some(), "the node was deleted");
    ensure!(after.routes == before.routes && ids(&after) == ids(&before), "{before:?}\n{after:?}");
    e2e::set_ready(&bed.client(), "a", Ready::True).await
}

/// After two listings without any load balancer, the adapter may create a second one. When both are listed, the older one keeps the
/// address, and the newer one is deleted.
async fn no_balancers(bed: &mut Bed) -> anyhow::Result<()> {
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    let (before, address) = (project.state().await?, bed.address("web").await?);
    let mark = proxy.mark();
    let empty = proxy.inject(Rule::lists_of("load-balancers").next(2), Action::EmptyPage);
    eventually("two listings of load balancers were empty", bed.within, || async {
        ensure!(empty.fired() == 2, "{} times", empty.fired());
        Ok(())
    })
    .await?;
    drop(empty);
    bed.until_cloud("web has only its former load balancer", |state| {
        ensure!(ids(state) == ids(&before), "{before:?}\n{state:?}");
        ensure!(balancer(state, "web")?.is_active(), "{state:?}");
        let writes = count(&proxy.since(mark).writes());
        let (made, gone) = (of(&writes, "POST loadbalancers"), of(&writes, "DELETE loadbalancers/*"));
        // A load balancer that is still being created is not deleted at the first attempt.
        ensure!(made <= 1 && gone >= made, "{writes:?}");
        Ok(())
    })
    .await?;
    bed.quiet("service-controller").await?;
    print_calls("two empty listings of load balancers", &count(&proxy.since(mark).writes()));
    let after = project.state().await?;
    ensure!(ids(&after) == ids(&before), "{before:?}\n{after:?}");
    ensure!(bed.address("web").await? == address, "the address has changed");
    Ok(())
}

/// A token that is revoked causes no warnings.
async fn revoked_token(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let mark = proxy.mark();
    bed.cluster.cloud.project.revoke_tokens().await?;
    let rejected = || proxy.since(mark).only(|call| call.status == Some(401)).len();
    eventually("a service rejects the revoked token", bed.within, || async {
        ensure!(rejected() > 0, "{}", proxy.since(mark));
        Ok(())
    })
    .await?;
    bed.join("b", Some("10.244.2.0/24")).await?;
    let warnings = bed.events("Node", "b").await?;
    let warnings = warnings.iter().filter(|it| it.type_.as_deref() == Some("Warning"));
    ensure!(warnings.count() == 0, "{:?}", bed.warnings().await?);
    Ok(())
}

/// A missing permission is reported, and the request succeeds when it is granted.
async fn forbidden(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let creation = Rule::writes().calls(pattern("^POST /load-balancer/v2/lbaas/loadbalancers"));
    let denied = proxy.inject(creation, Action::Answer(403));
    service("shop").port(80).create(&bed.client()).await?;
    let said = bed.wait_for_event("Service", "shop", "SyncLoadBalancerFailed").await?;
    ensure!(denied.fired() > 0, "{said}");
    println!("403: {said}");
    drop(denied);
    bed.address("shop").await?;
    only_balancer(bed, "shop").await.map(drop)
}
