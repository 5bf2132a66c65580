//! Annotations of controllers that people come from.

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Adoption};
use controller_core::testing::service;

use super::world::{World, capabilities};
use crate::plan::compat::Compat;

const NOTED: &str = "loadbalancer.openstack.org/load-balancer-id";

#[tokio::test(start_paused = true)]
async fn annotations_of_the_go_controller_are_understood_and_told_once() {
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
    let told = "Normal CompatibleAnnotations web: Understood, and better written in our words: \
                loadbalancer.openstack.org/load-balancer-id is lb.cloudadapter.dev/id: lb-7 and lb.cloudadapter.dev/adopt: shared; \
                loadbalancer.openstack.org/node-selector is lb.cloudadapter.dev/node-selector: zone=a";
    world.eventually_events(&[told]).await;
    world.eventually_ingress_of("web").await;
    let ensure = world.last_ensure();
    assert_eq!(
        (ensure.adoption(), ensure.spec.unwrap_or_default().load_balancer_id.as_str()),
        (Adoption::Never, "lb-7"),
        "it may be one that several use: the adapter knows whose it is"
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
    world.eventually("what cannot be done is refused", refused).await;
    world.quiet().await;
    let n_told = world.events().iter().filter(|event| event.contains("CompatibleAnnotations")).count();
    assert_eq!(n_told, 1, "{:?}", world.events());
    world.stop().await;
}

/// The Go controller notes the ID at every Service, and nobody takes it away.
#[tokio::test(start_paused = true)]
async fn one_that_was_taken_over_by_its_id_is_made_again_when_it_is_gone() {
    let world = World::new().compat(Compat::Openstack);
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.shared"]));
    let world = world.started().await;
    world.node("a").service(service("web").port(80).annotation(NOTED, "lb-7"));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let asked = |world: &World| world.last_ensure().spec.unwrap_or_default().load_balancer_id;
    assert_eq!(asked(&world), "lb-7");

    let gone = AdapterError::new(Reason::ResourceGone, "there is no load balancer lb-7 to share");
    world.cloud.fail_next("EnsureLoadBalancer", gone);
    world.cloud.edit(|state| state.load_balancers.clear());
    let ids = |world: &World| world.cloud.read(|state| Vec::from_iter(state.load_balancers.keys().cloned()));
    world.eventually("another one is made", |world| ids(world).len() == 1).await;
    world.quiet().await;
    assert_eq!((asked(&world).as_str(), world.last_ensure().adoption()), ("", Adoption::IfUnowned));
    assert_ne!(ids(&world), ["lb-7"]);
    let told =
        |world: &World| world.events().iter().filter(|it| it.contains("says nothing any more")).count();
    let failed = |world: &World| world.events().iter().any(|it| it.contains("SyncLoadBalancerFailed"));
    assert!(told(&world) == 1 && !failed(&world), "{:?}", world.events());

    // After a restart the mirror shows the one that it has: the adapter would refuse the ID of another one.
    let (made, asks) = (ids(&world), world.cloud.calls("EnsureLoadBalancer"));
    let world = world.restart().await;
    world.quiet().await;
    assert_eq!((ids(&world), asked(&world)), (made, String::new()));
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asks + 1, "one first look");
    assert_eq!(told(&world), 1, "{:?}", world.events());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_go_controller_made_is_taken_over_without_any_annotation() {
    let world = World::new().compat(Compat::Openstack).started().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    assert_eq!(world.last_ensure().adoption(), Adoption::IfUnowned);
    assert!(!world.events().iter().any(|event| event.contains("Annotations")), "{:?}", world.events());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_flag_annotations_of_the_go_controller_do_nothing_and_it_is_said() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80).annotation("loadbalancer.openstack.org/class", "dmz"));
    world.eventually_ingress_of("web").await;
    assert_eq!(world.last_ensure().adoption(), Adoption::Never);
    let told = "Normal IgnoredAnnotations web: These annotations have no effect here: loadbalancer.openstack.org/class; start \
                service-controller with --compat=openstack, or write those of lb.cloudadapter.dev";
    world.eventually_events(&[told]).await;
    let n_told = |world: &World| world.events().iter().filter(|it| it.contains("IgnoredAnnotations")).count();
    let world = world.restart().await;
    world.quiet().await;
    assert_eq!(n_told(&world), 1, "an earlier process said it: {:?}", world.events());

    world.change("web", |service| {
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert("loadbalancer.openstack.org/keep-floatingip".to_owned(), "true".to_owned());
    });
    world.eventually("one more is told", |world| n_told(world) == 2).await;
    world.stop().await;
}
