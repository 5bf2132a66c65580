//! Tests of floating IPs, which are created, requested and kept. A load balancer never has two floating IPs.

use cloud_adapter::driver::DesiredLoadBalancer;
use cloud_api_proto::v1alpha1::{LoadBalancerSpec, LoadBalancerState, load_balancer_spec::AddressRetention};
use serde_json::json;

use super::{
    Bench, Record, addresses,
    bench::{FAR, NO_POOL, PORT, set},
    public, tcp, web, with,
};
use crate::ownership::Description;

#[test]
fn public_load_balancer_reports_only_its_floating_ip() {
    let mut bench = Bench::new();
    let desired = public([tcp(80)]);
    bench.run(&desired, 1);
    let record = bench.observe().expect("there");
    assert_eq!(
        (record.summary.applied_hash.as_str(), addresses(&record).len()),
        ("", 0),
        "it is not complete without a floating IP"
    );
    let mut bench = Bench::new();
    let (record, writes) = bench.settled(&desired);
    assert_eq!((writes.len(), writes[1].as_str()), (2, "create a floating IP"));
    let ip = &record.detail.floating_ips[0];
    assert_eq!(addresses(&record), [ip.floating_ip_address.to_string()]);
    assert_eq!(Description::read(&ip.description).expect("a record").key(), desired.key);
    assert_eq!(bench.plan(&desired), Ok(vec![]));
    set(&mut bench.cloud.floating_ips, &ip.id, &json!({ "port_id": null }));
    assert_eq!(bench.observe().expect("there").summary.applied_hash, "", "a user detached the floating IP");
}

#[test]
fn address_is_deleted_last_and_leftovers_are_found() {
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80)]));
    assert_eq!(
        bench.deleted(),
        ["delete load balancer lb-1 with all its parts", "delete floating IP 203.0.113.5"]
    );
    assert!(bench.cloud.floating_ips.is_empty());
}

#[test]
fn recreated_load_balancer_keeps_its_address() {
    let mut bench = Bench::new();
    let desired = public([tcp(80)]);
    let (before, _) = bench.settled(&desired);
    bench.execute(&crate::plan::plan_deletion(&before, None)[0]);
    assert!(bench.run(&desired, 3));
    let record = bench.observe().expect("recreated");
    assert_eq!(addresses(&record), addresses(&before));
    assert_eq!(bench.cloud.floating_ips.len(), 1, "no second floating IP is created");
}

/// See cpo#2341. The runtime recreates a load balancer in state ERROR if `recreate` allows it.
#[test]
fn load_balancer_in_error_is_recreated_with_its_addresses() {
    let mut bench = Bench::new();
    let desired = public([tcp(80)]);
    bench.settled(&desired);
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "provisioning_status": "ERROR" }));
    let broken = bench.observe().expect("there");
    assert_eq!(broken.summary.state(), LoadBalancerState::Error);
    bench.execute(&crate::plan::plan_deletion(&broken, None)[0]);
    // The next free address differs from the former one, so an equal address proves that the plan requested it.
    bench.next_address = 10;
    let record = bench.again(&desired, &broken);
    assert_eq!(addresses(&record), addresses(&broken), "the floating IP");
    let own = |record: &Record| record.detail.balancer.as_ref().and_then(|one| one.vip_address);
    assert_eq!(own(&record), own(&broken));
    assert_eq!(bench.cloud.floating_ips.len(), 1);
}

#[test]
fn scheme_changes_to_internal_and_back() {
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80)]));
    let (record, writes) = bench.settled(&web([tcp(80)]));
    assert_eq!(writes, ["delete floating IP 203.0.113.5", "tag load balancer as complete"]);
    assert_eq!(addresses(&record), ["10.0.0.9"]);
    let (record, writes) = bench.settled(&public([tcp(80)]));
    assert_eq!(writes, ["create a floating IP", "tag load balancer as complete"]);
    assert_eq!(addresses(&record).len(), 1);
}

