//! Kubernetes objects, trimmed to the fields that decide anything here. A kubelet's heartbeat changes none of a node's.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{
        LoadBalancerIngress, Node as KubeNode, PortStatus, Service as KubeService, ServicePort, ServiceSpec,
    },
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta},
};

use super::Reading;
use crate::CONTROLLER;
use crate::plan::{
    Refusal,
    annotations::keys,
    compat::{Translation, is_foreign, translate},
    service::{
        Affinity, Class, FINALIZER, Family, FamilyPolicy, Holder, Ingress, IngressPort, Kind, NodePorts,
        Port, Service, ServiceId, Traffic, Transport,
    },
    source_ranges,
    targets::{AUTOSCALER_TAINT, EXCLUDE_LABEL, Node},
};

/// Labels of a node's zone, the current one first.
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

/// Where `metadata.managedFields` says who wrote a load balancer's addresses.
const STATUS: [&str; 3] = ["f:status", "f:loadBalancer", "f:ingress"];

/// Words in the names of programs that may have made a load balancer.
const CONTROLLERS: [&str; 4] = ["controller", "manager", "operator", "ccm"];

/// A Service as far as its load balancer cares. `None`: an object that no API server would send.
pub(crate) fn service(object: &KubeService, reading: &Reading) -> Option<Service> {
    let meta = &object.metadata;
    let own = meta.annotations.as_ref().map(ours).unwrap_or_default();
    let Translation { annotations, foreign } = translate(reading.compat, own);
    let spec = object.spec.clone().unwrap_or_default();
    let kind = match spec.type_.as_deref() {
        Some("LoadBalancer") => Kind::LoadBalancer,
        Some(_) | None => Kind::Other,
    };
    let class = match kind {
        Kind::LoadBalancer => reading.classes.class(spec.load_balancer_class.clone()),
        Kind::Other if is_held_by_us(meta, reading) => Class::Ours(None),
        Kind::Other => Class::Lost,
    };
    let holder = if kind == Kind::Other { holder(meta, reading) } else { Holder::default() };
    let goes = reading.none_wanted && matches!(class, Class::Ours(_));
    let (ports, unread_ports) = ports(&spec);
    let status = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_ref());
    Some(Service {
        id: ServiceId {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
        },
        version: meta.resource_version.clone().unwrap_or_default(),
        kind: if goes { Kind::Other } else { kind },
        class,
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta.finalizers.iter().flatten().any(|it| it == FINALIZER),
        ports,
        unread_ports,
        node_ports: match spec.allocate_load_balancer_node_ports {
            Some(false) => NodePorts::Disabled,
            Some(true) | None => NodePorts::Allocated,
        },
        families: families(&spec),
        family_policy: match spec.ip_family_policy.as_deref() {
            Some("RequireDualStack") => FamilyPolicy::BothRequired,
            Some(_) | None => FamilyPolicy::OneWillDo,
        },
        affinity: affinity(&spec),
        traffic: traffic(&spec),
        requested_address: spec.load_balancer_ip.filter(|ip| !ip.is_empty()),
        source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
        annotations,
        foreign,
        ingress: ingress.into_iter().flatten().map(ingress_entry).collect(),
        ingress_of_another: {
            let writers = holders(meta, &STATUS);
            !writers.is_empty() && !writers.iter().any(|writer| writer.starts_with(CONTROLLER))
        },
        holder,
    })
}

/// Whether we put the finalizer there, and nobody else has written the status since.
///
/// The class that would tell is gone with the type. Another's controller may have found the finalizer there and rely on it: what its
/// load balancer has for addresses is written under its own name, and so it stays though the API server empties the status.
fn is_held_by_us(meta: &ObjectMeta, reading: &Reading) -> bool {
    let finalizer = holders(meta, &finalizer_path());
    let ours = |name: &&str| reading.writes_as(name);
    !finalizer.is_empty() && finalizer.iter().all(ours) && holders(meta, &STATUS).iter().all(ours)
}

