//! Validates vendor parameters against the driver's declarations. This module is pure.

use std::{collections::BTreeMap, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Parameter, parameter::Type},
};
use telemetry::{hint, nearest};

/// The units of durations, in milliseconds. `ms` comes before `s`, because a text that ends with `ms` also ends with `s`.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// Refuses the first parameter that is unknown or has an invalid value.
///
/// Returns `UNKNOWN_PARAMETER` with the most similar known parameter, or `FIELD_INVALID` for an invalid value.
pub(super) fn check(values: &BTreeMap<String, String>, declared: &[Parameter]) -> Result<(), AdapterError> {
    for (key, value) in values {
        let known = declared.iter().find(|known| known.key == *key);
        let known = known.ok_or_else(|| unknown(key, declared))?;
        if let Some(fault) = fault(known, value) {
            let text = format!("{value:?} {fault}");
            return Err(AdapterError::field(format!("spec.parameters[{key}]"), text));
        }
    }
    Ok(())
}

fn fault(declared: &Parameter, value: &str) -> Option<String> {
    let fits = match declared.r#type() {
        Type::Unspecified | Type::String | Type::Enum => true,
        Type::Bool => matches!(value, "true" | "false"),
        Type::Integer => value.parse::<i64>().is_ok(),
        Type::Duration => duration(value).is_some(),
    };
    if !fits {
        let right = match declared.r#type() {
            Type::Bool => "must be true or false",
            Type::Integer => "must be an integer such as 30",
            Type::Duration => "must be a duration such as 500ms, 30s, 5m or 1h",
            Type::Unspecified | Type::String | Type::Enum => "has an invalid format",
        };
        return Some(right.to_owned());
    }
    let allowed = &declared.allowed_values;
    let excluded = !allowed.is_empty() && !allowed.iter().any(|one| one == value);
    excluded.then(|| format!("must be one of {}", allowed.join(", ")))
}

/// Parses a duration, which is a whole number and its unit.
fn duration(text: &str) -> Option<Duration> {
    let (digits, unit) = UNITS.iter().find_map(|(word, unit)| Some((text.strip_suffix(word)?, unit)))?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| plain)?;
    Some(Duration::from_millis(number.checked_mul(*unit)?))
}

fn unknown(key: &str, declared: &[Parameter]) -> AdapterError {
    let known = || declared.iter().map(|known| known.key.as_str());
    let text = format!("unknown parameter '{key}'{}", hint(key, known()));
    let error = AdapterError::new(Reason::UnknownParameter, text).with("parameter", key);
    match nearest(key, known()) {
        Some(nearest) => error.with("nearest", nearest),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(kind: Type, allowed: &[&str]) -> Parameter {
        let allowed_values = allowed.iter().map(|word| (*word).to_owned()).collect();
        Parameter { key: "x".to_owned(), r#type: kind.into(), allowed_values, ..Parameter::default() }
    }

    #[test]
    fn values_must_be_of_the_declared_type() {
        for (kind, allowed, good, bad) in [
            (Type::String, &[][..], &["", "any thing"][..], &[][..]),
            (Type::Bool, &[], &["true", "false"], &["yes", "True", ""]),
            (Type::Integer, &[], &["0", "-7", "9223372036854775807"], &["", "1.5", "0x10", "1 "]),
            (
                Type::Duration,
                &[],
                &["0s", "30s", "5m", "500ms", "1h"],
                &["30", "s", "1.5s", "-1s", "+1s", "5 m", "99999999999999999999s"],
            ),
            (Type::Enum, &["a", "b"], &["a", "b"], &["c", ""]),
            (Type::Integer, &["1", "2"], &["1"], &["3", "x"]),
            (Type::Unspecified, &[], &["a type of a newer driver"], &[]),
        ] {
            let declared = [declared(kind, allowed)];
            let values = |value: &str| BTreeMap::from([("x".into(), value.into())]);
            let check = |value: &str| check(&values(value), &declared);
            for value in good {
                check(value).expect(value);
            }
            for value in bad {
                let error = check(value).expect_err(value);
                assert_eq!(error.reason, Reason::FieldInvalid);
                assert_eq!(error.violations[0].field, "spec.parameters[x]", "{kind:?} {value}");
            }
        }
    }
}
