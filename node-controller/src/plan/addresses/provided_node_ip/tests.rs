//! Defines the rule as a table.

use super::*;

/// Parses `type=address` words; `i`, `e` and `h` are short for the usual types.
fn addresses(words: &str) -> Vec<Address> {
    let address = |word: &str| {
        let (type_, address) = word.split_once('=').expect("type=address");
        let type_ = match type_ {
            "i" => "InternalIP",
            "e" => "ExternalIP",
            "h" => "Hostname",
            other => other,
        };
        Address { type_: type_.to_owned(), address: address.to_owned() }
    };
    words.split_whitespace().map(address).collect()
}

struct Case {
    name: &'static str,
    value: &'static str,
    cloud: &'static str,
    /// Returns `None` for an error.
    kept: Option<&'static str>,
}

#[track_caller]
fn check(cases: &[Case]) {
    for Case { name, value, cloud, kept } in cases {
        let result = apply(value, &addresses(cloud));
        assert_eq!(result.clone().ok(), kept.map(addresses), "{name}: {value:?} gives {result:?}");
    }
}

// Behaviour: NP1
#[test]
fn one_address() {
    check(&[
        Case { name: "the only address", value: "10.0.0.1", cloud: "i=10.0.0.1", kept: Some("i=10.0.0.1") },
        Case {
            name: "others of its type are dropped",
            value: "10.0.0.2",
            cloud: "i=10.0.0.1 i=10.0.0.2",
            kept: Some("i=10.0.0.2"),
        },
        Case {
            name: "other types stay, after it",
            value: "10.0.0.1",
            cloud: "e=192.0.2.1 i=10.0.0.1 h=a",
            kept: Some("i=10.0.0.1 e=192.0.2.1 h=a"),
        },
        Case {
            name: "equal addresses of all types come first, in the cloud's order",
            value: "10.0.0.1",
            cloud: "e=10.0.0.1 e=192.0.2.1 i=10.0.0.1 i=10.0.0.9 h=a",
            kept: Some("e=10.0.0.1 i=10.0.0.1 h=a"),
        },
        Case {
            name: "the other family of its type is dropped",
            value: "10.0.0.1",
            cloud: "i=10.0.0.1 i=fd00::1",
            kept: Some("i=10.0.0.1"),
        },
        Case { name: "unknown to the cloud", value: "10.0.0.9", cloud: "i=10.0.0.1 h=a", kept: None },
        Case { name: "a cloud without addresses", value: "10.0.0.9", cloud: "", kept: None },
        Case { name: "unspecified, and unknown", value: "0.0.0.0", cloud: "i=10.0.0.1", kept: None },
        Case { name: "unspecified, and known", value: "::", cloud: "i=::", kept: Some("i=::") },
    ]);
}

// Behaviour: NP2, NP3, NP6
#[test]
fn two_addresses() {
    check(&[
        Case {
            name: "both of one type, in the annotation's order",
            value: "fd00::1,10.0.0.1",
            cloud: "i=10.0.0.1 i=fd00::1 e=192.0.2.1",
            kept: Some("i=fd00::1 i=10.0.0.1 e=192.0.2.1"),
        },
        Case {
            name: "of two types: the rest of both is dropped, across families",
            value: "192.0.2.1,fd00::1",
            cloud: "i=10.0.0.1 i=fd00::1 e=192.0.2.1 e=2001:db8::1 h=a",
            kept: Some("e=192.0.2.1 i=fd00::1 h=a"),
        },
        Case {
            name: "only one is known",
            value: "10.0.0.1,fd00::9",
            cloud: "i=10.0.0.1 i=fd00::1",
            kept: None,
        },
        Case {
            name: "of one family",
            value: "10.0.0.1,10.0.0.2",
            cloud: "i=10.0.0.1 i=10.0.0.2",
            kept: None,
        },
        Case { name: "unspecified v4", value: "0.0.0.0,fd00::1", cloud: "i=0.0.0.0 i=fd00::1", kept: None },
        Case { name: "unspecified v6", value: "10.0.0.1,::", cloud: "i=10.0.0.1 i=::", kept: None },
        Case {
            name: "three",
            value: "10.0.0.1,fd00::1,10.0.0.2",
            cloud: "i=10.0.0.1 i=fd00::1 i=10.0.0.2",
            kept: None,
        },
    ]);
}

// Behaviour: NP4, NP5
#[test]
fn spelling() {
    check(&[
        Case {
            name: "leading zeros are decimal",
            value: "01.2.3.004",
            cloud: "i=1.2.3.4",
            kept: Some("i=1.2.3.4"),
        },
        Case {
            name: "the cloud's spelling is kept",
            value: "2600::1",
            cloud: "i=2600::0:1",
            kept: Some("i=2600::0:1"),
        },
        Case {
            name: "IPv4-mapped IPv6 is IPv4",
            value: "::ffff:10.0.0.1",
            cloud: "i=10.0.0.1",
            kept: Some("i=10.0.0.1"),
        },
        Case {
            name: "leading zeros of v4 inside v6",
            value: "::ffff:010.0.0.1",
            cloud: "i=10.0.0.1",
            kept: Some("i=10.0.0.1"),
        },
        Case {
            name: "leading zeros of groups",
            value: "2600::00001",
            cloud: "i=2600:0000::1",
            kept: Some("i=2600:0000::1"),
        },
        Case { name: "zeros and nothing else", value: "::00000", cloud: "i=::", kept: Some("i=::") },
        Case { name: "zeros before junk", value: "0x10.0.0.1", cloud: "i=10.0.0.1", kept: None },
        Case { name: "empty", value: "", cloud: "i=10.0.0.1", kept: None },
        Case { name: "garbage", value: "node-1", cloud: "i=10.0.0.1", kept: None },
        Case { name: "a CIDR", value: "10.0.0.1/24", cloud: "i=10.0.0.1", kept: None },
        Case { name: "a blank before", value: " 10.0.0.1", cloud: "i=10.0.0.1", kept: None },
        Case {
            name: "a blank after the comma",
            value: "10.0.0.1, fd00::1",
            cloud: "i=10.0.0.1 i=fd00::1",
            kept: None,
        },
        Case { name: "a trailing comma", value: "10.0.0.1,", cloud: "i=10.0.0.1", kept: None },
        Case { name: "trailing junk", value: "10.0.0.1x", cloud: "i=10.0.0.1", kept: None },
        Case { name: "an octet too large", value: "10.0.0.256", cloud: "i=10.0.0.1", kept: None },
        Case { name: "an octet missing", value: "10.0.1", cloud: "i=10.0.0.1", kept: None },
        Case { name: "a sign", value: "+10.0.0.1", cloud: "i=10.0.0.1", kept: None },
    ]);
}
