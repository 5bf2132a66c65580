//! Changes routes: reads the ports that they lead to, lets these send for the pods, and then tells the router.
//!
//! In that order, so that whoever is interrupted finds the route missing, or still there, and does it again: a route is never without its
//! pair, and no pair stays behind a route that is gone.

use std::collections::BTreeMap;

use cloud_adapter::{
    driver::{Fault, Outcome, RouteChanges, VendorError},
    vendor::Session,
};
use cloud_api_proto::v1alpha1::{Route, RouteState};

use super::{
    Can, misnamed,
    plan::{self, Addition},
    table::{self, ExtraRoute, Port, Table},
};
use crate::{
    OpenStackDriver,
    client::{self, routers::RouterPorts},
};

type Change = Result<Option<Route>, VendorError>;
/// What has gone wrong at ports, by ID.
type Failed = BTreeMap<String, VendorError>;

impl OpenStackDriver {
    /// Carries out changes of routes; one result each, removals first.
    ///
    /// Cost: one read for all machines that routes shall lead to, and one more for those that they led to; one write for each port that
    /// is told something new; one write for all that goes, and one for all that comes. Where one of these is refused for a single route,
    /// and it does not say for which, the halves are sent; what exceeds the router's quota takes one read, which tells how full it is.
    /// Once, what Neutron can do is read. Without its extension `extraroute-atomic` each of the last two writes is a read and a write.
    ///
    /// # Errors
    /// Those that stand against all changes alike.
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
        let ports = self.ports(session, router, &servers, &remove).await?;
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
        let failed =
            if can.pairs { self.pair(session, (&remove, &add), &table).await? } else { Failed::new() };

