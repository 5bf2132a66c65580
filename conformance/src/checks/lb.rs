//! LB: load balancers.

mod ensure;

use crate::{
    check::{Check, Need},
    hooks::Hook,
};

pub(super) const CHECKS: &[Check] = &[
    Check::t1("LB-01", "ensure-reaches-active-and-returns-address", |cx| {
        Box::pin(ensure::reaches_active(cx))
    })
    .section("load_balancer_service.proto, EnsureLoadBalancer")
    .needs(&[Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)]),
    Check::t2("LB-02", "repeat-ensure-is-noop-with-zero-vendor-calls", |cx| {
        Box::pin(ensure::repeat_is_free(cx))
    })
    .section("load_balancer_service.proto, EnsureLoadBalancer: nothing to do costs 0 vendor calls")
    .needs(&[Need::Proxy, Need::Capability("loadbalancers"), Need::Hook(Hook::CreateInstances)]),
];
