//! Tests Services that prefer two address families but have a load balancer with one family. Also tests fields that cannot change on a load
//! balancer, after a restart.

use std::time::Duration;

use cloud_api_proto::{
    AdapterError, DOMAIN, Reason,
    v1alpha1::{
        IpFamily::{self, Ipv4, Ipv6},
        LoadBalancerAddress,
        load_balancer_address::Value,
    },
};
use controller_core::testing::service;
use k8s_openapi::api::core::v1::{Service, ServicePort};

use super::world::{World, capabilities};

fn asked(world: &World) -> Vec<IpFamily> {
    world.last_ensure().spec.unwrap_or_default().ip_families().collect()
}

/// Makes the adapter refuse the next ensure, because the existing load balancer has other families.
fn is_fixed(world: &World) {
    cannot_change(world, "spec.ip_families,spec.subnets");
}

/// Makes the adapter refuse the next ensure, because the existing load balancer differs in these fields.
fn cannot_change(world: &World, fields: &str) {
    let first = fields.split(',').next().unwrap_or_default();
    let text = format!(
        "{first}: cannot change on load balancer lb-1: set it back, or delete and recreate the Service"
    );
    let error = AdapterError::new(Reason::ImmutableField, text).with("fields", fields);
    world.cloud.fail_next("EnsureLoadBalancer", error);
}

fn wants(service: &mut Service, policy: &str) {
    wants_families(service, policy, &["IPv4", "IPv6"]);
}

fn wants_families(service: &mut Service, policy: &str, families: &[&str]) {
    let spec = service.spec.as_mut().unwrap();
    spec.ip_families = Some(families.iter().map(|&it| it.to_owned()).collect());
    spec.ip_family_policy = Some(policy.to_owned());
}

fn failed(world: &World) -> usize {
    world.events().iter().filter(|it| it.contains("SyncLoadBalancerFailed")).count()
}

async fn dual_stack() -> World {
    let world = World::new();
    let can = ["loadbalancers", "lb.dual-stack"];
    world.cloud.edit(|state| state.info.capabilities = capabilities(&can));
    let world = world.started().await;
    world.node("a");
    world
}

// Behaviour: SF7
#[tokio::test(start_paused = true)]
async fn preferred_families_accept_existing_load_balancer() {
    let world = dual_stack().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let before = (world.kube.writes().len(), world.cloud.calls("EnsureLoadBalancer"));
    is_fixed(&world);
    world.change("web", |service| wants(service, "PreferDualStack"));
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before.1 + 1, "{:?}", world.events());
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv4]));

    // After a restart the load balancer still follows the nodes, and nothing is reported.
    let (events, calls) = (world.events().len(), world.cloud.calls("EnsureLoadBalancer"));
    is_fixed(&world);
    let world = world.restart().await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world), world.events().len()), (0, vec![Ipv4], events));
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), calls + 2, "one call more than for other Services");
    world.node("b");
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    assert_eq!(asked(&world), [Ipv4]);

    // A Service that requires both families gets an Event.
    is_fixed(&world);
    world.change("web", |service| wants(service, "RequireDualStack"));
    world.eventually("an Event is emitted", |world| failed(world) == 1).await;
    assert!(
        world.events().iter().any(|it| it.contains("spec.ipFamilies: cannot change")),
        "{:?}",
        world.events()
    );
    world.stop().await;
}

/// The cache does not show a load balancer that is not adopted yet; its address is in the status.
// Behaviour: SF7
#[tokio::test(start_paused = true)]
async fn preferred_families_accept_adopted_load_balancer() {
    let world = dual_stack().await;
    let adopts = service("web").port(80).annotation(&format!("lb.{DOMAIN}/adopt"), "owned");
    let mut web: Service = adopts.ingress("2001:db8::7").build();
    wants(&mut web, "PreferDualStack");
    is_fixed(&world);
    world.kube.put::<Service>(web);
    world
        .eventually("the single family is requested", |world| world.cloud.calls("EnsureLoadBalancer") == 2)
        .await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv6]));
    world.stop().await;
}

// Behaviour: SF7
#[tokio::test(start_paused = true)]
async fn preferred_families_are_both_used_for_new_load_balancer() {
    let world = dual_stack().await;
    let mut web: Service = service("web").port(80).build();
    wants(&mut web, "PreferDualStack");
    world.kube.put::<Service>(web);
    world.eventually_ingress_of("web").await;
    assert_eq!(asked(&world), [Ipv4, Ipv6]);
    world.stop().await;
}

