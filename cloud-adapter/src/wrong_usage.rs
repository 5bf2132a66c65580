//! The error of an unusable flag.

/// A flag has an unusable value. If an error, or its context, has this type, the process ends with the exit code of invalid flags.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);
