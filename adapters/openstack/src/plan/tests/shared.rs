//! Tests of several Services on one load balancer. Each Service changes its own listeners and pools, and the last Service deletes the load
//! balancer.

use cloud_adapter::driver::Driver as _;
use cloud_api_proto::v1alpha1::LoadBalancerState;

use super::{bench::body, *};
use crate::{ownership::part_tag, testing::FakeCloud};

/// Returns another Service, which shares the load balancer with this ID.
pub(super) fn sharer(
    name: &str,
    balancer: &str,
    listeners: impl Into<Vec<contract::Listener>>,
) -> DesiredLoadBalancer {
    let mut desired = public(listeners);
    desired.key.owner_uid = format!("u-{name}");
    (desired.owner.name, desired.owner.uid) = (name.to_owned(), format!("u-{name}"));
    with(desired, |spec| spec.load_balancer_id = balancer.to_owned())
}

pub(super) fn refused(bench: &Bench, desired: &DesiredLoadBalancer) -> (Fault, String, String) {
    let (_, error) = bench.copy().refused(desired);
    (error.fault, error.fields.join(" "), error.message)
}

fn listeners(bench: &Bench, desired: &DesiredLoadBalancer) -> Vec<String> {
    bench.seen(desired).expect("there").summary.listeners
}

#[test]
fn sharing_service_adds_ports_and_reports_the_address() {
    let mut bench = Bench::new();
    let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(443)]));
    let (before, _) = bench.settled(&web);
    let parts = (bench.cloud.listeners.clone(), bench.cloud.pools.clone(), bench.cloud.floating_ips.clone());
    let (record, writes) = bench.settled(&api);
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as shared",
            "create pool tcp-443",
            "add or change 2 members of pool tcp-443",
            "create the health monitor of pool tcp-443",
            "create listener tcp/443",
            "tag the share of the load balancer as complete",
        ]
    );
    assert_eq!((record.summary.listeners.join(" "), record.summary.backends), ("tcp/443".to_owned(), 2));
    assert_eq!(addresses(&record), addresses(&before));
    assert_ne!(record.summary.vendor_id, "lb-1", "each item appears once in a stream");
    assert_eq!(record.summary.vendor_ids.expect("set").ids["loadbalancer/shared"], "lb-1");

    // Nothing has changed for the owner, so the owner makes no writes.
    let after = bench.seen(&web).expect("there");
    assert_eq!(after.summary, before.summary);
    assert_eq!((bench.plan(&web), bench.plan(&api)), (Ok(vec![]), Ok(vec![])));
    assert_eq!(
        (&bench.cloud.listeners[..1], &bench.cloud.pools[..1], &bench.cloud.floating_ips),
        (&parts.0[..], &parts.1[..], &parts.2)
    );
    // A change by the owner does not affect the listeners and pools of the other Service.
    let before = bench.seen(&api).expect("there").summary;
    bench.settled(&public([tcp(80), tcp(81)]));
    assert_eq!(bench.seen(&api).expect("there").summary, before);
    assert_eq!(bench.plan(&api), Ok(vec![]));

    // A new node costs one write for each pool, and no write of tags.
    let mut grown = api.clone();
    grown.backends = [1, 2, 3].map(backend).into();
    assert_eq!(bench.settled(&grown).1, ["add or change 1 members of pool tcp-443"]);
    let (_, writes) = bench.settled(&sharer("api", "lb-1", [tcp(8443)]));
    assert_eq!(writes.last().expect("some"), "tag the share of the load balancer as complete");
    assert_eq!(listeners(&bench, &api), ["tcp/8443"]);
}

