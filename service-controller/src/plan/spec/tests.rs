//! Tests which load balancers result from Services, and which settings are refused before any call.

use std::collections::BTreeMap;

use cloud_api_proto::v1alpha1::{
    Capability, GetInfoResponse, Listener, Protocol,
    capability::Level,
    health_check,
    listener::{Algorithm, Application, ProxyProtocol as Header, TargetKind},
};

use super::*;
use crate::plan::{
    annotations::template::Template,
    service::{Port, Transport},
};

fn port(transport: Transport, port: u16) -> Port {
    Port { name: format!("{transport}-{port}").to_lowercase(), ..Port::plain(transport, port, 30_000 + port) }
}

fn service(ports: &[Port]) -> Service {
    Service { ports: ports.to_vec(), families: vec![Family::V4], ..Service::default() }
}

fn web() -> Service {
    service(&[port(Transport::Tcp, 80)])
}

fn annotated(annotations: &[(&str, &str)]) -> BTreeMap<String, String> {
    annotations.iter().map(|&(key, value)| (format!("{PREFIX}{key}"), value.to_owned())).collect()
}

fn says(service: Service, annotations: &[(&str, &str)]) -> Service {
    Service { annotations: annotated(annotations), ..service }
}

fn checked(service: &Service) -> Result<Checked<'_>, Vec<Refusal>> {
    Checked::new(service, &Defaults::default())
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
        name::TLS,
        name::ADDRESS_POOL,
        name::SUBNETS,
        name::SIZE,
        name::ZONE,
        name::NAME,
        name::SHARED,
        name::KEEP_ADDRESS,
        name::ALGORITHM,
        name::LISTENER_PROTOCOL,
        name::CONNECT_TIMEOUT,
        name::CONNECTION_LIMIT,
    ])
}

fn spec(service: &Service, features: &Features) -> LoadBalancerSpec {
    checked(service).unwrap().shape(features, None).unwrap().with_targets("set")
}