/// Returns a world in which a Service has one family, because the cloud refused the second family.
async fn narrowed() -> World {
    let world = dual_stack().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    is_fixed(&world);
    world.change("web", |service| wants(service, "PreferDualStack"));
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv4]));
    world
}

// Behaviour: SF7
#[tokio::test(start_paused = true)]
async fn preferred_families_are_both_used_on_recreation() {
    let world = narrowed().await;
    world.cloud.edit(|state| state.load_balancers.clear());
    world
        .eventually("the load balancer is created with both families", |world| asked(world) == [Ipv4, Ipv6])
        .await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv4, Ipv6]));
    world.stop().await;
}

// Behaviour: SF7
#[tokio::test(start_paused = true)]
async fn preferred_families_are_retried_when_capabilities_change() {
    let world = narrowed().await;
    let asked_before = world.cloud.calls("EnsureLoadBalancer");
    let restarted = async |names: &[&str]| {
        world.cloud.away(true);
        world.cloud.edit(|state| state.info.capabilities = capabilities(names));
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.cloud.away(false);
        world.quiet().await;
    };
    restarted(&["loadbalancers", "lb.dual-stack"]).await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked_before, "the capabilities are as before");
    restarted(&["loadbalancers", "lb.dual-stack", "lb.udp"]).await;
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv4, Ipv6]));
    world.stop().await;
}

// Behaviour: SF7
#[tokio::test(start_paused = true)]
async fn restored_family_preference_is_requested_again() {
    let world = narrowed().await;
    let both = world.get("web").unwrap().spec.unwrap().ip_families;
    world.change("web", |service| {
        let spec = service.spec.as_mut().unwrap();
        spec.ip_families = Some(vec!["IPv4".to_owned()]);
        spec.ip_family_policy = Some("SingleStack".to_owned());
    });
    world.quiet().await;
    assert_eq!(asked(&world), [Ipv4]);
    world.change("web", |service| {
        wants(service, "PreferDualStack");
        assert_eq!(service.spec.as_ref().unwrap().ip_families, both);
    });
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv4, Ipv6]));
    world.stop().await;
}

/// The new process does not know the last valid settings.
// Behaviour: S27
#[tokio::test(start_paused = true)]
async fn immutable_families_do_not_block_node_updates_after_restart() {
    let world = dual_stack().await;
    let mut web: Service = service("web").port(80).build();
    wants_families(&mut web, "RequireDualStack", &["IPv6", "IPv4"]);
    world.kube.put::<Service>(web);
    world.eventually_ingress_of("web").await;
    world.cloud.edit(|state| {
        let second = LoadBalancerAddress {
            value: Some(Value::Ip("2001:db8::1".to_owned())),
            ..LoadBalancerAddress::default()
        };
        state.load_balancers.values_mut().for_each(|it| it.addresses.push(second.clone()));
    });
    world.eventually_ingress("web", &["203.0.113.1", "2001:db8::1"]).await;
    world.quiet().await;

    let world = world.stop().await;
    world.change("web", |service| wants_families(service, "SingleStack", &["IPv6"]));
    cannot_change(&world, "spec.ip_families");
    let world = world.started().await;
    world.eventually("an Event is emitted", |world| failed(world) == 1).await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (1, vec![Ipv6, Ipv4]));
    world.node("b");
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (1, vec![Ipv6, Ipv4]));
    assert_eq!(world.ingress("web"), ["203.0.113.1", "2001:db8::1"]);
    let updated = "Normal UpdatedLoadBalancer web: Updated load balancer with new hosts";
    world.eventually_events(&[updated]).await;

    // The settings are applied as soon as the adapter supports them.
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!((failed(&world), asked(&world)), (1, vec![Ipv6]));
    world.stop().await;
}

