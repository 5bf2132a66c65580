//! LB: load balancers.

mod backend_sets;
mod changes;
mod deletion;
mod ensure;
mod features;
mod fences;
mod owners;
mod plans;
mod trouble;

use cloud_api_proto::v1alpha1::{EnsureLoadBalancerResponse, LoadBalancerKey, LoadBalancerState};

use super::{BALANCERS, CREATE, KILL, START};
use crate::checks::prelude::*;

pub(super) const CHECKS: &[Check] = &[
    Check::t1("LB-01", "ensure-reaches-active-and-returns-address", run!(ensure::reaches_active))
        .section("load_balancer_service.proto, EnsureLoadBalancer")
        .needs(&[BALANCERS, CREATE]),
    Check::t2("LB-02", "repeat-ensure-is-noop-with-zero-vendor-calls", run!(ensure::repeat_is_free))
        .section("load_balancer_service.proto, EnsureLoadBalancer: nothing to do costs 0 vendor calls")
        .needs(&[Need::Proxy, BALANCERS, CREATE]),
    Check::t3("LB-03", "noop-after-restart-costs-only-listing", run!(ensure::after_restart))
        .section("load_balancer_service.proto, EnsureLoadBalancer, LoadBalancer.applied_hash")
        .needs(&[Need::Proxy, Need::Param("vendor.lists[load-balancers]"), BALANCERS, CREATE, KILL, START]),
    Check::t2("LB-04", "identical-concurrent-ensures-join", run!(ensure::identical_join))
        .section("load_balancer_service.proto, EnsureLoadBalancer: the same request joins the work under way")
        .needs(&[Need::Proxy, BALANCERS, CREATE]),
    Check::t1("LB-05", "newer-fence-supersedes-older-work", run!(fences::newer_supersedes))
        .section("load_balancer_service.proto, EnsureLoadBalancer; common.proto, Fence")
        .needs(&[BALANCERS, CREATE])
        .alone(),
    Check::t2("LB-06", "stale-fence-is-refused-and-writes-nothing", run!(fences::stale_is_refused))
        .section("common.proto, Fence")
        .needs(&[Need::Proxy, BALANCERS, CREATE]),
    Check::t1("LB-07", "delete-by-key-without-vendor-id", run!(deletion::by_key))
        .section("load_balancer_service.proto, DeleteLoadBalancer")
        .needs(&[BALANCERS, CREATE]),
    Check::t1("LB-08", "delete-never-created-is-ok", run!(deletion::of_nothing))
        .section("load_balancer_service.proto, DeleteLoadBalancer")
        .needs(&[BALANCERS]),
    Check::t2("LB-09", "delete-while-creating-leaves-nothing", run!(deletion::while_creating))
        .section("load_balancer_service.proto, DeleteLoadBalancer")
        .needs(&[Need::Proxy, BALANCERS, CREATE]),
    Check::t1("LB-10", "recreate-right-after-delete-gets-its-own-lb", run!(deletion::and_recreation))
        .section("load_balancer_service.proto, LoadBalancerKey, DeleteLoadBalancer")
        .needs(&[BALANCERS, CREATE]),
    Check::t1("LB-11", "two-clusters-same-names-never-touch-each-other", run!(owners::of_two_clusters))
        .section("load_balancer_service.proto, LoadBalancerKey; common.proto, RequestContext.cluster_id")
        .needs(&[BALANCERS, CREATE]),
    Check::t1("LB-12", "foreign-owned-lb-is-never-modified-or-deleted", run!(owners::of_others))
        .section("load_balancer_service.proto, Adoption, DeleteLoadBalancer")
        .needs(&[BALANCERS, CREATE]),
    Check::t1("LB-13", "adoption-only-when-asked-and-tags-first", run!(owners::adoption))
        .section("load_balancer_service.proto, Adoption")
        .needs(&[
            BALANCERS,
            Need::Capability("lb.ownership-tags"),
            CREATE,
            Need::Hook(Hook::CreateLoadBalancer),
            Need::Hook(Hook::DeleteLoadBalancer),
        ])
        .optional()
        .alone(),
    Check::t1("LB-14", "backend-set-delta-equals-full-upload", run!(backend_sets::delta_equals_full))
        .section("load_balancer_service.proto, PutBackendSet")
        .needs(&[BALANCERS, CREATE]),
    Check::t1(
        "LB-15",
        "unknown-backend-set-is-reported-and-recoverable",
        run!(backend_sets::unknown_is_reported),
    )
    .section("common.proto, REASON_BACKEND_SET_UNKNOWN; load_balancer_service.proto, BackendDelta.base_id")
    .needs(&[BALANCERS, CREATE]),
    Check::t2("LB-16", "member-change-does-not-touch-listeners", run!(changes::members))
        .section("load_balancer_service.proto, LoadBalancer.applied_hash")
        .needs(&[Need::Proxy, BALANCERS, CREATE]),
    Check::t1("LB-17", "port-change-keeps-address", run!(changes::ports))
        .section("load_balancer_service.proto, EnsureLoadBalancer; adapter_service.proto, Capability")
        .needs(&[BALANCERS, Need::Capability("lb.in-place-update"), CREATE])
        .optional(),
    Check::t1("LB-18", "immutable-change-follows-recreate-policy", run!(changes::immutable))
        .section("load_balancer_service.proto, Recreate; common.proto, REASON_IMMUTABLE_FIELD")
        .needs(&[BALANCERS, CREATE])
        .optional(),
    Check::t2("LB-19", "class-or-name-change-leaves-no-orphan", run!(changes::names))
        .section("load_balancer_service.proto, LoadBalancerKey; common.proto, Owner")
        .needs(&[Need::Proxy, BALANCERS, CREATE])
        .shared(),
    Check::t2("LB-20", "vendor-error-state-is-reported-and-deletable", run!(trouble::vendor_error))
        .section("load_balancer_service.proto, LOAD_BALANCER_STATE_ERROR, Recreate, DeleteLoadBalancer")
        .needs(&[Need::Proxy, BALANCERS, CREATE, Need::Hook(Hook::BreakLoadBalancer)])
        .shared(),
    Check::t2("LB-21", "conflict-409-while-pending-is-waited-for", run!(trouble::busy))
        .section("load_balancer_service.proto, EnsureLoadBalancer: repeat it until the state is ACTIVE")
        .needs(&[Need::Proxy, BALANCERS, CREATE])
        .optional(),
    Check::t2("LB-22", "list-shows-partial-and-orphaned-owned-objects", run!(trouble::partial))
        .section("load_balancer_service.proto, WatchLoadBalancers: orphans and half-built ones included")
        .needs(&[Need::Proxy, BALANCERS, CREATE]),
    Check::t2("LB-23", "manual-drift-is-repaired-within-drift-period", run!(trouble::drift))
        .section("load_balancer_service.proto, EnsureLoadBalancer: converges to the desired state")
        .needs(&[Need::Proxy, BALANCERS, CREATE, Need::Hook(Hook::DriftLoadBalancer)])
        .within(600),
    Check::t3("LB-24", "hash-version-bump-causes-no-writes", run!(plans::hash_version))
        .section("load_balancer_service.proto, LoadBalancer.applied_hash")
        .needs(&[Need::Proxy, BALANCERS, CREATE, KILL, Need::Hook(Hook::StartAdapterWithNextHash)]),
    Check::t2("LB-25", "dry-run-writes-nothing-and-predicts-calls-within-20-percent", run!(plans::dry_run))
        .section("load_balancer_service.proto, EnsureLoadBalancerRequest.dry_run; common.proto, PlannedStep")
        .needs(&[Need::Proxy, BALANCERS, CREATE])
        .optional(),
    Check::t1("LB-26", "dual-stack-udp-proxy-source-ranges-affinity-roundtrip", run!(features::round_trip))
        .section("load_balancer_service.proto, LoadBalancerSpec; adapter_service.proto, Capability")
        .needs(&[BALANCERS, CREATE])
        .optional(),
];

/// Returns the sorted keys of the load balancers of the check's cluster, from a fresh listing. Asserts that each load balancer is ACTIVE.
async fn keys(cx: &Context) -> Result<Vec<LoadBalancerKey>, Stop> {
    let items = cx.load_balancers(&cx.cluster()).await?.items;
    let active = items.iter().all(|one| one.state() == LoadBalancerState::Active);
    expect::shown(active, "a load balancer that converged and was not changed is listed as ACTIVE", &items)?;
    let mut keys: Vec<_> = items.into_iter().filter_map(|one| one.key).collect();
    keys.sort_by(|one, other| one.owner_uid.cmp(&other.owner_uid));
    Ok(keys)
}

/// Returns the vendor ID of the load balancer itself, not of its listeners or pools.
fn vendor_id(answer: &EnsureLoadBalancerResponse) -> Result<&str, Stop> {
    let id = answer.vendor_ids.as_ref().and_then(|parts| parts.ids.get("loadbalancer"));
    expect::some(id.map(String::as_str), "vendor_ids has `loadbalancer`")
}
