//! INS: instances. Verifies the existence of single instances, and the listing of all instances.

mod absence;
mod ask;
mod batch;
mod faults;
mod freshness;
mod listing;
mod paging;
mod watch;

use super::{CREATE, DELETE, INSTANCES, KILL, START};
use crate::checks::prelude::*;

const LISTS: Need = Need::Param("vendor.lists[instances]");

pub(super) const CHECKS: &[Check] = &[
    Check::t1("INS-01", "batch-keeps-order-and-one-bad-ref-does-not-fail-others", run!(batch::order))
        .section("instance_service.proto, BatchGetInstances")
        .needs(&[INSTANCES, CREATE]),
    Check::t1("INS-02", "existing-instance-has-addresses-zone-type-fingerprint", run!(batch::whole))
        .section("instance_service.proto, Instance")
        .needs(&[INSTANCES, CREATE]),
    Check::t1("INS-03", "deleted-instance-becomes-gone-with-evidence", run!(absence::deleted))
        .section("instance_service.proto, Evidence")
        .needs(&[INSTANCES, CREATE, DELETE]),
    Check::t1("INS-04", "foreign-provider-id-is-foreign", run!(batch::foreign))
        .section("instance_service.proto, EXISTENCE_FOREIGN")
        .needs(&[INSTANCES]),
    Check::t1("INS-05", "name-lookup-miss-is-not-visible-never-gone", run!(absence::name))
        .section("instance_service.proto, InstanceRef.node_name")
        .needs(&[INSTANCES, CREATE, DELETE]),
    Check::t2("INS-06", "all-404-scope-yields-zero-gone", run!(faults::all_404))
        .section("instance_service.proto, Evidence; common.proto, REASON_RESOURCE_GONE")
        .needs(&[Need::Proxy, INSTANCES, CREATE]),
    Check::t2("INS-07", "empty-list-yields-zero-gone", run!(faults::empty_list))
        .section("instance_service.proto, Evidence")
        .needs(&[Need::Proxy, LISTS, INSTANCES, CREATE]),
    Check::t2("INS-08", "fresh-instance-inside-consistency-horizon-is-not-gone", run!(faults::newborn))
        .section("instance_service.proto, EXISTENCE_NOT_VISIBLE")
        .needs(&[Need::Proxy, INSTANCES, CREATE, DELETE]),
    Check::t1("INS-09", "snapshot-is-closed-by-synced-with-count-and-checksum", run!(listing::closed))
        .section("common.proto, Synced")
        .needs(&[INSTANCES, CREATE]),
    Check::t2("INS-10", "broken-page-means-no-synced-and-an-error", run!(paging::broken))
        .section("common.proto, Synced; failure is never encoded as an empty collection")
        .needs(&[Need::Proxy, LISTS, INSTANCES, CREATE])
        .within(120),
    Check::t2("INS-11", "list-during-churn-contains-every-stable-instance", run!(paging::churn))
        .section("instance_service.proto, WatchInstances")
        .needs(&[Need::Proxy, LISTS, INSTANCES, CREATE, DELETE])
        .within(120),
    Check::t2("INS-12", "max-staleness-zero-reads-after-arrival", run!(freshness::live))
        .section("common.proto, RequestContext.max_staleness")
        .needs(&[Need::Proxy, INSTANCES, CREATE]),
    Check::t1("INS-13", "fingerprint-changes-iff-node-relevant-fields-change", run!(freshness::fingerprint))
        .section("instance_service.proto, Instance.fingerprint")
        .needs(&[INSTANCES, CREATE, Need::Hook(Hook::ChangeInstance), Need::Hook(Hook::TouchInstance)]),
    Check::t1("INS-14", "watch-resets-syncs-bookmarks-and-resumes", run!(watch::follows))
        .section("instance_service.proto, WatchInstances; common.proto, Synced.token, Bookmark")
        .needs(&[INSTANCES, CREATE, DELETE])
        .within(300),
    Check::t3("INS-15", "watch-after-lost-events-sends-reset", run!(watch::lost))
        .section("common.proto, Synced.token")
        .needs(&[INSTANCES, CREATE, DELETE, KILL, START])
        .within(300),
    Check::t2("INS-16", "ten-thousand-instances-stay-under-message-limits", run!(paging::ten_thousand))
        .section("common.proto, the rules for every message; instance_service.proto, BatchGetInstances")
        .needs(&[Need::Proxy, INSTANCES, CREATE, DELETE])
        .within(900),
];
