//! Tests with an API server that is slow, throttles, fails, hangs or loses watch events; with objects that lack expected fields; and with
//! an adapter that is partly upgraded. No change is lost, no load balancer is deleted, and no server is called in a loop.

use std::time::Duration;

use cloud_api_proto::DOMAIN;
use controller_core::testing::{Fault, Verb, node, service};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::Instant;

use super::world::{World, name};
use crate::plan::service::FINALIZER;

const SECOND: Duration = Duration::from_secs(1);
const LONG_OUTAGE: Duration = Duration::from_mins(20);

fn with_service(name: &str) -> World {
    let world = World::new();
    world.node("n1").service(service(name).port(80));
    world
}

fn writes(world: &World) -> usize {
    world.kube.writes().iter().filter(|write| write.path.contains("/services/")).count()
}

// Behaviour: P32
#[tokio::test(start_paused = true)]
async fn repeated_conflicts_lose_no_foreign_write() {
    let world = with_service("web");
    for n in 0..20 {
        world.kube.before_next_write(move |kube| {
            kube.change::<Service>(&name("web"), |it| {
                let finalizers = it.metadata.finalizers.get_or_insert_default();
                finalizers.push(format!("example.com/{n}"));
            });
        });
    }
    let world = world.started().await;
    world.eventually_ingress_of("web").await;
    tokio::time::sleep(LONG_OUTAGE).await;
    // Two of the changes conflict with the controller's writes. All other changes happen later.
    let ours = world.finalizers("web").into_iter().filter(|it| !it.starts_with("example.com/")).count();
    assert_eq!((ours, world.cloud.calls("EnsureLoadBalancer")), (1, 1));
    assert_eq!(world.finalizers("web").len(), 1 + writes(&world), "the writes of other clients are kept");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_without_a_change_are_retried() {
    let world = with_service("web");
    world.kube.order(Fault::status(409).on(Verb::Patch, "services").times(6));
    let world = world.started().await;
    world.eventually_ingress_of("web").await;
    tokio::time::sleep(LONG_OUTAGE).await;
    assert_eq!(
        (writes(&world), world.cloud.calls("EnsureLoadBalancer")),
        (8, 1),
        "6 writes fail, then finalizer and status are written"
    );
    world.stop().await;
}

// Behaviour: S12
#[tokio::test(start_paused = true)]
async fn transient_api_server_failure_is_not_reported() {
    let world = with_service("web");
    let world = world.started().await;
    world.eventually_ingress_of("web").await;
    for _ in 0..4 {
        world.kube.order(Fault::status(500).on(Verb::Patch, "services").times(2));
        world.change("web", |service| service.status = None);
        tokio::time::sleep(LONG_OUTAGE).await;
        assert_eq!(world.ingress("web").len(), 1);
    }
    assert!(!world.events().iter().any(|it| it.contains("Failed")), "{:?}", world.events());
    world.stop().await;
}

/// A permission is missing. Single retries are only logged.
// Behaviour: S11
#[tokio::test(start_paused = true)]
async fn permanent_api_server_refusal_is_reported_once() {
    let world = World::new();
    world.node("n1").service(service("web").port(80).finalizer(FINALIZER));
    world.kube.order(Fault::status(403).on(Verb::Patch, "services").times(10));
    let world = world.started().await;
    tokio::time::sleep(3 * LONG_OUTAGE).await;
    let reported: Vec<String> = world.events().into_iter().filter(|it| it.contains("Failed")).collect();
    assert!(
        matches!(reported.as_slice(), [one] if one.contains("cannot write the status: ")),
        "{reported:?}"
    );
    assert_eq!(world.ingress("web").len(), 1, "the status is written in the end");
    world.stop().await;
}

/// A webhook refuses the write, or the server cannot write. Both errors last.
// Behaviour: S12
#[tokio::test(start_paused = true)]
async fn lasting_api_server_failure_is_reported() {
    for status in [409, 500, 503] {
        let world = World::new();
        world.node("n1").service(service("web").port(80).finalizer(FINALIZER));
        world.kube.order(Fault::status(status).on(Verb::Patch, "services/status"));
        let world = world.started().await;
        let reported = |world: &World| world.events().iter().filter(|it| it.contains("Failed")).count();
        tokio::time::sleep(4 * SECOND).await;
        assert_eq!(reported(&world), 0, "{status}: the first failure may be transient");
        tokio::time::sleep(3 * LONG_OUTAGE).await;
        let failed = "SyncLoadBalancerFailed web: Error syncing load balancer: cannot write the status: ";
        assert_eq!(world.events().iter().filter(|it| it.contains(failed)).count(), 1, "{status}");
        world.kube.heal();
        world.eventually_ingress_of("web").await;
        world.quiet().await;
        assert_eq!(reported(&world), 1, "{status}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn alternating_api_server_errors_are_one_condition() {
    let world = World::new();
    world.node("n1").service(service("web").port(80).finalizer(FINALIZER));
    for n in 0..400 {
        let status = if n % 2 == 0 { 500 } else { 503 };
        world.kube.order(Fault::status(status).on(Verb::Patch, "services/status").times(1));
    }
    let world = world.started().await;
    tokio::time::sleep(3 * LONG_OUTAGE).await;
    assert_eq!(world.events().iter().filter(|it| it.contains("Failed")).count(), 1, "{:?}", world.events());
    world.stop().await;
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn hanging_write_blocks_no_other_service() {
    let world = with_service("web");
    world.service(service("other").port(80));
    world.kube.order(Fault::hang().on(Verb::Patch, "services").of("web"));
    let world = world.started().await;
    tokio::time::timeout(10 * SECOND, world.eventually_ingress_of("other"))
        .await
        .expect("long before the write to web times out");
    tokio::time::sleep(LONG_OUTAGE).await;
    assert_eq!(world.ingress("web"), [""; 0]);
    world.kube.heal();
    world.eventually_ingress_of("web").await;
    world.stop().await;
}

/// The watch works, but one call is never answered.
// Behaviour: W5
#[tokio::test(start_paused = true)]
async fn hanging_ensure_blocks_no_other_service_and_is_retried() {
    let world = with_service("web");
    world.cloud.slow("EnsureLoadBalancer", Duration::from_hours(1));
    let world = world.started().await;
    let under_way =
        |world: &World| world.cloud.read(|state| state.under_way.values().any(|(now, _)| *now == 1));
    world.eventually("the call is in progress", under_way).await;
    let called = Instant::now();
    world.cloud.slow("EnsureLoadBalancer", Duration::ZERO);
    world.service(service("other").port(80));
    tokio::time::timeout(10 * SECOND, world.eventually_ingress_of("other"))
        .await
        .expect("long before the call times out");
    assert_eq!(world.ingress("web"), [""; 0]);
    world.eventually_ingress_of("web").await;
    assert!((30 * SECOND..45 * SECOND).contains(&called.elapsed()), "{:?}", called.elapsed());
    world.stop().await;
}

/// The connection is open, but no data arrives.
// Behaviour: P30
#[tokio::test(start_paused = true)]
async fn silent_adapter_is_reported_on_service() {
    let world = with_service("web").started().await;
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.cloud.hang(true);
    world.node("n2").service(service("late").port(80));
    world.service(service("gone").port(80).finalizer(FINALIZER).deleted());
    let begin = Instant::now();
    while begin.elapsed() < LONG_OUTAGE {
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(world.health.liveness(), Ok(()), "after {:?}", begin.elapsed());
    }
    for name in ["late", "gone"] {
        let failed = format!("Failed {name}: ");
        let reported = world.events().iter().filter(|it| it.contains(&failed)).count();
        assert_eq!(reported, 1, "{name}: {:?}", world.events());
    }
    assert_eq!((world.ingress("web").len(), world.ingress("late").len()), (1, 0));
    assert_eq!(world.finalizers("gone"), [FINALIZER]);
    for rpc in ["WatchLoadBalancers", "PutBackendSet", "EnsureLoadBalancer", "DeleteLoadBalancer"] {
        assert!(world.cloud.calls(rpc) < 200, "{rpc}: {} calls in 20 min", world.cloud.calls(rpc));
    }

    world.cloud.hang(false);
    world.eventually_ingress_of("late").await;
    world.eventually("the Service is gone", |world| world.get("gone").is_none()).await;
    world.eventually("both nodes are backends", |world| world.backends() == ["n1", "n2"]).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 2);
    world.stop().await;
}

// Behaviour: P30
#[tokio::test(start_paused = true)]
async fn hanging_deletion_keeps_service_and_blocks_no_other() {
    let world = with_service("web").started().await;
    world.eventually_ingress_of("web").await;
    world.cloud.slow("DeleteLoadBalancer", Duration::from_hours(1));
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(SECOND).await;
    world.service(service("other").port(80));
    tokio::time::timeout(10 * SECOND, world.eventually_ingress_of("other"))
        .await
        .expect("long before the call times out");
    tokio::time::sleep(LONG_OUTAGE).await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
    let failed = |it: &String| it.contains("SyncLoadBalancerFailed web: ");
    assert_eq!(world.events().iter().filter(|it| failed(it)).count(), 1, "{:?}", world.events());
    world.cloud.slow("DeleteLoadBalancer", Duration::ZERO);
    world.eventually("the Service is gone", |world| world.get("web").is_none()).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    world.stop().await;
}

/// Sets are uploaded one at a time. A caller that waited for a failed upload does not start another upload.
// Behaviour: P6
#[tokio::test(start_paused = true)]
async fn hanging_backend_upload_keeps_workers_healthy() {
    for (which, all) in
        [("Services that select the same nodes", true), ("Services that select different nodes", false)]
    {
        let world = World::new().workers(12);
        for n in 0..20 {
            let node = node(&format!("n{n}")).provider_id(&format!("sim://r1/{n}")).at("10.0.0.1");
            world.kube.put::<Node>(node.label("pet", &n.to_string()));
            let web = service(&format!("s{n}")).port(80);
            let key = format!("lb.{DOMAIN}/node-selector");
            world.service(if all { web } else { web.annotation(&key, &format!("pet={n}")) });
        }
        world.cloud.slow("PutBackendSet", Duration::from_hours(24));
        let world = world.started().await;
        let begin = Instant::now();
        while begin.elapsed() < LONG_OUTAGE {
            tokio::time::sleep(10 * SECOND).await;
            assert_eq!(world.health.liveness(), Ok(()), "{which}, after {:?}", begin.elapsed());
        }
        world.cloud.slow("PutBackendSet", Duration::ZERO);
        world.eventually_ingress_of("s19").await;
        world.stop().await;
    }
}

// Behaviour: P6, W21
#[tokio::test(start_paused = true)]
async fn stuck_workers_fail_the_health_check() {
    // Flags do not permit this value. It simulates that all workers are stuck.
    let world = World::new().workers(0).started().await;
    tokio::time::sleep(LONG_OUTAGE).await;
    assert_eq!(world.health.liveness(), Ok(()), "nothing to do");
    world.service(service("web").port(80));
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(world.health.liveness(), Ok(()), "maximum duration");
    tokio::time::sleep(Duration::from_mins(2)).await;
    let error = world.health.liveness().expect_err("no worker takes the key");
    assert!(error.starts_with("service: keys are due, and no worker has taken one for "), "{error}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_api_server_causes_no_duplicate_action() {
    for (seconds, name) in [(5, "slow"), (20, "too slow to wait for the answer")] {
        let world = with_service("web");
        world.kube.order(Fault::slow(seconds * SECOND));
        let world = world.started().await;
        world.eventually_ingress_of("web").await;
        tokio::time::sleep(LONG_OUTAGE).await;
        assert_eq!((writes(&world), world.cloud.calls("EnsureLoadBalancer")), (2, 1), "{name}");
        world.stop().await;
    }
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn failing_api_server_is_called_rarely_and_nothing_is_deleted() {
    for fault in [Fault::throttled(30 * SECOND), Fault::status(500)] {
        let world = with_service("web").started().await;
        world.eventually_ingress_of("web").await;
        let world = world.stop().await;
        world.kube.order(fault);
        let world = world.started().await;
        tokio::time::sleep(LONG_OUTAGE).await;
        for resource in ["services", "nodes"] {
            let lists = world.kube.requests(Verb::List, resource);
            assert!((10..150).contains(&lists), "{lists} listings of {resource} in 20 min");
        }
        assert_eq!((world.cloud.read(|state| state.load_balancers.len()), writes(&world)), (1, 2));
        world.kube.heal();
        world.service(service("more").port(80));
        world.eventually_ingress_of("more").await;
        assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_watch_per_resource() {
    let world = with_service("web").started().await;
    world.eventually_ingress_of("web").await;
    let watches = |resource| world.kube.requests(Verb::Watch, resource);
    assert_eq!((watches("services"), watches("nodes"), world.kube.unmarked_watches()), (1, 1, 0));
    world.stop().await;
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn hanging_watch_is_restarted() {
    for resource in ["services", "nodes"] {
        let world = with_service("web");
        world.kube.order(Fault::hang().on(Verb::Watch, resource).times(2));
        let world = world.started().await;
        world.eventually_ingress_of("web").await;
        tokio::time::sleep(LONG_OUTAGE).await;
        world.node("n2").service(service("late").port(80));
        world.eventually_ingress_of("late").await;
        world.eventually("both nodes are backends", |world| world.backends() == ["n1", "n2"]).await;
        assert!(world.kube.requests(Verb::Watch, resource) >= 3, "{resource}");
        world.stop().await;
    }
}

/// Before the listing is complete, no object counts as deleted, and the controller does nothing.
// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn hanging_listing_is_retried_without_any_action() {
    for resource in ["services", "nodes"] {
        let world = with_service("web").started().await;
        world.eventually_ingress_of("web").await;
        world.quiet().await;
        let world = world.stop().await;
        let before = (writes(&world), world.cloud.calls("EnsureLoadBalancer"), world.events().len());
        world.kube.order(Fault::hang().on(Verb::List, resource));
        world.service(service("late").port(80));
        let world = world.started().await;
        tokio::time::sleep(LONG_OUTAGE).await;
        let missing = world.health.readiness().expect_err(resource);
        assert!(missing.contains(&format!("{resource}: not listed yet")), "{missing}");
        assert_eq!(world.health.liveness(), Ok(()), "{resource}");
        let lists = world.kube.requests(Verb::List, resource);
        assert!((10..150).contains(&lists), "{lists} listings of {resource} in 20 min");
        let after = (writes(&world), world.cloud.calls("EnsureLoadBalancer"), world.events().len());
        assert_eq!((after, world.cloud.calls("DeleteLoadBalancer")), (before, 0), "{resource}");
        assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1, "{resource}");
        world.kube.heal();
        world.eventually_ingress_of("late").await;
        world.stop().await;
    }
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn changes_during_expired_watch_are_handled() {
    let world = with_service("web");
    world.service(service("gone").port(80));
    let world = world.started().await;
    world.eventually_ingress_of("web").await;
    world.eventually_ingress_of("gone").await;
    world.quiet().await;
    let before = world.cloud.calls("EnsureLoadBalancer");
    world.kube.compact();
    world.kube.delete::<Service>(&name("gone"));
    world.service(service("more").port(80));
    world.eventually_ingress_of("more").await;
    world
        .eventually("the finalizer of the deleted Service is removed", |world| world.get("gone").is_none())
        .await;
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before + 1, "web is unchanged");
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 2);
    world.stop().await;
}

// Behaviour: P33
#[tokio::test(start_paused = true)]
async fn objects_without_expected_fields_are_harmless() {
    let world = with_service("web");
    for (name, rest) in [
        ("nothing", serde_json::json!({ "metadata": {} })),
        ("empty", serde_json::json!({ "metadata": {}, "spec": {}, "status": {} })),
        ("unknown", serde_json::json!({ "metadata": {}, "spec": { "type": "Fancy" } })),
        ("portless", serde_json::json!({ "metadata": {}, "spec": { "type": "LoadBalancer" } })),
    ] {
        let mut service: Service = serde_json::from_value(rest).expect("a Service");
        service.metadata.name = Some(name.to_owned());
        service.metadata.namespace = Some("default".to_owned());
        world.kube.put::<Service>(service);
    }
    let mut bare = Node::default();
    bare.metadata.name = Some("bare".to_owned());
    world.kube.put::<Node>(bare);
    let world = world.started().await;
    world.eventually_ingress_of("web").await;
    tokio::time::sleep(LONG_OUTAGE).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    assert_eq!(world.backends(), ["n1"]);
    world.stop().await;
}

// Behaviour: P29
#[tokio::test(start_paused = true)]
async fn partly_upgraded_adapter_is_waited_for() {
    for rpc in ["WatchLoadBalancers", "PutBackendSet", "EnsureLoadBalancer"] {
        let world = with_service("web");
        world.cloud.without(rpc);
        let world = world.started().await;
        tokio::time::sleep(LONG_OUTAGE).await;
        assert_eq!(world.ingress("web"), [""; 0], "{rpc}");
        assert!(world.cloud.calls(rpc) < 400, "{rpc}: {} calls in 20 min", world.cloud.calls(rpc));
        world.cloud.with(rpc);
        world.eventually_ingress_of("web").await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn service_is_kept_until_adapter_can_delete() {
    let world = with_service("web").started().await;
    world.eventually_ingress_of("web").await;
    world.cloud.without("DeleteLoadBalancer");
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(LONG_OUTAGE).await;
    assert!(world.get("web").is_some_and(|it| it.metadata.finalizers.is_some()));
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    world.cloud.with("DeleteLoadBalancer");
    world.eventually("the Service is gone", |world| world.get("web").is_none()).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 0);
    world.stop().await;
}
