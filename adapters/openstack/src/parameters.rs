//! Declares and parses the vendor parameters of a load balancer.

use std::{collections::BTreeMap, time::Duration};

use cloud_adapter::{
    driver::VendorError,
    kit::{invalid_parameter as invalid, parameter_field as field},
};
use cloud_api_proto::v1alpha1::{Parameter, parameter::Type};

const NETWORK: &str = "network-id";
const MEMBER_SUBNET: &str = "member-subnet-id";
const FLOATING_SUBNET: &str = "floating-subnet-id";
const CLIENT_TIMEOUT: &str = "timeout-client-data";
const MEMBER_TIMEOUT: &str = "timeout-member-data";
const INSPECT_TIMEOUT: &str = "timeout-tcp-inspect";

/// The longest timeout that Octavia accepts. Source: Octavia, `MAX_TIMEOUT`.
const TIMEOUT_MAX: Duration = Duration::from_hours(24 * 24);

/// Whether a change applies to an existing load balancer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    InPlace,
    /// The change applies only to load balancers that are created afterwards.
    OnCreation,
}

/// A namespace needs the operator's permission (a grant) for these parameters, because they may give access to networks of other tenants.
/// The VIP may be in such a network, or the nodes may accept packets from such a network.
const NEED_A_GRANT: [&str; 3] = [NETWORK, MEMBER_SUBNET, FLOATING_SUBNET];

/// All parameters. Each entry contains the key, the type, the default value, when a change applies, and the description.
const ALL: [(&str, Type, Option<&str>, Change, &str); 6] = [
    (
        NETWORK,
        Type::String,
        None,
        Change::OnCreation,
        "Network of the address, instead of --network-id; Octavia chooses the subnet.",
    ),
    (
        MEMBER_SUBNET,
        Type::String,
        None,
        Change::InPlace,
        "Subnet through which members are reached, instead of --member-subnet-id. Applies to members \
        that are added after the change.",
    ),
    (
        FLOATING_SUBNET,
        Type::String,
        None,
        Change::InPlace,
        "Subnet of new floating IPs, instead of --floating-subnet-id. Existing floating IPs stay.",
    ),
    (
        CLIENT_TIMEOUT,
        Type::Duration,
        Some("50s"),
        Change::InPlace,
        "Maximum time without data from a client. Takes precedence over the idle timeout.",
    ),
    (
        MEMBER_TIMEOUT,
        Type::Duration,
        Some("50s"),
        Change::InPlace,
        "Maximum time without data from a member. Takes precedence over the idle timeout.",
    ),
    (
        INSPECT_TIMEOUT,
        Type::Duration,
        Some("0s"),
        Change::InPlace,
        "Maximum time to wait for further data of a new TCP connection that is inspected.",
    ),
];

/// Parsed parameters. A value of `None` means that the parameter is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) network: Option<String>,
    pub(crate) member_subnet: Option<String>,
    pub(crate) floating_subnet: Option<String>,
    /// Timeouts in milliseconds.
    pub(crate) client_timeout: Option<u32>,
    pub(crate) member_timeout: Option<u32>,
    pub(crate) inspect_timeout: Option<u32>,
}

impl Parameters {
    /// Returns all parameters, in the form that `GetInfo` returns.
    pub(crate) fn declared() -> Vec<Parameter> {
        let declare =
            |(key, kind, default, change, description): (&str, Type, Option<&str>, Change, &str)| Parameter {
                key: key.to_owned(),
                r#type: kind.into(),
                default_value: default.map(str::to_owned),
                mutable_in_place: change == Change::InPlace,
                description: description.to_owned(),
                allowed_values: Vec::new(),
                needs_grant: NEED_A_GRANT.contains(&key),
            };
        ALL.map(declare).into()
    }

    pub(crate) fn read(values: &BTreeMap<String, String>) -> Result<Self, VendorError> {
        if let Some(key) = values.keys().find(|key| !ALL.iter().any(|(known, ..)| known == key)) {
            return Err(invalid(key, "unknown parameter"));
        }
        let text = |key: &str| match values.get(key).map(|value| value.trim()) {
            Some("") => Err(invalid(key, "is empty: leave it out, or set a name or ID")),
            value => Ok(value.map(str::to_owned)),
        };
        let timeout = |key: &str| values.get(key).map(|value| milliseconds(key, value)).transpose();
        Ok(Self {
            network: text(NETWORK)?,
            member_subnet: text(MEMBER_SUBNET)?,
            floating_subnet: text(FLOATING_SUBNET)?,
            client_timeout: timeout(CLIENT_TIMEOUT)?,
            member_timeout: timeout(MEMBER_TIMEOUT)?,
            inspect_timeout: timeout(INSPECT_TIMEOUT)?,
        })
    }
}

/// Parses a whole number with a unit, which is how the adapter API writes durations.
fn milliseconds(key: &str, text: &str) -> Result<u32, VendorError> {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let read = || {
        let (digits, unit) = UNITS.iter().find_map(|(word, unit)| Some((text.strip_suffix(word)?, unit)))?;
        Some(Duration::from_millis(digits.parse::<u64>().ok()?.checked_mul(*unit)?))
    };
    let duration = read()
        .ok_or_else(|| invalid(key, &format!("invalid duration {text:?}: write it as 500ms, 30s or 5m")))?;
    within_max(duration).ok_or_else(|| invalid(key, &format!("{text} is longer than 24 days")))
}

/// Converts a duration to milliseconds. Returns `None` if the duration exceeds Octavia's limit.
pub(crate) fn within_max(duration: Duration) -> Option<u32> {
    Some(duration).filter(|one| *one <= TIMEOUT_MAX).and_then(|one| u32::try_from(one.as_millis()).ok())
}

/// The path of the request field that contains the parameter `network-id`.
pub(crate) fn network_field() -> String {
    field(NETWORK)
}

/// The path of the request field that contains the parameter `floating-subnet-id`.
pub(crate) fn floating_subnet_field() -> String {
    field(FLOATING_SUBNET)
}

#[cfg(test)]
mod tests {
    use cloud_adapter::driver::Fault;

    use super::*;

    fn read(key: &str, value: &str) -> Result<Parameters, VendorError> {
        Parameters::read(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn declared_parameters_are_parsed_by_type() {
        for parameter in Parameters::declared() {
            let (good, bad): (&[&str], &[&str]) = match parameter.r#type() {
                Type::String => (&["x"], &["", " "]),
                Type::Duration => (&["0s", "500ms", "5m", "1h"], &["5", "-1s", "900h", "1.5s"]),
                Type::Unspecified | Type::Bool | Type::Integer | Type::Enum => {
                    panic!("{} has a type that no parameter uses", parameter.key)
                }
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
    fn parameter_values_are_assigned_to_their_fields() {
        assert_eq!(read(CLIENT_TIMEOUT, "500ms").expect("good").client_timeout, Some(500));
        assert_eq!(read(MEMBER_TIMEOUT, "5m").expect("good").member_timeout, Some(300_000));
        assert_eq!(read(NETWORK, "net").expect("good").network.as_deref(), Some("net"));
        let immutable = Parameters::declared().into_iter().filter(|parameter| !parameter.mutable_in_place);
        assert_eq!(immutable.map(|parameter| parameter.key).collect::<Vec<_>>(), [NETWORK]);
    }
}
