//! An API server that is slow, throttles, fails, hangs or forgets; objects without the fields that one expects; an adapter that is
//! half upgraded. Nothing is lost, no load balancer goes, and nobody is asked again and again.

use std::time::Duration;

use cloud_api_proto::DOMAIN;
use controller_core::testing::{Fault, Verb, node, service};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::Instant;

use super::world::{World, name};
use crate::plan::service::FINALIZER;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_mins(20);

/// A node, and this Service.
fn with_service(name: &str) -> World {
    let world = World::new();
    world.node("n1").service(service(name).port(80));
    world
}

/// Writes to Services so far.
fn writes(world: &World) -> usize {
    world.kube.writes().iter().filter(|write| write.path.contains("/services/")).count()
}

#[tokio::test(start_paused = true)]
async fn somebody_who_is_faster_in_each_attempt_loses_nothing_and_holds_nobody_up() {
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
    tokio::time::sleep(LONG).await;
    // Two writes meet two changes; the other changes have not happened yet.
    let ours = world.finalizers("web").into_iter().filter(|it| !it.starts_with("example.com/")).count();
    assert_eq!((ours, world.cloud.calls("EnsureLoadBalancer")), (1, 1));
    assert_eq!(world.finalizers("web").len(), 1 + writes(&world), "each of the other's is there");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_without_a_change_are_outlived() {
    let world = with_service("web");
    world.kube.order(Fault::status(409).on(Verb::Patch, "services").times(6));
    let world = world.started().await;
    world.eventually_ingress_of("web").await;
    tokio::time::sleep(LONG).await;
    assert_eq!(
        (writes(&world), world.cloud.calls("EnsureLoadBalancer")),
        (8, 1),
        "6 in vain, finalizer, status"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_api_server_that_passes_is_told_to_nobody() {
    let world = with_service("web");
    let world = world.started().await;
    world.eventually_ingress_of("web").await;
    for _ in 0..4 {
        world.kube.order(Fault::status(500).on(Verb::Patch, "services").times(2));
        world.change("web", |service| service.status = None);
        tokio::time::sleep(LONG).await;
        assert_eq!(world.ingress("web").len(), 1);
    }
    assert!(!world.events().iter().any(|it| it.contains("Failed")), "{:?}", world.events());
    world.stop().await;
}

/// A right that is missing: nobody sees a log line of each try.
#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_for_good_is_told_once() {
    let world = World::new();
    world.node("n1").service(service("web").port(80).finalizer(FINALIZER));
    world.kube.order(Fault::status(403).on(Verb::Patch, "services").times(10));
    let world = world.started().await;
    tokio::time::sleep(3 * LONG).await;
    let told: Vec<String> = world.events().into_iter().filter(|it| it.contains("Failed")).collect();
    assert!(
        matches!(told.as_slice(), [one] if one.contains("API server refused to write the status: ")),
        "{told:?}"
    );
    assert_eq!(world.ingress("web").len(), 1, "and in the end it is written");
    world.stop().await;
}

/// A webhook that refuses, or a server that cannot write: whatever it is, it does not pass.
#[tokio::test(start_paused = true)]
async fn what_the_api_server_does_not_do_is_told_when_it_lasts() {
    for status in [409, 500, 503] {
        let world = World::new();
        world.node("n1").service(service("web").port(80).finalizer(FINALIZER));
        world.kube.order(Fault::status(status).on(Verb::Patch, "services/status"));
        let world = world.started().await;
        let told = |world: &World| world.events().iter().filter(|it| it.contains("Failed")).count();
        tokio::time::sleep(4 * SECOND).await;
        assert_eq!(told(&world), 0, "{status}: the first may pass");
        tokio::time::sleep(3 * LONG).await;
        let failed = "SyncLoadBalancerFailed web: Error syncing load balancer: API server refused to write the status: ";
        assert_eq!(world.events().iter().filter(|it| it.contains(failed)).count(), 1, "{status}");
        world.kube.heal();
        world.eventually_ingress_of("web").await;
        world.quiet().await;
        assert_eq!(told(&world), 1, "{status}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_api_server_in_trouble_says_in_turn_is_one_trouble() {
    let world = World::new();
    world.node("n1").service(service("web").port(80).finalizer(FINALIZER));
    for n in 0..400 {
        let status = if n % 2 == 0 { 500 } else { 503 };
        world.kube.order(Fault::status(status).on(Verb::Patch, "services/status").times(1));
    }
    let world = world.started().await;
    tokio::time::sleep(3 * LONG).await;
    assert_eq!(world.events().iter().filter(|it| it.contains("Failed")).count(), 1, "{:?}", world.events());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_write_that_hangs_holds_no_other_service_up() {
    let world = with_service("web");
    world.service(service("other").port(80));
    world.kube.order(Fault::hang().on(Verb::Patch, "services").of("web"));
    let world = world.started().await;
    tokio::time::timeout(10 * SECOND, world.eventually_ingress_of("other"))
        .await
        .expect("long before the write to web is given up");
    tokio::time::sleep(LONG).await;
    assert_eq!(world.ingress("web"), [""; 0]);
    world.kube.heal();
    world.eventually_ingress_of("web").await;
    world.stop().await;
}

/// The watch is up, one call is never answered.
#[tokio::test(start_paused = true)]
async fn a_call_that_the_cloud_never_answers_holds_no_other_service_up_and_is_made_again() {
    let world = with_service("web");
    world.cloud.slow("EnsureLoadBalancer", Duration::from_hours(1));
    let world = world.started().await;
    let under_way =
        |world: &World| world.cloud.read(|state| state.under_way.values().any(|(now, _)| *now == 1));
    world.eventually("the call is under way", under_way).await;
    let called = Instant::now();
    world.cloud.slow("EnsureLoadBalancer", Duration::ZERO);
    world.service(service("other").port(80));
    tokio::time::timeout(10 * SECOND, world.eventually_ingress_of("other"))
        .await
        .expect("long before the call is given up");
    assert_eq!(world.ingress("web"), [""; 0]);
    world.eventually_ingress_of("web").await;
    assert!((30 * SECOND..45 * SECOND).contains(&called.elapsed()), "{:?}", called.elapsed());
    world.stop().await;
}

/// The connection stands, and no word comes over it.
#[tokio::test(start_paused = true)]
async fn an_adapter_that_says_nothing_is_waited_for_and_the_service_shows_why() {
    let world = with_service("web").started().await;
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.cloud.hang(true);
    world.node("n2").service(service("late").port(80));
    world.service(service("gone").port(80).finalizer(FINALIZER).deleted());
    let begin = Instant::now();
    while begin.elapsed() < LONG {
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(world.health.liveness(), Ok(()), "after {:?}", begin.elapsed());
    }
    for name in ["late", "gone"] {
        let failed = format!("Failed {name}: ");
        let told = world.events().iter().filter(|it| it.contains(&failed)).count();
        assert_eq!(told, 1, "{name}: {:?}", world.events());
    }
    assert_eq!((world.ingress("web").len(), world.ingress("late").len()), (1, 0));
    assert_eq!(world.finalizers("gone"), [FINALIZER]);
    for rpc in ["WatchLoadBalancers", "PutBackendSet", "EnsureLoadBalancer", "DeleteLoadBalancer"] {
        assert!(world.cloud.calls(rpc) < 200, "{rpc}: {} calls in 20 min", world.cloud.calls(rpc));
    }

    world.cloud.hang(false);
    world.eventually_ingress_of("late").await;
    world.eventually("it is released", |world| world.get("gone").is_none()).await;
    world.eventually("both nodes are behind it", |world| world.backends() == ["n1", "n2"]).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_the_cloud_never_answers_keeps_its_service_and_holds_no_other_up() {
    let world = with_service("web").started().await;
    world.eventually_ingress_of("web").await;
    world.cloud.slow("DeleteLoadBalancer", Duration::from_hours(1));
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(SECOND).await;
    world.service(service("other").port(80));
    tokio::time::timeout(10 * SECOND, world.eventually_ingress_of("other"))
        .await
        .expect("long before the call is given up");
    tokio::time::sleep(LONG).await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
    let failed = |it: &String| it.contains("SyncLoadBalancerFailed web: ");
    assert_eq!(world.events().iter().filter(|it| failed(it)).count(), 1, "{:?}", world.events());
    world.cloud.slow("DeleteLoadBalancer", Duration::ZERO);
    world.eventually("it is released", |world| world.get("web").is_none()).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    world.stop().await;
}

/// One set is on its way at a time: who waits for that in vain does not wait for another try.
#[tokio::test(start_paused = true)]
async fn nodes_that_the_adapter_never_takes_make_no_worker_unwell() {
    for (which, all) in [("the same nodes", true), ("each its own node", false)] {
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
        while begin.elapsed() < LONG {
            tokio::time::sleep(10 * SECOND).await;
            assert_eq!(world.health.liveness(), Ok(()), "{which}, after {:?}", begin.elapsed());
        }
        world.cloud.slow("PutBackendSet", Duration::ZERO);
        world.eventually_ingress_of("s19").await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn services_that_no_worker_takes_make_the_process_unwell() {
    // Flags do not allow it: it is how workers look that are all stuck.
    let world = World::new().workers(0).started().await;
    tokio::time::sleep(LONG).await;
    assert_eq!(world.health.liveness(), Ok(()), "nothing is there to do");
    world.service(service("web").port(80));
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(world.health.liveness(), Ok(()), "so long it may take");
    tokio::time::sleep(Duration::from_mins(2)).await;
    let error = world.health.liveness().expect_err("nobody takes it");
    assert!(error.starts_with("service: keys wait, and no worker has taken one for "), "{error}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_slow_makes_nothing_happen_twice() {
    for (seconds, name) in [(5, "slow"), (20, "so slow that the answer is not waited for")] {
        let world = with_service("web");
        world.kube.order(Fault::slow(seconds * SECOND));
        let world = world.started().await;
        world.eventually_ingress_of("web").await;
        tokio::time::sleep(LONG).await;
        assert_eq!((writes(&world), world.cloud.calls("EnsureLoadBalancer")), (2, 1), "{name}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_throttles_or_fails_is_asked_seldom_and_nothing_goes() {
    for fault in [Fault::throttled(30 * SECOND), Fault::status(500)] {
        let world = with_service("web").started().await;
        world.eventually_ingress_of("web").await;
        let world = world.stop().await;
        world.kube.order(fault);
        let world = world.started().await;
        tokio::time::sleep(LONG).await;
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
async fn one_watch_of_each_resource_is_enough() {
    let world = with_service("web").started().await;
    world.eventually_ingress_of("web").await;
    let watches = |resource| world.kube.requests(Verb::Watch, resource);
    assert_eq!((watches("services"), watches("nodes"), world.kube.unmarked_watches()), (1, 1, 0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_hangs_is_begun_anew() {
    for resource in ["services", "nodes"] {
        let world = with_service("web");
        world.kube.order(Fault::hang().on(Verb::Watch, resource).times(2));
        let world = world.started().await;
        world.eventually_ingress_of("web").await;
        tokio::time::sleep(LONG).await;
        world.node("n2").service(service("late").port(80));
        world.eventually_ingress_of("late").await;
        world.eventually("both nodes are behind it", |world| world.backends() == ["n1", "n2"]).await;
        assert!(world.kube.requests(Verb::Watch, resource) >= 3, "{resource}");
        world.stop().await;
    }
}

/// What is not listed is not known: nothing is gone, and nothing is done on half of it.
#[tokio::test(start_paused = true)]
async fn a_listing_that_never_comes_is_asked_for_again_and_nothing_happens_meanwhile() {
    for resource in ["services", "nodes"] {
        let world = with_service("web").started().await;
        world.eventually_ingress_of("web").await;
        world.quiet().await;
        let world = world.stop().await;
        let before = (writes(&world), world.cloud.calls("EnsureLoadBalancer"), world.events().len());
        world.kube.order(Fault::hang().on(Verb::List, resource));
        world.service(service("late").port(80));
        let world = world.started().await;
        tokio::time::sleep(LONG).await;
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

#[tokio::test(start_paused = true)]
async fn what_happens_behind_a_watch_that_is_too_old_is_done() {
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
    world.eventually("the deleted one is released", |world| world.get("gone").is_none()).await;
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before + 1, "web is as it was");
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_without_the_fields_that_one_expects_harm_nobody() {
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
    tokio::time::sleep(LONG).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    assert_eq!(world.backends(), ["n1"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_adapter_that_is_half_upgraded_is_waited_for() {
    for rpc in ["WatchLoadBalancers", "PutBackendSet", "EnsureLoadBalancer"] {
        let world = with_service("web");
        world.cloud.without(rpc);
        let world = world.started().await;
        tokio::time::sleep(LONG).await;
        assert_eq!(world.ingress("web"), [""; 0], "{rpc}");
        assert!(world.cloud.calls(rpc) < 400, "{rpc}: {} calls in 20 min", world.cloud.calls(rpc));
        world.cloud.with(rpc);
        world.eventually_ingress_of("web").await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_stays_until_the_adapter_can_remove_its_load_balancer() {
    let world = with_service("web").started().await;
    world.eventually_ingress_of("web").await;
    world.cloud.without("DeleteLoadBalancer");
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(LONG).await;
    assert!(world.get("web").is_some_and(|it| it.metadata.finalizers.is_some()));
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    world.cloud.with("DeleteLoadBalancer");
    world.eventually("it is released", |world| world.get("web").is_none()).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 0);
    world.stop().await;
}
