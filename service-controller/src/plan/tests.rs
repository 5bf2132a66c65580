//! Plans carried out on a small model of the cloud until nothing is left to do.

mod model;

use cloud_api_proto::v1alpha1::{Adoption, listener::Algorithm};
use insta::assert_snapshot;
use proptest::prelude::*;

use self::model::{World, service};
use super::*;
use crate::plan::service::Kind;

#[test]
fn a_new_service_gets_its_load_balancer() {
    assert_snapshot!(World::with(service()).settled(), @r"
    add finalizer
    ensure (not active yet)
      news: Ensuring
      news: Ensured
    write status [192.0.2.1]
    ");
}

#[test]
fn work_that_takes_long_is_told_once() {
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

#[test]
fn a_restart_with_nothing_to_do_asks_once_and_says_nothing() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    assert_snapshot!(world.settled(), @"ensure (first look)");
}

#[test]
fn a_restart_in_the_middle_goes_on() {
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

#[test]
fn other_nodes_are_told_as_such() {
    let mut world = World::with(service());
    world.settled();
    world.nodes(&["a", "b", "c"]);
    assert_snapshot!(world.settled(), @r"
    ensure (other nodes)
      news: Updated
    ");
    world.nodes(&[]);
    assert_snapshot!(world.settled(), @r"
    ensure (other nodes, no nodes)
      news: NoTargets
    ");
}

#[test]
fn a_changed_port_is_ensured() {
    let mut world = World::with(service());
    world.settled();
    world.service.ports[0].port = 8080;
    assert_snapshot!(world.settled(), @r"
    ensure (something else is wanted)
      news: Ensuring
      news: Ensured
    ");
}

#[test]
fn a_load_balancer_that_vanished_is_built_again() {
    let mut world = World::with(service());
    world.settled();
    world.cloud.clear();
    assert_snapshot!(world.settled(), @r"
    ensure (it is gone)
      news: Ensuring
      news: Ensured
    ");
}

#[test]
fn a_listener_that_somebody_removed_is_asked_about() {
    let mut world = World::with(service());
    world.settled();
    world.cloud[0].listeners = vec!["tcp/81".to_owned()];
    assert_snapshot!(world.settled(), @"ensure (its listeners changed)");
}

#[test]
fn a_mirror_that_lags_behind_is_asked_about_once() {
    let mut world = World::with(service());
    world.settled();
    world.mirror_lags = true;
    world.service.ports[0].port = 8080;
    assert_snapshot!(world.settled(), @r"
    ensure (something else is wanted)
      news: Ensuring
      news: Ensured
    ");
    world.mirror_lags = false;
    assert_snapshot!(world.settled(), @"");
}

#[test]
fn a_mirror_that_still_shows_the_work_is_not_asked_about() {
    let mut world = World::with(service());
    world.settled();
    world.cloud[0].state = State::Pending;
    assert_snapshot!(world.settled(), @"");
    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @r"
    ensure (it is pending)
      news: Ensuring
      news: Ensured
    ");
}

#[test]
fn a_difference_that_stays_is_asked_about_again_after_a_while() {
    let mut world = World::with(service());
    world.settled();
    world.mirror_lags = true;
    world.service.ports[0].port = 8080;
    world.settled();
    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @"ensure (it was changed)");
}

#[test]
fn a_cleared_status_is_written_again_without_a_call() {
    let mut world = World::with(service());
    world.settled();
    world.service.ingress.clear();
    assert_snapshot!(world.settled(), @"write status [192.0.2.1]");
}

#[test]
fn a_deleted_service_is_released_when_nothing_is_left() {
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

#[test]
fn a_removal_is_asked_for_even_if_nothing_is_seen() {
    let mut world = World::with(Service { deleting: true, finalizer: true, ..service() });
    assert_snapshot!(world.settled(), @r"
    delete
      news: Deleting
    release
      news: Deleted
    ");
}

#[test]
fn a_service_that_changes_its_type_twice_is_built_and_removed_twice() {
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
fn a_service_of_another_class_is_never_touched() {
    for class in ["example.com/other", ""] {
        let other = Service { class: Some(class.to_owned()), finalizer: true, deleting: true, ..service() };
        assert_eq!(World::with(other).settled(), "", "{class:?}");
    }
}

#[test]
fn what_is_left_without_our_finalizer_is_reported_and_not_deleted() {
    let mut world = World::with(service());
    world.settled();
    world.service.finalizer = false;
    world.service.deleting = true;
    assert_snapshot!(world.settled(), @"report orphan lb-1");
    assert_eq!(world.cloud.len(), 1);
}

#[test]
fn a_finalizer_that_was_stripped_comes_back() {
    let mut world = World::with(service());
    world.settled();
    world.service.finalizer = false;
    assert_snapshot!(world.settled(), @"add finalizer");
}

#[test]
fn nothing_is_called_for_a_service_that_cannot_work() {
    let mut world = World::with(service());
    world.annotate("intrenal", "true");
    assert_snapshot!(world.settled(), @"refuse annotation lb.cloudadapter.dev/intrenal: no such annotation, did you mean lb.cloudadapter.dev/internal?");
}

#[test]
fn an_annotation_that_goes_lets_the_default_through() {
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
    ensure (first look)
      news: Ensuring
      news: Ensured
    ");
    assert_eq!(algorithm(&mut world), Algorithm::SourceIp);
    world.service.annotations.clear();
    assert!(world.settled().contains("ensure"));
    assert_eq!(algorithm(&mut world), Algorithm::RoundRobin);
}

#[test]
fn a_name_is_shown_in_place_of_the_address_and_costs_no_call() {
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
fn a_load_balancer_is_taken_over_only_if_somebody_says_so() {
    let mut world = World::with(service());
    let asked = |world: &mut World| {
        let takeover = world.next_ask().unwrap().takeover;
        (takeover.adoption(), takeover.id().map(str::to_owned))
    };
    assert_eq!(asked(&mut world), (Adoption::Never, None));
    world.settled();
    world.annotate("adopt", "owned");
    assert_eq!(asked(&mut world), (Adoption::IfUnowned, None));
    world.annotate("id", "lb-7");
    assert_eq!(asked(&mut world), (Adoption::ById, Some("lb-7".to_owned())));
    world.annotate("adopt", "none");
    assert_snapshot!(world.settled(), @"refuse annotation lb.cloudadapter.dev/id: does nothing by itself: set lb.cloudadapter.dev/adopt to owned to take that load balancer over");
}

#[test]
fn a_removal_takes_along_what_was_to_be_taken_over_and_never_by_its_id() {
    let mut world = World::with(Service { deleting: true, finalizer: true, ..service() });
    assert_eq!(world.left_over(), Some(Adoption::Never));
    for (key, value) in [("adopt", "owned"), ("id", "lb-7"), ("algorithm", "no word that anybody knows")] {
        world.annotate(key, value);
        assert_eq!(world.left_over(), Some(Adoption::IfUnowned), "{key}");
    }
}

#[test]
fn without_an_adapter_only_undone_work_is_told() {
    let mut world = World::with(service());
    world.features = None;
    assert_snapshot!(world.settled(), @"wait for the adapter, aloud");

    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.features = None;
    assert_snapshot!(world.settled(), @"wait for the adapter, quietly");
}

#[test]
fn a_load_balancer_in_error_is_built_anew_only_while_nobody_knows_its_address() {
    let mut world = World::with(service());
    let ask = world.next_ask().unwrap();
    assert_eq!(ask.recreate, Recreate::IfError);
    world.settled();
    world.restart();
    let ask = world.next_ask().unwrap();
    assert_eq!(ask.recreate, Recreate::Never);
}

proptest! {
    /// Whatever happens in whatever order: it settles, and then the cloud holds exactly what is wanted.
    #[test]
    fn any_history_settles(events in prop::collection::vec(0..9_u8, 0..24), lags: bool) {
        let mut world = World::with(service());
        world.mirror_lags = lags;
        for event in events {
            world.happens(event);
            if event % 2 == 0 {
                world.look();
            }
        }
        world.mirror_lags = false;
        world.now += memory::LAG;
        world.settled();
        match world.service.role() {
            Role::Wanted => {
                prop_assert_eq!(world.cloud.len(), 1);
                prop_assert!(world.service.finalizer);
                prop_assert!(same_ingress(&world.service.ingress, &world.cloud[0].ingress));
            }
            Role::Cleanup => prop_assert!(false, "still to be cleaned up"),
            Role::Ignored => prop_assert!(world.cloud.is_empty() && !world.service.finalizer),
        }
    }
}
