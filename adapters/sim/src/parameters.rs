//! The vendor-specific parameters of a load balancer, declared and parsed in one place.

use std::collections::BTreeMap;

use cloud_adapter::{driver::VendorError, kit::invalid_parameter as invalid};
use cloud_api_proto::v1alpha1::{Parameter, parameter::Type};

use crate::simcloud::model::Algorithm;

const ALGORITHM: &str = "algorithm";
const HEALTH_CHECK_TLS: &str = "health-check-tls";

/// The values of `algorithm`; the first is the default.
const ALGORITHMS: [(&str, Algorithm); 3] = [
    ("round-robin", Algorithm::RoundRobin),
    ("least-connections", Algorithm::LeastConnections),
    ("source-ip", Algorithm::SourceIp),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) algorithm: Algorithm,
    pub(crate) health_check_tls: bool,
}

impl Parameters {
    /// All parameters, as `GetInfo` reports them.
    pub(crate) fn declared() -> Vec<Parameter> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        vec![
            Parameter {
                key: ALGORITHM.to_owned(),
                r#type: Type::Enum.into(),
                default_value: ALGORITHMS.first().map(|(word, _)| (*word).to_owned()),
                mutable_in_place: true,
                description: "How the load balancer chooses a backend for a new connection.".to_owned(),
                allowed_values: words(&ALGORITHMS.map(|(word, _)| word)),
                needs_grant: false,
            },
            Parameter {
                key: HEALTH_CHECK_TLS.to_owned(),
                r#type: Type::Bool.into(),
                default_value: Some("false".to_owned()),
                mutable_in_place: true,
                description: "Whether HTTP health checks use TLS, without verifying the certificate."
                    .to_owned(),
                allowed_values: words(&["true", "false"]),
                needs_grant: false,
            },
        ]
    }

    pub(crate) fn read(values: &BTreeMap<String, String>) -> Result<Self, VendorError> {
        if let Some(key) =
            values.keys().filter(|key| ![ALGORITHM, HEALTH_CHECK_TLS].contains(&key.as_str())).min()
        {
            let text = format!("unknown parameter: use one of: {ALGORITHM}, {HEALTH_CHECK_TLS}");
            return Err(invalid(key, &text));
        }
        let algorithm = match values.get(ALGORITHM) {
            None => Algorithm::default(),
            Some(word) => {
                let known = ALGORITHMS.into_iter().find(|(known, _)| known == word);
                let words = ALGORITHMS.map(|(word, _)| word).join(", ");
                known
                    .ok_or_else(|| {
                        invalid(ALGORITHM, &format!("invalid value {word:?}: use one of {words}"))
                    })?
                    .1
            }
        };
        let health_check_tls = match values.get(HEALTH_CHECK_TLS).map(String::as_str) {
            None | Some("false") => false,
            Some("true") => true,
            Some(word) => {
                return Err(invalid(HEALTH_CHECK_TLS, &format!("invalid value {word:?}: use true or false")));
            }
        };
        Ok(Self { algorithm, health_check_tls })
    }
}

#[cfg(test)]
mod tests {
    use cloud_adapter::driver::Fault;

    use super::*;

    fn read(key: &str, value: &str) -> Result<Parameters, VendorError> {
        Parameters::read(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn every_declared_value_is_read_and_the_default_changes_nothing() {
        for parameter in Parameters::declared() {
            for value in &parameter.allowed_values {
                read(&parameter.key, value).expect(value);
            }
            let default = parameter.default_value.expect("a default");
            assert_eq!(
                read(&parameter.key, &default).expect("good"),
                Parameters::default(),
                "{}",
                parameter.key
            );
        }
        assert_eq!(read(ALGORITHM, "source-ip").expect("good").algorithm, Algorithm::SourceIp);
        assert!(read(HEALTH_CHECK_TLS, "true").expect("good").health_check_tls);
    }

    #[test]
    fn unknown_parameters_are_refused_by_name() {
        for (key, value) in
            [("algorithm", "random"), ("health-check-tls", "yes"), ("algoritm", "round-robin")]
        {
            let error = read(key, value).expect_err("unknown");
            assert_eq!(error.fault, Fault::Invalid);
            assert!(error.message.contains(key), "{error}");
        }
    }
}
