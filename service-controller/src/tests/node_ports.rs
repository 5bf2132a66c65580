//! A refused Service gives up the node ports that it no longer has: the API server may have given them to a Service of another namespace.

use std::time::Duration;

use cloud_api_proto::{DOMAIN, v1alpha1::health_check::Kind};
use controller_core::{mirror::ObjectName, testing::service};
use k8s_openapi::api::core::v1::{Node, Service};

use super::world::{World, capabilities};

fn mistaken(service: &mut Service) {
    let annotations = service.metadata.annotations.get_or_insert_default();
    annotations.insert(format!("lb.{DOMAIN}/intrenal"), "true".to_owned());
}

/// Gives the port at this place another node port.
fn moved(service: &mut Service, at: usize, node_port: i32) {
    service.spec.as_mut().unwrap().ports.as_mut().unwrap()[at].node_port = Some(node_port);
}

/// Each listener that was asked for last, as `80 -> 30080`.
fn asked(world: &World) -> Vec<String> {
    let listeners = world.last_ensure().spec.unwrap_or_default().listeners;
    listeners.iter().map(|it| format!("{} -> {}", it.port, it.node_port.unwrap_or_default())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_listener_whose_node_port_is_given_up_by_a_refused_service_goes() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80).port(443));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.change("web", |service| {
        mistaken(service);
        moved(service, 0, 31_080);
    });
    world.eventually("the listener goes", |world| asked(world) == ["443 -> 30443"]).await;
    world.node("b");
    world.eventually("nodes are followed", |world| world.backends() == ["a", "b"]).await;
    assert_eq!(asked(&world), ["443 -> 30443"]);

    world.change("web", |service| service.metadata.annotations = None);
    world.eventually("all is as asked for", |world| asked(world) == ["80 -> 31080", "443 -> 30443"]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_whose_service_gives_up_all_node_ports_loses_its_members_and_stays() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    // A user who wants no node ports writes this. The controller refuses it, and the API server takes the node ports back.
    world.change("web", |service| {
        service.spec.as_mut().unwrap().allocate_load_balancer_node_ports = Some(false);
        moved(service, 0, 0);
    });
    world.eventually("no node is behind it", |world| world.backends().is_empty()).await;
    let told = "Warning UnAvailableLoadBalancer web: There are no available nodes for LoadBalancer: the Service has none of the node \
                ports of its last good settings any more";
    world.eventually_events(&[told]).await;
    world.node("b");
    world.quiet().await;
    assert!(world.backends().is_empty(), "whatever nodes come");
    assert!(world.explained("web").wanted.iter().any(|it| it.starts_with("0 nodes: ")));
    assert_eq!(world.ingress("web"), ["203.0.113.1"]);

    world.change("web", |service| {
        service.spec.as_mut().unwrap().allocate_load_balancer_node_ports = None;
        moved(service, 0, 31_080);
    });
    world.eventually("both are behind it", |world| world.backends() == ["a", "b"]).await;
    assert_eq!(asked(&world), ["80 -> 31080"]);
    world.stop().await;
}

/// Also while the API server lists no nodes, which takes none from any other load balancer.
#[tokio::test(start_paused = true)]
async fn members_go_from_what_leads_to_no_node_port_though_no_node_is_listed() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80)).service(service("shop").port(81));
    world.eventually_ingress_of("web").await;
    world.eventually_ingress_of("shop").await;
    world.quiet().await;
    world.kube.away(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    world.kube.away(false);
    world.quiet().await;
    assert_eq!(world.backends(), ["a"]);
    world.change("web", |service| {
        mistaken(service);
        moved(service, 0, 31_080);
    });
    world.eventually("no node is behind it", |world| world.backends().is_empty()).await;
    assert_eq!(world.last_ensure().owner.unwrap_or_default().name, "web");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_health_check_node_port_that_a_refused_service_gives_up_is_probed_no_more() {
    let world = World::new();
    world.cloud.edit(|state| {
        state.info.capabilities = capabilities(&["loadbalancers", "lb.health-check.http"]);
    });
    let world = world.started().await;
    world.node("a").service(service("web").port(80).with(|spec| {
        spec.external_traffic_policy = Some("Local".to_owned());
        spec.health_check_node_port = Some(32_000);
    }));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let probed = |world: &World| {
        let check = world.last_ensure().spec.unwrap_or_default().health_check.unwrap_or_default();
        (check.kind(), check.port)
    };
    assert_eq!(probed(&world), (Kind::Http, Some(32_000)));
    world.change("web", |service| {
        mistaken(service);
        let spec = service.spec.as_mut().unwrap();
        (spec.external_traffic_policy, spec.health_check_node_port) = (Some("Cluster".to_owned()), None);
    });
    world.eventually("the node port is probed", |world| probed(world) == (Kind::Tcp, None)).await;
    assert_eq!(world.backends(), ["a"]);
    world.stop().await;
}

/// The type takes the node ports along, and the removal that follows goes on though the Service asks for a load balancer again.
#[tokio::test(start_paused = true)]
async fn a_removal_that_began_ends_though_the_service_asks_for_what_is_refused() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.cloud.edit(|state| state.pending = 3);
    world.change("web", |service| {
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
        service.status = None;
        moved(service, 0, 0);
    });
    world.eventually("it is asked for", |world| world.cloud.calls("DeleteLoadBalancer") == 1).await;
    world.change("web", |service| {
        mistaken(service);
        service.spec.as_mut().unwrap().type_ = Some("LoadBalancer".to_owned());
        moved(service, 0, 31_080);
    });
    world.eventually("it is gone", |world| world.cloud.read(|it| it.load_balancers.is_empty())).await;
    world.quiet().await;
    let deletes = world.cloud.calls("DeleteLoadBalancer");
    world.quiet().await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), deletes, "once it is gone nothing is asked");
    world.change("web", |service| service.metadata.annotations = None);
    world.eventually_ingress_of("web").await;
    assert_eq!(asked(&world), ["80 -> 31080"]);
    world.stop().await;
}
