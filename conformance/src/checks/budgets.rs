//! BUD: budgets of vendor calls.

mod background;
mod cost;
mod failover;
mod learned;
mod load;
mod pauses;
mod windows;

pub(super) use self::{load::everything, load::under};
use super::{BALANCERS, CREATE, INSTANCES, KILL, LIMITS, ROUTES, START};
use crate::checks::prelude::*;

pub(super) const CHECKS: &[Check] = &[
    Check::t2("BUD-01", "bucket-bound-holds-in-every-window", run!(windows::bound_holds))
        .section("adapter_service.proto, Budget")
        .needs(&[Need::Proxy, LIMITS, CREATE])
        .within(300),
    Check::t2("BUD-02", "background-does-not-delay-ensure", run!(background::delays_no_ensure))
        .section("common.proto, Priority")
        .needs(&[Need::Proxy, BALANCERS, CREATE])
        .within(600),
    Check::t2("BUD-03", "retry-after-is-honoured-exactly", run!(pauses::retry_after))
        .section("common.proto, REASON_VENDOR_THROTTLED; adapter_service.proto, Budget.paused_until")
        .needs(THROTTLED),
    Check::t2("BUD-04", "throttled-batch-does-not-fan-out", run!(pauses::no_fan_out))
        .section("instance_service.proto, BatchGetInstances")
        .needs(THROTTLED),
    Check::t2("BUD-05", "learned-rate-settles-below-real-limit", run!(learned::settles))
        .section("adapter_service.proto, Budget.rate")
        .needs(&[Need::Proxy, ROUTES, LIMITS, CREATE])
        .within(600),
    Check::t2("BUD-06", "cost-in-answers-equals-calls-seen-by-proxy", run!(cost::is_true))
        .section("common.proto, Cost")
        .needs(&[Need::Proxy, BALANCERS, CREATE]),
    Check::t2("BUD-07", "unreachable-deadline-is-refused-at-once", run!(pauses::deadline))
        .section("common.proto, REASON_BUDGET_EXHAUSTED")
        .needs(THROTTLED),
    Check::t3("BUD-08", "failover-does-not-overspend", run!(failover::keeps_to_the_budget))
        .section("adapter_service.proto, Budget, WatchStatusResponse.leader")
        .needs(&[Need::Replicas, Need::Proxy, LIMITS, ROUTES, KILL, START, CREATE])
        .within(300),
];

const THROTTLED: &[Need] = &[Need::Proxy, LIMITS, INSTANCES, CREATE];
