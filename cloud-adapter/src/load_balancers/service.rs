//! `LoadBalancerService`: converts gRPC requests to validated goals, gives the goals to tasks, and converts the results of the tasks to
//! answers.

use std::sync::Arc;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Bookmark, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
        EnsureLoadBalancerResponse, Fence, LoadBalancer, LoadBalancerGone, LoadBalancerItems, Priority,
        PutBackendSetRequest, PutBackendSetResponse, Synced, WatchLoadBalancersRequest,
        WatchLoadBalancersResponse, cost::Source, load_balancer_service_server::LoadBalancerService,
        watch_load_balancers_response::Event,
    },
};
use tonic::{Request, Response, Status};

use super::{backend_sets::BackendSets, converge::Converger};
use crate::{
    driver::{Driver, LoadBalancerRecord},
    rpc::{Rpc, Stream, stream},
    snapshot::{Frame, Watcher},
};

#[derive(Debug)]
pub(crate) struct Service<D: Driver> {
    pub(crate) converger: Arc<Converger<D>>,
    pub(crate) sets: Arc<BackendSets>,
    pub(crate) rpc: Rpc,
}

#[tonic::async_trait]
impl<D: Driver> LoadBalancerService for Service<D> {
    type WatchLoadBalancersStream = Stream<WatchLoadBalancersResponse>;

    async fn watch_load_balancers(
        &self,
        request: Request<WatchLoadBalancersRequest>,
    ) -> Result<Response<Self::WatchLoadBalancersStream>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context, &metadata, &extensions, Priority::Background)?;
        let view = format!("load-balancers/{}", context.cluster_id);
        let options = self.rpc.watch_options(&context, request.stop_when_synced, request.resume_token, &view);
        let mine = move |record: &LoadBalancerRecord<D::Detail>| {
            let key = record.summary.key.as_ref()?;
            // A look-up by only one part of the key is not supported.
            let ours = key.cluster_id == context.cluster_id && !key.owner_uid.is_empty() && !record.left;
            ours.then(|| record.summary.clone())
        };
        let snapshot = Arc::clone(&self.converger.snapshot);
        let watcher = Watcher::new(snapshot, options, mine, |item: &LoadBalancer| &item.vendor_id)?;
        let rpc = self.rpc.clone();
        Ok(Response::new(stream("WatchLoadBalancers", &self.rpc, watcher, move |frame| {
            message(frame, &rpc)
        })?))
    }

    async fn put_backend_set(
        &self,
        request: Request<PutBackendSetRequest>,
    ) -> Result<Response<PutBackendSetResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context, &metadata, &extensions, Priority::Interactive)?;
        let put = self.sets.put(&context.cluster_id, &request.id, request.content);
        let size = put?;
        let cost = Some(context.session.meter().cost(Source::Memory, None));
        Ok(Response::new(PutBackendSetResponse { size: u32::try_from(size).unwrap_or(u32::MAX), cost }))
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<EnsureLoadBalancerRequest>,
    ) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context.clone(), &metadata, &extensions, Priority::Interactive)?;
        let fence = request.fence.clone();
        let ensured = self.ensure(request, &context).await;
        Ok(Response::new(self.counted(fence.as_ref(), ensured)?))
    }

    async fn delete_load_balancer(
        &self,
        request: Request<DeleteLoadBalancerRequest>,
    ) -> Result<Response<DeleteLoadBalancerResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context.clone(), &metadata, &extensions, Priority::Interactive)?;
        let fence = request.fence.clone();
        let deleted = self.delete(request, &context).await;
        Ok(Response::new(self.counted(fence.as_ref(), deleted)?))
    }
}

impl<D: Driver> Service<D> {
    fn counted<T>(&self, fence: Option<&Fence>, result: Result<T, AdapterError>) -> Result<T, AdapterError> {
        let stale = result.as_ref().is_err_and(|error| error.reason == Reason::StaleFence);
        if let Some(fence) = fence.filter(|_| stale) {
            self.rpc.metrics.fence_rejected(&fence.scope);
        }
        result
    }
}

fn message(frame: Frame<LoadBalancer>, rpc: &Rpc) -> WatchLoadBalancersResponse {
    let event = match frame {
        Frame::Reset => Event::Reset(rpc.reset()),
        Frame::Items(items) => Event::Items(LoadBalancerItems { items }),
        Frame::Synced { count, checksum, observed, token } => {
            Event::Synced(Synced { count, checksum, observed_at: Some(rpc.wall(observed)), token })
        }
        Frame::Upsert(item) => Event::Upsert(item),
        Frame::Gone(item) => Event::Gone(LoadBalancerGone { vendor_id: item.vendor_id, key: item.key }),
        Frame::Bookmark { observed, token } => {
            Event::Bookmark(Bookmark { observed_at: Some(rpc.wall(observed)), token })
        }
    };
    WatchLoadBalancersResponse { event: Some(event) }
}
