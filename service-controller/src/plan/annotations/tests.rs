//! Tests the annotations of a Service together.

use super::{
    keys::{MISTAKEN_PREFIX, PREFIX},
    *,
};

fn read(annotations: &[(&str, &str)]) -> (Wishes, String) {
    let annotations = annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    let port = Port { name: "http".to_owned(), ..Port::plain(Transport::Tcp, 80, 30_080) };
    let service =
        Service { annotations, ports: vec![port.clone(), Port { port: 81, ..port }], ..Service::default() };
    let (wishes, refusals) = wishes(&service, &Defaults::default());
    (wishes, refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn annotation_prefix_matches_contract_domain() {
    assert_eq!(PREFIX, format!("lb.{}/", cloud_api_proto::DOMAIN));
    assert_eq!(PREFIX, format!("lb.{MISTAKEN_PREFIX}"));
}

#[test]
fn annotation_keys_are_unique_and_short_enough() {
    let mut names: Vec<&str> = keys::ALL.iter().map(|key| key.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), keys::ALL.len());
    // The API server allows 63 bytes after the slash. Some keys follow `port.` and a port name of up to 15 bytes.
    assert!(names.iter().all(|name| "port.".len() + 15 + ".".len() + name.len() <= 63));
}

#[test]
fn keys_with_other_prefixes_are_not_settings() {
    let nothing = Wishes { ports: vec![PortWishes::default(); 2], ..Wishes::default() };
    let read = read(&[("example.com/internal", "true"), ("notcloudadapter.dev/internal", "true")]);
    assert_eq!(read, (nothing, String::new()));
}

// Behaviour: SF10
#[test]
fn keys_without_lb_in_the_prefix_are_refused() {
    let (wishes, faults) = read(&[
        ("cloudadapter.dev/internal", "true"),
        ("cloudadapter.dev/team-of-the-owner", "shop"),
        ("lb.cloudadapter.dev/size", "large"),
    ]);
    assert_eq!(wishes.size.unwrap().value, "large", "valid settings are read despite the errors");
    insta::assert_snapshot!(faults, @r"
    annotation cloudadapter.dev/internal: unknown key, did you mean 'lb.cloudadapter.dev/internal'?
    annotation cloudadapter.dev/team-of-the-owner: unknown key: remove it
    ");
}

// Behaviour: SF10
#[test]
fn each_annotation_error_is_reported_once_with_fix() {
    let (wishes, faults) = read(&[
        ("lb.cloudadapter.dev/intrenal", "true"),
        ("lb.cloudadapter.dev/idle-timeout", "fast"),
        ("lb.cloudadapter.dev/port.81.proxy-protocol", "3"),
        ("lb.cloudadapter.dev/port.8080.algorithm", "source-ip"),
        ("lb.cloudadapter.dev/port.80.size", "large"),
        ("lb.cloudadapter.dev/node-selector", "zone in a"),
        ("lb.cloudadapter.dev/size", "large"),
        ("lb.cloudadapter.dev/health-check.port", "70000"),
        ("lb.cloudadapter.dev/x.openstack", "y"),
    ]);
    assert_eq!(wishes.size.unwrap().value, "large", "valid settings are read despite the errors");
    insta::assert_snapshot!(faults, @r#"
    annotation lb.cloudadapter.dev/intrenal: unknown key, did you mean 'lb.cloudadapter.dev/internal'?
    annotation lb.cloudadapter.dev/port.80.size: applies to the whole load balancer, not to a port: write lb.cloudadapter.dev/size
    annotation lb.cloudadapter.dev/port.8080.algorithm: the Service has no port "8080": it has 80, 81
    annotation lb.cloudadapter.dev/x.openstack: is incomplete: write lb.cloudadapter.dev/x.<adapter>.<key>
    annotation lb.cloudadapter.dev/node-selector: invalid requirement "zone in a": write key=value, key!=value, key in (a, b), key or !key
    annotation lb.cloudadapter.dev/health-check.port: "70000" is not a number from 1 to 65535
    annotation lb.cloudadapter.dev/idle-timeout: "fast" is not a duration from 1s to 24h: write one such as 90s, 5m or 1h
    annotation lb.cloudadapter.dev/port.81.proxy-protocol: "3" is not known: write off, v1 or v2, or remove it
    "#);
}

#[test]
fn health_check_port_must_belong_to_service_or_operator() {
    let port = |value| read(&[("lb.cloudadapter.dev/health-check.port", value)]);
    for good in ["30080", "10256"] {
        let (wishes, faults) = port(good);
        assert_eq!(
            (wishes.health.port.map(|wish| wish.value.to_string()), faults.as_str()),
            (Some(good.to_owned()), "")
        );
    }
    let (wishes, faults) = port("10250");
    assert_eq!(wishes.health.port, None);
    insta::assert_snapshot!(faults, @"annotation lb.cloudadapter.dev/health-check.port: port 10250 is not allowed: write a node port or the healthCheckNodePort of this Service, or a port in serviceController.healthCheckPorts (10256)");
}

/// The chart's admission policy is tested with the same examples against a real API server.
// Behaviour: SF11
#[test]
fn annotation_examples_have_expected_result() {
    let examples = include_str!("examples.txt").lines().filter(|line| !line.starts_with('#'));
    let mut n_taken = 0;
    for line in examples {
        let mut parts = line.split('|').map(str::trim);
        let (validated, key, value) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let value = value.replace("\\n", "\n").replace("\\t", "\t");
        let (_wishes, faults) = read(&[(&format!("{PREFIX}{key}"), &value)]);
        assert_eq!(faults.is_empty(), validated == "taken", "{line}: {faults}");
        let words = parts.next().map(|words| format!("annotation {PREFIX}{key}: {words}"));
        assert!(words.is_none_or(|words| words == faults), "{line}: {faults}");
        n_taken += usize::from(validated == "taken");
    }
    assert!(n_taken > keys::ALL.len(), "every key");
}

/// Each port stores a copy of the list, and the annotations of an object may have 256 KiB.
#[test]
fn certificates_of_all_ports_have_a_limit_and_no_port_keeps_the_text() {
    let list: Vec<String> = (0..100).map(|n| format!("c-{n}")).collect();
    let annotation = format!("{}{}", list.join(","), " ".repeat(100_000));
    let service = |ports: u16| Service {
        ports: (1..=ports).map(|port| Port::plain(Transport::Tcp, port, 30_000)).collect(),
        annotations: [(format!("{PREFIX}tls-cert-refs"), annotation.clone())].into(),
        ..Service::default()
    };
    let judge = |ports| wishes(&service(ports), &Defaults::default());
    let (most, refusals) = judge(200);
    assert_eq!(refusals, []);
    assert!(most.ports.iter().flat_map(|it| &it.certificates).all(|wish| wish.given.value.is_empty()));
    let (_, refusals) = judge(300);
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].to_string().contains("serviceController.maxMembersPerService"), "{refusals:?}");
}

#[test]
fn error_about_an_unknown_port_names_ten_of_them() {
    let service = Service {
        ports: (1..=2_000).map(|port| Port::plain(Transport::Tcp, port, 30_000)).collect(),
        annotations: [(format!("{PREFIX}port.web.algorithm"), "round-robin".to_owned())].into(),
        ..Service::default()
    };
    let (_, refusals) = wishes(&service, &Defaults::default());
    let text = refusals.first().expect("no such port").to_string();
    assert!(text.ends_with("it has 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."), "{text}");
}
