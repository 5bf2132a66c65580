//! Executes plans on a small model of the cloud until nothing is left to do.

mod classes;
mod histories;
mod model;
mod removal;
mod settings;

use cloud_api_proto::v1alpha1::{Adoption, listener::Algorithm};
use insta::assert_snapshot;

use self::model::{World, service};
use super::*;
use crate::plan::cloud::EnsureResult;
use crate::plan::conditions::Readiness;
use crate::plan::features::{Features, name};
use crate::plan::memory::Event;
use crate::plan::service::{Classes, Kind};
use crate::plan::verdict::{InSync, Shared};

#[test]
fn new_service_plan() {
    assert_snapshot!(World::with(service()).settled(), @r"
    add finalizer
    ensure (not active yet)
      fact: Ensuring
      fact: Ensured
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
      fact: Ensuring
    ensure (not active yet)
    ensure (not active yet)
      fact: Ensured
    write status [192.0.2.1]
    ");
}

/// Checks what a reconcile with nothing to do records, after the load balancer was created with these settings.
#[test]
fn only_requested_settings_without_faults_are_settled() {
    for (stands_in, state, want, is_ready) in [
        (false, State::Active, InSync::Settled, true),
        (true, State::Active, InSync::StillWaits, false),
        (false, State::Degraded, InSync::StillWaits, false),
    ] {
        let mut world = World::with(service());
        let ask = world.next_ask().unwrap();
        let published = Shared::before(&[Action::AddFinalizer, Action::Ensure(Box::new(ask.clone()))]);
        assert_eq!(published, Shared::Publish);
        let answer = EnsureResult { state, ..world.ensure(&ask) };
        world.memory.on(Event::EnsureAnswered { ask: &ask, answer: &answer, seen: None });
        let validated = Validated { stands_in, ..Validated::default() };
        assert_eq!(
            InSync::of(&world.service, &mut world.memory, &validated, None),
            want,
            "{stands_in} {state}"
        );
        assert_eq!(world.memory.readiness == Some(Readiness::Ready), is_ready, "{stands_in} {state}");
    }
}

/// A node is added while the load balancer is created. The adapter continues to work although the cloud shows the load balancer as ready.
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

/// An added node causes an update of all load balancers, which may take long in the cloud.
#[test]
fn known_address_is_written_before_node_update() {
    let mut world = World::with(service());
    world.round();
    world.nodes(&["a", "b", "c"]);
    assert_snapshot!(world.settled(), @r"
    write status [192.0.2.1]
    ensure (nodes changed)
      fact: Updated
    ");
    // A Service without an address waits for its address only, not for a node update.
    world.service.ingress[0].ip = Some("192.0.2.9".to_owned());
    world.nodes(&["a", "b"]);
    assert_snapshot!(world.settled(), @r"
    ensure (nodes changed)
      fact: Updated
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
    world.round();
    world.restart();
    world.pending = 1;
    assert_snapshot!(world.settled(), @r"
    ensure (not active yet)
      fact: Ensuring
    ensure (not active yet)
      fact: Ensured
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
      fact: Updated
    ");
    world.nodes(&[]);
    assert_snapshot!(world.settled(), @r"
    ensure (nodes changed, no nodes)
      fact: NoTargets(LeftOut({}))
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
    assert_eq!(world.round().0, "wait for nodes\n");
    world.service.ports[0].port = 81;
    assert_eq!(
        world.round().0,
        "wait for nodes\n",
        "the ensure for the new port would remove the backends, too"
    );
    world.restart();
    assert_eq!(world.round().0, "wait for nodes\n");
    world.service.ports[0].port = 80;
    world.nodes(&["a", "b"]);
    assert_snapshot!(world.settled(), @"ensure (first comparison)");

    // A load balancer without backends cannot lose any, and a load balancer that is not needed is deleted.
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
      fact: Ensuring
      fact: Ensured
    ");
}

#[test]
fn vanished_load_balancer_is_recreated() {
    let mut world = World::with(service());
    world.settled();
    world.cloud.clear();
    assert_snapshot!(world.settled(), @r"
    ensure (the load balancer is gone)
      fact: Ensuring
      fact: Ensured
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
      fact: Ensuring
      fact: Ensured
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
      fact: Ensuring
      fact: Ensured
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

// Behaviour: S16
#[test]
fn removed_finalizer_is_restored() {
    let mut world = World::with(service());
    world.settled();
    world.service.finalizer = false;
    assert_snapshot!(world.settled(), @"add finalizer");
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
