//! Tests Services with classes of this controller and of other controllers.

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

// Behaviour: S3, W16
#[tokio::test(start_paused = true)]
async fn service_of_foreign_class_is_not_changed() {
    let world = World::start().await;
    world.service(service("web").port(80).class("example.com/other").finalizer(FINALIZER));
    world.quiet().await;
    world.kube.delete::<Service>(&name("web"));
    world.quiet().await;
    assert!(world.kube.writes().is_empty() && world.cloud.calls("DeleteLoadBalancer") == 0);
}

// Behaviour: S2
#[tokio::test(start_paused = true)]
async fn own_class_is_managed_and_sent_to_adapter() {
    let world = World::new().classes(internal(true)).started().await;
    world.service(service("web").port(80).class("example.com/internal"));
    world.eventually_ingress_of("web").await;
    assert_eq!(world.last_ensure().spec.unwrap().class.as_deref(), Some("example.com/internal"));
    world.service(service("api").port(80));
    world.eventually_ingress_of("api").await;
    assert_eq!(world.last_ensure().spec.unwrap().class, None);
    world.kube.delete::<Service>(&name("web"));
    world.eventually("the Service is gone", |world| world.get("web").is_none()).await;
    assert_eq!(world.cloud.read(|state| state.load_balancers.len()), 1);
}

// Behaviour: S2
#[tokio::test(start_paused = true)]
async fn services_without_class_can_be_excluded() {
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

    // The API server removes the class when the type changes. The load balancer proves ownership, even after a restart.
    let world = world.stop().await;
    world.change("own", |service| {
        let spec = service.spec.as_mut().unwrap();
        (spec.type_, spec.load_balancer_class) = (Some("ClusterIP".to_owned()), None);
    });
    let world = world.restart().await;
    world.eventually("the finalizer is removed", |world| world.finalizers("own").is_empty()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
    assert_eq!(world.finalizers("web"), [FINALIZER]);
}

/// The API server removes the class when the type changes, while the finalizer of the other class's controller is still set.
// Behaviour: S3
#[tokio::test(start_paused = true)]
async fn foreign_class_finalizer_is_kept_when_class_is_removed() {
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

        // The other controller has finished, so this Service is treated like any other.
        world.change("web", |service| service.metadata.finalizers = None);
        world.change("web", |service| service.spec.as_mut().unwrap().type_ = Some("LoadBalancer".to_owned()));
        world.eventually_ingress_of("web").await;
        world.change("web", to_cluster_ip);
        world.eventually("the finalizer is removed", |world| world.finalizers("web").is_empty()).await;
        assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
        world.stop().await;
    }
}

/// Two service-controllers run, each with its own adapter. One controller keeps the finalizers that the other controller set.
// Behaviour: S3
#[tokio::test(start_paused = true)]
async fn finalizer_of_second_controller_is_kept() {
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
        world
            .eventually("the Service's own controller removes the finalizer", |world| {
                world.finalizers("web").is_empty()
            })
            .await;
        assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
        world.stop().await;
    }
}

/// The controller stopped between the deletion and the removal of the finalizer, or another client deleted the load balancer.
// Behaviour: S3
#[tokio::test(start_paused = true)]
async fn own_finalizer_is_removed_with_empty_cloud() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await;
    world.cloud.edit(|state| state.load_balancers.clear());
    world.change("web", to_cluster_ip);
    let world = world.restart().await;
    world.eventually("the finalizer is removed", |world| world.finalizers("web").is_empty()).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 1, "parts of the load balancer may be left");
}

/// Changes the type, removes the class and empties the status, as the API server does.
fn to_cluster_ip(service: &mut Service) {
    let spec = service.spec.as_mut().unwrap();
    (spec.type_, spec.load_balancer_class) = (Some("ClusterIP".to_owned()), None);
    service.status = None;
}

/// While no controller runs, a Service without a class first gets another type and then another controller's class.
// Behaviour: S3
#[tokio::test(start_paused = true)]
async fn load_balancer_from_before_foreign_class_is_deleted() {
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
    world
        .eventually("the load balancer is deleted", |world| {
            world.cloud.read(|state| state.load_balancers.is_empty())
        })
        .await;
    world.quiet().await;
    assert_eq!(world.finalizers("web"), [FINALIZER]);
    let patches = world.kube.writes().split_off(writes);
    assert!(patches.iter().all(|it| it.path.contains("events")), "{patches:?}");
}

/// Only this controller's flags changed. The Service did not change.
#[tokio::test(start_paused = true)]
async fn serving_load_balancer_is_kept_when_class_flag_changes() {
    let world = World::new().classes(internal(true)).started().await;
    world.service(service("web").port(80).class("example.com/internal"));
    world.eventually_ingress_of("web").await;
    let world = world.stop().await.classes(Classes::default()).started().await;
    let reported =
        |world: &World| world.events().iter().filter(|it| it.contains("LoadBalancerClassChanged")).count();
    world.eventually("an Event is emitted", |world| reported(world) == 1).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((reported(&world), world.cloud.calls("DeleteLoadBalancer")), (1, 0));

    // The load balancer is still deleted with its Service, because this controller owns it.
    world.kube.delete::<Service>(&name("web"));
    world.eventually("the Service is gone", |world| world.get("web").is_none()).await;
    assert!(world.cloud.read(|state| state.load_balancers.is_empty()));
}

