//! Load balancers that nobody wants any more: with our finalizer, without it, and orphans.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason, v1alpha1::LoadBalancerState};
use controller_core::testing::{Fault, Verb, service};
use k8s_openapi::api::core::v1::Service;

use super::world::{World, name};
use crate::plan::{left_over::Orphans, service::FINALIZER};

pub(super) const DELETING: &str = "Normal DeletingLoadBalancer web: Deleting load balancer";
pub(super) const DELETED: &str = "Normal DeletedLoadBalancer web: Deleted load balancer";

#[tokio::test(start_paused = true)]
async fn a_deleted_service_goes_when_nothing_is_left() {
    let world = World::start().await;
    world.service(service("web").port(80).finalizer("example.com/other"));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.cloud.edit(|state| state.pending = 2);
    world.kube.delete::<Service>(&name("web"));
    world.eventually("ours is off", |world| world.finalizers("web") == ["example.com/other"]).await;
    assert!(world.ingress("web").is_empty());
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    world
        .eventually_events(&[
            "Normal DeletingLoadBalancer web: Deleting load balancer",
            "Normal DeletedLoadBalancer web: Deleted load balancer",
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_its_type_loses_its_load_balancer_even_if_nobody_watched() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let world = world.stop().await;
    world.change("web", |service| service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
    let world = world.restart().await;
    world.eventually("it is released", |world| world.finalizers("web").is_empty()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    assert!(world.ingress("web").is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_uninstalls_can_take_all_load_balancers_along_and_no_service() {
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
    assert_eq!(world.finalizers("theirs"), [FINALIZER], "it is another controller's");
}

/// As a Job's pod does when its node is drained: that Job is not done.
#[tokio::test(start_paused = true)]
async fn whoever_is_stopped_before_all_load_balancers_are_gone_says_so() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await.without_any();
    world.cloud.slow("DeleteLoadBalancer", Duration::from_secs(15));
    let world = world.started().await;
    world.eventually("it goes", |world| world.cloud.calls("DeleteLoadBalancer") > 0).await;
    world.end();
    assert_eq!(world.failed().await, "stopped before all load balancers were removed");
}

#[tokio::test(start_paused = true)]
async fn an_error_keeps_the_finalizer() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.cloud.fail_next("DeleteLoadBalancer", AdapterError::new(Reason::VendorAuth, "token expired"));
    world.kube.delete::<Service>(&name("web"));
    world
        .eventually("people hear of it", |world| world.events().iter().any(|it| it.contains("token expired")))
        .await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
    world.eventually("it goes in the end", |world| world.get("web").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_throttled_removal_is_repeated_after_its_delay() {
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
    world.eventually("it goes in the end", |world| world.get("web").is_none()).await;
    assert_eq!((begin.elapsed().as_secs(), world.cloud.calls("DeleteLoadBalancer")), (80, 3));
}

/// Somebody takes our finalizer off a Service that is being deleted, or all of them.
#[tokio::test(start_paused = true)]
async fn what_this_process_made_goes_with_its_service_though_the_finalizer_was_stripped() {
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
    world.eventually("it goes", |world| world.cloud.read(|state| state.load_balancers.is_empty())).await;
    assert!((40..50).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    let failed = "Warning DeleteLoadBalancerFailed web: Error deleting load balancer: 503; waits for the cloud adapter and the \
                  cloud behind it, tried again by itself";
    world.eventually_events(&[DELETING, failed, DELETED]).await;
    let deletes = world.cloud.read(|state| state.deletes.clone());
    assert!(deletes.iter().all(|it| it.key.as_ref().is_some_and(|key| key.owner_uid == "uid-web")));
    let calls = world.cloud.calls("DeleteLoadBalancer");
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), calls);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_its_type_without_our_finalizer_loses_its_load_balancer_even_if_nobody_watched()
 {
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
        world.eventually("it goes", |world| world.cloud.read(|state| state.load_balancers.is_empty())).await;
        world.eventually_events(&[DELETING, DELETED]).await;
        let patches = world.kube.writes().split_off(writes);
        assert!(patches.iter().all(|it| it.path.contains("events")), "{watched}: {patches:?}");
        world.stop().await;
    }
}

/// Nothing goes that the API server, asked live, says is wanted.
#[tokio::test(start_paused = true)]
async fn without_the_api_server_s_live_word_nothing_goes() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.kube.order(Fault::status(500).on(Verb::Get, "services").times(3));
    world.kube.put::<Service>(service("web").port(80).deleted());
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    world.eventually("it goes", |world| world.cloud.read(|state| state.load_balancers.is_empty())).await;
}

/// Many Services that vanish at once, with their finalizers, are more likely a restored backup than what somebody wants.
#[tokio::test(start_paused = true)]
async fn many_services_that_vanish_at_once_take_no_load_balancer_along() {
    for apart in [Duration::ZERO, Duration::from_millis(500)] {
        let world = World::start().await;
        for n in 0..10 {
            world.service(service(&format!("web-{n}")).port(80));
        }
        let all = |world: &World| (0..10).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
        world.eventually("all have an address", all).await;
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
        world.eventually("people hear of each", held).await;
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0, "{apart:?} apart");
        assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 10, "{apart:?} apart");
        let told = |event: &String| event.contains("OrphanHeld kube-system") && event.contains("6 of 10");
        assert!(world.events().iter().any(told), "{:?}", world.events());
        world.stop().await;
    }
}

/// What is just being built may be there already.
#[tokio::test(start_paused = true)]
async fn those_whose_first_ensure_is_under_way_count_among_many_that_vanish() {
    let world = World::start().await;
    for n in 0..6 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let all = |world: &World| (0..6).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
    world.eventually("all have an address", all).await;
    world.quiet().await;
    world.cloud.slow("EnsureLoadBalancer", Duration::from_secs(15));
    for n in 6..9 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let begun = |world: &World| {
        (6..9).all(|n| world.cloud.read(|it| it.under_way.contains_key(&format!("uid-web-{n}"))))
    };
    world.eventually("three are being built", begun).await;
    for n in 5..9 {
        world.kube.put::<Service>(service(&format!("web-{n}")).port(80).deleted());
    }
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 9);
}

/// A person does as the Event says.
#[tokio::test(start_paused = true)]
async fn many_that_vanished_are_few_once_a_person_has_removed_some() {
    let world = World::start().await;
    for n in 0..10 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let all = |world: &World| (0..10).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
    world.eventually("all have an address", all).await;
    world.quiet().await;
    for n in 0..6 {
        world.kube.put::<Service>(service(&format!("web-{n}")).port(80).deleted());
    }
    let held = |world: &World| world.events().iter().filter(|it| it.contains("OrphanHeld web-")).count() == 6;
    world.eventually("people hear of each", held).await;
    for n in 0..4 {
        world.cloud.edit(|state| drop(state.load_balancers.remove(&format!("lb-uid-web-{n}"))));
    }
    tokio::time::sleep(Duration::from_mins(6)).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 4, "the other two may go");
    let deletes = world.cloud.calls("DeleteLoadBalancer");
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), deletes, "nothing is left to do");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_nobody_wants_is_reported_and_kept() {
    let world = orphaned(World::new()).await;
    tokio::time::sleep(Duration::from_hours(30)).await;
    let told: Vec<_> = world.events().into_iter().filter(|it| it.contains("Orphan")).collect();
    assert_eq!(
        told,
        [
            "Warning OrphanedLoadBalancer web: No Service wants load balancer lb-uid-web any more; remove it by `cloudctl orphans --delete` if \
             nobody needs it, or start service-controller with --orphans=delete"
        ]
    );
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
}

