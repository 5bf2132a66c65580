//! `RouteService`: converts gRPC requests to validated orders, and the results of the orders to answers.

use std::{sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        ApplyRoutesRequest, ApplyRoutesResponse, Bookmark, NextHop, Priority, Route, RouteGone, RouteItems,
        RouteKey, RouteOwner, RouteUpsert, Synced, WatchRoutesRequest, WatchRoutesResponse, cost::Source,
        route_service_server::RouteService, watch_routes_response::Event,
    },
};
use ipnet::IpNet;
use telemetry::traces;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use super::{
    Applied, Applier, ITEMS_MAX, Order, plan,
    plan::{Item, Verdict},
};
use crate::{
    context::Context,
    driver::Driver,
    rpc::{Rpc, Stream, stream},
    snapshot::{Frame, Watcher},
    strings,
};

/// The margin of an answer before its deadline, and the interval at which callers poll.
const MARGIN: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_secs(1);

/// The object name of all routes. One sequence of fences covers all routes, and the calls for all routes are queued as calls for one
/// object.
const OBJECT: &str = "Routes";

#[derive(Debug)]
pub(crate) struct Service<D> {
    pub(crate) applier: Arc<Applier<D>>,
    pub(crate) rpc: Rpc,
}

#[tonic::async_trait]
impl<D: Driver> RouteService for Service<D> {
    type WatchRoutesStream = Stream<WatchRoutesResponse>;

    async fn watch_routes(
        &self,
        request: Request<WatchRoutesRequest>,
    ) -> Result<Response<Self::WatchRoutesStream>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context, &metadata, &extensions, Priority::Background)?;
        let cidrs = cidrs("cluster_cidrs", &request.cluster_cidrs)?;
        let name = format!("routes/{}/{}", context.cluster_id, request.cluster_cidrs.join(","));
        let options = self.rpc.watch_options(&context, request.stop_when_synced, request.resume_token, &name);
        let snapshot = Arc::clone(&self.applier.snapshot);
        let view = move |route: &Route| seen(route, &context.cluster_id, &cidrs);
        let watcher = Watcher::new(snapshot, options, view, |route: &Route| &route.vendor_id)?;
        let rpc = self.rpc.clone();
        Ok(Response::new(stream("WatchRoutes", &self.rpc, watcher, move |frame| message(frame, &rpc))?))
    }

    async fn apply_routes(
        &self,
        request: Request<ApplyRoutesRequest>,
    ) -> Result<Response<ApplyRoutesResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context.clone(), &metadata, &extensions, Priority::Traffic)?;
        let fence = request.fence.clone().unwrap_or_default();
        let applied = self.apply(request, &context).await;
        if applied.as_ref().is_err_and(|error| error.reason == Reason::StaleFence) {
            self.rpc.metrics.fence_rejected(&fence.scope);
        }
        let Applied { results, plan } = applied?;
        let cost = Some(context.session.meter().cost(Source::Snapshot, None));
        Ok(Response::new(ApplyRoutesResponse { results, cost, plan }))
    }
}

impl<D: Driver> Service<D> {
    /// Executes an order in a separate task, on a session without a deadline. So a client that disconnects interrupts nothing.
    async fn apply(&self, request: ApplyRoutesRequest, context: &Context) -> Result<Applied, AdapterError> {
        self.rpc.may_change(context, request.dry_run, request.fence.as_ref())?;
        let fence = request.fence.clone();
        let order = order(request, context)?.spelled(|id| self.applier.driver.spelled(id));
        if order.fence.is_some() {
            self.applier.fences.admit(&order.cluster_id, fence.as_ref(), OBJECT)?;
        }
        let keys: Vec<RouteKey> = order.items.iter().map(Item::key).collect();
        let (applier, session) = (Arc::clone(&self.applier), context.session.patient().about(OBJECT));
        let slot = applier.slots.take()?;
        let task = async move {
            let applied = applier.apply(&order, &session).await;
            drop(slot);
            applied
        };
        let span =
            traces::child(traces::span!("converge", otel.name = "converge routes", routes = keys.len()));
        let task = self.applier.tracker.spawn(task.instrument(span));
        let until = context.deadline.checked_sub(MARGIN).unwrap_or(context.deadline);
        match tokio::time::timeout_at(until, task).await {
            Ok(Ok(applied)) => applied,
            Ok(Err(_panicked)) => Err(AdapterError::new(Reason::Internal, "cannot apply routes")),
            Err(_elapsed) => {
                let results = keys.iter().map(|key| Verdict::pending(key, AGAIN).result()).collect();
                Ok(Applied { results, plan: Vec::new() })
            }
        }
    }
}

/// Returns the route as this cluster sees it. `None`: the cluster does not see the route, because it neither owns the route nor has a CIDR
/// that overlaps it.
fn seen(route: &Route, cluster_id: &str, cidrs: &[IpNet]) -> Option<Route> {
    let owner = plan::owner(route, cluster_id);
    let overlaps = || {
        let to: Option<IpNet> = route.destination.parse().ok();
        to.is_some_and(|to| cidrs.iter().any(|cidr| cidr.contains(&to) || to.contains(cidr)))
    };
    (owner == RouteOwner::Mine || overlaps()).then(|| Route { owner: owner.into(), ..route.clone() })
}

