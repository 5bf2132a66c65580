//! Calls about load balancers.

use bytes::Bytes;
use cloud_adapter::{
    driver::VendorError,
    kit::page,
    vendor::{Family, Operation, Session},
};
use http::Method;
use serde_json::json;

use super::{Client, PAGE};
use crate::{
    load_balancers::{Balancers, Member},
    step::{NewListener, NewLoadBalancer},
    tags::Tags,
};

const LIST_LOAD_BALANCERS: Operation = Operation::read(Family::LoadBalancer, "ListLoadBalancers");
pub(crate) const CREATE_LOAD_BALANCER: Operation =
    Operation::write(Family::LoadBalancer, "CreateLoadBalancer");
pub(crate) const UPDATE_LOAD_BALANCER: Operation =
    Operation::write(Family::LoadBalancer, "UpdateLoadBalancer");
pub(crate) const DELETE_LOAD_BALANCER: Operation =
    Operation::write(Family::LoadBalancer, "DeleteLoadBalancer");
pub(crate) const CREATE_LISTENER: Operation = Operation::write(Family::LoadBalancer, "CreateListener");
pub(crate) const DELETE_LISTENER: Operation = Operation::write(Family::LoadBalancer, "DeleteListener");
pub(crate) const DELETE_POOL: Operation = Operation::write(Family::LoadBalancer, "DeletePool");
pub(crate) const SET_MEMBERS: Operation = Operation::write(Family::LoadBalancer, "SetMembers");

impl Client {
    pub(crate) async fn list_load_balancers(
        &self,
        session: &Session,
        cursor: Option<&str>,
        size: Option<u32>,
    ) -> Result<Balancers, VendorError> {
        self.read(session, LIST_LOAD_BALANCERS, &page("/v1/load-balancers", cursor, size, PAGE)).await
    }

    pub(crate) async fn create_load_balancer(
        &self,
        session: &Session,
        new: &NewLoadBalancer,
    ) -> Result<(), VendorError> {
        let target = (Method::POST, "/v1/load-balancers");
        self.write(session, CREATE_LOAD_BALANCER, target, new).await.map(drop)
    }

    pub(crate) async fn tag(&self, session: &Session, id: &str, tags: &Tags) -> Result<(), VendorError> {
        let target = (Method::PATCH, &*format!("/v1/load-balancers/{id}"));
        let body = json!({ "tags": tags });
        self.write(session, UPDATE_LOAD_BALANCER, target, &body).await.map(drop)
    }

    pub(crate) async fn create_listener(
        &self,
        session: &Session,
        balancer: &str,
        new: &NewListener,
    ) -> Result<(), VendorError> {
        let target = (Method::POST, &*format!("/v1/load-balancers/{balancer}/listeners"));
        self.write(session, CREATE_LISTENER, target, new).await.map(drop)
    }

    pub(crate) async fn set_members(
        &self,
        session: &Session,
        pool: &str,
        members: &[Member],
    ) -> Result<(), VendorError> {
        let target = (Method::PUT, &*format!("/v1/pools/{pool}/members"));
        let body = json!({ "members": members });
        self.write(session, SET_MEMBERS, target, &body).await.map(drop)
    }

    pub(crate) async fn delete(
        &self,
        session: &Session,
        operation: Operation,
        path: &str,
    ) -> Result<(), VendorError> {
        self.send(session, operation, (Method::DELETE, path), Bytes::new()).await.map(drop)
    }
}
