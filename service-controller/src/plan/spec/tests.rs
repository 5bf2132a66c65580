//! Services and the load balancers that are asked for, and what is refused before anything is called.

use std::collections::BTreeMap;

use super::*;
use crate::plan::{
    annotations::{IDLE_TIMEOUT, SCHEME},
    features::name,
    service::FamilyPolicy,
};

fn port(transport: Transport, port: u16) -> Port {
    Port { name: format!("{transport}-{port}").to_lowercase(), transport, port, node_port: 30_000 + port }
}

fn service(ports: &[Port]) -> Service {
    Service { ports: ports.to_vec(), families: vec![Family::V4], ..Service::default() }
}

fn web() -> Service {
    service(&[port(Transport::Tcp, 80)])
}

fn annotated(annotations: &[(&str, &str)]) -> BTreeMap<String, String> {
    annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn all() -> Features {
    Features::from([
        name::LOAD_BALANCERS,
        name::INTERNAL,
        name::SOURCE_RANGES,
        name::PROXY_PROTOCOL,
        name::HTTP_HEALTH_CHECK,
        name::SESSION_AFFINITY,
        name::UDP,
        name::SCTP,
        name::MIXED_PROTOCOLS,
        name::DUAL_STACK,
        name::RESERVED_IP,
    ])
}

fn spec(service: &Service, features: &Features) -> LoadBalancerSpec {
    Checked::new(service).unwrap().shape(features).unwrap().with_targets("set")
}

#[track_caller]
fn refusals(service: &Service, features: &Features) -> String {
    let refused = Checked::new(service).and_then(|checked| checked.shape(features)).unwrap_err();
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_plain_service_becomes_a_plain_load_balancer() {
    let spec = spec(&web(), &Features::from([name::LOAD_BALANCERS]));
    assert_eq!(spec.scheme(), contract::Scheme::Internet);
    assert_eq!(spec.ip_families().collect::<Vec<_>>(), [IpFamily::Ipv4]);
    assert_eq!(spec.backend_set_id, "set");
    assert_eq!(spec.traffic_policy(), contract::TrafficPolicy::Cluster);
    assert!(spec.source_ranges.is_empty() && spec.session_affinity.is_none());

    let [listener] = spec.listeners.as_slice() else { panic!("{:?}", spec.listeners) };
    assert_eq!((listener.name.as_str(), listener.protocol()), ("tcp-80", Protocol::Tcp));
    assert_eq!((listener.port, listener.node_port), (80, Some(30_080)));
    assert_eq!(listener.target_kind(), TargetKind::NodePort);
    assert_eq!(listener.proxy_protocol(), Header::Off);
}

#[test]
fn health_checks_follow_the_traffic_policy() {
    struct Row {
        name: &'static str,
        traffic: Traffic,
        ports: Vec<Port>,
        want: Option<(health_check::Kind, Option<u32>, &'static str)>,
    }
    let (tcp, udp) = (port(Transport::Tcp, 80), port(Transport::Udp, 53));
    let local = |port| Traffic::Local { health_check_node_port: port };
    let rows = [
        Row {
            name: "cluster",
            traffic: Traffic::Cluster,
            ports: vec![tcp.clone()],
            want: Some((health_check::Kind::Tcp, None, "")),
        },
        Row {
            name: "cluster, UDP probes the TCP port",
            traffic: Traffic::Cluster,
            ports: vec![udp.clone(), tcp.clone()],
            want: Some((health_check::Kind::Tcp, Some(30_080), "")),
        },
        Row {
            name: "cluster, UDP alone is the driver's",
            traffic: Traffic::Cluster,
            ports: vec![udp],
            want: None,
        },
        Row {
            name: "local",
            traffic: local(32_000),
            ports: vec![tcp.clone()],
            want: Some((health_check::Kind::Http, Some(32_000), "/healthz")),
        },
        Row {
            name: "local without a port",
            traffic: local(0),
            ports: vec![tcp],
            want: Some((health_check::Kind::None, None, "")),
        },
    ];
    for row in rows {
        let spec = spec(&Service { traffic: row.traffic, ..service(&row.ports) }, &all());
        let got = spec.health_check.as_ref().map(|it| (it.kind(), it.port, it.path.as_str()));
        assert_eq!(got, row.want, "{}", row.name);
    }
}

#[test]
fn annotations_reach_the_listeners_that_can_carry_them() {
    let annotations = annotated(&[(SCHEME, "internal"), (IDLE_TIMEOUT, "90s"), (PROXY_PROTOCOL, "v2")]);
    let mixed = service(&[port(Transport::Tcp, 80), port(Transport::Udp, 53)]);
    let spec = spec(&Service { annotations, ..mixed }, &all());
    assert_eq!(spec.scheme(), contract::Scheme::Internal);
    let headers: Vec<Header> = spec.listeners.iter().map(Listener::proxy_protocol).collect();
    assert_eq!(headers, [Header::V2, Header::Off]);
    let seconds: Vec<i64> =
        spec.listeners.iter().filter_map(|it| it.idle_timeout.as_ref()).map(|it| it.seconds).collect();
    assert_eq!(seconds, [90, 90]);
}

#[test]
fn a_preference_for_two_families_takes_what_there_is() {
    let families = vec![Family::V6, Family::V4];
    let prefers = Service { families, ..web() };
    assert_eq!(spec(&prefers, &Features::from([name::LOAD_BALANCERS])).ip_families, [IpFamily::Ipv6 as i32]);
    assert_eq!(spec(&prefers, &all()).ip_families, [IpFamily::Ipv6 as i32, IpFamily::Ipv4 as i32]);

    let insists = Service { family_policy: FamilyPolicy::BothRequired, ..prefers };
    assert!(refusals(&insists, &Features::from([name::LOAD_BALANCERS])).contains("RequireDualStack"));
}

#[test]
fn an_address_of_a_family_that_nobody_gives_is_refused() {
    let first = Features::from([name::LOAD_BALANCERS, name::RESERVED_IP]);
    let requested_address = Some("2001:db8::7".to_owned());
    let prefers = Service { families: vec![Family::V4, Family::V6], requested_address, ..web() };
    assert_eq!(spec(&prefers, &all()).requested_addresses, ["2001:db8::7"]);
    insta::assert_snapshot!(refusals(&prefers, &first), @"spec.loadBalancerIP: 2001:db8::7 is IPv6 and the cloud adapter can give this Service only IPv4: ask for an IPv4 address");
    let single = Service { families: vec![Family::V4], ..prefers };
    insta::assert_snapshot!(refusals(&single, &all()), @"spec.loadBalancerIP: 2001:db8::7 is IPv6 and spec.ipFamilies names only IPv4: ask for an IPv4 address");
}

#[test]
fn session_affinity_is_kept_by_kube_proxy_where_the_cloud_cannot() {
    let sticky = Service { affinity: Affinity::ClientIp { timeout_seconds: Some(60) }, ..web() };
    assert!(spec(&sticky, &Features::from([name::LOAD_BALANCERS])).session_affinity.is_none());
    let asked = spec(&sticky, &all()).session_affinity.unwrap();
    assert_eq!(asked.kind(), session_affinity::Kind::ClientIp);
    assert_eq!(asked.timeout.unwrap().seconds, 60);
}

#[test]
fn source_ranges_that_let_everybody_in_need_no_capability() {
    let open = Service { source_ranges: vec!["0.0.0.0/0".to_owned()], ..web() };
    assert!(spec(&open, &Features::from([name::LOAD_BALANCERS])).source_ranges.is_empty());
}

#[test]
fn what_the_adapter_cannot_do_is_told_by_field() {
    let demanding = Service {
        requested_address: Some("192.0.2.7".to_owned()),
        source_ranges: vec!["10.0.0.0/8".to_owned()],
        traffic: Traffic::Local { health_check_node_port: 32_000 },
        annotations: annotated(&[(SCHEME, "internal"), (PROXY_PROTOCOL, "v1")]),
        families: vec![Family::V4, Family::V6],
        family_policy: FamilyPolicy::BothRequired,
        ..service(&[port(Transport::Tcp, 80), port(Transport::Udp, 53), port(Transport::Sctp, 9)])
    };
    insta::assert_snapshot!(refusals(&demanding, &Features::default()), @r"
    spec.type LoadBalancer: the cloud adapter cannot do this (no capability loadbalancers)
    spec.ports[1].protocol UDP: the cloud adapter cannot do this (no capability lb.udp)
    spec.ports[2].protocol SCTP: the cloud adapter cannot do this (no capability lb.sctp)
    spec.ports with more than one protocol: the cloud adapter cannot do this (no capability lb.mixed-protocols)
    annotation cloudadapter.dev/load-balancer-scheme: the cloud adapter cannot do this (no capability lb.internal)
    spec.loadBalancerSourceRanges: the cloud adapter cannot do this (no capability lb.source-ranges)
    annotation cloudadapter.dev/load-balancer-proxy-protocol: the cloud adapter cannot do this (no capability lb.proxy-protocol)
    spec.loadBalancerIP: the cloud adapter cannot do this (no capability lb.reserved-ip)
    spec.ipFamilyPolicy RequireDualStack: the cloud adapter cannot do this (no capability lb.dual-stack)
    spec.externalTrafficPolicy Local: the cloud adapter cannot do this (no capability lb.health-check.http)
    ");
    assert!(Checked::new(&demanding).unwrap().shape(&all()).is_ok());
}

#[test]
fn a_service_that_cannot_work_is_refused_before_anything_is_called() {
    let mut portless = web();
    portless.node_ports = NodePorts::Disabled;
    portless.ports.iter_mut().for_each(|port| port.node_port = 0);
    portless.annotations = annotated(&[("cloudadapter.dev/load-balancer-shceme", "internal")]);
    portless.source_ranges = vec!["10.0.0.1".to_owned()];
    portless.requested_address = Some("not-an-ip".to_owned());
    insta::assert_snapshot!(refusals(&portless, &all()), @r#"
    spec.allocateLoadBalancerNodePorts: false leaves spec.ports[0] without a node port, and the load balancer reaches pods through node ports: set it to true, or set spec.ports[0].nodePort
    annotation cloudadapter.dev/load-balancer-shceme: no such annotation, did you mean cloudadapter.dev/load-balancer-scheme?
    spec.loadBalancerSourceRanges: "10.0.0.1" is not a CIDR (invalid IP address syntax): write one such as 192.0.2.0/24
    spec.loadBalancerIP: "not-an-ip" is not an IP address (invalid IP address syntax): write one such as 192.0.2.7
    "#);

    let udp =
        Service { annotations: annotated(&[(PROXY_PROTOCOL, "v1")]), ..service(&[port(Transport::Udp, 53)]) };
    insta::assert_snapshot!(refusals(&udp, &all()), @"annotation cloudadapter.dev/load-balancer-proxy-protocol: only TCP ports can carry it and there is none: remove the annotation");
    insta::assert_snapshot!(refusals(&service(&[]), &all()), @"spec.ports: a load balancer needs at least one port");
}

#[test]
fn only_what_matters_changes_the_digest() {
    let digest = |service: &Service| Checked::new(service).unwrap().shape(&all()).unwrap().digest;
    let plain = digest(&web());
    let foreign = Service { annotations: annotated(&[("example.com/owner", "me")]), ..web() };
    assert_eq!(digest(&foreign), plain);
    let labelled_status = Service { ingress: vec![crate::plan::Ingress::default()], ..web() };
    assert_eq!(digest(&labelled_status), plain);
    assert_ne!(digest(&service(&[port(Transport::Tcp, 81)])), plain);
    assert_ne!(digest(&Service { requested_address: Some("192.0.2.7".to_owned()), ..web() }), plain);
}
