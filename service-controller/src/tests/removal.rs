//! Load balancers that are no longer needed: with the finalizer, without it, and orphans.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason, v1alpha1::LoadBalancerState};
use controller_core::testing::{Fault, Verb, service};
use k8s_openapi::api::core::v1::Service;

use super::world::{World, name};
use crate::plan::{left_over::Orphans, service::FINALIZER};

pub(super) const DELETING: &str = "Normal DeletingLoadBalancer web: Deleting load balancer";
pub(super) const DELETED: &str = "Normal DeletedLoadBalancer web: Deleted load balancer";

// Behaviour: S14, S15
#[tokio::test(start_paused = true)]
async fn deleted_service_is_gone_when_nothing_is_left() {
    let world = World::start().await;
    world.service(service("web").port(80).finalizer("example.com/other"));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.cloud.edit(|state| state.pending = 2);
    world.kube.delete::<Service>(&name("web"));
    world
        .eventually("the finalizer is removed", |world| world.finalizers("web") == ["example.com/other"])
        .await;
    assert!(world.ingress("web").is_empty());
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    world
        .eventually_events(&[
            "Normal DeletingLoadBalancer web: Deleting load balancer",
            "Normal DeletedLoadBalancer web: Deleted load balancer",
        ])
        .await;
}

// Behaviour: S18, P31
#[tokio::test(start_paused = true)]
async fn unobserved_type_change_deletes_load_balancer() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let world = world.stop().await;
    world.change("web", |service| service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
    let world = world.restart().await;
    world.eventually("the finalizer is removed", |world| world.finalizers("web").is_empty()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    assert!(world.ingress("web").is_empty());
}

#[tokio::test(start_paused = true)]
async fn remove_all_deletes_load_balancers_and_keeps_services() {
    let world = World::start().await;
    world.service(service("web").port(80)).service(service("api").port(443));
    world.service(service("theirs").class("example.com/other").port(80).finalizer(FINALIZER));
    world.eventually_ingress_of("web").await;
    world.eventually_ingress_of("api").await;
    let world = world.stop().await.without_any();
    world.cloud.fail_next("DeleteLoadBalancer", AdapterError::new(Reason::VendorAuth, "token expired"));
    let world = world.started().await.ended().await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    for service in ["web", "api"] {
        let left = world.get(service).unwrap();
        assert_eq!(left.spec.unwrap().type_.as_deref(), Some("LoadBalancer"));
        assert!(world.finalizers(service).is_empty() && world.ingress(service).is_empty(), "{service}");
    }
    assert_eq!(world.finalizers("theirs"), [FINALIZER], "the finalizer belongs to another controller");
}

/// The pod of the Job that removes all load balancers is stopped because its node is drained. The Job must not count as complete.
#[tokio::test(start_paused = true)]
async fn stopped_remove_all_fails() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await.without_any();
    world.cloud.slow("DeleteLoadBalancer", Duration::from_secs(15));
    let world = world.started().await;
    world.eventually("the deletion is requested", |world| world.cloud.calls("DeleteLoadBalancer") > 0).await;
    world.end();
    assert_eq!(world.failed().await, "stopped before all load balancers were removed");
}

// Behaviour: S10
#[tokio::test(start_paused = true)]
async fn failed_deletion_keeps_finalizer() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.cloud.fail_next("DeleteLoadBalancer", AdapterError::new(Reason::VendorAuth, "token expired"));
    world.kube.delete::<Service>(&name("web"));
    world
        .eventually("an Event is emitted", |world| {
            world.events().iter().any(|it| it.contains("token expired"))
        })
        .await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
    world.eventually("the Service is gone in the end", |world| world.get("web").is_none()).await;
}

// Behaviour: S10, W17
#[tokio::test(start_paused = true)]
async fn throttled_deletion_is_retried_after_delay() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    for seconds in [30, 50] {
        let error =
            AdapterError::new(Reason::VendorThrottled, "429").retry_after(Duration::from_secs(seconds));
        world.cloud.fail_next("DeleteLoadBalancer", error);
    }
    let begin = tokio::time::Instant::now();
    world.kube.delete::<Service>(&name("web"));
    world.eventually("the Service is gone in the end", |world| world.get("web").is_none()).await;
    assert_eq!((begin.elapsed().as_secs(), world.cloud.calls("DeleteLoadBalancer")), (80, 3));
}

