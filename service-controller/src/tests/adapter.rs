//! An adapter that is away, refuses, throttles, has another controller, or has no load balancers.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use controller_core::testing::service;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::world::{World, capabilities, name};
use crate::plan::service::FINALIZER;

#[tokio::test(start_paused = true)]
async fn a_throttled_call_is_repeated_after_its_delay_and_told_once() {
    let world = World::start().await;
    for seconds in [3, 5, 7] {
        let error = AdapterError::new(Reason::VendorThrottled, format!("429, wait {seconds} s"));
        let error = error.retry_after(Duration::from_secs(seconds));
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    let begin = tokio::time::Instant::now();
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(begin.elapsed().as_secs() >= 15, "{:?}", begin.elapsed());
    world.quiet().await;
    assert_eq!(world.events().iter().filter(|event| event.contains("SyncLoadBalancerFailed")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_zero_makes_no_hot_loop() {
    let world = World::start().await;
    world.cloud.edit(|state| {
        state.pending = 1_000;
        state.retry_after = Some(prost_types::Duration::default());
    });
    world.service(service("web").port(80));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let calls = world.cloud.calls("EnsureLoadBalancer");
    assert!((10..=31).contains(&calls), "{calls} calls in 30 s");
}

#[tokio::test(start_paused = true)]
async fn the_largest_delay_does_not_lose_the_service() {
    let world = World::start().await;
    world.cloud.edit(|state| {
        state.pending = 1;
        state.retry_after = Some(prost_types::Duration { seconds: i64::MAX, nanos: 0 });
    });
    let begin = tokio::time::Instant::now();
    world.service(service("web").port(80));
    tokio::time::sleep(Duration::from_mins(70)).await;
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(begin.elapsed() < Duration::from_mins(80), "{:?}", begin.elapsed());
}

/// A fail-over of the adapter, or a burst of calls, is over in a moment.
#[tokio::test(start_paused = true)]
async fn what_passes_for_all_services_in_a_moment_is_told_at_none() {
    let world = World::start().await;
    for reason in [Reason::NotLeader, Reason::Draining, Reason::QueueFull] {
        world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(reason, "not now"));
    }
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(!world.events().iter().any(|event| event.contains("Failed")), "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn what_lasts_is_told_at_the_services_that_wait() {
    let world = World::start().await;
    for _ in 0..30 {
        let error = AdapterError::new(Reason::QueueFull, "8192 calls wait");
        let error = error.retry_after(Duration::from_secs(1));
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let told = world.events().iter().filter(|event| event.contains("8192 calls wait")).count();
    assert_eq!(told, 1, "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_not_let_in_says_so_at_once() {
    let world = World::start().await;
    world.cloud.fail_next("PutBackendSet", AdapterError::new(Reason::CallerForbidden, "you may not"));
    world.service(service("web").port(80));
    world
        .eventually("people hear of it", |world| {
            world.events().iter().any(|event| event.contains("does not let this controller in"))
        })
        .await;
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn without_an_adapter_the_service_says_why_it_waits_and_nothing_is_lost() {
    let cloud_is_away = World::new();
    cloud_is_away.cloud.away(true);
    let world = cloud_is_away.started().await;
    world.service(service("web").port(80));
    world.eventually("people hear why", |world| !world.events().is_empty()).await;
    let event = world.events().remove(0);
    assert!(
        event.contains("SyncLoadBalancerFailed web: Error syncing load balancer: the cloud adapter is"),
        "{event}"
    );
    assert!(world.kube.writes().is_empty());
    world.cloud.away(false);
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_adapter_goes_on_as_soon_as_it_is_back() {
    let world = World::start().await;
    world.quiet().await;
    world.cloud.away(true);
    world.service(service("web").port(80));
    // Long enough for a backoff of minutes.
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.events().iter().filter(|event| event.contains("SyncLoadBalancerFailed")).count(), 1);
    world.cloud.away(false);
    let back = tokio::time::Instant::now();
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(back.elapsed().as_secs() <= 15, "{:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn in_another_project_no_load_balancer_is_made_anew() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let asked = world.cloud.calls("EnsureLoadBalancer");
    let ours = world.cloud.edit(|state| std::mem::take(&mut state.load_balancers));
    world.cloud.moves_to("other");
    world
        .eventually("people hear why", |world| {
            world.events().iter().any(|event| event.contains("web") && event.contains("now: project other;"))
        })
        .await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked);
    world.cloud.edit(|state| state.load_balancers = ours);
    world.cloud.moves_to("fake");
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_superseded_ends() {
    let world = World::start().await;
    world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::StaleFence, "epoch 7 was here"));
    world.service(service("web").port(80));
    let world = world.ended().await;
    assert!(!world.events().iter().any(|event| event.contains("Failed")), "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn an_adapter_without_load_balancers_leaves_services_to_others() {
    let world = World::new();
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["instances"]));
    let world = world.started().await;
    world.service(service("web").port(80)).service(service("bad").annotation("lb.cloudadapter.dev/x", "y"));
    // Their own controller is at work, under the finalizer that has one name for all.
    for name in ["goes", "changes"] {
        let theirs = service(name).port(80).finalizer(FINALIZER);
        world.service(theirs.annotation("loadbalancer.openstack.org/class", "dmz"));
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    world.kube.delete::<Service>(&name("goes"));
    world.change("changes", |service| service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((world.events(), world.kube.writes()), (Vec::new(), Vec::new()));
    assert_eq!((world.cloud.calls("EnsureLoadBalancer"), world.cloud.calls("DeleteLoadBalancer")), (0, 0));
    assert_eq!(
        (world.finalizers("goes"), world.finalizers("changes")),
        (vec![FINALIZER.to_owned()], vec![FINALIZER.to_owned()])
    );
    for name in ["goes", "changes"] {
        world.change(name, |service| service.metadata.finalizers = None);
    }

    // Another version that has some is noticed.
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers"]));
    world.eventually_ingress_of("web").await;
}

/// Configured otherwise, or another program under the same address.
#[tokio::test(start_paused = true)]
async fn what_we_made_waits_for_an_adapter_that_has_load_balancers_again() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.cloud.away(true);
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["instances"]));
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.cloud.away(false);
    world.quiet().await;
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(Duration::from_hours(1)).await;
    let told = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: the cloud adapter has no load balancers (no \
                capability loadbalancers), and the one of this Service was made by another; waits for an adapter that has them";
    assert_eq!(world.events().iter().filter(|it| it.starts_with(told)).count(), 1, "{:?}", world.events());
    assert_eq!(
        (world.finalizers("web"), world.cloud.calls("DeleteLoadBalancer")),
        (vec![FINALIZER.to_owned()], 0)
    );

    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers"]));
    world.eventually("it goes", |world| world.get("web").is_none()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
}

/// A rolling update: the next replica answers before anybody takes the adapter for gone.
#[tokio::test(start_paused = true)]
async fn an_adapter_that_is_replaced_in_a_moment_is_asked_what_it_can_do() {
    let world = World::start().await;
    world.quiet().await;
    let asked = world.cloud.calls("GetInfo");
    world.cloud.away(true);
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.cloud.away(false);
    world.eventually("it is asked", |world| world.cloud.calls("GetInfo") == asked + 1).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.calls("GetInfo"), asked + 1, "once");
}

/// Listeners are sent sorted; people know their ports in the order in which they wrote them.
#[tokio::test(start_paused = true)]
async fn a_refused_port_is_named_by_its_place_in_the_service() {
    let world = World::start().await;
    world
        .cloud
        .fail_next("EnsureLoadBalancer", AdapterError::field("spec.listeners[0].node_port", "is taken"));
    world.service(service("web").port(443).port(80));
    let told = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: spec.ports[1].nodePort: is taken; retried every 5 \
                minutes, and as soon as the Service changes";
    world.eventually_events(&[told]).await;
}

/// The one that has it goes; the Service that asks for it goes on with the address that it has until then, or waits.
#[tokio::test(start_paused = true)]
async fn an_address_that_was_taken_is_asked_for_as_soon_as_it_is_free() {
    for had_another in [false, true] {
        let world = World::new();
        world
            .cloud
            .edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.reserved-ip"]));
        let world = world.started().await;
        world.service(service("old").port(80));
        world.eventually_ingress("old", &["203.0.113.1"]).await;
        let taken = AdapterError::field("spec.requested_addresses[0]", "203.0.113.1 is taken");
        let asks = |spec: &mut ServiceSpec| spec.load_balancer_ip = Some("203.0.113.1".to_owned());
        if had_another {
            world.service(service("web").port(80));
            world.eventually_ingress_of("web").await;
            world.cloud.fail_next("EnsureLoadBalancer", taken);
            world.change("web", |it| asks(it.spec.as_mut().unwrap()));
        } else {
            world.cloud.fail_next("EnsureLoadBalancer", taken);
            world.service(service("web").port(80).with(asks));
        }
        let refused =
            |world: &World| world.events().iter().any(|it| it.contains("203.0.113.1 is taken; retried"));
        world.eventually("the address is refused", refused).await;
        let begin = tokio::time::Instant::now();
        world.change("old", |it| it.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
        let asked =
            |world: &World| !world.last_ensure().spec.unwrap_or_default().requested_addresses.is_empty();
        world.eventually("the address is asked for", asked).await;
        assert!(begin.elapsed() < Duration::from_mins(1), "{had_another}: {:?}", begin.elapsed());
        world.stop().await;
    }
}

/// A contract without the whole service: its watch is refused for ever.
#[tokio::test(start_paused = true)]
async fn an_adapter_that_does_not_know_the_watch_is_asked_whether_it_has_load_balancers() {
    let world = World::new();
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["instances"]));
    for _ in 0..100 {
        let unknown = AdapterError::from(tonic::Status::unimplemented("no such service"));
        world.cloud.fail_next("WatchLoadBalancers", unknown);
    }
    let world = world.started().await;
    world.service(service("web").port(80));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(world.events(), [""; 0]);
    assert!(world.cloud.calls("WatchLoadBalancers") <= 2);
}

/// Another client that knows no better writes the same status each time.
#[tokio::test(start_paused = true)]
async fn a_fight_over_a_status_is_fought_ever_slower() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let before = world.kube.writes().len();
    let begin = tokio::time::Instant::now();
    while begin.elapsed() < Duration::from_hours(1) {
        if !world.ingress("web").is_empty() {
            world.change("web", |service| service.status = None);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let written = world.kube.writes().len() - before;
    assert!((10..=25).contains(&written), "{written} writes in an hour");
    tokio::time::sleep(Duration::from_mins(6)).await;
    world.eventually_ingress_of("web").await;
}

/// Another client takes the finalizer off each time. What is there follows the nodes meanwhile.
#[tokio::test(start_paused = true)]
async fn a_fight_over_the_finalizer_is_fought_ever_slower_and_holds_no_node_up() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let (before, begin) = (world.kube.writes().len(), tokio::time::Instant::now());
    let mut joined = false;
    while begin.elapsed() < Duration::from_hours(1) {
        if !world.finalizers("web").is_empty() {
            world.change("web", |service| service.metadata.finalizers = None);
        }
        if !joined && begin.elapsed() > Duration::from_mins(50) {
            joined = true;
            world.node("b");
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(world.backends(), ["a", "b"]);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let written = world.kube.writes().len() - before;
    assert!((10..=25).contains(&written), "{written} writes in an hour");
    tokio::time::sleep(Duration::from_mins(6)).await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
}

/// The watch shows our own finalizer: that is no reason for another try.
#[tokio::test(start_paused = true)]
async fn a_new_service_that_fails_is_tried_again_after_the_backoff_and_not_at_once() {
    let world = World::start().await;
    world.quiet().await;
    for _ in 0..2 {
        world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::Internal, "a bug"));
    }
    world.service(service("web").port(80));
    world.eventually("it is tried", |world| world.cloud.calls("EnsureLoadBalancer") > 0).await;
    for (seconds, calls) in [(4, 1), (2, 2), (7, 2), (4, 3)] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(world.cloud.calls("EnsureLoadBalancer"), calls, "5 s, then 10 s");
    }
    assert_eq!(world.ingress("web").len(), 1);
}
