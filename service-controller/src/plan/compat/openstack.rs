//! The annotations of openstack-cloud-controller-manager. docs/clouds/openstack.md documents this table.

use super::{
    Becomes::{Nothing, Refused, RefusedUnless, Setting, SettingUnless, SettingWith},
    Row,
};

/// Prefix of all these annotations except [`INTERNAL`].
const PREFIX: &str = "loadbalancer.openstack.org/";
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
const FLOATING_SUBNET_ID: &str = "loadbalancer.openstack.org/floating-subnet-id";
const SUBNET_ID: &str = "loadbalancer.openstack.org/subnet-id";

const ONE_SUBNET: &str = "write one subnet, by name or ID, as lb.cloudadapter.dev/address-pool \
                          (openstack subnet list --network NETWORK)";
const OWN_WORDS: &str = "the value is the name of a section of cloud.conf, which this controller does not read; \
                         write the settings in that section as annotations: floating-network-id as \
                         lb.cloudadapter.dev/address-pool, subnet-id as lb.cloudadapter.dev/subnet, others as \
                         lb.cloudadapter.dev/x.openstack.KEY";
const OWN_PORTS: &str = "a load balancer cannot use an existing port; delete the port and write its address as \
                         lb.cloudadapter.dev/address, or create a load balancer with this port yourself and \
                         write the load balancer's ID as lb.cloudadapter.dev/id";

/// Each key and its translation. If two keys result in the same setting, the first key takes precedence.
pub(crate) const TABLE: [Row; 31] = [
    Row { old: INTERNAL, becomes: Setting("internal", boolean) },
    Row {
        old: "loadbalancer.openstack.org/load-balancer-id",
        becomes: SettingWith("id", text, ("adopt", "shared")),
    },
    Row { old: "loadbalancer.openstack.org/load-balancer-address", becomes: Nothing },
    Row { old: "loadbalancer.openstack.org/hostname", becomes: Setting("hostname", text) },
    Row { old: "loadbalancer.openstack.org/class", becomes: Refused(OWN_WORDS) },
    Row { old: "loadbalancer.openstack.org/floating-network-id", becomes: Setting("address-pool", text) },
    Row { old: FLOATING_SUBNET_ID, becomes: Setting("x.openstack.floating-subnet-id", text) },
    Row {
        old: "loadbalancer.openstack.org/floating-subnet",
        becomes: RefusedUnless(FLOATING_SUBNET_ID, ONE_SUBNET),
    },
    Row {
        old: "loadbalancer.openstack.org/floating-subnet-tags",
        becomes: RefusedUnless(FLOATING_SUBNET_ID, ONE_SUBNET),
    },
    Row { old: SUBNET_ID, becomes: Setting("subnet", text) },
    Row {
        old: "loadbalancer.openstack.org/network-id",
        becomes: SettingUnless(SUBNET_ID, "x.openstack.network-id", text),
    },
    Row {
        old: "loadbalancer.openstack.org/member-subnet-id",
        becomes: Setting("x.openstack.member-subnet-id", text),
    },
    Row { old: "loadbalancer.openstack.org/port-id", becomes: Refused(OWN_PORTS) },
    Row { old: "loadbalancer.openstack.org/keep-floatingip", becomes: Setting("on-delete", kept) },
    Row { old: "loadbalancer.openstack.org/proxy-protocol", becomes: Setting("proxy-protocol", header) },
    Row {
        old: "loadbalancer.openstack.org/default-tls-container-ref",
        becomes: SettingWith("tls-cert-refs", text, ("listener-protocol", "https")),
    },
    Row { old: "loadbalancer.openstack.org/x-forwarded-for", becomes: Setting("listener-protocol", http) },
    Row { old: "loadbalancer.openstack.org/lb-method", becomes: Setting("algorithm", algorithm) },
    Row { old: "loadbalancer.openstack.org/connection-limit", becomes: Setting("connection-limit", limit) },
    Row {
        old: "loadbalancer.openstack.org/timeout-client-data",
        becomes: Setting("x.openstack.timeout-client-data", milliseconds),
    },
    Row {
        old: "loadbalancer.openstack.org/timeout-member-connect",
        becomes: Setting("connect-timeout", whole_seconds),
    },
    Row {
        old: "loadbalancer.openstack.org/timeout-member-data",
        becomes: Setting("x.openstack.timeout-member-data", milliseconds),
    },
    Row {
        old: "loadbalancer.openstack.org/timeout-tcp-inspect",
        becomes: Setting("x.openstack.timeout-tcp-inspect", milliseconds),
    },
    Row {
        old: "loadbalancer.openstack.org/enable-health-monitor",
        becomes: Setting("health-check.enabled", boolean),
    },
    Row {
        old: "loadbalancer.openstack.org/health-monitor-delay",
        becomes: Setting("health-check.interval", seconds),
    },
    Row {
        old: "loadbalancer.openstack.org/health-monitor-timeout",
        becomes: Setting("health-check.timeout", seconds),
    },
    Row {
        old: "loadbalancer.openstack.org/health-monitor-max-retries",
        becomes: Setting("health-check.healthy-threshold", count),
    },
    Row {
        old: "loadbalancer.openstack.org/health-monitor-max-retries-down",
        becomes: Setting("health-check.unhealthy-threshold", count),
    },
    Row { old: "loadbalancer.openstack.org/flavor-id", becomes: Setting("size", text) },
    Row { old: "loadbalancer.openstack.org/availability-zone", becomes: Setting("zone", text) },
    Row { old: "loadbalancer.openstack.org/node-selector", becomes: Setting("node-selector", selector) },
];

