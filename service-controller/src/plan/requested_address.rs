//! Which address the load balancer shall have: `spec.loadBalancerIP`, which the API server takes whatever it holds.

use std::net::IpAddr;

use super::{Refusal, service::Family, service::Service};

const FIELD: &str = "spec.loadBalancerIP";

/// The address that the Service asks for, of one of its families.
///
/// # Errors
/// A refusal that names the field and what it holds.
pub(crate) fn requested_address(service: &Service) -> Result<Option<IpAddr>, Refusal> {
    let Some(text) = &service.requested_address else { return Ok(None) };
    let address: IpAddr = text.parse().map_err(|error| {
        let why = format!("{text:?} is not an IP address ({error}): write one such as 192.0.2.7");
        Refusal::new(FIELD, why)
    })?;
    match of_no_family(address, &service.families, "spec.ipFamilies names") {
        Some(refusal) => Err(refusal),
        None => Ok(Some(address)),
    }
}

/// Refuses an address of a family that the load balancer does not have; `whose` says who has only the others.
///
/// The API server fills `spec.ipFamilies` in, so that no families say nothing against any address.
pub(crate) fn of_no_family(address: IpAddr, families: &[Family], whose: &str) -> Option<Refusal> {
    let own = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    let other = families.first().filter(|_| !families.contains(&own))?;
    let why = format!("{address} is {own} and {whose} only {other}: ask for an {other} address");
    Some(Refusal::new(FIELD, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str, families: &[Family]) -> Result<Option<IpAddr>, String> {
        let families = families.to_vec();
        let service = Service { requested_address: Some(text.to_owned()), families, ..Service::default() };
        requested_address(&service).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn an_address_of_one_of_the_families_is_taken() {
        let both = [Family::V4, Family::V6];
        let rows: [(&str, &[Family]); 4] = [
            ("192.0.2.7", &[Family::V4]),
            ("2001:db8::7", &[Family::V6]),
            ("192.0.2.7", &both),
            ("2001:db8::7", &both),
        ];
        for (text, families) in rows {
            assert_eq!(judged(text, families), Ok(Some(text.parse().unwrap())), "{text} {families:?}");
        }
        assert_eq!(requested_address(&Service::default()), Ok(None));
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        let rows: [(&str, &[Family], &str); 5] = [
            ("not-an-ip", &[Family::V4], "spec.loadBalancerIP: \"not-an-ip\" is not an IP address"),
            ("192.0.2.7/32", &[Family::V4], "spec.loadBalancerIP: \"192.0.2.7/32\" is not an IP address"),
            (" ", &[Family::V4], "spec.loadBalancerIP: \" \" is not an IP address"),
            (
                "2001:db8::7",
                &[Family::V4],
                "spec.loadBalancerIP: 2001:db8::7 is IPv6 and spec.ipFamilies names only IPv4",
            ),
            (
                "192.0.2.7",
                &[Family::V6],
                "spec.loadBalancerIP: 192.0.2.7 is IPv4 and spec.ipFamilies names only IPv6",
            ),
        ];
        for (text, families, want) in rows {
            let refusal = judged(text, families).unwrap_err();
            assert!(refusal.starts_with(want), "{refusal}");
        }
    }
}
