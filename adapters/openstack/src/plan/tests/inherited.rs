//! Load balancers of the Go cloud controller manager.

use super::*;

/// The Go cloud controller manager's load balancer for `shop/web`, as it was with these ports.
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
fn one_of_the_go_controller_is_taken_over_with_its_parts() {
    let mut bench = Bench::new();
    of_go(&mut bench, &web([tcp(80), tcp(443)]));
    let (record, writes) = bench.settled(&web([tcp(80)]));
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as ours",
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
    assert!(record.detail.listeners.iter().all(takes_back), "it could go back");
}

/// Of the Go controller's annotations some count when a load balancer is made only, and nobody saw when they were changed later.
#[test]
fn one_of_the_go_controller_follows_the_nodes_though_it_was_made_otherwise() {
    let mut bench = Bench::new();
    of_go(&mut bench, &web([tcp(80)]));
    let mut desired = with(web([tcp(80)]), |spec| spec.size = "big".to_owned());
    desired.backends = [2, 3].map(backend).into();
    let (writes, error) = bench.refused(&desired);
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as ours",
            "set the 2 members of pool pool_0_kube_service_prod_shop_web",
            "update pool pool_0_kube_service_prod_shop_web",
            "update listener tcp/80",
        ]
    );
    assert_eq!((error.fault, error.fields), (Fault::Immutable, vec!["spec.size".to_owned()]));
    let there = bench.observe().expect("there");
    assert_eq!(there.summary.key, Some(desired.key.clone()), "its deletion takes it along");
}

#[test]
fn a_name_of_the_go_controller_stays_and_any_other_follows_the_wish() {
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
        ("front", vec!["call load balancer lb-1 front".to_owned()])
    );
}

/// With the template `kube_service_{cluster}_{namespace}_{service}` it could go back.
#[test]
fn one_that_is_called_as_the_go_controller_calls_them_is_found_by_it() {
    let mut bench = Bench::new();
    let desired = with(web([tcp(80)]), |spec| spec.name = GO.to_owned());
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes, [format!("create load balancer {GO} with 1 listeners")]);
    let takes_back = |one: &Listener| one.tags.contains(&GO.to_owned());
    assert!(record.detail.listeners.iter().all(takes_back), "it would not take its port back without");
    assert_eq!(record.summary.key, Some(desired.key.clone()), "and it is ours, not its");
    let (record, writes) = bench.settled(&with(desired, |spec| spec.listeners.push(tcp(443))));
    assert!(record.detail.listeners.iter().all(takes_back), "{writes:?}");
}

#[test]
fn one_of_the_go_controller_that_is_public_keeps_its_address() {
    let mut bench = Bench::new();
    let desired = public([tcp(80)]);
    of_go(&mut bench, &desired);
    let before = addresses(&bench.observe().expect("there"));
    let (record, writes) = bench.settled(&desired);
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as ours",
            "update pool pool_0_kube_service_prod_shop_web",
            "update listener tcp/80",
            "describe floating IP 203.0.113.5 as ours",
            "tag load balancer as complete",
        ]
    );
    assert_eq!(addresses(&record), before);
}

#[test]
fn one_of_the_go_controller_that_was_not_taken_over_goes_with_its_address() {
    let mut bench = Bench::new();
    of_go(&mut bench, &public([tcp(80)]));
    assert_eq!(
        bench.deleted(),
        ["delete floating IP 203.0.113.5", "delete load balancer lb-1 with all its parts"],
        "the other way round nobody would find the address"
    );
    assert!(bench.cloud.floating_ips.is_empty());
}

/// As the Go one delivers: `create-monitor` is off.
#[test]
fn one_of_the_go_controller_without_probes_gets_them_unless_nobody_wants_any() {
    let take_over = |ports: &[contract::Listener], kind: health_check::Kind| {
        let mut bench = Bench::new();
        of_go(&mut bench, &public(ports.to_vec()));
        bench.cloud.monitors.clear();
        let check = HealthCheck { kind: kind.into(), ..HealthCheck::default() };
        bench.settled(&with(public(ports.to_vec()), |spec| spec.health_check = Some(check))).1
    };
    // Two for its tags, two a port, one for its floating IP.
    assert_eq!(take_over(&[tcp(80)], health_check::Kind::None).len(), 2 + 2 + 1);
    let (two, probed) = ([tcp(80), tcp(443)], health_check::Kind::Tcp);
    assert_eq!(take_over(&two, health_check::Kind::None).len(), 2 + 2 * 2 + 1);
    let writes = take_over(&two, probed);
    assert_eq!(writes.len(), 2 + 3 * 2 + 1);
    let creates = writes.iter().filter(|one| one.starts_with("create the health monitor"));
    assert_eq!(creates.count(), 2, "{writes:?}");
}

/// A cluster that can have both families takes over what has one, as long as nobody asks for the other.
#[test]
fn one_of_one_family_is_taken_over_where_there_could_be_two() {
    let mut bench = Bench::new();
    bench.options.ipv6_subnet_id = None;
    of_go(&mut bench, &web([tcp(80)]));
    bench.options.ipv6_subnet_id = Some("subnet-6".to_owned());
    let both = with(web([tcp(80)]), |spec| spec.ip_families.push(contract::IpFamily::Ipv6.into()));
    let error = bench.plan(&both).expect_err("it has one");
    assert_eq!(
        (error.fault, error.fields.as_slice()),
        (Fault::Immutable, &["spec.ip_families".to_owned()][..])
    );
    let (record, writes) = bench.settled(&web([tcp(80)]));
    assert_eq!((writes.len(), addresses(&record)), (4, vec!["10.0.0.9".to_owned()]), "{writes:?}");
}
