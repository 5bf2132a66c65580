//! The client of the cloud's HTTP API. Each function makes exactly one request through the session.
//!
//! This module does not retry, wait or open connections.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use cloud_adapter::{
    driver::{Fault, VendorError},
    kit::{bearer, body, built, encode, page, parse, request},
    vendor::{Family, Operation, Session, VendorRequest, VendorResponse},
};
use futures::future::{Either, ready};
use http::{Method, Uri, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    responses::{
        FoundInstances, InstancePage, LoadBalancer, LoadBalancerPage, Made, RoutePage, RouteResults,
    },
    simcloud::{
        model::Project,
        requests::{
            BatchRoutes, CreateListener, CreateLoadBalancer, CreatePool, SetMembers, UpdateListener,
            UpdateLoadBalancer, UpdateMembers, UpdatePool,
        },
    },
};

/// The page size of a listing. The cloud may return fewer items.
const PAGE_MAX: u32 = 500;
/// The page size of a listing of load balancers. It is smaller because each item includes all members of its pools, and a whole page is
/// read into memory.
const BALANCERS_PAGE_MAX: u32 = 100;
pub(crate) const BATCH_INSTANCES: usize = 500;
pub(crate) const BATCH_ROUTES: usize = 200;

pub(crate) const GET_PROJECT: Operation = Operation::read(Family::Identity, "GetProject");
pub(crate) const LIST_INSTANCES: Operation = Operation::read(Family::Compute, "ListInstances");
pub(crate) const BATCH_GET_INSTANCES: Operation = Operation::read(Family::Compute, "BatchGetInstances");
pub(crate) const LIST_LOAD_BALANCERS: Operation = Operation::read(Family::LoadBalancer, "ListLoadBalancers");
pub(crate) const GET_LOAD_BALANCER: Operation = Operation::read(Family::LoadBalancer, "GetLoadBalancer");
pub(crate) const CREATE_LOAD_BALANCER: Operation = balancer_write("CreateLoadBalancer");
pub(crate) const UPDATE_LOAD_BALANCER: Operation = balancer_write("UpdateLoadBalancer");
pub(crate) const DELETE_LOAD_BALANCER: Operation = balancer_write("DeleteLoadBalancer");
pub(crate) const CREATE_LISTENER: Operation = balancer_write("CreateListener");
pub(crate) const UPDATE_LISTENER: Operation = balancer_write("UpdateListener");
pub(crate) const DELETE_LISTENER: Operation = balancer_write("DeleteListener");
pub(crate) const CREATE_POOL: Operation = balancer_write("CreatePool");
pub(crate) const UPDATE_POOL: Operation = balancer_write("UpdatePool");
pub(crate) const DELETE_POOL: Operation = balancer_write("DeletePool");
pub(crate) const SET_MEMBERS: Operation = balancer_write("SetMembers");
pub(crate) const UPDATE_MEMBERS: Operation = balancer_write("UpdateMembers");
pub(crate) const LIST_ROUTES: Operation = Operation::read(Family::Network, "ListRoutes");
pub(crate) const BATCH_ROUTES_CALL: Operation = Operation::write(Family::Network, "BatchRoutes");

const fn balancer_write(name: &'static str) -> Operation {
    Operation::write(Family::LoadBalancer, name)
}

/// The cloud's address and the adapter's credentials.
#[derive(Clone)]
pub(crate) struct Client {
    endpoint: String,
    token: Arc<RwLock<Option<SecretString>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

type VendorResult<T> = Result<T, VendorError>;

impl Client {
    pub(crate) fn new(endpoint: &Uri, token: Option<&str>) -> Result<Self, header::InvalidHeaderValue> {
        if let Some(token) = token {
            bearer(token)?;
        }
        Ok(Self {
            endpoint: endpoint.to_string().trim_end_matches('/').to_owned(),
            token: Arc::new(RwLock::new(token.map(SecretString::from))),
        })
    }

    /// Switches to the token of `other`.
    pub(crate) fn adopt(&self, other: &Self) {
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = other.secret();
    }

    pub(crate) fn secret(&self) -> Option<SecretString> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) async fn get_project(&self, session: &Session) -> VendorResult<Project> {
        self.read(session, GET_PROJECT, "/v1/project").await
    }

    pub(crate) async fn list_instances(
        &self,
        session: &Session,
        cursor: Option<&str>,
        size: Option<u32>,
    ) -> VendorResult<InstancePage> {
        self.read(session, LIST_INSTANCES, &page("/v1/instances", cursor, size, PAGE_MAX)).await
    }

    /// Reads several instances. `ids` has at most [`BATCH_INSTANCES`] entries.
    pub(crate) async fn batch_get_instances(
        &self,
        session: &Session,
        ids: &[String],
    ) -> VendorResult<FoundInstances> {
        let ids: Vec<String> = ids.iter().map(|id| encode(id)).collect();
        self.read(session, BATCH_GET_INSTANCES, &format!("/v1/instances?ids={}", ids.join(","))).await
    }

