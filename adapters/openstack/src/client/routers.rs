//! Neutron's calls for routers, and for the ports that routes lead to.

use cloud_adapter::vendor::{Family, Operation, Session};
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::{Call, Client, LIST_PORTS, Page, VendorResult, encode, limit, read};
use crate::{
    api::router::{AddressPair, ExtraRoute, Port, Router},
    identity::catalogue::Service,
};

const FIELDS: &str = "fields=id&fields=device_id&fields=device_owner&fields=fixed_ips&fields=allowed_address_pairs\
                      &fields=port_security_enabled&fields=revision_number";

const LIST_EXTENSIONS: Operation = Operation::read(Family::Network, "ListExtensions");
const SHOW_ROUTER: Operation = Operation::read(Family::Network, "ShowRouter");
pub(crate) const ADD_ROUTES: Operation = Operation::write(Family::Network, "AddExtraRoutes");
pub(crate) const REMOVE_ROUTES: Operation = Operation::write(Family::Network, "RemoveExtraRoutes");
const UPDATE_ROUTER: Operation = Operation::write(Family::Network, "UpdateRouter");
const UPDATE_PORT: Operation = Operation::write(Family::Network, "UpdatePort");

#[derive(Clone, Copy, Debug)]
pub(crate) enum RouterPorts<'a> {
    /// All ports of a project.
    Of(&'a str),
    /// The ports of these servers and routers. The caller passes about fifty IDs at most, because the URL of the request contains the IDs.
    At(&'a [&'a str]),
    /// The ports with one of these addresses, in any network. The caller passes about fifty addresses at most, because the URL of the
    /// request contains the addresses.
    With(&'a [&'a str]),
    /// A later page, by its query.
    Next(&'a str),
}

impl Client {
    /// Lists the aliases of Neutron's API extensions. `GET /v2.0/extensions`
    pub(crate) async fn list_extensions(&self, session: &Session) -> VendorResult<Vec<String>> {
        #[derive(Deserialize)]
        struct Extension {
            alias: String,
        }
        let call = read(LIST_EXTENSIONS, Service::Network, "/v2.0/extensions?fields=alias".to_owned());
        let Page { items, .. } = self.page::<Extension>(session, "extensions", call).await?;
        Ok(items.into_iter().map(|extension| extension.alias).collect())
    }

    /// Returns a router with its routes. `GET /v2.0/routers/{id}`
    pub(crate) async fn show_router(&self, session: &Session, id: &str) -> VendorResult<Router> {
        #[derive(Deserialize)]
        struct Shown {
            router: Router,
        }
        let path = format!("/v2.0/routers/{}?fields=routes&fields=revision_number", encode(id));
        let Shown { router } = self.read(session, read(SHOW_ROUTER, Service::Network, path)).await?;
        Ok(router)
    }

    /// Lists a page of ports, with the fields that routes need. `GET /v2.0/ports`
    pub(crate) async fn list_router_ports(
        &self,
        session: &Session,
        which: RouterPorts<'_>,
        size: Option<u32>,
    ) -> VendorResult<Page<Port>> {
        let each = |name: &str, values: &[&str]| {
            values.iter().map(|value| format!("{name}{}&", encode(value))).collect::<String>()
        };
        let these = match which {
            RouterPorts::Of(project) => each("project_id=", &[project]),
            RouterPorts::At(devices) => each("device_id=", devices),
            RouterPorts::With(addresses) => each("fixed_ips=ip_address%3D", addresses),
            RouterPorts::Next(_) => String::new(),
        };
        let query = match which {
            RouterPorts::Next(query) => query.to_owned(),
            RouterPorts::Of(_) | RouterPorts::At(_) | RouterPorts::With(_) => {
                format!("{these}{FIELDS}&{}", limit(size))
            }
        };
        self.page(session, "ports", read(LIST_PORTS, Service::Network, format!("/v2.0/ports?{query}"))).await
    }

    /// Adds all given routes or none, and does not change other routes. Routes that already exist cause no error. `PUT
    /// /v2.0/routers/{id}/add_extraroutes`
    pub(crate) async fn add_routes(
        &self,
        session: &Session,
        id: &str,
        routes: &[ExtraRoute],
    ) -> VendorResult<()> {
        let call = put(ADD_ROUTES, format!("/v2.0/routers/{}/add_extraroutes", encode(id)));
        self.write(session, call, &json!({ "router": { "routes": routes } })).await
    }

    /// Removes routes, and does not change other routes. Routes that do not exist cause no error. Returns the remaining routes, or `None`
    /// if the answer cannot be parsed. `PUT /v2.0/routers/{id}/remove_extraroutes`
    pub(crate) async fn remove_routes(
        &self,
        session: &Session,
        id: &str,
        routes: &[ExtraRoute],
    ) -> VendorResult<Option<Vec<ExtraRoute>>> {
        #[derive(Deserialize)]
        struct Left {
            router: Router,
        }
        let call = put(REMOVE_ROUTES, format!("/v2.0/routers/{}/remove_extraroutes", encode(id)));
        let body = json!({ "router": { "routes": routes } });
        let answer = self.send(session, &call, &body.to_string().into()).await?;
        let left: Option<Left> = serde_json::from_slice(answer.body()).ok();
        Ok(left.map(|left| left.router.routes))
    }

    /// Replaces all routes, provided that the router has not changed since it was read. `PUT /v2.0/routers/{id}`
    pub(crate) async fn replace_routes(
        &self,
        session: &Session,
        id: &str,
        router: &Router,
    ) -> VendorResult<()> {
        let call = put(UPDATE_ROUTER, format!("/v2.0/routers/{}", encode(id)));
        let body = json!({ "router": { "routes": router.routes } });
        self.write_over(session, call, Some(router.revision_number), &body).await
    }

    /// Replaces the additional addresses from which a server may send, provided that the port has not changed since it was read. `PUT
    /// /v2.0/ports/{id}`
    pub(crate) async fn replace_pairs(
        &self,
        session: &Session,
        port: &Port,
        pairs: &[AddressPair],
    ) -> VendorResult<()> {
        let call = put(UPDATE_PORT, format!("/v2.0/ports/{}", encode(&port.id)));
        let body = json!({ "port": { "allowed_address_pairs": pairs } });
        self.write_over(session, call, Some(port.revision_number), &body).await
    }
}

fn put(operation: Operation, path: String) -> Call {
    Call { operation, service: Service::Network, method: Method::PUT, path }
}
