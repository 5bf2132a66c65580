//! Deletion of load balancers.

use super::*;

#[test]
fn deleted_service_is_released_when_nothing_is_left() {
    let mut world = World::with(service());
    world.settled();
    world.service.deleting = true;
    world.pending = 1;
    assert_snapshot!(world.settled(), @r"
    delete
      fact: Deleting
    delete
    release
      fact: Deleted
    ");
    assert!(world.cloud.is_empty());
}

// Behaviour: S14
#[test]
fn deletion_is_called_even_if_cache_is_empty() {
    let mut world = World::with(Service { deleting: true, finalizer: true, ..service() });
    assert_snapshot!(world.settled(), @r"
    delete
      fact: Deleting
    release
      fact: Deleted
    ");
}

// Behaviour: S18
#[test]
fn two_type_changes_delete_and_create_twice() {
    let mut world = World::with(service());
    world.settled();
    for _ in 0..2 {
        world.service.kind = Kind::Other;
        assert!(world.settled().contains("delete"));
        assert!(world.cloud.is_empty() && !world.service.finalizer);
        world.service.kind = Kind::LoadBalancer;
        assert!(world.settled().contains("fact: Ensured"));
        assert_eq!(world.cloud.len(), 1);
    }
}

// Behaviour: S18
#[test]
fn removal_goes_on_for_invalid_service() {
    let mut world = World::with(service());
    world.settled();
    (world.service.kind, world.pending) = (Kind::Other, 2);
    assert_eq!(world.round().0, "delete\n  fact: Deleting\n");
    world.service.kind = Kind::LoadBalancer;
    world.annotate("intrenal", "true");
    let refusal = "refuse annotation lb.cloudadapter.dev/intrenal: unknown key, did you mean 'lb.cloudadapter.dev/internal'?\n";
    assert_eq!(world.settled(), format!("delete\n{refusal}delete\n{refusal}{refusal}"));
    assert!(world.cloud.is_empty() && world.service.finalizer);
    world.service.annotations.clear();
    assert!(world.settled().contains("fact: Ensured"));
}

#[test]
fn removal_adopts_by_name_and_never_by_id() {
    let mut world = World::with(Service { deleting: true, finalizer: true, ..service() });
    assert_eq!(world.left_over(), Some(Adoption::Never));
    for (key, value) in [("adopt", "owned"), ("id", "lb-7"), ("algorithm", "an unknown value")] {
        world.annotate(key, value);
        assert_eq!(world.left_over(), Some(Adoption::IfUnowned), "{key}");
    }
    world.annotate("adopt", "shared");
    assert_eq!(
        world.left_over(),
        Some(Adoption::IfUnowned),
        "the load balancer that another controller created for this Service alone"
    );
}

/// The settings are valid but not in force yet, so the load balancer may still be needed.
#[test]
fn removal_waits_for_listing_of_valid_service() {
    let (service, mut memory, features) =
        (service(), Memory::default(), Features::from([name::LOAD_BALANCERS]));
    memory.on(Event::DeleteCalled { now: Duration::ZERO });
    let facts = Facts {
        validated: &Validated { awaits_listing: true, ..Validated::default() },
        targets: &Targets::default(),
        defaults: &Defaults::default(),
        features: Some(&features),
        cloud: None,
        now: Duration::ZERO,
    };
    assert_eq!(plan(&service, &memory, &facts).to_string(), "wait for the adapter (not reported)\n");
}
