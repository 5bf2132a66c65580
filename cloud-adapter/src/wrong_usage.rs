//! The error for an unusable flag.

/// The value of a flag is unusable. If an error, or a context of that error, has this type, the process ends with the exit code for invalid
/// flags.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);
