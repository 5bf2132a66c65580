//! How a check ends, and the prerequisites without which it is skipped.

use std::{fmt, iter};

use crate::hooks::{Hook, HookError};

/// Result of a check's function; `Ok` means that the check passed.
pub type Verdict = Result<(), Stop>;

/// A prerequisite of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A capability of `GetInfo`.
    Capability(&'static str),
    /// A command in the parameter file.
    Hook(Hook),
    /// The suite's own proxy between adapter and vendor.
    Proxy,
    /// An adapter that authenticates callers, and an identity for each role.
    Secured,
    /// Two replicas of one adapter.
    Replicas,
    /// Another optional key of the parameter file, such as `vendor.lists`.
    Param(&'static str),
}

/// Why a check's function ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The adapter does not meet a requirement of the contract.
    Failed(Finding),
    /// The check cannot decide in this environment; holds the cause.
    Skipped(String),
}

/// The report of a failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The requirement of the contract, as one sentence.
    pub wants: String,
    /// The observation that contradicts the requirement.
    pub came: String,
}

impl Stop {
    /// Reports that the adapter does not meet a requirement of the contract.
    pub fn failed(wants: impl Into<String>, came: impl Into<String>) -> Self {
        Self::Failed(Finding { wants: wants.into(), came: came.into() })
    }

    /// Reports that the check cannot decide in this environment.
    pub fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped(why.into())
    }
}

impl Need {
    /// The reason that is reported when the prerequisite is missing.
    pub fn lack(&self) -> String {
        match self {
            Self::Capability(name) => format!("the adapter does not report the capability {name}"),
            Self::Hook(_) | Self::Proxy | Self::Secured | Self::Replicas | Self::Param(_) => {
                format!("{self} is not set")
            }
        }
    }
}

impl From<HookError> for Stop {
    fn from(error: HookError) -> Self {
        match error {
            HookError::Missing(hook) => Self::skipped(format!("hooks.{hook} is not set")),
            HookError::Run { .. } | HookError::Failed { .. } | HookError::Slow { .. } => {
                Self::failed("commands of the parameter file must work", chain(&error))
            }
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability(name) => write!(f, "capability {name}"),
            Self::Hook(hook) => write!(f, "hooks.{hook}"),
            Self::Proxy => f.write_str("lanes[].proxy"),
            Self::Secured => f.write_str("secured"),
            Self::Replicas => f.write_str("replicas"),
            Self::Param(key) => f.write_str(key),
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
