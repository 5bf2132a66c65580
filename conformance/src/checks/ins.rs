//! INS: instances. What became of named ones, and the mirror of all.

mod absence;
mod ask;
mod batch;
mod freshness;
mod listing;
mod watch;

use crate::{
    check::{Check, Need},
    hooks::Hook,
};

const INSTANCES: Need = Need::Capability("instances");
const CREATE: Need = Need::Hook(Hook::CreateInstances);
const DELETE: Need = Need::Hook(Hook::DeleteInstances);

pub(super) const CHECKS: &[Check] = &[
    Check::t1("INS-01", "batch-keeps-order-and-one-bad-ref-does-not-fail-others", |cx| {
        Box::pin(batch::order(cx))
    })
    .section("instance_service.proto, BatchGetInstances")
    .needs(&[INSTANCES, CREATE]),
    Check::t1("INS-02", "existing-instance-has-addresses-zone-type-fingerprint", |cx| {
        Box::pin(batch::whole(cx))
    })
    .section("instance_service.proto, Instance")
    .needs(&[INSTANCES, CREATE]),
    Check::t1("INS-03", "deleted-instance-becomes-gone-with-evidence", |cx| Box::pin(absence::deleted(cx)))
        .section("instance_service.proto, Evidence")
        .needs(&[INSTANCES, CREATE, DELETE]),
    Check::t1("INS-04", "foreign-provider-id-is-foreign", |cx| Box::pin(batch::foreign(cx)))
        .section("instance_service.proto, EXISTENCE_FOREIGN")
        .needs(&[INSTANCES]),
    Check::t1("INS-05", "name-lookup-miss-is-not-visible-never-gone", |cx| Box::pin(absence::name(cx)))
        .section("instance_service.proto, InstanceRef.node_name")
        .needs(&[INSTANCES, CREATE, DELETE]),
    Check::t1("INS-09", "snapshot-is-closed-by-synced-with-count-and-checksum", |cx| {
        Box::pin(listing::closed(cx))
    })
    .section("common.proto, Synced")
    .needs(&[INSTANCES, CREATE]),
    Check::t2("INS-12", "max-staleness-zero-reads-after-arrival", |cx| Box::pin(freshness::live(cx)))
        .section("common.proto, RequestContext.max_staleness")
        .needs(&[Need::Proxy, INSTANCES, CREATE]),
    Check::t1("INS-13", "fingerprint-changes-iff-node-relevant-fields-change", |cx| {
        Box::pin(freshness::fingerprint(cx))
    })
    .section("instance_service.proto, Instance.fingerprint")
    .needs(&[INSTANCES, CREATE, Need::Hook(Hook::ChangeInstance), Need::Hook(Hook::TouchInstance)]),
    Check::t1("INS-14", "watch-resets-syncs-bookmarks-and-resumes", |cx| Box::pin(watch::follows(cx)))
        .section("instance_service.proto, WatchInstances; common.proto, Synced.token, Bookmark")
        .needs(&[INSTANCES, CREATE, DELETE])
        .within(300),
];
