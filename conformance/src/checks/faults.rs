//! FLT: consequences that a fault must not have, such as a load balancer that is not recorded.

mod clock;
mod crash;
mod hang_up;
mod made_once;
mod outage;

use crate::{
    check::{Check, Need, run},
    hooks::Hook,
};

pub(super) const CHECKS: &[Check] = &[
    Check::t3("FLT-01", "crash-after-every-write", run!(crash::after_every_write))
        .section("load_balancer_service.proto, EnsureLoadBalancer, DeleteLoadBalancer")
        .needs(&[
            Need::Hook(Hook::KillAdapter),
            Need::Hook(Hook::StartAdapter),
            Need::Hook(Hook::CreateInstances),
            Need::Proxy,
            Need::Capability("loadbalancers"),
        ])
        .within(1800),
    Check::t2("FLT-02", "reset-after-send-creates-no-duplicate", run!(made_once::answers_are_lost))
        .section("common.proto, REASON_OUTCOME_UNKNOWN")
        .needs(&[Need::Proxy, Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)])
        .within(600),
    Check::t2("FLT-03", "eventually-consistent-reads-create-no-duplicate", run!(made_once::reads_lag))
        .section("adapter_service.proto, GetInfoResponse.consistency_horizon")
        .needs(&[Need::Proxy, Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)])
        .within(600),
    Check::t2("FLT-04", "vendor-outage-loses-no-work-and-brings-no-storm", run!(outage::loses_nothing))
        .section("common.proto, REASON_VENDOR_UNAVAILABLE; adapter_service.proto, Breaker")
        .needs(&[Need::Proxy, Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)])
        .within(1800),
    Check::t1(
        "FLT-05",
        "client-disconnect-mid-ensure-does-not-cut-the-sequence",
        run!(hang_up::cuts_nothing),
    )
    .section("load_balancer_service.proto, EnsureLoadBalancer: the work belongs to the adapter")
    .needs(&[Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)]),
    Check::t3("FLT-06", "clock-jump-does-not-break-buckets", run!(clock::jumps))
        .section("adapter_service.proto, Budget")
        .optional()
        .needs(&[
            Need::Hook(Hook::JumpClock),
            Need::Hook(Hook::CreateInstances),
            Need::Proxy,
            Need::Param("limits.buckets"),
        ])
        .within(300),
];
