//! Tests with an adapter that is unreachable, refuses or throttles calls, serves another controller, or does not support load balancers.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use controller_core::testing::service;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::world::{World, capabilities, name};
use crate::plan::service::FINALIZER;

// Behaviour: S10
#[tokio::test(start_paused = true)]
async fn throttled_call_is_retried_after_delay_and_reported_once() {
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
async fn zero_delay_causes_no_hot_loop() {
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
async fn largest_delay_does_not_lose_the_service() {
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

/// A failover of the adapter, or a burst of calls, is over quickly.
#[tokio::test(start_paused = true)]
async fn short_general_refusal_is_not_reported() {
    let world = World::start().await;
    for reason in [Reason::NotLeader, Reason::Draining, Reason::QueueFull] {
        world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(reason, "not now"));
    }
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(!world.events().iter().any(|event| event.contains("Failed")), "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn lasting_general_refusal_is_reported_on_waiting_services() {
    let world = World::start().await;
    for _ in 0..30 {
        let error = AdapterError::new(Reason::QueueFull, "8192 calls wait");
        let error = error.retry_after(Duration::from_secs(1));
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let reported = world.events().iter().filter(|event| event.contains("8192 calls wait")).count();
    assert_eq!(reported, 1, "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn rejected_controller_reports_at_once() {
    let world = World::start().await;
    world.cloud.fail_next("PutBackendSet", AdapterError::new(Reason::CallerForbidden, "you may not"));
    world.service(service("web").port(80));
    world
        .eventually("an Event is emitted", |world| {
            world.events().iter().any(|event| event.contains("denies this controller access"))
        })
        .await;
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn service_reports_unreachable_adapter() {
    let cloud_is_away = World::new();
    cloud_is_away.cloud.away(true);
    let world = cloud_is_away.started().await;
    world.service(service("web").port(80));
    world.eventually("an Event names the cause", |world| !world.events().is_empty()).await;
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
async fn services_continue_as_soon_as_adapter_is_back() {
    let world = World::start().await;
    world.quiet().await;
    world.cloud.away(true);
    world.service(service("web").port(80));
    // This time is long enough for a backoff of several minutes.
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.events().iter().filter(|event| event.contains("SyncLoadBalancerFailed")).count(), 1);
    world.cloud.away(false);
    let back = tokio::time::Instant::now();
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(back.elapsed().as_secs() <= 15, "{:?}", back.elapsed());
}

// Behaviour: P12
#[tokio::test(start_paused = true)]
async fn no_load_balancer_is_recreated_in_another_project() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let asked = world.cloud.calls("EnsureLoadBalancer");
    let ours = world.cloud.edit(|state| std::mem::take(&mut state.load_balancers));
    world.cloud.moves_to("other");
    world
        .eventually("an Event names the cause", |world| {
            world
                .events()
                .iter()
                .any(|event| event.contains("web") && event.contains("now uses project other,"))
        })
        .await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked);
    world.cloud.edit(|state| state.load_balancers = ours);
    world.cloud.moves_to("fake");
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn process_with_stale_fence_exits() {
    let world = World::start().await;
    world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::StaleFence, "epoch 7 was here"));
    world.service(service("web").port(80));
    let world = world.ended().await;
    assert!(!world.events().iter().any(|event| event.contains("Failed")), "{:?}", world.events());
}

// Behaviour: S29
#[tokio::test(start_paused = true)]
async fn services_are_unmanaged_without_load_balancer_capability() {
    let world = World::new();
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["instances"]));
    let world = world.started().await;
    world.service(service("web").port(80)).service(service("bad").annotation("lb.cloudadapter.dev/x", "y"));
    // Another controller manages these Services. Its finalizer has the same name.
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

    // The controller notices a new version of the adapter that supports load balancers.
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers"]));
    world.eventually_ingress_of("web").await;
}

/// The adapter has another configuration, or another program is at the adapter's address.
// Behaviour: S29
#[tokio::test(start_paused = true)]
async fn created_load_balancer_waits_for_capable_adapter() {
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
    let reported = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: the cloud adapter does not support load balancers \
                (capability loadbalancers), but an earlier one created one for this Service; waiting for an adapter with this capability";
    assert_eq!(
        world.events().iter().filter(|it| it.starts_with(reported)).count(),
        1,
        "{:?}",
        world.events()
    );
    assert_eq!(
        (world.finalizers("web"), world.cloud.calls("DeleteLoadBalancer")),
        (vec![FINALIZER.to_owned()], 0)
    );

    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers"]));
    world.eventually("the Service is gone", |world| world.get("web").is_none()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
}

/// During a rolling update, the next replica answers before the adapter counts as unreachable.
#[tokio::test(start_paused = true)]
async fn replaced_adapter_is_asked_for_capabilities() {
    let world = World::start().await;
    world.quiet().await;
    let asked = world.cloud.calls("GetInfo");
    world.cloud.away(true);
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.cloud.away(false);
    world.eventually("the adapter is called", |world| world.cloud.calls("GetInfo") == asked + 1).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.calls("GetInfo"), asked + 1, "once");
}

/// The controller sends the listeners sorted, but users know the ports in the sequence in which they wrote them.
// Behaviour: SF3
#[tokio::test(start_paused = true)]
async fn refused_port_is_named_by_service_index() {
    let world = World::start().await;
    world
        .cloud
        .fail_next("EnsureLoadBalancer", AdapterError::field("spec.listeners[0].node_port", "is taken"));
    world.service(service("web").port(443).port(80));
    let reported = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: spec.ports[1].nodePort: is taken; retried every 5 \
                minutes, and as soon as the Service changes";
    world.eventually_events(&[reported]).await;
}

/// The load balancer that has the address is deleted. Until then, the Service that requests this address keeps its old address, or waits
/// without an address.
#[tokio::test(start_paused = true)]
async fn released_address_is_requested_at_once() {
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
        world.eventually("the address is requested", asked).await;
        assert!(begin.elapsed() < Duration::from_mins(1), "{had_another}: {:?}", begin.elapsed());
        world.stop().await;
    }
}

/// The adapter does not implement the load balancer service of the contract, so it always refuses the watch.
#[tokio::test(start_paused = true)]
async fn adapter_without_watch_is_asked_for_capabilities() {
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

/// Another client overwrites the status after each of the controller's writes.
// Behaviour: S19
#[tokio::test(start_paused = true)]
async fn contested_status_is_rewritten_ever_slower() {
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

/// Another client removes the finalizer after each of the controller's writes. The load balancer still follows the nodes.
// Behaviour: S16
#[tokio::test(start_paused = true)]
async fn contested_finalizer_is_rewritten_ever_slower() {
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

/// The watch reports that the controller set its finalizer. That must not cause another try.
#[tokio::test(start_paused = true)]
async fn failed_new_service_is_retried_after_backoff() {
    let world = World::start().await;
    world.quiet().await;
    for _ in 0..2 {
        world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::Internal, "a bug"));
    }
    world.service(service("web").port(80));
    world.eventually("the ensure is called", |world| world.cloud.calls("EnsureLoadBalancer") > 0).await;
    for (seconds, calls) in [(4, 1), (2, 2), (7, 2), (4, 3)] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(world.cloud.calls("EnsureLoadBalancer"), calls, "5 s, then 10 s");
    }
    assert_eq!(world.ingress("web").len(), 1);
}