/// Another client removes this controller's finalizer, or all finalizers, from a Service that is being deleted.
// Behaviour: S17, W15
#[tokio::test(start_paused = true)]
async fn created_load_balancer_is_deleted_without_finalizer() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.cloud.edit(|state| state.pending = 2);
    let error = AdapterError::new(Reason::VendorUnavailable, "503").retry_after(Duration::from_secs(40));
    world.cloud.fail_next("DeleteLoadBalancer", error);
    let begin = tokio::time::Instant::now();
    world.kube.put::<Service>(service("web").port(80).deleted());
    assert_eq!(world.get("web"), None);
    world
        .eventually("the load balancer is deleted", |world| {
            world.cloud.read(|state| state.load_balancers.is_empty())
        })
        .await;
    assert!((40..50).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    let failed = "Warning DeleteLoadBalancerFailed web: Error deleting load balancer: 503; waiting for the cloud adapter and the \
                  cloud; retried automatically";
    world.eventually_events(&[DELETING, failed, DELETED]).await;
    let deletes = world.cloud.read(|state| state.deletes.clone());
    assert!(deletes.iter().all(|it| it.key.as_ref().is_some_and(|key| key.owner_uid == "uid-web")));
    let calls = world.cloud.calls("DeleteLoadBalancer");
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), calls);
}

// Behaviour: S17
#[tokio::test(start_paused = true)]
async fn unobserved_type_change_without_finalizer_deletes_load_balancer() {
    for watched in [true, false] {
        let mut world = World::start().await;
        world.service(service("web").port(80));
        world.eventually_ingress_of("web").await;
        world.quiet().await;
        if !watched {
            world = world.stop().await;
        }
        world.change("web", |service| {
            service.metadata.finalizers = None;
            service.spec.as_mut().unwrap().type_ = Some("NodePort".to_owned());
            service.status = None;
        });
        let writes = world.kube.writes().len();
        if !watched {
            world = world.restart().await;
        }
        world
            .eventually("the load balancer is deleted", |world| {
                world.cloud.read(|state| state.load_balancers.is_empty())
            })
            .await;
        world.eventually_events(&[DELETING, DELETED]).await;
        let patches = world.kube.writes().split_off(writes);
        assert!(patches.iter().all(|it| it.path.contains("events")), "{watched}: {patches:?}");
        world.stop().await;
    }
}

/// A load balancer is not deleted if its Service exists according to a live answer of the API server.
#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_without_live_answer() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.kube.order(Fault::status(500).on(Verb::Get, "services").times(3));
    world.kube.put::<Service>(service("web").port(80).deleted());
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    world
        .eventually("the load balancer is deleted", |world| {
            world.cloud.read(|state| state.load_balancers.is_empty())
        })
        .await;
}

/// If many Services disappear at once, together with their finalizers, the probable cause is a restored backup.
// Behaviour: S17
#[tokio::test(start_paused = true)]
async fn brake_holds_many_vanished_services() {
    for apart in [Duration::ZERO, Duration::from_millis(500)] {
        let world = World::start().await;
        for n in 0..10 {
            world.service(service(&format!("web-{n}")).port(80));
        }
        let all = |world: &World| (0..10).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
        world.eventually("all Services have an address", all).await;
        world.quiet().await;
        world.kube.away(apart.is_zero());
        for n in 0..6 {
            world.kube.put::<Service>(service(&format!("web-{n}")).port(80).deleted());
            tokio::time::sleep(apart).await;
        }
        world.kube.away(false);
        let held = |world: &World| {
            let events = world.events();
            (0..6).all(|n| events.iter().any(|it| it.starts_with(&format!("Warning OrphanHeld web-{n}"))))
        };
        world.eventually("an Event on each Service", held).await;
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0, "{apart:?} apart");
        assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 10, "{apart:?} apart");
        let reported = |event: &String| event.contains("OrphanHeld kube-system") && event.contains("6 of 10");
        assert!(world.events().iter().any(reported), "{:?}", world.events());
        world.stop().await;
    }
}

/// A load balancer that is being created may exist already.
#[tokio::test(start_paused = true)]
async fn brake_counts_load_balancers_under_creation() {
    let world = World::start().await;
    for n in 0..6 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let all = |world: &World| (0..6).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
    world.eventually("all Services have an address", all).await;
    world.quiet().await;
    world.cloud.slow("EnsureLoadBalancer", Duration::from_secs(15));
    for n in 6..9 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let begun = |world: &World| {
        (6..9).all(|n| world.cloud.read(|it| it.under_way.contains_key(&format!("uid-web-{n}"))))
    };
    world.eventually("three load balancers are being created", begun).await;
    for n in 5..9 {
        world.kube.put::<Service>(service(&format!("web-{n}")).port(80).deleted());
    }
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 9);
}

/// The operator does what the Event recommends.
// Behaviour: S17
#[tokio::test(start_paused = true)]
async fn brake_releases_after_manual_deletions() {
    let world = World::start().await;
    for n in 0..10 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let all = |world: &World| (0..10).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
    world.eventually("all Services have an address", all).await;
    world.quiet().await;
    for n in 0..6 {
        world.kube.put::<Service>(service(&format!("web-{n}")).port(80).deleted());
    }
    let held = |world: &World| world.events().iter().filter(|it| it.contains("OrphanHeld web-")).count() == 6;
    world.eventually("an Event on each Service", held).await;
    for n in 0..4 {
        world.cloud.edit(|state| drop(state.load_balancers.remove(&format!("lb-uid-web-{n}"))));
    }
    tokio::time::sleep(Duration::from_mins(6)).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 4, "the other two may be deleted");
    let deletes = world.cloud.calls("DeleteLoadBalancer");
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), deletes, "nothing is left to do");
}

