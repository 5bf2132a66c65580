//! The HTTP APIs of the services, with one function for each call. Each function sends one request through the session.
//!
//! The session may send two further requests. It logs in when it needs a token, and it repeats a request with a new token after the cloud
//! has rejected the old token. The client does not wait, retries nothing else, and has no connection of its own.

pub(crate) mod floating_ips;
pub(crate) mod octavia;
mod paging;
pub(crate) mod routers;
pub(crate) mod security_groups;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use cloud_adapter::{
    driver::{Fault, VendorError},
    kit::{self, built, encode, parse},
    vendor::{Family, Operation, Session, VendorResponse},
};
use http::{HeaderValue, Method, header};
use serde::{Serialize, Serializer, de::DeserializeOwned, ser::SerializeMap as _};

pub(crate) use self::paging::Page;
use crate::{
    api::server::{Port, Server},
    identity::{AUTH_TOKEN, Identity, catalogue::Service, login::Access},
};

/// The maximum number of items on a page of a listing. Services may return fewer items. The value is the default of Nova's `max_limit`.
const PAGE_MAX: u32 = 1000;
/// The first version of Nova's API that returns the name of a server's flavor. Source: Nova, REST API Version History, 2.47 (Pike).
const MICROVERSION: HeaderValue = HeaderValue::from_static("compute 2.47");
const API_VERSION: &str = "openstack-api-version";
const PORT_FIELDS: [&str; 4] = ["id", "device_id", "status", "fixed_ips"];

pub(crate) const LIST_SERVERS: Operation = Operation::read(Family::Compute, "ListServers");
pub(crate) const SHOW_SERVER: Operation = Operation::read(Family::Compute, "ShowServer");
pub(crate) const LIST_PORTS: Operation = Operation::read(Family::Network, "ListPorts");

type VendorResult<T> = Result<T, VendorError>;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) identity: Arc<Identity>,
}

/// The head of a request, without its body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    pub(crate) service: Service,
    pub(crate) method: Method,
    /// Path and query, relative to [`Service::base`].
    pub(crate) path: String,
}

impl Client {
    /// Lists a page of the project's servers. `query` is set for every page except the first.
    pub(crate) async fn list_servers(
        &self,
        session: &Session,
        query: Option<&str>,
        size: Option<u32>,
    ) -> VendorResult<Page<Server>> {
        let query = query.map_or_else(|| limit(size), str::to_owned);
        let path = format!("/servers/detail?{query}");
        self.page(session, "servers", read(LIST_SERVERS, Service::Compute, path)).await
    }

    pub(crate) async fn show_server(&self, session: &Session, id: &str) -> VendorResult<Server> {
        #[derive(serde::Deserialize)]
        struct Shown {
            server: Server,
        }
        let call = read(SHOW_SERVER, Service::Compute, format!("/servers/{}", encode(id)));
        let Shown { server } = self.read(session, call).await?;
        Ok(server)
    }

    /// Lists a page of ports. `which` is [`Ports::Next`] for every page except the first.
    pub(crate) async fn list_ports(
        &self,
        session: &Session,
        which: Ports<'_>,
        size: Option<u32>,
    ) -> VendorResult<Page<Port>> {
        let fields: Vec<String> = PORT_FIELDS.iter().map(|field| format!("fields={field}")).collect();
        let fields = fields.join("&");
        let query = match which {
            Ports::Of(project) => format!("project_id={}&{fields}&{}", encode(project), limit(size)),
            Ports::At(server) => format!("device_id={}&{fields}&{}", encode(server), limit(size)),
            Ports::Next(query) => query.to_owned(),
        };
        self.page(session, "ports", read(LIST_PORTS, Service::Network, format!("/v2.0/ports?{query}"))).await
    }

    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        session: &Session,
        collection: &str,
        call: Call,
    ) -> VendorResult<Page<T>> {
        let response = self.send(session, &call, &Bytes::new()).await?;
        paging::read(call.operation, collection, &response)
    }

    /// Reads an object. Unsuccessful answers have already become errors in `classify`.
    pub(crate) async fn read<T: DeserializeOwned>(&self, session: &Session, call: Call) -> VendorResult<T> {
        let response = self.send(session, &call, &Bytes::new()).await?;
        parse(call.operation, &response)
    }

    /// Writes an object. The body of the answer is not read, because the next listing shows the result.
    pub(crate) async fn write(
        &self,
        session: &Session,
        call: Call,
        body: &impl Serialize,
    ) -> VendorResult<()> {
        self.write_over(session, call, None, body).await
    }

    /// Writes an object like `write`, but fails with [`Fault::Busy`] if the object has changed since this revision was read.
    async fn write_over(
        &self,
        session: &Session,
        call: Call,
        revision: Option<u64>,
        body: &impl Serialize,
    ) -> VendorResult<()> {
        let body = kit::body(call.operation, body)?;
        self.send_over(session, &call, revision, &body).await.map(drop)
    }

    async fn send(&self, session: &Session, call: &Call, body: &Bytes) -> VendorResult<VendorResponse> {
        self.send_over(session, call, None, body).await
    }

    pub(crate) async fn delete(&self, session: &Session, call: Call) -> VendorResult<()> {
        self.send(session, &call, &Bytes::new()).await.map(drop)
    }

    /// Sends a request, and repeats it with a new token if the old token is rejected.
    async fn send_over(
        &self,
        session: &Session,
        call: &Call,
        revision: Option<u64>,
        body: &Bytes,
    ) -> VendorResult<VendorResponse> {
        let access = self.identity.access(session).await?;
        let answer = send_with(&access, session, call, revision, body).await;
        match answer {
            Err(VendorError { fault: Fault::Auth, .. }) => {
                let access = self.identity.renewed(session, &access).await?;
                send_with(&access, session, call, revision, body).await
            }
            answer => answer,
        }
    }
}

/// A body with one field, which is serialised directly. The largest load balancer has 20,000 members, which would need several times the
/// memory of the text if they were a JSON value.
pub(crate) struct Body<'a, T: ?Sized>(pub(crate) &'static str, pub(crate) &'a T);

impl<T: Serialize + ?Sized> Serialize for Body<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.0, self.1)?;
        map.end()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Ports<'a> {
    /// All ports of a project. The query names the project because administrators otherwise get the ports of all projects.
    Of(&'a str),
    /// The ports of one server.
    At(&'a str),
    /// A later page, by its query.
    Next(&'a str),
}

fn read(operation: Operation, service: Service, path: String) -> Call {
    Call { operation, service, method: Method::GET, path }
}

async fn send_with(
    access: &Access,
    session: &Session,
    call: &Call,
    revision: Option<u64>,
    body: &Bytes,
) -> VendorResult<VendorResponse> {
    let Call { operation, service, method, path } = call;
    let url = format!("{}{path}", access.endpoints.base(*service)?);
    let mut request = kit::request(method.clone(), url, body).header(AUTH_TOKEN, &access.token);
    if *service == Service::Compute {
        request = request.header(API_VERSION, MICROVERSION);
    }
    if let Some(revision) = revision {
        request = request.header(header::IF_MATCH, format!("revision_number={revision}"));
    }
    session.call(*operation, built(*operation, request.body(body.clone()))?).await
}

fn limit(size: Option<u32>) -> String {
    format!("limit={}", size.unwrap_or(PAGE_MAX).min(PAGE_MAX))
}
