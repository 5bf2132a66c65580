//! Topics of Events.

use crate::plan::Step;

/// What an Event is about. One condition per topic can last at a time; it is reported when it begins, and at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The Service's settings are not possible.
    Wish,
    /// The adapter refuses the Service's settings.
    Refused,
    /// Any other failure.
    Work,
    /// A change of nodes could not be applied.
    Hosts,
    /// The load balancer has more members than a new one may have.
    Members,
    /// A release in the ConfigMap is invalid.
    Release,
    /// Not a failure: creating or deleting takes long.
    Progress,
}

impl Topic {
    /// The topic of a failure of this step.
    pub(crate) fn of(step: &Step) -> Self {
        match step {
            Step::Sync | Step::LeftOver => Self::Work,
            Step::Hosts(_) => Self::Hosts,
        }
    }
}
