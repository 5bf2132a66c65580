//! Lists and looks up instances. The listing reads the pages of servers and ports, and joins servers and ports on its last page. The
//! look-up is by ID.

mod address;
mod label;
mod server;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use cloud_adapter::{
    driver::{Collection, Cursor, Fault, InstanceLookup, Lookup, Page, VendorError},
    vendor::Session,
};
use cloud_api_proto::v1alpha1::Instance;

pub(crate) use self::{
    address::{Ipv6, Networking},
    server::Shared,
};
use crate::{
    OpenStackDriver,
    api::server::{Port, Server},
    client::{self, Ports},
};

/// Prefixes of cursors. The prefix names the listing that the cursor continues. The cursor of the first page of ports has no query yet.
const SERVERS: &str = "servers?";
const PORTS: &str = "ports?";

/// Earlier pages of a listing. The pages are shared, because each later cursor holds all earlier pages.
#[derive(Clone, Debug, Default)]
struct Sweep {
    servers: Vec<Arc<[Server]>>,
    ports: Vec<Arc<[Port]>>,
}

impl OpenStackDriver {
    fn instance(&self, server: &Server, ports: &[&Port]) -> Instance {
        server::instance(server, ports, &self.place())
    }

    /// Returns the cursor that follows a page. The cursor leads to the next page of the same listing, or to the first page of the next
    /// listing.
    fn goes_on(listing: &str, next: Option<String>) -> Option<Cursor> {
        match (listing, next) {
            (listing, Some(query)) => Some(Cursor::new(format!("{listing}{query}"))),
            (SERVERS, None) => Some(Cursor::new(PORTS)),
            (_, None) => None,
        }
    }

    fn joined(&self, sweep: &Sweep) -> Vec<Instance> {
        let mut ports: BTreeMap<&str, Vec<&Port>> = BTreeMap::new();
        for port in sweep.ports.iter().flat_map(|page| page.iter()) {
            ports.entry(&port.device_id).or_default().push(port);
        }
        let servers = sweep.servers.iter().flat_map(|page| page.iter());
        let of = |server: &Server| ports.get(server.id.as_str()).map_or(&[][..], Vec::as_slice);
        servers.map(|server| self.instance(server, of(server))).collect()
    }

    async fn look_up(&self, session: &Session, id: &str) -> Result<Lookup<Instance>, VendorError> {
        let server = match self.client.show_server(session, id).await {
            Ok(server) => server,
            Err(error) if error.fault == Fault::NotFound => return Ok(Lookup::Gone),
            Err(error) => return Err(error),
        };
        if server.id != id {
            return Ok(Lookup::Unknown);
        }
        let (mut ports, mut next) = (Vec::new(), None);
        loop {
            let which = next.as_deref().map_or(Ports::At(id), Ports::Next);
            let client::Page { items, next: more } = self.client.list_ports(session, which, None).await?;
            ports.extend(items);
            match more {
                Some(more) if next.as_ref() != Some(&more) => next = Some(more),
                Some(_) => {
                    return Err(VendorError::nonsense(
                        "the listing of the ports returned the same page again",
                    ));
                }
                None => break,
            }
        }
        Ok(Lookup::Found(self.instance(&server, &ports.iter().collect::<Vec<_>>())))
    }
}

impl Collection<Instance> for OpenStackDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Instance>, VendorError> {
        let mut sweep: Sweep = cursor.and_then(Cursor::kept).cloned().unwrap_or_default();
        let at = cursor.map_or("", Cursor::at);
        let next = if let Some(query) = at.strip_prefix(PORTS) {
            let project = self.client.identity.access(session).await?.project.id.clone();
            let which = if query.is_empty() { Ports::Of(&project) } else { Ports::Next(query) };
            let page = self.client.list_ports(session, which, size).await?;
            sweep.ports.push(page.items.into());
            Self::goes_on(PORTS, page.next)
        } else {
            let page = self.client.list_servers(session, at.strip_prefix(SERVERS), size).await?;
            sweep.servers.push(page.items.into());
            Self::goes_on(SERVERS, page.next)
        };
        Ok(match next {
            None => Page { items: self.joined(&sweep), next: None, total: None },
            Some(next) => Page { items: Vec::new(), next: Some(next.keeping(sweep)), total: None },
        })
    }
}

impl InstanceLookup for OpenStackDriver {
    /// Nova has no call for several IDs. Its filter `uuid` takes only one ID, and only administrators may use this filter. The look-up
    /// costs two calls for an existing server, and one call for a deleted server.
    async fn get_batch(
        &self,
        session: &Session,
        ids: &[String],
    ) -> Result<Option<Vec<Lookup<Instance>>>, VendorError> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.push(self.look_up(session, id).await?);
        }
        Ok(Some(found))
    }
}
