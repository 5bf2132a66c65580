//! The three watches of the contract, one type each.

use std::future::Future;

use cloud_api_proto::v1alpha1::{
    Instance, LoadBalancer, Route, WatchInstancesRequest, WatchInstancesResponse, WatchLoadBalancersRequest,
    WatchLoadBalancersResponse, WatchRoutesRequest, WatchRoutesResponse,
    instance_service_client::InstanceServiceClient, load_balancer_service_client::LoadBalancerServiceClient,
    route_service_client::RouteServiceClient, watch_instances_response, watch_load_balancers_response,
    watch_routes_response,
};
use tonic::{Response, Status, Streaming};

use super::Event;
use crate::adapter::{Adapter, Call};

/// One watch of the contract.
pub trait Source: Send + Sync + 'static {
    /// The watched item.
    type Item: Send;
    /// The type of the stream's messages.
    type Response: Send + 'static;
    /// The name of the RPC.
    const CALL: &'static str;

    /// Opens the stream. With an empty token, the stream starts from the beginning.
    fn open(
        &self,
        adapter: &Adapter,
        resume_token: String,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Response>>, Status>> + Send;

    /// Decodes one message. Returns `None` for an event that only a newer version of the contract defines.
    fn event(&self, response: Self::Response) -> Option<Event<Self::Item>>;
}

/// Decodes a message of one of the three watches, whose types differ only in name. `$key` is the field that identifies an item.
macro_rules! decoded {
    ($response:ident, $module:ident, $key:ident) => {
        $response.event.map(|event| match event {
            $module::Event::Reset(reset) => Event::Reset(reset.scope),
            $module::Event::Items(chunk) => {
                Event::Items(chunk.items.into_iter().map(|item| (item.$key.clone(), item)).collect())
            }
            $module::Event::Synced(synced) => Event::Synced(synced),
            $module::Event::Upsert(item) => Event::Upsert(item.$key.clone(), item),
            $module::Event::Gone(gone) => Event::Gone(gone.$key),
            $module::Event::Bookmark(bookmark) => Event::Bookmark(bookmark),
        })
    };
}

/// The instances, keyed by provider ID.
#[derive(Clone, Copy, Debug)]
pub struct Instances;

impl Source for Instances {
    type Item = Instance;
    type Response = WatchInstancesResponse;
    const CALL: &'static str = "WatchInstances";

    async fn open(
        &self,
        adapter: &Adapter,
        resume_token: String,
    ) -> Result<Response<Streaming<Self::Response>>, Status> {
        let context = Some(adapter.context(Call::default()));
        let request = WatchInstancesRequest { context, stop_when_synced: false, resume_token };
        InstanceServiceClient::new(adapter.channel()).watch_instances(request).await
    }

    fn event(&self, response: Self::Response) -> Option<Event<Instance>> {
        decoded!(response, watch_instances_response, provider_id)
    }
}

/// The load balancers that this cluster owns, keyed by the vendor's ID.
#[derive(Clone, Copy, Debug)]
pub struct LoadBalancers;

impl Source for LoadBalancers {
    type Item = LoadBalancer;
    type Response = WatchLoadBalancersResponse;
    const CALL: &'static str = "WatchLoadBalancers";

    async fn open(
        &self,
        adapter: &Adapter,
        resume_token: String,
    ) -> Result<Response<Streaming<Self::Response>>, Status> {
        let context = Some(adapter.context(Call::default()));
        let request = WatchLoadBalancersRequest { context, stop_when_synced: false, resume_token };
        LoadBalancerServiceClient::new(adapter.channel()).watch_load_balancers(request).await
    }

    fn event(&self, response: Self::Response) -> Option<Event<LoadBalancer>> {
        decoded!(response, watch_load_balancers_response, vendor_id)
    }
}

/// The routes of this cluster, and foreign routes that overlap these CIDRs, keyed by the vendor's ID.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The CIDRs that pods get addresses from.
    pub cluster_cidrs: Vec<String>,
}

impl Source for Routes {
    type Item = Route;
    type Response = WatchRoutesResponse;
    const CALL: &'static str = "WatchRoutes";

    async fn open(
        &self,
        adapter: &Adapter,
        resume_token: String,
    ) -> Result<Response<Streaming<Self::Response>>, Status> {
        let context = Some(adapter.context(Call::default()));
        let cluster_cidrs = self.cluster_cidrs.clone();
        let request = WatchRoutesRequest { context, stop_when_synced: false, resume_token, cluster_cidrs };
        RouteServiceClient::new(adapter.channel()).watch_routes(request).await
    }

    fn event(&self, response: Self::Response) -> Option<Event<Route>> {
        decoded!(response, watch_routes_response, vendor_id)
    }
}