/// Who put the finalizer there.
///
/// Controllers of load balancers patch the status with it, as `k8s.io/cloud-provider` does, or bear a telling name; and what they made
/// stands in the status under their name. Where those without a class are another's, whatever holds them is, too.
fn holder(meta: &ObjectMeta, reading: &Reading) -> Holder {
    let finalizer: Vec<&ManagedFieldsEntry> = entries(meta, &finalizer_path()).collect();
    let names: BTreeSet<&str> = finalizer.iter().filter_map(|entry| entry.manager.as_deref()).collect();
    let by_author = |entry: &&ManagedFieldsEntry| {
        entry.subresource.as_deref().unwrap_or_default().is_empty()
            && !entry.manager.as_deref().is_some_and(is_named_as_a_controller)
    };
    let no_address = holders(meta, &STATUS).iter().all(|name| reading.writes_as(name));
    if finalizer.is_empty() {
        Holder::Unknown
    } else if finalizer.iter().all(by_author) && no_address && reading.classes.unclassed {
        Holder::Author
    } else {
        Holder::Others(names.into_iter().collect::<Vec<_>>().join(" and "))
    }
}

/// Tests of controllers are clients as any other.
fn is_named_as_a_controller(manager: &str) -> bool {
    !manager.ends_with(".test") && CONTROLLERS.iter().any(|word| manager.contains(word))
}

fn finalizer_path() -> [String; 3] {
    ["f:metadata".to_owned(), "f:finalizers".to_owned(), format!("v:\"{FINALIZER}\"")]
}

/// Who wrote the field at this path of `metadata.managedFields`.
fn holders<'a, P: AsRef<str>>(meta: &'a ObjectMeta, path: &[P]) -> Vec<&'a str> {
    entries(meta, path).filter_map(|entry| entry.manager.as_deref()).collect()
}

fn entries<'a, P: AsRef<str>>(
    meta: &'a ObjectMeta,
    path: &[P],
) -> impl Iterator<Item = &'a ManagedFieldsEntry> {
    meta.managed_fields.iter().flatten().filter(move |entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let mut path = path.iter().map(AsRef::as_ref);
        path.try_fold(fields, |fields, key| fields?.get(key).map(Some)).is_some_and(|it| it.is_some())
    })
}

/// A node as far as load balancers care. `None`: an object that no API server would send.
pub(crate) fn node(object: &KubeNode) -> Option<Node> {
    let meta = &object.metadata;
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let spec = object.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    let addresses = object.status.as_ref().and_then(|status| status.addresses.as_ref());
    let internal = addresses.into_iter().flatten().filter(|it| it.type_ == "InternalIP");
    Some(Node {
        name: meta.name.clone()?,
        provider_id: spec.and_then(|spec| spec.provider_id.clone()).filter(|id| !id.is_empty()),
        addresses: internal.filter_map(|it| it.address.parse().ok()).collect(),
        zone: ZONE_LABELS.into_iter().find_map(label).filter(|zone| !zone.is_empty()),
        deleting: meta.deletion_timestamp.is_some(),
        exclude: label(EXCLUDE_LABEL),
        leaving: taints.into_iter().flatten().any(|taint| taint.key == AUTOSCALER_TAINT),
        labels: meta.labels.clone().unwrap_or_default(),
    })
}

/// The status entry that the API server gets.
pub(crate) fn to_ingress(ingress: &Ingress) -> LoadBalancerIngress {
    let port = |it: &IngressPort| PortStatus {
        port: it.port.into(),
        protocol: it.transport.word().to_owned(),
        error: it.error.clone(),
    };
    let ports: Vec<PortStatus> = ingress.ports.iter().map(port).collect();
    LoadBalancerIngress {
        ip: ingress.ip.clone(),
        hostname: ingress.hostname.clone(),
        ip_mode: ingress.ip_mode.clone(),
        ports: (!ports.is_empty()).then_some(ports),
    }
}

fn ingress_entry(entry: &LoadBalancerIngress) -> Ingress {
    let port = |it: &PortStatus| {
        Some(IngressPort {
            port: u16::try_from(it.port).ok()?,
            transport: transport(Some(&it.protocol))?,
            error: it.error.clone(),
        })
    };
    Ingress {
        ip: entry.ip.clone().filter(|ip| !ip.is_empty()),
        hostname: entry.hostname.clone().filter(|name| !name.is_empty()),
        ip_mode: entry.ip_mode.clone(),
        ports: entry.ports.iter().flatten().filter_map(port).collect(),
    }
}

/// The ports, and what is wrong with those that are none to us. Today's API server takes no such port; what a later one takes must not be
/// left out of a load balancer without a word.
fn ports(spec: &ServiceSpec) -> (Vec<Port>, Vec<Refusal>) {
    let (mut ports, mut unread) = (Vec::new(), Vec::new());
    for (at, given) in spec.ports.iter().flatten().enumerate() {
        match port(given) {
            Ok(port) => ports.push(port),
            Err((field, why)) => unread.push(Refusal::new(format!("spec.ports[{at}].{field}"), why)),
        }
    }
    (ports, unread)
}

