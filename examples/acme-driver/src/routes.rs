//! Routes: reads the listing page by page, and makes many changes in one call.

use cloud_adapter::{
    driver::{Collection, Cursor, Fault, Location, Outcome, Page, RouteChanges, VendorError, WantedRoute},
    vendor::Session,
};
use cloud_api_proto::v1alpha1::{NextHop, Route, RouteState};
use serde::{Deserialize, Serialize};

use crate::{
    AcmeDriver,
    classify::{Refusal, classify_item},
    client::routes::BATCH_ROUTES,
    provider_id,
    tags::{self, Tags},
};

#[derive(Debug, Deserialize)]
pub(crate) struct Entries {
    routes: Vec<Entry>,
    next: Option<String>,
}

/// A route as the cloud returns it.
#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    id: String,
    table: String,
    destination: String,
    next_hop_instance: Option<String>,
    next_hop_address: Option<String>,
    tags: Tags,
    status: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Batch {
    remove: Vec<String>,
    add: Vec<NewEntry>,
}

#[derive(Debug, Serialize)]
struct NewEntry {
    destination: String,
    next_hop_instance: String,
    next_hop_address: Option<String>,
    tags: Tags,
}

/// One result for each change, in the order of the request.
#[derive(Debug, Deserialize)]
pub(crate) struct BatchAnswer {
    removed: Vec<Change>,
    added: Vec<Change>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    Ok(Entry),
    Error(Refusal),
}

impl Collection<Route> for AcmeDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Route>, VendorError> {
        let cursor = cursor.map(Cursor::at);
        let Entries { routes, next } = self.client.list_routes(session, cursor, size).await?;
        let items = routes.iter().map(|entry| route(entry, &self.region)).collect();
        Ok(Page { items, next: next.map(Cursor::from), total: None })
    }
}

impl AcmeDriver {
    /// Executes a batch. Returns the results of the removals, followed by the results of the additions.
    pub(crate) async fn change_routes(
        &self,
        session: &Session,
        changes: &RouteChanges,
    ) -> Result<Outcome, VendorError> {
        let add = changes.add.iter().map(|route| new_entry(route, &self.region)).collect();
        let batch = Batch { remove: changes.remove.clone(), add };
        let BatchAnswer { removed, added } = self.client.batch_routes(session, &batch).await?;
        let removed = removed.into_iter().map(|change| match self.result(change) {
            // Reads may lag behind writes, so the route may be gone already.
            Err(error) if error.fault != Fault::NotFound => Err(error),
            Ok(_) | Err(_) => Ok(None),
        });
        let added = added.into_iter().map(|change| self.result(change).map(Some));
        Ok(Outcome::Items(removed.chain(added).collect()))
    }

    fn result(&self, change: Change) -> Result<Route, VendorError> {
        match change {
            Change::Ok(entry) => Ok(route(&entry, &self.region)),
            Change::Error(refusal) => Err(classify_item(BATCH_ROUTES, refusal)),
        }
    }
}

fn new_entry(route: &WantedRoute, region: &str) -> NewEntry {
    let hop = route.upsert.next_hop.clone().unwrap_or_default();
    NewEntry {
        destination: route.upsert.key.clone().unwrap_or_default().destination,
        next_hop_instance: match provider_id::locate(region, &hop.provider_id) {
            Location::Here(id) => id,
            // The ID is sent unchanged. The cloud does not know it, and refuses only this route of the batch.
            Location::Elsewhere | Location::Malformed => hop.provider_id,
        },
        next_hop_address: Some(hop.address).filter(|address| !address.is_empty()),
        tags: tags::route_tags(route),
    }
}

fn route(entry: &Entry, region: &str) -> Route {
    // With this status, the cloud still names an instance that no longer exists.
    let instance = entry.next_hop_instance.as_ref().filter(|_| entry.status != "blackhole");
    let next_hop = NextHop {
        provider_id: instance.map(|id| provider_id::write(region, id)).unwrap_or_default(),
        address: entry.next_hop_address.clone().unwrap_or_default(),
        interface: String::new(),
    };
    let state = match entry.status.as_str() {
        "active" => RouteState::Active,
        "blackhole" | "error" => RouteState::Blackhole,
        _ => RouteState::Unspecified,
    };
    Route {
        vendor_id: entry.id.clone(),
        key: tags::route_key(&entry.tags, &entry.destination),
        destination: entry.destination.clone(),
        next_hop: Some(next_hop),
        table: entry.table.clone(),
        state: state.into(),
        fence: tags::fence(&entry.tags),
        ..Route::default()
    }
}
