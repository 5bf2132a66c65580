//! Tests of load balancers that a user created. A Service adopts such a load balancer by its ID, or shares it.

use super::{
    shared::{refused, sharer},
    *,
};

/// Creates a load balancer as a user does, with a listener and a pool.
pub(super) fn by_hand(bench: &mut Bench) {
    let hers = json!({ "id": "hers", "name": "hers", "provisioning_status": "ACTIVE", "vip_port_id": "port-of-hers",
        "vip_address": "10.0.0.77", "tags": ["team=a"] });
    bench.cloud.balancers.push(hers);
    let pool = bench
        .create_pool("hers", &json!({ "name": "pool", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN" }));
    let listener = json!({ "name": "front", "protocol": "TCP", "protocol_port": 9000 });
    bench.create_listener("hers", Some(&pool), &listener);
}

fn release(bench: &mut Bench, desired: &DesiredLoadBalancer) {
    while let Some(step) = bench
        .seen(desired)
        .filter(|it| it.belongs_to(&desired.key))
        .and_then(|record| crate::plan::plan_release(&record, None).into_iter().next())
    {
        assert!(!matches!(step, Step::DeleteLoadBalancer { .. }), "{step}");
        bench.execute(&step);
    }
}

/// A Service has adopted a user's load balancer by its ID.
#[test]
fn adopted_load_balancer_is_released_unchanged() {
    let mut bench = Bench::new();
    by_hand(&mut bench);
    bench.cloud.balancers[0]["tags"] = json!(["team=a", "cloudadapter.dev/adopt=shop"]);
    let before = bench.cloud.clone();
    let web = web([tcp(80)]);
    let hers = bench.records().remove(0);
    assert_eq!(hers.adoptable_by, cloud_adapter::driver::Namespaces::read(["shop"]));
    let take = crate::plan::plan(&web, &writer(), Some(&hers), &bench.site()).expect("possible");
    bench.execute(&take[0]);
    let (record, _) = bench.settled(&web);
    assert_eq!(record.origin, cloud_adapter::driver::Origin::Adopted);
    assert_eq!(
        bench.settled(&with(web.clone(), |spec| drop(spec.tags.insert("a".into(), "b".into())))).1.len(),
        1
    );
    release(&mut bench, &web);
    assert_eq!(
        (&bench.cloud.balancers, &bench.cloud.listeners, &bench.cloud.pools),
        (&before.balancers, &before.listeners, &before.pools)
    );
}

#[test]
fn shared_load_balancer_of_a_user_stays_unchanged() {
    let mut bench = Bench::new();
    by_hand(&mut bench);
    let before = bench.cloud.clone();
    let (web, api) = (sharer("web", "hers", [tcp(80)]), sharer("api", "hers", [tcp(443)]));
    let (record, _) = bench.settled(&web);
    assert_eq!(addresses(&record), ["10.0.0.77"]);
    bench.settled(&api);
    let taken = refused(&bench, &sharer("shop", "hers", [tcp(9000)]));
    assert!(taken.2.contains("listener front"), "{}", taken.2);
    for one in [&web, &api] {
        bench.gone(one);
        assert_eq!(bench.next_of_removal(one), None);
    }
    assert_eq!(
        (&bench.cloud.balancers, &bench.cloud.listeners, &bench.cloud.pools),
        (&before.balancers, &before.listeners, &before.pools)
    );
}

/// The user's own parts do not change, nor does the user's consent for other namespaces.
#[test]
fn parts_created_by_a_user_stay() {
    let mut bench = Bench::new();
    by_hand(&mut bench);
    bench.cloud.balancers[0]["tags"] = json!(["cloudadapter.dev/adopt=shop", "cloudadapter.dev/share=ops"]);
    let ip = json!({ "id": "ip", "floating_ip_address": "198.51.100.9", "port_id": "port-of-hers", "description": "hers" });
    bench.cloud.floating_ips.push(ip);
    let before = bench.cloud.clone();
    let web = with(web([tcp(80), tcp(9000)]), |spec| {
        spec.shared_with = vec!["shop-2".to_owned()];
        spec.name = "front-door".to_owned();
    });
    let hers = bench.records().remove(0);
    let take = crate::plan::plan(&web, &writer(), Some(&hers), &bench.site()).expect("possible");
    bench.execute(&take[0]);
    let (writes, error) = bench.refused(&web);
    assert_eq!((error.fault, error.fields.join(" ").as_str()), (Fault::Invalid, "spec.listeners[1].port"));
    assert!(error.message.contains("listener front"), "{}", error.message);
    assert!(writes.iter().any(|write| write == "create listener tcp/80"), "{writes:?}");
    assert_eq!(bench.cloud.floating_ips, before.floating_ips, "the Service is internal");
    let other = with(public([tcp(80)]), |spec| spec.requested_addresses = vec!["198.51.100.7".to_owned()]);
    let (_, error) = bench.copy().refused(&other);
    assert_eq!(error.fields, ["spec.requested_addresses"]);
    assert!(error.message.contains("198.51.100.9"), "{}", error.message);
    let record = bench.seen(&web).expect("there");
    assert_eq!(record.shared_with, cloud_adapter::driver::Namespaces::read(["ops", "shop-2"]));

    release(&mut bench, &web);
    assert_eq!(
        (&bench.cloud.balancers, &bench.cloud.listeners, &bench.cloud.floating_ips),
        (&before.balancers, &before.listeners, &before.floating_ips)
    );
}
