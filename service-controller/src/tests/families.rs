//! Services that merely prefer two address families, and what has one already; and what cannot change on what is there, after a restart.

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

/// The adapter says of the next one that what is there has other families.
fn is_fixed(world: &World) {
    cannot_change(world, "spec.ip_families,spec.subnets");
}

/// The adapter says of the next one that what is there differs in these fields.
fn cannot_change(world: &World, fields: &str) {
    let first = fields.split(',').next().unwrap_or_default();
    let text = format!("{first}: cannot change on load balancer lb-1; it must be made anew");
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

#[tokio::test(start_paused = true)]
async fn a_preference_takes_what_is_there() {
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

    // After a restart, too: it goes on following the nodes, and nobody hears of it.
    let (events, calls) = (world.events().len(), world.cloud.calls("EnsureLoadBalancer"));
    is_fixed(&world);
    let world = world.restart().await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world), world.events().len()), (0, vec![Ipv4], events));
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), calls + 2, "one more than of any other");
    world.node("b");
    world.eventually("both nodes are behind it", |world| world.backends() == ["a", "b"]).await;
    assert_eq!(asked(&world), [Ipv4]);

    // Who insists is told.
    is_fixed(&world);
    world.change("web", |service| wants(service, "RequireDualStack"));
    world.eventually("it is told", |world| failed(world) == 1).await;
    assert!(
        world.events().iter().any(|it| it.contains("spec.ipFamilies: cannot change")),
        "{:?}",
        world.events()
    );
    world.stop().await;
}

/// What is not taken over yet the mirror does not show: its address stands in the status.
#[tokio::test(start_paused = true)]
async fn a_preference_takes_what_is_taken_over() {
    let world = dual_stack().await;
    let adopts = service("web").port(80).annotation(&format!("lb.{DOMAIN}/adopt"), "owned");
    let mut web: Service = adopts.ingress("2001:db8::7").build();
    wants(&mut web, "PreferDualStack");
    is_fixed(&world);
    world.kube.put::<Service>(web);
    world.eventually("it is asked for", |world| world.cloud.calls("EnsureLoadBalancer") == 2).await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv6]));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_preference_gets_both_where_nothing_is_there() {
    let world = dual_stack().await;
    let mut web: Service = service("web").port(80).build();
    wants(&mut web, "PreferDualStack");
    world.kube.put::<Service>(web);
    world.eventually_ingress_of("web").await;
    assert_eq!(asked(&world), [Ipv4, Ipv6]);
    world.stop().await;
}

/// With one family, since the cloud has refused the other one.
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

#[tokio::test(start_paused = true)]
async fn a_preference_gets_both_when_what_was_there_is_made_anew() {
    let world = narrowed().await;
    world.cloud.edit(|state| state.load_balancers.clear());
    world.eventually("it is made with both", |world| asked(world) == [Ipv4, Ipv6]).await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv4, Ipv6]));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_preference_is_asked_for_again_of_an_adapter_that_can_do_something_else() {
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
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked_before, "it can do what it could");
    restarted(&["loadbalancers", "lb.dual-stack", "lb.udp"]).await;
    assert_eq!((failed(&world), asked(&world)), (0, vec![Ipv4, Ipv6]));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_preference_that_is_taken_back_and_comes_again_is_asked_for_again() {
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

/// Another process knows nothing of the wish that was good.
#[tokio::test(start_paused = true)]
async fn what_cannot_lose_a_family_follows_the_nodes_after_a_restart() {
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
    world.eventually("it is told", |world| failed(world) == 1).await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (1, vec![Ipv6, Ipv4]));
    world.node("b");
    world.eventually("both nodes are behind it", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    assert_eq!((failed(&world), asked(&world)), (1, vec![Ipv6, Ipv4]));
    assert_eq!(world.ingress("web"), ["203.0.113.1", "2001:db8::1"]);
    let updated = "Normal UpdatedLoadBalancer web: Updated load balancer with new hosts";
    world.eventually_events(&[updated]).await;

    // As soon as the adapter can do it, it is done.
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!((failed(&world), asked(&world)), (1, vec![Ipv6]));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_cannot_change_keeps_no_node_out_after_a_restart() {
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
    world.eventually("it is told", |world| failed(world) == 1).await;
    assert!(
        world.events().iter().any(|it| it.contains("spec.loadBalancerIP")),
        "in the user's words: {:?}",
        world.events()
    );
    world.node("b");
    world.eventually("both nodes are behind it", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    let spec = world.last_ensure().spec.unwrap_or_default();
    assert_eq!((failed(&world), spec.requested_addresses), (1, vec!["203.0.113.1".to_owned()]));
    world.stop().await;
}

/// An idea of ours that the adapter refuses, too, and one that there cannot be.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_off_what_is_there_is_told_once_and_asked_for_rarely() {
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
        world.eventually("it is told", |world| failed(world) == 1).await;
        world.quiet().await;
        assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked, "{fields}");
        world.node("b");
        world.quiet().await;
        assert_eq!(failed(&world), 1, "{fields}: {:?}", world.events());
        world.stop().await;
    }
}

/// An adapter does first what can be done, and says then what cannot.
#[tokio::test(start_paused = true)]
async fn what_else_a_wish_says_is_done_and_stays_done() {
    let world = dual_stack().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    cannot_change(&world, "spec.ip_families");
    world.change("web", |service| {
        wants_families(service, "SingleStack", &["IPv6"]);
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080;
    });
    world.eventually("it is told", |world| failed(world) == 1).await;
    world.quiet().await;
    let ports = |world: &World| {
        let wish = world.last_ensure().spec.expect("each has one");
        wish.listeners.iter().map(|listener| listener.port).collect::<Vec<_>>()
    };
    assert_eq!((ports(&world), asked(&world)), (vec![8080], vec![Ipv4]));
    world.node("b");
    world.eventually("both nodes are behind it", |world| world.backends() == ["a", "b"]).await;
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!((ports(&world), failed(&world)), (vec![8080], 1));
    world.stop().await;
}

/// Another user of the load balancer has the port: all else is asked for, also by a process that knows of no good wish.
#[tokio::test(start_paused = true)]
async fn a_port_that_is_taken_is_left_out_and_nodes_are_followed_after_a_restart() {
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
        // The contract has it behind the other one.
        ports.insert(0, other);
    });
    let taken = AdapterError::field("spec.listeners[1].port", "tcp/443 is taken by Service shop/api");
    world.cloud.fail_next("EnsureLoadBalancer", taken);
    let world = world.started().await;
    world.eventually("it is told", |world| failed(world) == 1).await;
    assert!(world.events().iter().any(|it| it.contains("spec.ports[0].port")), "{:?}", world.events());
    world.node("b");
    world.eventually("both nodes are behind it", |world| world.backends() == ["a", "b"]).await;
    let ports: Vec<u32> =
        world.last_ensure().spec.unwrap_or_default().listeners.iter().map(|it| it.port).collect();
    assert_eq!((ports, failed(&world)), (vec![80], 1));
    world.stop().await;
}

/// The wish is asked for again by now, is refused again, and nodes do not wait for the next look.
#[tokio::test(start_paused = true)]
async fn nodes_are_followed_in_the_minute_in_which_a_wish_is_refused_again() {
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