        let ready = |route: &ExtraRoute| {
            let port = table.port_at(&route.nexthop);
            port.and_then(|port| failed.get(&port.id)).map_or(Ok(()), |error| Err(error.clone()))
        };
        let going: Vec<ExtraRoute> = remove.iter().filter(|route| ready(route).is_ok()).cloned().collect();
        let removed = self.write(session, can, &going, &[]).await;
        let mut results: Vec<Change> =
            remove.iter().map(|route| ready(route).and_then(|()| removed.clone()).map(|()| None)).collect();
        let coming: Vec<ExtraRoute> = add.into_iter().filter(|route| ready(route).is_ok()).cloned().collect();
        let halt = removed.err().filter(stands).map(unsent);
        let mut laid = self.lay(session, can, &coming, halt).await.into_iter();
        for addition in wanted {
            results.push(match addition.and_then(|one| ready(&one.route).map(|()| one)) {
                Ok(one) => laid.next().unwrap_or(Ok(())).map(|()| Some(told(one))),
                Err(error) => Err(error),
            });
        }
        Ok(Outcome::Items(results))
    }

    /// What Neutron can do. Cost: one vendor call, the first time.
    async fn can(&self, session: &Session) -> Result<Can, VendorError> {
        if let Some(can) = self.routes.can.get() {
            return Ok(*can);
        }
        let aliases = self.client.list_extensions(session).await?;
        let has = |alias: &str| aliases.iter().any(|one| one == alias);
        if !has("extraroute") {
            return Err(VendorError::new(
                Fault::Unsupported,
                "routes: Neutron has no extension extraroute here",
            ));
        }
        let can = Can { atomic: has("extraroute-atomic"), pairs: has("allowed-address-pairs") };
        Ok(*self.routes.can.get_or_init(|| can))
    }

    /// The router's ports, those of machines, and those that routes lead to. Cost: one vendor call, two if any route goes.
    async fn ports(
        &self,
        session: &Session,
        router: &str,
        servers: &[&str],
        remove: &[ExtraRoute],
    ) -> Result<Vec<Port>, VendorError> {
        let mut devices = [&[router], servers].concat();
        let mut hops: Vec<&str> = remove.iter().map(|route| route.nexthop.as_str()).collect();
        for names in [&mut devices, &mut hops] {
            names.sort_unstable();
            names.dedup();
        }
        let mut ports = self.all_ports(session, RouterPorts::At(&devices)).await?;
        if !hops.is_empty() {
            let others = self.all_ports(session, RouterPorts::With(&hops)).await?;
            ports.extend(others.into_iter().filter(|port| !devices.contains(&port.device_id.as_str())));
        }
        Ok(ports)
    }

    async fn all_ports(&self, session: &Session, which: RouterPorts<'_>) -> Result<Vec<Port>, VendorError> {
        let client::Page { items: mut ports, mut next } =
            self.client.list_router_ports(session, which, None).await?;
        while let Some(query) = next {
            let page = self.client.list_router_ports(session, RouterPorts::Next(&query), None).await?;
            if page.next.as_ref() == Some(&query) {
                return Err(VendorError::nonsense("the listing of the ports repeats its page"));
            }
            ports.extend(page.items);
            next = page.next;
        }
        Ok(ports)
    }

    /// Tells ports for which pods their machines send. Cost: one vendor write for each port that is told something new.
    ///
    /// # Errors
    /// What would stand against the next port, too. No route has been touched.
    async fn pair(
        &self,
        session: &Session,
        (remove, add): (&[ExtraRoute], &[&ExtraRoute]),
        table: &Table<'_>,
    ) -> Result<Failed, VendorError> {
        let mut failed = Failed::new();
        for change in plan::pair_changes(remove, add, table) {
            match self.client.replace_pairs(session, change.port, &change.pairs).await {
                Ok(()) => (),
                Err(error) if stands(&error) => return Err(unsent(error)),
                // That the port is gone says nothing of a route.
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

    /// Adds routes; one result each. A call is refused as a whole: then its halves are tried, until it is clear which routes are at fault,
    /// or how many there is room for. `halt`: why nothing is sent.
    async fn lay(
        &self,
        session: &Session,
        can: Can,
        routes: &[ExtraRoute],
        mut halt: Option<VendorError>,
    ) -> Vec<Result<(), VendorError>> {
        let mut results = Vec::with_capacity(routes.len());
        // The next one is the last.
        let mut parts = vec![routes];
        while let Some(part) = parts.pop() {
            let done = match &halt {
                Some(error) => Err(error.clone()),
                None => self.write(session, can, &[], part).await,
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
                    if halt.is_none() && (stands(&error) || error.fault == Fault::Quota) {
                        halt = Some(unsent(error.clone()));
                    }
                    results.extend(vec![Err(error); part.len()]);
                }
                Ok(()) => results.extend(vec![Ok(()); part.len()]),
            }
        }
        results
    }

    /// Removes or adds routes at the router. Cost: one vendor write if there are any.
    async fn write(
        &self,
        session: &Session,
        can: Can,
        remove: &[ExtraRoute],
        add: &[ExtraRoute],
    ) -> Result<(), VendorError> {
        let (router, client) = (self.routes.router()?, &self.client);
        let done = match (remove.is_empty(), add.is_empty()) {
            (true, true) => return Ok(()),
            (_, true) if can.atomic => client.remove_routes(session, router, remove).await,
            (true, _) if can.atomic => client.add_routes(session, router, add).await,
            (_, _) => {
                let mut there = client.show_router(session, router).await.map_err(misnamed)?;
                let routes = plan::changed(&there.routes, remove, add);
                if routes == there.routes {
                    return Ok(());
                }
                there.routes = routes;
                client.replace_routes(session, router, &there).await
            }
        };
        done.map_err(misnamed)
    }

    /// The same refusal with how many routes there are: Neutron does not say.
    async fn full(&self, session: &Session, error: VendorError) -> VendorError {
        let Ok(router) = self.routes.router() else { return error };
        let Ok(there) = self.client.show_router(session, router).await else { return error };
        let count = there.routes.len();
        let message = format!(
            "{} Router {router} has {count} routes, and there is no room for another: raise the \
             project's quota router_route (before 2026.2 max_routes in the configuration), which is 30 as it is \
             delivered",
            error.message
        );
        VendorError { message, ..error }
    }
}

fn told(Addition { route, provider_id }: Addition) -> Route {
    table::told(&route, provider_id, RouteState::Active)
}

/// Whether the refusal of many may be the fault of a few.
fn divides(error: &VendorError) -> bool {
    error.fault == Fault::Quota || error.code.as_deref() == Some("InvalidRoutes")
}

/// Whether it would stand against the next call as well.
fn stands(error: &VendorError) -> bool {
    match error.fault {
        Fault::Budget
        | Fault::QueueFull
        | Fault::NotLeader
        | Fault::Throttled
        | Fault::Auth
        | Fault::Forbidden
        | Fault::Unavailable
        | Fault::OutcomeUnknown => true,
        Fault::Quota
        | Fault::NotFound
        | Fault::Busy
        | Fault::Immutable
        | Fault::Invalid
        | Fault::Unsupported
        | Fault::Nonsense => false,
    }
}

/// Why a route was not sent: of that there is no doubt.
fn unsent(error: VendorError) -> VendorError {
    let fault = if error.fault == Fault::OutcomeUnknown { Fault::Unavailable } else { error.fault };
    VendorError { fault, ..error }
}
