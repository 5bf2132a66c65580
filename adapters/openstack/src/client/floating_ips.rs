//! Neutron's calls for floating IPs.

use std::net::IpAddr;

use cloud_adapter::{
    driver::{Fault, VendorError},
    kit,
    vendor::{Family, Operation, Session},
};
use http::Method;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Call, Client, Page, VendorResult, encode, limit};
use crate::{
    api::{
        requests::{Former, NewFloatingIp, Target},
        responses::FloatingIp,
    },
    identity::catalogue::Service,
    ownership::{Claim, Description},
    parameters::floating_subnet_field,
};

const FIELDS: [&str; 7] = [
    "id",
    "floating_ip_address",
    "fixed_ip_address",
    "port_id",
    "description",
    "floating_network_id",
    "created_at",
];

pub(crate) const LIST_FLOATING_IPS: Operation = Operation::read(Family::Network, "ListFloatingIps");
pub(crate) const LIST_EXTERNAL_NETWORKS: Operation = Operation::read(Family::Network, "ListExternalNetworks");
pub(crate) const LIST_SUBNETS: Operation = Operation::read(Family::Network, "ListSubnets");
pub(crate) const CREATE_FLOATING_IP: Operation = Operation::write(Family::Network, "CreateFloatingIp");
pub(crate) const UPDATE_FLOATING_IP: Operation = Operation::write(Family::Network, "UpdateFloatingIp");
pub(crate) const DELETE_FLOATING_IP: Operation = Operation::write(Family::Network, "DeleteFloatingIp");

impl Client {
    /// Lists a page of the project's floating IPs. `query` is set for every page except the first.
    pub(crate) async fn list_floating_ips(
        &self,
        session: &Session,
        query: Option<&str>,
        size: Option<u32>,
    ) -> VendorResult<Page<FloatingIp>> {
        let query = match query {
            Some(query) => query.to_owned(),
            None => format!("{}&{}", self.own_floating_ips(session).await?, limit(size)),
        };
        self.floating_ips(session, &query).await
    }

