//! Node ports that an invalid Service releases. The API server may have assigned them to a Service in another namespace.

use std::time::Duration;

use cloud_api_proto::{DOMAIN, v1alpha1::health_check::Kind};
use controller_core::{mirror::ObjectName, testing::service};
use k8s_openapi::api::core::v1::{Node, Service};

use super::world::{World, capabilities};

fn mistaken(service: &mut Service) {
    let annotations = service.metadata.annotations.get_or_insert_default();
    annotations.insert(format!("lb.{DOMAIN}/intrenal"), "true".to_owned());
}

fn moved(service: &mut Service, at: usize, node_port: i32) {
    service.spec.as_mut().unwrap().ports.as_mut().unwrap()[at].node_port = Some(node_port);
}

/// Returns the listeners of the last ensure in the form `80 -> 30080`.
fn asked(world: &World) -> Vec<String> {
    let listeners = world.last_ensure().spec.unwrap_or_default().listeners;
    listeners.iter().map(|it| format!("{} -> {}", it.port, it.node_port.unwrap_or_default())).collect()
}

#[tokio::test(start_paused = true)]
async fn listener_of_released_node_port_is_removed() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80).port(443));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.change("web", |service| {
        mistaken(service);
        moved(service, 0, 31_080);
    });
    world.eventually("the listener is removed", |world| asked(world) == ["443 -> 30443"]).await;
    world.node("b");
    world.eventually("the load balancer follows the nodes", |world| world.backends() == ["a", "b"]).await;
    assert_eq!(asked(&world), ["443 -> 30443"]);

    world.change("web", |service| service.metadata.annotations = None);
    world
        .eventually("all settings are applied", |world| asked(world) == ["80 -> 31080", "443 -> 30443"])
        .await;
    world.stop().await;
}

// Behaviour: S28
#[tokio::test(start_paused = true)]
async fn load_balancer_without_node_ports_is_kept_without_members() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    // A user who wants no node ports sets this field to false. The controller refuses the setting, and the API server releases the node
    // ports.
    world.change("web", |service| {
        service.spec.as_mut().unwrap().allocate_load_balancer_node_ports = Some(false);
        moved(service, 0, 0);
    });
    world.eventually("no backends", |world| world.backends().is_empty()).await;
    let reported = "Warning UnAvailableLoadBalancer web: There are no available nodes for LoadBalancer: \
                the last valid settings use only node ports removed from the Service";
    world.eventually_events(&[reported]).await;
    world.node("b");
    world.quiet().await;
    assert!(world.backends().is_empty(), "even if nodes are added");
    assert!(world.explained("web").wanted.iter().any(|it| it.starts_with("0 nodes: ")));
    assert_eq!(world.ingress("web"), ["203.0.113.1"]);

    world.change("web", |service| {
        service.spec.as_mut().unwrap().allocate_load_balancer_node_ports = None;
        moved(service, 0, 31_080);
    });
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    assert_eq!(asked(&world), ["80 -> 31080"]);
    world.stop().await;
}

/// The backends are also removed while the API server lists no nodes. Normally, load balancers then keep their backends.
#[tokio::test(start_paused = true)]
async fn members_without_node_port_are_removed_with_empty_node_list() {
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
    world.eventually("no backends", |world| world.backends().is_empty()).await;
    assert_eq!(world.last_ensure().owner.unwrap_or_default().name, "web");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn released_health_check_node_port_is_no_longer_checked() {
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
    world.eventually("the node port is checked", |world| probed(world) == (Kind::Tcp, None)).await;
    assert_eq!(world.backends(), ["a"]);
    world.stop().await;
}

/// The change of type releases the node ports. The deletion continues although the Service requests a load balancer again.
#[tokio::test(start_paused = true)]
async fn started_removal_ends_for_invalid_service() {
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
    world.eventually("the deletion is requested", |world| world.cloud.calls("DeleteLoadBalancer") == 1).await;
    world.change("web", |service| {
        mistaken(service);
        service.spec.as_mut().unwrap().type_ = Some("LoadBalancer".to_owned());
        moved(service, 0, 31_080);
    });
    world
        .eventually("the load balancer is deleted", |world| {
            world.cloud.read(|it| it.load_balancers.is_empty())
        })
        .await;
    world.quiet().await;
    let deletes = world.cloud.calls("DeleteLoadBalancer");
    world.quiet().await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), deletes, "no call after the deletion");
    world.change("web", |service| service.metadata.annotations = None);
    world.eventually_ingress_of("web").await;
    assert_eq!(asked(&world), ["80 -> 31080"]);
    world.stop().await;
}