#[test]
fn another_pool_is_another_address() {
    let from = |pool: &str| with(public([tcp(80)]), |spec| spec.address_pool = pool.into());
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80)]));
    assert_eq!(bench.settled(&from("dmz")).1, ["tag load balancer as complete"], "the address stays");
    let mut bench = Bench::new();
    bench.settled(&from("dmz"));
    let (_, writes) = bench.settled(&from("edge"));
    let swap = [
        "create an unattached floating IP",
        "detach floating IP 203.0.113.5",
        "attach floating IP 203.0.113.6",
        "delete floating IP 203.0.113.5",
        "tag load balancer as complete",
    ];
    assert_eq!(writes, swap);
    assert_eq!(
        bench.settled(&public([tcp(80)])).1,
        ["tag load balancer as complete"],
        "the floating \
    IP may be from any pool"
    );
}

#[test]
fn other_name_of_the_same_pool_keeps_the_address() {
    let from = |pool: &str| with(public([tcp(80)]), |spec| spec.address_pool = pool.into());
    let mut bench = Bench::new();
    let (before, _) = bench.settled(&from("dmz"));
    bench.run(&from("the-dmz"), 9);
    assert_eq!(bench.writes[2..], ["create an unattached floating IP", "tag load balancer as complete"]);
    let after = bench.observe().expect("there");
    assert_eq!(addresses(&after), addresses(&before));
    assert_eq!((bench.plan(&from("the-dmz")), bench.cloud.floating_ips.len()), (Ok(vec![]), 1));
    assert_eq!(
        bench.settled(&from("net-dmz")).1,
        ["tag load balancer as complete"],
        "the ID of the pool is known"
    );
}

#[test]
fn impossible_request_costs_no_address() {
    type Set = fn(&mut LoadBalancerSpec);
    let mistakes = [
        (|spec| spec.requested_addresses = vec!["198.51.100.7".into()]) as Set,
        |spec| spec.address_pool = NO_POOL.into(),
        |spec| spec.requested_addresses = vec!["198.51.100.8".into()],
    ];
    for wish in [public([tcp(80)]), with(public([tcp(80)]), |spec| spec.address_pool = "dmz".into())] {
        for mistake in mistakes {
            let mut bench = Bench::new();
            let (before, _) = bench.settled(&wish);
            // The floating IP belongs to another user, and is attached to a port.
            reserved(&mut bench, "198.51.100.8");
            set(&mut bench.cloud.floating_ips, "reserved", &json!({ "port_id": "a server's" }));
            let ips = bench.cloud.floating_ips.clone();
            let wrong = with(wish.clone(), mistake);
            if bench.run(&wrong, 9) {
                assert_eq!(
                    wrong.spec.address_pool, NO_POOL,
                    "an address from an unnamed pool may be from any pool"
                );
            }
            assert_eq!(bench.cloud.floating_ips, ips);
            let (record, writes) = bench.settled(&wish);
            assert_eq!(addresses(&record), addresses(&before), "{writes:?}");
        }
    }
}

/// Neutron creates the floating IP, but refuses to attach it.
#[test]
fn unreachable_pool_costs_no_address() {
    let from = |pool: &str, keep: bool| {
        with(public([tcp(80)]), |spec| {
            spec.address_pool = pool.into();
            if keep {
                kept(spec);
            }
        })
    };
    for (back, keep) in [("dmz", false), ("dmz", true), ("", false), ("", true)] {
        let mut bench = Bench::new();
        let (before, _) = bench.settled(&from("dmz", keep));
        let there = json!({ "id": "z", "created_at": "2026-01-01T00:00:00Z" });
        set(&mut bench.cloud.floating_ips, "fip-5", &there);
        assert!(!bench.run(&from(FAR, keep), 9), "the router does not reach the pool");
        assert_eq!(bench.cloud.floating_ips.len(), 2, "the floating IP is created");
        // Neither the IDs nor the order in the list shows which floating IP has been in use.
        set(&mut bench.cloud.floating_ips, "fip-6", &json!({ "created_at": "2026-02-01T00:00:00Z" }));
        bench.cloud.floating_ips.reverse();
        let (after, writes) = bench.settled(&from(back, keep));
        assert_eq!(addresses(&after), addresses(&before), "{back:?} {writes:?}");
        assert_eq!(bench.cloud.floating_ips.len(), 1, "{back:?} {writes:?}");
    }
}