#[test]
fn taken_port_is_refused_with_its_user() {
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80), udp(53)]));
    let taken = refused(&bench, &sharer("api", "lb-1", [tcp(443), tcp(80)]));
    assert_eq!((taken.0, taken.1.as_str()), (Fault::Invalid, "spec.listeners[1].port"));
    assert!(taken.2.contains("tcp/80") && taken.2.contains("Service shop/web of cluster c-1"), "{}", taken.2);
    let (writes, _) = bench.copy().refused(&sharer("api", "lb-1", [tcp(80)]));
    assert_eq!(writes, [""; 0], "the Service has no other port");
    bench.settled(&sharer("api", "lb-1", [udp(80)]));

    let taken = refused(&bench, &public([tcp(80), udp(80)]));
    assert!(taken.0 == Fault::Invalid && taken.2.contains("Service shop/api"), "{}", taken.2);
    let taken = refused(&bench, &sharer("shop", "lb-1", [udp(80)]));
    assert!(taken.2.contains("udp/80 of load balancer lb-1 is taken by Service shop/api"), "{}", taken.2);

    // An owner that does not share the load balancer takes over a listener without an owner tag. An owner that shares it does not.
    let hers = json!({ "name": "hers", "protocol": "TCP", "protocol_port": 9000 });
    bench.create_listener("lb-1", None, &hers);
    let taken = refused(&bench, &sharer("shop", "lb-1", [tcp(9000)]));
    assert!(taken.2.contains("listener hers"), "{}", taken.2);
}

/// Only the change of the taken port fails. All other changes are made, nodes first. This holds even for an adapter that has just started
/// and does not know the last accepted state.
#[test]
fn taken_port_does_not_block_other_changes() {
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80)]));
    bench.settled(&sharer("api", "lb-1", [tcp(443)]));
    let mut grown = public([tcp(80), tcp(443), tcp(8080)]);
    grown.backends = [1, 2, 3].map(backend).into();
    let (writes, error) = bench.refused(&grown);
    assert_eq!((error.fault, error.fields.join(" ").as_str()), (Fault::Invalid, "spec.listeners[1].port"));
    assert_eq!(writes.first().map(String::as_str), Some("add or change 1 members of pool tcp-80"));
    assert!(writes.contains(&"create listener tcp/8080".to_owned()), "{writes:?}");
    let record = bench.seen(&grown).expect("there");
    assert_eq!(record.summary.listeners, ["tcp/80", "tcp/8080"]);
    assert_ne!(record.summary.applied_hash, grown.hash, "it is not marked as complete");
    assert_eq!(listeners(&bench, &sharer("api", "lb-1", [tcp(443)])), ["tcp/443"]);
}

/// Otherwise a guest could prevent the owner from withdrawing the consent, by using a port that the owner wants.
#[test]
fn consent_is_withdrawn_first_even_if_a_port_is_refused() {
    let mut bench = Bench::new();
    let mut web = with(public([tcp(80)]), |spec| spec.shared_with = vec!["ops".to_owned()]);
    bench.settled(&web);
    let mut guest = sharer("guest", "lb-1", [tcp(443)]);
    "ops".clone_into(&mut guest.owner.namespace);
    bench.settled(&guest);
    web.spec.shared_with.clear();
    let closes = "tag load balancer lb-1 as owned by this cluster";
    let first = bench.plan(&web).expect("nothing is refused").first().map(ToString::to_string);
    assert_eq!(first.as_deref(), Some(closes));
    web.spec.listeners.push(tcp(443));
    let hash = bench.seen(&web).expect("there").summary.applied_hash;
    let (writes, error) = bench.refused(&web);
    assert_eq!((writes.first().map(String::as_str), error.fault), (Some(closes), Fault::Invalid));
    let record = bench.seen(&web).expect("there");
    assert_eq!(
        record.shared_with,
        cloud_adapter::driver::Namespaces::default(),
        "the guest's namespace may no longer share it"
    );
    assert_eq!(record.summary.applied_hash, hash, "the hash of the last complete change");
}

