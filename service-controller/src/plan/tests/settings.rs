//! Tests annotations that are valid, invalid, or refused by the adapter.

use super::*;

#[test]
fn invalid_new_service_causes_no_call() {
    let mut world = World::with(service());
    world.annotate("intrenal", "true");
    assert_snapshot!(world.settled(), @"refuse annotation lb.cloudadapter.dev/intrenal: unknown key, did you mean 'lb.cloudadapter.dev/internal'?");
}

#[test]
fn invalid_settings_keep_last_valid_ones_in_force() {
    let mut world = World::with(service());
    world.annotate("hostname", "shop.example.com");
    world.settled();
    world.service.ports[0].port = 81;
    world.annotate("intrenal", "true");
    world.annotate("hostname", "other.example.com");
    let refusal = "refuse annotation lb.cloudadapter.dev/intrenal: unknown key, did you mean 'lb.cloudadapter.dev/internal'?\n";
    assert_eq!(world.round().0, refusal);

    world.nodes(&["a", "b", "c"]);
    assert_eq!(world.round().0, format!("ensure (nodes changed)\n{refusal}  fact: Updated\n"));
    assert_eq!(world.cloud[0].listeners, ["tcp/80"], "the last valid settings");
    world.cloud.clear();
    assert_eq!(
        world.round().0,
        format!("ensure (the load balancer is gone)\n{refusal}  fact: Ensuring\n  fact: Ensured\n")
    );
    world.service.ingress.clear();
    assert_eq!(world.round().0, format!("write status [shop.example.com]\n{refusal}"));
    assert_eq!(world.round().0, refusal);

    world.service.annotations.remove(&format!("{}intrenal", annotations::keys::PREFIX));
    assert_snapshot!(world.settled(), @r"
    ensure (settings changed)
      fact: Ensuring
      fact: Ensured
    write status [other.example.com]
    ");
    assert_eq!(world.cloud[0].listeners, ["tcp/81"]);
}

#[test]
fn refused_settings_keep_last_valid_ones_in_force() {
    let mut world = World::with(service());
    world.settled();
    world.service.ports[0].port = 81;
    world.refuses = world.next_ask().map(|ask| ask.wanted.shape.digest.clone());
    assert_snapshot!(world.settled(), @r"
    ensure (settings changed)
      fact: Ensuring
    ");
    world.nodes(&["a", "b", "c"]);
    assert_snapshot!(world.settled(), @r"
    ensure (nodes changed)
      fact: Updated
    ");
    assert_eq!(world.cloud[0].listeners, ["tcp/80"]);

    world.now += memory::LAG;
    assert_snapshot!(world.settled(), @"ensure (settings changed)");
    world.now += memory::LAG;
    world.refuses = None;
    assert_snapshot!(world.settled(), @r"
    ensure (settings changed)
      fact: Ensured
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
      fact: Ensuring
      fact: Ensured
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
