//! Tests of load balancers of the former cloud controller manager that several Services share.

use super::{
    shared::{refused, sharer},
    *,
};

#[test]
fn shares_of_the_former_ccm_are_taken_over_one_by_one() {
    for (first, second) in [("web", "api"), ("api", "web")] {
        let mut bench = Bench::new();
        let web = with(public([tcp(80)]), |spec| spec.load_balancer_id = "lb-1".to_owned());
        let api = sharer("api", "lb-1", [tcp(443)]);
        of_go(&mut bench);
        let address = addresses(&bench.observe().expect("there"));
        let by_name = |name: &str| if name == "web" { &web } else { &api };
        for name in [first, second] {
            let writes = bench.settled(by_name(name)).1;
            assert!(
                !writes.iter().any(|it| it.contains("create") || it.contains("delete")),
                "{name}: {writes:?}"
            );
        }
        let record = bench.seen(&web).expect("there");
        assert_eq!((record.summary.vendor_id.as_str(), addresses(&record)), ("lb-1", address.clone()));
        assert_eq!(bench.seen(&api).expect("there").summary.vendor_id, "lb-1/u-api", "{first} first");
        bench.gone(&web);
        assert_eq!(addresses(&bench.seen(&api).expect("the load balancer stays")), address);
        bench.gone(&api);
        assert!(bench.cloud.balancers.is_empty() && bench.cloud.floating_ips.is_empty(), "{first} first");
    }
}

#[test]
fn load_balancer_in_use_by_the_former_ccm_stays() {
    let mut bench = Bench::new();
    of_go(&mut bench);
    // This Service is deleted before it takes over the load balancer; its listener is deleted too.
    assert_eq!(
        bench.deleted(),
        [
            "delete listener tcp/80",
            "delete pool pool_0_kube_service_prod_shop_web (pool-2)",
            "remove the owner's tags from load balancer lb-1, which others use",
        ]
    );
    assert_eq!((bench.cloud.listeners.len(), bench.cloud.floating_ips.len()), (1, 1));
    // A Service that shares a load balancer of the former controller also gets that controller's tag. Without the tag, the former
    // controller would delete the load balancer.
    let mut bench = Bench::new();
    of_go(&mut bench);
    let shop = sharer("shop", "lb-1", [tcp(8080)]);
    let (record, _) = bench.settled(&shop);
    let tag = "kube_service_prod_shop_shop".to_owned();
    let tags = |record: &Record| record.detail.balancer.clone().expect("there").tags;
    assert!(tags(&record).contains(&tag));
    let taken = refused(&bench, &sharer("shop", "lb-1", [tcp(443)]));
    assert!(taken.2.contains("kube_service_prod_shop_api"), "{}", taken.2);
    bench.gone(&shop);
    assert!(!tags(&bench.observe().expect("the load balancer stays")).contains(&tag));
}

/// Creates the load balancer of the former cloud controller manager for `shop/web`. The Service `shop/api` shares it.
fn of_go(bench: &mut Bench) {
    const API: &str = "kube_service_prod_shop_api";
    bench.settled(&public([tcp(80), tcp(443)]));
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "name": GO, "tags": [GO, API] }));
    for (n, name) in [GO, API].into_iter().enumerate() {
        bench.cloud.listeners[n]["tags"] = json!([name]);
        bench.cloud.listeners[n]["name"] = json!(format!("listener_0_{name}"));
        bench.cloud.pools[n]["tags"] = json!([]);
        bench.cloud.pools[n]["name"] = json!(format!("pool_0_{name}"));
    }
    let go = "Floating IP for Kubernetes external service shop/web from cluster prod";
    bench.cloud.floating_ips[0]["description"] = json!(go);
}

/// Both Services read the load balancer while it had no owner. The first Service becomes the owner, and the second one must read again.
#[test]
fn first_of_two_adoptions_wins() {
    let mut bench = Bench::new();
    of_go(&mut bench);
    let web = public([tcp(80), tcp(443)]);
    let mut twin = web.clone();
    twin.key = LoadBalancerKey { cluster_id: "c-2".to_owned(), owner_uid: "u-2".to_owned() };
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "tags": [GO] }));
    bench.cloud.listeners[1]["tags"] = json!([GO]);
    let both = [&web, &twin].map(|one| bench.plan(one).expect("the load balancer has no owner").remove(0));
    assert!(both.iter().all(|step| matches!(step, Step::AdoptLoadBalancer { .. })), "{both:?}");
    bench.execute(&both[0]);
    let before = bench.cloud.balancers.clone();
    assert_eq!(
        bench.try_execute(&both[1]).expect_err("the load balancer has another owner").fault,
        Fault::Busy
    );
    assert_eq!(bench.cloud.balancers, before);
}

