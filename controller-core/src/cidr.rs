//! Parses CIDRs as Kubernetes does. Callers decide which CIDRs suit which purpose.

use ipnet::{AddrParseError, IpNet};

/// Parses a CIDR; host bits are masked. Leading zeros are ignored, as in Kubernetes: `010.244.01.0/24` is `10.244.1.0/24`.
pub fn parse(text: &str) -> Result<IpNet, AddrParseError> {
    decimal(text).parse::<IpNet>().map(|cidr| cidr.trunc())
}

/// Removes leading zeros. The underlying parser refuses leading zeros in octets and in the length, and refuses groups of more than four
/// digits.
fn decimal(text: &str) -> String {
    let Some((address, length)) = text.split_once('/') else { return text.to_owned() };
    let group = |group: &str| group.split('.').map(number).collect::<Vec<_>>().join(".");
    let groups: Vec<String> = address.split(':').map(group).collect();
    format!("{}/{}", groups.join(":"), number(length))
}

/// Removes leading zeros, but keeps the last zero. A text that is not a number stays invalid.
fn number(text: &str) -> &str {
    let rest = text.trim_start_matches('0');
    if rest.is_empty() { text.get(..1).unwrap_or_default() } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Behaviour: R5
    #[test]
    fn leading_zeros_are_decimal_and_host_bits_are_masked() {
        for (given, read) in [
            ("10.244.0.0/16", "10.244.0.0/16"),
            ("010.244.01.0/24", "10.244.1.0/24"),
            ("10.000.00.0/08", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("010.1.2.3/8", "10.0.0.0/8"),
            ("0001.002.0000003.4/0032", "1.2.3.4/32"),
            ("fd00:0244:0:0001::7/064", "fd00:244:0:1::/64"),
            ("fd00:00244::00a/64", "fd00:244::/64"),
            ("::/0", "::/0"),
        ] {
            let cidr = parse(given).unwrap_or_else(|error| panic!("{given}: {error}"));
            assert_eq!(cidr.to_string(), read, "{given}");
        }
    }

    #[test]
    fn an_invalid_cidr_is_refused() {
        for junk in [
            "",
            "/",
            "/24",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0/24",
            "10..0.0/24",
            "10.0.0.0.0/24",
            "0x0a.0.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.+1/8",
            "256.0.0.0/8",
            "10.0.0.0/24/24",
            "::/129",
            " 10.0.0.0/8",
        ] {
            assert!(parse(junk).is_err(), "{junk:?}");
        }
    }
}