    /// Creates a floating IP that is attached to a load balancer. If no external network is configured, this function first looks up the
    /// only external network.
    pub(crate) async fn create_floating_ip(
        &self,
        session: &Session,
        new: &NewFloatingIp,
        target: &Target,
    ) -> VendorResult<()> {
        #[derive(Serialize)]
        struct At<'a> {
            #[serde(flatten)]
            new: &'a NewFloatingIp,
            #[serde(flatten)]
            target: &'a Target,
        }
        let mut new = new.clone();
        if let Some(pool) = new.pool.clone() {
            self.find_pool(session, &pool, &mut new).await?;
        } else if new.floating_network_id.is_none() {
            new.floating_network_id = Some(self.only_external_network(session).await?);
        }
        self.write(session, create(), &json!({ "floatingip": At { new: &new, target } })).await
    }

    /// Creates an unattached floating IP that replaces the floating IP `former`. This function first looks up the pool, if a pool is set.
    /// If `former` already belongs to this pool, the function keeps `former` and changes only its description.
    pub(crate) async fn reserve_floating_ip(
        &self,
        session: &Session,
        new: &NewFloatingIp,
        former: Option<&Former>,
    ) -> VendorResult<()> {
        let mut new = new.clone();
        let mut addresses = None;
        if let Some(pool) = new.pool.clone() {
            addresses = self.find_pool(session, &pool, &mut new).await?;
        } else if new.floating_network_id.is_none() {
            new.floating_network_id = Some(self.only_external_network(session).await?);
        }
        let is_from_there = |one: &&Former| {
            new.floating_network_id.as_deref() == Some(&one.network_id)
                && addresses.is_none_or(|subnet| subnet.contains(&one.address))
        };
        match former.filter(is_from_there) {
            Some(same) => self.describe_floating_ip(session, &same.id, &same.description).await,
            None => self.write(session, create(), &json!({ "floatingip": new })).await,
        }
    }

    pub(crate) async fn attach_floating_ip(
        &self,
        session: &Session,
        id: &str,
        target: &Target,
    ) -> VendorResult<()> {
        self.write(session, update(id), &json!({ "floatingip": target })).await
    }

    /// Attaches a floating IP of the project to a load balancer, and records the owner. This function first looks up the ID of the floating
    /// IP. If two callers attach the same floating IP at once, only the first caller succeeds, provided that Neutron counts revisions.
    pub(crate) async fn attach_reserved(
        &self,
        session: &Session,
        address: IpAddr,
        claim: &Claim,
        target: &Target,
    ) -> VendorResult<()> {
        let found = self.reserved(session, address).await?;
        let description = claimed(address, &found, claim)?;
        match found.port_id {
            Some(port) if port == target.port_id => Ok(()),
            Some(port) => Err(in_use(address, &port)),
            None => {
                #[derive(Serialize)]
                struct Claimed<'a> {
                    description: String,
                    #[serde(flatten)]
                    target: &'a Target,
                }
                let description = description.write()?;
                let body = json!({ "floatingip": Claimed { description, target } });
                self.write_over(session, update(&found.id), found.revision_number, &body).await
            }
        }
    }

    async fn reserved(&self, session: &Session, address: IpAddr) -> VendorResult<FloatingIp> {
        let own = self.own_floating_ips(session).await?;
        let query = format!("{own}&fields=revision_number&floating_ip_address={address}");
        let page = self.floating_ips(session, &query).await?;
        let found = page.items.into_iter().find(|one| one.floating_ip_address == address);
        found.ok_or_else(|| {
            not_to_be_had(&format!("the project has no floating IP {address}: reserve it first"))
        })
    }

    pub(crate) async fn describe_floating_ip(
        &self,
        session: &Session,
        id: &str,
        description: &str,
    ) -> VendorResult<()> {
        self.write(session, update(id), &json!({ "floatingip": { "description": description } })).await
    }

    /// Detaches a floating IP. `for_reserved` is the reserved floating IP that replaces the detached floating IP, if any. In this case, the
    /// function first checks that the replacement is available.
    pub(crate) async fn detach_floating_ip(
        &self,
        session: &Session,
        id: &str,
        for_reserved: Option<&(IpAddr, Box<Claim>)>,
    ) -> VendorResult<()> {
        if let Some((address, claim)) = for_reserved {
            let found = self.reserved(session, *address).await?;
            claimed(*address, &found, claim)?;
            if let Some(port) = found.port_id {
                return Err(in_use(*address, &port));
            }
        }
        self.write(session, update(id), &json!({ "floatingip": { "port_id": null } })).await
    }

    pub(crate) async fn delete_floating_ip(&self, session: &Session, id: &str) -> VendorResult<()> {
        let path = format!("/v2.0/floatingips/{}", encode(id));
        self.delete(session, call(DELETE_FLOATING_IP, Method::DELETE, path)).await
    }

    async fn floating_ips(&self, session: &Session, query: &str) -> VendorResult<Page<FloatingIp>> {
        let call = call(LIST_FLOATING_IPS, Method::GET, format!("/v2.0/floatingips?{query}"));
        self.page(session, "floatingips", call).await
    }

    /// Returns the query for the project's floating IPs. The query names the project, because administrators otherwise get the floating IPs
    /// of all projects.
    async fn own_floating_ips(&self, session: &Session) -> VendorResult<String> {
        let access = self.identity.access(session).await?;
        let fields: Vec<String> = FIELDS.iter().map(|field| format!("fields={field}")).collect();
        Ok(format!("project_id={}&{}", encode(&access.project.id), fields.join("&")))
    }

    /// Finds the external network or the subnet with this name or ID, and stores the IDs in `new`. Returns the CIDR of the subnet, or
    /// `None` for a network.
    async fn find_pool(
        &self,
        session: &Session,
        pool: &str,
        new: &mut NewFloatingIp,
    ) -> VendorResult<Option<IpNet>> {
        let field = "spec.address_pool";
        let invalid = |text: String| kit::invalid(field, text);
        let is_meant = |one: &External| one.id == pool || one.name == pool;
        let mut networks = self.external_networks(session).await?.into_iter().filter(is_meant);
        if let Some(network) = networks.next() {
            if let Some(other) = networks.next() {
                let text =
                    format!("networks {} and {} are both named {pool}: use an ID", network.id, other.id);
                return Err(invalid(text));
            }
            new.floating_network_id = Some(network.id);
            return Ok(None);
        }
        let subnets = self.subnets_called(session, pool).await?;
        let [subnet] = subnets.as_slice() else {
            let text = format!(
                "{} external networks or subnets visible to this project match {pool}",
                subnets.len()
            );
            return Err(invalid(text));
        };
        if let Some(other) = new.subnet_id.as_ref().filter(|other| **other != subnet.id) {
            let parameter = floating_subnet_field();
            return Err(invalid(format!(
                "the pool is subnet {}, but {parameter} is {other}: leave one out",
                subnet.id
            )));
        }
        new.floating_network_id = Some(subnet.network_id.clone());
        new.subnet_id = Some(subnet.id.clone());
        Ok(subnet.cidr)
    }

    async fn only_external_network(&self, session: &Session) -> VendorResult<String> {
        let field = "spec.address_pool";
        let invalid = |text: &str| {
            let text = format!(
                "{field} is not set, and the cloud has {text}: set it, or set \
                 adapter.openstack.loadBalancers.floatingNetworkId (--floating-network-id)"
            );
            Err(VendorError::new(Fault::Invalid, text).in_field(field))
        };
        match self.external_networks(session).await?.as_slice() {
            [one] => Ok(one.id.clone()),
            [] => invalid("no external network visible to this project"),
            several => invalid(&format!("{} external networks", several.len())),
        }
    }

    async fn external_networks(&self, session: &Session) -> VendorResult<Vec<External>> {
        #[derive(Deserialize)]
        struct Networks {
            networks: Vec<External>,
        }
        let path = "/v2.0/networks?router:external=true&fields=id&fields=name".to_owned();
        let Networks { networks } =
            self.read(session, call(LIST_EXTERNAL_NETWORKS, Method::GET, path)).await?;
        Ok(networks)
    }

    /// Finds the subnets with this name, or the subnet with this ID if no subnet has this name.
    async fn subnets_called(&self, session: &Session, word: &str) -> VendorResult<Vec<Subnet>> {
        #[derive(Deserialize)]
        struct Subnets {
            subnets: Vec<Subnet>,
        }
        for key in ["name", "id"] {
            let path =
                format!("/v2.0/subnets?{key}={}&fields=id&fields=network_id&fields=cidr", encode(word));
            let Subnets { subnets } = self.read(session, call(LIST_SUBNETS, Method::GET, path)).await?;
            if !subnets.is_empty() {
                return Ok(subnets);
            }
        }
        Ok(Vec::new())
    }
}