#[track_caller]
fn refusals(service: &Service, features: &Features) -> String {
    let refused = checked(service).and_then(|checked| checked.shape(features, None)).unwrap_err();
    refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn plain_service_spec() {
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

/// The application protocol is sent regardless of the adapter's capabilities, because an adapter ignores fields that it does not know.
// Behaviour: SF4
#[test]
fn app_protocol_is_passed_on_only_if_set() {
    let spoken = |word: &str| Port { app_protocol: word.to_owned(), ..port(Transport::Tcp, 80) };
    let features = Features::from([name::LOAD_BALANCERS]);
    let shape = |word: &str| checked(&service(&[spoken(word)])).unwrap().shape(&features, None).unwrap();
    for word in ["kubernetes.io/h2c", "example.com/anything", "https", ""] {
        assert_eq!(shape(word).spec.listeners[0].app_protocol, word);
    }
    assert_ne!(shape("http").digest, shape("https").digest);
    // An empty field is not encoded, so the digest is that of a specification without this field.
    assert_eq!(shape("").digest, "7f8154459a44ffb98a5a3cb05f7ede38");
}

// Behaviour: SF1
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
            name: "cluster, UDP checks the TCP port",
            traffic: Traffic::Cluster,
            ports: vec![udp.clone(), tcp.clone()],
            want: Some((health_check::Kind::Tcp, Some(30_080), "")),
        },
        Row {
            name: "cluster, UDP alone: the driver decides",
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
fn annotations_apply_to_matching_listeners() {
    let annotations = annotated(&[("internal", "true"), ("idle-timeout", "90s"), ("proxy-protocol", "v2")]);
    let mixed = service(&[port(Transport::Tcp, 80), port(Transport::Udp, 53)]);
    let spec = spec(&Service { annotations, ..mixed }, &all());
    assert_eq!(spec.scheme(), contract::Scheme::Internal);
    let headers: Vec<Header> = spec.listeners.iter().map(Listener::proxy_protocol).collect();
    assert_eq!(headers, [Header::V2, Header::Off]);
    let seconds: Vec<i64> =
        spec.listeners.iter().filter_map(|it| it.idle_timeout.as_ref()).map(|it| it.seconds).collect();
    assert_eq!(seconds, [90, 90]);
}

// Behaviour: SF7
#[test]
fn preferred_families_follow_capabilities() {
    let families = vec![Family::V6, Family::V4];
    let prefers = Service { families, ..web() };
    assert_eq!(spec(&prefers, &Features::from([name::LOAD_BALANCERS])).ip_families, [IpFamily::Ipv6 as i32]);
    assert_eq!(spec(&prefers, &all()).ip_families, [IpFamily::Ipv6 as i32, IpFamily::Ipv4 as i32]);

    let of = |service: &Service, only| {
        let shape = checked(service).unwrap().shape(&all(), only).unwrap();
        shape.with_targets("set").ip_families().collect::<Vec<_>>()
    };
    assert_eq!(of(&prefers, Some(Family::V4)), [IpFamily::Ipv4], "existing family");
    assert_eq!(
        of(&web(), Some(Family::V6)),
        [IpFamily::Ipv4],
        "the existing family is not one of the Service's families"
    );

    let insists = Service { family_policy: FamilyPolicy::BothRequired, ..prefers };
    assert_eq!(of(&insists, Some(Family::V4)), [IpFamily::Ipv6, IpFamily::Ipv4]);
    assert!(refusals(&insists, &Features::from([name::LOAD_BALANCERS])).contains("RequireDualStack"));
}

// Behaviour: SF8
#[test]
fn address_of_missing_family_is_refused() {
    let first = Features::from([name::LOAD_BALANCERS, name::RESERVED_IP]);
    let requested_address = Some("2001:db8::7".to_owned());
    let prefers = Service { families: vec![Family::V4, Family::V6], requested_address, ..web() };
    assert_eq!(spec(&prefers, &all()).requested_addresses, ["2001:db8::7"]);
    insta::assert_snapshot!(refusals(&prefers, &first), @"spec.loadBalancerIP: 2001:db8::7 is IPv6, but the load balancer supports only IPv4: request an IPv4 address");
    let single = Service { families: vec![Family::V4], ..prefers };
    insta::assert_snapshot!(refusals(&single, &all()), @"spec.loadBalancerIP: 2001:db8::7 is IPv6, but spec.ipFamilies contains only IPv4: request an IPv4 address");
}

/// The ranges must cover all families of the load balancer, which may have fewer families than the Service.
// Behaviour: SF2
#[test]
fn open_ranges_are_not_sent_to_adapter() {
    let plain = Features::from([name::LOAD_BALANCERS]);
    let families = vec![Family::V4, Family::V6];
    let source_ranges = vec!["0.0.0.0/0".to_owned()];
    let open = Service { families, source_ranges, ..web() };
    assert_eq!(spec(&open, &plain).source_ranges, [""; 0]);
    assert_eq!(spec(&open, &all()).source_ranges, ["0.0.0.0/0"]);
}

// Behaviour: SF6
#[test]
fn session_affinity_without_capability_is_left_to_kube_proxy() {
    let sticky = Service { affinity: Affinity::ClientIp { timeout_seconds: Some(60) }, ..web() };
    assert!(spec(&sticky, &Features::from([name::LOAD_BALANCERS])).session_affinity.is_none());
    let asked = spec(&sticky, &all()).session_affinity.unwrap();
    assert_eq!(asked.kind(), session_affinity::Kind::ClientIp);
    assert_eq!(asked.timeout.unwrap().seconds, 60);
}

#[test]
fn open_source_ranges_need_no_capability() {
    let open = Service { source_ranges: vec!["0.0.0.0/0".to_owned()], ..web() };
    assert!(spec(&open, &Features::from([name::LOAD_BALANCERS])).source_ranges.is_empty());
}

// Behaviour: SF3
#[test]
fn missing_capabilities_are_reported_by_field() {
    let demanding = Service {
        requested_address: Some("192.0.2.7".to_owned()),
        source_ranges: vec!["10.0.0.0/8".to_owned()],
        traffic: Traffic::Local { health_check_node_port: 32_000 },
        annotations: annotated(&[
            ("internal", "true"),
            ("proxy-protocol", "v1"),
            ("size", "large"),
            ("algorithm", "source-ip"),
        ]),
        families: vec![Family::V4, Family::V6],
        family_policy: FamilyPolicy::BothRequired,
        ..service(&[port(Transport::Tcp, 80), port(Transport::Udp, 53), port(Transport::Sctp, 9)])
    };
    insta::assert_snapshot!(refusals(&demanding, &Features::default()), @r"
    spec.ports[1].protocol UDP: the cloud adapter does not support this (no capability lb.udp)
    spec.ports[2].protocol SCTP: the cloud adapter does not support this (no capability lb.sctp)
    spec.ports with more than one protocol: the cloud adapter does not support this (no capability lb.mixed-protocols)
    spec.loadBalancerSourceRanges: the cloud adapter does not support this (no capability lb.source-ranges)
    spec.loadBalancerIP: the cloud adapter does not support this (no capability lb.reserved-ip)
    spec.ipFamilyPolicy RequireDualStack: the cloud adapter does not support this (no capability lb.dual-stack)
    annotation lb.cloudadapter.dev/internal: the cloud adapter does not support this (no capability lb.internal)
    annotation lb.cloudadapter.dev/size: the cloud adapter does not support this (no capability lb.size)
    annotation lb.cloudadapter.dev/proxy-protocol: the cloud adapter does not support this (no capability lb.proxy-protocol)
    annotation lb.cloudadapter.dev/algorithm: the cloud adapter does not support this (no capability lb.algorithm)
    spec.externalTrafficPolicy Local: the cloud adapter does not support this (no capability lb.health-check.http)
    ");
    assert!(checked(&demanding).unwrap().shape(&all(), None).is_ok());
}

// Behaviour: SF5
#[test]
fn invalid_service_is_refused_before_any_call() {
    let mut portless = web();
    portless.node_ports = NodePorts::Disabled;
    portless.ports.iter_mut().for_each(|port| port.node_port = 0);
    portless.annotations = annotated(&[("intrenal", "true")]);
    portless.source_ranges = vec!["10.0.0.1".to_owned()];
    portless.requested_address = Some("not-an-ip".to_owned());
    insta::assert_snapshot!(refusals(&portless, &all()), @r#"
    spec.allocateLoadBalancerNodePorts: false leaves spec.ports[0] without a node port: set it to true, or set spec.ports[0].nodePort
    annotation lb.cloudadapter.dev/intrenal: unknown key, did you mean 'lb.cloudadapter.dev/internal'?
    spec.loadBalancerSourceRanges: invalid CIDR "10.0.0.1" (invalid IP address syntax): write one such as 192.0.2.0/24
    spec.loadBalancerIP: invalid IP address "not-an-ip" (invalid IP address syntax): write one such as 192.0.2.7
    "#);

    let udp = Service {
        annotations: annotated(&[("proxy-protocol", "v1")]),
        ..service(&[port(Transport::Udp, 53)])
    };
    insta::assert_snapshot!(refusals(&udp, &all()), @"annotation lb.cloudadapter.dev/proxy-protocol: applies to TCP ports only and the Service has none: remove the annotation");
    insta::assert_snapshot!(refusals(&service(&[]), &all()), @"spec.ports: a load balancer needs at least one port");
}

// Behaviour: S6
#[test]
fn digest_ignores_irrelevant_fields() {
    let digest = |service: &Service| checked(service).unwrap().shape(&all(), None).unwrap().digest;
    let plain = digest(&web());
    let foreign =
        Service { annotations: [("example.com/owner".to_owned(), "me".to_owned())].into(), ..web() };
    assert_eq!(digest(&foreign), plain);
    let labelled_status = Service { ingress: vec![crate::plan::Ingress::default()], ..web() };
    assert_eq!(digest(&labelled_status), plain);
    assert_ne!(digest(&service(&[port(Transport::Tcp, 81)])), plain);
    assert_ne!(digest(&Service { requested_address: Some("192.0.2.7".to_owned()), ..web() }), plain);
}

#[test]
fn each_annotation_reaches_its_field() {
    type Said = &'static [(&'static str, &'static str)];
    type Shows = fn(&LoadBalancerSpec) -> bool;
    let rows: [(Said, Shows); 19] = [
        (&[("internal", "true")], |spec| spec.scheme() == contract::Scheme::Internal),
        (&[("internal", "false")], |spec| spec.scheme() == contract::Scheme::Internet),
        (&[("on-delete", "delete")], |spec| spec.address_retention() == contract::AddressRetention::Release),
        (&[("on-delete", "keep-address")], |spec| {
            spec.address_retention() == contract::AddressRetention::Keep
        }),
        (&[("share-with", "news, mail")], |spec| spec.shared_with == ["mail", "news"]),
        (&[("address", "192.0.2.7")], |spec| spec.requested_addresses == ["192.0.2.7"]),
        (&[("address-pool", "public")], |spec| spec.address_pool == "public"),
        (&[("subnet", "s-1, s-2")], |spec| spec.subnets == ["s-1", "s-2"]),
        (&[("size", "large")], |spec| spec.size == "large"),
        (&[("zone", "z1")], |spec| spec.zone == "z1"),
        (&[("name", "shop_web.1")], |spec| spec.name == "shop_web.1"),
        (&[("tags", "team=shop,cost=7")], |spec| spec.tags["team"] == "shop" && spec.tags["cost"] == "7"),
        (&[("x.sim.health-check-tls", "true")], |spec| spec.parameters["health-check-tls"] == "true"),
        (&[("algorithm", "least-connections")], |spec| {
            spec.listeners[0].algorithm() == Algorithm::LeastConnections
        }),
        (&[("listener-protocol", "http")], |spec| spec.listeners[0].application() == Application::Http),
        (&[("listener-protocol", "tls"), ("tls-cert-refs", "a,b")], |spec| {
            spec.listeners[0].application() == Application::Tls && spec.listeners[0].tls_refs == ["a", "b"]
        }),
        (&[("connect-timeout", "7s")], |spec| {
            spec.listeners[0].connect_timeout.is_some_and(|it| it.seconds == 7)
        }),
        (&[("connection-limit", "1000")], |spec| spec.listeners[0].connection_limit == Some(1000)),
        (&[("health-check.interval", "9s")], |spec| {
            spec.health_check.as_ref().and_then(|it| it.interval).is_some_and(|it| it.seconds == 9)
        }),
    ];
    for (annotations, shows) in rows {
        let spec = spec(&says(web(), annotations), &all());
        assert!(shows(&spec), "{annotations:?}: {spec:?}");
    }
    let plain = spec(&web(), &all());
    let silent = spec(&says(web(), &[("listener-protocol", "tcp"), ("proxy-protocol", "off")]), &all());
    assert_eq!(silent, plain, "default values are not sent");
}

#[test]
fn port_setting_applies_to_single_port() {
    let ports = [port(Transport::Tcp, 80), port(Transport::Tcp, 443), port(Transport::Udp, 53)];
    let said = [
        ("proxy-protocol", "v2"),
        ("port.tcp-80.proxy-protocol", "off"),
        ("port.443.listener-protocol", "https"),
        ("tls-cert-refs", "cert-1"),
        ("idle-timeout", "1m"),
        ("port.53.idle-timeout", "5s"),
    ];
    let spec = spec(&says(service(&ports), &said), &all());
    let headers: Vec<Header> = spec.listeners.iter().map(Listener::proxy_protocol).collect();
    assert_eq!(headers, [Header::Off, Header::V2, Header::Off]);
    let certificates: Vec<usize> = spec.listeners.iter().map(|it| it.tls_refs.len()).collect();
    assert_eq!(certificates, [0, 1, 0]);
    let applications: Vec<Application> = spec.listeners.iter().map(Listener::application).collect();
    assert_eq!(applications, [Application::Unspecified, Application::Https, Application::Unspecified]);
    let seconds: Vec<i64> =
        spec.listeners.iter().filter_map(|it| it.idle_timeout.as_ref()).map(|it| it.seconds).collect();
    assert_eq!(seconds, [60, 60, 5]);
}

#[test]
fn inapplicable_settings_are_refused_if_explicit() {
    let ports = [port(Transport::Udp, 53)];
    let said = [
        ("port.53.proxy-protocol", "v2"),
        ("listener-protocol", "https"),
        ("tls-cert-refs", "cert-1"),
        ("address", "2001:db8::7"),
        ("id", "lb-7"),
        ("health-check.interval", "5s"),
        ("connection-limit", "0"),
    ];
    insta::assert_snapshot!(refusals(&says(service(&ports), &said), &all()), @r#"
    annotation lb.cloudadapter.dev/connection-limit: "0" is not a number of connections: write 1 or more
    annotation lb.cloudadapter.dev/address: 2001:db8::7 is IPv6, but spec.ipFamilies contains only IPv4: request an IPv4 address
    annotation lb.cloudadapter.dev/listener-protocol: applies to TCP ports only and the Service has none: remove the annotation
    annotation lb.cloudadapter.dev/port.53.proxy-protocol: does not apply to this port: remove it
    annotation lb.cloudadapter.dev/tls-cert-refs: no port terminates TLS: set lb.cloudadapter.dev/listener-protocol to https or tls
    annotation lb.cloudadapter.dev/health-check.*: no port uses TCP, so nothing answers a health check: set lb.cloudadapter.dev/health-check.mode to kube-proxy
    annotation lb.cloudadapter.dev/id: has no effect by itself: set lb.cloudadapter.dev/adopt to owned to adopt that load balancer, or to shared to share it
    "#);
    insta::assert_snapshot!(refusals(&says(web(), &[("listener-protocol", "tls")]), &all()), @"annotation lb.cloudadapter.dev/listener-protocol: the load balancer terminates TLS: set its certificate with lb.cloudadapter.dev/tls-cert-refs");
    let mut knows_size = all();
    knows_size.parameters.insert("size".to_owned());
    let elsewhere = says(web(), &[("x.aws.size", "1"), ("x.aws.subnet", "1"), ("x.sim.size", "2")]);
    insta::assert_snapshot!(refusals(&elsewhere, &knows_size), @r"
    annotation lb.cloudadapter.dev/x.aws.size: this adapter is for sim, not aws: write lb.cloudadapter.dev/x.sim.size
    annotation lb.cloudadapter.dev/x.aws.subnet: this cloud (sim) does not know this parameter: remove the annotation
    ");

    // A default applies only to Services for which it is valid.
    let mut defaults = Defaults::default();
    for (key, value) in [
        ("proxy-protocol", "v2"),
        ("listener-protocol", "http"),
        ("tls-cert-refs", "c"),
        ("health-check.mode", "local"),
        ("health-check.path", "/x"),
        ("health-check.interval", "5s"),
    ] {
        defaults.set(key, value).unwrap();
    }
    let udp = service(&ports);
    let spec = Checked::new(&udp, &defaults).unwrap().shape(&all(), None).unwrap().with_targets("set");
    let plain = self::spec(&udp, &all());
    assert_eq!(spec, plain);
}

#[test]
fn unsupported_value_is_refused_with_supported_ones() {
    let capability = |name: &str, values: &str| Capability {
        name: name.to_owned(),
        level: Level::Stable.into(),
        attributes: [("values".to_owned(), values.to_owned())].into(),
    };
    let some = GetInfoResponse {
        provider: "sim".to_owned(),
        capabilities: vec![
            Capability { attributes: BTreeMap::new(), ..capability(name::LOAD_BALANCERS, "") },
            capability(name::ALGORITHM, "round-robin,source-ip"),
        ],
        ..GetInfoResponse::default()
    };
    let some = Features::from(&some);
    assert_eq!(
        spec(&says(web(), &[("algorithm", "source-ip")]), &some).listeners[0].algorithm(),
        Algorithm::SourceIp
    );
    insta::assert_snapshot!(refusals(&says(web(), &[("algorithm", "least-connections")]), &some), @"annotation lb.cloudadapter.dev/algorithm: the cloud adapter does not support least-connections: write one of round-robin, source-ip");
}

#[test]
fn unsupported_name_is_refused_only_from_annotation() {
    let mut shop = web();
    (shop.id.namespace, shop.id.name) = ("shop".to_owned(), "web".to_owned());
    let names = Template::read("{cluster}_{namespace}_{service}", "prod").unwrap();
    let defaults = Defaults::default().called(Some(names));
    let plain = Features::from([name::LOAD_BALANCERS]);
    let named = |service: &Service, features: &Features| {
        let checked = Checked::new(service, &defaults).unwrap();
        checked.shape(features, None).map(|shape| (shape.spec.name, checked.is_unnamed(features)))
    };
    assert_eq!(named(&shop, &all()), Ok(("prod_shop_web".to_owned(), false)));
    assert_eq!(named(&shop, &plain), Ok((String::new(), true)));
    let said = says(shop, &[("name", "front")]);
    assert_eq!(named(&said, &all()), Ok(("front".to_owned(), false)));
    insta::assert_snapshot!(refusals(&said, &plain), @"annotation lb.cloudadapter.dev/name: the cloud adapter does not support this (no capability lb.name)");
}

#[test]
fn takeover_changes_digest() {
    let digest = |annotations: &[(&str, &str)]| {
        checked(&says(web(), annotations)).unwrap().shape(&all(), None).unwrap().digest
    };
    let taken = digest(&[("adopt", "owned")]);
    assert_ne!(taken, digest(&[]));
    assert_ne!(taken, digest(&[("adopt", "owned"), ("id", "lb-7")]));
    assert_ne!(digest(&[("adopt", "owned"), ("id", "lb-7")]), digest(&[("adopt", "shared"), ("id", "lb-7")]));
    assert_eq!(digest(&[("adopt", "none")]), digest(&[]));
    assert_eq!(
        digest(&[("hostname", "a.example.com")]),
        digest(&[]),
        "the adapter need not know the hostname"
    );
}

/// Only a port that another user of the load balancer occupies is omitted; all other ports are requested.
#[test]
fn replacement_omits_occupied_ports() {
    let ports = [port(Transport::Tcp, 443), port(Transport::Tcp, 80), port(Transport::Udp, 80)];
    let three = service(&ports);
    let stands_in = |fields: &[&str]| {
        let fixed = fields.iter().map(|field| (*field).to_owned()).collect();
        let checked = checked(&three).unwrap();
        let shape = checked
            .shape_as_it_is(&all(), &Existing { fixed: &fixed, addresses: &[], good: None, only: None })?;
        let ports = shape.spec.listeners.iter().map(|it| (it.protocol(), it.port)).collect::<Vec<_>>();
        Some(ports)
    };
    use cloud_api_proto::v1alpha1::Protocol::{Tcp, Udp};
    assert_eq!(stands_in(&["spec.listeners[1].port"]), Some(vec![(Tcp, 443), (Udp, 80)]));
    assert_eq!(stands_in(&["spec.listeners[0].port", "spec.listeners[2].port"]), Some(vec![(Tcp, 80)]));
    let each = ["spec.listeners[0].port", "spec.listeners[1].port", "spec.listeners[2].port"];
    assert_eq!(stands_in(&each), None, "no ports are left");
}
