//! Changes routes. The driver reads the ports of the next hops, lets their servers send from the pod CIDRs, and changes the router. Then it
//! removes address pairs that no route needs.
//!
//! A route is added only after its server may send from the pod CIDR. It is removed before that permission is removed, so a route always
//! has its address pair. After an interruption, the next reconcile repeats the change. At worst, an address pair remains after its route
//! was removed, and an unneeded pair does not drop packets.

use std::collections::BTreeMap;

use cloud_adapter::{
    driver::{Fault, Outcome, RouteChanges, VendorError},
    vendor::Session,
};
use cloud_api_proto::v1alpha1::{Route, RouteState};

use super::{
    Can, misnamed,
    plan::{self, Addition},
    table::{self, Table},
};
use crate::{
    OpenStackDriver,
    api::router::{ExtraRoute, Port},
    client::{self, routers::RouterPorts},
};

/// Number of attempts to remove address pairs from a port that another client changes between read and write.
const UNPAIR_TRIES: usize = 2;

type Change = Result<Option<Route>, VendorError>;
/// The errors of ports, keyed by port ID or by next hop.
type Failed = BTreeMap<String, VendorError>;

impl OpenStackDriver {
    /// Changes routes and returns one result for each change, removals first.
    ///
    /// Cost of the reads: one for the router and the servers of new routes. If routes are removed, one for their servers, or two if another
    /// client changes their ports. If the quota is exceeded, one to count the routes. The first call also reads Neutron's extensions. Cost
    /// of the writes: one for each changed port, before and after the change of the router. One for all removals, and one for all
    /// additions. If Neutron refuses additions without naming a route, the driver tries halves of them. Without `extraroute-atomic`, each
    /// of the two writes to the router becomes a read and a write.
    pub(crate) async fn change_routes(
        &self,
        session: &Session,
        changes: &RouteChanges,
    ) -> Result<Outcome, VendorError> {
        let router = self.routes.router()?;
        let can = self.can(session).await?;
        let remove = plan::removals(changes);
        let machines: Vec<_> =
            changes.add.iter().map(|route| plan::machine_of(route, self.place().region)).collect();
        let servers: Vec<&str> = machines.iter().flatten().map(String::as_str).collect();
        let ports = self.ports(session, router, &servers).await?;
        let table = Table::new(router, ports.iter());
        let wanted: Vec<Result<Addition, VendorError>> = machines
            .iter()
            .zip(&changes.add)
            .map(|(machine, route)| {
                machine
                    .as_deref()
                    .map_err(Clone::clone)
                    .and_then(|server| plan::addition(route, server, &table))
            })
            .collect();
        let add: Vec<&ExtraRoute> = wanted.iter().flatten().map(|addition| &addition.route).collect();
        let failed = if can.pairs { self.pair(session, &add, &table).await? } else { Failed::new() };

        let ready = |route: &ExtraRoute| {
            let port = table.port_at(&route.nexthop);
            port.and_then(|port| failed.get(&port.id)).map_or(Ok(()), |error| Err(error.clone()))
        };
        // A route that is removed and added again only because its address pair was missing does not change in the router.
        let is_back = |route: &ExtraRoute| add.iter().any(|new| new.is(route));
        let going: Vec<ExtraRoute> = remove.iter().filter(|route| !is_back(route)).cloned().collect();
        let removed = self.remove(session, can, &going).await;
        let coming: Vec<ExtraRoute> =
            add.iter().filter(|route| ready(route).is_ok()).copied().cloned().collect();
        let halt = removed.as_ref().err().filter(|error| error.recurs()).cloned().map(VendorError::unsent);
        let mut created = self.lay(session, can, &coming, halt).await.into_iter();
        let unpaired = match &removed {
            Ok(Some(left)) if can.pairs => {
                let stay = [left.as_slice(), coming.as_slice()].concat();
                self.unpair(session, &ports, &going, &stay).await
            }
            Ok(_) | Err(_) => Failed::new(),
        };
        let result = |route: &ExtraRoute| match (is_back(route), unpaired.get(&route.nexthop)) {
            (true, _) => ready(route),
            (false, Some(error)) => Err(error.clone()),
            (false, None) => removed.clone().map(drop),
        };
        let mut results: Vec<Change> = remove.iter().map(|route| result(route).map(|()| None)).collect();
        for addition in wanted {
            results.push(match addition.and_then(|one| ready(&one.route).map(|()| one)) {
                Ok(one) => created.next().unwrap_or(Ok(())).map(|()| Some(route_of(one))),
                Err(error) => Err(error),
            });
        }
        Ok(Outcome::Items(results))
    }