/// The owner shares the load balancer with another namespace. A Service of that namespace does not get the address; the address is deleted
/// with the last Service of the owner's namespace.
#[test]
fn address_never_passes_to_another_namespace() {
    let elsewhere = |mut desired: DesiredLoadBalancer| {
        "news".clone_into(&mut desired.owner.namespace);
        desired
    };
    for stays_with_its_own in [false, true] {
        let mut bench = Bench::new();
        let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(8080)]));
        let news = elsewhere(sharer("news", "lb-1", [tcp(443)]));
        bench.settled(&web);
        bench.settled(&news);
        if stays_with_its_own {
            bench.settled(&api);
            bench.gone(&web);
            assert_eq!(
                bench.plan(&news),
                Ok(vec![]),
                "the load balancer stays while a Service of \
            its namespace uses it"
            );
        }
        bench.gone(if stays_with_its_own { &api } else { &web });
        let cloud = &bench.cloud;
        assert!(cloud.balancers.is_empty() && cloud.floating_ips.is_empty() && cloud.listeners.is_empty());
    }
}

/// Otherwise the deletion would wait for each of the guests' changes.
#[test]
fn deletion_first_closes_the_load_balancer_to_guests() {
    let mut bench = Bench::new();
    let web = with(public([tcp(80)]), |spec| spec.shared_with = vec!["ops".to_owned()]);
    bench.settled(&web);
    let mut guest = sharer("guest", "lb-1", [tcp(443)]);
    guest.owner.namespace = "ops".to_owned();
    bench.settled(&guest);
    let closes = bench.next_of_removal(&web).expect("a step");
    assert_eq!(closes.to_string(), "remove the owner's tags from load balancer lb-1, which others use");
    bench.execute(&closes);
    let leaves = bench.next_of_removal(&guest).expect("a step");
    assert!(
        !matches!(leaves, Step::DescribeFloatingIp { .. }),
        "the guest gets the address of another namespace: {leaves}"
    );
    let mut left = bench.copy();
    left.gone(&guest);
    assert_eq!(left.cloud.balancers.len(), 1, "only the owner deletes the load balancer");
    guest.spec.listeners.push(tcp(8080));
    let refused = refused(&bench, &hashed(guest));
    assert_eq!((refused.0, refused.1.as_str()), (Fault::Invalid, "spec.load_balancer_id"));
    assert_eq!(
        bench.gone(&web),
        ["delete load balancer lb-1 with all its parts", "delete floating IP 203.0.113.5"]
    );
    assert!(bench.cloud.balancers.is_empty() && bench.cloud.floating_ips.is_empty());
}

#[test]
fn only_the_owner_changes_the_load_balancer_itself() {
    let mut bench = Bench::new();
    let (before, _) = bench.settled(&public([tcp(80)]));
    type Set = fn(&mut LoadBalancerSpec);
    for (what, change) in [
        ("a name", (|spec| spec.name = "mine".to_owned()) as Set),
        ("a size", |spec| spec.size = "big".to_owned()),
        ("a subnet", |spec| spec.subnets = vec!["other".to_owned()]),
        ("a pool", |spec| spec.address_pool = "dmz".to_owned()),
        ("a tag", |spec| drop(spec.tags.insert("team".to_owned(), "b".to_owned()))),
        ("its address", |spec| spec.requested_addresses = vec!["203.0.113.5".to_owned()]),
    ] {
        bench.settled(&with(sharer("api", "lb-1", [tcp(443)]), change));
        let mut after = bench.seen(&public([tcp(80)])).expect("there");
        let tags = &mut after.detail.balancer.as_mut().expect("there").tags;
        tags.retain(|tag| !tag.contains("/sharer/"));
        assert_eq!(after.detail.balancer, before.detail.balancer, "{what}");
        assert_eq!(after.detail.floating_ips, before.detail.floating_ips, "{what}");
    }
    for (field, change) in [
        ("spec.scheme", (|spec| spec.scheme = load_balancer_spec::Scheme::Internal.into()) as Set),
        ("spec.ip_families", |spec| spec.ip_families = vec![contract::IpFamily::Ipv6.into()]),
        ("spec.requested_addresses[0]", |spec| spec.requested_addresses = vec!["203.0.113.99".to_owned()]),
    ] {
        let (fault, fields, _) = refused(&bench, &with(sharer("api", "lb-1", [tcp(443)]), change));
        assert_eq!((fault, fields.as_str()), (Fault::Invalid, field));
    }
    // The address would change if the field named another load balancer or were empty.
    for other in ["lb-2", ""] {
        let (fault, fields, text) = refused(&bench, &sharer("api", other, [tcp(443)]));
        assert_eq!((fault, fields.as_str()), (Fault::Immutable, "spec.load_balancer_id"), "{other:?}");
        assert!(text.contains("lb-1: set this ID; to use another"), "{text}");
    }
}

