//! These tests keep docs/reference/metrics.md up to date for the metrics that every controller has, and docs/reference/events.md for the
//! Events of every controller.

use cloud_api_proto::v1alpha1::Scope;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;

use super::*;
use crate::{
    adapter::ScopeGuard,
    metrics::render,
    mirror::{self, Mirror, ObjectName},
    queue::{Backoff, Queue},
    testing::{FakeCloud, FakeKube, FakeShards, process_of_shards},
};

const NAMES: Names = Names { controller: "node-controller", component: "node", managed: &["cloud-node"] };

#[tokio::test(start_paused = true)]
async fn metrics_of_every_controller_are_in_the_reference() {
    let (kube, cloud, fake_shards) =
        (FakeKube::new(), FakeCloud::new(), FakeShards::new(NAMES.controller, 1));
    let mut process = process_of_shards(NAMES, &kube, &cloud, &fake_shards);
    metrics::register(&mut process);
    let moved = stored_scope::Moved(process.adapter.scope().clone());
    process.metrics().register_collector(Box::new(moved));
    let requests = Requests::new(fake_shards.shards(), None);
    requests.register(&mut process.registry);
    let nodes: kube::Api<Node> = kube::Api::all(kube.client_through(&requests));
    nodes.list(&ListParams::default()).await.expect("answered");
    process.adapter.get_info().await.expect("answered");
    let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(1) };
    Queue::<ObjectName>::new("Nodes", backoff).register(&mut process.registry);
    let mirror: Mirror<ObjectName, u32> = Mirror::new("nodes", process.clock);
    mirror.mark_synced();
    mirror.mark_fresh();
    mirror::register(process.metrics(), [mirror.measured()]);
    let page = render(&process.registry).expect("a page");
    test_support::reference::assert_up_to_date("every controller", &[], &page);
}

#[test]
fn events_of_every_controller_are_in_the_reference() {
    let scope = |project: &str| Scope {
        project: project.to_owned(),
        fingerprint: project.to_owned(),
        ..Scope::default()
    };
    let guard = ScopeGuard::default();
    guard.report(Some(&scope("a")));
    guard.report(Some(&scope("b")));
    guard.remedy(
        "run: kubectl -n kube-system annotate lease cloud-node-controller cloudadapter.dev/scope-".to_owned(),
    );
    let notice = stored_scope::notice(guard.event().expect("moved"));
    let event = test_support::reference::Event {
        reason: notice.reason,
        kind: notice.kind.word(),
        words: notice.note,
    };
    test_support::reference::assert_events_up_to_date("every controller", &[event]);
}
