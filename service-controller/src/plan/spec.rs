//! Determines the desired load balancer from the Service, the targets and the adapter's capabilities. This module is pure.

use std::collections::BTreeSet;

use cloud_api_proto::{
    features::needs,
    v1alpha1::{
        Adoption, IpFamily, Listener, LoadBalancerSpec, SessionAffinity, load_balancer_spec as contract,
        session_affinity,
    },
};
use ipnet::IpNet;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::{
    Refusal,
    annotations::{
        Wish, Wishes,
        keys::{self, PREFIX},
        settings::{Defaults, Origin},
        values::{Adopt, OnDelete},
        wishes,
    },
    as_it_is::{self, Existing},
    digest::short,
    features::{Features, name, places},
    health_check::{Probe, probe},
    listeners::{Listeners, protocol},
    requested_address::Requested,
    service::{Affinity, Class, Family, FamilyPolicy, NodePorts, Port, Service, Traffic},
    source_ranges::{check_number, open_to_all, source_ranges},
};

/// A Service whose fields and annotations are valid, regardless of the adapter's capabilities.
#[derive(Debug)]
pub(crate) struct Checked<'a> {
    service: &'a Service,
    pub(crate) wishes: Wishes,
    /// The ranges that may connect. Empty: all clients may connect.
    ranges: BTreeSet<IpNet>,
    requested: Requested,
    listeners: Listeners,
    probe: Probe,
}

impl<'a> Checked<'a> {
    pub(crate) fn new(service: &'a Service, defaults: &Defaults) -> Result<Self, Vec<Refusal>> {
        let mut refusals = bad_ports(service);
        refusals.extend(service.foreign.refusals.iter().cloned());
        let (wishes, faults) = wishes(service, defaults);
        refusals.extend(faults);
        let ranges = or_note(source_ranges(service).map_err(|fault| vec![fault]), &mut refusals);
        refusals.extend(check_number(service.ports.len(), ranges.len(), defaults.bounds().members));
        let requested = Requested::of(service, wishes.addresses.as_ref()).map_err(|fault| vec![fault]);
        let requested = or_note(requested, &mut refusals);
        let mut listeners = Listeners::of(service, &wishes);
        refusals.append(&mut listeners.refusals);
        let probe = or_note(probe(service, &wishes.health), &mut refusals);
        refusals.extend(incomplete_adoption(&wishes));
        if !refusals.is_empty() {
            return Err(refusals);
        }
        Ok(Self { service, wishes, ranges, requested, listeners, probe })
    }

    /// The load balancer that an adapter with these capabilities can create. `only`: the family of the existing load balancer, if one
    /// family is sufficient and the adapter cannot add the other family.
    pub(crate) fn shape(&self, features: &Features, only: Option<Family>) -> Result<Shape, Vec<Refusal>> {
        let families = self.families(features, only);
        let mut refusals = self.missing(features, families);
        refusals.extend(self.requested.of_no_family(families, "the load balancer supports"));
        refusals.extend(self.for_others(features));
        if !refusals.is_empty() {
            return Err(refusals);
        }
        Ok(Shape::of(self.spec(features, families), Takeover::of(&self.wishes)))
    }

    /// Like [`Self::shape`], but with the existing load balancer's values for the fixed fields, and without ports that other users of the
    /// load balancer occupy; see [`as_it_is`]. `None`: the values are unknown.
    pub(crate) fn shape_as_it_is(&self, features: &Features, existing: &Existing<'_>) -> Option<Shape> {
        let Existing { fixed, addresses, good, only } = *existing;
        let families = if fixed.contains(as_it_is::FAMILIES) {
            as_it_is::families_of(addresses, &self.service.families)
        } else {
            self.families(features, only).to_vec()
        };
        if families.is_empty() {
            return None;
        }
        let mut spec = self.spec(features, &families);
        let (taken, fixed): (BTreeSet<_>, BTreeSet<_>) =
            fixed.iter().cloned().partition(|field| as_it_is::port(field).is_some());
        let taken: Vec<_> =
            taken.iter().filter_map(|field| self.service.ports.get(as_it_is::port(field)?)).collect();
        spec.listeners.retain(|listener| !taken.iter().any(|port| listens_on(listener, port)));
        if spec.listeners.is_empty() {
            return None;
        }
        as_it_is::keep(&mut spec, &fixed, addresses, good)?;
        Some(Shape::of(spec, Takeover::of(&self.wishes)))
    }

