//! The limit on the members of a Service.

use controller_core::testing::service;
use k8s_openapi::api::core::v1::Service;

use super::world::World;

const NODES: [&str; 3] = ["a", "b", "c"];

async fn started(nodes: &[&str], most: usize) -> World {
    let world = World::new().members(most);
    for node in nodes {
        world.node(node);
    }
    world.started().await
}

fn add_port(service: &mut Service) {
    let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
    let mut port = ports[0].clone();
    (port.name, port.port, port.node_port) = (Some("more".to_owned()), 8080, Some(30_999));
    ports.push(port);
}

#[tokio::test(start_paused = true)]
async fn too_many_members_are_refused_before_any_call() {
    let world = started(&NODES, 5).await;
    world.service(service("web").port(80).port(81));
    let reported = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: spec.ports: 2 listeners on 3 nodes make 6 members, \
                more than 5 (serviceController.maxMembersPerService): use fewer ports, or fewer nodes by node-selector";
    world.eventually_events(&[reported]).await;
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), 0);
    assert!(world.finalizers("web").is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn added_nodes_above_member_limit_refuse_only_new_ports() {
    let world = started(&NODES[..2], 5).await;
    world.service(service("web").port(80).port(81));
    world.eventually_ingress_of("web").await;

    world.node("c");
    world.eventually("the new node is a backend", |world| world.backends() == NODES).await;
    let reported = "Warning TooManyMembers web: 2 listeners on 3 nodes make 6 members, more than 5 \
                (serviceController.maxMembersPerService). Node changes apply, but no new port or wider node-selector. Use fewer \
                ports or nodes";
    world.eventually_events(&[reported]).await;

    world.change("web", add_port);
    let refused = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: spec.ports: 3 listeners on 3 nodes make 9 members, \
                   more than 5 (serviceController.maxMembersPerService): use fewer ports, or fewer nodes by node-selector";
    world.eventually_events(&[refused]).await;
    world.node("d");
    world.eventually("the load balancer follows the nodes", |world| world.backends().len() == 4).await;
    assert_eq!(world.last_ensure().spec.unwrap().listeners.len(), 2, "the last valid settings are in force");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn load_balancer_above_member_limit_continues_after_restart() {
    let world = started(&NODES[..2], 2).await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.node("c");
    world.eventually("the new node is a backend", |world| world.backends() == NODES).await;
    let world = world.restart().await;
    world.node("d");
    world.eventually("the load balancer follows the nodes", |world| world.backends().len() == 4).await;
    assert!(
        !world.events().iter().any(|event| event.contains("SyncLoadBalancerFailed")),
        "{:?}",
        world.events()
    );
    world.stop().await;
}
