//! These tests cover the hash, and the faults that are the same on every cloud.

use cloud_api_proto::v1alpha1::listener::Application;

use super::*;

fn listener() -> Listener {
    let name = "web".to_owned();
    Listener {
        name,
        protocol: Protocol::Tcp.into(),
        port: 80,
        node_port: Some(30_080),
        ..Listener::default()
    }
}

fn plain() -> LoadBalancerSpec {
    LoadBalancerSpec {
        scheme: Scheme::Internal.into(),
        ip_families: vec![IpFamily::Ipv4.into()],
        listeners: vec![listener()],
        backend_set_id: "s1".to_owned(),
        ..LoadBalancerSpec::default()
    }
}

type Change = fn(&mut LoadBalancerSpec);

/// Each row contains a change that must change the hash, and an invalid value of the same field.
const FIELDS: [(Change, Change, &str); 10] = [
    (
        |spec| spec.address_pool = "public".into(),
        |spec| spec.address_pool = "x".repeat(257),
        "spec.address_pool",
    ),
    (
        |spec| spec.subnets = vec!["a".into()],
        |spec| spec.subnets = vec!["a".into(), "a".into()],
        "spec.subnets[1]",
    ),
    (|spec| spec.size = "large".into(), |spec| spec.size = "x".repeat(257), "spec.size"),
    (|spec| spec.zone = "z1".into(), |spec| spec.zone = "x".repeat(257), "spec.zone"),
    (|spec| spec.address_retention = 2, |spec| spec.address_retention = 99, "spec.address_retention"),
    (
        |spec| spec.listeners[0].algorithm = 2,
        |spec| spec.listeners[0].algorithm = 99,
        "spec.listeners[0].algorithm",
    ),
    (
        |spec| spec.listeners[0].application = 2,
        |spec| spec.listeners[0].application = 99,
        "spec.listeners[0].application",
    ),
    (
        |spec| spec.listeners[0].connect_timeout = Duration::from_secs(5).try_into().ok(),
        |spec| spec.listeners[0].connect_timeout = Duration::from_hours(25).try_into().ok(),
        "spec.listeners[0].connect_timeout",
    ),
    (
        |spec| spec.listeners[0].connection_limit = Some(9),
        |spec| spec.listeners[0].connection_limit = Some(0),
        "spec.listeners[0].connection_limit",
    ),
    (
        |spec| spec.listeners[0].app_protocol = "x".repeat(317),
        |spec| spec.listeners[0].app_protocol = "x".repeat(318),
        "spec.listeners[0].app_protocol",
    ),
];

fn faults(change: impl FnOnce(&mut LoadBalancerSpec)) -> Vec<String> {
    let mut wanted = plain();
    change(&mut wanted);
    let request = EnsureLoadBalancerRequest { spec: Some(wanted.clone()), ..Default::default() };
    let mut faults = Faults(texts::faults(&wanted));
    enums(&request, &wanted, &mut faults);
    listeners(&wanted.listeners, &mut faults);
    addresses(&wanted, &mut faults);
    faults.0.into_iter().map(|fault| fault.field).collect()
}

/// The digest was computed by hand from the encoded bytes: scheme, family, and the listener without its name.
#[test]
fn unset_new_fields_keep_the_hash() {
    assert_eq!(hash(&plain()), "1-37c1675e8f76ad402f46f5d52aa21258");
    for (change, _, field) in FIELDS {
        let mut changed = plain();
        change(&mut changed);
        assert_ne!(hash(&changed), hash(&plain()), "{field}");
        assert_eq!(faults(change), Vec::<String>::new(), "{field}");
    }
}

#[test]
fn faults_are_reported_under_their_fields() {
    assert_eq!(faults(|_plain| ()), Vec::<String>::new());
    for (_, change, field) in FIELDS {
        assert_eq!(faults(change), [field]);
    }
    let all = faults(|spec| FIELDS.iter().for_each(|(_, change, _)| change(spec)));
    for (_, _, field) in FIELDS {
        assert!(all.iter().any(|found| found == field), "{field} in {all:?}");
    }
}

#[test]
fn name_has_plain_letters_and_is_not_hashed() {
    let named = |name: &str| LoadBalancerSpec { name: name.to_owned(), ..plain() };
    assert_eq!(hash(&named("shop-web")), hash(&plain()), "the name is not hashed");
    let reported = |text: &str| {
        let mut faults = Faults::default();
        name(text, &mut faults);
        faults.0.into_iter().map(|fault| fault.field).collect::<Vec<_>>()
    };
    for good in ["", "a", "Shop_web.1", &"x".repeat(255)] {
        assert!(reported(good).is_empty(), "{good}");
    }
    for bad in ["-web", "web-", "shop/web", "sh\u{f6}p", " ", &"x".repeat(256)] {
        assert_eq!(reported(bad), ["spec.name"], "{bad}");
    }
}