/// With the annotation `hostname`, the status shows the hostname instead of the addresses.
#[tokio::test(start_paused = true)]
async fn load_balancer_behind_hostname_is_kept_when_class_is_lost() {
    let other = Classes { own: Some("example.com/public".to_owned()), unclassed: false };
    for key in [format!("lb.{DOMAIN}/hostname"), "loadbalancer.openstack.org/hostname".to_owned()] {
        let world = World::new().classes(internal(true)).compat(Compat::Openstack).started().await;
        world.service(
            service("own").port(80).class("example.com/internal").annotation(&key, "own.example.com"),
        );
        world.service(service("web").port(80).annotation(&key, "web.example.com"));
        world.eventually_ingress("own", &["own.example.com"]).await;
        world.eventually_ingress("web", &["web.example.com"]).await;
        // An operator that changes the classes may also remove the flag `--compat`.
        let world = world.stop().await.classes(other.clone()).without_compat().started().await;
        let reported = |world: &World| {
            world.events().iter().filter(|it| it.contains("LoadBalancerClassChanged")).count()
        };
        world.eventually("Events for both Services", |world| reported(world) == 2).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!((reported(&world), world.cloud.calls("DeleteLoadBalancer")), (2, 0), "{key}");
        world.stop().await;
    }
}

/// Managed fields as an API server records them for the client that wrote the object, without a subresource.
fn written_by(service: &mut Service, manager: &str) {
    let finalizers = json!({ ".": {}, format!("v:\"{FINALIZER}\""): {} });
    let entry = json!({
        "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": { "f:metadata": { "f:finalizers": finalizers } },
    });
    service.metadata.managed_fields = Some(vec![serde_json::from_value(entry).unwrap()]);
}

/// Returns a Service that never had the type LoadBalancer and whose manifest contains the finalizer.
fn with_finalizer(manager: &str) -> Service {
    let mut web = service("web").port(80).of_type("ClusterIP").finalizer(FINALIZER).build();
    written_by(&mut web, manager);
    web
}

// Behaviour: S4
#[tokio::test(start_paused = true)]
async fn manifest_finalizer_is_removed_and_nothing_else() {
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
        world.eventually("the finalizer is removed", |world| world.finalizers("web").is_empty()).await;
        assert_eq!(world.get("web").is_none(), deleted);
        world.eventually_events(&["Normal DeletedLoadBalancer web: Deleted load balancer"]).await;
        world.quiet().await;
        assert_eq!(world.cloud.calls("DeleteLoadBalancer"), 1, "parts of the load balancer may be left");
        assert_eq!(
            world.cloud.read(|state| state.load_balancers.len()),
            1,
            "the other controller's load balancer stays"
        );
        assert_eq!(world.kube.writes().len(), writes + 1, "the only write removes the finalizer");
        world.stop().await;
    }
}

/// A tool applies its manifest repeatedly.
// Behaviour: S4
#[tokio::test(start_paused = true)]
async fn reapplied_manifest_finalizer_is_removed_ever_slower() {
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
    assert_eq!(world.finalizers("web"), [FINALIZER], "the finalizer is removed rarely");

    // During deletion no client can restore the finalizer.
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.get("web"), None);
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(world.remembered(), 0);
    world.stop().await;
}

/// A load balancer whose name in the cloud matches may belong to another cluster.
#[tokio::test(start_paused = true)]
async fn manifest_finalizer_causes_no_adoption() {
    let world = World::new().compat(Compat::Openstack).started().await;
    let away = AdapterError::new(Reason::VendorUnavailable, "recreated");
    world.cloud.fail_next("DeleteLoadBalancer", away);
    world.kube.put::<Service>(with_finalizer("kubectl-create"));
    world.eventually("the finalizer is removed", |world| world.finalizers("web").is_empty()).await;
    let adoptions =
        world.cloud.read(|state| state.deletes.iter().map(|it| it.adoption()).collect::<Vec<_>>());
    assert!(!adoptions.is_empty() && adoptions.iter().all(|it| *it == Adoption::Never), "{adoptions:?}");
    world.stop().await;
}

/// The Service had another class while this process ran, so the controller of that class may rely on the finalizer.
// Behaviour: S4
#[tokio::test(start_paused = true)]
async fn manifest_finalizer_is_kept_if_other_controller_wrote_status() {
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

// Behaviour: S5
#[tokio::test(start_paused = true)]
async fn foreign_finalizer_is_kept_and_reported_after_a_while() {
    let world = World::start().await;
    world.kube.put::<Service>(with_finalizer("vendor-controller-manager"));
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.events(), [""; 0], "the Service is not being deleted");
    world.kube.delete::<Service>(&name("web"));
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(world.events(), [""; 0], "the other controller may still be active");
    tokio::time::sleep(Duration::from_hours(1)).await;
    let events = world.events();
    assert!(
        matches!(events.as_slice(), [one] if one.starts_with("Warning HeldByAnother web: ") && one.contains("set by vendor-controller-manager")),
        "{events:?}"
    );
    assert_eq!(
        (world.finalizers("web"), world.cloud.calls("DeleteLoadBalancer")),
        (vec![FINALIZER.to_owned()], 0)
    );
    assert!(world.kube.writes().iter().all(|it| it.path.contains("events")));
    world.stop().await;
}