#[test]
fn kept_address_is_marked_once_it_serves() {
    let from = |pool: &str| {
        with(public([tcp(80)]), |spec| {
            spec.address_pool = pool.into();
            spec.address_retention = AddressRetention::Keep.into();
        })
    };
    let mut bench = Bench::new();
    bench.settled(&from("dmz"));
    let (record, writes) = bench.settled(&from("edge"));
    let swap = [
        "create an unattached floating IP",
        "detach floating IP 203.0.113.5",
        "attach floating IP 203.0.113.6",
        "describe floating IP 203.0.113.6 as owned by this cluster",
        "tag load balancer as complete",
    ];
    assert_eq!(
        (writes, addresses(&record)),
        (swap.map(str::to_owned).into(), vec!["203.0.113.6".to_owned()])
    );
    bench.deleted();
    assert_eq!(bench.cloud.floating_ips.len(), 2, "both floating IPs are kept");
}

/// The requested address exists when the former address is detached to make way for it, but is then deleted.
#[test]
fn detached_address_returns_if_the_new_one_is_gone() {
    let mut bench = Bench::new();
    let (before, _) = bench.settled(&public([tcp(80)]));
    reserved(&mut bench, "198.51.100.7");
    let desired = with(public([tcp(80)]), |spec| spec.requested_addresses = vec!["198.51.100.7".into()]);
    bench.run(&desired, 1);
    bench.cloud.floating_ips.retain(|one| one["id"] != "reserved");
    assert!(!bench.run(&desired, 9), "refused");
    let (record, writes) = bench.settled(&public([tcp(80)]));
    assert_eq!((writes.len(), addresses(&record)), (1, addresses(&before)), "{writes:?}");
}

fn reserved(bench: &mut Bench, address: &str) {
    let ip =
        json!({ "id": "reserved", "floating_ip_address": address, "port_id": null, "description": "mine" });
    bench.cloud.floating_ips.push(ip);
}

#[test]
fn reserved_address_stays_after_the_deletion() {
    let mut bench = Bench::new();
    reserved(&mut bench, "198.51.100.7");
    let desired = with(public([tcp(80)]), |spec| spec.requested_addresses = vec!["198.51.100.7".into()]);
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes[1], "attach floating IP 198.51.100.7");
    assert_eq!(addresses(&record), ["198.51.100.7"]);
    // The description of the floating IP names its owner while the floating IP is unattached, for example while the load balancer is
    // recreated.
    let ours = Description::read(&record.detail.floating_ips[0].description).expect("recorded");
    assert_eq!((ours.key(), ours.asked.as_deref()), (desired.key, Some("mine")));
    assert_eq!(
        bench.deleted(),
        [
            "delete load balancer lb-1 with all its parts",
            "describe floating IP 198.51.100.7 as owned by this cluster"
        ]
    );
    assert_eq!(bench.cloud.floating_ips[0]["description"], "mine");
}

