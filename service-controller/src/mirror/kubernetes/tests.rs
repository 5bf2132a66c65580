//! Conversion of objects, including fields that are ignored.

use serde_json::{Value, json};

use super::*;
use crate::plan::{
    compat::Compat,
    service::{Classes, Role, manager},
};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn object() -> KubeService {
    read(json!({
        "metadata": {
            "namespace": "shop", "name": "web", "uid": "u-1", "resourceVersion": "7",
            "finalizers": ["example.com/other", "service.kubernetes.io/load-balancer-cleanup"],
            "annotations": {
                "example.com/owner": "me",
                "lb.cloudadapter.dev/internal": "true",
                "lb.cloudadapter.dev/port.http.algorithm": "source-ip",
                "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8",
            },
        },
        "spec": {
            "type": "LoadBalancer",
            "ports": [
                {"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP", "appProtocol": "kubernetes.io/h2c"},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ],
            "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack",
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "allocateLoadBalancerNodePorts": false,
            "loadBalancerIP": "192.0.2.7",
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7", "ipMode": "VIP"}]}},
    }))
}

#[test]
fn service_conversion() {
    let service = service(&object(), &Reading::default()).unwrap();
    assert_eq!(service.id.to_string(), "shop/web");
    assert_eq!(
        (service.kind, service.class, service.finalizer),
        (Kind::LoadBalancer, Class::Ours(None), true)
    );
    assert_eq!(service.families, [Family::V6, Family::V4]);
    assert_eq!(service.family_policy, FamilyPolicy::BothRequired);
    assert_eq!(service.traffic, Traffic::Local { health_check_node_port: 32_000 });
    assert_eq!(service.affinity, Affinity::ClientIp { timeout_seconds: Some(60) });
    assert_eq!(service.node_ports, NodePorts::Disabled);
    assert_eq!(service.requested_address.as_deref(), Some("192.0.2.7"));
    let ports: Vec<_> = service.ports.iter().map(|it| (it.transport, it.port, it.node_port)).collect();
    assert_eq!(ports, [(Transport::Tcp, 80, 30_080), (Transport::Udp, 53, 0)]);
    let spoken: Vec<_> = service.ports.iter().map(|it| it.app_protocol.as_str()).collect();
    assert_eq!(spoken, ["kubernetes.io/h2c", ""]);
    let keys: Vec<&str> = service.annotations.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "lb.cloudadapter.dev/internal",
            "lb.cloudadapter.dev/port.http.algorithm",
            source_ranges::ANNOTATION
        ]
    );
    assert_eq!(service.ingress.len(), 1);
}

#[test]
fn finalizer_or_address_is_evidence_of_a_load_balancer() {
    let no_finalizer = || KubeService { metadata: Default::default(), ..object() };
    for (object, expected) in [
        (object(), true),
        (no_finalizer(), true),
        (KubeService { status: None, ..object() }, true),
        (KubeService { status: None, ..no_finalizer() }, false),
    ] {
        assert_eq!(may_have_load_balancer(&object), expected, "{object:?}");
    }
}

#[test]
fn invalid_ports_are_named_by_index() {
    let given = json!([
        {"port": 80, "nodePort": 30080},
        {"port": 443, "nodePort": 30443, "protocol": "QUIC"},
        {"port": 70_000, "protocol": "TCP"},
        {"port": 53, "nodePort": -1, "protocol": "UDP"},
        {"port": 5060, "protocol": "SCTP"},
    ]);
    let (ports, unread, node_ports) = ports(&read(json!({ "ports": given })));
    assert_eq!(node_ports, [30_443], "the node ports still belong to the Service");
    assert_eq!(ports.iter().map(|it| it.port).collect::<Vec<_>>(), [80, 5060]);
    let unread: Vec<String> = unread.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(unread.join("\n"), @r#"
    spec.ports[1].protocol: unknown protocol 'QUIC': use one of: TCP, UDP, SCTP, or move that port to a Service of another type
    spec.ports[2].port: invalid port 70000: write 1 to 65535
    spec.ports[3].nodePort: invalid port -1: write 1 to 65535
    "#);
}

// Behaviour: S1
#[test]
fn class_decides_which_controller_manages_service() {
    let ours = |class: &str| Class::Ours(Some(class.to_owned()));
    let (unclassed, any) = (|| Class::Ours(None), Class::Others);
    let rows = [
        // Columns: the controller's own class, whether the controller manages Services without a class, class of the Service, result
        (None, true, None, unclassed()),
        (None, true, Some(""), any.clone()),
        (None, true, Some("a/b"), any.clone()),
        (Some("a/b"), true, None, unclassed()),
        (Some("a/b"), true, Some("a/b"), ours("a/b")),
        (Some("a/b"), true, Some("A/B"), any.clone()),
        (Some("a/b"), false, None, any),
        (Some("a/b"), false, Some("a/b"), ours("a/b")),
    ];
    for (own, unclassed, class, want) in rows {
        let mut object = object();
        object.spec.as_mut().unwrap().load_balancer_class = class.map(str::to_owned);
        let classes = Classes { own: own.map(str::to_owned), unclassed };
        let reading = Reading { classes, ..Reading::default() };
        let found = service(&object, &reading).unwrap().class;
        assert_eq!(found, want, "{own:?} {unclassed} {class:?}");
    }
}

/// Entries of `metadata.managedFields` as an API server writes them.
fn managed(object: &mut KubeService, finalizer: &[&str], status: &[&str]) {
    let finalizer_fields = json!({ "f:metadata": { "f:finalizers": {
        ".": {}, "v:\"service.kubernetes.io/load-balancer-cleanup\"": {},
    } } });
    let status_fields = json!({ "f:status": { "f:loadBalancer": { "f:ingress": {} } } });
    let entry = |manager: &&str, fields: &Value| {
        read(json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "subresource": "status",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }))
    };
    let finalizer = finalizer.iter().map(|manager| entry(manager, &finalizer_fields));
    let status = status.iter().map(|manager| entry(manager, &status_fields));
    object.metadata.managed_fields = Some(finalizer.chain(status).collect());
}

