//! Tests which node ports the last valid settings of an invalid Service may still use.

use cloud_api_proto::v1alpha1::health_check::Kind;

use super::*;
use crate::plan::{
    annotations::keys::PREFIX,
    features::{Features, name},
    members::Members,
    members::Present,
    memory::Memory,
    service::{Family, Kind as ServiceKind, NodePorts, Port, Traffic, Transport},
    validated::Validated,
};

type Change = fn(&mut Service);

/// Returns a valid Service with two TCP ports, whose node ports are 30080 and 30443.
fn web() -> Service {
    Service {
        kind: ServiceKind::LoadBalancer,
        ports: vec![Port::plain(Transport::Tcp, 80, 30_080), Port::plain(Transport::Tcp, 443, 30_443)],
        families: vec![Family::V4],
        ..Service::default()
    }
}

fn local() -> Service {
    Service { traffic: Traffic::Local { health_check_node_port: 32_000 }, ..web() }
}

fn probes(service: Service, port: &str) -> Service {
    let annotations = [(format!("{PREFIX}health-check.port"), port.to_owned())];
    Service { annotations: annotations.into(), ..service }
}

fn mistaken(service: &mut Service) {
    service.annotations.insert(format!("{PREFIX}intrenal"), "true".to_owned());
}

fn validated(service: &Service, memory: &Memory) -> Validated {
    let features =
        Features::from([name::LOAD_BALANCERS, name::HTTP_HEALTH_CHECK, name::UDP, name::MIXED_PROTOCOLS]);
    Validated::of(service, memory, &Defaults::default(), Some(&features), std::time::Duration::ZERO)
}

/// The memory of a Service for which these are the last valid settings.
fn remembers(good: &Arc<Wanted>) -> Memory {
    let mut memory = Memory::default();
    memory.settings.accepted = Some(Arc::clone(good));
    memory
}

/// The valid settings, and the settings that replace them after the change.
fn before_and_after(good: &Service, change: Change) -> (Arc<Wanted>, Arc<Wanted>) {
    let before = validated(good, &Memory::default()).wanted.expect("the Service is valid");
    let memory = remembers(&before);
    let mut changed = good.clone();
    mistaken(&mut changed);
    change(&mut changed);
    let validated = validated(&changed, &memory);
    assert!(validated.stands_in && !validated.refusals.is_empty(), "{validated:?}");
    (before, validated.wanted.expect("replacement settings exist"))
}

/// Returns the listeners in the form `80 -> 30080`, and the health check.
fn shown(wanted: &Wanted) -> String {
    let spec = &wanted.shape.spec;
    let listener = |it: &Listener| format!("{} -> {}", it.port, it.node_port.unwrap_or_default());
    let listeners: Vec<String> = spec.listeners.iter().map(listener).collect();
    let check = spec.health_check.clone().unwrap_or_default();
    let kind = match check.kind() {
        Kind::Http => "http",
        Kind::Tcp => "tcp",
        Kind::None => "none",
        Kind::Unspecified => "?",
    };
    let port = check.port.map(|port| format!(" {port}{}", check.path)).unwrap_or_default();
    let nodes = if wanted.selector == Some(Selector::nothing()) { ", no nodes" } else { "" };
    format!("{}, {kind}{port}{nodes}", listeners.join(" "))
}

// Behaviour: S28
#[test]
fn replacement_uses_no_released_node_port() {
    let rows: [(&str, Service, Change, &str); 10] = [
        ("nothing", web(), |_| (), "80 -> 30080 443 -> 30443, tcp"),
        ("a port gets another node port", web(), |it| it.ports[0].node_port = 30_081, "443 -> 30443, tcp"),
        ("a port is removed", web(), |it| drop(it.ports.remove(1)), "80 -> 30080, tcp"),
        (
            "another port takes over the node port",
            web(),
            |it| it.ports[0] = Port::plain(Transport::Udp, 53, 30_080),
            "80 -> 30080 443 -> 30443, tcp",
        ),
        (
            "all ports get other node ports",
            web(),
            |it| (it.ports[0].node_port, it.ports[1].node_port) = (30_081, 30_444),
            "80 -> 30080 443 -> 30443, tcp, no nodes",
        ),
        (
            "node ports are no longer allocated",
            web(),
            |it| {
                it.node_ports = NodePorts::Disabled;
                it.ports.iter_mut().for_each(|port| port.node_port = 0);
            },
            "80 -> 30080 443 -> 30443, tcp, no nodes",
        ),
        (
            "the node port for health checks is removed",
            local(),
            |it| it.traffic = Traffic::Cluster,
            "80 -> 30080 443 -> 30443, tcp",
        ),
        (
            "another node port for health checks",
            local(),
            |it| it.traffic = Traffic::Local { health_check_node_port: 32_001 },
            "80 -> 30080 443 -> 30443, tcp",
        ),
        (
            "the node port named for health checks is removed",
            probes(web(), "30443"),
            |it| it.ports[1].node_port = 30_444,
            "80 -> 30080, tcp",
        ),
        (
            "all node ports are removed, including the one for health checks",
            local(),
            |it| (it.ports, it.traffic) = (Vec::new(), Traffic::Cluster),
            "80 -> 30080 443 -> 30443, none, no nodes",
        ),
    ];
    for (what, good, change, want) in rows {
        let (before, after) = before_and_after(&good, change);
        assert_eq!(shown(&after), want, "{what}");
        let same = shown(&before) == shown(&after);
        assert_eq!(same, before == after, "{what}");
    }
}

