use std::{collections::BTreeSet, convert::Infallible};

use cloud_api_proto::{AdapterError, Reason};
use cloud_budget::{BreakerState, BucketReport, LeafReport};
use insta::assert_snapshot;
use telemetry::traces::{
    self,
    testing::{Recorder, attribute},
};
use tonic::{Code, Status, body::Body};
use tower::{Layer as _, ServiceExt as _};

use super::*;
use crate::{
    auth::{Caller, Role},
    vendor::Family as VendorFamily,
};

const LIST: Operation = Operation::read(VendorFamily::Compute, "ListInstances");

fn eventful() -> Metrics {
    let metrics = Metrics::new();
    let (class, controller) = (Class::Interactive, Role::ServiceController.word());
    let took = Duration::from_millis(5);
    metrics.vendor_call(VendorCall { operation: LIST, class, controller, code: 200, took });
    metrics.queue_wait(class, controller, took);
    metrics.shed(RefusalReason::QueueFull, class, controller);
    metrics.coalesced(LIST.name, Coalesced::SingleFlight);
    metrics.batch(LIST.name, 3);
    metrics.refreshed("instances", Some(3));
    metrics.noop("EnsureLoadBalancer");
    metrics.outcome_unknown("CreateListener");
    metrics.existence("present", 2);
    metrics.fence_rejected("service-controller/0");
    metrics.leader(true);
    metrics.config_reload("limits", false);
    drop(metrics.key_task());
    let labels = RpcLabels {
        service: "cloudadapter.v1alpha1.RouteService".into(),
        method: "ApplyRoutes".into(),
        code: "UNAVAILABLE",
        reason: "STARTING",
        controller,
    };
    metrics.rpc(&labels, took);
    let (age, target) = (Some(Duration::from_secs(7)), Some(Duration::from_secs(30)));
    metrics.read_age("instances", move || SnapshotAge { age, target });
    metrics.read_budget(|| Some((Time::ZERO, report())));
    metrics.read_queues(|| vec![waiting("compute", 12)]);
    metrics
}

fn waiting(bucket: &str, seconds: u64) -> QueueReport {
    QueueReport {
        bucket: bucket.to_owned(),
        class: Class::Traffic,
        controller: Role::RouteController.word(),
        queued: 4,
        oldest: Duration::from_secs(seconds),
    }
}

fn report() -> Report {
    let bucket = BucketReport {
        name: "compute".into(),
        rate: 7.0,
        ceiling: 10.0,
        tokens: 3.0,
        knee: Some(8.0),
        paused_until: Some(Time::ZERO + Duration::from_secs(9)),
        foreign_rate: 1.5,
        queued: 4,
        calls: 100,
        throttled: 2,
        corrected: 1,
        would_delay: 5,
        would_delay_for: Duration::from_millis(2500),
    };
    Report {
        buckets: vec![bucket],
        breakers: vec![("compute".into(), BreakerState::HalfOpen)],
        credentials: Some(BreakerState::Open { retry_at: Time::MAX }),
        leaves: vec![LeafReport {
            class: Class::Traffic,
            controller: Role::RouteController.word(),
            queued: 4,
        }],
    }
}

