//! Services that are refused because of their number of members, and Services that exceed the limit but are not refused.

use std::{sync::Arc, time::Duration};

use super::{
    super::{
        annotations::{keys::PREFIX, settings::Defaults},
        bounds::Bounds,
        cloud::{Details, State},
        features::{Features, name},
        memory::Memory,
        service::{Kind, Port, Transport},
        spec::Checked,
        validated::Validated,
    },
    *,
};

const MOST: usize = 20;

fn service(ports: &[u16], selector: Option<&str>) -> Service {
    let selector = selector.map(|value| (format!("{PREFIX}node-selector"), value.to_owned()));
    let port = |&port: &u16| Port::plain(Transport::Tcp, port, 30_000 + port);
    Service {
        kind: Kind::LoadBalancer,
        ports: ports.iter().map(port).collect(),
        annotations: selector.into_iter().collect(),
        ..Service::default()
    }
}

fn wanted(service: &Service) -> Arc<Wanted> {
    let features = Features::from([name::LOAD_BALANCERS]);
    let (memory, now) = (Memory::default(), Duration::ZERO);
    Validated::of(service, &memory, &Defaults::default(), Some(&features), now).wanted.unwrap()
}

/// Returns a memory in which the settings of this Service are confirmed.
fn confirmed(service: &Service) -> Memory {
    let mut memory = Memory::default();
    memory.settings.accepted = Some(wanted(service));
    memory
}

fn shown(listeners: &[&str], backends: u32) -> Vec<Balancer> {
    vec![Balancer {
        vendor_id: "lb-1".to_owned(),
        state: State::Active,
        applied_hash: "h".to_owned(),
        ingress: Vec::new(),
        listeners: listeners.iter().map(|&it| it.to_owned()).collect(),
        backends,
        details: Details::default(),
    }]
}

fn validated(service: &Service, nodes: usize, memory: &Memory, seen: Option<&[Balancer]>) -> &'static str {
    match verdict(
        service,
        &wanted(service),
        MOST,
        &Present { nodes, accepted: memory.settings.accepted.as_ref(), seen },
    ) {
        Verdict::Fits => "fits",
        Verdict::Grown(_) => "grown",
        Verdict::Refused(_) => "refused",
        Verdict::Unlisted => "unlisted",
    }
}

#[test]
fn member_limit_applies_to_new_load_balancers() {
    let (two, none) = (service(&[80, 81], None), Memory::default());
    for (nodes, want) in [(0, "fits"), (10, "fits"), (11, "refused"), (usize::MAX, "refused")] {
        assert_eq!(validated(&two, nodes, &none, Some(&[])), want, "{nodes}");
        assert_eq!(validated(&two, nodes, &none, None), want, "{nodes}: its load balancer cannot exist yet");
    }
    let present = Present { nodes: 11, accepted: None, seen: None };
    let Verdict::Refused(refusal) = verdict(&two, &wanted(&two), MOST, &present) else {
        panic!("not refused");
    };
    insta::assert_snapshot!(refusal, @"spec.ports: 2 listeners on 11 nodes make 22 members, more than 20 (serviceController.maxMembersPerService): use fewer ports, or fewer nodes by node-selector");
}

#[test]
fn existing_load_balancer_above_member_limit_follows_nodes() {
    let memory = confirmed(&service(&[80, 81], None));
    for (ports, want) in
        [(&[80, 81][..], "grown"), (&[80], "fits"), (&[80, 82], "refused"), (&[80, 81, 82], "refused")]
    {
        assert_eq!(validated(&service(ports, None), 15, &memory, Some(&[])), want, "{ports:?}");
    }
    assert_eq!(validated(&service(&[80], None), 21, &memory, None), "grown", "fewer ports than exist");
}

#[test]
fn new_node_selector_is_checked_against_member_limit() {
    let memory = confirmed(&service(&[80, 81], Some("pool=a")));
    let seen = shown(&["tcp/80", "tcp/81"], 30);
    for (selector, want) in [(Some("pool=a"), "grown"), (Some("pool=b"), "refused"), (None, "refused")] {
        assert_eq!(validated(&service(&[80, 81], selector), 15, &memory, Some(&seen)), want, "{selector:?}");
    }
}

#[test]
fn member_limit_uses_cache_after_restart() {
    let (two, none) = (service(&[80, 81], None), Memory::default());
    let rows: [(&str, &[&str], u32, &str); 6] = [
        ("unchanged", &["tcp/80", "tcp/81"], 30, "grown"),
        ("nodes were added in the meantime", &["tcp/80", "tcp/81"], 15, "grown"),
        ("a small load balancer with another selector", &["tcp/80", "tcp/81"], 14, "refused"),
        ("members are not read yet", &["tcp/80", "tcp/81"], 0, "grown"),
        ("other ports", &["tcp/80"], 30, "refused"),
        ("the adapter does not report ports", &[], 30, "grown"),
    ];
    for (what, listeners, backends, want) in rows {
        assert_eq!(validated(&two, 15, &none, Some(&shown(listeners, backends))), want, "{what}");
    }
    let unread = shown(&["tcp/80", "tcp/81"], 0);
    for (nodes, want) in [(40, "grown"), (41, "refused")] {
        assert_eq!(
            validated(&two, nodes, &none, Some(&unread)),
            want,
            "{nodes} nodes, and the cache shows no members"
        );
    }
    let held = Service { finalizer: true, ..two };
    assert_eq!(validated(&held, 15, &none, None), "unlisted");
    assert_eq!(validated(&held, 10, &none, None), "fits");
}

#[test]
fn source_ranges_are_bounded_with_the_ports_that_they_are_for() {
    let ranges: Vec<String> = (0..10).map(|n| format!("192.0.2.{n}/32")).collect();
    let judge = |ports: &[u16], ranges: &[String]| {
        let service = Service { source_ranges: ranges.to_vec(), ..service(ports, None) };
        let bounds = Bounds { members: MOST, ..Bounds::default() };
        Checked::new(&service, &Defaults::default().within(bounds)).map(drop)
    };
    assert_eq!(judge(&[80, 81], &ranges), Ok(()));
    let refusals = judge(&[80, 81, 82], &ranges).expect_err("30 exceed the limit of 20");
    let text = "spec.loadBalancerSourceRanges: 10 source ranges for each of 3 ports make 30 entries, above the limit of 20 \
                (serviceController.maxMembersPerService): use fewer ranges, or fewer ports";
    assert_eq!(refusals.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
}