type Row<'a> = (&'a str, Classes, &'a [&'a str], &'a [&'a str], bool);

// Behaviour: W16
#[test]
fn finalizer_owner_follows_from_managed_fields() {
    let (own, plain, occm) =
        ("service-controller a/b", "service-controller", "openstack-cloud-controller-manager");
    let rows: [Row<'_>; 11] = [
        // Columns: the case, the controller's own classes, the managers of the finalizer, the managers of the status, whether the finalizer
        // counts as this controller's.
        ("unknown", Classes::default(), &[], &[], false),
        ("this controller", Classes::default(), &[plain], &[plain], true),
        ("this controller, and no address was written", Classes::default(), &[plain], &[], true),
        ("another client", Classes::default(), &["other"], &["other"], false),
        ("both", Classes::default(), &[plain, "other"], &[], false),
        ("another client kept this controller's finalizer", Classes::default(), &[plain], &["other"], false),
        ("another service-controller, for its class", Classes::default(), &[own], &[own], false),
        (
            "this controller, for its class",
            Classes { own: Some("a/b".to_owned()), unclassed: false },
            &[own],
            &[own],
            true,
        ),
        (
            "another service-controller, for Services without a class",
            Classes { own: Some("a/b".to_owned()), unclassed: false },
            &[plain],
            &[],
            false,
        ),
        (
            "this controller, for Services without a class",
            Classes { own: Some("a/b".to_owned()), unclassed: true },
            &[plain],
            &[],
            true,
        ),
        ("former controller, without --compat", Classes::default(), &[occm], &[occm], false),
    ];
    let found = |reading: &Reading, finalizer: &[&str], status: &[&str]| {
        let mut object = object();
        object.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
        managed(&mut object, finalizer, status);
        service(&object, reading).unwrap().class
    };
    for (name, classes, finalizer, status, is_ours) in rows {
        let reading = Reading { classes, ..Reading::default() };
        let want = if is_ours { Class::Ours(None) } else { Class::Lost };
        assert_eq!(found(&reading, finalizer, status), want, "{name}");
    }
    let compat = Reading { compat: Some(Compat::Openstack), ..Reading::default() };
    assert_eq!(found(&compat, &[occm], &[occm]), Class::Ours(None), "former controller, with --compat");
}

// Behaviour: S4
#[test]
fn finalizer_written_by_author_belongs_to_no_controller() {
    let others = |names: &str| Holder::Others(names.to_owned());
    let rows: [(&[&str], &str, &[&str], Holder); 9] = [
        // Columns: managers of the finalizer, subresource of that write, managers of the status, result
        (&["kubectl-create"], "", &[], Holder::Author),
        (&["loadbalancer.test"], "", &[], Holder::Author),
        (&["service-controller.test"], "", &[], Holder::Author),
        (&["unknown"], "", &["service-controller"], Holder::Author),
        (&["unknown"], "", &["cloud-controller-manager"], others("unknown")),
        (&["unknown"], "status", &[], others("unknown")),
        (&["aws-cloud-controller-manager"], "", &[], others("aws-cloud-controller-manager")),
        (&["b", "a-operator"], "", &[], others("a-operator or b")),
        (&[], "", &[], Holder::Unknown),
    ];
    let found = |finalizer: &[&str], subresource: &str, status: &[&str], reading: &Reading| {
        let mut object = object();
        object.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
        managed(&mut object, finalizer, status);
        let entries = object.metadata.managed_fields.iter_mut().flatten().take(finalizer.len());
        entries.for_each(|entry| entry.subresource = Some(subresource.to_owned()));
        service(&object, reading).unwrap().holder
    };
    for (finalizer, subresource, status, want) in rows {
        let holder = found(finalizer, subresource, status, &Reading::default());
        assert_eq!(holder, want, "{finalizer:?} {subresource:?} {status:?}");
    }
    let classes = Classes { own: Some("a/b".to_owned()), unclassed: false };
    let classed = Reading { classes, ..Reading::default() };
    assert_eq!(found(&["kubectl-create"], "", &[], &classed), others("kubectl-create"), "another's");
}

