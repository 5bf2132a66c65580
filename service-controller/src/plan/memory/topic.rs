//! Topics of Events.

use crate::plan::Operation;

/// What an Event is about. Each topic has at most one lasting condition, which is reported when it begins and at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The Service's settings are invalid.
    Wish,
    /// The adapter refuses the Service's settings.
    Refused,
    /// Any other failure.
    Work,
    /// The backends could not be updated after a change of nodes.
    Hosts,
    /// The load balancer has more members than a new one may have.
    Members,
    /// An entry of the ConfigMap that releases orphans is invalid.
    Release,
    /// Not a failure: creating or deleting a load balancer takes long.
    Progress,
}

impl Topic {
    /// The topic for a failure of this step.
    pub(crate) fn of(step: &Operation) -> Self {
        match step {
            Operation::Sync | Operation::LeftOver => Self::Work,
            Operation::Hosts(_) => Self::Hosts,
        }
    }
}
