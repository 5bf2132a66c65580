//! What a trouble may be about.

use crate::plan::Step;

/// What is told: one of each may last beside the others, and is told when it begins and now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// What the Service asks for cannot be done.
    Wish,
    /// The adapter does not take it up.
    Refused,
    /// Whatever else fails.
    Work,
    /// Nodes could not be followed.
    Hosts,
    /// It has more members than a new one may have.
    Members,
    /// A person's release counts for nothing.
    Release,
    /// No trouble: something is built or removed, and that takes long.
    Progress,
}

impl Topic {
    /// What it is about if this fails for a while.
    pub(crate) fn of(step: &Step) -> Self {
        match step {
            Step::Sync | Step::LeftOver => Self::Work,
            Step::Hosts(_) => Self::Hosts,
        }
    }
}
