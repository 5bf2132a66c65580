//! FLT: consequences that a fault must not have, such as a load balancer that is not recorded.

mod clock;
mod crash;
mod hang_up;
mod made_once;
mod outage;

use crate::{
    check::{Check, Need},
    hooks::Hook,
};

pub(super) const CHECKS: &[Check] = &[
    Check::t3("FLT-01", "crash-after-every-write", |cx| Box::pin(crash::after_every_write(cx)))
        .section("load_balancer_service.proto, EnsureLoadBalancer, DeleteLoadBalancer")
        .needs(&[
            Need::Hook(Hook::KillAdapter),
            Need::Hook(Hook::StartAdapter),
            Need::Hook(Hook::CreateInstances),
            Need::Proxy,
            Need::Capability("loadbalancers"),
        ])
        .within(1800),
    Check::t2("FLT-02", "reset-after-send-creates-no-duplicate", |cx| {
        Box::pin(made_once::answers_are_lost(cx))
    })
    .section("common.proto, REASON_OUTCOME_UNKNOWN")
    .needs(&[Need::Proxy, Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)])
    .within(600),
    Check::t2("FLT-03", "eventually-consistent-reads-create-no-duplicate", |cx| {
        Box::pin(made_once::reads_lag(cx))
    })
    .section("adapter_service.proto, GetInfoResponse.consistency_horizon")
    .needs(&[Need::Proxy, Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)])
    .within(600),
    Check::t2("FLT-04", "vendor-outage-loses-no-work-and-brings-no-storm", |cx| {
        Box::pin(outage::loses_nothing(cx))
    })
    .section("common.proto, REASON_VENDOR_UNAVAILABLE; adapter_service.proto, Breaker")
    .needs(&[Need::Proxy, Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)])
    .within(1800),
    Check::t1("FLT-05", "client-disconnect-mid-ensure-does-not-cut-the-sequence", |cx| {
        Box::pin(hang_up::cuts_nothing(cx))
    })
    .section("load_balancer_service.proto, EnsureLoadBalancer: the work belongs to the adapter")
    .needs(&[Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)]),
    Check::t3("FLT-06", "clock-jump-does-not-break-buckets", |cx| Box::pin(clock::jumps(cx)))
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
