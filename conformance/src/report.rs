//! The result of a run.

pub mod json;
pub mod junit;
pub mod progress;
pub mod table;

use std::{fmt, time::Duration};

use crate::check::{Check, Finding, Standing, Tier};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check passed: the adapter meets the requirements of the contract.
    Passed,
    /// The check failed: the adapter does not meet a requirement of the contract.
    Failed(Finding),
    /// The check could not decide in this environment; holds the cause.
    Skipped(String),
}

/// One execution of a check.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The check.
    pub check: Check,
    /// Number of the repetition, counted from 1; above 1 only with `--repeat`.
    pub repetition: u32,
    /// The lane on which the check ran.
    pub lane: String,
    /// The result of the check.
    pub outcome: Outcome,
    /// Duration without the clean-up.
    pub took: Duration,
    /// Requests and responses of the check.
    pub transcript: Vec<String>,
    /// Vendor calls during the check. Empty without a proxy.
    pub vendor_calls: String,
    /// Missing prerequisites of parts of the check; these parts were not tested.
    pub unseen: Vec<String>,
    /// Objects that could not be deleted.
    pub left: Vec<String>,
}

/// The result of a whole run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Seed with which the run can be repeated.
    pub seed: u64,
    /// The adapter's name and version.
    pub adapter: String,
    /// Total duration.
    pub took: Duration,
    /// All executions, in the order of the registry.
    pub entries: Vec<Entry>,
    /// Shared objects that could not be deleted.
    pub left: Vec<String>,
    /// Whether the run was ended early.
    pub interrupted: bool,
}

/// The verdict about an adapter in one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All mandatory checks of the tier passed.
    Conformant,
    /// No check failed, but some mandatory checks were skipped, left out or not reached.
    Incomplete,
    /// A check failed.
    Failed,
    /// No check of the tier was selected.
    NotTested,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Conformant => "conformant",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::NotTested => "not tested",
        })
    }
}

impl Report {
    /// The checks that failed, without repetitions.
    pub fn failed(&self) -> Vec<&'static str> {
        let failed = self.entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Failed(_)));
        let mut ids: Vec<_> = failed.map(|entry| entry.check.id).collect();
        ids.dedup();
        ids
    }

    /// Whether the adapter passed all checks that ran. A check for a reported capability counts like a mandatory check.
    pub fn passed(&self) -> bool {
        self.failed().is_empty()
    }

    /// The verdict of a tier. `all`: the registry of checks.
    pub fn verdict(&self, tier: Tier, all: &[Check]) -> Verdict {
        let of_tier = self.entries.iter().filter(|entry| entry.check.tier == tier);
        if of_tier.clone().count() == 0 {
            return Verdict::NotTested;
        }
        if of_tier.clone().any(|entry| matches!(entry.outcome, Outcome::Failed(_))) {
            return Verdict::Failed;
        }
        let passed = |check: &Check| {
            of_tier.clone().any(|entry| entry.check.id == check.id && entry.outcome == Outcome::Passed)
        };
        let mandatory =
            all.iter().filter(|check| check.tier == tier && check.standing == Standing::Mandatory);
        if mandatory.clone().count() > 0 && mandatory.clone().all(passed) {
            Verdict::Conformant
        } else {
            Verdict::Incomplete
        }
    }
}
