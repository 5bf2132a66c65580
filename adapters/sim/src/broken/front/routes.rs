//! Injects faults in routes, such as wrong ownership and wrong outcomes.

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        ApplyRoutesRequest, ApplyRoutesResponse, RouteKey, RouteResult, WatchRoutesRequest,
        WatchRoutesResponse, route_result::Outcome, route_service_server::RouteService,
    },
};
use ipnet::IpNet;
use tonic::{Request, Response, Status};

use super::{Front, Stream};
use crate::broken::Fault;

/// The maximum number of routes in one vendor call.
const ROUTES_MAX: usize = 100;

impl Front {
    /// Records the routes that the adapter treats as its own, and their networks.
    fn claim(&self, request: &mut ApplyRoutesRequest) {
        if self.is(Fault::RemovesForeignRoutes) {
            let networks = request.cluster_cidrs.iter().filter_map(|cidr| cidr.parse::<IpNet>().ok());
            self.memory.notes().networks.extend(networks);
        }
        let keys: Vec<RouteKey> = match self.fault {
            Fault::TakesOverRoutes => request.upserts.iter().filter_map(|one| one.key.clone()).collect(),
            Fault::DeletesUnownedRoutes => request.deletes.iter().filter_map(|one| one.key.clone()).collect(),
            _ => return,
        };
        self.memory.notes().routes.extend(keys.into_iter().map(|key| (key.destination.clone(), key)));
        if let Some(context) = &mut request.context {
            context.max_staleness = Some(prost_types::Duration::default());
        }
    }

    /// Drops the routes that do not fit into one vendor call, and returns the number of dropped routes.
    fn lose_late(&self, request: &mut ApplyRoutesRequest) -> usize {
        let late = request.upserts.len().saturating_sub(ROUTES_MAX);
        if !self.is(Fault::LosesLateRoutes) {
            return 0;
        }
        request.upserts.truncate(ROUTES_MAX);
        late
    }

    fn applied(&self, answer: &mut ApplyRoutesResponse) -> Result<(), Status> {
        for result in &mut answer.results {
            match result.outcome() {
                Outcome::Unchanged if self.is(Fault::UnchangedAsApplied) => {
                    result.set_outcome(Outcome::Applied);
                }
                Outcome::Failed | Outcome::Conflict if self.is(Fault::BadRouteFailsTheBatch) => {
                    let error = result.error.take().unwrap_or_default();
                    return Err(AdapterError::new(error.reason(), error.message).into());
                }
                _ => (),
            }
        }
        self.price(&mut answer.cost);
        Ok(())
    }
}

#[tonic::async_trait]
impl RouteService for Front {
    type WatchRoutesStream = Stream<WatchRoutesResponse>;

    async fn watch_routes(
        &self,
        mut request: Request<WatchRoutesRequest>,
    ) -> Result<Response<Self::WatchRoutesStream>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        self.stream(self.route_table().watch_routes(request).await, Some)
    }

    async fn apply_routes(
        &self,
        mut request: Request<ApplyRoutesRequest>,
    ) -> Result<Response<ApplyRoutesResponse>, Status> {
        self.admit(&mut request, |message| &mut message.context)?;
        self.level(&mut request.get_mut().fence);
        self.claim(request.get_mut());
        let late = self.lose_late(request.get_mut());
        let answer = self.route_table().apply_routes(request).await;
        let mut answer = answer.map_err(|status| self.reported(status))?;
        let applied = RouteResult { outcome: Outcome::Applied.into(), ..RouteResult::default() };
        answer.get_mut().results.extend(std::iter::repeat_n(applied, late));
        self.applied(answer.get_mut())?;
        Ok(answer)
    }
}
