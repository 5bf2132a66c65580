//! Annotations of other controllers.

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Adoption};
use controller_core::testing::service;

use super::world::{World, capabilities};
use crate::plan::compat::Compat;

const NOTED: &str = "loadbalancer.openstack.org/load-balancer-id";

// Behaviour: SF12
#[tokio::test(start_paused = true)]
async fn openstack_annotations_are_translated_and_reported_once() {
    let world = World::new().compat(Compat::Openstack);
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.shared"]));
    let world = world.started().await;
    world.node("a");
    let old = |key: &str| format!("loadbalancer.openstack.org/{key}");
    world.service(
        service("web")
            .port(80)
            .annotation(&old("load-balancer-id"), "lb-7")
            .annotation(&old("node-selector"), "zone=a"),
    );
    let reported = "Normal CompatibleAnnotations web: Deprecated annotations are in effect; replace or remove them: \
                loadbalancer.openstack.org/load-balancer-id (new: lb.cloudadapter.dev/id: lb-7 and lb.cloudadapter.dev/adopt: shared) and 1 more";
    world.eventually_events(&[reported]).await;
    world.eventually_ingress_of("web").await;
    let ensure = world.last_ensure();
    assert_eq!(
        (ensure.adoption(), ensure.spec.unwrap_or_default().load_balancer_id.as_str()),
        (Adoption::Never, "lb-7"),
        "sharing is allowed: the adapter knows the owner"
    );
    assert_eq!(world.backends(), [""; 0], "no node has the label");
    let world = world.restart().await;
    world.quiet().await;

    world.change("web", |service| {
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert("loadbalancer.openstack.org/class".to_owned(), "dmz".to_owned());
    });
    let refused = |world: &World| {
        world
            .events()
            .iter()
            .any(|event| event.starts_with("Warning SyncLoadBalancerFailed web: ") && event.contains("class"))
    };
    world.eventually("settings that are not supported are refused", refused).await;
    world.quiet().await;
    let n_events = world.events().iter().filter(|event| event.contains("CompatibleAnnotations")).count();
    assert_eq!(n_events, 1, "{:?}", world.events());
    world.stop().await;
}

/// The former cloud controller manager records the ID of its load balancer on every Service and never removes the ID.
// Behaviour: SF12
#[tokio::test(start_paused = true)]
async fn adopted_load_balancer_is_recreated_when_gone() {
    let world = World::new().compat(Compat::Openstack);
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.shared"]));
    let world = world.started().await;
    world.node("a").service(service("web").port(80).annotation(NOTED, "lb-7"));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let asked = |world: &World| world.last_ensure().spec.unwrap_or_default().load_balancer_id;
    assert_eq!(asked(&world), "lb-7");

    let gone = AdapterError::new(Reason::ResourceGone, "load balancer lb-7 does not exist");
    world.cloud.fail_next("EnsureLoadBalancer", gone);
    world.cloud.edit(|state| state.load_balancers.clear());
    let ids = |world: &World| world.cloud.read(|state| Vec::from_iter(state.load_balancers.keys().cloned()));
    world.eventually("another load balancer is created", |world| ids(world).len() == 1).await;
    world.quiet().await;
    assert_eq!((asked(&world).as_str(), world.last_ensure().adoption()), ("", Adoption::IfUnowned));
    assert_ne!(ids(&world), ["lb-7"]);
    let reported = |world: &World| world.events().iter().filter(|it| it.contains("is obsolete")).count();
    let failed = |world: &World| world.events().iter().any(|it| it.contains("SyncLoadBalancerFailed"));
    assert!(reported(&world) == 1 && !failed(&world), "{:?}", world.events());

    // After a restart the cache shows the existing load balancer. The adapter would refuse the ID of another load balancer.
    let (made, asks) = (ids(&world), world.cloud.calls("EnsureLoadBalancer"));
    let world = world.restart().await;
    world.quiet().await;
    assert_eq!((ids(&world), asked(&world)), (made, String::new()));
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asks + 1, "a single comparison");
    assert_eq!(reported(&world), 1, "{:?}", world.events());
    world.stop().await;
}

// Behaviour: SF12
#[tokio::test(start_paused = true)]
async fn openstack_load_balancer_is_adopted_without_annotation() {
    let world = World::new().compat(Compat::Openstack).started().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    assert_eq!(world.last_ensure().adoption(), Adoption::IfUnowned);
    assert!(!world.events().iter().any(|event| event.contains("Annotations")), "{:?}", world.events());
    world.stop().await;
}

// Behaviour: S21
#[tokio::test(start_paused = true)]
async fn ignored_openstack_annotations_are_reported_without_compat() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80).annotation("loadbalancer.openstack.org/class", "dmz"));
    world.eventually_ingress_of("web").await;
    assert_eq!(world.last_ensure().adoption(), Adoption::Never);
    let reported = "Warning IgnoredAnnotations web: These annotations have no effect: loadbalancer.openstack.org/class; set \
                serviceController.compat=openstack (--compat), or use the lb.cloudadapter.dev annotations";
    world.eventually_events(&[reported]).await;
    let n_events =
        |world: &World| world.events().iter().filter(|it| it.contains("IgnoredAnnotations")).count();
    let world = world.restart().await;
    world.quiet().await;
    assert_eq!(n_events(&world), 1, "an earlier process reported it: {:?}", world.events());

    world.change("web", |service| {
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert("loadbalancer.openstack.org/keep-floatingip".to_owned(), "true".to_owned());
    });
    world.eventually("one more annotation is reported", |world| n_events(world) == 2).await;
    world.stop().await;
}
