//! The addresses requested for a load balancer. They come from the annotation, or from `spec.loadBalancerIP`, which the API server does not
//! validate.

use std::net::IpAddr;

use super::{
    Refusal,
    annotations::{self, Wish, settings::Defaults},
    service::{Family, Service},
};

const FIELD: &str = "spec.loadBalancerIP";

/// Requested addresses, and the field or annotation that requests them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requested {
    field: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Requested {
    /// The addresses that the Service requests, at most one per family.
    pub(crate) fn of(service: &Service, wish: Option<&Wish<Vec<IpAddr>>>) -> Result<Self, Refusal> {
        let field = service.requested_address.as_deref().map(address).transpose()?;
        let requested = match (field, wish) {
            (None, None) => return Ok(Self::default()),
            (Some(address), None) => Self { field: FIELD.to_owned(), addresses: vec![address] },
            (Some(address), Some(wish)) if wish.value != [address] => {
                return Err(wish
                    .given
                    .refusal(format!("differs from {FIELD}, which is {address}: remove one of the two")));
            }
            (_, Some(wish)) => Self { field: wish.given.place.clone(), addresses: wish.value.clone() },
        };
        let strange = requested.of_no_family(&service.families, "spec.ipFamilies contains");
        let second = || requested.of_one_family();
        strange.or_else(second).map_or(Ok(requested.clone()), Err)
    }

    /// Refuses an address whose family the load balancer does not have. `whose` is the beginning of the text that lists the existing
    /// families.
    ///
    /// No address is refused if `families` is empty, because the API server normally sets `spec.ipFamilies`.
    pub(crate) fn of_no_family(&self, families: &[Family], whose: &str) -> Option<Refusal> {
        self.addresses.iter().find_map(|address| {
            let own = Family::of(*address);
            let other = families.first().filter(|_| !families.contains(&own))?;
            let why = format!("{address} is {own}, but {whose} only {other}: request an {other} address");
            Some(Refusal::new(&self.field, why))
        })
    }

    fn of_one_family(&self) -> Option<Refusal> {
        let (first, second) = (self.addresses.first()?, self.addresses.get(1)?);
        let several = Family::of(*first) == Family::of(*second) || self.addresses.len() > 2;
        let why = || "has several addresses of the same family: request at most one of each";
        several.then(|| Refusal::new(&self.field, why()))
    }
}

/// Returns the valid requested addresses. [`Requested::of`] refuses invalid addresses.
pub(crate) fn requested(service: &Service, defaults: &Defaults) -> Vec<IpAddr> {
    let field = service.requested_address.as_deref().and_then(|text| address(text).ok());
    let annotated = annotations::addresses(service, defaults);
    field.into_iter().chain(annotated).collect()
}

fn address(text: &str) -> Result<IpAddr, Refusal> {
    text.parse().map_err(|error| {
        let why = format!("invalid IP address {text:?} ({error}): write one such as 192.0.2.7");
        Refusal::new(FIELD, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::annotations::{
        settings::{Given, Origin},
        values,
    };

    fn validated(text: &str, families: &[Family]) -> Result<Vec<IpAddr>, String> {
        let families = families.to_vec();
        let service = Service { requested_address: Some(text.to_owned()), families, ..Service::default() };
        outcome(Requested::of(&service, None))
    }

    fn outcome(requested: Result<Requested, Refusal>) -> Result<Vec<IpAddr>, String> {
        requested.map(|it| it.addresses).map_err(|refusal| refusal.to_string())
    }

    fn wish(addresses: &str) -> Wish<Vec<IpAddr>> {
        let place = "annotation lb.cloudadapter.dev/address".to_owned();
        let given = Given { origin: Origin::Service, place, value: addresses.to_owned() };
        Wish { value: values::addresses(addresses).unwrap(), given }
    }

    #[test]
    fn address_of_own_family_is_accepted() {
        let both = [Family::V4, Family::V6];
        let rows: [(&str, &[Family]); 4] = [
            ("192.0.2.7", &[Family::V4]),
            ("2001:db8::7", &[Family::V6]),
            ("192.0.2.7", &both),
            ("2001:db8::7", &both),
        ];
        for (text, families) in rows {
            assert_eq!(validated(text, families), Ok(vec![text.parse().unwrap()]), "{text} {families:?}");
        }
        assert_eq!(Requested::of(&Service::default(), None), Ok(Requested::default()));
    }

    #[test]
    fn address_annotation_allows_one_per_family_and_agrees_with_field() {
        let both = Service { families: vec![Family::V4, Family::V6], ..Service::default() };
        let of = |service: &Service, addresses| outcome(Requested::of(service, Some(&wish(addresses))));
        assert_eq!(of(&both, "2001:db8::7, 192.0.2.7").unwrap().len(), 2);
        let field = Service { requested_address: Some("192.0.2.7".to_owned()), ..both.clone() };
        assert_eq!(of(&field, "192.0.2.7").unwrap().len(), 1);
        let single = Service { families: vec![Family::V4], ..both.clone() };
        let faults = [
            of(&field, "192.0.2.8"),
            of(&both, "192.0.2.7,192.0.2.8"),
            of(&both, "192.0.2.7,2001:db8::7,2001:db8::8"),
            of(&single, "192.0.2.7,2001:db8::7"),
        ];
        insta::assert_snapshot!(faults.map(Result::unwrap_err).join("\n"), @r"
        annotation lb.cloudadapter.dev/address: differs from spec.loadBalancerIP, which is 192.0.2.7: remove one of the two
        annotation lb.cloudadapter.dev/address: has several addresses of the same family: request at most one of each
        annotation lb.cloudadapter.dev/address: has several addresses of the same family: request at most one of each
        annotation lb.cloudadapter.dev/address: 2001:db8::7 is IPv6, but spec.ipFamilies contains only IPv4: request an IPv4 address
        ");
    }

    // Behaviour: SF8
    #[test]
    fn invalid_addresses_are_refused() {
        let rows: [(&str, &[Family], &str); 5] = [
            ("not-an-ip", &[Family::V4], "spec.loadBalancerIP: invalid IP address \"not-an-ip\" "),
            ("192.0.2.7/32", &[Family::V4], "spec.loadBalancerIP: invalid IP address \"192.0.2.7/32\" "),
            (" ", &[Family::V4], "spec.loadBalancerIP: invalid IP address \" \" "),
            (
                "2001:db8::7",
                &[Family::V4],
                "spec.loadBalancerIP: 2001:db8::7 is IPv6, but spec.ipFamilies contains only IPv4",
            ),
            (
                "192.0.2.7",
                &[Family::V6],
                "spec.loadBalancerIP: 192.0.2.7 is IPv4, but spec.ipFamilies contains only IPv6",
            ),
        ];
        for (text, families, want) in rows {
            let refusal = validated(text, families).unwrap_err();
            assert!(refusal.starts_with(want), "{refusal}");
        }
    }
}