/// The Service has a stale annotation, for example from the former cloud controller manager. The load balancer stays, and the error says
/// which value to set.
#[test]
fn stale_load_balancer_id_is_refused() {
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80)]));
    let named = |id: &str| with(public([tcp(80)]), |spec| spec.load_balancer_id = id.to_owned());
    let (fault, fields, text) = refused(&bench, &named("gone"));
    assert_eq!((fault, fields.as_str()), (Fault::Immutable, "spec.load_balancer_id"));
    assert!(text.contains("has load balancer lb-1: set this ID, or none; to use another"), "{text}");
    for right in [named("lb-1"), public([tcp(80)])] {
        let (record, writes) = bench.settled(&right);
        assert_eq!((record.summary.vendor_id.as_str(), writes.len()), ("lb-1", 1), "{writes:?}");
    }
}

// Behaviour: SF14
#[test]
fn last_user_deletes_a_shared_load_balancer() {
    let mut bench = Bench::new();
    let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(443)]));
    let shop = sharer("shop", "lb-1", [tcp(8080)]);
    for one in [&web, &api, &shop] {
        bench.settled(one);
    }
    let address = addresses(&bench.seen(&api).expect("there"));
    let gone = bench.gone(&web);
    assert_eq!(
        gone,
        [
            "delete listener tcp/80",
            "delete pool tcp-80 (pool-2)",
            "remove the owner's tags from load balancer lb-1, which others use",
        ]
    );
    assert_eq!(addresses(&bench.seen(&api).expect("the load balancer stays")), address);
    assert_eq!((bench.plan(&api), bench.plan(&shop)), (Ok(vec![]), Ok(vec![])), "no step is left");
    let reported = bench.records().into_iter().filter(|record| !record.left);
    assert_eq!(
        reported.filter(|one| one.belongs_to(&web.key)).count(),
        0,
        "the user has no objects any more"
    );

    assert_eq!(bench.gone(&api).len(), 3);
    assert_eq!(addresses(&bench.seen(&shop).expect("the load balancer stays")), address);
    let gone = bench.gone(&shop);
    assert_eq!(
        gone,
        [
            "describe floating IP 203.0.113.5 as owned by this cluster",
            "delete load balancer lb-1 with all its parts",
            "delete floating IP 203.0.113.5",
        ]
    );
    let cloud = &bench.cloud;
    assert!(cloud.balancers.is_empty() && cloud.listeners.is_empty() && cloud.pools.is_empty());
    assert!(cloud.floating_ips.is_empty() && cloud.monitors.is_empty());
}

#[test]
fn leaving_user_deletes_only_its_own_parts() {
    let mut bench = Bench::new();
    let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(443)]));
    let (before, _) = bench.settled(&web);
    let cloud = bench.cloud.clone();
    bench.settled(&api);
    bench.gone(&api);
    assert_eq!((bench.seen(&web), bench.plan(&web)), (Some(before), Ok(vec![])));
    assert_eq!(bench.cloud.balancers, cloud.balancers, "including all tags");
    assert_eq!(bench.gone(&web).len(), 2, "without other users it is deleted as usual");
}

