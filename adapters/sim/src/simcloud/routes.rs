//! The project's only route table. Each item of a batch succeeds or fails on its own.

use http::StatusCode;
use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::json;

use super::Moment;
use super::error::ApiError;
use super::model::{Route, RouteStatus};
use super::quota;
use super::requests::{AddRoute, BatchRoutes, BatchRoutesAnswer, ItemError, RouteResult};
use super::table::{PageRequest, Table, Write};

pub(super) const BATCH_MAX: usize = 200;

const TABLE: &str = "main";

#[derive(Debug)]
pub(super) struct Routes {
    table: Table<Route>,
}

pub(super) struct RouteRules<'a> {
    pub(super) quota: usize,
    pub(super) created_at: Timestamp,
    pub(super) write: Write,
    pub(super) status: RouteStatus,
    /// A function that returns whether an instance exists.
    pub(super) instance_exists: &'a dyn Fn(&str) -> bool,
}

impl Routes {
    pub(super) const fn new() -> Self {
        Self { table: Table::new("rt") }
    }

    /// Returns one page of routes. The status of a route depends on whether its instance exists.
    pub(super) fn list(
        &self,
        page: PageRequest<'_>,
        now: Moment,
        instance_exists: &dyn Fn(&str) -> bool,
    ) -> Result<(Vec<Route>, Option<String>), ApiError> {
        let page = self.table.page(page, now, |_| true)?;
        let routes = page.items.iter().map(|route| with_status(route, instance_exists)).collect();
        Ok((routes, page.next))
    }

    pub(super) fn all(&self, instance_exists: &dyn Fn(&str) -> bool) -> Vec<Route> {
        self.table.truths().map(|(_, route)| with_status(route, instance_exists)).collect()
    }

    pub(super) fn batch(
        &mut self,
        batch: &BatchRoutes,
        rules: &RouteRules<'_>,
    ) -> Result<BatchRoutesAnswer, ApiError> {
        let items = batch.add.len().saturating_add(batch.remove.len());
        if items > BATCH_MAX {
            let message = format!(
                "at most {BATCH_MAX} routes fit into one batch, not {items}; send the rest in another"
            );
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "too_many_items", message)
                .with(json!({ "limit": BATCH_MAX, "items": items })));
        }
        let removed = batch.remove.iter().map(|id| answer(self.remove(id, rules.write))).collect();
        let added = batch.add.iter().map(|route| answer(self.add(route, rules))).collect();
        Ok(BatchRoutesAnswer { added, removed })
    }

    fn remove(&mut self, id: &str, write: Write) -> Result<Route, ApiError> {
        let serial = self.table.serial(id).ok_or_else(|| ApiError::not_found("route", id))?;
        let route = self.table.truth(serial).ok_or_else(|| ApiError::not_found("route", id))?;
        let route = Route::clone(route);
        self.table.remove(serial, write);
        Ok(route)
    }

    fn add(&mut self, route: &AddRoute, rules: &RouteRules<'_>) -> Result<Route, ApiError> {
        check(route, rules)?;
        if let Some((_, other)) =
            self.table.truths().find(|(_, other)| other.destination == route.destination)
        {
            let message =
                format!("the route {} to {} already exists; remove it first", other.id, other.destination);
            return Err(ApiError::conflict("route_exists", message).with(json!({ "id": other.id })));
        }
        quota::check("routes", rules.quota, self.table.truths().count(), 1)?;
        let (serial, id) = self.table.reserve();
        let route = Route {
            id,
            table: TABLE.to_owned(),
            destination: route.destination,
            next_hop_instance: route.next_hop_instance.clone(),
            next_hop_address: route.next_hop_address,
            tags: route.tags.clone(),
            status: rules.status,
            created_at: rules.created_at,
        };
        self.table.put(serial, route.clone(), rules.write);
        Ok(route)
    }
}

fn check(route: &AddRoute, rules: &RouteRules<'_>) -> Result<(), ApiError> {
    let AddRoute { destination, next_hop_instance, next_hop_address, .. } = route;
    let network = destination.trunc();
    if network != *destination {
        return Err(ApiError::invalid(
            "destination",
            format!("{destination} has host bits, did you mean '{network}'?"),
        ));
    }
    if next_hop_instance.is_none() && next_hop_address.is_none() {
        return Err(ApiError::invalid(
            "next_hop_instance",
            "set next_hop_instance, next_hop_address, or both",
        ));
    }
    if let Some(address) = next_hop_address
        && address.is_ipv4() != matches!(destination, IpNet::V4(_))
    {
        return Err(ApiError::invalid(
            "next_hop_address",
            format!("{address} is of another family than {destination}"),
        ));
    }
    if let Some(instance) = next_hop_instance
        && !(rules.instance_exists)(instance)
    {
        let message = format!("next_hop_instance: instance {instance} not found in this project");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid_next_hop", message)
            .with(json!({ "field": "next_hop_instance" })));
    }
    Ok(())
}

fn with_status(route: &Route, instance_exists: &dyn Fn(&str) -> bool) -> Route {
    let mut route = route.clone();
    if route.next_hop_instance.as_deref().is_some_and(|instance| !instance_exists(instance)) {
        route.status = RouteStatus::Blackhole;
    }
    route
}

fn answer(result: Result<Route, ApiError>) -> RouteResult {
    match result {
        Ok(route) => RouteResult::Ok(route),
        Err(ApiError { code, message, details, .. }) => {
            RouteResult::Error(ItemError { code: code.to_owned(), message, details })
        }
    }
}
