//! Implements the RPCs for routes. Changes of routes take effect at once, or after the time that the test has set. A route to the
//! destination of a foreign route is a conflict.

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        ApplyRoutesRequest, ApplyRoutesResponse, Cost, PlannedStep, Route, RouteDelete, RouteGone,
        RouteItems, RouteKey, RouteOwner, RouteResult, RouteState, RouteUpsert, WatchRoutesRequest,
        WatchRoutesResponse, route_result::Outcome, route_service_server::RouteService,
        watch_routes_response::Event,
    },
};
use tonic::{Request, Response};

use super::{
    Messages, RpcResult, Service, State,
    watch::{StreamEvent, watch},
};

#[tonic::async_trait]
impl RouteService for Service {
    type WatchRoutesStream = Messages<WatchRoutesResponse>;

    async fn watch_routes(&self, request: Request<WatchRoutesRequest>) -> RpcResult<Self::WatchRoutesStream> {
        self.0.called("WatchRoutes")?.route_watches.push(request.into_inner());
        Ok(Response::new(watch(&self.0, |state| state.routes.clone(), message)))
    }

    async fn apply_routes(&self, request: Request<ApplyRoutesRequest>) -> RpcResult<ApplyRoutesResponse> {
        let request = request.into_inner();
        self.0.takes_its_time("ApplyRoutes").await;
        let results = {
            let mut state = self.0.called("ApplyRoutes")?;
            if request.dry_run {
                return Ok(Response::new(would_apply(&mut state, request)));
            }
            state.route_changes.push(request.clone());
            let upserts: Vec<_> = request.upserts.into_iter().map(|item| upsert(&mut state, item)).collect();
            let deletes: Vec<_> = request.deletes.into_iter().map(|item| delete(&mut state, item)).collect();
            [upserts, deletes].concat()
        };
        self.0.changed.send_replace(());
        Ok(Response::new(ApplyRoutesResponse { results, cost: Some(Cost::default()), plan: Vec::new() }))
    }
}

/// Plans a single call that creates or deletes all routes. Only conflicts with foreign routes are checked.
fn would_apply(state: &mut State, request: ApplyRoutesRequest) -> ApplyRoutesResponse {
    state.dry_runs.push("ApplyRoutes");
    let (add, remove) = (request.upserts.len(), request.deletes.len());
    let upserts = request.upserts.into_iter().map(|item| match in_the_way(state, item.key.as_ref()) {
        Some(error) => result(item.key, Outcome::Conflict, Some(error)),
        None => result(item.key, Outcome::Pending, None),
    });
    let results: Vec<RouteResult> = upserts
        .chain(request.deletes.into_iter().map(|item| result(item.key, Outcome::Pending, None)))
        .collect();
    let some = results.iter().any(|it| it.outcome() == Outcome::Pending);
    let step = PlannedStep {
        description: format!("add {add} and remove {remove} routes"),
        operation: "BatchRoutes".to_owned(),
        family: "network".to_owned(),
    };
    ApplyRoutesResponse {
        results,
        cost: Some(Cost::default()),
        plan: some.then_some(step).into_iter().collect(),
    }
}

/// Returns the error if a foreign route has the same destination. `None`: there is no conflict.
fn in_the_way(state: &State, key: Option<&RouteKey>) -> Option<AdapterError> {
    let to = &key?.destination;
    let foreign = |other: &Route| other.destination == *to && other.owner() != RouteOwner::Mine;
    let some = state.routes.values().any(foreign);
    some.then(|| AdapterError::new(Reason::OwnedByOther, format!("{to} is routed already")))
}

fn upsert(state: &mut State, item: RouteUpsert) -> RouteResult {
    let key = item.key.clone().unwrap_or_default();
    let route = Route {
        vendor_id: format!("route-{}-{}", key.node_uid, key.destination),
        key: item.key.clone(),
        destination: key.destination,
        next_hop: item.next_hop,
        table: String::new(),
        state: RouteState::Active.into(),
        owner: RouteOwner::Mine.into(),
        fence: None,
    };
    if let Some(error) = in_the_way(state, item.key.as_ref()) {
        return result(item.key, Outcome::Conflict, Some(error));
    }
    let old = state.routes.insert(route.vendor_id.clone(), route.clone());
    result(item.key, if old == Some(route) { Outcome::Unchanged } else { Outcome::Applied }, None)
}

fn delete(state: &mut State, item: RouteDelete) -> RouteResult {
    let before = state.routes.len();
    let destination = item.key.as_ref().map(|key| key.destination.as_str());
    let goes = |route: &Route| match route.owner() {
        RouteOwner::Mine => route.key == item.key,
        RouteOwner::Unmanaged => {
            item.next_hop.is_some()
                && route.next_hop == item.next_hop
                && destination == Some(&route.destination)
        }
        RouteOwner::OtherCluster | RouteOwner::Unspecified => false,
    };
    state.routes.retain(|_, route| !goes(route));
    let outcome = if state.routes.len() < before { Outcome::Applied } else { Outcome::Unchanged };
    result(item.key, outcome, None)
}

fn result(key: Option<RouteKey>, outcome: Outcome, error: Option<AdapterError>) -> RouteResult {
    let error = error.map(|error| error.to_item());
    RouteResult { key, outcome: outcome.into(), error, retry_after: None }
}

fn message(change: StreamEvent<Route>) -> WatchRoutesResponse {
    let event = match change {
        StreamEvent::Reset(reset) => Event::Reset(reset),
        StreamEvent::Items(items) => Event::Items(RouteItems { items }),
        StreamEvent::Synced(synced) => Event::Synced(synced),
        StreamEvent::Upsert(route) => Event::Upsert(route),
        StreamEvent::Gone(vendor_id) => Event::Gone(RouteGone { vendor_id }),
        StreamEvent::Bookmark(bookmark) => Event::Bookmark(bookmark),
    };
    WatchRoutesResponse { event: Some(event) }
}
