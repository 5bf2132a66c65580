//! Pod routes. Pod routes are the extra routes of one router, and consist only of a destination and a next hop. The ports in the router's
//! subnets show which server has the next hop as its address.
//!
//! Neutron's routes have no field for an owner. A route has no owner until a caller states that the route leads to the server of a certain
//! node.

mod change;
mod plan;
mod table;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use cloud_adapter::{
    driver::{Collection, Cursor, Fault, Page, VendorError},
    vendor::Session,
};
use cloud_api_proto::v1alpha1::Route;

use self::table::Table;
use crate::{
    OpenStackDriver,
    api::router::{Port, Router},
    client::{self, routers::RouterPorts},
};

/// The maximum number of routes in one call. Each new server among the next hops needs a separate write, and all writes share the deadline
/// of the call.
pub(crate) const BATCH: u32 = 50;

/// The prefix of the cursor for a page of ports. In the first of these cursors, no query follows the prefix.
const PORTS: &str = "ports?";

#[derive(Debug)]
pub(crate) struct Routes {
    /// ID of the router. `None`: routes are not managed.
    router: Option<String>,
    can: OnceLock<Can>,
}

/// The supported Neutron extensions. They are read only once, because they change only when Neutron is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Can {
    /// Whether Neutron can add and remove single routes, so that clients do not overwrite each other's routes.
    atomic: bool,
    /// Whether servers can be allowed to send from additional addresses.
    pairs: bool,
}

impl Routes {
    pub(crate) fn new(router: Option<String>) -> Self {
        Self { router, can: OnceLock::new() }
    }

    pub(crate) fn capabilities(&self) -> &'static [&'static str] {
        if self.router.is_some() { &["routes"] } else { &[] }
    }

    fn router(&self) -> Result<&str, VendorError> {
        let none = || {
            VendorError::new(
                Fault::Unsupported,
                "routes are not enabled: set adapter.openstack.routerId of the chart (--router-id)",
            )
        };
        self.router.as_deref().ok_or_else(none)
    }
}

/// Earlier pages of a listing. The pages are shared, because each later cursor holds all earlier pages.
#[derive(Clone, Debug, Default)]
struct Sweep {
    router: Arc<Router>,
    ports: Vec<Arc<[Port]>>,
}

impl OpenStackDriver {
    fn listed(&self, sweep: &Sweep, can: Can) -> Result<Vec<Route>, VendorError> {
        let place = self.place();
        let table = Table::new(self.routes.router()?, sweep.ports.iter().flat_map(|page| page.iter()));
        Ok(sweep.router.routes.iter().map(|route| table.route(route, &place, can)).collect())
    }
}

/// Turns the absence of the router into an error about `--router-id`. If the router is missing, no route is proven to be absent.
fn misnamed(error: VendorError) -> VendorError {
    if error.fault != Fault::NotFound {
        return error;
    }
    VendorError { fault: Fault::Forbidden, message: format!("--router-id: {}", error.message), ..error }
}

impl Collection<Route> for OpenStackDriver {
    /// Lists the router first, and then the project's ports, page by page. If the router has no routes, the listing costs one call. The
    /// first listing also reads Neutron's extensions.
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Route>, VendorError> {
        let whole = |items| Page { items, next: None, total: None };
        let Some(query) = cursor.and_then(|cursor| cursor.at().strip_prefix(PORTS)) else {
            let router = self.client.show_router(session, self.routes.router()?).await.map_err(misnamed)?;
            if router.routes.is_empty() {
                return Ok(whole(Vec::new()));
            }
            let sweep = Sweep { router: router.into(), ports: Vec::new() };
            let next = Some(Cursor::new(PORTS).keeping(sweep));
            return Ok(Page { items: Vec::new(), next, total: None });
        };
        let mut sweep: Sweep = cursor.and_then(Cursor::kept).cloned().unwrap_or_default();
        let project = self.client.identity.access(session).await?.project.id.clone();
        let which = if query.is_empty() { RouterPorts::Of(&project) } else { RouterPorts::Next(query) };
        let client::Page { items, next } = self.client.list_router_ports(session, which, size).await?;
        sweep.ports.push(items.into());
        let Some(next) = next else {
            let can = self.can(session).await?;
            return Ok(whole(self.listed(&sweep, can)?));
        };
        let next = Some(Cursor::new(format!("{PORTS}{next}")).keeping(sweep));
        Ok(Page { items: Vec::new(), next, total: None })
    }
}
