//! Adapts refused settings to the existing load balancer. Fields that cannot change get the load balancer's values, and all other settings
//! are kept.
//!
//! The contract has no call that changes only backends. Without this module, refused settings would also block node changes after a
//! restart. Deleted nodes would stay in the load balancer, and new nodes would be missing. The last valid settings are no valid
//! replacement, because the adapter has already applied the part of the new settings that is possible.

use std::{collections::BTreeSet, net::IpAddr};

use cloud_api_proto::v1alpha1::{LoadBalancerSpec, load_balancer_spec::Scheme};

use super::{
    cloud::Balancer,
    service::{Family, Ingress, Service},
};

/// The field of the contract for address families.
pub(crate) const FAMILIES: &str = "spec.ip_families";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Existing<'a> {
    /// Fields of the contract that cannot change.
    pub(crate) fixed: &'a BTreeSet<String>,
    pub(crate) addresses: &'a [IpAddr],
    /// The last valid settings.
    pub(crate) good: Option<&'a LoadBalancerSpec>,
    /// The only family to request, if one family is sufficient and the adapter cannot add the other family.
    pub(crate) only: Option<Family>,
}

/// Addresses of the existing load balancer, from the cache or else from the status.
pub(crate) fn addresses_of(service: &Service, seen: Option<&[Balancer]>) -> Vec<IpAddr> {
    let read = |ingress: &Ingress| ingress.ip.as_ref().and_then(|ip| ip.parse().ok());
    let shown: Vec<IpAddr> =
        seen.unwrap_or_default().iter().flat_map(|it| &it.ingress).filter_map(read).collect();
    if shown.is_empty() { service.ingress.iter().filter_map(read).collect() } else { shown }
}

/// Returns the families of these addresses: first the requested families in the requested sequence, then all other families.
pub(super) fn families_of(there: &[IpAddr], asked: &[Family]) -> Vec<Family> {
    let has = |family: &Family| there.iter().any(|address| Family::of(*address) == *family);
    let others = [Family::V4, Family::V6].into_iter().filter(|family| !asked.contains(family));
    asked.iter().copied().chain(others).filter(has).collect()
}

/// Sets these fields to the values of the existing load balancer. `None`: a value is not known.
///
/// `good` is the last valid specification, which is the best source of values. The caller has already set the families with `families_of`,
/// because the source ranges depend on the families.
pub(super) fn keep(
    spec: &mut LoadBalancerSpec,
    fixed: &BTreeSet<String>,
    there: &[IpAddr],
    good: Option<&LoadBalancerSpec>,
) -> Option<()> {
    fixed.iter().try_for_each(|field| match good {
        Some(good) => as_before(spec, field, good),
        None => keep_one(spec, field, there),
    })
}

fn as_before(spec: &mut LoadBalancerSpec, field: &str, good: &LoadBalancerSpec) -> Option<()> {
    let (name, key) = split(field);
    match name {
        FAMILIES => (),
        "spec.requested_addresses" => spec.requested_addresses.clone_from(&good.requested_addresses),
        "spec.scheme" => spec.set_scheme(good.scheme()),
        "spec.address_pool" => spec.address_pool.clone_from(&good.address_pool),
        "spec.subnets" => spec.subnets.clone_from(&good.subnets),
        "spec.size" => spec.size.clone_from(&good.size),
        "spec.zone" => spec.zone.clone_from(&good.zone),
        "spec.parameters" => {
            let key = key.strip_suffix(']')?;
            match good.parameters.get(key) {
                Some(value) => drop(spec.parameters.insert(key.to_owned(), value.clone())),
                None => drop(spec.parameters.remove(key)),
            }
        }
        _ => return None,
    }
    Some(())
}

/// Returns the index in `spec.ports` from a field that the adapter names. Another user of the load balancer occupies that port.
pub(crate) fn port(field: &str) -> Option<usize> {
    field.strip_prefix("spec.listeners[")?.strip_suffix("].port")?.parse().ok()
}

/// Splits a field into its name and its index or key.
fn split(field: &str) -> (&str, &str) {
    field.split_once('[').unwrap_or((field, ""))
}

