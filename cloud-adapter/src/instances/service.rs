//! `InstanceService`: translates between gRPC messages and the snapshot and finder.

use std::{convert::Infallible, sync::Arc};

use cloud_api_proto::v1alpha1::{
    BatchGetInstancesRequest, BatchGetInstancesResponse, Bookmark, Instance, InstanceGone, InstanceItems,
    Priority, Synced, WatchInstancesRequest, WatchInstancesResponse,
    cost::Source,
    instance_service_server::{InstanceService, SERVICE_NAME},
    watch_instances_response::Event,
};
use prost::Message as _;
use tonic::{Request, Response, Status, server::Grpc, service::Routes};
use tower::service_fn;

use super::{
    Finder,
    response::{GetResponse, ResponseCodec},
};
use crate::{
    driver::Driver,
    rpc::{Rpc, Stream, stream},
    snapshot::{Frame, Watcher},
};

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
            self.rpc.cloud_context(request.context, &metadata, &extensions, Priority::Background)?;
        let options =
            self.rpc.watch_options(&context, request.stop_when_synced, request.resume_token, "instances");
        let watcher = Watcher::new(
            Arc::clone(&self.finder.snapshot),
            options,
            |i: &Instance| Some(i.clone()),
            |i| &i.provider_id,
        )?;
        let rpc = self.rpc.clone();
        Ok(Response::new(stream("WatchInstances", &self.rpc, watcher, move |frame| message(frame, &rpc))?))
    }

    async fn batch_get_instances(
        &self,
        request: Request<BatchGetInstancesRequest>,
    ) -> Result<Response<BatchGetInstancesResponse>, Status> {
        // Requests from the network never reach this method, because the route that [`shared`] adds answers them.
        let answer = self.batch(request).await?.into_inner().encode_to_vec();
        let answer = BatchGetInstancesResponse::decode(answer.as_slice());
        Ok(Response::new(answer.map_err(|error| Status::internal(error.to_string()))?))
    }
}

impl<D: Driver> Service<D> {
    async fn batch(
        &self,
        request: Request<BatchGetInstancesRequest>,
    ) -> Result<Response<GetResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context = self.rpc.cloud_context(request.context, &metadata, &extensions, Priority::Lifecycle)?;
        let (results, observed) = self.finder.find(request.refs, context.bound, &context.session).await?;
        let observed_at = self.finder.clock.at(observed);
        let cost = context.session.meter().cost(Source::Snapshot, Some(observed_at));
        Ok(Response::new(GetResponse { results, scope: self.rpc.scope(), cost: Some(cost) }))
    }
}

/// Serves `BatchGetInstances` without copying instances. This route takes precedence over the generated server, whose answers must own
/// their content.
pub(crate) fn shared<D: Driver>(routes: Routes, service: Arc<Service<D>>) -> Routes {
    let answered = service_fn(move |request: http::Request<axum::body::Body>| {
        let service = Arc::clone(&service);
        let batch = service_fn(move |request| {
            let service = Arc::clone(&service);
            async move { service.batch(request).await }
        });
        async move { Ok::<_, Infallible>(Grpc::new(ResponseCodec).unary(batch, request).await) }
    });
    let path = format!("/{SERVICE_NAME}/BatchGetInstances");
    routes.into_axum_router().route_service(&path, answered).into()
}

fn message(frame: Frame<Instance>, rpc: &Rpc) -> WatchInstancesResponse {
    let event = match frame {
        Frame::Reset => Event::Reset(rpc.reset()),
        Frame::Items(items) => Event::Items(InstanceItems { items }),
        Frame::Synced { count, checksum, observed, token } => {
            Event::Synced(Synced { count, checksum, observed_at: Some(rpc.wall(observed)), token })
        }
        Frame::Upsert(instance) => Event::Upsert(instance),
        // Absence in a listing proves nothing. Callers that act on absence use BatchGetInstances.
        Frame::Gone(instance) => {
            Event::Gone(InstanceGone { provider_id: instance.provider_id, evidence: None })
        }
        Frame::Bookmark { observed, token } => {
            Event::Bookmark(Bookmark { observed_at: Some(rpc.wall(observed)), token })
        }
    };
    WatchInstancesResponse { event: Some(event) }
}
