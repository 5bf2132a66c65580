//! Tests of the adapter's reports about itself: information, health, reflection, probes and metrics. The cloud may be unreachable at the
//! start.

use cloud_api_proto::{
    Reason,
    v1alpha1::{GetInfoRequest, WatchStatusRequest, capability::Level, instance_ref::Ref},
};
use serde_json::json;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::{
    adapter::bench::{TestAdapter, bench, refused},
    support::cloud::TestCloud,
    support::context,
    support::until,
    support::wanted::{backend, spec, tcp},
};

const SERVICES: [&str; 4] = ["AdapterService", "InstanceService", "LoadBalancerService", "RouteService"];

fn full(service: &str) -> String {
    format!("cloudadapter.v1alpha1.{service}")
}

async fn serving(adapter: &TestAdapter, service: &str) -> bool {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(adapter.channel.clone()).check(request).await;
    answer.is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
}

pub(crate) async fn page(adapter: &TestAdapter, path: &str) -> (u16, String) {
    #[expect(
        clippy::disallowed_methods,
        reason = "tests act as the vendor's operator, which needs no budget"
    )]
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer = client.get(format!("http://{}{path}", adapter.http)).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("text"))
}

#[tokio::test]
async fn info_has_identity_and_capabilities() {
    let bench = bench().await;
    let info = bench.adapter.info().get_info(GetInfoRequest { context: Some(context()) }).await;
    let info = info.expect("answered").into_inner();
    assert_eq!((info.adapter_name.as_str(), info.provider.as_str()), ("adapter-sim", "sim"));
    assert_eq!(info.contract_versions, ["cloudadapter.v1alpha1"]);
    assert_eq!(info.scope.expect("known").region, "sim-1");
    assert!(info.capabilities.iter().any(|one| one.name == "loadbalancers" && one.level() == Level::Stable));
    let keys: Vec<_> = info.parameters.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["algorithm", "health-check-tls"]);
    assert_eq!(info.limits.map(|limits| (limits.batch_instances, limits.batch_routes)), Some((500, 200)));
    assert_eq!(info.cost.expect("reported").vendor_calls, 0);
    assert_eq!(bench.cloud.counts().total, 0);
}

#[tokio::test]
async fn status_has_budgets_and_snapshots() {
    let bench = bench().await;
    bench.cloud.machines(3).await;
    bench.adapter.batch_get(context(), [Ref::NodeName("node-1".into())]).await.expect("possible");
    let mut stream = bench.adapter.info().watch_status(WatchStatusRequest { context: Some(context()) }).await;
    let report =
        stream.as_mut().expect("a stream").get_mut().message().await.expect("no error").expect("a report");
    assert!(report.leader);
    assert_eq!(report.self_check_error, None);
    let compute = report.budgets.iter().find(|budget| budget.bucket == "compute").expect("reported");
    assert_eq!(compute.calls_total, bench.cloud.counts().total);
    let snapshot = report.snapshots.iter().find(|one| one.collection == "instances").expect("reported");
    assert_eq!((snapshot.items, snapshot.observed_at.is_some()), (3, true));
}

#[tokio::test]
async fn health_and_reflection_answer() {
    let bench = bench().await;
    for service in SERVICES {
        assert!(serving(&bench.adapter, &full(service)).await, "{service}");
    }
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(bench.adapter.channel.clone());
    let answer = client.server_reflection_info(tokio_stream::once(request)).await.expect("answered");
    let answer = answer.into_inner().message().await.expect("no error").expect("a message");
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for service in SERVICES {
        assert!(names.contains(&full(service)), "{names:?}");
    }
}

#[tokio::test]
async fn probes_and_metrics_are_plain_http() {
    let bench = bench().await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;
    bench.adapter.ensured(&request).await;
    assert_eq!(page(&bench.adapter, "/healthz").await.0, 200);
    assert_eq!(page(&bench.adapter, "/readyz").await.0, 200);
    let (status, metrics) = page(&bench.adapter, "/metrics").await;
    assert_eq!(status, 200);
    for line in
        [r#"op="CreateListener",class="interactive",controller="anyone",code="202""#, "cloud_adapter_"]
    {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn adapter_starts_without_cloud_and_waits() {
    let port = test_support::ports::loopback().expect("a port");
    let adapter = TestAdapter::start(&format!("http://{port}")).await;
    let asked = async || adapter.batch_get(context(), [Ref::NodeName("node-1".into())]).await;
    until("an answer", async || asked().await.is_err_and(|error| error.reason == Reason::Starting)).await;
    let (_, error) = refused(asked().await);
    assert!(error.message.contains("cannot reach the cloud"), "{error}");
    assert!(error.retry_after.is_some());
    assert!(!serving(&adapter, &full("InstanceService")).await);
    let (status, ready) = page(&adapter, "/readyz").await;
    assert_eq!(status, 200, "the adapter is ready, because only it can report the cause");
    assert!(ready.contains("unreachable"), "{ready}");
    assert_eq!(page(&adapter, "/healthz").await.0, 200, "a restart would not help");

    let cloud = TestCloud::start_at(&port.to_string(), json!({})).await;
    cloud.machines(1).await;
    adapter.ready().await;
    assert_eq!(asked().await.expect("served").results.len(), 1);
    until("health", async || serving(&adapter, &full("InstanceService")).await).await;
    assert_eq!(page(&adapter, "/readyz").await, (200, "ok\n".to_owned()));
}

/// Clients call only a replica that reports SERVING. A leader with rejected credentials must report SERVING too, or no client learns the
/// cause.
#[tokio::test]
async fn leader_with_rejected_credentials_serves_and_reports_it() {
    let bench = bench().await;
    let rejected = json!({ "respond": { "status": 401 } });
    bench.cloud.fault(json!({ "match": { "operation": "*" }, "when": "always", "action": rejected })).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    assert_eq!(refused(bench.adapter.ensure(&request).await).0, Reason::VendorAuth);
    until("a report", async || page(&bench.adapter, "/readyz").await.1.contains("unreachable")).await;
    let started = TestAdapter::start(&bench.cloud.url).await;
    for adapter in [&bench.adapter, &started] {
        until("the reason", async || {
            let asked = adapter.batch_get(context(), [Ref::NodeName("node-1".into())]).await;
            asked.is_err_and(|error| error.reason == Reason::VendorAuth)
        })
        .await;
        until("health", async || serving(adapter, &full("InstanceService")).await).await;
        assert_eq!(page(adapter, "/readyz").await.0, 200);
    }
}