#[test]
fn every_string_is_measured() {
    let long = || "x".repeat(257);
    let rows: [(&str, Change); 7] = [
        ("spec.class", |spec| spec.class = Some("x".repeat(257))),
        ("spec.health_check.path", |spec| {
            spec.health_check.get_or_insert_default().path = "x".repeat(257);
        }),
        ("spec.tags[team]", |spec| spec.tags = [("team".into(), "x".repeat(257))].into()),
        ("spec.parameters[team]", |spec| spec.parameters = [("team".into(), "x".repeat(257))].into()),
        ("spec.listeners[0].name", |spec| spec.listeners[0].name = "x".repeat(257)),
        ("spec.listeners[0].tls_refs[1]", |spec| {
            spec.listeners[0].tls_refs = vec!["a".into(), "x".repeat(257)];
        }),
        ("spec.subnets[0]", |spec| spec.subnets = vec!["x".repeat(257)]),
    ];
    for (field, change) in rows {
        assert_eq!(faults(change), [field]);
    }
    let key = faults(|spec| spec.tags = [(long(), String::new())].into());
    assert_eq!(key, [format!("spec.tags[{}]", "x".repeat(64))]);
}

#[test]
fn tls_terminates_only_with_a_certificate() {
    use Application::{Http, Https, Pass, Tls, Unspecified};
    let rows: [(Application, bool, Protocol, &[&str]); 9] = [
        (Unspecified, false, Protocol::Udp, &[]),
        (Unspecified, true, Protocol::Tcp, &[]),
        (Pass, true, Protocol::Tcp, &["spec.listeners[0].tls_refs"]),
        (Http, true, Protocol::Tcp, &["spec.listeners[0].tls_refs"]),
        (Http, false, Protocol::Tcp, &[]),
        (Https, false, Protocol::Tcp, &["spec.listeners[0].tls_refs"]),
        (Https, true, Protocol::Tcp, &[]),
        (Tls, true, Protocol::Tcp, &[]),
        (Tls, true, Protocol::Udp, &["spec.listeners[0].application"]),
    ];
    for (application, certified, protocol, want) in rows {
        let found = faults(|spec| {
            let listener = &mut spec.listeners[0];
            listener.set_application(application);
            listener.set_protocol(protocol);
            listener.tls_refs = if certified { vec!["cert".into()] } else { Vec::new() };
        });
        assert_eq!(found, want, "{application:?} {certified} {protocol:?}");
    }
}

#[test]
fn timeouts_are_bounded() {
    let timed = |seconds, nanos| {
        faults(|spec| {
            spec.listeners[0].idle_timeout = Some(prost_types::Duration { seconds, nanos });
        })
    };
    for (seconds, nanos) in [(0, 1), (1, 0), (86_400, 0)] {
        assert!(timed(seconds, nanos).is_empty(), "{seconds} {nanos}");
    }
    for (seconds, nanos) in [(0, 0), (-1, 0), (86_400, 1), (i64::MAX, 0)] {
        assert_eq!(timed(seconds, nanos), ["spec.listeners[0].idle_timeout"], "{seconds} {nanos}");
    }
}

#[test]
fn source_ranges_are_bounded_with_the_listeners_that_they_are_for() {
    let judge = |ranges: u32| {
        faults(|spec| {
            spec.listeners = (1..=10).map(|port| Listener { port, ..listener() }).collect();
            spec.source_ranges = (0..ranges).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
        })
    };
    assert_eq!(judge(10_000), Vec::<String>::new());
    assert_eq!(judge(10_001), ["spec.source_ranges"]);
}

#[test]
fn lists_are_bounded() {
    let names = |count: usize| (0..count).map(|n| format!("n-{n}")).collect::<Vec<_>>();
    assert_eq!(faults(|spec| spec.shared_with = names(500)), Vec::<String>::new());
    assert_eq!(faults(|spec| spec.shared_with = names(501)), ["spec.shared_with"]);
    let tags = |count| names(count).into_iter().map(|name| (name, String::new())).collect();
    assert_eq!(faults(|spec| spec.tags = tags(501)), ["spec.tags"]);
}
