//! Plans that are executed on a small model of the cloud until nothing is left to do.

mod histories;
mod model;

use cloud_api_proto::v1alpha1::{Adoption, listener::Algorithm};
use insta::assert_snapshot;

use self::model::{World, service};
use super::*;
use crate::plan::features::{Features, name};
use crate::plan::service::{Classes, Kind};

#[test]
fn new_service_plan() {
    assert_snapshot!(World::with(service()).settled(), @r"
    add finalizer
    ensure (not active yet)
      news: Ensuring
      news: Ensured
    write status [192.0.2.1]
    ");
}

// Behaviour: S9
#[test]
fn long_work_is_reported_once() {
    let mut world = World::with(service());
    world.pending = 2;
    assert_snapshot!(world.settled(), @r"
    add finalizer
    ensure (not active yet)
      news: Ensuring
    ensure (not active yet)
    ensure (not active yet)
      news: Ensured
    write status [192.0.2.1]
    ");
}

/// A node is added during creation, so the adapter continues to work although the cloud shows the load balancer as ready.
#[test]
fn new_service_waits_for_address_whatever_cloud_shows() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.service.ingress.clear();
    assert_eq!(world.next_ask().unwrap().why, Why::Missing);
    world.settled();
    assert!(!world.service.ingress.is_empty());
    world.restart();
    assert_eq!(world.next_ask().unwrap().why, Why::FirstLook, "a comparison is not urgent");
}

/// All load balancers are updated for an added node. In the cloud that may take long.
#[test]
fn known_address_is_written_before_node_update() {
    let mut world = World::with(service());
    world.look();
    world.nodes(&["a", "b", "c"]);
    assert_snapshot!(world.settled(), @r"
    write status [192.0.2.1]
    ensure (nodes changed)
      news: Updated
    ");
    // A Service without an address waits for its address only, not for a node update.
    world.service.ingress[0].ip = Some("192.0.2.9".to_owned());
    world.nodes(&["a", "b"]);
    assert_snapshot!(world.settled(), @r"
    ensure (nodes changed)
      news: Updated
    write status [192.0.2.1]
    ");
}

#[test]
fn restart_in_sync_calls_once_without_events() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    assert_snapshot!(world.settled(), @"ensure (first comparison)");
}

#[test]
fn restart_during_creation_continues() {
    let mut world = World::with(service());
    world.pending = 5;
    world.look();
    world.restart();
    world.pending = 1;
    assert_snapshot!(world.settled(), @r"
    ensure (not active yet)
      news: Ensuring
    ensure (not active yet)
      news: Ensured
    write status [192.0.2.1]
    ");
}

// Behaviour: SN8
#[test]
fn node_update_event() {
    let mut world = World::with(service());
    world.settled();
    world.nodes(&["a", "b", "c"]);
    assert_snapshot!(world.settled(), @r"
    ensure (nodes changed)
      news: Updated
    ");
    world.nodes(&[]);
    assert_snapshot!(world.settled(), @r"
    ensure (nodes changed, no nodes)
      news: NoTargets(None)
    ");
}

/// An empty list is not trusted, unless a deletion of the last node was observed.
// Behaviour: SN7
#[test]
fn empty_node_list_keeps_backends() {
    let mut world = World::with(service());
    world.settled();
    let blind = |world: &mut World| {
        world.nodes(&[]);
        world.targets.blind = true;
    };
    blind(&mut world);
    assert_eq!(world.look().0, "wait for nodes\n");
    world.service.ports[0].port = 81;
    assert_eq!(
        world.look().0,
        "wait for nodes\n",
        "the ensure for the new port would remove the backends, too"
    );
    world.restart();
    assert_eq!(world.look().0, "wait for nodes\n");
    world.service.ports[0].port = 80;
    world.nodes(&["a", "b"]);
    assert_snapshot!(world.settled(), @"ensure (first comparison)");

    // A load balancer without backends has none to lose, and an unneeded load balancer is deleted.
    let mut new = World::with(service());
    blind(&mut new);
    assert!(new.settled().contains("ensure (not active yet, no nodes)"));
    blind(&mut world);
    world.service.deleting = true;
    assert!(world.settled().contains("release"));
}

#[test]
fn port_change_causes_an_ensure() {
    let mut world = World::with(service());
    world.settled();
    world.service.ports[0].port = 8080;
    assert_snapshot!(world.settled(), @r"
    ensure (settings changed)
      news: Ensuring
      news: Ensured
    ");
}

#[test]
fn vanished_load_balancer_is_recreated() {
    let mut world = World::with(service());
    world.settled();
    world.cloud.clear();
    assert_snapshot!(world.settled(), @r"
    ensure (the load balancer is gone)
      news: Ensuring
      news: Ensured
    ");
}

// Behaviour: S20
#[test]
fn removed_listener_causes_an_ensure() {
    let mut world = World::with(service());
    world.settled();
    world.cloud[0].listeners = vec!["tcp/81".to_owned()];
    assert_snapshot!(world.settled(), @"ensure (the listeners changed)");
}

#[test]
fn lagging_cache_causes_a_single_call() {
    let mut world = World::with(service());
    world.settled();
    world.mirror_lags = true;
    world.service.ports[0].port = 8080;
    assert_snapshot!(world.settled(), @r"
    ensure (settings changed)
      news: Ensuring
      news: Ensured
    ");
    world.mirror_lags = false;
    assert_snapshot!(world.settled(), @"");
}

#[test]
fn cache_showing_finished_work_causes_no_call() {
    let mut world = World::with(service());
    world.settled();
    world.cloud[0].state = State::Pending;
    assert_snapshot!(world.settled(), @"");
    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @r"
    ensure (the load balancer is pending)
      news: Ensuring
      news: Ensured
    ");
}

#[test]
fn lasting_difference_is_asked_about_again() {
    let mut world = World::with(service());
    world.settled();
    world.mirror_lags = true;
    world.service.ports[0].port = 8080;
    world.settled();
    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @"ensure (the load balancer was changed)");
}

#[test]
fn cleared_status_is_rewritten_without_a_call() {
    let mut world = World::with(service());
    world.settled();
    world.service.ingress.clear();
    assert_snapshot!(world.settled(), @"write status [192.0.2.1]");
}

#[test]
fn deleted_service_is_released_when_nothing_is_left() {
    let mut world = World::with(service());
    world.settled();
    world.service.deleting = true;
    world.pending = 1;
    assert_snapshot!(world.settled(), @r"
    delete
      news: Deleting
    delete
    release
      news: Deleted
    ");
    assert!(world.cloud.is_empty());
}

// Behaviour: S14
#[test]
fn deletion_is_called_even_if_cache_is_empty() {
    let mut world = World::with(Service { deleting: true, finalizer: true, ..service() });
    assert_snapshot!(world.settled(), @r"
    delete
      news: Deleting
    release
      news: Deleted
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
        assert!(world.settled().contains("news: Ensured"));
        assert_eq!(world.cloud.len(), 1);
    }
}

#[test]
fn foreign_class_is_never_changed() {
    for class in ["example.com/other", ""] {
        let class = Classes::default().class(Some(class.to_owned()));
        let other = Service { class, finalizer: true, deleting: true, ..service() };
        assert_eq!(World::with(other).settled(), "");
    }
}

/// The load balancer was created before the Service had this class: its address is no longer in the status.
#[test]
fn foreign_class_loses_only_tagged_load_balancer() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.service.class = Class::Others;
    world.service.ingress = vec![Ingress { ip: Some("198.51.100.7".to_owned()), ..Ingress::default() }];
    assert_snapshot!(world.settled(), @r"
    delete
      news: Deleting
    forget
      news: Deleted
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
    world.look();
    world.mirror_lags = true;
    assert_snapshot!(world.settled(), @r"
    forget
      news: Deleted
    ");
    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @r"
    delete
      news: Deleting
    forget
      news: Deleted
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
    let (text, _) = world.look();
    assert_snapshot!(text, @"keep lb-1, whose Service has another controller's class");
    world.service.deleting = true;
    world.pending = 1;
    assert_snapshot!(world.settled(), @r"
    delete
      news: Deleting
    delete
    release
      news: Deleted
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
        assert!(world.settled().ends_with("release\n  news: Deleted\n"));
        assert!(world.cloud.is_empty() && !world.service.finalizer);
    }
}

/// The fact that this process created something before the Service had that class is not a proof of ownership.
#[test]
fn formerly_owned_service_of_foreign_class_is_not_released() {
    let mut world = World::with(service());
    world.settled();
    world.cloud.clear();
    // The Service gets another class, whose controller works, and then loses its type.
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
    assert_eq!(world.look().0, "delete\n  news: Deleting\n");
    world.happens(5);
    assert_eq!(world.service.class, Class::Lost);
    assert_snapshot!(world.settled(), @r"
    delete
    delete
    forget
      news: Deleted
    ");
    assert!(world.service.finalizer && world.cloud.is_empty());
}

// Behaviour: S16
#[test]
fn removed_finalizer_is_restored() {
    let mut world = World::with(service());
    world.settled();
    world.service.finalizer = false;
    assert_snapshot!(world.settled(), @"add finalizer");
}

#[test]
fn invalid_new_service_causes_no_call() {
    let mut world = World::with(service());
    world.annotate("intrenal", "true");
    assert_snapshot!(world.settled(), @"refuse annotation lb.cloudadapter.dev/intrenal: no such annotation, did you mean lb.cloudadapter.dev/internal?");
}

#[test]
fn invalid_settings_keep_last_valid_ones_in_force() {
    let mut world = World::with(service());
    world.annotate("hostname", "shop.example.com");
    world.settled();
    world.service.ports[0].port = 81;
    world.annotate("intrenal", "true");
    world.annotate("hostname", "other.example.com");
    let refusal = "refuse annotation lb.cloudadapter.dev/intrenal: no such annotation, did you mean lb.cloudadapter.dev/internal?\n";
    assert_eq!(world.look().0, refusal);

    world.nodes(&["a", "b", "c"]);
    assert_eq!(world.look().0, format!("ensure (nodes changed)\n{refusal}  news: Updated\n"));
    assert_eq!(world.cloud[0].listeners, ["tcp/80"], "the last valid settings");
    world.cloud.clear();
    assert_eq!(
        world.look().0,
        format!("ensure (the load balancer is gone)\n{refusal}  news: Ensuring\n  news: Ensured\n")
    );
    world.service.ingress.clear();
    assert_eq!(world.look().0, format!("write status [shop.example.com]\n{refusal}"));
    assert_eq!(world.look().0, refusal);

    world.service.annotations.remove(&format!("{}intrenal", annotations::keys::PREFIX));
    assert_snapshot!(world.settled(), @r"
    ensure (settings changed)
      news: Ensuring
      news: Ensured
    write status [other.example.com]
    ");
    assert_eq!(world.cloud[0].listeners, ["tcp/81"]);
}

// Behaviour: S18
#[test]
fn removal_goes_on_for_invalid_service() {
    let mut world = World::with(service());
    world.settled();
    (world.service.kind, world.pending) = (Kind::Other, 2);
    assert_eq!(world.look().0, "delete\n  news: Deleting\n");
    world.service.kind = Kind::LoadBalancer;
    world.annotate("intrenal", "true");
    let refusal = "refuse annotation lb.cloudadapter.dev/intrenal: no such annotation, did you mean lb.cloudadapter.dev/internal?\n";
    assert_eq!(world.settled(), format!("delete\n{refusal}delete\n{refusal}{refusal}"));
    assert!(world.cloud.is_empty() && world.service.finalizer);
    world.service.annotations.clear();
    assert!(world.settled().contains("news: Ensured"));
}

#[test]
fn refused_settings_keep_last_valid_ones_in_force() {
    let mut world = World::with(service());
    world.settled();
    world.service.ports[0].port = 81;
    world.refuses = world.next_ask().map(|ask| ask.wanted.shape.digest.clone());
    assert_snapshot!(world.settled(), @r"
    ensure (settings changed)
      news: Ensuring
    ");
    world.nodes(&["a", "b", "c"]);
    assert_snapshot!(world.settled(), @r"
    ensure (nodes changed)
      news: Updated
    ");
    assert_eq!(world.cloud[0].listeners, ["tcp/80"]);

    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @"ensure (settings changed)");
    world.now += memory::LAG;
    world.refuses = None;
    assert_snapshot!(world.settled(), @r"
    ensure (settings changed)
      news: Ensured
    ");
    assert_eq!(world.cloud[0].listeners, ["tcp/81"]);
}

#[test]
fn invalid_service_has_no_fallback_after_restart() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.annotate("intrenal", "true");
    world.nodes(&["a"]);
    assert!(world.settled().starts_with("refuse annotation"));
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
    assert_eq!(ours.look().0, "wait for an adapter with load balancers\n");
}

// Behaviour: S20
#[test]
fn removed_backends_cause_an_ensure() {
    let mut world = World::with(service());
    world.settled();
    world.cloud[0].backends = 1;
    assert_snapshot!(world.settled(), @"ensure (the backends changed from 2 to 1)");
}

#[test]
fn removed_annotation_restores_default() {
    let mut world = World::with(service());
    world.defaults.set("algorithm", "round-robin").unwrap();
    world.settled();
    let algorithm = |world: &mut World| {
        world.restart();
        world.next_ask().unwrap().spec.listeners[0].algorithm()
    };
    assert_eq!(algorithm(&mut world), Algorithm::RoundRobin);
    world.annotate("algorithm", "source-ip");
    assert_snapshot!(world.settled(), @r"
    ensure (first comparison)
      news: Ensuring
      news: Ensured
    ");
    assert_eq!(algorithm(&mut world), Algorithm::SourceIp);
    world.service.annotations.clear();
    assert!(world.settled().contains("ensure"));
    assert_eq!(algorithm(&mut world), Algorithm::RoundRobin);
}

#[test]
fn hostname_annotation_costs_no_call() {
    let mut world = World::with(service());
    world.settled();
    world.annotate("hostname", "shop.example.com");
    assert_snapshot!(world.settled(), @"write status [shop.example.com]");
    world.service.annotations.clear();
    assert_snapshot!(world.settled(), @"write status [192.0.2.1]");
    world.annotate("ip-mode", "Proxy");
    assert_snapshot!(world.settled(), @"write status [192.0.2.1 (Proxy)]");
}

#[test]
fn load_balancer_is_adopted_only_on_request() {
    let mut world = World::with(service());
    let asked = |world: &mut World| {
        let takeover = world.next_ask().unwrap().wanted.shape.takeover.clone();
        (takeover.adoption(), takeover.id().map(str::to_owned))
    };
    assert_eq!(asked(&mut world), (Adoption::Never, None));
    world.settled();
    world.annotate("adopt", "owned");
    assert_eq!(asked(&mut world), (Adoption::IfUnowned, None));
    world.annotate("id", "lb-7");
    assert_eq!(asked(&mut world), (Adoption::ById, Some("lb-7".to_owned())));
    world.annotate("adopt", "shared");
    world.features = Some(Features::from([name::LOAD_BALANCERS, name::SHARED]));
    assert_eq!(asked(&mut world), (Adoption::Never, None));
    assert_eq!(world.next_ask().unwrap().spec.load_balancer_id, "lb-7");
    world.annotate("adopt", "none");
    world.restart();
    assert_snapshot!(world.settled(), @"refuse annotation lb.cloudadapter.dev/id: has no effect by itself: set lb.cloudadapter.dev/adopt to owned to adopt that load balancer, or to shared to share it");
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

#[test]
fn without_adapter_only_pending_work_is_reported() {
    let mut world = World::with(service());
    world.features = None;
    assert_snapshot!(world.settled(), @"wait for the adapter (reported)");

    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.features = None;
    assert_snapshot!(world.settled(), @"wait for the adapter (not reported)");
}

#[test]
fn failed_load_balancer_is_recreated_only_without_address() {
    let mut world = World::with(service());
    let ask = world.next_ask().unwrap();
    assert_eq!(ask.recreate, Recreate::IfError);
    world.settled();
    world.restart();
    let ask = world.next_ask().unwrap();
    assert_eq!(ask.recreate, Recreate::Never);
}