/// Whether the key belongs to openstack-cloud-controller-manager, even if the table does not contain the key.
pub(crate) fn is_own(key: &str) -> bool {
    key.starts_with(PREFIX) || key == INTERNAL
}

type Value = Result<Option<String>, String>;

/// Accepts any text. An empty value counts as not set.
#[expect(
    clippy::unnecessary_wraps,
    reason = "all converters have one type: the adapter or the vendor refuses invalid IDs"
)]
fn text(value: &str) -> Value {
    Ok(Some(value.trim()).filter(|text| !text.is_empty()).map(str::to_owned))
}

fn yes(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_neither| format!("{value:?} is neither true nor false"))
}

fn boolean(value: &str) -> Value {
    yes(value).map(|yes| Some(yes.to_string()))
}

fn kept(value: &str) -> Value {
    yes(value).map(|yes| Some(if yes { "keep-address" } else { "delete" }.to_owned()))
}

/// `false` sets nothing, because TCP is the default protocol of ports.
fn http(value: &str) -> Value {
    yes(value).map(|yes| yes.then(|| "http".to_owned()))
}

/// Parses the version of the PROXY protocol; `true` selects version 1.
fn header(value: &str) -> Value {
    word(value, &[("true", "v1"), ("v1", "v1"), ("v2", "v2"), ("false", "off")])
}

fn algorithm(value: &str) -> Value {
    let words = [
        ("ROUND_ROBIN", "round-robin"),
        ("LEAST_CONNECTIONS", "least-connections"),
        ("SOURCE_IP", "source-ip"),
        ("SOURCE_IP_PORT", "source-ip-port"),
    ];
    word(value, &words)
}

fn word(value: &str, words: &[(&str, &str)]) -> Value {
    let found = words.iter().find(|(theirs, _)| *theirs == value);
    let known = || words.iter().map(|(theirs, _)| *theirs).collect::<Vec<_>>().join(", ");
    found
        .map(|(_, ours)| Some((*ours).to_owned()))
        .ok_or_else(|| format!("{value:?} is not one of {}", known()))
}

fn number(value: &str) -> Result<u32, String> {
    value.parse().map_err(|_wrong| format!("{value:?} is not a whole number"))
}

fn count(value: &str) -> Value {
    number(value).map(|number| Some(number.to_string()))
}

/// -1 means no limit, which is the default.
fn limit(value: &str) -> Value {
    if value == "-1" { Ok(None) } else { count(value) }
}

fn seconds(value: &str) -> Value {
    number(value).map(|seconds| Some(format!("{seconds}s")))
}

/// Converts milliseconds into a duration with a unit, as the adapter's parameters accept it.
fn milliseconds(value: &str) -> Value {
    let text = |ms: u32| if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") };
    number(value).map(|ms| Some(text(ms)))
}

fn whole_seconds(value: &str) -> Value {
    let ms = number(value)?;
    let whole = ms >= 1000 && ms.is_multiple_of(1000);
    whole
        .then(|| Some(format!("{}s", ms / 1000)))
        .ok_or_else(|| format!("{value:?} milliseconds are not a whole number of seconds"))
}

/// Converts a comma-separated list of `key=value` and `key` into a label selector. Label selectors also support operators, which
/// openstack-cloud-controller-manager does not. As with `key`, an empty value matches any value. Empty entries are ignored.
fn selector(value: &str) -> Value {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        let (key, value) = (key.trim(), value.trim());
        let plain = !key.is_empty() && !key.contains(|it: char| it.is_whitespace() || "!()=".contains(it));
        let text = if value.is_empty() { key.to_owned() } else { format!("{key}={value}") };
        plain.then_some(text).ok_or_else(|| format!("{entry:?} is neither a label nor label=value"))
    };
    let entries = value.split(',').filter(|entry| !entry.trim().is_empty());
    let entries: Vec<String> = entries.map(entry).collect::<Result<_, _>>()?;
    Ok(Some(entries.join(",")).filter(|text| !text.is_empty()))
}