/// An external network.
#[derive(Deserialize)]
struct External {
    id: String,
    #[serde(default)]
    name: String,
}

/// A subnet of an external network.
#[derive(Deserialize)]
struct Subnet {
    id: String,
    network_id: String,
    cidr: Option<IpNet>,
}

/// Returns the description that the floating IP gets when it is claimed.
fn claimed(address: IpAddr, found: &FloatingIp, claim: &Claim) -> VendorResult<Description> {
    let refused =
        |why: String| not_to_be_had(&format!("floating IP {address} {why}: request a different floating IP"));
    claim.of_one_that_says(&found.description).map_err(refused)
}

fn in_use(address: IpAddr, port: &str) -> VendorError {
    not_to_be_had(&format!("floating IP {address} is in use by port {port}"))
}

fn not_to_be_had(text: &str) -> VendorError {
    kit::invalid("spec.requested_addresses", text)
}

fn create() -> Call {
    call(CREATE_FLOATING_IP, Method::POST, "/v2.0/floatingips".to_owned())
}

fn update(id: &str) -> Call {
    call(UPDATE_FLOATING_IP, Method::PUT, format!("/v2.0/floatingips/{}", encode(id)))
}

fn call(operation: Operation, method: Method, path: String) -> Call {
    Call { operation, service: Service::Network, method, path }
}