    pub(crate) async fn list_load_balancers(
        &self,
        session: &Session,
        cursor: Option<&str>,
        size: Option<u32>,
    ) -> VendorResult<LoadBalancerPage> {
        let path = page("/v1/load-balancers", cursor, size, BALANCERS_PAGE_MAX);
        self.read(session, LIST_LOAD_BALANCERS, &path).await
    }

    /// Returns the first page of load balancers that have all these tags.
    pub(crate) async fn find_load_balancers(
        &self,
        session: &Session,
        tags: &[(String, &str)],
    ) -> VendorResult<LoadBalancerPage> {
        let tag = |(key, value): &(String, &str)| format!("tag={}", encode(&format!("{key}:{value}")));
        let path = format!("/v1/load-balancers?{}", tags.iter().map(tag).collect::<Vec<_>>().join("&"));
        self.read(session, LIST_LOAD_BALANCERS, &path).await
    }

    pub(crate) async fn get_load_balancer(&self, session: &Session, id: &str) -> VendorResult<LoadBalancer> {
        let path = format!("/v1/load-balancers/{}", encode(id));
        self.read(session, GET_LOAD_BALANCER, &path).await
    }

    /// Creates a load balancer and returns its ID. A response without an ID also means that the load balancer was created.
    pub(crate) async fn create_load_balancer(
        &self,
        session: &Session,
        request: &CreateLoadBalancer,
    ) -> VendorResult<Option<String>> {
        let call = call(CREATE_LOAD_BALANCER, Method::POST, "/v1/load-balancers");
        let response = self.send(session, call, body(CREATE_LOAD_BALANCER, request)?).await?;
        let made: VendorResult<Made> = parse(CREATE_LOAD_BALANCER, &response);
        Ok(made.ok().map(|made| made.id))
    }

    pub(crate) async fn update_load_balancer(
        &self,
        session: &Session,
        id: &str,
        change: &UpdateLoadBalancer,
    ) -> VendorResult<()> {
        let call = call(UPDATE_LOAD_BALANCER, Method::PATCH, format!("/v1/load-balancers/{}", encode(id)));
        self.write(session, call, change).await
    }

    pub(crate) async fn delete_load_balancer(&self, session: &Session, id: &str) -> VendorResult<()> {
        let path = format!("/v1/load-balancers/{}?cascade=true", encode(id));
        self.delete(session, DELETE_LOAD_BALANCER, &path).await
    }

    pub(crate) async fn create_listener(
        &self,
        session: &Session,
        balancer: &str,
        request: &CreateListener,
    ) -> VendorResult<()> {
        let path = format!("/v1/load-balancers/{}/listeners", encode(balancer));
        self.write(session, call(CREATE_LISTENER, Method::POST, path), request).await
    }

    pub(crate) async fn update_listener(
        &self,
        session: &Session,
        id: &str,
        change: &UpdateListener,
    ) -> VendorResult<()> {
        let path = format!("/v1/listeners/{}", encode(id));
        self.write(session, call(UPDATE_LISTENER, Method::PATCH, path), change).await
    }

    pub(crate) async fn delete_listener(&self, session: &Session, id: &str) -> VendorResult<()> {
        self.delete(session, DELETE_LISTENER, &format!("/v1/listeners/{}", encode(id))).await
    }

    pub(crate) async fn create_pool(
        &self,
        session: &Session,
        balancer: &str,
        request: &CreatePool,
    ) -> VendorResult<()> {
        let path = format!("/v1/load-balancers/{}/pools", encode(balancer));
        self.write(session, call(CREATE_POOL, Method::POST, path), request).await
    }

    pub(crate) async fn update_pool(
        &self,
        session: &Session,
        id: &str,
        change: &UpdatePool,
    ) -> VendorResult<()> {
        let path = format!("/v1/pools/{}", encode(id));
        self.write(session, call(UPDATE_POOL, Method::PATCH, path), change).await
    }

    pub(crate) async fn delete_pool(&self, session: &Session, id: &str) -> VendorResult<()> {
        self.delete(session, DELETE_POOL, &format!("/v1/pools/{}", encode(id))).await
    }

    pub(crate) async fn set_members(
        &self,
        session: &Session,
        pool: &str,
        members: &SetMembers,
    ) -> VendorResult<()> {
        let path = format!("/v1/pools/{}/members", encode(pool));
        self.write(session, call(SET_MEMBERS, Method::PUT, path), members).await
    }

