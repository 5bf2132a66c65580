//! A health service that always answers SERVING.

use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};

use super::Stream;

/// Answers SERVING.
#[derive(Debug)]
pub(super) struct Serving;

pub(super) fn always_serving() -> HealthServer<Serving> {
    HealthServer::new(Serving)
}

fn answer() -> HealthCheckResponse {
    HealthCheckResponse { status: ServingStatus::Serving.into() }
}

#[tonic::async_trait]
impl Health for Serving {
    type WatchStream = Stream<HealthCheckResponse>;

    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(answer()))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let first = futures::stream::iter([Ok(answer())]);
        Ok(Response::new(Box::pin(futures::StreamExt::chain(first, futures::stream::pending()))))
    }
}