/// Returns the samples on the page, without histogram buckets.
fn samples(metrics: &Metrics) -> String {
    let page = metrics.render().expect("a page");
    let kept =
        |line: &&str| !line.starts_with('#') && !line.contains("_bucket{le=") && !line.contains(",le=");
    page.lines().filter(kept).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_has_these_names_and_labels() {
    assert_snapshot!(samples(&eventful()), @r#"
    cloud_adapter_batch_size_count{op="ListInstances"} 1
    cloud_adapter_batch_size_sum{op="ListInstances"} 3.0
    cloud_adapter_breaker_state{family="compute"} 1
    cloud_adapter_breaker_state{family="credentials"} 2
    cloud_adapter_bucket_ceiling{bucket="compute"} 10.0
    cloud_adapter_bucket_foreign_rate{bucket="compute"} 1.5
    cloud_adapter_bucket_knee{bucket="compute"} 8.0
    cloud_adapter_bucket_paused_seconds{bucket="compute"} 9.0
    cloud_adapter_bucket_rate{bucket="compute"} 7.0
    cloud_adapter_bucket_tokens{bucket="compute"} 3.0
    cloud_adapter_bucket_would_delay_seconds_total{bucket="compute"} 2.5
    cloud_adapter_bucket_would_delay_total{bucket="compute"} 5
    cloud_adapter_coalesced_total{op="ListInstances",kind="singleflight"} 1
    cloud_adapter_config_refused{kind="limits"} 1
    cloud_adapter_config_reload_total{kind="limits",result="failed"} 1
    cloud_adapter_connections 0
    cloud_adapter_existence_total{result="present"} 2
    cloud_adapter_fence_rejected_total{scope="service-controller"} 1
    cloud_adapter_key_tasks{state="working"} 0
    cloud_adapter_leader 1
    cloud_adapter_noop_total{rpc="EnsureLoadBalancer"} 1
    cloud_adapter_outcome_unknown_total{op="CreateListener"} 1
    cloud_adapter_queue_depth{class="traffic",controller="route-controller"} 4
    cloud_adapter_queue_oldest_seconds{bucket="compute",class="traffic",controller="route-controller"} 12.0
    cloud_adapter_queue_wait_seconds_count{class="interactive",controller="service-controller"} 1
    cloud_adapter_queue_wait_seconds_sum{class="interactive",controller="service-controller"} 0.005
    cloud_adapter_rpc_duration_seconds_count{service="cloudadapter.v1alpha1.RouteService",method="ApplyRoutes",code="UNAVAILABLE",reason="STARTING",controller="service-controller"} 1
    cloud_adapter_rpc_duration_seconds_sum{service="cloudadapter.v1alpha1.RouteService",method="ApplyRoutes",code="UNAVAILABLE",reason="STARTING",controller="service-controller"} 0.005
    cloud_adapter_shed_total{reason="queue-full",class="interactive",controller="service-controller"} 1
    cloud_adapter_snapshot_age_seconds{collection="instances"} 7.0
    cloud_adapter_snapshot_items{collection="instances"} 3
    cloud_adapter_snapshot_refresh_total{collection="instances",result="ok"} 1
    cloud_adapter_snapshot_target_age_seconds{collection="instances"} 30.0
    cloud_adapter_vendor_call_duration_seconds_count{family="compute",op="ListInstances"} 1
    cloud_adapter_vendor_call_duration_seconds_sum{family="compute",op="ListInstances"} 0.005
    cloud_adapter_vendor_calls_total{family="compute",op="ListInstances",class="interactive",controller="service-controller",code="200"} 1
    cloud_adapter_vendor_throttled_total{bucket="compute",source="header"} 1
    cloud_adapter_vendor_throttled_total{bucket="compute",source="status"} 2
    "#);
}

#[test]
fn queue_age_is_reported_for_the_blocking_bucket() {
    let metrics = Metrics::new();
    metrics.read_budget(|| Some((Time::ZERO, report())));
    let oldest = |seconds: &str| {
        let row = r#"cloud_adapter_queue_oldest_seconds{bucket="compute",class="traffic",controller="route-controller"}"#;
        let row = format!("{row} {seconds}");
        assert!(samples(&metrics).contains(&row), "{row}: {}", samples(&metrics));
    };
    oldest("0.0");
    metrics.read_queues(|| vec![waiting("network", 3)]);
    oldest("0.0");
    metrics.read_queues(|| vec![waiting("network", 3), waiting("compute", 90)]);
    oldest("90.0");
}

#[test]
fn a_key_task_counts_in_one_state_until_it_ends() {
    let metrics = Metrics::new();
    let working = |count: u8| format!(r#"cloud_adapter_key_tasks{{state="working"}} {count}"#);
    let waiting = |count: u8| format!(r#"cloud_adapter_key_tasks{{state="waiting"}} {count}"#);
    let shown = |wanted: &str| assert!(samples(&metrics).contains(wanted), "{wanted}: {}", samples(&metrics));
    let mut task = metrics.key_task();
    shown(&working(1));
    task.now(TaskState::Waiting);
    shown(&working(0));
    shown(&waiting(1));
    drop(task);
    shown(&waiting(0));
}

#[test]
fn config_refused_until_a_valid_reload() {
    let metrics = Metrics::new();
    for (taken, refused) in [(false, 1), (false, 1), (true, 0)] {
        metrics.config_reload("limits", taken);
        let line = format!(r#"cloud_adapter_config_refused{{kind="limits"}} {refused}"#);
        assert!(samples(&metrics).contains(&line), "{line}: {}", samples(&metrics));
    }
}

#[test]
fn labels_chosen_by_callers_are_bounded() {
    let metrics = Metrics::new();
    for scope in ["service-controller/7", "x/0", "", "service-controllers"] {
        metrics.fence_rejected(scope);
    }
    assert_snapshot!(samples(&metrics), @r#"
    cloud_adapter_connections 0
    cloud_adapter_fence_rejected_total{scope="other"} 3
    cloud_adapter_fence_rejected_total{scope="service-controller"} 1
    cloud_adapter_leader 0
    "#);
}

#[tokio::test(start_paused = true)]
async fn answers_are_measured_with_reason_and_caller() {
    let metrics = Metrics::new();
    let layer = RpcLayer::new(metrics.clone());
    let refused = |reason| Some(Status::from(AdapterError::new(reason, "no")));
    for (path, answer) in [
        ("/cloudadapter.v1alpha1.RouteService/ApplyRoutes", refused(Reason::BudgetExhausted)),
        ("/cloudadapter.v1alpha1.RouteService/ApplyRoutes", Some(Status::new(Code::Ok, ""))),
        ("/cloudadapter.v1alpha1.RouteService/WatchRoutes", None),
        ("/cloudadapter.v1alpha1.RouteService/DropTables", Some(Status::unimplemented(""))),
    ] {
        let service = tower::service_fn(move |_request: http::Request<()>| {
            let hung_up = || http::Response::new(Body::empty());
            let answer = answer.clone().map_or_else(hung_up, Status::into_http);
            async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                Ok::<_, Infallible>(answer)
            }
        });
        let mut request = http::Request::get(path).body(()).expect("a request");
        let subject = "system:serviceaccount:kube-system:a".into();
        request.extensions_mut().insert(Caller { role: Role::RouteController, subject });
        drop(layer.layer(service).oneshot(request).await);
    }
    assert_snapshot!(samples(&metrics), @r#"
    cloud_adapter_connections 0
    cloud_adapter_leader 0
    cloud_adapter_rpc_duration_seconds_count{service="cloudadapter.v1alpha1.RouteService",method="ApplyRoutes",code="OK",reason="",controller="route-controller"} 1
    cloud_adapter_rpc_duration_seconds_count{service="cloudadapter.v1alpha1.RouteService",method="ApplyRoutes",code="RESOURCE_EXHAUSTED",reason="BUDGET_EXHAUSTED",controller="route-controller"} 1
    cloud_adapter_rpc_duration_seconds_count{service="cloudadapter.v1alpha1.RouteService",method="WatchRoutes",code="CANCELLED",reason="",controller="route-controller"} 1
    cloud_adapter_rpc_duration_seconds_count{service="other",method="other",code="UNIMPLEMENTED",reason="UNSPECIFIED",controller="route-controller"} 1
    cloud_adapter_rpc_duration_seconds_sum{service="cloudadapter.v1alpha1.RouteService",method="ApplyRoutes",code="OK",reason="",controller="route-controller"} 2.0
    cloud_adapter_rpc_duration_seconds_sum{service="cloudadapter.v1alpha1.RouteService",method="ApplyRoutes",code="RESOURCE_EXHAUSTED",reason="BUDGET_EXHAUSTED",controller="route-controller"} 2.0
    cloud_adapter_rpc_duration_seconds_sum{service="cloudadapter.v1alpha1.RouteService",method="WatchRoutes",code="CANCELLED",reason="",controller="route-controller"} 2.0
    cloud_adapter_rpc_duration_seconds_sum{service="other",method="other",code="UNIMPLEMENTED",reason="UNSPECIFIED",controller="route-controller"} 2.0
    "#);
}

#[tokio::test]
async fn calls_join_their_callers_trace_but_watches_do_not() {
    let recorder = Recorder::start();
    let layer = RpcLayer::new(Metrics::new());
    for (method, error) in [
        ("RouteService/ApplyRoutes", Some(Reason::BudgetExhausted)),
        ("InstanceService/BatchGetInstances", None),
        ("RouteService/WatchRoutes", None),
    ] {
        let service = tower::service_fn(move |_request: http::Request<()>| async move {
            traces::child(traces::span!("inside")).in_scope(|| ());
            let status = error.map_or(Status::ok(""), |reason| AdapterError::new(reason, "no").into());
            Ok::<_, Infallible>(status.into_http::<Body>())
        });
        let request = http::Request::get(format!("/cloudadapter.v1alpha1.{method}"));
        let request =
            request.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        drop(layer.layer(service).oneshot(request.body(()).expect("a request")).await);
    }
    let reported = recorder.ended().into_iter().map(|span| {
        let ours = span.span_context.trace_id().to_string() == "0af7651916cd43dd8448eb211c80319c";
        format!("{} {ours} {}", span.name, attribute(&span, "error.type"))
    });
    assert_eq!(
        reported.collect::<Vec<_>>(),
        [
            "inside true ",
            "cloudadapter.v1alpha1.RouteService/ApplyRoutes true BUDGET_EXHAUSTED",
            "inside true ",
            "cloudadapter.v1alpha1.InstanceService/BatchGetInstances true ",
            "inside false ",
        ]
    );
}

fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("cloud_adapter_")).collect()
}

#[test]
fn the_chart_asks_for_metrics_that_there_are() {
    let alerts = named(include_str!("../../../helm/cloud-controllers/files/alerts.yaml"));
    let board = named(include_str!("../../../helm/cloud-controllers/files/dashboard.json"));
    let page = eventful().render().expect("a page");
    for word in alerts.union(&board) {
        let begins = [format!("\n{word}{{"), format!("\n{word} ")];
        assert!(begins.iter().any(|begin| page.contains(begin)), "{word}");
    }
    assert!(alerts.len() > 7 && board.len() > 7, "{alerts:?} {board:?}");
}

#[test]
fn metrics_of_the_adapter_are_in_the_reference() {
    let page = eventful().render().expect("a page");
    test_support::reference::assert_up_to_date("cloud-adapter", &["cloud-adapter, its port"], &page);
}
