//! A cloud, an adapter, and the requests that controllers send.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, ApplyRoutesResponse, BackendList, BatchGetInstancesRequest,
    BatchGetInstancesResponse, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse,
    EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, Fence, InstanceRef, LoadBalancerSpec,
    LoadBalancerState, PutBackendSetRequest, instance_ref::Ref,
    instance_service_client::InstanceServiceClient, load_balancer_service_client::LoadBalancerServiceClient,
    put_backend_set_request::Content, route_service_client::RouteServiceClient,
};
use serde_json::{Value, json};
use tonic::{Request, Status};

use crate::{
    conditions::program::Program,
    support::cloud::TestCloud,
    support::wanted::{backend, deletion, key, owner, spec, tcp},
    support::{context, fence, live, until},
};

pub(crate) const UNLIMITED: &str = "limits: {buckets: {compute: {rate: 1000, burst: 1000}, network: {rate: 1000, burst: 1000}, \
                                 loadbalancer: {rate: 1000, burst: 1000}, identity: {rate: 1000, burst: 1000}}}";
const SET: &str = "one";

pub(crate) struct World {
    pub(crate) cloud: TestCloud,
    pub(crate) adapter: Program,
}

impl World {
    /// Starts a fast cloud, and an adapter. Returns when the adapter has passed its self-check.
    pub(crate) async fn start() -> Self {
        Self::configured(UNLIMITED).await
    }

    pub(crate) async fn configured(config: &str) -> Self {
        let cloud = cloud().await;
        let adapter = Program::start(&cloud.url, config, &[]).await;
        let world = Self { cloud, adapter };
        until("the self-check", async || {
            let request = BatchGetInstancesRequest { context: Some(context()), refs: Vec::new() };
            let mut client = InstanceServiceClient::new(world.adapter.channel.clone());
            client.batch_get_instances(request).await.is_ok()
        })
        .await;
        world.cloud.count_from_here();
        world
    }

    pub(crate) fn balancers(&self) -> LoadBalancerServiceClient<tonic::transport::Channel> {
        LoadBalancerServiceClient::new(self.adapter.channel.clone())
    }

    /// Adds a fault rule for each call of an operation.
    pub(crate) async fn always(&self, operation: &str, action: Value) {
        self.cloud.fault(json!({ "match": { "operation": operation }, "action": action })).await;
    }

    pub(crate) async fn put(&self, id: &str) -> Result<(), Status> {
        let full = Content::Full(BackendList { backends: vec![backend(1)] });
        let request = PutBackendSetRequest { context: Some(context()), id: id.into(), content: Some(full) };
        self.balancers().put_backend_set(request).await.map(drop)
    }

    /// Returns a request for the load balancer of the Service `shop/<uid>`. Its backend set is already uploaded.
    pub(crate) async fn web(&self, uid: &str) -> EnsureLoadBalancerRequest {
        self.put(SET).await.expect("put");
        EnsureLoadBalancerRequest {
            context: Some(context()),
            key: Some(key(uid)),
            owner: Some(owner(uid)),
            fence: Some(fence(1, 1)),
            spec: Some(LoadBalancerSpec { backend_set_id: SET.into(), ..spec([tcp(80)]) }),
            ..EnsureLoadBalancerRequest::default()
        }
    }

    pub(crate) async fn ensure(
        &self,
        request: &EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse, Status> {
        Ok(self.balancers().ensure_load_balancer(request.clone()).await?.into_inner())
    }

    /// Repeats the request until the answer is not PENDING.
    pub(crate) async fn settled(
        &self,
        request: &EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse, Status> {
        loop {
            let answer = self.ensure(request).await?;
            if answer.state() != LoadBalancerState::Pending {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn delete(&self, uid: &str, fence: Fence) -> Result<DeleteLoadBalancerResponse, Status> {
        let request = DeleteLoadBalancerRequest { fence: Some(fence), ..deletion(uid) };
        Ok(self.balancers().delete_load_balancer(request).await?.into_inner())
    }

    pub(crate) async fn apply(&self, request: ApplyRoutesRequest) -> Result<ApplyRoutesResponse, Status> {
        let mut client = RouteServiceClient::new(self.adapter.channel.clone());
        Ok(client.apply_routes(request).await?.into_inner())
    }

    /// Makes a live request for the instance `i-0001`.
    pub(crate) async fn look_up(&self, timeout: Duration) -> Result<BatchGetInstancesResponse, Status> {
        look_up(&self.adapter, timeout).await
    }
}

pub(crate) async fn cloud() -> TestCloud {
    TestCloud::fast(json!({})).await
}

pub(crate) async fn look_up(
    adapter: &Program,
    timeout: Duration,
) -> Result<BatchGetInstancesResponse, Status> {
    let one =
        InstanceRef { r#ref: Some(Ref::ProviderId("sim://sim-1/i-0001".into())), ..InstanceRef::default() };
    let mut request = Request::new(BatchGetInstancesRequest { context: Some(live()), refs: vec![one] });
    request.set_timeout(timeout);
    let mut client = InstanceServiceClient::new(adapter.channel.clone());
    Ok(client.batch_get_instances(request).await?.into_inner())
}
