//! The vendor extras that a load balancer takes, declared and read in one place.

use std::{collections::BTreeMap, time::Duration};

use cloud_adapter::driver::{Fault, VendorError};
use cloud_api_proto::v1alpha1::{Parameter, parameter::Type};

const SUBNET: &str = "subnet-id";
const IPV6_SUBNET: &str = "ipv6-subnet-id";
const NETWORK: &str = "network-id";
const MEMBER_SUBNET: &str = "member-subnet-id";
const FLOATING_NETWORK: &str = "floating-network-id";
const FLOATING_SUBNET: &str = "floating-subnet-id";
const KEEP_FLOATING_IP: &str = "keep-floating-ip";
const FLAVOR: &str = "flavor-id";
const ZONE: &str = "availability-zone";
const ALGORITHM: &str = "algorithm";
const CONNECTION_LIMIT: &str = "connection-limit";
const CLIENT_TIMEOUT: &str = "timeout-client-data";
const CONNECT_TIMEOUT: &str = "timeout-member-connect";
const MEMBER_TIMEOUT: &str = "timeout-member-data";
const INSPECT_TIMEOUT: &str = "timeout-tcp-inspect";
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The longest timeout. Source: Octavia, `MAX_TIMEOUT`.
const TIMEOUT_MAX: Duration = Duration::from_hours(24 * 24);

/// Words of `algorithm`, and Octavia's.
pub(crate) const ALGORITHMS: [(&str, &str); 4] = [
    ("round-robin", "ROUND_ROBIN"),
    ("least-connections", "LEAST_CONNECTIONS"),
    ("source-ip", "SOURCE_IP"),
    ("source-ip-port", "SOURCE_IP_PORT"),
];

/// When a change of it counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    InPlace,
    /// Only a load balancer that is made anew has it.
    Anew,
}

/// All of them: key, type, default, when a change counts, what it is.
const ALL: [(&str, Type, Option<&str>, Change, &str); 16] = [
    (SUBNET, Type::String, None, Change::Anew, "Subnet of the address, in place of --subnet-id."),
    (
        IPV6_SUBNET,
        Type::String,
        None,
        Change::Anew,
        "Subnet of the IPv6 address, in place of --ipv6-subnet-id.",
    ),
    (NETWORK, Type::String, None, Change::Anew, "Network of the address, in place of --network-id."),
    (
        MEMBER_SUBNET,
        Type::String,
        None,
        Change::InPlace,
        "Subnet by which members are reached, in place of --member-subnet-id. Counts for members that join from then on.",
    ),
    (
        FLOATING_NETWORK,
        Type::String,
        None,
        Change::InPlace,
        "External network of a floating IP that is made, in place of --floating-network-id. One that is there stays.",
    ),
    (
        FLOATING_SUBNET,
        Type::String,
        None,
        Change::InPlace,
        "Subnet of a floating IP that is made, in place of --floating-subnet-id. One that is there stays.",
    ),
    (
        KEEP_FLOATING_IP,
        Type::Bool,
        Some("false"),
        Change::InPlace,
        "Whether the floating IP stays in the project when the load balancer goes.",
    ),
    (FLAVOR, Type::String, None, Change::Anew, "Octavia flavor, by its ID."),
    (ZONE, Type::String, None, Change::Anew, "Octavia availability zone, by its name."),
    (ALGORITHM, Type::Enum, None, Change::InPlace, "How a member is chosen for a new connection."),
    (
        CONNECTION_LIMIT,
        Type::Integer,
        Some("-1"),
        Change::InPlace,
        "Connections of one listener; -1 is no limit.",
    ),
    (
        CLIENT_TIMEOUT,
        Type::Duration,
        Some("50s"),
        Change::InPlace,
        "How long a client may be silent. Comes before the idle timeout.",
    ),
    (
        CONNECT_TIMEOUT,
        Type::Duration,
        Some("5s"),
        Change::InPlace,
        "How long a member may take to accept a connection.",
    ),
    (
        MEMBER_TIMEOUT,
        Type::Duration,
        Some("50s"),
        Change::InPlace,
        "How long a member may be silent. Comes before the idle timeout.",
    ),
    (
        INSPECT_TIMEOUT,
        Type::Duration,
        Some("0s"),
        Change::InPlace,
        "How long to wait for more of a TCP connection's beginning.",
    ),
    (
        FORWARDED_FOR,
        Type::Bool,
        Some("false"),
        Change::InPlace,
        "Whether TCP ports speak HTTP, with the client's address in X-Forwarded-For.",
    ),
];

