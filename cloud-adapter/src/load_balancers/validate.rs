//! Validates a request and converts it into a desired state. Reports all faults at once. This module is pure.
//!
//! Features that this cloud lacks are refused, so a driver must implement everything that passes.

mod features;
mod parameters;
mod texts;

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use cloud_api_proto::{
    AdapterError,
    error::Violation,
    v1alpha1::{
        Adoption, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, HealthCheck, IpFamily, Known,
        Listener, LoadBalancerKey, LoadBalancerSpec, Owner, Protocol, Recreate, health_check, listener,
        load_balancer_spec::{AddressRetention, Scheme, TrafficPolicy},
        session_affinity,
    },
};
use ipnet::IpNet;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::goal::Terms;
use crate::{driver::Description, strings};

/// Maximum length of a load balancer's name, in bytes. Source: load_balancer_service.proto, `LoadBalancerSpec`.
const NAME_MAX: usize = 255;
/// Maximum number of source ranges times listeners. A vendor stores all ranges with each listener, so a plan contains this many entries.
const RANGES_MAX: usize = 100_000;
/// Maximum number of entries in any other list, because plans compare each entry with all other entries.
const ENTRIES_MAX: usize = 500;

/// Version of the hash. If the versions differ, the driver compares field by field; it never rewrites everything.
///
/// New fields of the contract do not change the hash while they are unset, because unset fields are not hashed.
const HASH_VERSION: &str = "1";

/// The longest timeout of a listener. Source: load_balancer_service.proto, `Listener`.
const LONGEST: Duration = Duration::from_hours(24);

#[derive(Debug, Default)]
struct Faults(Vec<Violation>);

impl Faults {
    fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.0.push(Violation { field: field.into(), description: description.into() });
    }
}

/// Checks the key and the owner in a request.
///
/// Returns `FIELD_INVALID`.
pub(super) fn identity(
    cluster_id: &str,
    key: Option<LoadBalancerKey>,
    owner: Option<Owner>,
) -> Result<(LoadBalancerKey, Owner), AdapterError> {
    let key = key.ok_or_else(|| AdapterError::field("key", "is missing"))?;
    let owner = owner.ok_or_else(|| AdapterError::field("owner", "is missing"))?;
    let mut faults = Faults::default();
    faults.0.extend(strings::too_long("key", [("owner_uid", key.owner_uid.as_str())]));
    faults.0.extend(strings::too_long_of_owner("owner", &owner));
    if key.cluster_id != cluster_id {
        faults.add("key.cluster_id", "differs from context.cluster_id");
    }
    if key.owner_uid.is_empty() {
        faults.add("key.owner_uid", "is empty");
    }
    if key.owner_uid != owner.uid {
        faults.add("owner.uid", "differs from key.owner_uid");
    }
    if faults.0.is_empty() { Ok((key, owner)) } else { Err(AdapterError::fields(faults.0)) }
}

/// Validates a specification, first against the contract, then against the capabilities of this cloud.
///
/// Returns `FIELD_INVALID` with all faults, `UNKNOWN_PARAMETER` with the most similar known parameter, or `UNSUPPORTED_FEATURE`.
pub(super) fn spec(
    request: &EnsureLoadBalancerRequest,
    cloud: &Description,
) -> Result<LoadBalancerSpec, AdapterError> {
    let mut spec = request.spec.clone().ok_or_else(|| AdapterError::field("spec", "is missing"))?;
    let mut faults = Faults::default();
    enums(request, &spec, &mut faults);
    faults.0.extend(texts::faults(&spec));
    listeners(&spec.listeners, &mut faults);
    addresses(&spec, &mut faults);
    name(&spec.name, &mut faults);
    if let Some(check) = &spec.health_check {
        health_check(check, &mut faults);
    }
    if !spec.load_balancer_id.is_empty() && matches!(request.adoption(), Adoption::IfUnowned | Adoption::ById)
    {
        faults.add("adoption", "cannot be combined with sharing by spec.load_balancer_id");
    }
    if spec.backend_set_id.is_empty() {
        faults.add("spec.backend_set_id", "is empty: put a backend set first");
    }
    if !faults.0.is_empty() {
        return Err(AdapterError::fields(faults.0));
    }
    parameters::check(&spec.parameters, &cloud.parameters)?;
    features::check(&spec, cloud)?;
    features::forget_unread(&mut spec, cloud);
    Ok(spec)
}

/// Returns what the caller permits in order to reach the specification.
///
/// Returns `FIELD_INVALID` if the request asks for adoption by ID but contains no ID.
pub(super) fn terms(request: &EnsureLoadBalancerRequest) -> Result<Terms, AdapterError> {
    let adoption = request.adoption();
    // For other kinds of adoption the ID is only a hint. The goal excludes the hint, so that a changed hint does not restart a task.
    let known = known_id(request.known.as_ref()).filter(|_| adoption == Adoption::ById);
    if adoption == Adoption::ById && known.is_none() {
        let text = "has no ID `loadbalancer`: adoption BY_ID needs the ID of the load balancer to adopt";
        return Err(AdapterError::field("known.vendor_ids", text));
    }
    Ok(Terms { recreate: request.recreate(), adoption, known })
}

