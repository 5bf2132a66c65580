//! What load balancers are called.

use controller_core::testing::service;

use super::world::{World, capabilities};

const TEMPLATE: &str = "{cluster}_{namespace}_{service}";

fn wished(world: &World) -> String {
    world.last_ensure().spec.unwrap_or_default().name
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_called_as_the_template_says_and_the_service_says_otherwise() {
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
    world.eventually("it is asked for by its name", |world| wished(world) == "front").await;
    say(&world, "-front");
    let told = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: annotation lb.cloudadapter.dev/name: \"-front\" is not \
                a name of 1 to 255 letters, digits, -, _ and ., the first and the last a letter or a digit: write one such as shop-web";
    world.eventually_events(&[told]).await;
    assert_eq!(wished(&world), "front");
    assert!(
        !world.events().iter().any(|event| event.contains("IgnoredNameTemplate")),
        "{:?}",
        world.events()
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_of_a_go_controller_is_the_operators_alone() {
    let world = World::new().names("kube_service_{cluster}_{namespace}_{service}");
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.name"]));
    let world = world.started().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    assert_eq!(wished(&world), "kube_service_prod_default_web");

    let thief = service("thief").port(80);
    world.service(thief.annotation("lb.cloudadapter.dev/name", "kube_service_prod_shop_web"));
    let told = "Warning SyncLoadBalancerFailed thief: Error syncing load balancer: annotation lb.cloudadapter.dev/name: a Go cloud \
                controller manager would take this name (kube_service_..., a<uid>) for its own: write one such as shop-web";
    world.eventually_events(&[told]).await;
    world.quiet().await;
    assert_eq!(wished(&world), "kube_service_prod_default_web", "nothing is asked for the other one");
    assert_eq!(world.ingress("thief"), [""; 0]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_adapter_that_takes_no_names_still_gives_load_balancers_and_it_is_said_once() {
    let world = World::new().names(TEMPLATE).started().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    assert_eq!(wished(&world), "");
    let told = "Normal IgnoredNameTemplate web: The cloud adapter calls load balancers as it likes (no capability lb.name): \
                --load-balancer-name-template does nothing here";
    world.eventually_events(&[told]).await;
    world.node("b");
    world.quiet().await;
    let world = world.restart().await;
    world.quiet().await;
    let n_told = world.events().iter().filter(|event| event.contains("IgnoredNameTemplate")).count();
    assert_eq!(n_told, 1, "{:?}", world.events());
    world.stop().await;
}