    pub(crate) async fn update_members(
        &self,
        session: &Session,
        pool: &str,
        change: &UpdateMembers,
    ) -> VendorResult<()> {
        let path = format!("/v1/pools/{}/members:update", encode(pool));
        self.write(session, call(UPDATE_MEMBERS, Method::POST, path), change).await
    }

    pub(crate) async fn list_routes(
        &self,
        session: &Session,
        cursor: Option<&str>,
        size: Option<u32>,
    ) -> VendorResult<RoutePage> {
        self.read(session, LIST_ROUTES, &page("/v1/routes", cursor, size, PAGE_MAX)).await
    }

    /// Sends at most [`BATCH_ROUTES`] changes. Each item succeeds or fails on its own.
    pub(crate) async fn batch_routes(
        &self,
        session: &Session,
        batch: &BatchRoutes,
    ) -> VendorResult<RouteResults> {
        let call = call(BATCH_ROUTES_CALL, Method::POST, "/v1/routes:batch");
        let response = self.send(session, call, body(BATCH_ROUTES_CALL, batch)?).await?;
        // The cloud executed the request, but the driver cannot read its results.
        parse(BATCH_ROUTES_CALL, &response)
            .map_err(|error| VendorError { fault: Fault::OutcomeUnknown, ..error })
    }

    async fn read<T: DeserializeOwned>(
        &self,
        session: &Session,
        operation: Operation,
        path: &str,
    ) -> VendorResult<T> {
        let response = self.send(session, call(operation, Method::GET, path), Bytes::new()).await?;
        parse(operation, &response)
    }

    /// Makes a write. The response body is not read, because the next listing shows the result.
    async fn write(&self, session: &Session, call: Call, content: &impl Serialize) -> VendorResult<()> {
        let content = body(call.operation, content)?;
        self.send(session, call, content).await.map(drop)
    }

    async fn delete(&self, session: &Session, operation: Operation, path: &str) -> VendorResult<()> {
        self.send(session, call(operation, Method::DELETE, path), Bytes::new()).await.map(drop)
    }

    /// Builds the request before the future is created. Thousands of futures may wait, and none of them should contain the request's
    /// buffers.
    fn send<'a>(
        &self,
        session: &'a Session,
        call: Call,
        content: Bytes,
    ) -> impl Future<Output = VendorResult<VendorResponse>> + use<'a> {
        let operation = call.operation;
        match self.request(call, content) {
            Ok(request) => Either::Left(session.call(operation, request)),
            Err(error) => Either::Right(ready(Err(error))),
        }
    }

    fn request(&self, call: Call, content: Bytes) -> VendorResult<VendorRequest> {
        let Call { operation, method, path } = call;
        let mut request = request(method, format!("{}{path}", self.endpoint), &content);
        if let Some(token) = self.secret() {
            let value = bearer(token.expose_secret())
                .map_err(|error| VendorError::nonsense(format!("{operation}: invalid token: {error}")))?;
            request = request.header(header::AUTHORIZATION, value);
        }
        built(operation, request.body(content))
    }
}

/// The head of a request, without headers and body.
struct Call {
    operation: Operation,
    method: Method,
    path: String,
}

fn call(operation: Operation, method: Method, path: impl Into<String>) -> Call {
    Call { operation, method, path: path.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simcloud::{Access, Operation as Vendor};

    #[test]
    fn operations_agree_with_the_vendors_table() {
        let ours = [
            GET_PROJECT,
            LIST_INSTANCES,
            BATCH_GET_INSTANCES,
            LIST_LOAD_BALANCERS,
            GET_LOAD_BALANCER,
            CREATE_LOAD_BALANCER,
            UPDATE_LOAD_BALANCER,
            DELETE_LOAD_BALANCER,
            CREATE_LISTENER,
            UPDATE_LISTENER,
            DELETE_LISTENER,
            CREATE_POOL,
            UPDATE_POOL,
            DELETE_POOL,
            SET_MEMBERS,
            UPDATE_MEMBERS,
            LIST_ROUTES,
            BATCH_ROUTES_CALL,
        ];
        for one in ours {
            let vendors =
                Vendor::ALL.into_iter().find(|vendor| vendor.to_string() == one.name).expect(one.name);
            assert_eq!(vendors.family().to_string(), one.family.word(), "{one}");
            assert_eq!(vendors.access() == Access::Write, one.write, "{one}");
        }
    }

    #[test]
    fn the_token_is_sent_and_never_shown() {
        let client =
            Client::new(&Uri::from_static("http://cloud:1/"), Some("s3cret")).expect("a plain token");
        let request =
            client.request(call(GET_PROJECT, Method::GET, "/v1/project"), Bytes::new()).expect("writes");
        assert_eq!(request.uri(), "http://cloud:1/v1/project");
        assert_eq!(request.headers()[header::AUTHORIZATION], "Bearer s3cret");
        assert!(!format!("{client:?} {request:?}").contains("s3cret"));
    }
}
