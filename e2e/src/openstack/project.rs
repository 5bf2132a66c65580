//! A project for one run, with a user, a network and a router. The project contains nothing else, so every object that a test leaves behind
//! is found.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::eventually::eventually;
use crate::seconds;

use super::account::{Account, Credentials, Service, status_of};
use super::administrator;
use super::state::{self, Balancer, Count, Route, Server, State, part};

/// The deadline of any operation of the services. A load balancer takes 10 s, but minutes on a busy host.
pub(crate) const DONE_WITHIN: Duration = seconds(600);
const PASSWORD: &str = "stack";
const ROLES: [&str; 2] = ["member", "load-balancer_member"];
/// The CIDR of the project's subnet.
const NODES: &str = "10.20.0.0/16";

/// A project, with access as its user and as the administrator.
#[derive(Debug)]
pub struct Project {
    /// The administrator's session, which may set quotas and manage users.
    pub admin: Account,
    /// The session of the project's user.
    pub member: Account,
    /// The subnet of instances and load balancers.
    pub subnet: String,
    /// The router of the subnet.
    pub router: String,
    /// The only external network of the OpenStack cloud.
    pub external: String,
    network: String,
    image: String,
    flavor: String,
}

impl Project {
    /// Creates a project with everything that instances and load balancers need.
    pub async fn make() -> anyhow::Result<Self> {
        let admin = Account::log_in(administrator()?)
            .await
            .context("the local OpenStack rejects its administrator: run `cargo xtask openstack status`")?;
        let name = &format!("e2e-{:x}", RandomState::new().hash_one(std::process::id()));
        let order = json!({ "project": { "name": name, "domain_id": "default" } });
        let made = admin.post(Service::Identity, "/projects", &order).await?;
        let id: String = part(&made, "/project/id")?;
        user(&admin, &id, name).await?;
        let quotas = json!({ "quota_set": { "instances": 200, "cores": 200, "ram": 1_000_000 } });
        admin.put(Service::Compute, &format!("/os-quota-sets/{id}"), &quotas).await?;

        let auth_url = admin.credentials().auth_url.clone();
        let (username, project_name) = (name.to_owned(), name.to_owned());
        let password = PASSWORD.to_owned();
        let member = Account::log_in(Credentials { auth_url, username, password, project_name }).await?;
        let external = "/v2.0/networks?router:external=true&fields=id";
        let external: String = part(&member.get(Service::Network, external).await?, "/networks/0/id")?;
        let (network, subnet, router) = network(&member, name, &external).await?;
        let images = member.get(Service::Image, "/v2/images?name=tiny").await?;
        let flavors = member.get(Service::Compute, "/flavors").await?;
        let flavors = flavors.pointer("/flavors").and_then(Value::as_array).context("Nova has no flavors")?;
        let flavor = flavors.iter().find(|it| it.pointer("/name") == Some(&json!("m1.small")));
        let flavor = part(flavor.context("cannot find the flavor m1.small")?, "/id")?;
        let image = part(&images, "/images/0/id")?;
        Ok(Self { admin, member, subnet, router, external, network, image, flavor })
    }

    /// Creates running instances: `name` itself, or `name-1`, `name-2` ... if there are several, as Nova numbers them.
    pub async fn create_servers(&self, name: &str, count: usize) -> anyhow::Result<Vec<Server>> {
        let order = json!({ "server": {
            "name": name, "imageRef": self.image, "flavorRef": self.flavor, "networks": [{ "uuid": self.network }],
            "min_count": count, "max_count": count, "return_reservation_id": true,
        }});
        let made = self.member.post(Service::Compute, "/servers", &order).await?;
        let reservation: String = part(&made, "/reservation_id")?;
        let path = format!("/servers/detail?reservation_id={reservation}");
        eventually(&format!("{count} instances run"), DONE_WITHIN, || async {
            let servers: Vec<Server> = part(&self.member.get(Service::Compute, &path).await?, "/servers")?;
            let running = servers.len() == count && servers.iter().all(|it| it.status == "ACTIVE");
            ensure!(running, "{servers:?}");
            Ok(servers)
        })
        .await
    }

