//! Services of classes, ours and others'.

use std::time::Duration;

use cloud_api_proto::{AdapterError, DOMAIN, Reason, v1alpha1::Adoption};
use controller_core::testing::service;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use super::world::{World, name};
use crate::plan::{
    compat::Compat,
    service::{Classes, FINALIZER},
};

fn internal(unclassed: bool) -> Classes {
    Classes { own: Some("example.com/internal".to_owned()), unclassed }
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
async fn a_class_of_our_own_is_served_and_told_to_the_adapter() {
    let world = World::new().classes(internal(true)).started().await;
    world.service(service("web").port(80).class("example.com/internal"));
    world.eventually_ingress_of("web").await;
    assert_eq!(world.last_ensure().spec.unwrap().class.as_deref(), Some("example.com/internal"));
    world.service(service("api").port(80));
    world.eventually_ingress_of("api").await;
    assert_eq!(world.last_ensure().spec.unwrap().class, None);
    world.kube.delete::<Service>(&name("web"));
    world.eventually("it goes", |world| world.get("web").is_none()).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn services_without_a_class_may_be_left_to_another_controller() {
    let world = World::new().classes(internal(false)).started().await;
    world.service(service("web").port(80).finalizer(FINALIZER));
    world.service(service("own").port(80).class("example.com/internal"));
    world.eventually_ingress_of("own").await;
    world.quiet().await;
    let before = (world.kube.writes().len(), world.cloud.calls("EnsureLoadBalancer"));
    world.change("web", |service| service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
    world.quiet().await;
    assert_eq!((world.kube.writes().len(), world.cloud.calls("EnsureLoadBalancer")), before);
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0);
    assert_eq!(world.finalizers("web"), [FINALIZER]);

    // The API server takes the class away with the type: what is ours is known by its load balancer, after a restart, too.
    let world = world.stop().await;
    world.change("own", |service| {
        let spec = service.spec.as_mut().unwrap();
        (spec.type_, spec.load_balancer_class) = (Some("ClusterIP".to_owned()), None);
    });
    let world = world.restart().await;
    world.eventually("it is released", |world| world.finalizers("own").is_empty()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    assert_eq!(world.finalizers("web"), [FINALIZER]);
}

/// The class goes with the type, while the finalizer of the class's own controller is still there.
#[tokio::test(start_paused = true)]
async fn the_finalizer_of_another_class_is_not_taken_when_the_service_loses_that_class() {
    for watched in [true, false] {
        let mut world = World::start().await;
        world.service(service("web").port(80).class("example.com/other").finalizer(FINALIZER));
        world.quiet().await;
        if !watched {
            world = world.stop().await;
        }
        world.change("web", to_cluster_ip);
        if !watched {
            world = world.restart().await;
        }
        world.quiet().await;
        assert!(world.kube.writes().is_empty(), "{watched}: {:?}", world.kube.writes());
        assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 0, "{watched}");

        // Its controller is done; from now on it is as any other.
        world.change("web", |service| service.metadata.finalizers = None);
        world.change("web", |service| service.spec.as_mut().unwrap().type_ = Some("LoadBalancer".to_owned()));
        world.eventually_ingress_of("web").await;
        world.change("web", to_cluster_ip);
        world.eventually("it is released", |world| world.finalizers("web").is_empty()).await;
        assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
        world.stop().await;
    }
}

/// Two of our kind, each with its own adapter: what one of them put there the other leaves.
#[tokio::test(start_paused = true)]
async fn what_one_of_two_controllers_put_on_a_service_the_other_does_not_take_off() {
    for (theirs, ours) in [(internal(false), Classes::default()), (Classes::default(), internal(false))] {
        let world = World::new().classes(theirs.clone()).started().await;
        let web = service("web").port(80);
        world.service(if theirs.unclassed { web } else { web.class("example.com/internal") });
        world.eventually_ingress_of("web").await;
        let world = world.stop().await;
        let of_theirs = world.cloud.edit(|state| std::mem::take(&mut state.load_balancers));
        world.change("web", to_cluster_ip);

        let world = world.classes(ours).started().await;
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert_eq!(
            (world.finalizers("web"), world.cloud.calls("DeleteLoadBalancer")),
            (vec![FINALIZER.to_owned()], 0)
        );

        let world = world.stop().await.classes(theirs).started().await;
        world.cloud.edit(|state| state.load_balancers = of_theirs);
        world.eventually("who put it there takes it off", |world| world.finalizers("web").is_empty()).await;
        assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
        world.stop().await;
    }
}

/// We ended after the removal and before the release; or somebody removed it at the cloud meanwhile.
#[tokio::test(start_paused = true)]
async fn our_finalizer_is_known_as_ours_though_nothing_is_left_at_the_cloud() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await;
    world.cloud.edit(|state| state.load_balancers.clear());
    world.change("web", to_cluster_ip);
    let world = world.restart().await;
    world.eventually("it is released", |world| world.finalizers("web").is_empty()).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 1, "parts of it may be left");
}

