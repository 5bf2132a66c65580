//! The layer in front of the services. It forwards requests and answers, and changes some of them. Each service has its own file; this file
//! has the shared code.

mod adapter;
mod balancers;
mod errors;
mod health;
mod instances;
mod routes;
mod stream;

use std::{pin::Pin, sync::Arc};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        Cost, Fence, Priority, RequestContext, adapter_service_client::AdapterServiceClient,
        adapter_service_server::AdapterServiceServer, instance_service_client::InstanceServiceClient,
        instance_service_server::InstanceServiceServer,
        load_balancer_service_client::LoadBalancerServiceClient,
        load_balancer_service_server::LoadBalancerServiceServer, route_service_client::RouteServiceClient,
        route_service_server::RouteServiceServer,
    },
};
use tonic::{Request, Status, service::Routes};

use super::{Fault, memory::Memory};

type Stream<M> = Pin<Box<dyn futures::Stream<Item = Result<M, Status>> + Send>>;

/// The layer that injects the fault. `good`: the services without the fault.
#[derive(Clone, Debug)]
pub(super) struct Front {
    fault: Fault,
    memory: Arc<Memory>,
    good: Routes,
}

impl Front {
    pub(super) fn new(fault: Fault, memory: Arc<Memory>, good: Routes) -> Self {
        Self { fault, memory, good }
    }

    /// Builds the router with the faulty services. All other services are unchanged.
    pub(super) fn routes(self) -> Routes {
        let mut routes = Routes::new(AdapterServiceServer::new(self.clone()))
            .add_service(InstanceServiceServer::new(self.clone()))
            .add_service(LoadBalancerServiceServer::new(self.clone()))
            .add_service(RouteServiceServer::new(self.clone()));
        if self.is(Fault::HealthAlwaysServing) {
            routes = routes.add_service(health::always_serving());
        }
        if self.is(Fault::NoReflection) {
            return routes;
        }
        routes.into_axum_router().fallback_service(self.good.prepare()).into()
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn info(&self) -> AdapterServiceClient<Routes> {
        AdapterServiceClient::new(self.good.clone())
    }

    fn instances(&self) -> InstanceServiceClient<Routes> {
        InstanceServiceClient::new(self.good.clone())
    }

    fn balancers(&self) -> LoadBalancerServiceClient<Routes> {
        LoadBalancerServiceClient::new(self.good.clone())
    }

    fn route_table(&self) -> RouteServiceClient<Routes> {
        RouteServiceClient::new(self.good.clone())
    }

    /// Applies the faults that concern every request, by changing or refusing the request.
    fn admit<T>(
        &self,
        request: &mut Request<T>,
        context: impl FnOnce(&mut T) -> &mut Option<RequestContext>,
    ) -> Result<(), Status> {
        let bearer = request.metadata().get("authorization").is_some();
        if self.is(Fault::IgnoresRoles) && !bearer && self.memory.notes().callers_prove {
            return Err(AdapterError::new(cloud_api_proto::Reason::CallerUnauthenticated, "no token").into());
        }
        if self.is(Fault::IgnoresDeadlines) {
            request.metadata_mut().remove("grpc-timeout");
        }
        let Some(context) = context(request.get_mut()) else { return Ok(()) };
        if self.is(Fault::StrictEnums) && Priority::try_from(context.priority).is_err() {
            return Err(AdapterError::field("context.priority", "unknown value").into());
        }
        Ok(())
    }

    /// Sets the same fence on all requests, so that no request is older than another.
    fn level(&self, fence: &mut Option<Fence>) {
        if self.is(Fault::IgnoresFences)
            && let Some(fence) = fence
        {
            (fence.epoch, fence.sequence) = (i64::MAX.unsigned_abs(), 1);
        }
    }

    fn price(&self, cost: &mut Option<Cost>) {
        let Some(cost) = cost else { return };
        if self.is(Fault::CostIsZero) {
            (cost.vendor_calls, cost.calls_by_family) = (0, Default::default());
        }
        if self.is(Fault::CostTooLow) {
            cost.vendor_calls = cost.vendor_calls.min(1);
            cost.calls_by_family.values_mut().for_each(|calls| *calls = (*calls).min(1));
        }
    }
}

/// Returns a request with another message from the same caller, but without a deadline.
fn beside<T, U>(request: &Request<T>, message: U) -> Request<U> {
    let mut other = Request::from_parts(request.metadata().clone(), request.extensions().clone(), message);
    other.metadata_mut().remove("grpc-timeout");
    other
}
