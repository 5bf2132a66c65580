//! Tests Services with another class or without a class, and adapters that do not support load balancers.

use super::*;

#[test]
fn foreign_class_is_never_changed() {
    for class in ["example.com/other", ""] {
        let class = Classes::default().class(Some(class.to_owned()));
        let other = Service { class, finalizer: true, deleting: true, ..service() };
        assert_eq!(World::with(other).settled(), "");
    }
}

/// The load balancer was created before the Service got another controller's class, and its address is no longer in the status.
#[test]
fn foreign_class_loses_only_tagged_load_balancer() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.service.class = Class::Others;
    world.service.ingress = vec![Ingress { ip: Some("198.51.100.7".to_owned()), ..Ingress::default() }];
    assert_snapshot!(world.settled(), @r"
    delete
      fact: Deleting
    forget
      fact: Deleted
    ");
    assert!(world.service.finalizer && world.service.ingress.len() == 1 && world.cloud.is_empty());
}

/// The adapter's answer takes precedence over the cache.
#[test]
fn deletion_is_not_repeated_while_cache_lags() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.service.class = Class::Others;
    world.service.ingress.clear();
    world.round();
    world.mirror_lags = true;
    assert_snapshot!(world.settled(), @r"
    forget
      fact: Deleted
    ");
    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @r"
    delete
      fact: Deleting
    forget
      fact: Deleted
    ");
    world.mirror_lags = false;
    assert_eq!(world.settled(), "");
    let mut nothing = Memory::default();
    nothing.observe(&world.service, None, world.now);
    assert_eq!(world.memory, nothing, "the only memory left is that the Service had that class");
}

/// The flags changed, but the Service did not.
#[test]
fn serving_load_balancer_of_foreign_class_is_kept() {
    let mut world = World::with(service());
    world.settled();
    world.service.class = Class::Others;
    let (text, _) = world.round();
    assert_snapshot!(text, @"keep lb-1, whose Service has another controller's class");
    world.service.deleting = true;
    world.pending = 1;
    assert_snapshot!(world.settled(), @r"
    delete
      fact: Deleting
    delete
    release
      fact: Deleted
    ");
    assert!(!world.service.finalizer);
}

#[test]
fn service_without_class_is_released_only_if_owned() {
    let lost = || Service { kind: Kind::Other, class: Class::Lost, finalizer: true, ..service() };
    assert_eq!(World::with(lost()).settled(), "");

    let mut made_by_us = World::with(service());
    made_by_us.settled();
    (made_by_us.service.kind, made_by_us.service.class) = (Kind::Other, Class::Lost);
    let mut seen_after_a_restart = World::with(service());
    seen_after_a_restart.settled();
    seen_after_a_restart.restart();
    (seen_after_a_restart.service.kind, seen_after_a_restart.service.class) = (Kind::Other, Class::Lost);
    for mut world in [made_by_us, seen_after_a_restart] {
        world.pending = 1;
        assert!(world.settled().ends_with("release\n  fact: Deleted\n"));
        assert!(world.cloud.is_empty() && !world.service.finalizer);
    }
}

/// The fact that this process created something before the Service got another controller's class is not a proof of ownership.
#[test]
fn formerly_owned_service_of_foreign_class_is_not_released() {
    let mut world = World::with(service());
    world.settled();
    world.cloud.clear();
    // The Service gets another class, whose controller becomes active. Then the type of the Service changes.
    for event in [10, 14, 5] {
        world.happens(event);
        world.settled();
    }
    assert!(world.service.finalizer && world.service.class == Class::Lost);
}

/// Type and class change while the load balancer is being deleted, and the controller of the new class is active.
// Behaviour: S3
#[test]
fn removal_under_foreign_class_keeps_finalizer() {
    let mut world = World::with(service());
    world.settled();
    world.happens(10);
    world.happens(14);
    world.pending = 2;
    assert_eq!(world.round().0, "delete\n  fact: Deleting\n");
    world.happens(5);
    assert_eq!(world.service.class, Class::Lost);
    assert_snapshot!(world.settled(), @r"
    delete
    delete
    forget
      fact: Deleted
    ");
    assert!(world.service.finalizer && world.cloud.is_empty());
}

#[test]
fn adapter_without_load_balancers_is_not_called() {
    let mut world = World::with(service());
    world.features = Some(Features::from([name::ALGORITHM]));
    assert_eq!(world.settled(), "");
    world.annotate("intrenal", "true");
    assert_eq!(world.settled(), "", "annotations are not validated for another class");
    world.service.finalizer = true;
    world.service.deleting = true;
    assert_eq!(world.settled(), "", "the finalizer of the other class's controller has the same name");

    let mut ours = World::with(service());
    ours.settled();
    ours.restart();
    ours.features = Some(Features::from([name::ALGORITHM]));
    ours.service.deleting = true;
    assert_eq!(ours.round().0, "wait for an adapter with load balancers\n");
}
