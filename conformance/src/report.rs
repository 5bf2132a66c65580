//! How a run ended.

pub mod json;
pub mod junit;
pub mod progress;
pub mod table;

use std::{fmt, time::Duration};

use crate::check::{Check, Finding, Standing, Tier};

/// How one check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The adapter does what the contract wants.
    Passed,
    /// It does not.
    Failed(Finding),
    /// It cannot be told here, and why.
    Skipped(String),
}

/// One check of a run.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which.
    pub check: Check,
    /// From 1; more only with `--repeat`.
    pub repetition: u32,
    /// Where it ran.
    pub lane: String,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, without cleaning up.
    pub took: Duration,
    /// What was sent and what came.
    pub transcript: Vec<String>,
    /// The vendor calls meanwhile. Empty without a proxy.
    pub vendor_calls: String,
    /// What was missing for parts of the check, so that nobody has looked at them.
    pub unseen: Vec<String>,
    /// What could not be removed.
    pub left: Vec<String>,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Repeats the run's chance.
    pub seed: u64,
    /// The adapter's name and version.
    pub adapter: String,
    /// From start to end.
    pub took: Duration,
    /// In the order of the registry.
    pub entries: Vec<Entry>,
    /// What checks shared and could not be removed.
    pub left: Vec<String>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// What a tier says of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All mandatory checks of the tier passed.
    Conformant,
    /// None failed, but some mandatory ones were skipped, left out or not reached.
    Incomplete,
    /// A check failed.
    Failed,
    /// No check of the tier was chosen.
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
    /// The checks that failed, once each.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        let failed = self.entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Failed(_)));
        let mut ids: Vec<_> = failed.map(|entry| entry.check.id).collect();
        ids.dedup();
        ids
    }

    /// Whether the adapter conforms as far as was looked. A check for a capability that the adapter claims counts like a mandatory one.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failed().is_empty()
    }

    /// What a tier says of the adapter. `all`: every check that there is.
    #[must_use]
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