    /// Returns Neutron's extensions. Cost: one vendor call, the first time.
    pub(super) async fn can(&self, session: &Session) -> Result<Can, VendorError> {
        if let Some(can) = self.routes.can.get() {
            return Ok(*can);
        }
        let aliases = self.client.list_extensions(session).await?;
        let has = |alias: &str| aliases.iter().any(|one| one == alias);
        if !has("extraroute") {
            return Err(VendorError::new(
                Fault::Unsupported,
                "routes: this cloud's Neutron lacks the extension extraroute",
            ));
        }
        let can = Can { atomic: has("extraroute-atomic"), pairs: has("allowed-address-pairs") };
        Ok(*self.routes.can.get_or_init(|| can))
    }

    /// Cost: one vendor call.
    async fn ports(
        &self,
        session: &Session,
        router: &str,
        servers: &[&str],
    ) -> Result<Vec<Port>, VendorError> {
        let mut devices = [&[router], servers].concat();
        devices.sort_unstable();
        devices.dedup();
        self.all_ports(session, RouterPorts::At(&devices)).await
    }

    async fn all_ports(&self, session: &Session, which: RouterPorts<'_>) -> Result<Vec<Port>, VendorError> {
        let client::Page { items: mut ports, mut next } =
            self.client.list_router_ports(session, which, None).await?;
        while let Some(query) = next {
            let page = self.client.list_router_ports(session, RouterPorts::Next(&query), None).await?;
            if page.next.as_ref() == Some(&query) {
                return Err(VendorError::nonsense("the listing of the ports returned the same page again"));
            }
            ports.extend(page.items);
            next = page.next;
        }
        Ok(ports)
    }

    /// Allows servers to send from the pod CIDRs of new routes. Cost: one vendor write for each port that changes.
    async fn pair(
        &self,
        session: &Session,
        add: &[&ExtraRoute],
        table: &Table<'_>,
    ) -> Result<Failed, VendorError> {
        let mut failed = Failed::new();
        for change in plan::missing_pairs(add, table) {
            match self.client.replace_pairs(session, change.port, &change.pairs).await {
                Ok(()) => (),
                Err(error) if error.recurs() => return Err(error.unsent()),
                // The absence of a port does not mean that a route is absent.
                Err(error) if error.fault == Fault::NotFound => {
                    failed.insert(change.port.id.clone(), VendorError { fault: Fault::Busy, ..error });
                }
                Err(error) => {
                    failed.insert(change.port.id.clone(), error);
                }
            }
        }
        Ok(failed)
    }

    /// Removes the address pairs of deleted routes, and returns errors by next hop. No later reconcile removes these pairs, so a port that
    /// another client has changed is tried again. `near`: ports, including the router's own.
    ///
    /// Cost: one or two vendor reads if any route was removed; one write for each port with a pair that no route needs.
    async fn unpair(
        &self,
        session: &Session,
        near: &[Port],
        gone: &[ExtraRoute],
        stay: &[ExtraRoute],
    ) -> Failed {
        let mut left: Vec<ExtraRoute> = gone.to_vec();
        let mut failed = Failed::new();
        for _ in 0..UNPAIR_TRIES {
            failed.retain(|_hop, error| error.fault != Fault::Busy);
            failed.extend(self.unpair_once(session, near, &left, stay).await);
            left.retain(|route| failed.get(&route.nexthop).is_some_and(|error| error.fault == Fault::Busy));
            if left.is_empty() {
                break;
            }
        }
        failed
    }

    async fn unpair_once(
        &self,
        session: &Session,
        near: &[Port],
        gone: &[ExtraRoute],
        stay: &[ExtraRoute],
    ) -> Failed {
        let mut failed = Failed::new();
        let mut hops: Vec<&str> = gone.iter().map(|route| route.nexthop.as_str()).collect();
        hops.sort_unstable();
        hops.dedup();
        let Ok(router) = self.routes.router() else { return failed };
        if hops.is_empty() {
            return failed;
        }
        let ports = match self.all_ports(session, RouterPorts::With(&hops)).await {
            Ok(ports) => ports,
            Err(error) => {
                failed.extend(hops.into_iter().map(|hop| (hop.to_owned(), still_sends(error.clone()))));
                return failed;
            }
        };
        let own = near.iter().filter(|port| port.device_id == router);
        let table = Table::new(router, own.chain(&ports));
        for change in plan::spare_pairs(gone, stay, &table) {
            match self.client.replace_pairs(session, change.port, &change.pairs).await {
                Err(error) if error.fault != Fault::NotFound => {
                    let at = |hop: &&&str| table.port_at(hop).is_some_and(|port| port.id == change.port.id);
                    let error = still_sends(error);
                    failed.extend(hops.iter().filter(at).map(|hop| ((*hop).to_owned(), error.clone())));
                }
                Ok(()) | Err(_) => (),
            }
        }
        failed
    }