    /// Deletes an instance and waits until it is gone.
    pub async fn delete_server(&self, name: &str) -> anyhow::Result<()> {
        for server in self.state().await?.servers.iter().filter(|it| it.name == name) {
            self.member.delete(Service::Compute, &format!("/servers/{}", server.id)).await?;
        }
        eventually(&format!("instance {name} is gone"), DONE_WITHIN, || async {
            let left = self.state().await?.servers;
            ensure!(left.iter().all(|it| it.name != name), "{left:?}");
            Ok(())
        })
        .await
    }

    /// Deletes a load balancer with its parts, without the adapter, and waits until it is gone.
    pub async fn delete_balancer(&self, id: &str) -> anyhow::Result<()> {
        eventually(&format!("load balancer {id} is gone"), DONE_WITHIN, || async {
            let left = self.state().await?.balancers;
            let Some(balancer) = left.iter().find(|it| it.id == id) else { return Ok(()) };
            self.begin_deletion(balancer).await?;
            anyhow::bail!("its status is {}", balancer.provisioning_status)
        })
        .await
    }

    /// Sets the status of a load balancer to `ERROR`, for which the API has no call.
    pub async fn break_balancer(&self, id: &str) -> anyhow::Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("openstack").join("hold.sh");
        let done = Command::new(&script).args(["lb", id, "ERROR"]).output().await;
        let done = done.with_context(|| format!("cannot start {}", script.display()))?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }

    /// Sets the quota of load balancers; -1 is unlimited.
    pub async fn limit_balancers(&self, limit: i32) -> anyhow::Result<()> {
        let path = format!("/v2/lbaas/quotas/{}", self.member.project);
        let quota = json!({ "quota": { "load_balancer": limit } });
        self.admin.put(Service::LoadBalancer, &path, &quota).await.map(drop)
    }

    /// Sets the quota of floating IPs; -1 is unlimited.
    pub async fn limit_floating_ips(&self, limit: i32) -> anyhow::Result<()> {
        let path = format!("/v2.0/quotas/{}", self.member.project);
        let quota = json!({ "quota": { "floatingip": limit } });
        self.admin.put(Service::Network, &path, &quota).await.map(drop)
    }

    /// Revokes all tokens of the project's user. The services notice the revocation within 5 s. New tokens are valid at once.
    pub async fn revoke_tokens(&self) -> anyhow::Result<()> {
        let path = format!("/users/{}", self.member.user);
        for enabled in [false, true] {
            self.admin.patch(Service::Identity, &path, &json!({ "user": { "enabled": enabled } })).await?;
        }
        Ok(())
    }

    /// The common name of the project, its user and its network.
    pub fn name(&self) -> &str {
        &self.member.credentials().project_name
    }

    /// The `auth` of a clouds.yaml for the project's user.
    pub fn keys(&self) -> Value {
        let Credentials { username, password, project_name, .. } = self.member.credentials();
        json!({
            "username": username, "password": password, "project_name": project_name,
            "user_domain_name": "Default", "project_domain_name": "Default",
        })
    }

    /// The `auth` of a clouds.yaml with a new application credential of the project's user, for this project only.
    pub async fn application_credential(&self) -> anyhow::Result<Value> {
        let path = format!("/users/{}/application_credentials", self.member.user);
        let order = json!({ "application_credential": { "name": "adapter" } });
        let made = self.member.post(Service::Identity, &path, &order).await?;
        let field = |name: &str| part::<String>(&made, &format!("/application_credential/{name}"));
        Ok(json!({
            "application_credential_id": field("id")?, "application_credential_secret": field("secret")?,
        }))
    }

    /// The router's extra routes.
    pub async fn routes(&self) -> anyhow::Result<Vec<Route>> {
        state::routes(&self.member, &self.router).await
    }

    /// The content of the project.
    pub async fn state(&self) -> anyhow::Result<State> {
        State::of(&self.member, &self.router).await
    }

    /// The number of objects in the project.
    pub async fn count(&self) -> anyhow::Result<Count> {
        Ok(self.state().await?.count())
    }

    /// Removes the project and all objects in it.
    pub async fn remove(&self) -> anyhow::Result<()> {
        let what = format!("project {} is empty", self.member.project);
        eventually(&what, DONE_WITHIN, || async { self.empty().await }).await?;
        self.remove_network().await?;
        let Account { project, user, .. } = &self.member;
        self.admin.delete(Service::Network, &format!("/v2.0/quotas/{project}")).await?;
        self.admin.delete(Service::Identity, &format!("/users/{user}")).await?;
        self.admin.delete(Service::Identity, &format!("/projects/{project}")).await
    }

    /// Deletes the objects of the project. Returns an error while some are left.
    async fn empty(&self) -> anyhow::Result<()> {
        let state = self.state().await?;
        for balancer in &state.balancers {
            self.begin_deletion(balancer).await?;
        }
        for server in &state.servers {
            self.member.delete(Service::Compute, &format!("/servers/{}", server.id)).await?;
        }
        for ip in &state.floating_ips {
            self.member.delete(Service::Network, &format!("/v2.0/floatingips/{}", ip.id)).await?;
        }
        let (balancers, servers) = (state.balancers.len(), state.servers.len());
        ensure!(balancers + servers == 0, "{balancers} load balancers and {servers} instances are left");
        Ok(())
    }

    /// Begins to delete a load balancer. Ignores a conflict with a change that is still in progress.
    async fn begin_deletion(&self, balancer: &Balancer) -> anyhow::Result<()> {
        if balancer.provisioning_status.starts_with("PENDING") {
            return Ok(());
        }
        let path = format!("/v2/lbaas/loadbalancers/{}?cascade=true", balancer.id);
        match self.member.delete(Service::LoadBalancer, &path).await {
            Err(error) if status_of(&error) == Some(http::StatusCode::CONFLICT) => Ok(()),
            done => done,
        }
    }

    async fn remove_network(&self) -> anyhow::Result<()> {
        let router = format!("/v2.0/routers/{}", self.router);
        let member = &self.member;
        member.put(Service::Network, &router, &json!({ "router": { "routes": [] } })).await?;
        let interface = json!({ "subnet_id": self.subnet });
        member.put(Service::Network, &format!("{router}/remove_router_interface"), &interface).await?;
        member.delete(Service::Network, &router).await?;
        member.delete(Service::Network, &format!("/v2.0/networks/{}", self.network)).await?;
        let groups = format!("/v2.0/security-groups?project_id={}&fields=id", member.project);
        let groups: Vec<Value> = part(&self.admin.get(Service::Network, &groups).await?, "/security_groups")?;
        for group in groups {
            let id: String = part(&group, "/id")?;
            self.admin.delete(Service::Network, &format!("/v2.0/security-groups/{id}")).await?;
        }
        Ok(())
    }
}

