//! Decides how a reconcile waits. This module is pure.

use std::time::Duration;

use super::{Fact, Wait, memory::Memory, service::Service};

/// What blocks a plan, so that the reconcile fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    AdapterAway,
    WithoutLoadBalancers,
}

/// What a reconcile does while its plan waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Fail(Blocked),
    /// Record for the status page that the adapter is away, without an Event.
    Record,
    /// Report a wait that only a user, an operator or another controller can end.
    Report(Fact),
    /// Reconcile again after this time. The other controller gets some time before the wait is reported.
    Later(Duration),
}

impl Waiting {
    /// The memory keeps the start time of the wait for another controller.
    pub(crate) fn of(wait: Wait, service: &Service, memory: &mut Memory, now: Duration) -> Self {
        match wait {
            Wait::Reported => Self::Fail(Blocked::AdapterAway),
            Wait::ForBalancers => Self::Fail(Blocked::WithoutLoadBalancers),
            Wait::Unreported => Self::Record,
            Wait::ForNodes => Self::Report(Fact::NoNodes),
            Wait::ForAnother => match memory.pacing.grace_period(now) {
                Some(rest) => Self::Later(rest),
                None => Self::Report(Fact::HeldByAnother(service.holder.others())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{memory::LAG, service::Holder};

    #[test]
    fn only_waits_for_the_adapter_are_errors() {
        let waiting = |wait| Waiting::of(wait, &Service::default(), &mut Memory::default(), Duration::ZERO);
        for (wait, want) in [
            (Wait::Reported, Waiting::Fail(Blocked::AdapterAway)),
            (Wait::ForBalancers, Waiting::Fail(Blocked::WithoutLoadBalancers)),
            (Wait::Unreported, Waiting::Record),
            (Wait::ForNodes, Waiting::Report(Fact::NoNodes)),
            (Wait::ForAnother, Waiting::Later(LAG)),
        ] {
            assert_eq!(waiting(wait), want, "{wait:?}");
        }
    }

    #[test]
    fn another_controller_gets_some_time() {
        let holder = Holder::Others("kube-controller-manager".to_owned());
        let (service, mut memory) = (Service { holder, ..Service::default() }, Memory::default());
        let mut at = |now| Waiting::of(Wait::ForAnother, &service, &mut memory, now);
        let (minute, held) = (Duration::from_mins(1), Fact::HeldByAnother(service.holder.others()));
        assert_eq!(at(minute), Waiting::Later(LAG));
        assert_eq!(at(minute * 2), Waiting::Later(LAG - minute));
        assert_eq!(at(minute + LAG), Waiting::Report(held));
    }
}
