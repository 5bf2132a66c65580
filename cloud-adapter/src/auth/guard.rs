//! The gate as a tower service. The service answers refused requests, and adds the [`crate::auth::Caller`] to admitted requests.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use tonic::{Status, body::Body, codegen::StdError};
use tower::Service;

use crate::auth::{
    Gate,
    body::{BodyMemory, Bounded},
    connection::Peer,
};

/// A tower service that wraps the gRPC services.
#[derive(Clone, Debug)]
pub struct Guard<S> {
    services: S,
    gate: Arc<Gate>,
    room: Arc<BodyMemory>,
}

impl<S> Guard<S> {
    /// Passes requests that the gate admits to `services`.
    #[must_use]
    pub fn new(services: S, gate: Gate) -> Self {
        Self { services, gate: Arc::new(gate), room: Arc::default() }
    }
}

impl<S, B, A> Service<Request<B>> for Guard<S>
where
    S: Service<Request<Bounded<B>>, Response = Response<A>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError>,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<StdError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.services.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let ready = self.services.clone();
        let mut services = std::mem::replace(&mut self.services, ready);
        let (gate, room) = (Arc::clone(&self.gate), Arc::clone(&self.room));
        Box::pin(async move {
            if let Some(refusal) = no_grpc(&request) {
                return Ok(refusal);
            }
            let (mut head, body) = request.into_parts();
            match gate.admit(head.uri.path(), &head.headers, &head.extensions).await {
                Err(error) => Ok(Status::from(error).into_http()),
                Ok(caller) => {
                    if let Some(peer) = head.extensions.get::<Peer>() {
                        peer.known();
                    }
                    head.extensions.insert(caller);
                    // The services need the path for the log of refusals, but tonic does not pass it to them.
                    head.extensions.insert(head.uri.clone());
                    let body = match Bounded::begun(body, room).await {
                        Ok(body) => body,
                        Err(refusal) => return Ok(refusal.into_http()),
                    };
                    let answer = services.call(Request::from_parts(head, body)).await?;
                    Ok(answer.map(Body::new))
                }
            }
        })
    }
}

/// Returns the response to a request that is not gRPC. Source: gRPC over HTTP/2, "Requests".
fn no_grpc<B>(request: &Request<B>) -> Option<Response<Body>> {
    let content = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let status = if request.method() != Method::POST {
        StatusCode::METHOD_NOT_ALLOWED
    } else if !content.starts_with(b"application/grpc") {
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    } else {
        return None;
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    Some(response)
}
