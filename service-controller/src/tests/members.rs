//! How many members a Service may ask for.

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
async fn a_service_with_too_many_members_is_refused_before_anything_is_called() {
    let world = started(&NODES, 5).await;
    world.service(service("web").port(80).port(81));
    let told = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: spec.ports: 2 listeners on 3 nodes are 6 members, more \
                than 5 (--max-members-per-service): use fewer ports, or fewer nodes by node-selector";
    world.eventually_events(&[told]).await;
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), 0);
    assert!(world.finalizers("web").is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_cut_no_service_off_and_further_ports_are_refused() {
    let world = started(&NODES[..2], 5).await;
    world.service(service("web").port(80).port(81));
    world.eventually_ingress_of("web").await;

    world.node("c");
    world.eventually("the new node is behind it", |world| world.backends() == NODES).await;
    let told = "Warning TooManyMembers web: 2 listeners on 3 nodes are 6 members, more than 5 (--max-members-per-service): the load \
                balancer goes on following nodes, but gets no further ports and no other node-selector";
    world.eventually_events(&[told]).await;

    world.change("web", add_port);
    let refused = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: spec.ports: 3 listeners on 3 nodes are 9 members, \
                   more than 5 (--max-members-per-service): use fewer ports, or fewer nodes by node-selector";
    world.eventually_events(&[refused]).await;
    world.node("d");
    world.eventually("nodes are followed all the same", |world| world.backends().len() == 4).await;
    assert_eq!(world.last_ensure().spec.unwrap().listeners.len(), 2, "what was good is in force");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_load_balancer_goes_on_as_it_is_shown() {
    let world = started(&NODES[..2], 2).await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.node("c");
    world.eventually("the new node is behind it", |world| world.backends() == NODES).await;
    let world = world.restart().await;
    world.node("d");
    world.eventually("nodes are followed", |world| world.backends().len() == 4).await;
    assert!(
        !world.events().iter().any(|event| event.contains("SyncLoadBalancerFailed")),
        "{:?}",
        world.events()
    );
    world.stop().await;
}