/// If a Service is deleted before the takeover, it leaves the load balancer to the other Services, and the last of them deletes it.
#[test]
fn last_user_deletes_a_load_balancer_of_the_former_ccm() {
    let mut bench = Bench::new();
    of_go(&mut bench);
    let api = sharer("api", "lb-1", [tcp(443)]);
    bench.deleted();
    let (record, _) = bench.settled(&api);
    assert_eq!(addresses(&record), ["203.0.113.8"], "the load balancer stays");
    assert_eq!(
        bench.gone(&api),
        [
            "describe floating IP 203.0.113.8 as owned by this cluster",
            "delete load balancer lb-1 with all its parts",
            "delete floating IP 203.0.113.8",
        ]
    );
    assert!(bench.cloud.balancers.is_empty() && bench.cloud.floating_ips.is_empty());
}

/// A takeover was interrupted before the record of the address was written.
#[test]
fn half_taken_over_load_balancer_is_deleted_completely() {
    for shared in [false, true] {
        let mut bench = Bench::new();
        of_go(&mut bench);
        let api = sharer("api", "lb-1", [tcp(443)]);
        if shared {
            bench.settled(&api);
        } else {
            set(&mut bench.cloud.balancers, "lb-1", &json!({ "tags": [GO] }));
            bench.cloud.listeners.truncate(1);
            bench.cloud.pools.truncate(1);
        }
        let web = with(public([tcp(80)]), |spec| spec.load_balancer_id = "lb-1".to_owned());
        bench.run(&web, 1);
        bench.gone(&web);
        assert_eq!(bench.cloud.balancers.len(), usize::from(shared));
        bench.gone(&api);
        assert!(bench.cloud.balancers.is_empty() && bench.cloud.floating_ips.is_empty(), "{shared}");
    }
}

/// Each Service that shares a load balancer of the former cloud controller manager has a tag of that controller. The adapter writes this
/// tag for Services that come later.
#[tokio::test]
async fn consent_can_be_withdrawn_after_a_takeover() {
    use cloud_adapter::driver::{Driver as _, Heritage};

    let driver = crate::testing::FakeCloud::start().await.driver();
    let mut bench = Bench::new();
    of_go(&mut bench);
    bench.settled(&with(public([tcp(80)]), |spec| spec.load_balancer_id = "lb-1".to_owned()));
    let (old, new) = (sharer("api", "lb-1", [tcp(443)]), sharer("new", "lb-1", [tcp(8080)]));
    for (one, lets, port) in [(&old, true, 9443), (&new, false, 9444)] {
        let whole = |bench: &Bench| {
            bench.records().into_iter().find(|it| it.summary.vendor_id == "lb-1").expect("there")
        };
        let lent =
            |bench: &Bench| matches!(driver.heritage(&one.adopter())(&whole(bench)), Heritage::Shared(_));
        assert_eq!(lent(&bench), lets, "before");
        bench.settled(one);
        assert_eq!(lent(&bench), lets, "the tag was written when the Service began to share it");
        bench.run(&with(one.clone(), |spec| spec.listeners.push(tcp(port))), 9);
        assert_eq!(lent(&bench), lets, "the tag was written when the Service changed something");
    }
}

/// On a load balancer of the former cloud controller manager, a Service that shares it owns only its own listeners and pools.
#[test]
fn parts_of_other_users_are_not_its_own() {
    let mut bench = Bench::new();
    of_go(&mut bench);
    for (n, certificate) in ["of-web", "of-api"].into_iter().enumerate() {
        bench.cloud.listeners[n]["default_tls_container_ref"] = json!(certificate);
    }
    let record = bench.observe().expect("there");
    for (desired, own, other) in
        [(public([tcp(80)]), "of-web", "of-api"), (sharer("api", "lb-1", [tcp(443)]), "of-api", "of-web")]
    {
        let uses = crate::load_balancers::uses(&desired.adopter(), &record);
        assert!(uses.contains(own) && !uses.contains(other), "{own}: {uses:?}");
    }
}

/// A Service with the same name, in another cluster with the same name, uses the load balancer. Its listeners would be mistaken for
/// listeners of the new sharer.
#[test]
fn new_sharer_with_the_name_of_another_cluster_is_refused() {
    let mut bench = Bench::new();
    of_go(&mut bench);
    let api = DesiredLoadBalancer { inheritance: Inheritance::ByUid, ..sharer("api", "lb-1", [tcp(8080)]) };
    let (fault, field, text) = refused(&bench, &api);
    assert_eq!((fault, field.as_str()), (Fault::Invalid, "spec.load_balancer_id"));
    assert!(text.contains("grant former"), "{text}");
    let shop = DesiredLoadBalancer { inheritance: Inheritance::ByUid, ..sharer("shop", "lb-1", [tcp(8080)]) };
    bench.settled(&shop);
}
