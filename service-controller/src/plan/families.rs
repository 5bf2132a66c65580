//! Address family of an existing load balancer, for a Service that prefers two families but does not require both.

use super::{
    cloud::Balancer,
    service::{Family, Ingress, Service},
};

/// Returns the family that the cache shows, else the family in the status, else the Service's first family. The status also covers a load
/// balancer that is not adopted yet.
pub(crate) fn family_of(service: &Service, seen: Option<&[Balancer]>) -> Option<Family> {
    let shown: Vec<&Ingress> = seen.unwrap_or_default().iter().flat_map(|it| &it.ingress).collect();
    let status: Vec<&Ingress> = service.ingress.iter().collect();
    let of = |address: &Ingress| address.ip.as_ref().and_then(|ip| ip.parse().ok()).map(Family::of);
    let only = |addresses: Vec<&Ingress>| {
        let mut families: Vec<Family> = addresses.into_iter().filter_map(of).collect();
        families.dedup();
        match families.as_slice() {
            [one] if service.families.contains(one) => Some(*one),
            _ => None,
        }
    };
    only(shown).or_else(|| only(status)).or_else(|| service.families.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cloud::{Details, State};

    fn ingress(addresses: &[&str]) -> Vec<Ingress> {
        let one = |ip: &&str| Ingress { ip: Some((*ip).to_owned()), ..Ingress::default() };
        addresses.iter().map(one).collect()
    }

    /// Columns: addresses in the cache, addresses in the status, the Service's families, and the result.
    type Row = (&'static [&'static str], &'static [&'static str], &'static [Family], Family);

    #[test]
    fn family_of_existing_load_balancer() {
        use Family::{V4, V6};
        let rows: [Row; 8] = [
            (&["2001:db8::1"], &[], &[V4, V6], V6),
            (&["192.0.2.1"], &["2001:db8::1"], &[V6, V4], V4),
            (&["2001:db8::1", "2001:db8::2"], &[], &[V4, V6], V6),
            (&[], &["2001:db8::1"], &[V4, V6], V6),
            (&["192.0.2.1", "2001:db8::1"], &[], &[V6, V4], V6),
            (&["192.0.2.1", "2001:db8::1"], &["192.0.2.1"], &[V6, V4], V4),
            (&[], &[], &[V6, V4], V6),
            (&["2001:db8::1"], &[], &[V4], V4),
        ];
        for (shown, status, families, want) in rows {
            let balancer = Balancer {
                vendor_id: "lb-1".to_owned(),
                state: State::Active,
                applied_hash: String::new(),
                ingress: ingress(shown),
                listeners: Vec::new(),
                backends: 0,
                details: Details::default(),
            };
            let service =
                Service { families: families.to_vec(), ingress: ingress(status), ..Service::default() };
            assert_eq!(
                family_of(&service, Some(&[balancer])),
                Some(want),
                "{shown:?} {status:?} {families:?}"
            );
        }
    }
}