/// Creates a user with the name of the project and the rights of an ordinary user in it.
async fn user(admin: &Account, project: &str, name: &str) -> anyhow::Result<()> {
    let order = json!({ "user": { "name": name, "password": PASSWORD, "domain_id": "default" } });
    let made = admin.post(Service::Identity, "/users", &order).await?;
    let user: String = part(&made, "/user/id")?;
    for role in ROLES {
        let found = admin.get(Service::Identity, &format!("/roles?name={role}")).await?;
        let role: String = part(&found, "/roles/0/id")?;
        let path = format!("/projects/{project}/users/{user}/roles/{role}");
        admin.put(Service::Identity, &path, &json!({})).await?;
    }
    Ok(())
}

/// Creates a network behind a router with a gateway, and returns the IDs of network, subnet and router.
async fn network(member: &Account, name: &str, external: &str) -> anyhow::Result<(String, String, String)> {
    let made =
        member.post(Service::Network, "/v2.0/networks", &json!({ "network": { "name": name } })).await?;
    let network: String = part(&made, "/network/id")?;
    let order = json!({ "subnet": { "name": name, "network_id": network, "ip_version": 4, "cidr": NODES } });
    let subnet = part(&member.post(Service::Network, "/v2.0/subnets", &order).await?, "/subnet/id")?;
    let gateway = json!({ "network_id": external });
    let order = json!({ "router": { "name": name, "external_gateway_info": gateway } });
    let router: String = part(&member.post(Service::Network, "/v2.0/routers", &order).await?, "/router/id")?;
    let path = format!("/v2.0/routers/{router}/add_router_interface");
    member.put(Service::Network, &path, &json!({ "subnet_id": subnet })).await?;
    Ok((network, subnet, router))
}
