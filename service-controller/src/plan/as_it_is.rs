//! What stands in for a wish of which something cannot change on the load balancer that is there: the same wish, with those fields as they
//! are there.
//!
//! The contract has no request that changes backends alone: without this one, after a restart, nodes that go would stay behind the load
//! balancer, and new ones would never come. While the process lives the last good wish could stand in; but what else of the new one can
//! be done is done by then, and would be undone.

use std::{collections::BTreeSet, net::IpAddr};

use cloud_api_proto::v1alpha1::{LoadBalancerSpec, load_balancer_spec::Scheme};

use super::{
    cloud::Balancer,
    service::{Family, Ingress, Service},
};

/// The field of the contract that says the address families.
pub(crate) const FAMILIES: &str = "spec.ip_families";

/// The addresses of what is there, as the mirror shows them, or else the status.
pub(crate) fn addresses_of(service: &Service, seen: Option<&[Balancer]>) -> Vec<IpAddr> {
    let read = |ingress: &Ingress| ingress.ip.as_ref().and_then(|ip| ip.parse().ok());
    let shown: Vec<IpAddr> =
        seen.unwrap_or_default().iter().flat_map(|it| &it.ingress).filter_map(read).collect();
    if shown.is_empty() { service.ingress.iter().filter_map(read).collect() } else { shown }
}

/// The families of these addresses: those that are asked for first, in their order.
pub(super) fn families_of(there: &[IpAddr], asked: &[Family]) -> Vec<Family> {
    let has = |family: &Family| there.iter().any(|address| Family::of(*address) == *family);
    let others = [Family::V4, Family::V6].into_iter().filter(|family| !asked.contains(family));
    asked.iter().copied().chain(others).filter(has).collect()
}

/// Asks in these fields for what is there. `None`: what that is nobody can tell.
///
/// `good`: the last wish that was good, which says it best. The families are made of [`families_of`]: who may connect follows from them.
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

/// The place in the Service of a port that another user of the load balancer has, as the adapter names it.
pub(crate) fn port(field: &str) -> Option<usize> {
    field.strip_prefix("spec.listeners[")?.strip_suffix("].port")?.parse().ok()
}

/// A field's name, and which of many it is.
fn split(field: &str) -> (&str, &str) {
    field.split_once('[').unwrap_or((field, ""))
}

fn keep_one(spec: &mut LoadBalancerSpec, field: &str, there: &[IpAddr]) -> Option<()> {
    let (name, key) = split(field);
    match name {
        FAMILIES => (),
        "spec.requested_addresses" => {
            // By their names, so that addresses which the user reserved are not given back. Who has none asks for none.
            let kept = |asked: &String| {
                let family = Family::of(asked.parse().ok()?);
                there.iter().find(|address| Family::of(**address) == family).map(ToString::to_string)
            };
            spec.requested_addresses = spec.requested_addresses.iter().filter_map(kept).collect();
        }
        // There are two.
        "spec.scheme" => {
            let other = if spec.scheme() == Scheme::Internal { Scheme::Internet } else { Scheme::Internal };
            spec.set_scheme(other);
        }
        // Where nobody asks for one, an adapter keeps what there is or says again that it cannot change it.
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
    fn the_families_that_are_there_stand_in_the_order_of_the_wish() {
        use Family::{V4, V6};
        let both = ["192.0.2.1", "2001:db8::1"];
        assert_eq!(families_of(&addresses(&both), &[V6]), [V6, V4]);
        assert_eq!(families_of(&addresses(&both), &[V4]), [V4, V6]);
        assert_eq!(families_of(&addresses(&both[1..]), &[V4, V6]), [V6]);
        assert_eq!(families_of(&[], &[V4]), []);
    }

    #[test]
    fn what_cannot_change_is_asked_for_as_it_is() {
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
            // Which one it has, or what it understood before, nobody tells.
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
        assert_eq!(spec.requested_addresses, [""; 0], "who has none asks for none");
    }

    #[test]
    fn what_was_good_says_best_how_it_is() {
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
