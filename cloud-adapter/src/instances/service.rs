//! `InstanceService`: from gRPC to the snapshot and the finder, and back.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{
    BatchGetInstancesRequest, BatchGetInstancesResponse, Bookmark, Instance, InstanceGone, InstanceItems,
    Priority, Synced, WatchInstancesRequest, WatchInstancesResponse, cost::Source,
    instance_service_server::InstanceService, watch_instances_response::Event,
};
use tonic::{Request, Response, Status};

use super::Finder;
use crate::{
    driver::Driver,
    rpc::{Rpc, Stream, stream},
    snapshot::{Frame, Watcher},
};

/// The gRPC service.
#[derive(Debug)]
pub(crate) struct Service<D> {
    pub(crate) finder: Arc<Finder<D>>,
    pub(crate) rpc: Rpc,
}

#[tonic::async_trait]
impl<D: Driver> InstanceService for Service<D> {
    type WatchInstancesStream = Stream<WatchInstancesResponse>;

    async fn watch_instances(
        &self,
        request: Request<WatchInstancesRequest>,
    ) -> Result<Response<Self::WatchInstancesStream>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context, (&metadata, &extensions), Priority::Background)?;
        let options =
            self.rpc.watch_options(&context, request.stop_when_synced, request.resume_token, "instances");
        let watcher = Watcher::new(
            Arc::clone(&self.finder.snapshot),
            options,
            |i: &Instance| Some(i.clone()),
            |i| &i.provider_id,
        );
        let rpc = self.rpc.clone();
        Ok(Response::new(stream("WatchInstances", &self.rpc, watcher, move |frame| message(frame, &rpc))?))
    }

    async fn batch_get_instances(
        &self,
        request: Request<BatchGetInstancesRequest>,
    ) -> Result<Response<BatchGetInstancesResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context, (&metadata, &extensions), Priority::Lifecycle)?;
        let found = self.finder.find(request.refs, context.bound, &context.session).await;
        let (results, observed) = found?;
        let observed_at = self.finder.clock.at(observed);
        Ok(Response::new(BatchGetInstancesResponse {
            results,
            scope: self.rpc.scope(),
            cost: Some(context.session.meter().cost(Source::Snapshot, Some(observed_at))),
        }))
    }
}

fn message(frame: Frame<Instance>, rpc: &Rpc) -> WatchInstancesResponse {
    let event = match frame {
        Frame::Reset => Event::Reset(rpc.reset()),
        Frame::Items(items) => Event::Items(InstanceItems { items }),
        Frame::Synced { count, checksum, observed, token } => {
            Event::Synced(Synced { count, checksum, observed_at: Some(rpc.wall(observed)), token })
        }
        Frame::Upsert(instance) => Event::Upsert(instance),
        // A listing that misses it proves nothing: whoever wants to act asks BatchGetInstances.
        Frame::Gone(instance) => {
            Event::Gone(InstanceGone { provider_id: instance.provider_id, evidence: None })
        }
        Frame::Bookmark { observed, token } => {
            Event::Bookmark(Bookmark { observed_at: Some(rpc.wall(observed)), token })
        }
    };
    WatchInstancesResponse { event: Some(event) }
}
