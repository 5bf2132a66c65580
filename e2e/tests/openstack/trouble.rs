//! A cloud that is full, fails, loses answers, or lets nobody in.

use super::*;

/// What is full is told at the Service, tried again slowly, and done once there is room.
#[tokio::test]
async fn a_quota_is_told_and_heals_when_it_is_raised() {
    scenario(quotas).await;
}

async fn quotas(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", None).await?;
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    service("web").port(80).create(&bed.client()).await?;
    bed.address("web").await?;
    project.limit_balancers(2).await?;
    project.limit_floating_ips(1).await?;

    let mark = proxy.mark();
    // There is room for its load balancer, and not for its address.
    service("shop").port(80).create(&bed.client()).await?;
    let of_neutron = bed.told("Service", "shop", "SyncLoadBalancerFailed").await?;
    service("late").port(80).create(&bed.client()).await?;
    let of_octavia = bed.told("Service", "late", "SyncLoadBalancerFailed").await?;
    println!("{of_neutron}\n{of_octavia}");
    for said in [of_neutron, of_octavia] {
        ensure!(said.to_lowercase().contains("quota"), "{said}");
    }
    bed.quiet("service-controller").await?;

    project.limit_balancers(-1).await?;
    project.limit_floating_ips(-1).await?;
    // The next try comes five minutes after the last one.
    bed.within += seconds(300);
    bed.address("shop").await?;
    bed.address("late").await?;
    let tries = count(&proxy.since(mark).writes());
    // Of each one that failed and one that did not, and once more when a new Service comes back with its finalizer.
    for order in ["POST loadbalancers", "POST floatingips"] {
        ensure!((3..=4).contains(&of(&tries, order)), "{tries:?}");
    }
    Ok(())
}

/// Whatever happens to calls on their way, in the end everything is there, once.
#[tokio::test]
async fn a_cloud_in_trouble_gets_what_was_asked_for_once() {
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
        // The same call, once more with another token.
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
    service("web").port(80).create(&bed.client()).await?;
    bed.address("web").await?;
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

/// A listing that shows nothing is no proof that there is nothing: what seems to be gone is looked for, and not made again.
async fn empty_pages(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let before = bed.cluster.cloud.project.state().await?;
    let empty = proxy.inject(Rule::lists_of("instances"), Action::EmptyPage);
    e2e::set_ready(&bed.client(), "a", Ready::Unknown).await?;
    eventually("machines were listed three times, and none was shown", bed.within, || async {
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

/// Two listings that show no load balancer prove that there is none, and another one is made. As soon as both are shown, the older one
/// stays with the address, and the other one goes.
async fn no_balancers(bed: &mut Bed) -> anyhow::Result<()> {
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    let (before, address) = (project.state().await?, bed.address("web").await?);
    let mark = proxy.mark();
    let empty = proxy.inject(Rule::lists_of("load-balancers").next(2), Action::EmptyPage);
    eventually("load balancers were listed twice, and none was shown", bed.within, || async {
        ensure!(empty.fired() == 2, "{} times", empty.fired());
        Ok(())
    })
    .await?;
    drop(empty);
    bed.until_cloud("web has its only load balancer, the one that it had, and no other", |state| {
        ensure!(ids(state) == ids(&before), "{before:?}\n{state:?}");
        ensure!(balancer(state, "web")?.is_active(), "{state:?}");
        let writes = count(&proxy.since(mark).writes());
        let (made, gone) = (of(&writes, "POST loadbalancers"), of(&writes, "DELETE loadbalancers/*"));
        // One that is still being made is not deleted at the first try.
        ensure!(made <= 1 && gone >= made, "{writes:?}");
        Ok(())
    })
    .await?;
    bed.quiet("service-controller").await?;
    told("two listings show no load balancer", &count(&proxy.since(mark).writes()));
    let after = project.state().await?;
    ensure!(ids(&after) == ids(&before), "{before:?}\n{after:?}");
    ensure!(bed.address("web").await? == address, "the address has changed");
    Ok(())
}

/// Nobody hears of a token that ends before its time.
async fn revoked_token(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let mark = proxy.mark();
    bed.cluster.cloud.project.revoke_tokens().await?;
    let rejected = || proxy.since(mark).only(|call| call.status == Some(401)).len();
    eventually("a service knows that the token was taken back", bed.within, || async {
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

/// Who may not do it is told so, and does it when he may.
async fn forbidden(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let creation = Rule::writes().calls(pattern("^POST /load-balancer/v2/lbaas/loadbalancers"));
    let denied = proxy.inject(creation, Action::Answer(403));
    service("shop").port(80).create(&bed.client()).await?;
    let said = bed.told("Service", "shop", "SyncLoadBalancerFailed").await?;
    ensure!(denied.fired() > 0, "{said}");
    println!("403: {said}");
    drop(denied);
    bed.address("shop").await?;
    only_balancer(bed, "shop").await.map(drop)
}