    fn spec(&self, features: &Features, families: &[Family]) -> LoadBalancerSpec {
        let wishes = &self.wishes;
        let vendor = wishes.vendor.iter().map(|wish| (wish.key.clone(), wish.value.value.clone()));
        // The listeners are sorted, because ports in another sequence result in the same load balancer.
        let mut listeners = self.listeners.all.clone();
        listeners.sort_by_key(|listener| (listener.protocol, listener.port));
        LoadBalancerSpec {
            class: match &self.service.class {
                Class::Ours(class) => class.clone(),
                Class::Others | Class::Lost => None,
            },
            scheme: self.scheme().into(),
            ip_families: families.iter().map(family).collect(),
            requested_addresses: self.requested.addresses.iter().map(ToString::to_string).collect(),
            listeners,
            backend_set_id: String::new(),
            health_check: self.probe.check.clone(),
            source_ranges: self.ranges(families).map(ToString::to_string).collect(),
            session_affinity: affinity(self.service.affinity, features),
            traffic_policy: match self.service.traffic {
                Traffic::Cluster => contract::TrafficPolicy::Cluster,
                Traffic::Local { .. } => contract::TrafficPolicy::Local,
            }
            .into(),
            parameters: vendor.collect(),
            tags: value(wishes.tags.as_ref()),
            address_pool: value(wishes.address_pool.as_ref()),
            subnets: value(wishes.subnets.as_ref()),
            size: value(wishes.size.as_ref()),
            zone: value(wishes.zone.as_ref()),
            address_retention: match wishes.on_delete.as_ref().map(|wish| wish.value) {
                None => contract::AddressRetention::Unspecified,
                Some(OnDelete::Delete) => contract::AddressRetention::Release,
                Some(OnDelete::KeepAddress) => contract::AddressRetention::Keep,
            }
            .into(),
            name: value(wishes.name.as_ref().filter(|_| features.has(name::NAME))),
            load_balancer_id: value(wishes.id.as_ref().filter(|_| shares(wishes))),
            // The namespaces are sorted, because their sequence does not matter.
            shared_with: {
                let mut namespaces = value(wishes.share_with.as_ref());
                namespaces.sort();
                namespaces
            },
        }
    }

    /// Whether the cluster's name template has no effect. An adapter without custom names is still usable.
    pub(crate) fn is_unnamed(&self, features: &Features) -> bool {
        self.wishes.name.is_some() && !features.has(name::NAME)
    }

    fn is_internal(&self) -> bool {
        self.wishes.internal.as_ref().is_some_and(|wish| wish.value.is_on())
    }

    fn scheme(&self) -> contract::Scheme {
        if self.is_internal() { contract::Scheme::Internal } else { contract::Scheme::Internet }
    }

