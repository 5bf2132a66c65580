//! The whole controller between a faked API server and a faked adapter, on paused time.

mod world;

use cloud_api_proto::{
    AdapterError, DOMAIN, Reason,
    v1alpha1::{Adoption, LoadBalancerState, put_backend_set_request::Content},
};
use controller_core::testing::{node, service};
use k8s_openapi::api::core::v1::{Node, Service};

use self::world::{World, name};
use crate::plan::{compat::Compat, service::FINALIZER};

#[tokio::test(start_paused = true)]
async fn a_service_gets_its_load_balancer() {
    let world = World::start().await;
    world.node("a").node("b");
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
    world.eventually("both nodes are behind it", |world| world.backends() == ["a", "b"]).await;
    world
        .eventually_events(&[
            "Normal EnsuringLoadBalancer web: Ensuring load balancer",
            "Normal EnsuredLoadBalancer web: Ensured load balancer",
        ])
        .await;
    assert_eq!(world.kube.writes().len(), 2, "finalizer and status: {:?}", world.kube.writes());
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_takes_its_time_is_polled() {
    let world = World::start().await;
    world.cloud.edit(|state| state.pending = 3);
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    assert_eq!(world.events().iter().filter(|event| event.contains("Ensuring")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_asks_once_and_writes_nothing() {
    let world = World::start().await;
    world.node("a");
    for n in 0..5 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    world
        .eventually("all have an address", |world| {
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

#[tokio::test(start_paused = true)]
async fn an_unrelated_change_costs_nothing() {
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

#[tokio::test(start_paused = true)]
async fn services_that_select_the_same_nodes_share_one_set() {
    let world = World::start().await;
    let zoned = |name: &str, zone: &str| {
        node(name).provider_id(&format!("sim://r1/{name}")).at("10.0.0.1").label("zone", zone)
    };
    world.kube.put::<Node>(zoned("a", "one"));
    world.kube.put::<Node>(zoned("b", "two"));
    let selects = format!("lb.{DOMAIN}/node-selector");
    world.service(service("all").port(80));
    world.eventually_ingress_of("all").await;
    world.eventually("all nodes are behind it", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    let before = world.cloud.calls("PutBackendSet");
    for name in ["web", "api"] {
        world.service(service(name).port(80).annotation(&selects, "zone=one"));
        world.eventually_ingress_of(name).await;
        assert_eq!(world.backends(), ["a"]);
    }
    world.quiet().await;
    assert_eq!(world.cloud.calls("PutBackendSet") - before, 1, "one for both");

    let before = world.cloud.calls("EnsureLoadBalancer");
    world.kube.put::<Node>(zoned("c", "two"));
    world.eventually("the third is behind one", |world| world.backends() == ["a", "b", "c"]).await;
    world.quiet().await;
    assert_eq!(
        world.cloud.calls("EnsureLoadBalancer") - before,
        1,
        "those that select it not are left alone"
    );

    world.change("web", |service| {
        service.metadata.annotations.get_or_insert_default().insert(selects.clone(), "zone=none".to_owned());
    });
    world
        .eventually_events(&[
            "Warning UnAvailableLoadBalancer web: There are no available nodes for LoadBalancer",
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_there_is_taken_over_by_its_id() {
    let world = World::start().await;
    let (id, adopt) = (format!("lb.{DOMAIN}/id"), format!("lb.{DOMAIN}/adopt"));
    world.service(service("web").port(80).annotation(&id, "lb-7").annotation(&adopt, "owned"));
    world.eventually_ingress_of("web").await;
    let ensure = world.last_ensure();
    assert_eq!(ensure.adoption(), Adoption::ById);
    assert_eq!(ensure.known.unwrap().vendor_ids.unwrap().ids["loadbalancer"], "lb-7");
}

#[tokio::test(start_paused = true)]
async fn many_nodes_at_once_are_one_change() {
    let world = World::start().await;
    world.node("a");
    world.service(service("web").port(80)).service(service("api").port(443));
    world
        .eventually("both have an address", |w| !w.ingress("web").is_empty() && !w.ingress("api").is_empty())
        .await;
    world.quiet().await;
    let before = (world.cloud.calls("EnsureLoadBalancer"), world.cloud.calls("PutBackendSet"));
    for n in 0..50 {
        world.node(&format!("n{n:02}"));
    }
    world.eventually("the nodes are behind it", |world| world.backends().len() == 51).await;
    world.quiet().await;
    let after = (world.cloud.calls("EnsureLoadBalancer"), world.cloud.calls("PutBackendSet"));
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 1));
    let delta = world.cloud.read(|state| state.put_backend_sets.last().cloned()).unwrap();
    assert!(
        matches!(delta.content, Some(Content::Delta(delta)) if delta.add.len() == 50 && delta.remove.is_empty())
    );
    let updated = "Normal UpdatedLoadBalancer web: Updated load balancer with new hosts";
    assert!(world.events().iter().any(|event| event.starts_with(updated)), "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn an_adapter_that_forgot_the_nodes_is_given_them_again() {
    let world = World::start().await;
    world.node("a");
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.cloud.edit(|state| state.backend_sets.clear());
    world.node("b");
    world.eventually("the node is behind it", |world| world.backends() == ["a", "b"]).await;
    world.cloud.edit(|state| state.backend_sets.clear());
    world.change("web", |service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080);
    world
        .eventually("the port is there", |world| world.last_ensure().spec.unwrap().listeners[0].port == 8080)
        .await;
    assert_eq!(world.backends(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn without_nodes_people_are_told() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world
        .eventually_events(&[
            "Warning UnAvailableLoadBalancer web: There are no available nodes for LoadBalancer",
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_goes_when_nothing_is_left() {
    let world = World::start().await;
    world.service(service("web").port(80).finalizer("example.com/other"));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.cloud.edit(|state| state.pending = 2);
    world.kube.delete::<Service>(&name("web"));
    world.eventually("ours is off", |world| world.finalizers("web") == ["example.com/other"]).await;
    assert!(world.ingress("web").is_empty());
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    world
        .eventually_events(&[
            "Normal DeletingLoadBalancer web: Deleting load balancer",
            "Normal DeletedLoadBalancer web: Deleted load balancer",
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_its_type_loses_its_load_balancer_even_if_nobody_watched() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let world = world.stop().await;
    world.change("web", |service| service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
    let world = world.restart().await;
    world.eventually("it is released", |world| world.finalizers("web").is_empty()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    assert!(world.ingress("web").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_error_keeps_the_finalizer() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.cloud.fail_next("DeleteLoadBalancer", AdapterError::new(Reason::VendorAuth, "token expired"));
    world.kube.delete::<Service>(&name("web"));
    world
        .eventually("people hear of it", |world| world.events().iter().any(|it| it.contains("token expired")))
        .await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
    world.eventually("it goes in the end", |world| world.get("web").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_vanishes_is_built_again() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    world.cloud.edit(|state| state.load_balancers.clear());
    world.eventually("it is back", |world| world.cloud.read(|state| state.load_balancers.len() == 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_work_is_told_once_and_nothing_is_called() {
    let world = World::start().await;
    let misspelt = format!("lb.{DOMAIN}/internals");
    world.service(service("web").port(80).annotation(&misspelt, "true"));
    world.eventually("people hear of it", |world| !world.events().is_empty()).await;
    world.node("a").node("b");
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    assert_eq!(
        world.events(),
        [format!(
            "Warning SyncLoadBalancerFailed web: Error syncing load balancer: annotation {misspelt}: no such \
             annotation, did you mean lb.{DOMAIN}/internal?"
        )]
    );
    assert_eq!((world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len()), (0, 0));

    world.change("web", |service| service.metadata.annotations = None);
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_none_is_told_once_and_nothing_is_called() {
    let world = World::start().await;
    world.service(service("web").port(80).with(|spec| spec.load_balancer_ip = Some("not-an-ip".to_owned())));
    world.eventually("people hear of it", |world| !world.events().is_empty()).await;
    world.quiet().await;
    assert_eq!(
        world.events(),
        [
            "Warning SyncLoadBalancerFailed web: Error syncing load balancer: spec.loadBalancerIP: \"not-an-ip\" is \
             not an IP address (invalid IP address syntax): write one such as 192.0.2.7"
        ]
    );
    assert_eq!((world.cloud.calls("EnsureLoadBalancer"), world.kube.writes().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_is_repeated_after_its_delay_and_told_once() {
    let world = World::start().await;
    for seconds in [3, 5, 7] {
        let error = AdapterError::new(Reason::VendorThrottled, format!("429, wait {seconds} s"));
        let error = error.retry_after(std::time::Duration::from_secs(seconds));
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    let begin = tokio::time::Instant::now();
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(begin.elapsed().as_secs() >= 15, "{:?}", begin.elapsed());
    world.quiet().await;
    assert_eq!(world.events().iter().filter(|event| event.contains("SyncLoadBalancerFailed")).count(), 1);
}

/// A fail-over of the adapter, or a burst of calls, is over in a moment.
#[tokio::test(start_paused = true)]
async fn what_passes_for_all_services_in_a_moment_is_told_at_none() {
    let world = World::start().await;
    for reason in [Reason::NotLeader, Reason::Draining, Reason::QueueFull] {
        world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(reason, "not now"));
    }
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(!world.events().iter().any(|event| event.contains("Failed")), "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn what_lasts_is_told_at_the_services_that_wait() {
    let world = World::start().await;
    for _ in 0..30 {
        let error = AdapterError::new(Reason::QueueFull, "8192 calls wait");
        let error = error.retry_after(std::time::Duration::from_secs(1));
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let told = world.events().iter().filter(|event| event.contains("8192 calls wait")).count();
    assert_eq!(told, 1, "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_not_let_in_says_so_at_once() {
    let world = World::start().await;
    world.cloud.fail_next("PutBackendSet", AdapterError::new(Reason::CallerForbidden, "you may not"));
    world.service(service("web").port(80));
    world
        .eventually("people hear of it", |world| {
            world.events().iter().any(|event| event.contains("does not let this controller in"))
        })
        .await;
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn without_an_adapter_the_service_says_why_it_waits_and_nothing_is_lost() {
    let cloud_is_away = World::new();
    cloud_is_away.cloud.away(true);
    let world = cloud_is_away.started().await;
    world.service(service("web").port(80));
    world.eventually("people hear why", |world| !world.events().is_empty()).await;
    let event = world.events().remove(0);
    assert!(
        event.contains("SyncLoadBalancerFailed web: Error syncing load balancer: the cloud adapter is"),
        "{event}"
    );
    assert!(world.kube.writes().is_empty());
    world.cloud.away(false);
    world.eventually_ingress("web", &["203.0.113.1"]).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_adapter_goes_on_as_soon_as_it_is_back() {
    let world = World::start().await;
    world.quiet().await;
    world.cloud.away(true);
    world.service(service("web").port(80));
    // Long enough for a backoff of minutes.
    tokio::time::sleep(std::time::Duration::from_mins(20)).await;
    assert_eq!(world.events().iter().filter(|event| event.contains("SyncLoadBalancerFailed")).count(), 1);
    world.cloud.away(false);
    let back = tokio::time::Instant::now();
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert!(back.elapsed().as_secs() <= 15, "{:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_nothing_is_lost() {
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
        .eventually("both changes arrive", |w| !w.ingress("api").is_empty() && w.backends() == ["a", "b"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_api_server_refuses_is_repeated() {
    let world = World::start().await;
    world.kube.refuse_next(500);
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_another_class_is_left_alone() {
    let world = World::start().await;
    world.service(service("web").port(80).class("example.com/other").finalizer(FINALIZER));
    world.quiet().await;
    world.kube.delete::<Service>(&name("web"));
    world.quiet().await;
    assert!(world.kube.writes().is_empty() && world.cloud.calls("DeleteLoadBalancer") == 0);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_nobody_wants_is_reported_and_kept() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    let world = world.stop().await;
    world.change("web", |service| service.metadata.finalizers = None);
    world.kube.delete::<Service>(&name("web"));
    let world = world.restart().await;
    world.quiet().await;
    assert_eq!(world.get("web"), None);
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_cleared_comes_back_without_a_call() {
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
async fn a_load_balancer_in_trouble_is_asked_about() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.quiet().await;
    let before = world.cloud.calls("EnsureLoadBalancer");
    world.cloud.edit(|state| {
        state.load_balancers.values_mut().for_each(|it| it.set_state(LoadBalancerState::Error));
    });
    world.eventually("it is asked for", |world| world.cloud.calls("EnsureLoadBalancer") > before).await;
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_superseded_ends() {
    let world = World::start().await;
    world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::StaleFence, "epoch 7 was here"));
    world.service(service("web").port(80));
    let world = world.ended().await;
    assert!(!world.events().iter().any(|event| event.contains("Failed")), "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn annotations_of_the_go_controller_are_understood_and_told_once() {
    let world = World::new().compat(Compat::Openstack).started().await;
    world.node("a");
    let old = |key: &str| format!("loadbalancer.openstack.org/{key}");
    world.service(
        service("web")
            .port(80)
            .annotation(&old("load-balancer-id"), "lb-7")
            .annotation(&old("node-selector"), "zone=a"),
    );
    let told = "Normal CompatibleAnnotations web: Understood, and better written in our words: \
                loadbalancer.openstack.org/load-balancer-id is lb.cloudadapter.dev/id: lb-7; \
                loadbalancer.openstack.org/node-selector is lb.cloudadapter.dev/node-selector: zone=a";
    world.eventually_events(&[told]).await;
    world.eventually_ingress_of("web").await;
    let ensure = world.last_ensure();
    assert_eq!(ensure.adoption(), Adoption::ById);
    assert_eq!(
        ensure.known.and_then(|known| known.vendor_ids).unwrap_or_default().ids["loadbalancer"],
        "lb-7"
    );
    assert_eq!(world.backends(), [""; 0], "no node has the label");

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
    let told = "Normal IgnoredAnnotations web: These annotations do nothing here: loadbalancer.openstack.org/class; start \
                service-controller with --compat=openstack, or write those of lb.cloudadapter.dev";
    world.eventually_events(&[told]).await;
    world.stop().await;
}