/// A Service of another namespace requests three addresses: one whose load balancer is being recreated, one that is kept, and one that a
/// user reserved.
#[test]
fn address_of_another_service_is_never_attached() {
    let asks = |namespace: &str, address: &str| {
        let mut desired = with(public([tcp(80)]), |spec| spec.requested_addresses = vec![address.to_owned()]);
        desired.key.owner_uid = format!("u-{namespace}");
        namespace.clone_into(&mut desired.owner.namespace);
        desired
    };
    let refuses = |bench: &Bench, desired: &DesiredLoadBalancer| {
        let mut bench = bench.copy();
        bench.run(desired, 1);
        !bench.run(desired, 9)
    };
    let mut bench = Bench::new();
    reserved(&mut bench, "198.51.100.7");
    let shop = asks("shop", "198.51.100.7");
    let (record, _) = bench.settled(&shop);
    bench.execute(&crate::plan::plan_deletion(&record, None)[0]);
    assert!(bench.cloud.floating_ips[0]["port_id"].is_null(), "the floating IP is unattached for a moment");
    assert!(refuses(&bench, &asks("evil", "198.51.100.7")));
    assert_eq!(addresses(&bench.again(&shop, &record)), ["198.51.100.7"]);

    let mut bench = Bench::new();
    bench.settled(&with(public([tcp(80)]), kept));
    bench.deleted();
    assert!(refuses(&bench, &asks("evil", "203.0.113.5")));
    let mut returns = asks("shop", "203.0.113.5");
    assert_eq!(
        addresses(&bench.settled(&returns).0),
        ["203.0.113.5"],
        "the Service has the same namespace and name"
    );
    bench.deleted();
    assert_eq!(bench.cloud.floating_ips.len(), 1, "the floating IP stays kept");
    returns.owner.name = "api".to_owned();
    returns.key.owner_uid = "u-api".to_owned();
    assert!(refuses(&bench, &returns), "the Service has another name");
}

#[test]
fn reserved_address_replaces_the_current_one() {
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80)]));
    reserved(&mut bench, "198.51.100.7");
    let desired = with(public([tcp(80)]), |spec| spec.requested_addresses = vec!["198.51.100.7".into()]);
    let (record, writes) = bench.settled(&desired);
    let swap = [
        "detach floating IP 203.0.113.5",
        "attach floating IP 198.51.100.7",
        "delete floating IP 203.0.113.5",
        "tag load balancer as complete",
    ];
    assert_eq!(
        (writes, addresses(&record)),
        (swap.map(str::to_owned).into(), vec!["198.51.100.7".to_owned()])
    );
    // A Service that requests no particular address keeps the current one.
    assert_eq!(bench.settled(&public([tcp(80)])).1, ["tag load balancer as complete"]);
}

#[test]
fn kept_address_stays_in_the_project() {
    let mut bench = Bench::new();
    let desired = with(public([tcp(80)]), |spec| spec.address_retention = AddressRetention::Keep.into());
    bench.settled(&public([tcp(80)]));
    let (_, writes) = bench.settled(&desired);
    assert_eq!(
        writes,
        ["describe floating IP 203.0.113.5 as owned by this cluster", "tag load balancer as complete"]
    );
    assert_eq!(bench.deleted(), ["delete load balancer lb-1 with all its parts"]);
    assert_eq!((bench.cloud.floating_ips.len(), &bench.cloud.floating_ips[0]["port_id"]), (1, &json!(null)));
}

/// Without the annotation, the floating IP stays kept for later Services of this name.
#[test]
fn reused_kept_address_is_deleted_on_request() {
    let mut bench = Bench::new();
    let keeps = with(public([tcp(80)]), kept);
    bench.settled(&keeps);
    bench.gone(&keeps);
    let mut again = with(public([tcp(80)]), |spec| spec.requested_addresses = vec!["203.0.113.5".to_owned()]);
    again.key.owner_uid = "u-2".to_owned();
    bench.settled(&again);
    bench.gone(&again);
    assert_eq!(bench.cloud.floating_ips.len(), 1, "the floating IP stays kept");
    again.key.owner_uid = "u-3".to_owned();
    let goes = with(again, |spec| spec.address_retention = AddressRetention::Release.into());
    bench.settled(&goes);
    bench.gone(&goes);
    assert_eq!(bench.cloud.floating_ips.len(), 0);

    // A reused floating IP also loses the mark that it is kept if the Service sets the annotation later.
    let mut bench = Bench::new();
    bench.settled(&keeps);
    bench.gone(&keeps);
    let mut again = with(public([tcp(80)]), |spec| spec.requested_addresses = vec!["203.0.113.5".to_owned()]);
    again.key.owner_uid = "u-2".to_owned();
    bench.settled(&again);
    let goes = with(again, |spec| spec.address_retention = AddressRetention::Release.into());
    assert!(
        bench
            .settled(&goes)
            .1
            .contains(&"describe floating IP 203.0.113.5 as owned by this cluster".to_owned())
    );
    bench.gone(&goes);
    assert_eq!(bench.cloud.floating_ips.len(), 0);
}

