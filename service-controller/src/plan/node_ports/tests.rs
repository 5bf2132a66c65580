//! What a refused Service goes on using of the ports of nodes.

use cloud_api_proto::v1alpha1::health_check::Kind;

use super::*;
use crate::plan::{
    annotations::keys::PREFIX,
    features::{Features, name},
    members::Members,
    memory::Memory,
    service::{Family, Kind as ServiceKind, NodePorts, Port, Traffic, Transport},
    wanted::Judged,
};

type Change = fn(&mut Service);

/// Two TCP ports with the node ports 30080 and 30443, which is all right.
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

fn judged(service: &Service, memory: &Memory) -> Judged {
    let features =
        Features::from([name::LOAD_BALANCERS, name::HTTP_HEALTH_CHECK, name::UDP, name::MIXED_PROTOCOLS]);
    Judged::of(service, memory, &Defaults::default(), Some(&features), std::time::Duration::ZERO)
}

/// What is remembered of a Service whose last good wish is this one.
fn remembers(good: &Arc<Wanted>) -> Memory {
    let mut memory = Memory::default();
    memory.good = Some(Arc::clone(good));
    memory
}

/// The wish that is good, and what stands in for it after the change.
fn before_and_after(good: &Service, change: Change) -> (Arc<Wanted>, Arc<Wanted>) {
    let before = judged(good, &Memory::default()).wanted.expect("nothing is wrong with it");
    let memory = remembers(&before);
    let mut changed = good.clone();
    mistaken(&mut changed);
    change(&mut changed);
    let judged = judged(&changed, &memory);
    assert!(judged.stands_in && !judged.refusals.is_empty(), "{judged:?}");
    (before, judged.wanted.expect("something stands in"))
}

/// The listeners as `80 -> 30080`, and what is probed.
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

#[test]
fn what_stands_in_uses_no_node_port_that_the_service_has_given_up() {
    let rows: [(&str, Service, Change, &str); 10] = [
        ("nothing", web(), |_| (), "80 -> 30080 443 -> 30443, tcp"),
        ("a port gets another one", web(), |it| it.ports[0].node_port = 30_081, "443 -> 30443, tcp"),
        ("a port goes", web(), |it| drop(it.ports.remove(1)), "80 -> 30080, tcp"),
        (
            "another port takes it over",
            web(),
            |it| it.ports[0] = Port::plain(Transport::Udp, 53, 30_080),
            "80 -> 30080 443 -> 30443, tcp",
        ),
        (
            "all ports get other ones",
            web(),
            |it| (it.ports[0].node_port, it.ports[1].node_port) = (30_081, 30_444),
            "80 -> 30080 443 -> 30443, tcp, no nodes",
        ),
        (
            "none is allocated any more",
            web(),
            |it| {
                it.node_ports = NodePorts::Disabled;
                it.ports.iter_mut().for_each(|port| port.node_port = 0);
            },
            "80 -> 30080 443 -> 30443, tcp, no nodes",
        ),
        (
            "the one for health checks goes",
            local(),
            |it| it.traffic = Traffic::Cluster,
            "80 -> 30080 443 -> 30443, tcp",
        ),
        (
            "it gets another one for health checks",
            local(),
            |it| it.traffic = Traffic::Local { health_check_node_port: 32_001 },
            "80 -> 30080 443 -> 30443, tcp",
        ),
        (
            "the one goes that was to be probed",
            probes(web(), "30443"),
            |it| it.ports[1].node_port = 30_444,
            "80 -> 30080, tcp",
        ),
        (
            "all go, that for health checks, too",
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
fn what_the_operator_lets_all_services_probe_stays() {
    let gone: Change = |it| it.ports[0].node_port = 30_081;
    let (_, after) = before_and_after(&probes(web(), "10256"), gone);
    assert_eq!(shown(&after), "443 -> 30443, tcp 10256");
}

#[test]
fn of_several_protocols_the_first_tcp_port_that_is_left_is_probed() {
    let udp = Port::plain(Transport::Udp, 53, 30_053);
    let good = || Service { ports: [web().ports, vec![udp.clone()]].concat(), ..web() };
    let (before, after) = before_and_after(&good(), |it| it.ports[0].node_port = 30_081);
    assert_eq!(shown(&before), "80 -> 30080 443 -> 30443 53 -> 30053, tcp 30080");
    assert_eq!(shown(&after), "443 -> 30443 53 -> 30053, tcp 30443");
    let (_, after) = before_and_after(&good(), |it| drop(it.ports.drain(..2)));
    assert_eq!(shown(&after), "53 -> 30053, none", "UDP answers no probe");
}

/// A port of a protocol that this controller cannot read has its node port all the same.
#[test]
fn a_node_port_of_a_port_that_cannot_be_read_is_still_held() {
    let (_, after) = before_and_after(&web(), |it| {
        let port = it.ports.remove(1);
        it.unread_node_ports.push(port.node_port);
    });
    assert_eq!(shown(&after), "80 -> 30080 443 -> 30443, tcp");
}

/// What is refused for its members is refused for its ports, which may be others than before.
#[test]
fn what_stands_in_for_too_many_members_gives_up_node_ports_as_well() {
    let before = judged(&web(), &Memory::default()).wanted.expect("nothing is wrong with it");
    let memory = remembers(&before);
    let mut more = web();
    more.ports[0].node_port = 30_081;
    more.ports.push(Port::plain(Transport::Tcp, 81, 30_082));
    let judged = judged(&more, &memory).bounded((&more, &Defaults::default()), 20_000, (&memory, None));
    assert_eq!(judged.refusals.len(), 1, "{judged:?}");
    assert_eq!(judged.grown, None::<Members>);
    assert_eq!(shown(&judged.wanted.expect("something stands in")), "443 -> 30443, tcp");
}

/// The Service may get the node port again before another Service gets it.
#[test]
fn a_node_port_that_comes_back_is_used_again() {
    let before = judged(&web(), &Memory::default()).wanted.expect("nothing is wrong with it");
    let memory = remembers(&before);
    let mut service = web();
    mistaken(&mut service);
    service.ports[0].node_port = 30_081;
    assert_ne!(judged(&service, &memory).wanted.as_ref(), Some(&before));
    service.ports[0].node_port = 30_080;
    assert_eq!(judged(&service, &memory).wanted.as_ref(), Some(&before));
}