/// The extras, read. `None`: nobody said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) subnet: Option<String>,
    pub(crate) ipv6_subnet: Option<String>,
    pub(crate) network: Option<String>,
    pub(crate) member_subnet: Option<String>,
    pub(crate) floating_network: Option<String>,
    pub(crate) floating_subnet: Option<String>,
    pub(crate) keep_floating_ip: bool,
    pub(crate) flavor: Option<String>,
    pub(crate) zone: Option<String>,
    /// In Octavia's words.
    pub(crate) algorithm: Option<&'static str>,
    pub(crate) connection_limit: Option<i64>,
    /// Milliseconds.
    pub(crate) client_timeout: Option<u32>,
    pub(crate) connect_timeout: Option<u32>,
    pub(crate) member_timeout: Option<u32>,
    pub(crate) inspect_timeout: Option<u32>,
    pub(crate) forwarded_for: bool,
}

impl Parameters {
    /// All keys, as `GetInfo` tells them.
    pub(crate) fn declared() -> Vec<Parameter> {
        let declare =
            |(key, kind, default, change, description): (&str, Type, Option<&str>, Change, &str)| {
                let words = match kind {
                    Type::Bool => vec!["true", "false"],
                    Type::Enum => ALGORITHMS.map(|(word, _)| word).into(),
                    Type::Unspecified | Type::String | Type::Integer | Type::Duration => Vec::new(),
                };
                Parameter {
                    key: key.to_owned(),
                    r#type: kind.into(),
                    default_value: default.map(str::to_owned),
                    mutable_in_place: change == Change::InPlace,
                    description: description.to_owned(),
                    allowed_values: words.into_iter().map(str::to_owned).collect(),
                }
            };
        ALL.map(declare).into()
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`Fault::Invalid`] with the key and what would be right.
    pub(crate) fn read(values: &BTreeMap<String, String>) -> Result<Self, VendorError> {
        if let Some(key) = values.keys().find(|key| !ALL.iter().any(|(known, ..)| known == key)) {
            return Err(invalid(key, "is unknown"));
        }
        let text = |key: &str| match values.get(key).map(|value| value.trim()) {
            Some("") => Err(invalid(key, "is empty: leave it out, or name one")),
            value => Ok(value.map(str::to_owned)),
        };
        let flag = |key: &str| match values.get(key).map(String::as_str) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(word) => Err(invalid(key, &format!("{word:?} is neither true nor false"))),
        };
        let timeout = |key: &str| values.get(key).map(|value| milliseconds(key, value)).transpose();
        Ok(Self {
            subnet: text(SUBNET)?,
            ipv6_subnet: text(IPV6_SUBNET)?,
            network: text(NETWORK)?,
            member_subnet: text(MEMBER_SUBNET)?,
            floating_network: text(FLOATING_NETWORK)?,
            floating_subnet: text(FLOATING_SUBNET)?,
            keep_floating_ip: flag(KEEP_FLOATING_IP)?,
            flavor: text(FLAVOR)?,
            zone: text(ZONE)?,
            algorithm: values.get(ALGORITHM).map(|word| algorithm(word)).transpose()?,
            connection_limit: values.get(CONNECTION_LIMIT).map(|value| limit(value)).transpose()?,
            client_timeout: timeout(CLIENT_TIMEOUT)?,
            connect_timeout: timeout(CONNECT_TIMEOUT)?,
            member_timeout: timeout(MEMBER_TIMEOUT)?,
            inspect_timeout: timeout(INSPECT_TIMEOUT)?,
            forwarded_for: flag(FORWARDED_FOR)?,
        })
    }

    /// Those that only a new load balancer can have, with the field's name: where, how the cloud may call them there, and what is asked.
    pub(crate) fn anew(&self) -> [(String, Option<&str>); 5] {
        [
            (field(SUBNET), self.subnet.as_deref()),
            (field(IPV6_SUBNET), self.ipv6_subnet.as_deref()),
            (field(NETWORK), self.network.as_deref()),
            (field(FLAVOR), self.flavor.as_deref()),
            (field(ZONE), self.zone.as_deref()),
        ]
    }
}