    /// Adds routes and returns one result for each. If Neutron refuses a call, none of its routes is added. The routes are then split into
    /// halves, which are tried separately. This shows which routes are invalid, or how many routes fit into the quota. `halt`: the error
    /// for all remaining routes, which are not sent.
    async fn lay(
        &self,
        session: &Session,
        can: Can,
        routes: &[ExtraRoute],
        mut halt: Option<VendorError>,
    ) -> Vec<Result<(), VendorError>> {
        let mut results = Vec::with_capacity(routes.len());
        // A stack of lists of routes. The list that was pushed last is tried next.
        let mut parts = vec![routes];
        while let Some(part) = parts.pop() {
            let done = match &halt {
                Some(error) => Err(error.clone()),
                None => self.add(session, can, part).await,
            };
            match done {
                Err(error) if halt.is_none() && part.len() > 1 && divides(&error) => {
                    let (first, rest) = part.split_at(part.len() / 2);
                    parts.extend([rest, first]);
                }
                Err(error) => {
                    let error = if halt.is_none() && error.fault == Fault::Quota {
                        self.full(session, error).await
                    } else {
                        error
                    };
                    if halt.is_none() && (error.recurs() || error.fault == Fault::Quota) {
                        halt = Some(error.clone().unsent());
                    }
                    results.extend(vec![Err(error); part.len()]);
                }
                Ok(()) => results.extend(vec![Ok(()); part.len()]),
            }
        }
        results
    }

    /// Cost: one vendor write if there are any routes.
    async fn add(&self, session: &Session, can: Can, routes: &[ExtraRoute]) -> Result<(), VendorError> {
        if routes.is_empty() {
            return Ok(());
        }
        if can.atomic {
            return self.client.add_routes(session, self.routes.router()?, routes).await.map_err(misnamed);
        }
        self.replace(session, &[], routes).await.map(drop)
    }

    /// Removes routes from the router. Returns the remaining routes if Neutron returns them; `None` if there was no route to remove. Cost:
    /// one vendor write if there are routes to remove.
    async fn remove(
        &self,
        session: &Session,
        can: Can,
        routes: &[ExtraRoute],
    ) -> Result<Option<Vec<ExtraRoute>>, VendorError> {
        if routes.is_empty() {
            return Ok(None);
        }
        if can.atomic {
            return self.client.remove_routes(session, self.routes.router()?, routes).await.map_err(misnamed);
        }
        self.replace(session, routes, &[]).await.map(Some)
    }

    /// Replaces all routes, for versions of Neutron that cannot change single routes. Cost: one vendor read, and one write if anything
    /// differs.
    async fn replace(
        &self,
        session: &Session,
        remove: &[ExtraRoute],
        add: &[ExtraRoute],
    ) -> Result<Vec<ExtraRoute>, VendorError> {
        let (router, client) = (self.routes.router()?, &self.client);
        let mut there = client.show_router(session, router).await.map_err(misnamed)?;
        let routes = plan::changed(&there.routes, remove, add);
        if routes != there.routes {
            there.routes = routes;
            client.replace_routes(session, router, &there).await.map_err(misnamed)?;
        }
        Ok(there.routes)
    }

    /// Adds the router's current number of routes to a quota error, because Neutron does not report this number.
    async fn full(&self, session: &Session, error: VendorError) -> VendorError {
        let Ok(router) = self.routes.router() else { return error };
        let Ok(there) = self.client.show_router(session, router).await else { return error };
        let count = there.routes.len();
        let message = format!(
            "{} Router {router} has {count} routes, and its quota is exhausted: raise the project's \
             quota router_route (before 2026.2 max_routes in the configuration), whose default is 30",
            error.message
        );
        VendorError { message, ..error }
    }
}

fn route_of(Addition { route, provider_id }: Addition) -> Route {
    table::contract_route(&route, provider_id, RouteState::Active)
}

/// Returns whether only a few of several routes may have caused Neutron to refuse all of them.
fn divides(error: &VendorError) -> bool {
    error.fault == Fault::Quota || error.code.as_deref() == Some("InvalidRoutes")
}

/// Returns an error that says that a server may still send from the CIDR of a removed route.
fn still_sends(error: VendorError) -> VendorError {
    let message = format!(
        "the route was removed, but the server may still send packets from the route's destination: {}",
        error.message
    );
    VendorError { message, ..error }
}