#[test]
fn returning_owner_gets_its_load_balancer_back() {
    let mut bench = Bench::new();
    let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(443)]));
    bench.settled(&web);
    bench.settled(&api);
    bench.gone(&web);
    let (record, writes) = bench.settled(&web);
    assert_eq!((record.summary.vendor_id.as_str(), record.left), ("lb-1", false));
    assert_eq!(writes.first().map(String::as_str), Some("tag load balancer lb-1 as owned by this cluster"));
    bench.gone(&api);
    bench.gone(&web);
    assert!(bench.cloud.balancers.is_empty() && bench.cloud.floating_ips.is_empty());
}

#[test]
fn new_users_are_seen_before_a_deletion() {
    let mut bench = Bench::new();
    let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(443)]));
    bench.settled(&web);
    // Both steps were planned before another Service shared the load balancer.
    let early = bench.next_of_removal(&web).expect("a step");
    let complete = Step::CompleteLoadBalancer {
        id: kit::Part::Known("lb-1".to_owned()),
        tags: bench.seen(&web).and_then(|one| one.detail.balancer).expect("there").tags,
    };
    bench.run(&api, 1);
    assert_eq!(bench.try_execute(&early).expect_err("another Service shares it").fault, Fault::Busy);
    // A user has also added a tag.
    let mut tags = bench.cloud.balancers[0]["tags"].clone();
    tags.as_array_mut().expect("tags").push(json!("cost-centre=42"));
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "tags": tags }));
    bench.execute(&complete);
    let tags = &bench.cloud.balancers[0]["tags"];
    assert!(tags.as_array().expect("tags").contains(&json!("cost-centre=42")), "{tags}");
    assert!(bench.seen(&api).expect("there").belongs_to(&api.key), "its tags are still there");
    bench.settled(&api);

    // Each of the two deletions starts while the other Service still uses the load balancer.
    for one in [&web, &api] {
        while let Some(step) =
            bench.next_of_removal(one).filter(|it| !matches!(it, Step::LeaveLoadBalancer { .. }))
        {
            bench.execute(&step);
        }
    }
    let both = [&web, &api].map(|one| bench.next_of_removal(one).expect("the tags"));
    bench.execute(&both[0]);
    assert_eq!(bench.try_execute(&both[1]).expect_err("this Service is the last user").fault, Fault::Busy);
    bench.gone(&api);
    assert!(bench.cloud.balancers.is_empty() && bench.cloud.floating_ips.is_empty());
}

#[test]
fn changes_by_one_user_do_not_affect_others() {
    let mut bench = Bench::new();
    let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(443)]));
    bench.settled(&web);
    bench.settled(&api);
    let states = |bench: &Bench| [&web, &api].map(|one| bench.seen(one).expect("there").summary.state());
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "provisioning_status": "PENDING_UPDATE" }));
    let listener = bench.cloud.listeners[1]["id"].as_str().expect("text").to_owned();
    set(&mut bench.cloud.listeners, &listener, &json!({ "provisioning_status": "PENDING_UPDATE" }));
    assert_eq!(states(&bench), [LoadBalancerState::Active, LoadBalancerState::Pending]);
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "provisioning_status": "ACTIVE" }));
    set(&mut bench.cloud.listeners, &listener, &json!({ "provisioning_status": "ERROR" }));
    assert_eq!(states(&bench), [LoadBalancerState::Active, LoadBalancerState::Degraded]);
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "provisioning_status": "ERROR" }));
    assert_eq!(states(&bench), [LoadBalancerState::Error; 2]);
}

#[test]
fn number_of_users_is_limited_and_uids_are_unique() {
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80)]));
    for n in 1..16 {
        bench.settled(&sharer(&format!("s{n}"), "lb-1", [tcp(8000 + n)]));
    }
    let (fault, field, text) = refused(&bench, &sharer("late", "lb-1", [tcp(443)]));
    assert_eq!((fault, field.as_str()), (Fault::Invalid, "spec.load_balancer_id"));
    assert!(text.contains("already serves 16 Services"), "{text}");
    bench.settled(&sharer("s1", "lb-1", [tcp(443)]));

    let mut twin = sharer("s1", "lb-1", [tcp(4443)]);
    twin.key.cluster_id = "c-2".to_owned();
    assert!(refused(&bench, &twin).2.contains("has the same UID"));
}

