//! Tests of load balancers that the former cloud controller manager created.

use super::*;

/// Creates the load balancer of the former cloud controller manager for `shop/web`, with these ports.
fn of_go(bench: &mut Bench, desired: &DesiredLoadBalancer) {
    bench.settled(desired);
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "name": GO, "tags": [GO] }));
    for (n, listener) in bench.cloud.listeners.iter_mut().enumerate() {
        listener["tags"] = json!([GO]);
        listener["name"] = json!(format!("listener_{n}_{GO}"));
    }
    for (n, pool) in bench.cloud.pools.iter_mut().enumerate() {
        pool["tags"] = json!([]);
        pool["name"] = json!(format!("pool_{n}_{GO}"));
    }
    for ip in &mut bench.cloud.floating_ips {
        ip["description"] = json!("Floating IP for Kubernetes external service shop/web from cluster prod");
    }
}

#[test]
fn load_balancer_of_the_former_ccm_is_taken_over() {
    let mut bench = Bench::new();
    of_go(&mut bench, &web([tcp(80), tcp(443)]));
    let (record, writes) = bench.settled(&web([tcp(80)]));
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as owned by this cluster",
            "update pool pool_0_kube_service_prod_shop_web",
            "update listener tcp/80",
            "delete listener tcp/443",
            "delete pool pool_1_kube_service_prod_shop_web (pool-5)",
            "tag load balancer as complete",
        ]
    );
    assert!(record.detail.balancer.expect("there").tags.contains(&GO.to_owned()), "the tags of others stay");
    let (record, _) = bench.settled(&web([tcp(80), tcp(8080)]));
    let takes_back = |one: &Listener| one.tags.contains(&GO.to_owned());
    assert!(record.detail.listeners.iter().all(takes_back), "a rollback is possible");
}

/// Some annotations of the former controller apply only when a load balancer is created, so later changes to them had no effect.
#[test]
fn taken_over_load_balancer_follows_the_nodes() {
    let mut bench = Bench::new();
    of_go(&mut bench, &web([tcp(80)]));
    let mut desired = with(web([tcp(80)]), |spec| spec.size = "big".to_owned());
    desired.backends = [2, 3].map(backend).into();
    let (writes, error) = bench.refused(&desired);
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as owned by this cluster",
            "set the 2 members of pool pool_0_kube_service_prod_shop_web",
            "update pool pool_0_kube_service_prod_shop_web",
            "update listener tcp/80",
        ]
    );
    assert_eq!((error.fault, error.fields), (Fault::Immutable, vec!["spec.size".to_owned()]));
    let there = bench.observe().expect("there");
    assert_eq!(there.summary.key, Some(desired.key.clone()), "it is deleted with the Service");
}

#[test]
fn name_of_the_former_ccm_stays() {
    let named = |name: &str| with(web([tcp(80)]), |spec| spec.name = name.to_owned());
    let mut bench = Bench::new();
    of_go(&mut bench, &web([tcp(80)]));
    let (record, writes) = bench.settled(&named("front"));
    assert_eq!(
        (record.summary.name.as_str(), writes.last().map(String::as_str)),
        (GO, Some("tag load balancer as complete"))
    );

    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    let (record, writes) =
        bench.settled(&DesiredLoadBalancer { hash: web([tcp(80)]).hash, ..named("front") });
    assert_eq!(
        (record.summary.name.as_str(), writes),
        ("front", vec!["rename load balancer lb-1 to front".to_owned()])
    );
}

/// With the template `kube_service_{cluster}_{namespace}_{service}`, a rollback to the former cloud controller manager is possible.
#[test]
fn former_ccm_finds_load_balancers_with_its_names() {
    let mut bench = Bench::new();
    let desired = with(web([tcp(80)]), |spec| spec.name = GO.to_owned());
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes, [format!("create load balancer {GO} with 1 listeners")]);
    let takes_back = |one: &Listener| one.tags.contains(&GO.to_owned());
    assert!(
        record.detail.listeners.iter().all(takes_back),
        "the former controller needs it to recognise the listener"
    );
    assert_eq!(record.summary.key, Some(desired.key.clone()), "it has the owner tag");
    let (record, writes) = bench.settled(&with(desired, |spec| spec.listeners.push(tcp(443))));
    assert!(record.detail.listeners.iter().all(takes_back), "{writes:?}");
}

#[test]
fn taken_over_load_balancer_keeps_its_address() {
    let mut bench = Bench::new();
    let desired = public([tcp(80)]);
    of_go(&mut bench, &desired);
    let before = addresses(&bench.observe().expect("there"));
    let (record, writes) = bench.settled(&desired);
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as owned by this cluster",
            "update pool pool_0_kube_service_prod_shop_web",
            "update listener tcp/80",
            "describe floating IP 203.0.113.5 as owned by this cluster",
            "tag load balancer as complete",
        ]
    );
    assert_eq!(addresses(&record), before);
}

#[test]
fn former_load_balancer_is_deleted_with_its_address() {
    let mut bench = Bench::new();
    of_go(&mut bench, &public([tcp(80)]));
    assert_eq!(
        bench.deleted(),
        ["delete floating IP 203.0.113.5", "delete load balancer lb-1 with all its parts"],
        "in the reverse order the address would be lost"
    );
    assert!(bench.cloud.floating_ips.is_empty());
}

/// By default, the former cloud controller manager creates no monitors (`create-monitor` is off).
#[test]
fn taken_over_load_balancer_gets_health_checks() {
    let take_over = |ports: &[contract::Listener], kind: health_check::Kind| {
        let mut bench = Bench::new();
        of_go(&mut bench, &public(ports.to_vec()));
        bench.cloud.monitors.clear();
        let check = HealthCheck { kind: kind.into(), ..HealthCheck::default() };
        bench.settled(&with(public(ports.to_vec()), |spec| spec.health_check = Some(check))).1
    };
    // Two writes are for tags, two for each port, and one for the floating IP.
    assert_eq!(take_over(&[tcp(80)], health_check::Kind::None).len(), 2 + 2 + 1);
    let (two, probed) = ([tcp(80), tcp(443)], health_check::Kind::Tcp);
    assert_eq!(take_over(&two, health_check::Kind::None).len(), 2 + 2 * 2 + 1);
    let writes = take_over(&two, probed);
    assert_eq!(writes.len(), 2 + 3 * 2 + 1);
    let creates = writes.iter().filter(|one| one.starts_with("create the health monitor"));
    assert_eq!(creates.count(), 2, "{writes:?}");
}

/// A cluster that supports both IP families takes over a load balancer with one IP family, unless the Service requests the missing family.
#[test]
fn single_stack_load_balancer_is_taken_over() {
    let mut bench = Bench::new();
    bench.options.ipv6_subnet_id = None;
    of_go(&mut bench, &web([tcp(80)]));
    bench.options.ipv6_subnet_id = Some("subnet-6".to_owned());
    let both = with(web([tcp(80)]), |spec| spec.ip_families.push(contract::IpFamily::Ipv6.into()));
    let error = bench.plan(&both).expect_err("the load balancer has only one IP family");
    assert_eq!(
        (error.fault, error.fields.as_slice()),
        (Fault::Immutable, &["spec.ip_families".to_owned()][..])
    );
    let (record, writes) = bench.settled(&web([tcp(80)]));
    assert_eq!((writes.len(), addresses(&record)), (4, vec!["10.0.0.9".to_owned()]), "{writes:?}");
}
