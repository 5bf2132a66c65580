//! Assertions. Each takes the sentence of the contract first, and reports what was observed if it does not hold.

use std::fmt::Debug;

use cloud_api_proto::Reason;

use crate::{
    api::{Answer, CallError},
    check::{Stop, Verdict},
};

/// Asserts that something holds; `came` is evaluated only if it does not.
///
/// # Errors
/// Fails if it does not hold.
pub fn that(holds: bool, wants: &str, came: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Stop::failed(wants, came())) }
}

/// Asserts that two values are equal.
///
/// # Errors
/// Fails with both values if they differ.
pub fn equal<T: PartialEq + Debug>(wants: &str, came: &T, expected: &T) -> Verdict {
    that(came == expected, wants, || format!("{came:?} instead of {expected:?}"))
}

/// Asserts that there is a value, and returns it.
///
/// # Errors
/// Fails if there is no value.
pub fn some<T>(value: Option<T>, wants: &str) -> Result<T, Stop> {
    value.ok_or_else(|| Stop::failed(wants, "it is not set"))
}

/// Asserts that a call is refused with a reason, its code, and the retry delay that the contract's table of reasons demands.
///
/// # Errors
/// Fails if the call succeeds or is refused in another way.
pub fn refused<T: Debug>(answer: Answer<T>, reason: Reason) -> Result<CallError, Stop> {
    let wants = format!("the call is refused with {reason} ({:?})", reason.code());
    match answer {
        Ok(answer) => Err(Stop::failed(wants, format!("OK: {answer:?}"))),
        Err(error) if error.reason == reason && error.code == reason.code() => Ok(error),
        Err(error) => Err(Stop::failed(wants, error.to_string())),
    }
}

/// Asserts that a refusal names a field, or a part of it, in `BadRequest`.
///
/// # Errors
/// Fails if it does not.
pub fn names(error: &CallError, field: &str) -> Verdict {
    let part = format!("{field}.");
    let named = error.violations.iter().any(|one| one.field == field || one.field.starts_with(&part));
    that(named, &format!("BadRequest names the field {field}"), || error.to_string())
}
