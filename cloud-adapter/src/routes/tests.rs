//! These tests cover a request that waits to write. They use paused time.

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, NextHop, Priority, RequestContext, RouteKey, RouteUpsert,
    route_service_server::RouteService as _,
};
use futures::future::join_all;
use tonic::Request;

use super::*;
use crate::{
    auth::{Caller, Role},
    config::CollectionSettings,
    driver::testing::WriteOnly,
    metrics::Metrics,
    rpc::Rpc,
    vendor::{
        Purpose, Vendor,
        tests::{limits, read, vendor},
    },
};

fn service(vendor: &Arc<Vendor>) -> Service<WriteOnly> {
    let rpc = Rpc::testing(Arc::clone(vendor), None);
    rpc.replica.lead(1);
    let settings = CollectionSettings::aged(Duration::from_secs(60));
    let applier = Applier {
        driver: Arc::new(WriteOnly),
        snapshot: Arc::new(Snapshot::new(settings, Duration::ZERO, Metrics::new())),
        fences: Fences::default(),
        tracker: TaskTracker::new(),
        replica: rpc.replica.clone(),
        table_lock: TableLock::default(),
        slots: Slots::default(),
        doubts: Doubts::default(),
    };
    Service { applier: Arc::new(applier), rpc }
}

fn caller() -> Caller {
    Caller { role: Role::RouteController, ..Caller::anyone() }
}

fn request(node: u32, priority: Priority) -> Request<ApplyRoutesRequest> {
    let key = RouteKey {
        cluster_id: "c".to_owned(),
        node_uid: format!("node-{node}"),
        destination: format!("10.244.{node}.0/24"),
    };
    let next_hop = NextHop { provider_id: format!("test://{node}"), ..NextHop::default() };
    let mut request = Request::new(ApplyRoutesRequest {
        context: Some(RequestContext {
            cluster_id: "c".to_owned(),
            priority: priority.into(),
            ..RequestContext::default()
        }),
        fence: Some(Fence { scope: "route-controller/0".to_owned(), epoch: 1, sequence: 1 }),
        upserts: vec![RouteUpsert { key: Some(key), next_hop: Some(next_hop), ..RouteUpsert::default() }],
        cluster_cidrs: vec!["10.244.0.0/16".to_owned()],
        ..ApplyRoutesRequest::default()
    });
    request.extensions_mut().insert(caller());
    request
}

/// Returns the time in milliseconds at which a write is sent. The write belongs to a resync and is queued behind a hundred other calls. If
/// `joined` is set, an urgent request waits behind the resync.
async fn written(joined: bool) -> u128 {
    let (fake, vendor) = vendor(&limits(10.0, 1));
    let service = service(&vendor);
    let resyncs = join_all((0..100).map(|object| {
        let purpose = Purpose { caller: caller(), ..Purpose::own(Priority::Background, "test") };
        let session = vendor.session(purpose).about(object.to_string());
        async move { read(&session, "/resync").await }
    }));
    let leisurely = async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        service.apply_routes(request(1, Priority::Background)).await.expect("applied");
    };
    let urgent = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if joined {
            service.apply_routes(request(2, Priority::Traffic)).await.expect("applied");
        }
    };
    tokio::join!(resyncs, leisurely, urgent);
    fake.arrived().into_iter().find(|(path, _)| path == "/write").expect("written").1
}

#[tokio::test(start_paused = true)]
async fn urgent_request_raises_the_write_before_it() {
    let (alone, joined) = (written(false).await, written(true).await);
    assert!(alone > 9_000, "sent after all others: {alone} ms");
    assert!(joined < 1_000, "sent first after the urgent request arrived: {joined} ms");
}