fn order(request: ApplyRoutesRequest, context: &Context) -> Result<Order, AdapterError> {
    let items = request.upserts.len() + request.deletes.len();
    if items > ITEMS_MAX {
        return Err(AdapterError::field(
            "upserts",
            format!("has {items} items, deletes included: at most {ITEMS_MAX} are allowed"),
        ));
    }
    let cluster_cidrs = cidrs("cluster_cidrs", &request.cluster_cidrs)?;
    if cluster_cidrs.is_empty() && !request.upserts.is_empty() {
        return Err(AdapterError::field(
            "cluster_cidrs",
            "is empty: set the cluster's CIDRs, outside \
        of which no route is created",
        ));
    }
    let upserts = request.upserts.into_iter().enumerate().map(|(at, upsert)| {
        let key = upsert.key.clone().unwrap_or_default();
        match checked(&format!("upserts[{at}]"), &upsert, &context.cluster_id) {
            Ok(destination) => Item::Upsert { destination, upsert },
            Err(error) => Item::Bad { key, error },
        }
    });
    let deletes = request.deletes.into_iter().enumerate().map(|(at, delete)| {
        let key = delete.key.unwrap_or_default();
        match destination(&format!("deletes[{at}]"), &key, &context.cluster_id) {
            Ok(destination) => Item::Delete { destination, key, next_hop: delete.next_hop },
            Err(error) => Item::Bad { key, error },
        }
    });
    Ok(Order {
        cluster_id: context.cluster_id.clone(),
        cluster_name: context.cluster_name.clone(),
        cluster_cidrs,
        items: upserts.chain(deletes).collect(),
        fence: (!request.dry_run).then(|| request.fence.unwrap_or_default()),
    })
}

fn checked(item: &str, upsert: &RouteUpsert, cluster_id: &str) -> Result<IpNet, AdapterError> {
    let destination = destination(item, &upsert.key.clone().unwrap_or_default(), cluster_id)?;
    if upsert.next_hop.as_ref().is_none_or(|hop| hop.provider_id.is_empty()) {
        return Err(AdapterError::field(format!("{item}.next_hop.provider_id"), "is empty"));
    }
    let hop = upsert.next_hop.iter().flat_map(|hop| {
        let NextHop { provider_id, address, interface } = hop;
        let fields = [("provider_id", provider_id.as_str()), ("address", address), ("interface", interface)];
        strings::too_long(format_args!("{item}.next_hop"), fields)
    });
    let owner =
        upsert.owner.iter().flat_map(|owner| strings::too_long_of_owner(&format!("{item}.owner"), owner));
    strings::refuse(hop.chain(owner).collect())?;
    Ok(destination)
}

fn destination(item: &str, key: &RouteKey, cluster_id: &str) -> Result<IpNet, AdapterError> {
    if key.cluster_id != cluster_id {
        return Err(AdapterError::field(format!("{item}.key.cluster_id"), "differs from context.cluster_id"));
    }
    if key.node_uid.is_empty() {
        return Err(AdapterError::field(format!("{item}.key.node_uid"), "is empty"));
    }
    strings::refuse(strings::too_long(format_args!("{item}.key"), [("node_uid", key.node_uid.as_str())]))?;
    cidr(&format!("{item}.key.destination"), &key.destination)
}

fn cidrs(field: &str, texts: &[String]) -> Result<Vec<IpNet>, AdapterError> {
    texts.iter().enumerate().map(|(at, text)| cidr(&format!("{field}[{at}]"), text)).collect()
}

fn cidr(field: &str, text: &str) -> Result<IpNet, AdapterError> {
    let net: IpNet = text.parse().map_err(|_invalid| {
        AdapterError::field(field, format!("invalid CIDR {text:?}: use a form such as 10.244.1.0/24"))
    })?;
    if net != net.trunc() {
        let text = format!("{text:?} has host bits: write {}", net.trunc());
        return Err(AdapterError::field(field, text));
    }
    Ok(net)
}

fn message(frame: Frame<Route>, rpc: &Rpc) -> WatchRoutesResponse {
    let event = match frame {
        Frame::Reset => Event::Reset(rpc.reset()),
        Frame::Items(items) => Event::Items(RouteItems { items }),
        Frame::Synced { count, checksum, observed, token } => {
            Event::Synced(Synced { count, checksum, observed_at: Some(rpc.wall(observed)), token })
        }
        Frame::Upsert(route) => Event::Upsert(route),
        Frame::Gone(route) => Event::Gone(RouteGone { vendor_id: route.vendor_id }),
        Frame::Bookmark { observed, token } => {
            Event::Bookmark(Bookmark { observed_at: Some(rpc.wall(observed)), token })
        }
    };
    WatchRoutesResponse { event: Some(event) }
}
