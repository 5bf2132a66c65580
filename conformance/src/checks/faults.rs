//! FLT: consequences that a fault must not have, such as a load balancer that is not recorded.

mod clock;
mod crash;
mod hang_up;
mod made_once;
mod outage;

use super::{BALANCERS, CREATE, KILL, LIMITS, START};
use crate::checks::prelude::*;

pub(super) const CHECKS: &[Check] = &[
    Check::t3("FLT-01", "crash-after-every-write", run!(crash::after_every_write))
        .section("load_balancer_service.proto, EnsureLoadBalancer, DeleteLoadBalancer")
        .needs(&[KILL, START, CREATE, Need::Proxy, BALANCERS])
        .within(1800),
    Check::t2("FLT-02", "reset-after-send-creates-no-duplicate", run!(made_once::answers_are_lost))
        .section("common.proto, REASON_OUTCOME_UNKNOWN")
        .needs(&[Need::Proxy, BALANCERS, CREATE])
        .within(600),
    Check::t2("FLT-03", "eventually-consistent-reads-create-no-duplicate", run!(made_once::reads_lag))
        .section("adapter_service.proto, GetInfoResponse.consistency_horizon")
        .needs(&[Need::Proxy, BALANCERS, CREATE])
        .within(600),
    Check::t2("FLT-04", "vendor-outage-loses-no-work-and-brings-no-storm", run!(outage::loses_nothing))
        .section("common.proto, REASON_VENDOR_UNAVAILABLE; adapter_service.proto, Breaker")
        .needs(&[Need::Proxy, BALANCERS, CREATE])
        .within(1800),
    Check::t1(
        "FLT-05",
        "client-disconnect-mid-ensure-does-not-cut-the-sequence",
        run!(hang_up::cuts_nothing),
    )
    .section("load_balancer_service.proto, EnsureLoadBalancer: the work belongs to the adapter")
    .needs(&[BALANCERS, CREATE]),
    Check::t3("FLT-06", "clock-jump-does-not-break-buckets", run!(clock::jumps))
        .section("adapter_service.proto, Budget")
        .optional()
        .needs(&[Need::Hook(Hook::JumpClock), CREATE, Need::Proxy, LIMITS])
        .within(300),
];
