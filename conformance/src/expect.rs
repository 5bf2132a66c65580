//! Assertions. The argument `wants` is the sentence of the contract. A failed assertion reports this sentence and what was observed.

use std::fmt::Debug;

use cloud_api_proto::Reason;

use crate::{
    api::{CallError, CallResult},
    verdict::{Stop, Verdict},
};

/// Asserts that a condition holds. Otherwise returns an error with the text from `came`, which is evaluated only then.
pub fn that(holds: bool, wants: &str, came: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Stop::failed(wants, came())) }
}

/// Asserts that a condition about a value holds.
/// Returns an error with the value if the condition does not hold.
pub fn shown(holds: bool, wants: &str, came: &impl Debug) -> Verdict {
    that(holds, wants, || format!("{came:?}"))
}

/// Asserts that two values are equal.
/// Returns an error with both values if they differ.
pub fn equal<T: PartialEq + Debug>(wants: &str, came: &T, expected: &T) -> Verdict {
    that(came == expected, wants, || format!("{came:?}; expected {expected:?}"))
}

/// Asserts that there is a value, and returns it.
/// Returns an error if there is no value.
pub fn some<T>(value: Option<T>, wants: &str) -> Result<T, Stop> {
    value.ok_or_else(|| Stop::failed(wants, "the value is not set"))
}

/// Asserts that a call is refused with this reason, the reason's code, and the retry delay that the contract requires for it.
/// Returns an error if the call succeeds or is refused in another way.
pub fn refused<T: Debug>(answer: CallResult<T>, reason: Reason) -> Result<CallError, Stop> {
    let wants = format!("the call is refused with {reason} ({:?})", reason.code());
    match answer {
        Ok(answer) => Err(Stop::failed(wants, format!("OK: {answer:?}"))),
        Err(error) if error.reason == reason && error.code == reason.code() => Ok(error),
        Err(error) => Err(Stop::failed(wants, error.to_string())),
    }
}

/// Asserts that the `BadRequest` of a refusal names a field, or a part of the field.
/// Returns an error if `BadRequest` does not name the field.
pub fn names(error: &CallError, field: &str) -> Verdict {
    let part = format!("{field}.");
    let named = error.violations.iter().any(|one| one.field == field || one.field.starts_with(&part));
    that(named, &format!("BadRequest names the field {field}"), || error.to_string())
}
