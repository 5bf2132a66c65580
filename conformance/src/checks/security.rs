//! SEC: authentication of callers, and protection of secrets.

mod callers;
mod roles;
mod rotation;
mod secrets;

use super::{BALANCERS, CREATE, INSTANCES};
use crate::checks::prelude::*;

pub(super) const CHECKS: &[Check] = &[
    Check::t1("SEC-01", "no-identity-is-refused-and-probe-port-serves-no-api", run!(callers::no_identity))
        .section("common.proto, REASON_CALLER_UNAUTHENTICATED; reference/driver.md, Callers and roles")
        .needs(&[Need::Secured]),
    Check::t1("SEC-02", "each-role-reaches-only-its-service", run!(roles::matrix))
        .section("common.proto, REASON_CALLER_FORBIDDEN; reference/driver.md, Callers and roles")
        .needs(&[Need::Secured]),
    Check::t3("SEC-03", "credentials-rotate-under-load-without-failed-rpc", run!(rotation::credentials))
        .section("security.md, Rotation")
        .needs(&[
            Need::Hook(Hook::RotateCredentials),
            Need::Hook(Hook::RevokeCredentials),
            CREATE,
            INSTANCES,
            BALANCERS,
        ])
        .within(300),
    Check::t3(
        "SEC-04",
        "server-certificate-and-tokens-rotate-without-failed-rpc",
        run!(rotation::certificates_and_tokens),
    )
    .section("security.md, Rotation")
    .needs(&[Need::Secured, Need::Hook(Hook::RotateServerCertificate), Need::Hook(Hook::RotateTokens)])
    .within(300),
    Check::t2("SEC-05", "secrets-never-in-answers-logs-metrics", run!(secrets::canary))
        .section("common.proto, Scope.endpoint; reference/driver.md, Callers and roles")
        .needs(&[Need::Proxy, Need::Param("samples.canary"), CREATE, INSTANCES, BALANCERS]),
];

const METHODS: [&str; 10] = [
    "/cloudadapter.v1alpha1.AdapterService/GetInfo",
    "/cloudadapter.v1alpha1.AdapterService/WatchStatus",
    "/cloudadapter.v1alpha1.InstanceService/WatchInstances",
    "/cloudadapter.v1alpha1.InstanceService/BatchGetInstances",
    "/cloudadapter.v1alpha1.LoadBalancerService/WatchLoadBalancers",
    "/cloudadapter.v1alpha1.LoadBalancerService/PutBackendSet",
    "/cloudadapter.v1alpha1.LoadBalancerService/EnsureLoadBalancer",
    "/cloudadapter.v1alpha1.LoadBalancerService/DeleteLoadBalancer",
    "/cloudadapter.v1alpha1.RouteService/WatchRoutes",
    "/cloudadapter.v1alpha1.RouteService/ApplyRoutes",
];
/// The health check, which each controller and operator may call.
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const NOWHERE: &str = "/conformance.v1.NoSuchService/Call";

/// Bytes that are not a valid message. The adapter must refuse a caller without permission before it decodes the message.
fn garbage() -> Vec<u8> {
    vec![0xFF; 8]
}