    /// Returns the families of the load balancer, in the sequence of the Service's families.
    fn families(&self, features: &Features, only: Option<Family>) -> &'a [Family] {
        let all = self.service.families.as_slice();
        let only = only.filter(|_| self.service.family_policy == FamilyPolicy::OneWillDo);
        let only = only.and_then(|only| all.iter().find(|family| **family == only));
        let first = all.first().filter(|_| !features.has(name::DUAL_STACK));
        only.or(first).map_or(all, std::slice::from_ref)
    }

    /// Client addresses that may connect. Empty: all clients, in every family of the load balancer.
    fn ranges(&self, families: &[Family]) -> impl Iterator<Item = &IpNet> {
        let open = open_to_all(&self.ranges, families);
        self.ranges.iter().filter(move |_| !open)
    }

    /// Requested settings that the adapter does not support, without duplicates.
    fn missing(&self, features: &Features, families: &[Family]) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        for need in needs(&self.asked(features, families)) {
            let Some(why) = features.lack(&need) else { continue };
            for place in places(&need, self.service, &self.wishes, &self.probe) {
                let refusal = Refusal::new(place, &why);
                if !refusals.contains(&refusal) {
                    refusals.push(refusal);
                }
            }
        }
        refusals
    }

    /// Returns the specification with all settings that must not be ignored, and with the listeners in the sequence of the Service's ports.
    /// A name from the cluster's template may be ignored.
    fn asked(&self, features: &Features, families: &[Family]) -> LoadBalancerSpec {
        let Service { families: all, family_policy, .. } = self.service;
        let both = *family_policy == FamilyPolicy::BothRequired;
        let insists = |wish: &&Wish<String>| features.has(name::NAME) || wish.given.origin != Origin::Default;
        LoadBalancerSpec {
            ip_families: if both { all } else { families }.iter().map(family).collect(),
            name: value(self.wishes.name.as_ref().filter(insists)),
            listeners: self.listeners.all.clone(),
            ..self.spec(features, families)
        }
    }

    fn for_others<'b>(&'b self, features: &'b Features) -> impl Iterator<Item = Refusal> + use<'a, 'b> {
        let vendor = &features.vendor;
        let others = self.wishes.vendor.iter().filter(move |wish| wish.adapter != *vendor);
        others.map(move |wish| {
            let given = &wish.value.given;
            let what = if given.origin == Origin::Default { "default" } else { "annotation" };
            if features.parameters.contains(&wish.key) {
                let right = format!("{PREFIX}x.{vendor}.{}", wish.key);
                given.refusal(format!("this adapter is for {vendor}, not {}: write {right}", wish.adapter))
            } else {
                given
                    .refusal(format!("this cloud ({vendor}) does not know this parameter: remove the {what}"))
            }
        })
    }
}

fn listens_on(listener: &Listener, port: &Port) -> bool {
    protocol(port.transport) == listener.protocol() && u32::from(port.port) == listener.port
}

/// Returns the value. If there are errors, collects them and returns the default.
fn or_note<T: Default>(validated: Result<T, Vec<Refusal>>, refusals: &mut Vec<Refusal>) -> T {
    validated.unwrap_or_else(|faults| {
        refusals.extend(faults);
        T::default()
    })
}

fn value<T: Clone + Default>(wish: Option<&Wish<T>>) -> T {
    wish.map(|wish| wish.value.clone()).unwrap_or_default()
}

/// Refuses an ID without `adopt`. If the ID were ignored, a second load balancer would be created. Refuses `adopt: shared` without an ID
/// for the same reason.
fn incomplete_adoption(wishes: &Wishes) -> Option<Refusal> {
    let (id, adopt) = (&wishes.id, &wishes.adopt);
    match (id, adopt.as_ref().map(|wish| wish.value)) {
        (Some(id), None | Some(Adopt::None)) => Some(id.given.refusal(format!(
            "has no effect by itself: set {} to owned to adopt that load balancer, or to shared to share it",
            keys::ADOPT
        ))),
        (None, Some(Adopt::Shared)) => {
            let why = format!("needs the load balancer to share: set {} to its ID", keys::ID);
            adopt.as_ref().map(|wish| wish.given.refusal(why))
        }
        (Some(_), Some(Adopt::Owned | Adopt::Shared)) | (None, _) => None,
    }
}

fn shares(wishes: &Wishes) -> bool {
    wishes.adopt.as_ref().is_some_and(|wish| wish.value == Adopt::Shared)
}

/// The load balancers that may be adopted although another controller or a user created them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Takeover {
    /// No adoption. A load balancer without this cluster's tags belongs to another owner, regardless of its name.
    #[default]
    None,
    /// The load balancer with the name that this controller would give, if it has no owner.
    Named,
    /// The load balancer with this ID.
    Id(String),
    /// No adoption, because the Service shares a load balancer. If the vendor's cloud controller manager created a load balancer for this
    /// Service alone, that load balancer is treated as the Service's own.
    Shared,
}

impl Takeover {
    fn of(wishes: &Wishes) -> Self {
        match (wishes.adopt.as_ref().map(|wish| wish.value), &wishes.id) {
            (None | Some(Adopt::None), _) => Self::None,
            (Some(Adopt::Owned), None) => Self::Named,
            (Some(Adopt::Owned), Some(id)) => Self::Id(id.value.clone()),
            (Some(Adopt::Shared), _) => Self::Shared,
        }
    }