pub(super) const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn an_orphan_goes_after_a_while_if_that_is_asked_for() {
    let world = orphaned(World::new().orphans(Orphans::DeleteAfter(HOUR))).await;
    tokio::time::sleep(HOUR - Duration::from_mins(2)).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0, "not yet");
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    world.eventually_events(&[DELETING, DELETED]).await;
}

/// The tag says another name, as one that was cut short does; the UID decides.
#[tokio::test(start_paused = true)]
async fn what_the_api_server_knows_under_another_name_is_no_orphan() {
    let world = World::new().orphans(Orphans::DeleteAfter(HOUR)).started().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await;
    world.cloud.edit(|state| {
        state.load_balancers.values_mut().for_each(|it| it.owner.as_mut().unwrap().name = "we".to_owned());
    });
    // It wants none any more, so that only the live list knows it.
    world.change("web", |service| {
        service.metadata.finalizers = None;
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    });
    let world = world.restart().await;
    tokio::time::sleep(2 * HOUR).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    assert!(world.events().iter().any(|it| it.contains("OrphanedLoadBalancer we")), "{:?}", world.events());
}

/// Credentials of another cluster, a restored backup: then all proofs are wrong together.
#[tokio::test(start_paused = true)]
async fn many_orphans_are_held_until_a_person_removes_some() {
    let world = World::new().orphans(Orphans::DeleteAfter(HOUR)).started().await;
    for n in 0..10 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let all = |world: &World| (0..10).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
    world.eventually("all have an address", all).await;
    let world = world.stop().await;
    for n in 0..4 {
        world.kube.put::<Service>(service(&format!("web-{n}")).port(80).deleted());
    }
    let world = world.restart().await;
    tokio::time::sleep(5 * HOUR).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    let held = world.events().into_iter().find(|it| it.starts_with("Warning OrphanHeld web-"));
    let held = held.expect("people hear of it");
    assert!(
        held.contains("4 of 10 load balancers have no Service any more, more than the 3 that may go"),
        "{held}"
    );

    for id in ["lb-uid-web-0", "lb-uid-web-1"] {
        world.cloud.edit(|state| drop(state.load_balancers.remove(id)));
    }
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 6, "two may go");
}

#[tokio::test(start_paused = true)]
async fn what_goes_already_is_no_orphan() {
    let world = orphaned(World::new().orphans(Orphans::DeleteAfter(HOUR))).await;
    world.cloud.edit(|state| {
        state.load_balancers.values_mut().for_each(|it| it.set_state(LoadBalancerState::Deleting));
    });
    tokio::time::sleep(2 * HOUR).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
}

/// A world in which `web` went without its load balancer while nobody watched.
pub(super) async fn orphaned(world: World) -> World {
    let world = world.started().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await;
    world.kube.put::<Service>(service("web").port(80).deleted());
    assert_eq!(world.get("web"), None);
    world.restart().await
}

/// The load balancer of the first one is not the second one's, though both are called the same.
#[tokio::test(start_paused = true)]
async fn a_service_made_anew_under_its_name_is_another_service() {
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
    world.eventually("the first one's is gone", |world| owners(world) == ["uid-again"]).await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
}
