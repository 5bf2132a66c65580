//! Plans carried out on a small model of the cloud until nothing is left to do.

mod histories;
mod model;

use cloud_api_proto::v1alpha1::{Adoption, listener::Algorithm};
use insta::assert_snapshot;

use self::model::{World, service};
use super::*;
use crate::plan::features::{Features, name};
use crate::plan::service::{Classes, Kind};

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

/// A node that came while it was built makes the adapter go on with one that the cloud shows as ready.
#[test]
fn a_user_waits_until_the_address_is_there_whatever_the_cloud_shows() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.service.ingress.clear();
    assert_eq!(world.next_ask().unwrap().why, Why::Missing);
    world.settled();
    assert!(!world.service.ingress.is_empty());
    world.restart();
    assert_eq!(world.next_ask().unwrap().why, Why::FirstLook, "nobody waits for a comparison");
}

/// All load balancers follow a node that comes: that may take as long as the cloud allows.
#[test]
fn an_address_that_is_known_is_told_before_other_nodes_are_followed() {
    let mut world = World::with(service());
    world.look();
    world.nodes(&["a", "b", "c"]);
    assert_snapshot!(world.settled(), @r"
    write status [192.0.2.1]
    ensure (other nodes)
      news: Updated
    ");
    // Who has an address waits for nothing; nodes are not behind what the API server makes of it.
    world.service.ingress[0].ip = Some("192.0.2.9".to_owned());
    world.nodes(&["a", "b"]);
    assert_snapshot!(world.settled(), @r"
    ensure (other nodes)
      news: Updated
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
      news: NoTargets(None)
    ");
}

/// An API server that lists none is not believed; one that says of the last that it went is.
#[test]
fn an_empty_list_of_nodes_takes_none_from_a_load_balancer() {
    let mut world = World::with(service());
    world.settled();
    let blind = |world: &mut World| {
        world.nodes(&[]);
        world.targets.blind = true;
    };
    blind(&mut world);
    assert_eq!(world.look().0, "wait for nodes\n");
    world.service.ports[0].port = 81;
    assert_eq!(world.look().0, "wait for nodes\n", "it would take them along");
    world.restart();
    assert_eq!(world.look().0, "wait for nodes\n");
    world.service.ports[0].port = 80;
    world.nodes(&["a", "b"]);
    assert_snapshot!(world.settled(), @"ensure (first look)");

    // What has none loses none, and what wants none goes.
    let mut new = World::with(service());
    blind(&mut new);
    assert!(new.settled().contains("ensure (not active yet, no nodes)"));
    blind(&mut world);
    world.service.deleting = true;
    assert!(world.settled().contains("release"));
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
        let class = Classes::default().class(Some(class.to_owned()));
        let other = Service { class, finalizer: true, deleting: true, ..service() };
        assert_eq!(World::with(other).settled(), "");
    }
}

/// Made before the Service had this class: its address is not in the status any more.
#[test]
fn what_is_proven_ours_by_its_tags_goes_from_a_service_of_another_class_and_nothing_else_is_touched() {
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

/// The adapter's word comes before what its mirror shows.
#[test]
fn what_is_removed_is_not_removed_again_while_the_mirror_lags_behind() {
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
    assert_eq!(world.memory, nothing, "and nothing is remembered of it, but that it had that class");
}

/// The class is new to the flags and not to the Service.
#[test]
fn what_serves_a_service_of_another_class_stays_as_long_as_the_service() {
    let mut world = World::with(service());
    world.settled();
    world.service.class = Class::Others;
    let (text, _) = world.look();
    assert_snapshot!(text, @"leave lb-1, though of another's class");
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
fn a_service_that_lost_its_class_is_released_only_if_it_was_ours() {
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

/// What this process made before the Service had that class is no proof.
#[test]
fn a_service_that_was_ours_before_it_was_others_is_not_released() {
    let mut world = World::with(service());
    world.settled();
    world.cloud.clear();
    // Another's class, its controller at work, and back to no load balancer.
    for event in [10, 14, 5] {
        world.happens(event);
        world.settled();
    }
    assert!(world.service.finalizer && world.service.class == Class::Lost);
}

/// Type and class change while its former load balancer goes, and another's controller is at work by then.
#[test]
fn a_removal_that_began_under_another_class_releases_nothing_when_the_class_goes() {
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
fn a_mistake_in_a_running_service_stops_nothing_that_was_good() {
    let mut world = World::with(service());
    world.annotate("hostname", "shop.example.com");
    world.settled();
    world.service.ports[0].port = 81;
    world.annotate("intrenal", "true");
    world.annotate("hostname", "other.example.com");
    let refusal = "refuse annotation lb.cloudadapter.dev/intrenal: no such annotation, did you mean lb.cloudadapter.dev/internal?\n";
    assert_eq!(world.look().0, refusal);

    world.nodes(&["a", "b", "c"]);
    assert_eq!(world.look().0, format!("ensure (other nodes)\n{refusal}  news: Updated\n"));
    assert_eq!(world.cloud[0].listeners, ["tcp/80"], "the last that was good");
    world.cloud.clear();
    assert_eq!(world.look().0, format!("ensure (it is gone)\n{refusal}  news: Ensuring\n  news: Ensured\n"));
    world.service.ingress.clear();
    assert_eq!(world.look().0, format!("write status [shop.example.com]\n{refusal}"));
    assert_eq!(world.look().0, refusal);

    world.service.annotations.remove(&format!("{}intrenal", annotations::keys::PREFIX));
    assert_snapshot!(world.settled(), @r"
    ensure (something else is wanted)
      news: Ensuring
      news: Ensured
    write status [other.example.com]
    ");
    assert_eq!(world.cloud[0].listeners, ["tcp/81"]);
}

#[test]
fn a_removal_that_began_goes_on_though_the_service_asks_for_what_is_refused() {
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
fn what_the_adapter_refuses_stops_nothing_that_was_good_either() {
    let mut world = World::with(service());
    world.settled();
    world.service.ports[0].port = 81;
    world.refuses = world.next_ask().map(|ask| ask.wanted.shape.digest.clone());
    assert_snapshot!(world.settled(), @r"
    ensure (something else is wanted)
      news: Ensuring
    ");
    world.nodes(&["a", "b", "c"]);
    assert_snapshot!(world.settled(), @r"
    ensure (other nodes)
      news: Updated
    ");
    assert_eq!(world.cloud[0].listeners, ["tcp/80"]);

    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @"ensure (something else is wanted)");
    world.now += memory::LAG;
    world.refuses = None;
    assert_snapshot!(world.settled(), @r"
    ensure (something else is wanted)
      news: Ensured
    ");
    assert_eq!(world.cloud[0].listeners, ["tcp/81"]);
}

#[test]
fn after_a_restart_nothing_good_is_known_of_a_service_with_a_mistake() {
    let mut world = World::with(service());
    world.settled();
    world.restart();
    world.annotate("intrenal", "true");
    world.nodes(&["a"]);
    assert!(world.settled().starts_with("refuse annotation"));
}

#[test]
fn an_adapter_without_load_balancers_is_asked_for_nothing() {
    let mut world = World::with(service());
    world.features = Some(Features::from([name::ALGORITHM]));
    assert_eq!(world.settled(), "");
    world.annotate("intrenal", "true");
    assert_eq!(world.settled(), "", "it is none of ours to judge");
    world.service.finalizer = true;
    world.service.deleting = true;
    assert_eq!(world.settled(), "", "another's finalizer has the same name");

    let mut ours = World::with(service());
    ours.settled();
    ours.restart();
    ours.features = Some(Features::from([name::ALGORITHM]));
    ours.service.deleting = true;
    assert_eq!(ours.look().0, "wait for an adapter with load balancers\n");
}

#[test]
fn backends_that_somebody_took_away_are_asked_about() {
    let mut world = World::with(service());
    world.settled();
    world.cloud[0].backends = 1;
    assert_snapshot!(world.settled(), @"ensure (its backends changed from 2 to 1)");
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
    assert_snapshot!(world.settled(), @"refuse annotation lb.cloudadapter.dev/id: does nothing by itself: set lb.cloudadapter.dev/adopt to owned to take that load balancer over, or to shared to use it beside others");
}

#[test]
fn a_removal_takes_along_what_was_to_be_taken_over_and_never_by_its_id() {
    let mut world = World::with(Service { deleting: true, finalizer: true, ..service() });
    assert_eq!(world.left_over(), Some(Adoption::Never));
    for (key, value) in [("adopt", "owned"), ("id", "lb-7"), ("algorithm", "no word that anybody knows")] {
        world.annotate(key, value);
        assert_eq!(world.left_over(), Some(Adoption::IfUnowned), "{key}");
    }
    world.annotate("adopt", "shared");
    assert_eq!(world.left_over(), Some(Adoption::IfUnowned), "what another controller made for it alone");
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
