//! Tests of the whole controller with a fake API server and a fake adapter, on paused time.

mod adapter;
mod classes;
mod compat;
mod conditions;
mod cost;
mod explain;
mod families;
mod faults;
mod members;
mod names;
mod node_ports;
mod nodes;
mod rehearse;
mod released;
mod reminders;
mod removal;
mod shards;
mod world;

use cloud_api_proto::{
    DOMAIN,
    v1alpha1::{Adoption, LoadBalancerState},
};
use controller_core::testing::{node, service};
use k8s_openapi::{
    api::core::v1::{Node, Service, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use self::world::{World, capabilities, name};
use crate::plan::service::FINALIZER;

// Behaviour: S1, S8
#[tokio::test(start_paused = true)]
async fn service_gets_load_balancer() {
    let world = World::new();
    world.node("a").node("b");
    let world = world.started().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;

    assert_eq!(world.finalizers("web"), [FINALIZER]);
    let ensure = world.last_ensure();
    let (key, owner, fence) = (ensure.key.unwrap(), ensure.owner.unwrap(), ensure.fence.unwrap());
    assert_eq!((key.cluster_id.as_str(), key.owner_uid.as_str()), ("cluster-uid", "uid-web"));
    assert_eq!(
        (owner.kind.as_str(), owner.namespace.as_str(), owner.name.as_str()),
        ("Service", "default", "web")
    );
    assert_eq!((fence.scope.as_str(), fence.epoch), ("service-controller/0", 1_767_225_600));
    assert_eq!(ensure.adoption, i32::from(Adoption::Never));
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    world
        .eventually_events(&[
            "Normal EnsuringLoadBalancer web: Ensuring load balancer",
            "Normal EnsuredLoadBalancer web: Ensured load balancer",
        ])
        .await;
    assert_eq!(world.kube.writes().len(), 2, "finalizer and status: {:?}", world.kube.writes());
}

// Behaviour: S9
#[tokio::test(start_paused = true)]
async fn slow_load_balancer_is_polled() {
    let world = World::start().await;
    world.cloud.edit(|state| state.pending = 3);
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    assert_eq!(world.events().iter().filter(|event| event.contains("Ensuring")).count(), 1);
}

// Behaviour: S21, W14
#[tokio::test(start_paused = true)]
async fn restart_calls_once_and_writes_nothing() {
    let world = World::start().await;
    world.node("a");
    for n in 0..5 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    world
        .eventually("all Services have an address", |world| {
            (0..5).all(|n| !world.ingress(&format!("web-{n}")).is_empty())
        })
        .await;
    world.quiet().await;
    let (writes, events) = (world.kube.writes().len(), world.events().len());
    let before = (world.cloud.calls("EnsureLoadBalancer"), world.cloud.calls("PutBackendSet"));

    let world = world.restart().await;
    world.quiet().await;
    assert_eq!((world.kube.writes().len(), world.events().len()), (writes, events));
    let after = (world.cloud.calls("EnsureLoadBalancer"), world.cloud.calls("PutBackendSet"));
    assert_eq!((after.0 - before.0, after.1 - before.1), (5, 1));
}

/// The Services differ: one has a node selector, one a misspelt annotation, and one a slow load balancer.
// Behaviour: W18
#[tokio::test(start_paused = true)]
async fn deleted_services_are_forgotten() {
    let world = World::start().await;
    world.node("a");
    let names: Vec<String> = (0..100).map(|n| format!("web-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        let web = service(name).port(80);
        world.service(match n % 4 {
            0 => web.annotation(&format!("lb.{DOMAIN}/node-selector"), "zone=one"),
            1 => web.annotation(&format!("lb.{DOMAIN}/intrenal"), "true"),
            2 => web.annotation("loadbalancer.openstack.org/class", "dmz"),
            _ => web,
        });
    }
    let has_one = |world: &World, n: usize| n % 4 == 1 || !world.ingress(&names[n]).is_empty();
    world.eventually("all Services have an address", |world| (0..100).all(|n| has_one(world, n))).await;
    world.quiet().await;
    assert_eq!(world.remembered(), 100);
    names.iter().for_each(|it| world.kube.delete::<Service>(&name(it)));
    world.eventually("all Services are gone", |world| names.iter().all(|it| world.get(it).is_none())).await;
    world.quiet().await;
    assert_eq!(world.remembered(), 0);
}

// Behaviour: S6, SN4, W11
#[tokio::test(start_paused = true)]
async fn unrelated_change_costs_nothing() {
    let world = World::start().await;
    world.node("a");
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    let before = (world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len());
    world.change("web", |service| {
        service
            .metadata
            .annotations
            .get_or_insert_default()
            .insert("example.com/a".to_owned(), "b".to_owned());
    });
    world.kube.put::<Node>(node("a").provider_id("sim://r1/a").at("10.0.0.1").label("pet", "cat"));
    world.quiet().await;
    assert_eq!((world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len()), before);
}

/// Changes of fields that do not affect the load balancer cause no call. Neither do changes of the sequence of lists.
// Behaviour: S6
#[tokio::test(start_paused = true)]
async fn changes_without_effect_cost_nothing() {
    type Change = fn(&mut ServiceSpec);
    let world = World::new();
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.source-ranges"]));
    let world = world.started().await;
    world.node("a");
    let ranges = |them: [&str; 2]| Some(them.map(str::to_owned).to_vec());
    world.service(service("web").port(80).port(443).with(|spec| {
        spec.load_balancer_source_ranges = ranges(["192.0.2.0/24", "198.51.100.0/24"]);
    }));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    let before = (world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len());
    let rows: [(&str, Change); 4] = [
        ("externalIPs", |spec| spec.external_ips = Some(vec!["192.0.2.99".to_owned()])),
        ("targetPort", |spec| {
            spec.ports.as_mut().unwrap()[0].target_port = Some(IntOrString::Int(8080));
        }),
        ("ports in another order", |spec| spec.ports.as_mut().unwrap().reverse()),
        ("ranges in another order", |spec| spec.load_balancer_source_ranges.as_mut().unwrap().reverse()),
    ];
    for (what, change) in rows {
        world.change("web", |service| change(service.spec.as_mut().unwrap()));
        world.quiet().await;
        assert_eq!((world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len()), before, "{what}");
    }
    world.change("web", |service| {
        service.spec.as_mut().unwrap().load_balancer_source_ranges =
            ranges(["192.0.2.0/24", "203.0.113.0/24"]);
    });
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before.0 + 1, "another range changes the settings");
}

#[tokio::test(start_paused = true)]
async fn existing_load_balancer_is_adopted_by_id() {
    let world = World::start().await;
    let (id, adopt) = (format!("lb.{DOMAIN}/id"), format!("lb.{DOMAIN}/adopt"));
    world.service(service("web").port(80).annotation(&id, "lb-7").annotation(&adopt, "owned"));
    world.eventually_ingress_of("web").await;
    let ensure = world.last_ensure();
    assert_eq!(ensure.adoption(), Adoption::ById);
    assert_eq!(ensure.known.unwrap().vendor_ids.unwrap().ids["loadbalancer"], "lb-7");
}

// Behaviour: SF14
#[tokio::test(start_paused = true)]
async fn load_balancer_is_shared_by_id_with_capability() {
    let world = World::new();
    world.cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers", "lb.shared"]));
    let world = world.started().await;
    world.node("a");
    let (id, adopt) = (format!("lb.{DOMAIN}/id"), format!("lb.{DOMAIN}/adopt"));
    world.service(service("web").port(80).annotation(&adopt, "shared"));
    let unsaid = "annotation lb.cloudadapter.dev/adopt: needs the load balancer to share: set lb.cloudadapter.dev/id to its ID";
    world
        .eventually("an Event is emitted", |world| world.events().iter().any(|event| event.contains(unsaid)))
        .await;
    world.change("web", |service| {
        service.metadata.annotations.get_or_insert_default().insert(id.clone(), "lb-7".to_owned());
    });
    world.eventually_ingress_of("web").await;
    let ensure = world.last_ensure();
    assert_eq!(
        (ensure.adoption(), ensure.spec.unwrap_or_default().load_balancer_id.as_str()),
        (Adoption::Never, "lb-7")
    );

    world.stop().await;
}

// Behaviour: SF14
#[tokio::test(start_paused = true)]
async fn sharing_needs_capability() {
    let world = World::start().await;
    let (id, adopt) = (format!("lb.{DOMAIN}/id"), format!("lb.{DOMAIN}/adopt"));
    world.service(service("web").port(80).annotation(&id, "lb-7").annotation(&adopt, "shared"));
    let why = format!(
        "annotation {adopt}: shared: the cloud adapter does not support this (no capability lb.shared): remove both \
         annotations, adopt and id"
    );
    let why = why.as_str();
    world.eventually("refused", |world| world.events().iter().any(|event| event.contains(why))).await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), 0);
    world.stop().await;
}

