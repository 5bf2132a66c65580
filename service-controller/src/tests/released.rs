//! Orphans that a user releases by name.

use std::{collections::BTreeMap, time::Duration};

use cloud_api_proto::AdapterError;
use controller_core::{
    explain::report::Orphan,
    mirror::ObjectName,
    testing::{Fault, Verb, service},
};
use k8s_openapi::api::core::v1::{ConfigMap, Service};

use super::{
    removal::{DELETED, DELETING, HOUR, orphaned},
    shards::{LASTS, replica},
    world::World,
};
use crate::{mirror::released::RELEASES, plan::left_over::Orphans};

const RELEASED: &str = "Normal OrphanReleased web: Deleting load balancer lb-uid-web: no Service uses it, and ConfigMap cloud-controllers-orphans permits its deletion";

impl World {
    /// Writes these entries into the ConfigMap, and removes all others.
    fn release(&self, entries: &[(&str, &str)]) {
        let entries = entries.iter().map(|(uid, name)| ((*uid).to_owned(), (*name).to_owned()));
        let mut map = ConfigMap { data: Some(entries.collect::<BTreeMap<_, _>>()), ..ConfigMap::default() };
        map.metadata.name = Some(RELEASES.to_owned());
        map.metadata.namespace = Some("default".to_owned());
        self.kube.put::<ConfigMap>(map);
    }

    fn orphans_shown(&self) -> Vec<Orphan> {
        self.explain.status().expect("the controller runs").orphans
    }

    fn n_balancers(&self) -> usize {
        self.cloud.read(|state| state.load_balancers.len())
    }

    async fn wait_for_event(&self, reason: &str) {
        self.eventually(reason, |world| world.events().iter().any(|it| it.contains(reason))).await;
    }
}

// Behaviour: S23
#[tokio::test(start_paused = true)]
async fn released_orphan_is_deleted_at_once() {
    let world = orphaned(World::new()).await;
    world.quiet().await;
    let [doubted] = &world.orphans_shown()[..] else { panic!("{:?}", world.orphans_shown()) };
    let waits_for = doubted.waits_for.as_deref();
    assert_eq!((doubted.since, waits_for), (None, Some("not confirmed yet: its Service may still appear")));
    world.wait_for_event("OrphanedLoadBalancer").await;
    tokio::time::sleep(HOUR).await;
    let [shown] = &world.orphans_shown()[..] else { panic!("{:?}", world.orphans_shown()) };
    assert_eq!((shown.uid.as_str(), shown.key.as_str()), ("uid-web", "default/web"));
    assert_eq!((&shown.vendor_ids[..], shown.released), (&["lb-uid-web".to_owned()][..], false));
    let waits_for = shown.waits_for.as_deref().expect("the orphan waits for a user");
    let reported = format!("Warning OrphanedLoadBalancer web: {waits_for}");
    assert!(world.events().contains(&reported), "{reported} is not among {:?}", world.events());
    assert!(shown.since.is_some());

    let throttled = AdapterError::new(cloud_api_proto::Reason::VendorThrottled, "429");
    world.cloud.fail_next("DeleteLoadBalancer", throttled.retry_after(Duration::from_secs(30)));
    let begin = tokio::time::Instant::now();
    world.release(&[("uid-web", "default/web")]);
    world.eventually("the deletion is requested", |world| world.cloud.calls("DeleteLoadBalancer") == 1).await;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let [shown] = &world.orphans_shown()[..] else { panic!("{:?}", world.orphans_shown()) };
    assert!(shown.released && shown.waits_for.as_deref().is_some_and(|it| it.contains("429")), "{shown:?}");
    world.eventually("the load balancer is deleted", |world| world.n_balancers() == 0).await;
    world.eventually_events(&[RELEASED, DELETING, DELETED]).await;
    world.quiet().await;
    assert_eq!(world.orphans_shown(), []);
    let deletes = world.cloud.calls("DeleteLoadBalancer");
    let world = world.restart().await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), deletes, "nothing is left to do");
}