/// Each kept address uses the project's quota indefinitely, so their number is limited.
#[test]
fn kept_addresses_of_a_namespace_are_limited() {
    let mut bench = Bench::new();
    bench.options.kept_addresses_per_namespace = Some(1);
    let of_another = |mut desired: DesiredLoadBalancer, namespace: &str| {
        desired.key.owner_uid = format!("u-{namespace}");
        (desired.owner.namespace, desired.owner.name) = (namespace.to_owned(), "other".to_owned());
        desired
    };
    let keeps = with(public([tcp(80)]), kept);
    bench.settled(&keeps);
    bench.gone(&keeps);
    let (_, error) = bench.refused(&of_another(keeps.clone(), "shop"));
    assert_eq!(error.fields, ["spec.address_retention"]);
    assert!(error.message.contains("namespace shop"), "{error}");
    let second =
        bench.seen(&of_another(keeps.clone(), "shop")).expect("the load balancer serves nevertheless");
    assert_eq!(addresses(&second).len(), 1);
    bench.gone(&of_another(keeps.clone(), "shop"));
    assert_eq!(bench.cloud.floating_ips.len(), 1, "only the first address is kept");
    bench.settled(&of_another(keeps.clone(), "mail"));

    // If the maximum is lowered, addresses above it stay kept.
    let mut bench = Bench::new();
    let second = of_another(keeps.clone(), "shop");
    bench.settled(&keeps);
    bench.settled(&second);
    bench.options.kept_addresses_per_namespace = Some(1);
    for one in [&keeps, &second] {
        assert_eq!(bench.plan(one), Ok(vec![]), "no address loses its mark");
        bench.gone(one);
    }
    assert_eq!(bench.cloud.floating_ips.len(), 2);
}

fn kept(spec: &mut LoadBalancerSpec) {
    spec.address_retention = AddressRetention::Keep.into();
}

#[test]
fn address_of_the_former_ccm_is_taken_over() {
    let mut bench = Bench::new();
    let desired = public([tcp(80)]);
    bench.settled(&desired);
    let id = bench.cloud.floating_ips[0]["id"].as_str().expect("text").to_owned();
    let go = "Floating IP for Kubernetes external service shop/web from cluster prod";
    set(&mut bench.cloud.floating_ips, &id, &json!({ "description": go }));
    assert_eq!(bench.settled(&desired).1, ["describe floating IP 203.0.113.5 as owned by this cluster"]);
    // The floating IP is changed only after its owner is recorded.
    for (wish, left) in [(web([tcp(80)]), 0), (with(web([tcp(80)]), kept), 1)] {
        let mut bench = Bench::new();
        bench.settled(&desired);
        set(&mut bench.cloud.floating_ips, &id, &json!({ "description": go }));
        bench.settled(&wish);
        assert_eq!(bench.cloud.floating_ips.len(), left, "{:?}", bench.writes);
    }
    // A user has attached the floating IP to a server.
    set(&mut bench.cloud.floating_ips, &id, &json!({ "port_id": "a server's" }));
    assert_eq!(bench.settled(&desired).1, ["create a floating IP"]);
    bench.deleted();
    assert_eq!(bench.cloud.floating_ips.len(), 1);
    assert_eq!(bench.cloud.floating_ips[0]["port_id"], "a server's");
    assert_ne!(bench.cloud.floating_ips[0]["port_id"], PORT);
}