/// As the API server does it: the class goes with the type, and the status is emptied.
fn to_cluster_ip(service: &mut Service) {
    let spec = service.spec.as_mut().unwrap();
    (spec.type_, spec.load_balancer_class) = (Some("ClusterIP".to_owned()), None);
    service.status = None;
}

/// From no class to another's, by way of another type, while nobody watched.
#[tokio::test(start_paused = true)]
async fn what_was_made_before_a_service_had_another_class_goes_and_nothing_else_is_touched() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await;
    world.change("web", |service| {
        service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".to_owned());
        service.status = None;
    });
    let writes = world.kube.writes().len();
    let world = world.restart().await;
    world.eventually("it goes", |world| world.cloud.read(|state| state.load_balancers.is_empty())).await;
    world.quiet().await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
    let patches = world.kube.writes().split_off(writes);
    assert!(patches.iter().all(|it| it.path.contains("events")), "{patches:?}");
}

/// The flags changed and not the Service.
#[tokio::test(start_paused = true)]
async fn a_class_that_is_ours_no_more_takes_no_load_balancer_that_serves() {
    let world = World::new().classes(internal(true)).started().await;
    world.service(service("web").port(80).class("example.com/internal"));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await.classes(Classes::default()).started().await;
    let told =
        |world: &World| world.events().iter().filter(|it| it.contains("LoadBalancerClassChanged")).count();
    world.eventually("people hear of it", |world| told(world) == 1).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((told(&world), world.cloud.calls("DeleteLoadBalancer")), (1, 0));

    // With its Service it goes all the same: it is ours.
    world.kube.delete::<Service>(&name("web"));
    world.eventually("it goes", |world| world.get("web").is_none()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
}

/// The status then shows the name in place of the addresses.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_serves_under_a_name_stays_when_its_class_is_ours_no_more() {
    let other = Classes { own: Some("example.com/public".to_owned()), unclassed: false };
    for key in [format!("lb.{DOMAIN}/hostname"), "loadbalancer.openstack.org/hostname".to_owned()] {
        let world = World::new().classes(internal(true)).compat(Compat::Openstack).started().await;
        world.service(
            service("own").port(80).class("example.com/internal").annotation(&key, "own.example.com"),
        );
        world.service(service("web").port(80).annotation(&key, "web.example.com"));
        world.eventually_ingress("own", &["own.example.com"]).await;
        world.eventually_ingress("web", &["web.example.com"]).await;
        // Whoever changes the classes may leave that flag out, too.
        let world = world.stop().await.classes(other.clone()).without_compat().started().await;
        let told = |world: &World| {
            world.events().iter().filter(|it| it.contains("LoadBalancerClassChanged")).count()
        };
        world.eventually("people hear of both", |world| told(world) == 2).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!((told(&world), world.cloud.calls("DeleteLoadBalancer")), (2, 0), "{key}");
        world.stop().await;
    }
}

/// As an API server notes it: who wrote the object, and nothing by a subresource.
fn written_by(service: &mut Service, manager: &str) {
    let finalizers = json!({ ".": {}, format!("v:\"{FINALIZER}\""): {} });
    let entry = json!({
        "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": { "f:metadata": { "f:finalizers": finalizers } },
    });
    service.metadata.managed_fields = Some(vec![serde_json::from_value(entry).unwrap()]);
}