    /// Returns the adoption that a Service requests. Errors in other annotations are ignored.
    pub(super) fn wished(service: &Service, defaults: &Defaults) -> Self {
        Self::of(&wishes(service, defaults).0)
    }

    /// Returns the adoption mode for a deletion, so that a load balancer that was not adopted yet is also deleted. The mode uses only the
    /// name, because several Services may share the load balancer with the ID.
    pub(crate) fn left_over(&self) -> Adoption {
        match self {
            Self::None => Adoption::Never,
            Self::Named | Self::Id(_) | Self::Shared => Adoption::IfUnowned,
        }
    }

    pub(crate) fn adoption(&self) -> Adoption {
        match self {
            Self::None | Self::Shared => Adoption::Never,
            Self::Named => Adoption::IfUnowned,
            Self::Id(_) => Adoption::ById,
        }
    }

    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::None | Self::Named | Self::Shared => None,
            Self::Id(id) => Some(id),
        }
    }
}

/// The settings of a load balancer without its backends. Several Services may use the same backends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(super) spec: LoadBalancerSpec,
    pub(crate) takeover: Takeover,
    /// Digest that is equal for equal shapes.
    pub(crate) digest: String,
}

impl Shape {
    fn of(spec: LoadBalancerSpec, takeover: Takeover) -> Self {
        let digest = Sha256::new_with_prefix(spec.encode_to_vec()).chain_update(format!("{takeover:?}"));
        Self { digest: short(&digest.finalize()), spec, takeover }
    }

    pub(super) fn with_spec(&self, spec: LoadBalancerSpec) -> Self {
        Self::of(spec, self.takeover.clone())
    }

    pub(super) fn families(&self) -> usize {
        self.spec.ip_families.len()
    }

    pub(crate) fn with_targets(&self, backend_set_id: &str) -> LoadBalancerSpec {
        LoadBalancerSpec { backend_set_id: backend_set_id.to_owned(), ..self.spec.clone() }
    }
}

fn family(family: &Family) -> i32 {
    match family {
        Family::V4 => IpFamily::Ipv4.into(),
        Family::V6 => IpFamily::Ipv6.into(),
    }
}

fn bad_ports(service: &Service) -> Vec<Refusal> {
    // If some ports are invalid, the indexes of the other ports are wrong. Ports are therefore validated only if all ports can be parsed.
    if !service.unread_ports.is_empty() {
        return service.unread_ports.clone();
    }
    if service.ports.is_empty() {
        return vec![Refusal::new("spec.ports", "a load balancer needs at least one port")];
    }
    let without: Vec<usize> =
        service.ports.iter().enumerate().filter(|(_, port)| port.node_port == 0).map(|(at, _)| at).collect();
    match (service.node_ports, without.first()) {
        (_, None) => Vec::new(),
        (NodePorts::Disabled, Some(at)) => vec![Refusal::new(
            "spec.allocateLoadBalancerNodePorts",
            format!(
                "false leaves spec.ports[{at}] without a node port: set it to true, or set spec.ports[{at}].nodePort"
            ),
        )],
        (NodePorts::Allocated, Some(at)) => {
            vec![Refusal::new(format!("spec.ports[{at}].nodePort"), "is 0: set a node port")]
        }
    }
}

/// Without the capability, kube-proxy on each node still provides session affinity, so the setting is not refused.
fn affinity(affinity: Affinity, features: &Features) -> Option<SessionAffinity> {
    match affinity {
        Affinity::ClientIp { timeout_seconds } if features.has(name::SESSION_AFFINITY) => {
            Some(SessionAffinity {
                kind: session_affinity::Kind::ClientIp.into(),
                timeout: timeout_seconds
                    .map(|seconds| prost_types::Duration { seconds: seconds.into(), nanos: 0 }),
            })
        }
        Affinity::ClientIp { .. } | Affinity::None => None,
    }
}

#[cfg(test)]
mod tests;
