//! Translations of values, and annotations that cannot be translated.

use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;
use crate::plan::{
    annotations::{node_selector, settings::Defaults, wishes},
    service::{Port, Service, Transport},
};

const OLD: &str = "loadbalancer.openstack.org/";

/// All keys, each with one value of each kind that the key accepts.
const GOOD: [(&str, &str); 42] = [
    ("load-balancer-id", "0f3a-1"),
    ("load-balancer-address", "192.0.2.7"),
    ("hostname", "shop.example.com"),
    ("floating-network-id", "net-1"),
    ("floating-subnet-id", "sub-1"),
    ("subnet-id", "sub-2"),
    ("network-id", "net-2"),
    ("member-subnet-id", "sub-3"),
    ("keep-floatingip", "true"),
    ("keep-floatingip", "false"),
    ("proxy-protocol", "true"),
    ("proxy-protocol", "v1"),
    ("proxy-protocol", "v2"),
    ("proxy-protocol", "false"),
    ("x-forwarded-for", "true"),
    ("x-forwarded-for", "false"),
    ("default-tls-container-ref", "https://kms/v1/containers/1"),
    ("lb-method", "ROUND_ROBIN"),
    ("lb-method", "LEAST_CONNECTIONS"),
    ("lb-method", "SOURCE_IP"),
    ("lb-method", "SOURCE_IP_PORT"),
    ("connection-limit", "2000"),
    ("connection-limit", "-1"),
    ("timeout-client-data", "50000"),
    ("timeout-client-data", "1500"),
    ("timeout-member-connect", "5000"),
    ("timeout-member-data", "120000"),
    ("timeout-tcp-inspect", "0"),
    ("enable-health-monitor", "true"),
    ("enable-health-monitor", "false"),
    ("health-monitor-delay", "5"),
    ("health-monitor-timeout", "3"),
    ("health-monitor-max-retries", "1"),
    ("health-monitor-max-retries-down", "3"),
    ("flavor-id", "flavor-1"),
    ("availability-zone", "zone-1"),
    ("node-selector", "pool=web, gpu ,zone="),
    ("node-selector", "pool=web,"),
    ("node-selector", " , "),
    ("floating-network-id", ""),
    ("load-balancer-id", ""),
    ("class", ""),
];

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn openstack(pairs: &[(&str, &str)]) -> Translation {
    translate(Some(Compat::Openstack), given(pairs))
}

/// The translation of one old key without `adopt`, or the reason why the key has no translation.
fn one(key: &str, value: &str) -> String {
    let translation = openstack(&[(&format!("{OLD}{key}"), value)]);
    if let Some(refusal) = translation.foreign.refusals.first() {
        return format!("refused: {}", refusal.to_string().replace(OLD, ""));
    }
    let own = translation.annotations.iter().filter(|(key, _)| !key.ends_with("/adopt"));
    let said: Vec<String> =
        own.map(|(key, value)| format!("{}: {value}", key.trim_start_matches(PREFIX))).collect();
    if said.is_empty() { "nothing".to_owned() } else { said.join(", ") }
}