#[test]
fn kept_address_survives_the_last_user() {
    let mut bench = Bench::new();
    let keep = load_balancer_spec::AddressRetention::Keep;
    let web = with(public([tcp(80)]), |spec| spec.address_retention = keep.into());
    let api = sharer("api", "lb-1", [tcp(443)]);
    for one in [&web, &api] {
        bench.settled(one);
    }
    for one in [&web, &api] {
        bench.gone(one);
    }
    assert!(bench.cloud.balancers.is_empty());
    assert_eq!((bench.cloud.floating_ips.len(), &bench.cloud.floating_ips[0]["port_id"]), (1, &json!(null)));
}

#[test]
fn parts_are_tagged_with_their_owner() {
    let mut bench = Bench::new();
    bench.settled(&public([tcp(80)]));
    let api = sharer("api", "lb-1", [tcp(443)]);
    bench.settled(&api);
    let own = [bench.cloud.listeners.last(), bench.cloud.pools.last()].map(|one| body(&one)["tags"].clone());
    assert_eq!(own, [json!([part_tag(&api.key)]), json!([part_tag(&api.key)])]);
}

/// Another Service starts to share the load balancer, or the owner returns, after the last user has got the address.
#[test]
fn address_of_the_last_user_passes_to_new_users() {
    let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(443)]));
    for comes in [sharer("shop", "lb-1", [tcp(8080)]), web.clone()] {
        let mut bench = Bench::new();
        bench.settled(&web);
        let (before, _) = bench.settled(&api);
        bench.gone(&web);
        let takes_over = bench.next_of_removal(&api).expect("this Service is the last user");
        bench.run(&comes, 1);
        // The write that records the last user as the owner of the address was in progress.
        bench.execute(&takes_over);
        assert!(
            bench
                .gone(&api)
                .contains(&"describe floating IP 203.0.113.5 as owned by this cluster".to_owned())
        );
        assert_eq!(addresses(&bench.settled(&comes).0), addresses(&before));
        bench.gone(&comes);
        let cloud = &bench.cloud;
        assert!(cloud.balancers.is_empty() && cloud.floating_ips.is_empty(), "{:?}", cloud.floating_ips);
    }
}

/// An earlier change of the address pool was interrupted, so the owner has an unattached address.
#[test]
fn leaving_owner_deletes_its_unattached_addresses() {
    let from = |pool: &str| with(public([tcp(80)]), |spec| spec.address_pool = pool.into());
    let mut bench = Bench::new();
    bench.settled(&from("dmz"));
    let api = sharer("api", "lb-1", [tcp(443)]);
    let (before, _) = bench.settled(&api);
    bench.run(&from("edge"), 1);
    assert_eq!(bench.cloud.floating_ips.len(), 2);
    bench.gone(&from("edge"));
    assert_eq!(addresses(&bench.seen(&api).expect("the load balancer stays")), addresses(&before));
    assert_eq!(bench.cloud.floating_ips.len(), 1);
    bench.gone(&api);
    assert!(bench.cloud.floating_ips.is_empty());
}

#[tokio::test]
async fn use_by_others_is_reported_to_owner_and_sharer() {
    let driver = FakeCloud::start().await.driver();
    let mut bench = Bench::new();
    let (web, api) = (public([tcp(80)]), sharer("api", "lb-1", [tcp(443)]));
    let is_used =
        |bench: &Bench, by: &DesiredLoadBalancer| driver.is_used_by_others(&bench.seen(by).expect("there"));
    bench.settled(&web);
    assert!(!is_used(&bench, &web), "alone");
    bench.settled(&api);
    assert_eq!([&web, &api].map(|one| is_used(&bench, one)), [true; 2]);
    bench.gone(&web);
    assert!(!is_used(&bench, &api), "the owner has left");
}