// Behaviour: S22
#[tokio::test(start_paused = true)]
async fn orphan_is_reported_and_kept() {
    let world = orphaned(World::new()).await;
    tokio::time::sleep(Duration::from_hours(30)).await;
    let reported: Vec<_> = world.events().into_iter().filter(|it| it.contains("Orphan")).collect();
    assert_eq!(
        reported,
        ["Warning OrphanedLoadBalancer web: No Service uses load balancer lb-uid-web any more. \
            Delete it with `cloudctl orphans --delete`, or set \
            serviceController.orphans=delete (--orphans)"]
    );
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
}

pub(super) const HOUR: Duration = Duration::from_hours(1);

// Behaviour: S22, W15
#[tokio::test(start_paused = true)]
async fn orphan_is_deleted_after_minimum_age() {
    let world = orphaned(World::new().orphans(Orphans::DeleteAfter(HOUR))).await;
    tokio::time::sleep(HOUR - Duration::from_mins(2)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0, "not yet");
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    world.eventually_events(&[DELETING, DELETED]).await;
}

/// The tag contains another name, as if the name was truncated. The UID decides.
#[tokio::test(start_paused = true)]
async fn service_with_other_name_is_not_an_orphan() {
    let world = World::new().orphans(Orphans::DeleteAfter(HOUR)).started().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await;
    world.cloud.edit(|state| {
        state.load_balancers.values_mut().for_each(|it| it.owner.as_mut().unwrap().name = "we".to_owned());
    });
    // The Service no longer needs a load balancer, so only the live listing contains the Service.
    world.change("web", |service| {
        service.metadata.finalizers = None;
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    });
    let world = world.restart().await;
    tokio::time::sleep(2 * HOUR).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    assert!(world.events().iter().any(|it| it.contains("OrphanedLoadBalancer we")), "{:?}", world.events());
}

/// With credentials of another cluster, or after a restored backup, all proofs are wrong at the same time.
// Behaviour: S22
#[tokio::test(start_paused = true)]
async fn many_orphans_are_held_until_some_are_deleted() {
    let world = World::new().orphans(Orphans::DeleteAfter(HOUR)).started().await;
    for n in 0..10 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let all = |world: &World| (0..10).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
    world.eventually("all Services have an address", all).await;
    let world = world.stop().await;
    for n in 0..4 {
        world.kube.put::<Service>(service(&format!("web-{n}")).port(80).deleted());
    }
    let world = world.restart().await;
    tokio::time::sleep(5 * HOUR).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    let held = world.events().into_iter().find(|it| it.starts_with("Warning OrphanHeld web-"));
    let held = held.expect("an Event is emitted");
    assert!(
        held.contains("4 of 10 load balancers have no Service. The limit is 3 deletions at once"),
        "{held}"
    );

    for id in ["lb-uid-web-0", "lb-uid-web-1"] {
        world.cloud.edit(|state| drop(state.load_balancers.remove(id)));
    }
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 6, "two load balancers may be deleted");
}

#[tokio::test(start_paused = true)]
async fn load_balancer_being_deleted_is_not_an_orphan() {
    let world = orphaned(World::new().orphans(Orphans::DeleteAfter(HOUR))).await;
    world.cloud.edit(|state| {
        state.load_balancers.values_mut().for_each(|it| it.set_state(LoadBalancerState::Deleting));
    });
    tokio::time::sleep(2 * HOUR).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
}

/// A world in which `web` was deleted without its load balancer while no controller ran.
pub(super) async fn orphaned(world: World) -> World {
    let world = world.started().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await;
    world.kube.put::<Service>(service("web").port(80).deleted());
    assert_eq!(world.get("web"), None);
    world.restart().await
}

/// The load balancer of the first Service does not belong to the second one, although both Services have the same name.
// Behaviour: S7
#[tokio::test(start_paused = true)]
async fn recreated_service_is_another_service() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.change("web", |service| service.metadata.finalizers = None);
    world.kube.delete::<Service>(&name("web"));
    let mut again = service("web").port(80).build();
    again.metadata.uid = Some("uid-again".to_owned());
    world.kube.put::<Service>(again);
    world.eventually_ingress_of("web").await;
    let owners = |world: &World| {
        world.cloud.read(|state| {
            let keys = state.load_balancers.values().map(|it| it.key.clone().unwrap_or_default().owner_uid);
            keys.collect::<Vec<_>>()
        })
    };
    world
        .eventually("the load balancer of the first Service is deleted", |world| {
            owners(world) == ["uid-again"]
        })
        .await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
}
