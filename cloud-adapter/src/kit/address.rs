//! Addresses of an instance.

use std::net::IpAddr;

use cloud_api_proto::v1alpha1::{
    InstanceAddress,
    instance_address::{Type, Value},
};

/// Adds an address of an instance. The first address of each type and IP family is the primary address. An invalid IP address is omitted,
/// because a Node must not show it.
pub fn add_address(addresses: &mut Vec<InstanceAddress>, kind: Type, text: &str, network: &str) {
    let (value, family) = match kind {
        Type::Hostname | Type::InternalDns | Type::ExternalDns => (Value::Name(text.to_owned()), 0),
        Type::InternalIp | Type::ExternalIp | Type::Unspecified => match text.parse::<IpAddr>() {
            Ok(ip) => (Value::Ip(ip.to_string()), if ip.is_ipv4() { 4 } else { 6 }),
            Err(_) => return,
        },
    };
    let primary = !addresses.iter().any(|other| (other.r#type(), other.family) == (kind, family));
    let network = network.to_owned();
    addresses.push(InstanceAddress { r#type: kind.into(), value: Some(value), family, network, primary });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_address_of_each_type_and_family_is_primary() {
        let mut addresses = Vec::new();
        for (kind, text) in [
            (Type::InternalIp, "10.0.0.1"),
            (Type::InternalIp, "10.0.0.2"),
            (Type::InternalIp, "FD00::1"),
            (Type::ExternalIp, "192.0.2.1"),
            (Type::ExternalIp, "coo"),
            (Type::Hostname, "10.0.0.1"),
        ] {
            add_address(&mut addresses, kind, text, "net");
        }
        let shown = |one: &InstanceAddress| (one.value.clone().expect("a value"), one.family, one.primary);
        let ip = |text: &str| Value::Ip(text.to_owned());
        assert_eq!(
            addresses.iter().map(shown).collect::<Vec<_>>(),
            [
                (ip("10.0.0.1"), 4, true),
                (ip("10.0.0.2"), 4, false),
                (ip("fd00::1"), 6, true),
                (ip("192.0.2.1"), 4, true),
                (Value::Name("10.0.0.1".to_owned()), 0, true),
            ]
        );
    }
}