/// After a restart, the controller does not know how long the orphan has existed. A caller that waits for the deletion must not conclude
/// that the orphan is gone.
// Behaviour: S23
#[tokio::test(start_paused = true)]
async fn released_orphan_is_listed_until_it_is_gone() {
    let world = World::new();
    world.release(&[("uid-web", "default/web")]);
    let world = orphaned(world).await;
    world.eventually("the orphan is shown", |world| world.orphans_shown().len() == 1).await;
    let begin = tokio::time::Instant::now();
    while world.n_balancers() > 0 {
        let shown = world.orphans_shown();
        assert!(matches!(&shown[..], [one] if one.released), "{:?} after {:?}", shown, begin.elapsed());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(
        begin.elapsed() > Duration::from_secs(30),
        "the orphan may be a lag of the cache: {:?}",
        begin.elapsed()
    );
    world.quiet().await;
    assert_eq!(world.orphans_shown(), []);
}

// Behaviour: S23
#[tokio::test(start_paused = true)]
async fn release_ignores_minimum_age_and_brake() {
    let world = World::new().orphans(Orphans::DeleteAfter(10 * HOUR)).started().await;
    let web = |n: usize| format!("web-{n}");
    for n in 0..10 {
        world.service(service(&web(n)).port(80));
    }
    let all = |world: &World| (0..10).all(|n| !world.ingress(&web(n)).is_empty());
    world.eventually("all Services have an address", all).await;
    world.quiet().await;
    (0..6).for_each(|n| world.kube.put::<Service>(service(&web(n)).port(80).deleted()));
    let held = |world: &World| world.events().iter().filter(|it| it.contains("OrphanHeld web-")).count() == 6;
    world.eventually("an Event on each Service", held).await;
    assert_eq!(world.orphans_shown().len(), 6);
    let given =
        [("uid-web-1", "default/web-1"), ("uid-web-4", "default/web-4"), ("uid-web-5", "default/web-6")];
    world.release(&given);
    world.eventually("both load balancers are deleted", |world| world.n_balancers() == 8).await;
    world.wait_for_event("ReleaseRefused web-5").await;
    tokio::time::sleep(Duration::from_mins(20)).await;
    let left: Vec<_> = world.orphans_shown().into_iter().map(|it| (it.uid, it.released)).collect();
    let still = ["uid-web-0", "uid-web-2", "uid-web-3", "uid-web-5"].map(|it| (it.to_owned(), false));
    assert_eq!((left, world.n_balancers()), (still.to_vec(), 8));
    let times = |reason: &str| {
        let events = world.kube.event_objects().into_iter();
        let of = events.filter(|it| it.reason.as_deref() == Some(reason));
        let of = of.filter(|it| it.involved_object.name.as_deref() == Some("web-5"));
        of.map(|it| it.count.unwrap_or(1)).sum::<i32>()
    };
    assert_eq!((times("ReleaseRefused"), times("OrphanHeld")), (1, 2), "6 of 10 are held, then 4 of 8");
}

/// A released load balancer is kept if it serves a Service, or if its tags contain the UID of a Service with another name.
// Behaviour: S23
#[tokio::test(start_paused = true)]
async fn released_load_balancer_with_service_is_kept() {
    let world = World::start().await;
    world.service(service("web").port(80)).service(service("none").port(80));
    world.eventually_ingress_of("web").await;
    world.eventually_ingress_of("none").await;
    let world = world.stop().await;
    world.cloud.edit(|state| {
        let cut = state.load_balancers.get_mut("lb-uid-none").unwrap();
        cut.owner.as_mut().unwrap().name = "no".to_owned();
    });
    world.change("none", |service| {
        service.metadata.finalizers = None;
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    });
    world.release(&[("uid-web", "default/web"), ("uid-none", "default/no")]);
    let world = world.restart().await;
    world
        .wait_for_event(
            "OrphanHeld no: The load balancer is not deleted: the UID in its owner tags belongs to a Service",
        )
        .await;
    tokio::time::sleep(HOUR).await;
    assert_eq!((world.cloud.calls("DeleteLoadBalancer"), world.n_balancers()), (0, 2));
    assert_eq!(world.ingress("web").len(), 1);
    let times = world.events().iter().filter(|it| it.contains("OrphanHeld no")).count();
    assert_eq!(times, 1, "{:?}", world.events());
}

// Behaviour: S23
#[tokio::test(start_paused = true)]
async fn release_with_wrong_name_is_refused_and_reported_once() {
    let world = orphaned(World::new()).await;
    world.release(&[("uid-web", "default/api"), ("uid-other", "default/web")]);
    let refused = "Warning ReleaseRefused web: The load balancer of default/web is kept, because key uid-web of ConfigMap cloud-controllers-orphans \
                   names \"default/api\". Correct the value or \
                   remove the key";
    world.eventually_events(&[refused]).await;
    for _ in 0..3 {
        world.release(&[("uid-web", "default/api")]);
        world.release(&[]);
        tokio::time::sleep(HOUR).await;
    }
    world.release(&[("uid-web", "default/api")]);
    world.quiet().await;
    assert_eq!((world.cloud.calls("DeleteLoadBalancer"), world.n_balancers()), (0, 1));
    let events = world.kube.event_objects().into_iter();
    let reported = events.filter(|it| it.reason.as_deref() == Some("ReleaseRefused"));
    assert!(
        reported.map(|it| it.count.unwrap_or(1)).sum::<i32>() <= 4,
        "once each time that the key is added: {:?}",
        world.events()
    );
    let [shown] = &world.orphans_shown()[..] else { panic!("{:?}", world.orphans_shown()) };
    assert!(!shown.released && refused.ends_with(shown.waits_for.as_deref().unwrap()), "{shown:?}");
    world.release(&[("uid-web", "default/web")]);
    world.eventually("the load balancer is deleted", |world| world.n_balancers() == 0).await;
}

// Behaviour: S23
#[tokio::test(start_paused = true)]
async fn release_is_handled_by_replica_with_shard() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await;
    world.kube.put::<Service>(service("web").port(80).deleted());
    world.release(&[("uid-web", "default/web")]);
    let (fake_shards, _running) = replica(&world.kube, &world.cloud, []);
    let shard = fake_shards.shards().of("uid-web");
    (0..4).filter(|it| *it != shard).for_each(|it| fake_shards.give(it, LASTS));
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    fake_shards.give(shard, LASTS);
    world.eventually("the load balancer is deleted", |world| world.n_balancers() == 0).await;
    let fence = world.cloud.read(|state| state.deletes.last().and_then(|it| it.fence.clone()));
    assert_eq!(fence.map(|it| it.scope), Some(format!("service-controller/{shard}")));
}

// Behaviour: S23
#[tokio::test(start_paused = true)]
async fn missing_permission_for_releases_is_harmless() {
    let world = World::new();
    world.kube.order(Fault::status(403).on(Verb::List, "configmaps"));
    let world = orphaned(world).await;
    world.release(&[("uid-web", "default/web")]);
    world.wait_for_event("OrphanedLoadBalancer").await;
    world.service(service("api").port(80));
    world.eventually_ingress_of("api").await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.n_balancers(), 2);
    world.kube.heal();
    world.eventually("the load balancer is deleted", |world| world.n_balancers() == 1).await;
    world.kube.delete::<ConfigMap>(&ObjectName::namespaced("default", RELEASES));
    world.quiet().await;
    assert_eq!(world.n_balancers(), 1);
}