/// A Service that was never a load balancer, with the finalizer in its manifest.
fn with_finalizer(manager: &str) -> Service {
    let mut web = service("web").port(80).of_type("ClusterIP").finalizer(FINALIZER).build();
    written_by(&mut web, manager);
    web
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_came_with_the_service_is_taken_off_and_nothing_else_goes() {
    for deleted in [false, true] {
        let world = World::start().await;
        let other = service("other").port(80);
        world.service(other);
        world.eventually_ingress_of("other").await;
        let writes = world.kube.writes().len();
        world.kube.put::<Service>(with_finalizer("kubectl-create"));
        if deleted {
            world.kube.delete::<Service>(&name("web"));
        }
        world.eventually("it is released", |world| world.finalizers("web").is_empty()).await;
        assert_eq!(world.get("web").is_none(), deleted);
        world.eventually_events(&["Normal DeletedLoadBalancer web: Deleted load balancer"]).await;
        world.quiet().await;
        assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 1, "parts may be left");
        assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1, "the other one's");
        assert_eq!(world.kube.writes().len(), writes + 1, "the finalizer");
        world.stop().await;
    }
}

/// A tool that applies its manifest again and again.
#[tokio::test(start_paused = true)]
async fn a_manifest_s_finalizer_that_is_put_back_each_time_is_taken_off_ever_slower() {
    let world = World::start().await;
    world.quiet().await;
    let begin = tokio::time::Instant::now();
    while begin.elapsed() < Duration::from_hours(1) {
        if world.finalizers("web").is_empty() {
            world.kube.put::<Service>(with_finalizer("kubectl-create"));
            assert!(world.kube.writes().len() < 100, "after {:?}", begin.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (written, asked) = (world.kube.writes().len(), world.cloud.calls("DeleteLoadBalancer"));
    assert!((10..=25).contains(&written), "{written} writes in an hour");
    assert!((10..=26).contains(&asked), "{asked} calls in an hour");
    assert_eq!(world.finalizers("web"), [FINALIZER], "it has its time");

    // Nobody can put it back on one that goes.
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.get("web"), None);
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(world.remembered(), 0);
    world.stop().await;
}

/// What has its name at the cloud may be another cluster's.
#[tokio::test(start_paused = true)]
async fn for_a_finalizer_that_came_with_the_service_nothing_is_taken_over() {
    let world = World::new().compat(Compat::Openstack).started().await;
    let away = AdapterError::new(Reason::VendorUnavailable, "come again");
    world.cloud.fail_next("DeleteLoadBalancer", away);
    world.kube.put::<Service>(with_finalizer("kubectl-create"));
    world.eventually("it is released", |world| world.finalizers("web").is_empty()).await;
    let adoptions =
        world.cloud.read(|state| state.deletes.iter().map(|it| it.adoption()).collect::<Vec<_>>());
    assert!(!adoptions.is_empty() && adoptions.iter().all(|it| *it == Adoption::Never), "{adoptions:?}");
    world.stop().await;
}

/// It had another's class while we watched: its controller may have found the finalizer there.
#[tokio::test(start_paused = true)]
async fn the_finalizer_of_a_manifest_may_be_what_another_controller_relies_on() {
    let world = World::start().await;
    let mut web = service("web").port(80).class("example.com/other").finalizer(FINALIZER).build();
    written_by(&mut web, "kubectl-create");
    world.kube.put::<Service>(web);
    world.quiet().await;
    world.change("web", to_cluster_ip);
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(
        (world.finalizers("web"), world.cloud.calls("DeleteLoadBalancer")),
        (vec![FINALIZER.to_owned()], 0)
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_somebody_elses_finalizer_holds_is_told_after_a_while_and_left_alone() {
    let world = World::start().await;
    world.kube.put::<Service>(with_finalizer("vendor-controller-manager"));
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.events(), [""; 0], "nobody deleted it");
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(world.events(), [""; 0], "its controller may be at work");
    tokio::time::sleep(Duration::from_hours(1)).await;
    let events = world.events();
    assert!(
        matches!(events.as_slice(), [one] if one.starts_with("Warning HeldByAnother web: ") && one.contains("vendor-controller-manager put it there")),
        "{events:?}"
    );
    assert_eq!(
        (world.finalizers("web"), world.cloud.calls("DeleteLoadBalancer")),
        (vec![FINALIZER.to_owned()], 0)
    );
    assert!(world.kube.writes().iter().all(|it| it.path.contains("events")));
    world.stop().await;
}