/// One port, or its field that makes no sense to us.
fn port(port: &ServicePort) -> Result<Port, (&'static str, String)> {
    let number = |field, number: i32| {
        u16::try_from(number).map_err(|_range| (field, format!("{number} is no port: write 1 to 65535")))
    };
    let protocol = port.protocol.as_deref();
    let unknown = || {
        let given = protocol.unwrap_or_default();
        (
            "protocol",
            format!(
                "{given:?} is not known: write TCP, UDP or SCTP, or give that port a Service of another type"
            ),
        )
    };
    Ok(Port {
        name: port.name.clone().unwrap_or_default(),
        transport: transport(protocol).ok_or_else(unknown)?,
        port: number("port", port.port)?,
        node_port: number("nodePort", port.node_port.unwrap_or_default())?,
        app_protocol: port.app_protocol.clone().unwrap_or_default(),
    })
}

fn transport(protocol: Option<&str>) -> Option<Transport> {
    match protocol {
        None | Some("TCP") => Some(Transport::Tcp),
        Some("UDP") => Some(Transport::Udp),
        Some("SCTP") => Some(Transport::Sctp),
        Some(_) => None,
    }
}

/// The API server always fills this in; one that did not meant IPv4.
fn families(spec: &ServiceSpec) -> Vec<Family> {
    let families: Vec<Family> = spec
        .ip_families
        .iter()
        .flatten()
        .map(|family| if family == "IPv6" { Family::V6 } else { Family::V4 })
        .collect();
    if families.is_empty() { vec![Family::V4] } else { families }
}

fn affinity(spec: &ServiceSpec) -> Affinity {
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    match spec.session_affinity.as_deref() {
        Some("ClientIP") => Affinity::ClientIp {
            timeout_seconds: config
                .and_then(|client_ip| client_ip.timeout_seconds)
                .and_then(|seconds| u32::try_from(seconds).ok()),
        },
        Some(_) | None => Affinity::None,
    }
}

fn traffic(spec: &ServiceSpec) -> Traffic {
    let port = spec.health_check_node_port.and_then(|port| u16::try_from(port).ok());
    match spec.external_traffic_policy.as_deref() {
        Some("Local") => Traffic::Local { health_check_node_port: port.unwrap_or(0) },
        Some(_) | None => Traffic::Cluster,
    }
}