// Behaviour: S20, W10
#[tokio::test(start_paused = true)]
async fn load_balancer_gone_from_cloud_is_recreated() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    world.cloud.edit(|state| state.load_balancers.clear());
    world
        .eventually("the status is restored", |world| {
            world.cloud.read(|state| state.load_balancers.len() == 1)
        })
        .await;
}

// Behaviour: SF10
#[tokio::test(start_paused = true)]
async fn invalid_service_is_reported_once_without_calls() {
    let world = World::start().await;
    let misspelt = format!("lb.{DOMAIN}/internals");
    world.service(service("web").port(80).annotation(&misspelt, "true"));
    world.eventually("an Event is emitted", |world| !world.events().is_empty()).await;
    world.node("a").node("b");
    tokio::time::sleep(std::time::Duration::from_mins(20)).await;
    assert_eq!(
        world.events(),
        [format!(
            "Warning SyncLoadBalancerFailed web: Error syncing load balancer: annotation {misspelt}: unknown key, \
             did you mean 'lb.{DOMAIN}/internal'?"
        )]
    );
    // The only write is the condition.
    assert_eq!((world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len()), (0, 1));

    world.change("web", |service| service.metadata.annotations = None);
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

// Behaviour: SF10
#[tokio::test(start_paused = true)]
async fn annotation_without_lb_in_the_prefix_is_reported_without_calls() {
    let world = World::start().await;
    let mistaken = format!("{DOMAIN}/internal");
    world.node("a").service(service("web").port(80).annotation(&mistaken, "true"));
    let reported = format!(
        "Warning SyncLoadBalancerFailed web: Error syncing load balancer: annotation {mistaken}: unknown key, did \
         you mean 'lb.{DOMAIN}/internal'?"
    );
    world.eventually_events(&[&reported]).await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn invalid_address_is_reported_once_without_calls() {
    let world = World::start().await;
    world.service(service("web").port(80).with(|spec| spec.load_balancer_ip = Some("not-an-ip".to_owned())));
    world.eventually("an Event is emitted", |world| !world.events().is_empty()).await;
    world.quiet().await;
    assert_eq!(
        world.events(),
        [
            "Warning SyncLoadBalancerFailed web: Error syncing load balancer: spec.loadBalancerIP: invalid IP address \
             \"not-an-ip\" (invalid IP address syntax): write one such as 192.0.2.7"
        ]
    );
    // The only write is the condition.
    assert_eq!((world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_without_api_server() {
    let world = World::start().await;
    world.node("a");
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.kube.away(true);
    tokio::time::sleep(std::time::Duration::from_mins(2)).await;
    world.node("b");
    world.service(service("api").port(443));
    world.kube.away(false);
    world
        .eventually("both changes take effect", |w| {
            !w.ingress("api").is_empty() && w.backends() == ["a", "b"]
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn refused_api_server_write_is_retried() {
    let world = World::start().await;
    world.kube.refuse_next(500);
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
}

// Behaviour: S19, W10
#[tokio::test(start_paused = true)]
async fn status_cleared_by_other_client_is_restored_without_a_call() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    let before = world.cloud.calls("EnsureLoadBalancer");
    world.change("web", |service| service.status = None);
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before);
}

#[tokio::test(start_paused = true)]
async fn failed_load_balancer_causes_an_ensure() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    let before = world.cloud.calls("EnsureLoadBalancer");
    world.cloud.edit(|state| {
        state.load_balancers.values_mut().for_each(|it| it.set_state(LoadBalancerState::Error));
    });
    world.eventually("the ensure is called", |world| world.cloud.calls("EnsureLoadBalancer") > before).await;
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before + 1);
}

/// An API server that is newer than this controller may know more protocols.
// Behaviour: SF3
#[tokio::test(start_paused = true)]
async fn unknown_port_protocol_is_refused_and_load_balancer_kept() {
    let reported = "Warning SyncLoadBalancerFailed web: Error syncing load balancer: \
                spec.ports[1].protocol: unknown protocol 'QUIC': use one of: TCP, UDP, SCTP, or move that \
                port to a Service of another type";
    let world = World::start().await;
    world.node("a");
    world.service(service("web").port(80).port_of("QUIC", 443));
    world.quiet().await;
    assert_eq!(world.events(), [reported]);
    // The only write is the condition.
    assert_eq!((world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len()), (0, 1));

    // An existing load balancer is not changed, except that it follows the nodes.
    let ports = |protocol: &str| service("web").port(80).port_of(protocol, 443).build().spec.unwrap().ports;
    world.change("web", |service| service.spec.as_mut().unwrap().ports = ports("TCP"));
    world.eventually_ingress_of("web").await;
    world.change("web", |service| service.spec.as_mut().unwrap().ports = ports("QUIC"));
    world.node("b");
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    assert_eq!(world.last_ensure().spec.unwrap_or_default().listeners.len(), 2);
    assert_eq!(
        world
            .kube
            .event_objects()
            .iter()
            .filter(|it| it.message.as_deref().is_some_and(|it| it.contains("QUIC")))
            .map(|it| it.count.unwrap_or(1))
            .sum::<i32>(),
        2,
        "{:?}",
        world.events()
    );
    world.stop().await;
}