#[test]
fn operator_health_check_port_is_kept() {
    let gone: Change = |it| it.ports[0].node_port = 30_081;
    let (_, after) = before_and_after(&probes(web(), "10256"), gone);
    assert_eq!(shown(&after), "443 -> 30443, tcp 10256");
}

#[test]
fn health_check_moves_to_first_remaining_tcp_port() {
    let udp = Port::plain(Transport::Udp, 53, 30_053);
    let good = || Service { ports: [web().ports, vec![udp.clone()]].concat(), ..web() };
    let (before, after) = before_and_after(&good(), |it| it.ports[0].node_port = 30_081);
    assert_eq!(shown(&before), "80 -> 30080 443 -> 30443 53 -> 30053, tcp 30080");
    assert_eq!(shown(&after), "443 -> 30443 53 -> 30053, tcp 30443");
    let (_, after) = before_and_after(&good(), |it| drop(it.ports.drain(..2)));
    assert_eq!(shown(&after), "53 -> 30053, none", "UDP ports do not answer health checks");
}

/// A port whose protocol this controller does not know keeps its node port.
#[test]
fn node_port_of_unreadable_port_is_still_held() {
    let (_, after) = before_and_after(&web(), |it| {
        let port = it.ports.remove(1);
        it.unread_node_ports.push(port.node_port);
    });
    assert_eq!(shown(&after), "80 -> 30080 443 -> 30443, tcp");
}

/// A Service that is refused for its number of members may have other ports than before.
#[test]
fn settings_above_member_limit_release_node_ports() {
    let before = validated(&web(), &Memory::default()).wanted.expect("the Service is valid");
    let memory = remembers(&before);
    let mut more = web();
    more.ports[0].node_port = 30_081;
    more.ports.push(Port::plain(Transport::Tcp, 81, 30_082));
    let validated = validated(&more, &memory).bounded(
        &more,
        &Defaults::default(),
        &Present { nodes: 20_000, accepted: memory.settings.accepted.as_ref(), seen: None },
    );
    assert_eq!(validated.refusals.len(), 1, "{validated:?}");
    assert_eq!(validated.grown, None::<Members>);
    assert_eq!(shown(&validated.wanted.expect("replacement settings exist")), "443 -> 30443, tcp");
}

/// A Service may get its node port back before another Service gets that port.
#[test]
fn returning_node_port_is_used_again() {
    let before = validated(&web(), &Memory::default()).wanted.expect("the Service is valid");
    let memory = remembers(&before);
    let mut service = web();
    mistaken(&mut service);
    service.ports[0].node_port = 30_081;
    assert_ne!(validated(&service, &memory).wanted.as_ref(), Some(&before));
    service.ports[0].node_port = 30_080;
    assert_eq!(validated(&service, &memory).wanted.as_ref(), Some(&before));
}

#[test]
fn consent_that_is_withdrawn_ends_although_the_service_is_invalid() {
    let shares = |namespaces: &str| {
        let annotations = [(format!("{PREFIX}share-with"), namespaces.to_owned())];
        Service { annotations: annotations.into(), ..web() }
    };
    let features = Features::from([name::LOAD_BALANCERS, name::SHARED]);
    let judge = |service: &Service, memory: &Memory| {
        Validated::of(service, memory, &Defaults::default(), Some(&features), std::time::Duration::ZERO)
    };
    let good = judge(&shares("news,ops"), &Memory::default()).wanted.expect("the Service is valid");
    let memory = remembers(&good);
    for (now, want) in [("ops", &["ops"][..]), ("ops,evil", &["ops"]), ("", &["news", "ops"])] {
        let mut service = shares(now);
        mistaken(&mut service);
        let spec = judge(&service, &memory).wanted.expect("there is a replacement").shape.spec.clone();
        assert_eq!(spec.shared_with, want, "{now:?}: an invalid list changes nothing");
    }
    let mut none = web();
    mistaken(&mut none);
    let spec = judge(&none, &memory).wanted.expect("there is a replacement").shape.spec.clone();
    assert!(spec.shared_with.is_empty());
}