#[test]
fn values_are_translated() {
    let reported = GOOD.map(|(key, value)| format!("{key}: {value} -> {}", one(key, value)));
    assert_snapshot!(reported.join("\n"), @r"
    load-balancer-id: 0f3a-1 -> id: 0f3a-1
    load-balancer-address: 192.0.2.7 -> nothing
    hostname: shop.example.com -> hostname: shop.example.com
    floating-network-id: net-1 -> address-pool: net-1
    floating-subnet-id: sub-1 -> x.openstack.floating-subnet-id: sub-1
    subnet-id: sub-2 -> subnet: sub-2
    network-id: net-2 -> x.openstack.network-id: net-2
    member-subnet-id: sub-3 -> x.openstack.member-subnet-id: sub-3
    keep-floatingip: true -> on-delete: keep-address
    keep-floatingip: false -> on-delete: delete
    proxy-protocol: true -> proxy-protocol: v1
    proxy-protocol: v1 -> proxy-protocol: v1
    proxy-protocol: v2 -> proxy-protocol: v2
    proxy-protocol: false -> proxy-protocol: off
    x-forwarded-for: true -> listener-protocol: http
    x-forwarded-for: false -> nothing
    default-tls-container-ref: https://kms/v1/containers/1 -> listener-protocol: https, tls-cert-refs: https://kms/v1/containers/1
    lb-method: ROUND_ROBIN -> algorithm: round-robin
    lb-method: LEAST_CONNECTIONS -> algorithm: least-connections
    lb-method: SOURCE_IP -> algorithm: source-ip
    lb-method: SOURCE_IP_PORT -> algorithm: source-ip-port
    connection-limit: 2000 -> connection-limit: 2000
    connection-limit: -1 -> nothing
    timeout-client-data: 50000 -> x.openstack.timeout-client-data: 50s
    timeout-client-data: 1500 -> x.openstack.timeout-client-data: 1500ms
    timeout-member-connect: 5000 -> connect-timeout: 5s
    timeout-member-data: 120000 -> x.openstack.timeout-member-data: 120s
    timeout-tcp-inspect: 0 -> x.openstack.timeout-tcp-inspect: 0s
    enable-health-monitor: true -> health-check.enabled: true
    enable-health-monitor: false -> health-check.enabled: false
    health-monitor-delay: 5 -> health-check.interval: 5s
    health-monitor-timeout: 3 -> health-check.timeout: 3s
    health-monitor-max-retries: 1 -> health-check.healthy-threshold: 1
    health-monitor-max-retries-down: 3 -> health-check.unhealthy-threshold: 3
    flavor-id: flavor-1 -> size: flavor-1
    availability-zone: zone-1 -> zone: zone-1
    node-selector: pool=web, gpu ,zone= -> node-selector: pool=web,gpu,zone
    node-selector: pool=web, -> node-selector: pool=web
    node-selector:  ,  -> nothing
    floating-network-id:  -> nothing
    load-balancer-id:  -> nothing
    class:  -> nothing
    ");
}

/// An error in a translated annotation is reported once, under the key that the user wrote.
#[test]
fn translated_annotations_are_valid() {
    let port = Port::plain(Transport::Tcp, 80, 30_080);
    for (key, value) in GOOD {
        let annotations = openstack(&[(&format!("{OLD}{key}"), value)]).annotations;
        let service = Service { annotations, ports: vec![port.clone()], ..Service::default() };
        let (_wishes, refusals) = wishes(&service, &Defaults::default());
        assert_eq!(refusals, [], "{key}: {value}");
    }
}

/// The message must not name a key that the user did not write.
#[test]
fn refused_translation_names_old_key() {
    let port = Port::plain(Transport::Tcp, 80, 30_080);
    let reported = |key: &str, value: &str| {
        let Translation { annotations, foreign } = openstack(&[(&format!("{OLD}{key}"), value)]);
        let service = Service { annotations, foreign, ports: vec![port.clone()], ..Service::default() };
        let (_wishes, refusals) = wishes(&service, &Defaults::default());
        refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ").replace(OLD, "")
    };
    let rows = [
        ("hostname", "Shop.Example.com"),
        ("health-monitor-delay", "0"),
        ("connection-limit", "0"),
        ("node-selector", "a/b/c"),
    ];
    assert_snapshot!(rows.map(|(key, value)| reported(key, value)).join("\n"), @r#"
    annotation hostname (new name: lb.cloudadapter.dev/hostname): "Shop.Example.com" is not a DNS name: write one such as shop.example.com, in lower case
    annotation health-monitor-delay (new name: lb.cloudadapter.dev/health-check.interval): "0s" is not a duration from 1s to 24h: write one such as 90s, 5m or 1h
    annotation connection-limit (new name: lb.cloudadapter.dev/connection-limit): "0" is not a number of connections: write 1 or more
    annotation node-selector (new name: lb.cloudadapter.dev/node-selector): invalid requirement "a/b/c": write key=value, key!=value, key in (a, b), key or !key
    "#);
    assert_eq!(reported("floating-network-id", ""), "", "an empty text means not set, as before");
}

/// In a label selector, an empty value matches any value. Otherwise pools would lose all their nodes.
// Behaviour: SF12
#[test]
fn translated_selector_matches_same_nodes() {
    let selects = |text: &str, labels: &[(&str, &str)]| {
        let annotations = openstack(&[(&format!("{OLD}node-selector"), text)]).annotations;
        let service = Service { annotations, ..Service::default() };
        let selector = node_selector(&service, &Defaults::default());
        selector.is_none_or(|selector| selector.matches(&given(labels)))
    };
    for (text, labels, want) in [
        ("zone=", &[("zone", "a")][..], true),
        ("zone", &[("zone", "a")], true),
        ("zone=", &[("zone", "")], true),
        ("zone=", &[], false),
        ("zone=a,", &[("zone", "a")], true),
        ("zone=a,", &[("zone", "b")], false),
        ("", &[], true),
    ] {
        assert_eq!(selects(text, labels), want, "{text:?} {labels:?}");
    }
}

#[test]
fn empty_old_annotation_does_not_take_precedence() {
    let vip = [("loadbalancer.openstack.org/subnet-id", ""), ("loadbalancer.openstack.org/network-id", "n")];
    assert_eq!(openstack(&vip).annotations["lb.cloudadapter.dev/x.openstack.network-id"], "n");
}

#[test]
fn untranslatable_annotations_are_refused_with_replacement() {
    let rows = [
        ("keep-floatingip", "yes"),
        ("proxy-protocol", "v3"),
        ("lb-method", "round-robin"),
        ("connection-limit", "many"),
        ("timeout-client-data", "50s"),
        ("timeout-member-connect", "1500"),
        ("health-monitor-delay", "-5"),
        ("node-selector", "pool in (a,b)"),
        ("class", "dmz"),
        ("floating-subnet", "public-*"),
        ("floating-subnet-tags", "a&b"),
        ("port-id", "port-1"),
        ("flavour-id", "small"),
    ];
    let reported = rows.map(|(key, value)| one(key, value));
    assert_snapshot!(reported.join("\n"), @r#"
    refused: annotation keep-floatingip: "yes" is neither true nor false; correct it, or write lb.cloudadapter.dev/on-delete instead
    refused: annotation proxy-protocol: "v3" is not one of true, v1, v2, false; correct it, or write lb.cloudadapter.dev/proxy-protocol instead
    refused: annotation lb-method: "round-robin" is not one of ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP, SOURCE_IP_PORT; correct it, or write lb.cloudadapter.dev/algorithm instead
    refused: annotation connection-limit: "many" is not a whole number; correct it, or write lb.cloudadapter.dev/connection-limit instead
    refused: annotation timeout-client-data: "50s" is not a whole number; correct it, or write lb.cloudadapter.dev/x.openstack.timeout-client-data instead
    refused: annotation timeout-member-connect: "1500" milliseconds are not a whole number of seconds; correct it, or write lb.cloudadapter.dev/connect-timeout instead
    refused: annotation health-monitor-delay: "-5" is not a whole number; correct it, or write lb.cloudadapter.dev/health-check.interval instead
    refused: annotation node-selector: "pool in (a" is neither a label nor label=value; correct it, or write lb.cloudadapter.dev/node-selector instead
    refused: annotation class: not supported: the value is the name of a section of cloud.conf, which this controller does not read; write the settings in that section as annotations: floating-network-id as lb.cloudadapter.dev/address-pool, subnet-id as lb.cloudadapter.dev/subnet, others as lb.cloudadapter.dev/x.openstack.KEY
    refused: annotation floating-subnet: not supported: write one subnet, by name or ID, as lb.cloudadapter.dev/address-pool (openstack subnet list --network NETWORK)
    refused: annotation floating-subnet-tags: not supported: write one subnet, by name or ID, as lb.cloudadapter.dev/address-pool (openstack subnet list --network NETWORK)
    refused: annotation port-id: not supported: a load balancer cannot use an existing port; delete the port and write its address as lb.cloudadapter.dev/address, or create a load balancer with this port yourself and write the load balancer's ID as lb.cloudadapter.dev/id
    refused: annotation flavour-id: unknown key, did you mean 'flavor-id'? Remove it
    "#);
}

/// The page docs/clouds/openstack.md lists the old and new keys in the first two columns of its table.
#[test]
fn openstack_page_lists_each_key_and_translation() {
    let columns = |row: &Row| {
        let ours = match row.becomes {
            Becomes::Setting(name, _) | Becomes::SettingUnless(_, name, _) => format!("`{name}`"),
            Becomes::SettingWith(name, _, (other, _)) => format!("`{name}`, `{other}`"),
            Becomes::Nothing => "-".to_owned(),
            Becomes::Refused(_) | Becomes::RefusedUnless(..) => "refused".to_owned(),
        };
        format!("| `{}` | {ours} |", row.old.trim_start_matches(OLD))
    };
    let page = include_str!("../../../../docs/clouds/openstack.md");
    let table = page.lines().skip_while(|line| !line.starts_with("| former CCM ")).skip(2);
    let reported: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
    assert_eq!(reported.len(), openstack::TABLE.len());
    for (row, line) in openstack::TABLE.iter().zip(reported) {
        assert!(line.starts_with(&columns(row)), "the page has {line} instead of {}", columns(row));
    }
}

#[test]
fn openstack_internal_annotation_has_other_prefix() {
    let key = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    assert_eq!(openstack(&[(key, "true")]).annotations["lb.cloudadapter.dev/internal"], "true");
}

#[test]
fn own_annotations_override_translated_ones() {
    let ours = ("lb.cloudadapter.dev/algorithm", "source-ip");
    let translation = openstack(&[
        ours,
        ("lb.cloudadapter.dev/adopt", "none"),
        ("loadbalancer.openstack.org/lb-method", "nonsense"),
        ("example.com/owner", "me"),
    ]);
    let kept = [ours, ("lb.cloudadapter.dev/adopt", "none"), ("example.com/owner", "me")];
    assert_eq!(translation.annotations, given(&kept));
    assert_eq!(
        translation.foreign.understood,
        ["loadbalancer.openstack.org/lb-method has no effect because lb.cloudadapter.dev/algorithm is set"]
    );
    assert_eq!(translation.foreign.refusals, []);
}

#[test]
fn more_specific_old_key_takes_precedence() {
    let certificate = ("loadbalancer.openstack.org/default-tls-container-ref", "ref");
    let forwarded = ("loadbalancer.openstack.org/x-forwarded-for", "true");
    assert_eq!(
        openstack(&[certificate, forwarded]).annotations["lb.cloudadapter.dev/listener-protocol"],
        "https"
    );

    let subnet = ("loadbalancer.openstack.org/floating-subnet-id", "sub-1");
    let others = [
        ("loadbalancer.openstack.org/floating-subnet", "x*"),
        ("loadbalancer.openstack.org/floating-subnet-tags", "a"),
    ];
    assert_eq!(openstack(&[subnet, others[0], others[1]]).foreign.refusals, []);

    let vip = [("loadbalancer.openstack.org/subnet-id", "s"), ("loadbalancer.openstack.org/network-id", "n")];
    let keys: Vec<String> = openstack(&vip).annotations.into_keys().collect();
    assert_eq!(keys, ["lb.cloudadapter.dev/adopt", "lb.cloudadapter.dev/subnet"]);
}

#[test]
fn compat_implies_adoption() {
    assert_eq!(openstack(&[]).annotations, given(&[("lb.cloudadapter.dev/adopt", "owned")]));
    assert_eq!(translate(None, given(&[])).annotations, given(&[]));
}

#[test]
fn annotations_without_compat_flag_are_ignored_and_listed() {
    let old = ("loadbalancer.openstack.org/class", "dmz");
    let translation = translate(None, given(&[old, ("lb.cloudadapter.dev/size", "s")]));
    assert_eq!(translation.annotations, given(&[("lb.cloudadapter.dev/size", "s")]));
    let foreign = Foreign { ignored: vec![old.0.to_owned()], ..Foreign::default() };
    assert_eq!(translation.foreign, foreign);
}

#[test]
fn annotations_of_other_clouds_are_ignored() {
    let keys = [
        "load-balancer.hetzner.cloud/location",
        "metallb.io/address-pool",
        "metallb.universe.tf/address-pool",
        "service.beta.kubernetes.io/aws-load-balancer-type",
        "service.beta.kubernetes.io/azure-load-balancer-internal",
    ];
    let said = given(&keys.map(|key| (key, "x")));
    for compat in [None, Some(Compat::Openstack)] {
        let Foreign { ignored, understood, refusals, .. } = translate(compat, said.clone()).foreign;
        assert_eq!((ignored, understood.len(), refusals.len()), (keys.map(str::to_owned).to_vec(), 0, 0));
    }
}

#[test]
fn old_keys_are_unique() {
    let keys: BTreeSet<&str> = openstack::TABLE.iter().map(|row| row.old).collect();
    assert_eq!(keys.len(), openstack::TABLE.len());
    assert!(keys.into_iter().all(is_foreign));
}

proptest! {
    /// No old key is ignored: each is translated, refused, or informational only.
    #[test]
    fn every_old_key_is_handled(
        key in prop_oneof![
            (0..openstack::TABLE.len()).prop_map(|at| openstack::TABLE[at].old.to_owned()),
            "[a-z-]{1,12}".prop_map(|name| format!("{OLD}{name}")),
        ],
        value in prop_oneof!["[ -~]{0,12}", "-?[0-9]{1,12}", Just("true".to_owned())],
    ) {
        let Foreign { understood, ignored, refusals, .. } = openstack(&[(&key, &value)]).foreign;
        let note = key.ends_with("/load-balancer-address");
        prop_assert_eq!(understood.len() + refusals.len(), usize::from(!note));
        prop_assert!(ignored.is_empty());
    }
}
