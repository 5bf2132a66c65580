//! Names of load balancers.

use controller_core::testing::service;

use super::world::{World, capabilities};

const TEMPLATE: &str = "{cluster}_{namespace}_{service}";

fn wished(world: &World) -> String {
    world.last_ensure().spec.unwrap_or_default().name
}

// Behaviour: SF9
#[tokio::test(start_paused = true)]
async fn name_annotation_overrides_template() {
    let world = World::new().names(TEMPLATE);
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.name"]));
    let world = world.started().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    assert_eq!(wished(&world), "prod_default_web");

    let say = |world: &World, name: &str| {
        world.change("web", |service| {
            let annotations = service.metadata.annotations.get_or_insert_default();
            annotations.insert("lb.cloudadapter.dev/name".to_owned(), name.to_owned());
        });
    };
    say(&world, "front");
    world.eventually("the name is requested", |world| wished(world) == "front").await;
    say(&world, "-front");
    let reported = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: annotation lb.cloudadapter.dev/name: \"-front\" is not \
                a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web";
    world.eventually_events(&[reported]).await;
    assert_eq!(wished(&world), "front");
    assert!(
        !world.events().iter().any(|event| event.contains("IgnoredNameTemplate")),
        "{:?}",
        world.events()
    );
    world.stop().await;
}

// Behaviour: SF9
#[tokio::test(start_paused = true)]
async fn only_operator_may_use_names_of_go_controllers() {
    let world = World::new().names("kube_service_{cluster}_{namespace}_{service}");
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.name"]));
    let world = world.started().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    assert_eq!(wished(&world), "kube_service_prod_default_web");

    let thief = service("thief").port(80);
    world.service(thief.annotation("lb.cloudadapter.dev/name", "kube_service_prod_shop_web"));
    let reported = "Warning SyncLoadBalancerFailed thief: Error syncing load balancer: annotation lb.cloudadapter.dev/name: this name is \
                reserved for former cloud controller managers (kube_service_..., a<uid>): write one such as shop-web";
    world.eventually_events(&[reported]).await;
    world.quiet().await;
    assert_eq!(wished(&world), "kube_service_prod_default_web", "no call for the other Service");
    assert_eq!(world.ingress("thief"), [""; 0]);
    world.stop().await;
}

// Behaviour: SF9
#[tokio::test(start_paused = true)]
async fn unsupported_name_template_is_reported_once() {
    let world = World::new().names(TEMPLATE).started().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    assert_eq!(wished(&world), "");
    let reported = "Normal IgnoredNameTemplate web: The cloud adapter does not support custom load \
                balancer names (no capability lb.name): serviceController.loadBalancerNameTemplate \
                (--load-balancer-name-template) has no effect";
    world.eventually_events(&[reported]).await;
    world.node("b");
    world.quiet().await;
    let world = world.restart().await;
    world.quiet().await;
    let n_events = world.events().iter().filter(|event| event.contains("IgnoredNameTemplate")).count();
    assert_eq!(n_events, 1, "{:?}", world.events());
    world.stop().await;
}