/// Returns the adoption of a deletion, which says whether to also delete a load balancer that has no owner tag yet.
///
/// Returns `FIELD_INVALID` for an unknown value.
pub(super) fn adoption(request: &DeleteLoadBalancerRequest) -> Result<Adoption, AdapterError> {
    let number = request.adoption;
    Adoption::try_from(number).map_err(|_unknown| {
        AdapterError::field(
            "adoption",
            format!("unknown value '{number}': this version of the adapter does not support it"),
        )
    })
}

/// Returns the vendor's ID of the load balancer itself, if the caller sent this ID.
pub(super) fn known_id(known: Option<&Known>) -> Option<String> {
    let id = known?.vendor_ids.as_ref()?.ids.get("loadbalancer")?;
    (!id.is_empty()).then(|| id.clone())
}

/// Returns the versioned hash of all fields except the backends and the display names.
pub(super) fn hash(spec: &LoadBalancerSpec) -> String {
    let mut canonical = spec.clone();
    canonical.backend_set_id.clear();
    canonical.name.clear();
    canonical.source_ranges.sort();
    canonical.listeners.sort_by_key(|listener| (listener.protocol, listener.port));
    for listener in &mut canonical.listeners {
        listener.name.clear();
    }
    let digest = Sha256::digest(canonical.encode_to_vec());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{HASH_VERSION}-{hex}")
}

/// Refuses unknown values instead of using the default, because a future `INTERNAL` must not be treated as `INTERNET`.
fn enums(request: &EnsureLoadBalancerRequest, spec: &LoadBalancerSpec, faults: &mut Faults) {
    let mut known = |field: &str, number: i32, known: bool| {
        if !known {
            faults.add(
                field,
                format!("unknown value '{number}': this version of the adapter does not support it"),
            );
        }
    };
    known("adoption", request.adoption, Adoption::try_from(request.adoption).is_ok());
    known("recreate", request.recreate, Recreate::try_from(request.recreate).is_ok());
    known("spec.scheme", spec.scheme, Scheme::try_from(spec.scheme).is_ok());
    let policy = spec.traffic_policy;
    known("spec.traffic_policy", policy, TrafficPolicy::try_from(policy).is_ok());
    let retention = spec.address_retention;
    known("spec.address_retention", retention, AddressRetention::try_from(retention).is_ok());
    if let Some(check) = &spec.health_check {
        known("spec.health_check.kind", check.kind, health_check::Kind::try_from(check.kind).is_ok());
    }
    if let Some(affinity) = &spec.session_affinity {
        let kind = affinity.kind;
        known("spec.session_affinity.kind", kind, session_affinity::Kind::try_from(kind).is_ok());
    }
    for (at, one) in spec.listeners.iter().enumerate() {
        let field = |name: &str| format!("spec.listeners[{at}].{name}");
        let (target, proxy) = (one.target_kind, one.proxy_protocol);
        known(&field("target_kind"), target, listener::TargetKind::try_from(target).is_ok());
        known(&field("proxy_protocol"), proxy, listener::ProxyProtocol::try_from(proxy).is_ok());
        let (algorithm, application) = (one.algorithm, one.application);
        known(&field("algorithm"), algorithm, listener::Algorithm::try_from(algorithm).is_ok());
        known(&field("application"), application, listener::Application::try_from(application).is_ok());
    }
}

fn listeners(listeners: &[Listener], faults: &mut Faults) {
    if listeners.is_empty() {
        faults.add("spec.listeners", "is empty: a load balancer has at least one listener");
    }
    let mut taken = BTreeSet::new();
    for (at, listener) in listeners.iter().enumerate() {
        let field = |name: &str| format!("spec.listeners[{at}].{name}");
        if listener.protocol() == Protocol::Unspecified {
            faults.add(field("protocol"), "unknown protocol: use one of: TCP, UDP, SCTP");
        }
        port(listener.port, field("port"), faults);
        match (listener.target_kind(), listener.node_port) {
            (listener::TargetKind::NodeDirect, _) => (),
            (listener::TargetKind::Unspecified | listener::TargetKind::NodePort, None) => {
                faults.add(field("node_port"), "is missing: the cloud needs node ports to reach pods");
            }
            (listener::TargetKind::Unspecified | listener::TargetKind::NodePort, Some(number)) => {
                port(number, field("node_port"), faults);
            }
        }
        if !taken.insert((listener.protocol, listener.port)) {
            faults.add(field("port"), format!("{} is repeated for the same protocol", listener.port));
        }
        application(listener, &field, faults);
        period(listener.idle_timeout, field("idle_timeout"), faults);
        period(listener.connect_timeout, field("connect_timeout"), faults);
        if listener.connection_limit == Some(0) {
            faults.add(field("connection_limit"), "0 refuses all connections: use 1 or more");
        }
    }
}

