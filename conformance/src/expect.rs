//! Claims. Each takes the contract's sentence first, and shows what came if it does not hold.

use std::fmt::Debug;

use cloud_api_proto::Reason;

use crate::{
    api::{Answer, CallError},
    check::{Stop, Verdict},
};

/// Claims that something holds; `came` is made only if it does not.
///
/// # Errors
/// If it does not.
pub fn that(holds: bool, wants: &str, came: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Stop::failed(wants, came())) }
}

/// Claims that two values are equal.
///
/// # Errors
/// If they differ; both are shown.
pub fn equal<T: PartialEq + Debug>(wants: &str, came: &T, expected: &T) -> Verdict {
    that(came == expected, wants, || format!("{came:?} instead of {expected:?}"))
}

/// Claims that there is a value, and takes it.
///
/// # Errors
/// If there is none.
pub fn some<T>(value: Option<T>, wants: &str) -> Result<T, Stop> {
    value.ok_or_else(|| Stop::failed(wants, "it is not set"))
}

/// Claims that a call is refused with a reason, its code, and its retry delay as the table of reasons has it.
///
/// # Errors
/// If it is not.
pub fn refused<T: Debug>(answer: Answer<T>, reason: Reason) -> Result<CallError, Stop> {
    let wants = format!("the call is refused with {reason} ({:?})", reason.code());
    match answer {
        Ok(answer) => Err(Stop::failed(wants, format!("OK: {answer:?}"))),
        Err(error) if error.reason == reason && error.code == reason.code() => Ok(error),
        Err(error) => Err(Stop::failed(wants, error.to_string())),
    }
}

/// Claims that a refusal names a field, or a part of it, in `BadRequest`.
///
/// # Errors
/// If it does not.
pub fn names(error: &CallError, field: &str) -> Verdict {
    let part = format!("{field}.");
    let named = error.violations.iter().any(|one| one.field == field || one.field.starts_with(&part));
    that(named, &format!("BadRequest names the field {field}"), || error.to_string())
}
