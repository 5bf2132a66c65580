//! Neutron's calls for security groups, and for the ports in them.

use cloud_adapter::{
    driver::{Fault, VendorError},
    vendor::{Family, Operation, Session},
};
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::{Call, Client, LIST_PORTS, Page, VendorResult, encode, limit, read};
use crate::{
    api::{
        requests::NewRule,
        responses::{GuardedPort, SecurityGroup, Subnet},
    },
    identity::catalogue::Service,
};

const GROUP_FIELDS: &str = "fields=id&fields=created_at&fields=description&fields=security_group_rules";
const PORT_FIELDS: &str = "fields=id&fields=device_id&fields=fixed_ips&fields=security_groups&fields=port_security_enabled\
                           &fields=revision_number";

const LIST_GROUPS: Operation = Operation::read(Family::Network, "ListSecurityGroups");
const LIST_SUBNETS: Operation = Operation::read(Family::Network, "ListSubnets");
const CREATE_GROUP: Operation = Operation::write(Family::Network, "CreateSecurityGroup");
const DELETE_GROUP: Operation = Operation::write(Family::Network, "DeleteSecurityGroup");
pub(crate) const CREATE_RULES: Operation = Operation::write(Family::Network, "CreateSecurityGroupRules");
pub(crate) const DELETE_RULE: Operation = Operation::write(Family::Network, "DeleteSecurityGroupRule");
const UPDATE_PORT: Operation = Operation::write(Family::Network, "UpdatePort");

#[derive(Clone, Copy, Debug)]
pub(crate) enum GuardedPorts<'a> {
    All,
    /// The ports with these IDs. The caller passes about fifty IDs at most, because the URL of the request contains the IDs.
    These(&'a [String]),
    /// Ports in a group.
    In(&'a str),
}

impl Client {
    /// Lists a page of the project's security groups. If `described` is set, only groups with this description are listed. `query` is set
    /// for every page except the first. `GET /v2.0/security-groups`
    pub(crate) async fn list_security_groups(
        &self,
        session: &Session,
        described: Option<&str>,
        query: Option<&str>,
        size: Option<u32>,
    ) -> VendorResult<Page<SecurityGroup>> {
        let query = match query {
            Some(query) => query.to_owned(),
            None => {
                let these = described.map(|text| format!("description={}&", encode(text)));
                let these = these.unwrap_or_default();
                format!("{}&{these}{GROUP_FIELDS}&{}", self.own(session).await?, limit(size))
            }
        };
        let path = format!("/v2.0/security-groups?{query}");
        self.page(session, "security_groups", read(LIST_GROUPS, Service::Network, path)).await
    }

    /// Creates a security group. Neutron adds rules to a new group. By default, these are two rules that allow the ports in the group to
    /// send to any address. `POST /v2.0/security-groups`
    pub(crate) async fn create_security_group(
        &self,
        session: &Session,
        name: &str,
        description: &str,
    ) -> VendorResult<SecurityGroup> {
        #[derive(Deserialize)]
        struct Made {
            security_group: SecurityGroup,
        }
        let call = call(CREATE_GROUP, Method::POST, "/v2.0/security-groups".to_owned());
        let body = json!({ "security_group": { "name": name, "description": description } });
        let answer = self.send(session, &call, &body.to_string().into()).await?;
        let made: Made = serde_json::from_slice(answer.body()).map_err(|error| {
            // The group was created although its ID is unknown. The next read finds the group.
            VendorError::new(
                Fault::OutcomeUnknown,
                format!("{CREATE_GROUP}: cannot parse the answer: {error}"),
            )
        })?;
        Ok(made.security_group)
    }

    /// Deletes a security group that has no ports, together with all its rules. `DELETE /v2.0/security-groups/{id}`
    pub(crate) async fn delete_security_group(&self, session: &Session, id: &str) -> VendorResult<()> {
        let path = format!("/v2.0/security-groups/{}", encode(id));
        gone(self.delete(session, call(DELETE_GROUP, Method::DELETE, path)).await)
    }

    /// Adds all given rules or none. `POST /v2.0/security-group-rules`
    pub(crate) async fn create_rules(&self, session: &Session, rules: &[NewRule]) -> VendorResult<()> {
        let call = call(CREATE_RULES, Method::POST, "/v2.0/security-group-rules".to_owned());
        self.write(session, call, &json!({ "security_group_rules": rules })).await
    }

    /// Removes a rule. `DELETE /v2.0/security-group-rules/{id}`
    pub(crate) async fn delete_rule(&self, session: &Session, id: &str) -> VendorResult<()> {
        let path = format!("/v2.0/security-group-rules/{}", encode(id));
        gone(self.delete(session, call(DELETE_RULE, Method::DELETE, path)).await)
    }

    /// Lists a page of the project's ports, with their security groups. `query` is set for every page except the first. `GET /v2.0/ports`
    pub(crate) async fn list_guarded_ports(
        &self,
        session: &Session,
        which: GuardedPorts<'_>,
        query: Option<&str>,
        size: Option<u32>,
    ) -> VendorResult<Page<GuardedPort>> {
        let query = match query {
            Some(query) => query.to_owned(),
            None => {
                let these = match which {
                    GuardedPorts::All => String::new(),
                    GuardedPorts::These(ids) => {
                        ids.iter().map(|id| format!("id={}&", encode(id))).collect::<String>()
                    }
                    GuardedPorts::In(group) => format!("security_groups={}&", encode(group)),
                };
                format!("{}&{these}{PORT_FIELDS}&{}", self.own(session).await?, limit(size))
            }
        };
        self.page(session, "ports", read(LIST_PORTS, Service::Network, format!("/v2.0/ports?{query}"))).await
    }

    /// Replaces the groups of a port, provided that the port has not changed since it was read. `PUT /v2.0/ports/{id}`
    pub(crate) async fn replace_groups(
        &self,
        session: &Session,
        port: &GuardedPort,
        groups: &[String],
    ) -> VendorResult<()> {
        let call = call(UPDATE_PORT, Method::PUT, format!("/v2.0/ports/{}", encode(&port.id)));
        let body = json!({ "port": { "security_groups": groups } });
        gone(self.write_over(session, call, Some(port.revision_number), &body).await)
    }

    /// Returns the CIDRs of subnets. The caller passes about fifty IDs at most, because the URL of the request contains the IDs. `GET
    /// /v2.0/subnets`
    pub(crate) async fn list_subnets(&self, session: &Session, ids: &[String]) -> VendorResult<Vec<Subnet>> {
        let ids: String = ids.iter().map(|id| format!("id={}&", encode(id))).collect();
        let path = format!("/v2.0/subnets?{ids}fields=id&fields=cidr");
        let page = self.page(session, "subnets", read(LIST_SUBNETS, Service::Network, path)).await?;
        Ok(page.items)
    }

    /// The query for the project's objects. The query names the project, because administrators otherwise get the objects of all projects.
    async fn own(&self, session: &Session) -> VendorResult<String> {
        let access = self.identity.access(session).await?;
        Ok(format!("project_id={}", encode(&access.project.id)))
    }
}

/// Treats an object that no longer exists as deleted.
fn gone(done: VendorResult<()>) -> VendorResult<()> {
    match done {
        Err(error) if error.fault == Fault::NotFound => Ok(()),
        done => done,
    }
}

fn call(operation: Operation, method: Method, path: String) -> Call {
    Call { operation, service: Service::Network, method, path }
}
