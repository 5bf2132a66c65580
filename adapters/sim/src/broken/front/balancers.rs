//! Injects faults in load balancers. It changes the content of requests, or returns answers that differ from the real state.

mod delete;
mod ensure;
mod list;

use cloud_api_proto::v1alpha1::{
    Backend, BackendList, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
    EnsureLoadBalancerResponse, PutBackendSetRequest, PutBackendSetResponse, WatchLoadBalancersRequest,
    WatchLoadBalancersResponse, load_balancer_service_server::LoadBalancerService,
    put_backend_set_request::Content,
};
use tonic::{Request, Response, Status};

use super::{Front, Stream};
use crate::broken::Fault;

impl Front {
    /// Returns the backend set as the faulty adapter stores it.
    fn kept(&self, content: Content) -> Content {
        let mut content = match content {
            Content::Delta(delta) if self.is(Fault::DeltaIsFull) => {
                Content::Full(BackendList { backends: delta.add })
            }
            other => other,
        };
        if self.is(Fault::UnsetIsZero) {
            let backends: &mut Vec<Backend> = match &mut content {
                Content::Full(list) => &mut list.backends,
                Content::Delta(delta) => &mut delta.add,
            };
            backends.iter_mut().for_each(|one| one.weight = Some(one.weight.unwrap_or_default()));
        }
        content
    }
}

#[tonic::async_trait]
impl LoadBalancerService for Front {
    type WatchLoadBalancersStream = Stream<WatchLoadBalancersResponse>;

    async fn watch_load_balancers(
        &self,
        mut request: Request<WatchLoadBalancersRequest>,
    ) -> Result<Response<Self::WatchLoadBalancersStream>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        self.stream(self.balancers().watch_load_balancers(request).await, self.listed())
    }

    async fn put_backend_set(
        &self,
        mut request: Request<PutBackendSetRequest>,
    ) -> Result<Response<PutBackendSetResponse>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        let content = request.get_mut().content.take();
        request.get_mut().content = content.map(|content| self.kept(content));
        let answer = self.balancers().put_backend_set(request).await;
        let mut answer = answer.map_err(|status| self.reported(status))?;
        self.price(&mut answer.get_mut().cost);
        Ok(answer)
    }

    async fn ensure_load_balancer(
        &self,
        mut request: Request<EnsureLoadBalancerRequest>,
    ) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        self.level(&mut request.get_mut().fence);
        self.ensure(request).await
    }

    async fn delete_load_balancer(
        &self,
        mut request: Request<DeleteLoadBalancerRequest>,
    ) -> Result<Response<DeleteLoadBalancerResponse>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        self.level(&mut request.get_mut().fence);
        self.delete(request).await
    }
}