// Behaviour: S27, SF8
#[tokio::test(start_paused = true)]
async fn immutable_address_does_not_block_node_updates_after_restart() {
    let world = World::new();
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.reserved-ip"]));
    let world = world.started().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;

    let world = world.stop().await;
    world.change("web", |service| {
        service.spec.as_mut().unwrap().load_balancer_ip = Some("203.0.113.77".to_owned());
    });
    cannot_change(&world, "spec.requested_addresses");
    let world = world.started().await;
    world.eventually("an Event is emitted", |world| failed(world) == 1).await;
    assert!(
        world.events().iter().any(|it| it.contains("spec.loadBalancerIP")),
        "the Event has the user's field names: {:?}",
        world.events()
    );
    world.node("b");
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    let spec = world.last_ensure().spec.unwrap_or_default();
    assert_eq!((failed(&world), spec.requested_addresses), (1, vec!["203.0.113.1".to_owned()]));
    world.stop().await;
}

/// The adapter also refuses the replacement settings, or no replacement can be derived for the fields.
// Behaviour: S27
#[tokio::test(start_paused = true)]
async fn unknown_immutable_field_is_reported_once_and_retried_rarely() {
    for (fields, asked) in [("spec.zone", 2), ("spec.load_balancer_id", 1)] {
        let world = dual_stack().await;
        world.cloud.edit(|state| {
            state.info.capabilities = capabilities(&["loadbalancers", "lb.zone"]);
        });
        let web = service("web").port(80).annotation(&format!("lb.{DOMAIN}/zone"), "z1");
        let world = world.stop().await;
        for _ in 0..asked {
            cannot_change(&world, fields);
        }
        world.service(web.ingress("203.0.113.1"));
        let world = world.started().await;
        world.eventually("an Event is emitted", |world| failed(world) == 1).await;
        world.quiet().await;
        assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked, "{fields}");
        world.node("b");
        world.quiet().await;
        assert_eq!(failed(&world), 1, "{fields}: {:?}", world.events());
        world.stop().await;
    }
}

/// An adapter first applies the settings that are possible, and then reports those that are not.
// Behaviour: S27
#[tokio::test(start_paused = true)]
async fn other_settings_of_refused_spec_are_applied_and_kept() {
    let world = dual_stack().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    cannot_change(&world, "spec.ip_families");
    world.change("web", |service| {
        wants_families(service, "SingleStack", &["IPv6"]);
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080;
    });
    world.eventually("an Event is emitted", |world| failed(world) == 1).await;
    world.quiet().await;
    let ports = |world: &World| {
        let wish = world.last_ensure().spec.expect("each Service has an address");
        wish.listeners.iter().map(|listener| listener.port).collect::<Vec<_>>()
    };
    assert_eq!((ports(&world), asked(&world)), (vec![8080], vec![Ipv4]));
    world.node("b");
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!((ports(&world), failed(&world)), (vec![8080], 1));
    world.stop().await;
}

/// Another user of the load balancer occupies the port. All other settings are requested, even by a process that knows no last valid
/// settings.
#[tokio::test(start_paused = true)]
async fn occupied_port_is_omitted_after_restart() {
    let world = dual_stack().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let world = world.stop().await;
    world.change("web", |service| {
        let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
        let other = ServicePort {
            name: Some("other".to_owned()),
            port: 443,
            node_port: Some(30_443),
            ..ports[0].clone()
        };
        // The controller sorts the listeners, so this port becomes the second listener in the request.
        ports.insert(0, other);
    });
    let taken = AdapterError::field("spec.listeners[1].port", "tcp/443 is taken by Service shop/api");
    world.cloud.fail_next("EnsureLoadBalancer", taken);
    let world = world.started().await;
    world.eventually("an Event is emitted", |world| failed(world) == 1).await;
    assert!(world.events().iter().any(|it| it.contains("spec.ports[0].port")), "{:?}", world.events());
    world.node("b");
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    let ports: Vec<u32> =
        world.last_ensure().spec.unwrap_or_default().listeners.iter().map(|it| it.port).collect();
    assert_eq!((ports, failed(&world)), (vec![80], 1));
    world.stop().await;
}

/// The settings are due for a retry and are refused again. Node updates must not wait for the next resync.
// Behaviour: S28
#[tokio::test(start_paused = true)]
async fn nodes_are_updated_while_settings_are_refused_again() {
    let world = dual_stack().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.asks_for_a_port_that_is_refused(|_service| ()).await;
    assert_eq!(failed(&world), 1);
    let come = || {
        world.node("b");
    };
    world.is_refused_again_and_gets_nodes(come, &["a", "b"]).await;
    let port = world.last_ensure().spec.unwrap_or_default().listeners[0].port;
    assert_eq!((port, failed(&world)), (80, 1));
    world.stop().await;
}