#[test]
fn hostname_in_status_is_own_unless_other_client_wrote_it() {
    let mut object = object();
    object.status = read(json!({ "loadBalancer": { "ingress": [{ "hostname": "web.example.com" }] } }));
    let address = [Ingress { ip: Some("192.0.2.7".to_owned()), ..Ingress::default() }];
    for (writers, may_be) in [
        (&[][..], true),
        (&["service-controller"][..], true),
        (&["service-controller a/b"][..], true),
        (&["other"][..], false),
    ] {
        managed(&mut object, &[], writers);
        let service = service(&object, &Reading::default()).unwrap();
        assert_eq!(service.shows(&address), may_be, "{writers:?}");
    }
}

#[test]
fn field_manager_name_is_bounded_for_any_class() {
    let long = format!("{}/b", "a".repeat(200));
    assert_eq!(manager(Some("a/b")), "service-controller a/b");
    assert!(manager(Some(&long)).len() <= 128);
    assert_ne!(manager(Some(&long)), manager(Some(&long.replace("/b", "/c"))));
}

#[test]
fn object_without_expected_fields_requests_nothing() {
    let meta = json!({"namespace": "shop", "name": "web", "uid": "u-1"});
    for object in [
        json!({ "metadata": meta }),
        json!({ "metadata": meta, "spec": {} }),
        json!({ "metadata": meta, "spec": { "type": "LoadBalancers" }, "status": {} }),
    ] {
        let service = service(&read(object), &Reading::default()).unwrap();
        assert_eq!((service.kind, service.role()), (Kind::Other, Role::Ignored));
        assert_eq!((service.families, service.ports.len()), (vec![Family::V4], 0));
    }
    for nameless in [json!({}), json!({ "metadata": { "name": "web", "uid": "u-1" } })] {
        assert_eq!(service(&read(nameless), &Reading::default()), None);
    }
}

#[test]
fn unknown_enum_values_are_treated_conservatively() {
    let object = read(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u-1"},
        "spec": {
            "type": "LoadBalancer",
            "ports": [
                {"port": 80, "nodePort": 30080, "protocol": "QUIC"},
                {"port": 70_000, "nodePort": 30081},
                {"port": 81, "nodePort": -1},
            ],
            "ipFamilies": ["IPv5"], "ipFamilyPolicy": "Whatever", "externalTrafficPolicy": "Nearby",
            "sessionAffinity": "Cookie", "healthCheckNodePort": -5,
        },
        "status": {"loadBalancer": {"ingress": [{}]}},
    }));
    let service = service(&object, &Reading::default()).unwrap();
    assert!(service.ports.is_empty(), "invalid values are not replaced by guesses: {:?}", service.ports);
    assert_eq!((service.families, service.family_policy), (vec![Family::V4], FamilyPolicy::OneWillDo));
    assert_eq!((service.traffic, service.affinity), (Traffic::Cluster, Affinity::None));
    assert_eq!(service.ingress, [Ingress::default()]);
}

#[test]
fn ingress_round_trip() {
    let entry = Ingress {
        ip: Some("192.0.2.1".to_owned()),
        ip_mode: Some("Proxy".to_owned()),
        ports: vec![IngressPort { port: 80, transport: Transport::Tcp, error: Some("Bad".to_owned()) }],
        ..Ingress::default()
    };
    assert_eq!(ingress_entry(&to_ingress(&entry)), entry);
}

// Behaviour: S25
#[test]
fn missing_ip_mode_means_vip() {
    let bare = Ingress { ip: Some("192.0.2.1".to_owned()), ..Ingress::default() };
    let vip = Ingress { ip_mode: Some("VIP".to_owned()), ..bare.clone() };
    let proxy = Ingress { ip_mode: Some("Proxy".to_owned()), ..bare.clone() };
    assert!(bare.same_as(&vip) && vip.same_as(&bare) && !bare.same_as(&proxy));
}

#[test]
fn node_conversion_for_targets() {
    let object: KubeNode = read(json!({
        "metadata": {"name": "a", "labels": {
            "topology.kubernetes.io/zone": "z1",
            "node.kubernetes.io/exclude-from-external-load-balancers": "",
        }},
        "spec": {
            "providerID": "sim://r1/a",
            "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}],
        },
        "status": {"addresses": [
            {"type": "Hostname", "address": "a"},
            {"type": "ExternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "InternalIP", "address": "2001:db8::1"},
        ]},
    }));
    let node = node(&object).unwrap();
    assert_eq!(node.provider_id.as_deref(), Some("sim://r1/a"));
    assert_eq!(node.zone.as_deref(), Some("z1"));
    assert_eq!(node.labels.len(), 2, "all labels are kept for selectors");
    assert_eq!((node.exclude.as_deref(), node.leaving, node.deleting), (Some(""), true, false));
    let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.1", "2001:db8::1"]);
}
