//! Routes to the pods: the extra routes of one router, which has no more than a destination and a next hop of each. Whose machine a next
//! hop is tell the ports of the router's subnets.
//!
//! There is no room for an owner: a route is nobody's until somebody says that it leads to that node's machine.

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
pub(crate) use self::table::{AddressPair, ExtraRoute, Port, Router};
use crate::{
    OpenStackDriver,
    client::{self, routers::RouterPorts},
};

/// Routes that change at once. Each new machine among them takes a write of its own, and all share one call's time.
pub(crate) const BATCH: u32 = 50;

/// What a cursor begins with. The first page of the ports has no query yet.
const PORTS: &str = "ports?";

/// The router, and what Neutron can do with it.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Whose routes they are. `None`: there are none to care for.
    router: Option<String>,
    can: OnceLock<Can>,
}

/// What Neutron can do. It is asked once: who changes it starts Neutron again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Can {
    /// Add and remove single routes, so that nobody overwrites another's.
    atomic: bool,
    /// Let machines send from addresses beside their own.
    pairs: bool,
}

impl Routes {
    pub(crate) fn new(router: Option<String>) -> Self {
        Self { router, can: OnceLock::new() }
    }

    /// What the cloud can do about routes.
    pub(crate) fn capabilities(&self) -> &'static [&'static str] {
        if self.router.is_some() { &["routes"] } else { &[] }
    }

    fn router(&self) -> Result<&str, VendorError> {
        let none = || VendorError::new(Fault::Unsupported, "routes: --router-id names no router");
        self.router.as_deref().ok_or_else(none)
    }
}

/// What earlier pages of a sweep brought. Pages are shared, as each later cursor holds them all.
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

/// A router that is not there is our own option's fault, and no route's absence.
fn misnamed(error: VendorError) -> VendorError {
    if error.fault != Fault::NotFound {
        return error;
    }
    VendorError { fault: Fault::Forbidden, message: format!("--router-id: {}", error.message), ..error }
}

impl Collection<Route> for OpenStackDriver {
    /// The router first, then the project's ports, page by page. A router without routes is one call. Once a process what Neutron can do.
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