fn algorithm(word: &str) -> Result<&'static str, VendorError> {
    let known = ALGORITHMS.into_iter().find(|(known, _)| *known == word);
    let words = ALGORITHMS.map(|(word, _)| word).join(", ");
    Ok(known.ok_or_else(|| invalid(ALGORITHM, &format!("{word:?} is not one of {words}")))?.1)
}

fn limit(value: &str) -> Result<i64, VendorError> {
    let limit = value.parse().ok().filter(|limit| *limit >= -1 && *limit <= i64::from(i32::MAX));
    limit.ok_or_else(|| invalid(CONNECTION_LIMIT, &format!("{value:?} is no number of connections, nor -1")))
}

/// A whole number and its unit. Source: the contract's form of durations.
fn milliseconds(key: &str, text: &str) -> Result<u32, VendorError> {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let read = || {
        let (digits, unit) = UNITS.iter().find_map(|(word, unit)| Some((text.strip_suffix(word)?, unit)))?;
        Some(Duration::from_millis(digits.parse::<u64>().ok()?.checked_mul(*unit)?))
    };
    let duration = read()
        .ok_or_else(|| invalid(key, &format!("{text:?} is no duration: write it as 500ms, 30s or 5m")))?;
    within_max(duration).ok_or_else(|| invalid(key, &format!("{text} is longer than 24 days")))
}

/// In milliseconds, if Octavia takes it.
pub(crate) fn within_max(duration: Duration) -> Option<u32> {
    Some(duration).filter(|one| *one <= TIMEOUT_MAX).and_then(|one| u32::try_from(one.as_millis()).ok())
}

fn field(key: &str) -> String {
    format!("spec.parameters[{key}]")
}

fn invalid(key: &str, text: &str) -> VendorError {
    let field = field(key);
    VendorError::new(Fault::Invalid, format!("{field}: {text}")).in_field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, value: &str) -> Result<Parameters, VendorError> {
        Parameters::read(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn every_declared_key_is_read_by_its_type() {
        for parameter in Parameters::declared() {
            let (good, bad): (&[&str], &[&str]) = match parameter.r#type() {
                Type::String => (&["x"], &["", " "]),
                Type::Bool => (&["true", "false"], &["yes"]),
                Type::Integer => (&["-1", "0", "1000"], &["-2", "many", "3000000000"]),
                Type::Duration => (&["0s", "500ms", "5m", "1h"], &["5", "-1s", "900h", "1.5s"]),
                Type::Enum => (&["round-robin", "source-ip-port"], &["ROUND_ROBIN", "random"]),
                Type::Unspecified => panic!("{} has no type", parameter.key),
            };
            for value in good {
                read(&parameter.key, value).expect(value);
            }
            for value in bad {
                let error = read(&parameter.key, value).expect_err(value);
                assert!(error.message.contains(&parameter.key), "{error}");
                assert_eq!(error.fault, Fault::Invalid, "{} {value:?}", parameter.key);
            }
        }
        assert_eq!(read("subnet", "x").expect_err("unknown").fields, ["spec.parameters[subnet]"]);
    }

    #[test]
    fn values_arrive_under_their_own_names() {
        assert_eq!(read(ALGORITHM, "least-connections").expect("good").algorithm, Some("LEAST_CONNECTIONS"));
        assert_eq!(read(CLIENT_TIMEOUT, "500ms").expect("good").client_timeout, Some(500));
        assert_eq!(read(CONNECTION_LIMIT, "7").expect("good").connection_limit, Some(7));
        let anew = |key: &str| {
            read(key, "x").expect("good").anew().into_iter().filter(|(_, value)| value.is_some()).count()
        };
        let immutable = Parameters::declared().into_iter().filter(|parameter| !parameter.mutable_in_place);
        assert!(immutable.map(|parameter| anew(&parameter.key)).all(|n| n == 1));
        assert!(read(KEEP_FLOATING_IP, "true").expect("good").keep_floating_ip);
    }
}