fn keep_one(spec: &mut LoadBalancerSpec, field: &str, there: &[IpAddr]) -> Option<()> {
    let (name, key) = split(field);
    match name {
        FAMILIES => (),
        "spec.requested_addresses" => {
            // The existing addresses are requested by value, because addresses that the user reserved must not be released. If the user
            // requested no address, no address is set.
            let kept = |asked: &String| {
                let family = Family::of(asked.parse().ok()?);
                there.iter().find(|address| Family::of(**address) == family).map(ToString::to_string)
            };
            spec.requested_addresses = spec.requested_addresses.iter().filter_map(kept).collect();
        }
        // There are only two schemes, so the existing load balancer has the scheme that was not requested.
        "spec.scheme" => {
            let other = if spec.scheme() == Scheme::Internal { Scheme::Internet } else { Scheme::Internal };
            spec.set_scheme(other);
        }
        // If these fields are empty, the adapter keeps the existing values or refuses the request again.
        "spec.address_pool" => spec.address_pool.clear(),
        "spec.subnets" => spec.subnets.clear(),
        "spec.size" => spec.size.clear(),
        "spec.zone" => spec.zone.clear(),
        "spec.parameters" => drop(spec.parameters.remove(key.strip_suffix(']')?)?),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(words: &[&str]) -> Vec<IpAddr> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    #[test]
    fn existing_families_keep_requested_order() {
        use Family::{V4, V6};
        let both = ["192.0.2.1", "2001:db8::1"];
        assert_eq!(families_of(&addresses(&both), &[V6]), [V6, V4]);
        assert_eq!(families_of(&addresses(&both), &[V4]), [V4, V6]);
        assert_eq!(families_of(&addresses(&both[1..]), &[V4, V6]), [V6]);
        assert_eq!(families_of(&[], &[V4]), []);
    }

    // Behaviour: S27
    #[test]
    fn immutable_fields_keep_existing_values() {
        type Change = fn(&mut LoadBalancerSpec);
        let there = addresses(&["192.0.2.1", "2001:db8::1"]);
        let asked = || LoadBalancerSpec {
            requested_addresses: vec!["2001:db8::7".to_owned(), "192.0.2.7".to_owned()],
            subnets: vec!["s-2".to_owned()],
            address_pool: "p-2".to_owned(),
            size: "large".to_owned(),
            zone: "z-2".to_owned(),
            parameters: [("network".to_owned(), "n-2".to_owned()), ("a".to_owned(), "b".to_owned())].into(),
            ..LoadBalancerSpec::default()
        };
        let rows: [(&str, Option<Change>); 9] = [
            (
                "spec.requested_addresses[0]",
                Some(|it| {
                    it.requested_addresses = vec!["2001:db8::1".to_owned(), "192.0.2.1".to_owned()];
                }),
            ),
            ("spec.scheme", Some(|it| it.set_scheme(Scheme::Internal))),
            ("spec.address_pool", Some(|it| it.address_pool.clear())),
            ("spec.subnets[0]", Some(|it| it.subnets.clear())),
            ("spec.size", Some(|it| it.size.clear())),
            ("spec.zone", Some(|it| it.zone.clear())),
            ("spec.parameters[network]", Some(|it| drop(it.parameters.remove("network")))),
            // The current values of these fields are unknown.
            ("spec.load_balancer_id", None),
            ("spec.listeners[0].application", None),
        ];
        for (field, change) in rows {
            let mut spec = asked();
            let kept = keep(&mut spec, &[field.to_owned()].into(), &there, None);
            let want = change.map(|change| {
                let mut want = asked();
                change(&mut want);
                want
            });
            assert_eq!(kept.map(|()| spec), want, "{field}");
        }
        let mut spec = asked();
        assert_eq!(keep(&mut spec, &["spec.requested_addresses".to_owned()].into(), &[], None), Some(()));
        assert_eq!(spec.requested_addresses, [""; 0], "no address was requested");
    }

    #[test]
    fn last_valid_settings_supply_immutable_fields() {
        let good = LoadBalancerSpec {
            requested_addresses: vec!["192.0.2.1".to_owned()],
            subnets: vec!["s-1".to_owned()],
            address_pool: "p-1".to_owned(),
            size: "small".to_owned(),
            zone: "z-1".to_owned(),
            parameters: [("network".to_owned(), "n-1".to_owned())].into(),
            ..LoadBalancerSpec::default()
        };
        let fields =
            ["spec.requested_addresses[0]", "spec.subnets[0]", "spec.address_pool", "spec.size", "spec.zone"];
        let fields =
            fields.into_iter().chain(["spec.scheme", "spec.parameters[network]", "spec.parameters[a]"]);
        let fixed: BTreeSet<String> = fields.map(str::to_owned).collect();
        let mut spec = LoadBalancerSpec {
            size: "large".to_owned(),
            parameters: [("a".to_owned(), "b".to_owned())].into(),
            ..LoadBalancerSpec::default()
        };
        spec.set_scheme(Scheme::Internal);
        assert_eq!(keep(&mut spec, &fixed, &[], Some(&good)), Some(()));
        assert_eq!(spec, good);
        assert_eq!(keep(&mut spec, &["spec.load_balancer_id".to_owned()].into(), &[], Some(&good)), None);
    }
}
