//! Tests of reports that are built from pages.

use insta::assert_snapshot;
use serde_json::json;

use super::*;
use crate::{
    output::{Format, Report as _, written},
    release::Release,
    session::Process,
};

fn session() -> Session {
    let now = "2026-01-02T03:04:05Z".parse().expect("a time");
    Session {
        cluster: None,
        release: Release::within("ccm"),
        processes: Vec::new(),
        missing: Vec::new(),
        now,
    }
}

fn page(orphans: &serde_json::Value, more: u64) -> Page<ControllerStatus> {
    let content = serde_json::from_value(
        json!({ "orphans": orphans, "moreOrphans": more, "shards": 1, "held": [0], "listed": true }),
    )
    .expect("a page");
    Page { process: Process::fake(Component::ServiceController, "sc"), content }
}

#[test]
fn the_table_shows_former_services_and_reasons() {
    let young = json!({ "uid": "u-2", "key": "default/new", "vendorIds": ["lb-2", "lb-3"], "since": "2026-01-02T03:04:00Z", "released": true });
    let old = json!({ "uid": "u-1", "key": "default/web", "vendorIds": ["lb-1"], "since": "2026-01-01T03:04:00Z",
        "waitsFor": "It stays until the operator releases it" });
    // Another replica reports the same orphan with a later time.
    let mut same = old.clone();
    same["since"] = json!("2026-01-02T03:03:00Z");
    let report = report(&session(), vec![page(&json!([young, old]), 0), page(&json!([same]), 2)]);
    assert_snapshot!(written(&report, Format::Table, false).expect("written"), @r"
    UID  FORMER SERVICE  IN THE CLOUD  SINCE  RELEASED  WHY IT STAYS
    u-2  default/new     lb-2,lb-3     5s     yes       -
    u-1  default/web     lb-1          1d     no        It stays until the operator releases it
    2 more load balancers not shown.
    ");
    assert!(!report.is_well());
}

#[test]
fn an_empty_list_is_reported() {
    let report = report(&session(), vec![page(&json!([]), 0)]);
    assert_eq!(
        written(&report, Format::Table, false).expect("written"),
        "Every load balancer has its Service.\n"
    );
    assert!(report.is_well());
}

#[test]
fn stale_releases_are_named_if_everything_is_known() {
    let there = json!([{ "uid": "u-1", "key": "default/web", "released": true }]);
    let released = || {
        BTreeMap::from(
            [("u-1", "default/web"), ("u-2", "default/old")].map(|(a, b)| (a.to_owned(), b.to_owned())),
        )
    };
    let mut seen = report(&session(), vec![page(&there, 0)]);
    assert_eq!(stale(released(), &seen), BTreeMap::from([("u-2".to_owned(), "default/old".to_owned())]));
    seen.gaps.push("no replica holds shard 1".to_owned());
    assert_eq!(stale(released(), &seen), BTreeMap::new());

    let none = report(&session(), vec![page(&json!([]), 0)]);
    let none = OrphansReport { stale: stale(released(), &none), ..none };
    assert!(!none.is_well());
    assert_snapshot!(written(&none, Format::Table, false).expect("written"), @r"
    Every load balancer has its Service.

    Deletion is permitted, but the load balancer no longer exists
      u-1, default/web: `cloudctl orphans --delete u-1` removes the key
      u-2, default/old: `cloudctl orphans --delete u-2` removes the key
    ");
}

/// A replica that has just started holds no shard, or has not listed the load balancers yet. The report then says that the state is not
/// known.
#[test]
fn unknown_state_is_reported() {
    let mut idle = page(&json!([]), 0);
    idle.content.held = Vec::new();
    let mut early = page(&json!([]), 0);
    early.content.listed = Some(false);
    for (page, why) in [
        (idle, "no replica that was read holds shard 0 of service-controller"),
        (early, "service-controller sc: has not listed everything yet"),
    ] {
        let report = report(&session(), vec![page]);
        let text = written(&report, Format::Table, false).expect("written");
        assert_eq!(text, format!("Not known yet\n  {why}\n"));
        assert!(!report.is_well());
    }
}

#[test]
fn a_uid_has_no_slash() {
    assert!(uid("6f1c-88").is_ok());
    for wrong in ["", "default/web", "a b"] {
        assert!(uid(wrong).is_err(), "{wrong}");
    }
}