/// Checks the application protocol against the protocol and the certificates. If there are certificates but no application protocol, any
/// kind of TLS termination is meant.
fn application(listener: &Listener, field: &impl Fn(&str) -> String, faults: &mut Faults) {
    use listener::Application::{Http, Https, Pass, Tls, Unspecified};
    let certified = !listener.tls_refs.is_empty();
    match listener.application() {
        Http | Https | Tls if listener.protocol() != Protocol::Tcp => {
            faults.add(field("application"), "requires protocol TCP");
        }
        Https | Tls if !certified => {
            faults.add(field("tls_refs"), "is empty: name the certificate for TLS termination");
        }
        Pass | Http if certified => {
            faults.add(field("tls_refs"), "requires application HTTPS or TLS");
        }
        Unspecified | Pass | Http | Https | Tls => (),
    }
}

fn period(period: Option<prost_types::Duration>, field: String, faults: &mut Faults) {
    let Some(period) = period else { return };
    let fits = Duration::try_from(period).is_ok_and(|it| !it.is_zero() && it <= LONGEST);
    if !fits {
        faults.add(field, "must be above 0 and at most 24 hours");
    }
}

fn addresses(spec: &LoadBalancerSpec, faults: &mut Faults) {
    if spec.ip_families.is_empty() {
        faults.add("spec.ip_families", "is empty: name at least one family");
    }
    let families: BTreeSet<i32> = spec.ip_families.iter().copied().collect();
    if families.contains(&i32::from(IpFamily::Unspecified)) || families.len() != spec.ip_families.len() {
        faults.add(
            "spec.ip_families",
            "has an unknown or repeated family: use IPV4 and IPV6, each at most once",
        );
    }
    for (at, address) in spec.requested_addresses.iter().enumerate() {
        if address.parse::<IpAddr>().is_err() {
            faults.add(format!("spec.requested_addresses[{at}]"), format!("invalid IP address {address:?}"));
        }
    }
    let mut subnets = BTreeSet::new();
    for (at, subnet) in spec.subnets.iter().enumerate() {
        if subnet.is_empty() || !subnets.insert(subnet) {
            faults.add(format!("spec.subnets[{at}]"), format!("{subnet:?} is empty or repeated"));
        }
    }
    let mut namespaces = BTreeSet::new();
    for (at, namespace) in spec.shared_with.iter().enumerate() {
        if namespace.is_empty() || !namespaces.insert(namespace) {
            faults.add(format!("spec.shared_with[{at}]"), format!("{namespace:?} is empty or repeated"));
        }
    }
    for (field, count) in [
        ("spec.tags", spec.tags.len()),
        ("spec.subnets", spec.subnets.len()),
        ("spec.shared_with", spec.shared_with.len()),
        ("spec.requested_addresses", spec.requested_addresses.len()),
    ] {
        if count > ENTRIES_MAX {
            faults.add(field, format!("has {count} entries, more than {ENTRIES_MAX}"));
        }
    }
    let entries = spec.source_ranges.len().saturating_mul(spec.listeners.len());
    if entries > RANGES_MAX {
        let text =
            format!("source ranges times listeners make {entries} entries, above the limit of {RANGES_MAX}");
        faults.add("spec.source_ranges", text);
    }
    for (at, range) in spec.source_ranges.iter().enumerate() {
        if range.parse::<IpNet>().is_err() {
            let text = format!("invalid CIDR {range:?}: use a form such as 192.0.2.0/24");
            faults.add(format!("spec.source_ranges[{at}]"), text);
        }
    }
}

fn name(name: &str, faults: &mut Faults) {
    let edge = |letter: Option<char>| letter.is_none_or(|it| it.is_ascii_alphanumeric());
    let inner = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let good = name.len() <= NAME_MAX
        && name.chars().all(inner)
        && edge(name.chars().next())
        && edge(name.chars().last());
    if !good {
        let text =
            "must have 1 to 255 letters, digits, -, _ and ., and begin and end with a letter or a digit";
        faults.add("spec.name", text);
    }
}

fn health_check(check: &HealthCheck, faults: &mut Faults) {
    if let Some(number) = check.port {
        port(number, "spec.health_check.port".to_owned(), faults);
    }
    if check.kind() == health_check::Kind::Http && !check.path.starts_with('/') {
        faults.add("spec.health_check.path", format!("{:?} must begin with a slash", check.path));
    }
}

fn port(number: u32, field: String, faults: &mut Faults) {
    if !(1..=65_535).contains(&number) {
        faults.add(field, format!("invalid port {number}: use 1 to 65535"));
    }
}

#[cfg(test)]
mod tests;