fn ours(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations
        .iter()
        .filter(|(key, _)| {
            key.starts_with(keys::PREFIX) || *key == source_ranges::ANNOTATION || is_foreign(key)
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
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
    fn what_matters_of_a_service_is_kept() {
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
    fn what_no_port_of_ours_can_be_is_named_by_its_place() {
        let given = json!([
            {"port": 80, "nodePort": 30080},
            {"port": 443, "protocol": "QUIC"},
            {"port": 70_000, "protocol": "TCP"},
            {"port": 53, "nodePort": -1, "protocol": "UDP"},
            {"port": 5060, "protocol": "SCTP"},
        ]);
        let (ports, unread) = ports(&read(json!({ "ports": given })));
        assert_eq!(ports.iter().map(|it| it.port).collect::<Vec<_>>(), [80, 5060]);
        let unread: Vec<String> = unread.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(unread.join("\n"), @r#"
        spec.ports[1].protocol: "QUIC" is not known: write TCP, UDP or SCTP, or give that port a Service of another type
        spec.ports[2].port: 70000 is no port: write 1 to 65535
        spec.ports[3].nodePort: -1 is no port: write 1 to 65535
        "#);
    }

    #[test]
    fn whose_a_load_balancer_is_follows_from_its_class() {
        let ours = |class: &str| Class::Ours(Some(class.to_owned()));
        let (unclassed, any) = (|| Class::Ours(None), Class::Others);
        let rows = [
            // our class, whether those without one are ours, class, whose it is
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

    #[test]
    fn whose_the_finalizer_of_a_former_load_balancer_is_follows_from_who_put_it_there() {
        let (own, plain, occm) =
            ("service-controller a/b", "service-controller", "openstack-cloud-controller-manager");
        let rows: [Row<'_>; 11] = [
            // which classes are ours, who put the finalizer there, who wrote the status, whether it is ours
            ("nobody knows", Classes::default(), &[], &[], false),
            ("we did", Classes::default(), &[plain], &[plain], true),
            ("we did, and never had an address", Classes::default(), &[plain], &[], true),
            ("somebody else did", Classes::default(), &["other"], &["other"], false),
            ("both did", Classes::default(), &[plain, "other"], &[], false),
            ("somebody else found ours there", Classes::default(), &[plain], &["other"], false),
            ("one like us, for its class", Classes::default(), &[own], &[own], false),
            (
                "we did, for our class",
                Classes { own: Some("a/b".to_owned()), unclassed: false },
                &[own],
                &[own],
                true,
            ),
            (
                "one like us, for those without",
                Classes { own: Some("a/b".to_owned()), unclassed: false },
                &[plain],
                &[],
                false,
            ),
            (
                "we did, for those without",
                Classes { own: Some("a/b".to_owned()), unclassed: true },
                &[plain],
                &[],
                true,
            ),
            ("whom we are not asked to follow", Classes::default(), &[occm], &[occm], false),
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
        assert_eq!(found(&compat, &[occm], &[occm]), Class::Ours(None), "whom we follow");
    }

    #[test]
    fn a_finalizer_that_was_written_with_the_service_is_no_controllers() {
        let others = |names: &str| Holder::Others(names.to_owned());
        let rows: [(&[&str], &str, &[&str], Holder); 9] = [
            // who put the finalizer there, by which subresource, who wrote the status, whose it is
            (&["kubectl-create"], "", &[], Holder::Author),
            (&["loadbalancer.test"], "", &[], Holder::Author),
            (&["service-controller.test"], "", &[], Holder::Author),
            (&["unknown"], "", &["service-controller"], Holder::Author),
            (&["unknown"], "", &["cloud-controller-manager"], others("unknown")),
            (&["unknown"], "status", &[], others("unknown")),
            (&["aws-cloud-controller-manager"], "", &[], others("aws-cloud-controller-manager")),
            (&["b", "a-operator"], "", &[], others("a-operator and b")),
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
    fn a_name_in_the_status_may_be_ours_unless_somebody_else_wrote_it() {
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
    fn the_name_of_a_writer_fits_whatever_the_class_is() {
        let long = format!("{}/b", "a".repeat(200));
        assert_eq!(manager(Some("a/b")), "service-controller a/b");
        assert!(manager(Some(&long)).len() <= 128);
        assert_ne!(manager(Some(&long)), manager(Some(&long.replace("/b", "/c"))));
    }

    #[test]
    fn an_object_without_the_fields_that_one_expects_asks_for_nothing() {
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
    fn unknown_words_count_as_the_most_careful_ones() {
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
        assert!(service.ports.is_empty(), "what cannot be served is not guessed: {:?}", service.ports);
        assert_eq!((service.families, service.family_policy), (vec![Family::V4], FamilyPolicy::OneWillDo));
        assert_eq!((service.traffic, service.affinity), (Traffic::Cluster, Affinity::None));
        assert_eq!(service.ingress, [Ingress::default()]);
    }

    #[test]
    fn an_ingress_survives_the_way_there_and_back() {
        let entry = Ingress {
            ip: Some("192.0.2.1".to_owned()),
            ip_mode: Some("Proxy".to_owned()),
            ports: vec![IngressPort { port: 80, transport: Transport::Tcp, error: Some("Bad".to_owned()) }],
            ..Ingress::default()
        };
        assert_eq!(ingress_entry(&to_ingress(&entry)), entry);
    }

    #[test]
    fn a_missing_mode_beside_an_ip_is_vip() {
        let bare = Ingress { ip: Some("192.0.2.1".to_owned()), ..Ingress::default() };
        let vip = Ingress { ip_mode: Some("VIP".to_owned()), ..bare.clone() };
        let proxy = Ingress { ip_mode: Some("Proxy".to_owned()), ..bare.clone() };
        assert!(bare.same_as(&vip) && vip.same_as(&bare) && !bare.same_as(&proxy));
    }

    #[test]
    fn what_matters_of_a_node_is_kept() {
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
        assert_eq!(node.labels.len(), 2, "selectors need them all");
        assert_eq!((node.exclude.as_deref(), node.leaving, node.deleting), (Some(""), true, false));
        let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "2001:db8::1"]);
    }
}
