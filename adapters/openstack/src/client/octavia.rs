//! Octavia's calls for load balancers.

use cloud_adapter::{
    driver::VendorError,
    vendor::{Family, Operation, Session},
};
use http::Method;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use super::{Body, Call, Client, Page, VendorResult, encode, limit};
use crate::{
    api::{
        requests::{
            CreateLoadBalancer, ListenerSettings, MonitorSettings, NewListener, NewMember, NewMonitor,
            NewPool, UpdatePool,
        },
        responses::{LiveBalancer, Member},
        version::Version,
    },
    identity::catalogue::Service,
};

pub(crate) const LIST_VERSIONS: Operation = Operation::read(Family::LoadBalancer, "ListVersions");
pub(crate) const LIST_LOAD_BALANCERS: Operation = Operation::read(Family::LoadBalancer, "ListLoadBalancers");
pub(crate) const LIST_LISTENERS: Operation = Operation::read(Family::LoadBalancer, "ListListeners");
pub(crate) const LIST_POOLS: Operation = Operation::read(Family::LoadBalancer, "ListPools");
pub(crate) const LIST_MONITORS: Operation = Operation::read(Family::LoadBalancer, "ListHealthMonitors");
pub(crate) const LIST_MEMBERS: Operation = Operation::read(Family::LoadBalancer, "ListMembers");
pub(crate) const SHOW_LOAD_BALANCER: Operation = Operation::read(Family::LoadBalancer, "ShowLoadBalancer");
pub(crate) const CREATE_LOAD_BALANCER: Operation =
    Operation::write(Family::LoadBalancer, "CreateLoadBalancer");
pub(crate) const UPDATE_LOAD_BALANCER: Operation =
    Operation::write(Family::LoadBalancer, "UpdateLoadBalancer");
pub(crate) const DELETE_LOAD_BALANCER: Operation =
    Operation::write(Family::LoadBalancer, "DeleteLoadBalancer");
pub(crate) const CREATE_LISTENER: Operation = Operation::write(Family::LoadBalancer, "CreateListener");
pub(crate) const UPDATE_LISTENER: Operation = Operation::write(Family::LoadBalancer, "UpdateListener");
pub(crate) const DELETE_LISTENER: Operation = Operation::write(Family::LoadBalancer, "DeleteListener");
pub(crate) const CREATE_POOL: Operation = Operation::write(Family::LoadBalancer, "CreatePool");
pub(crate) const UPDATE_POOL: Operation = Operation::write(Family::LoadBalancer, "UpdatePool");
pub(crate) const DELETE_POOL: Operation = Operation::write(Family::LoadBalancer, "DeletePool");
pub(crate) const UPDATE_MEMBERS: Operation = Operation::write(Family::LoadBalancer, "UpdateMembers");
pub(crate) const CREATE_MONITOR: Operation = Operation::write(Family::LoadBalancer, "CreateHealthMonitor");
pub(crate) const UPDATE_MONITOR: Operation = Operation::write(Family::LoadBalancer, "UpdateHealthMonitor");
pub(crate) const DELETE_MONITOR: Operation = Operation::write(Family::LoadBalancer, "DeleteHealthMonitor");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    LoadBalancers,
    Listeners,
    Pools,
    Monitors,
}

impl Listed {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::LoadBalancers => "loadbalancers",
            Self::Listeners => "listeners",
            Self::Pools => "pools",
            Self::Monitors => "healthmonitors",
        }
    }

    fn operation(self) -> Operation {
        match self {
            Self::LoadBalancers => LIST_LOAD_BALANCERS,
            Self::Listeners => LIST_LISTENERS,
            Self::Pools => LIST_POOLS,
            Self::Monitors => LIST_MONITORS,
        }
    }
}

/// Which members of the pool a write covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// All members of the pool. The write removes existing members that are not in the request.
    All,
    /// Only the members in the request. The write does not change other members.
    Named,
}

impl Client {
    /// Returns the newest version that the cloud lists. Clouds list one or several versions.
    pub(crate) async fn octavia_version(&self, session: &Session) -> VendorResult<Version> {
        #[derive(Deserialize)]
        struct Versions {
            versions: Vec<One>,
        }
        #[derive(Deserialize)]
        struct One {
            id: String,
        }
        let Versions { versions } =
            self.read(session, call(LIST_VERSIONS, Method::GET, "/".to_owned())).await?;
        let newest = versions.iter().filter_map(|one| Version::read(&one.id)).max();
        newest
            .ok_or_else(|| VendorError::nonsense(format!("{LIST_VERSIONS}: the answer has no valid version")))
    }

    /// Lists a page of a collection. `query` is set for every page except the first. The query names the project because administrators
    /// otherwise get the objects of all projects.
    pub(crate) async fn list_octavia<T: DeserializeOwned>(
        &self,
        session: &Session,
        what: Listed,
        query: Option<&str>,
        size: Option<u32>,
    ) -> VendorResult<Page<T>> {
        let query = match query {
            Some(query) => query.to_owned(),
            None => {
                let access = self.identity.access(session).await?;
                format!("project_id={}&{}", encode(&access.project.id), limit(size))
            }
        };
        let path = format!("/v2/lbaas/{}?{query}", what.word());
        self.page(session, what.word(), call(what.operation(), Method::GET, path)).await
    }

    pub(crate) async fn list_members(
        &self,
        session: &Session,
        pool: &str,
        query: Option<&str>,
    ) -> VendorResult<Page<Member>> {
        let query = query.map_or_else(|| limit(None), str::to_owned);
        let path = format!("/v2/lbaas/pools/{}/members?{query}", encode(pool));
        self.page(session, "members", call(LIST_MEMBERS, Method::GET, path)).await
    }

    pub(crate) async fn show_load_balancer(&self, session: &Session, id: &str) -> VendorResult<LiveBalancer> {
        #[derive(Deserialize)]
        struct Shown {
            loadbalancer: LiveBalancer,
        }
        let call = call(SHOW_LOAD_BALANCER, Method::GET, path("loadbalancers", Some(id)));
        let Shown { loadbalancer } = self.read(session, call).await?;
        Ok(loadbalancer)
    }

    /// Creates a load balancer. `vip_subnet_id` is the subnet of the VIP, if that subnet was looked up because the request names no subnet.
    pub(crate) async fn create_load_balancer(
        &self,
        session: &Session,
        new: &CreateLoadBalancer,
        vip_subnet_id: Option<&str>,
    ) -> VendorResult<()> {
        #[derive(Serialize)]
        struct Placed<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            vip_subnet_id: Option<&'a str>,
            #[serde(flatten)]
            new: &'a CreateLoadBalancer,
        }
        let call = call(CREATE_LOAD_BALANCER, Method::POST, path("loadbalancers", None));
        self.write(session, call, &Body("loadbalancer", &Placed { vip_subnet_id, new })).await
    }

    pub(crate) async fn tag_load_balancer(
        &self,
        session: &Session,
        id: &str,
        tags: &[String],
    ) -> VendorResult<()> {
        let call = call(UPDATE_LOAD_BALANCER, Method::PUT, path("loadbalancers", Some(id)));
        self.write(session, call, &json!({ "loadbalancer": { "tags": tags } })).await
    }

    pub(crate) async fn rename_load_balancer(
        &self,
        session: &Session,
        id: &str,
        name: &str,
    ) -> VendorResult<()> {
        let call = call(UPDATE_LOAD_BALANCER, Method::PUT, path("loadbalancers", Some(id)));
        self.write(session, call, &json!({ "loadbalancer": { "name": name } })).await
    }

    pub(crate) async fn delete_load_balancer(&self, session: &Session, id: &str) -> VendorResult<()> {
        let path = format!("{}?cascade=true", path("loadbalancers", Some(id)));
        self.delete(session, call(DELETE_LOAD_BALANCER, Method::DELETE, path)).await
    }

    pub(crate) async fn create_listener(
        &self,
        session: &Session,
        balancer: &str,
        pool: &str,
        new: &NewListener,
    ) -> VendorResult<()> {
        #[derive(Serialize)]
        struct In<'a> {
            loadbalancer_id: &'a str,
            default_pool_id: &'a str,
            #[serde(flatten)]
            new: &'a NewListener,
        }
        let body = In { loadbalancer_id: balancer, default_pool_id: pool, new };
        let call = call(CREATE_LISTENER, Method::POST, path("listeners", None));
        self.write(session, call, &Body("listener", &body)).await
    }

    /// Updates a listener. `pool` is the pool to switch to, if any.
    pub(crate) async fn update_listener(
        &self,
        session: &Session,
        id: &str,
        pool: Option<&str>,
        change: &ListenerSettings,
    ) -> VendorResult<()> {
        #[derive(Serialize)]
        struct To<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            default_pool_id: Option<&'a str>,
            #[serde(flatten)]
            change: &'a ListenerSettings,
        }
        let call = call(UPDATE_LISTENER, Method::PUT, path("listeners", Some(id)));
        self.write(session, call, &json!({ "listener": To { default_pool_id: pool, change } })).await
    }

    pub(crate) async fn delete_listener(&self, session: &Session, id: &str) -> VendorResult<()> {
        self.delete(session, call(DELETE_LISTENER, Method::DELETE, path("listeners", Some(id)))).await
    }

    pub(crate) async fn create_pool(
        &self,
        session: &Session,
        balancer: &str,
        new: &NewPool,
    ) -> VendorResult<()> {
        #[derive(Serialize)]
        struct In<'a> {
            loadbalancer_id: &'a str,
            #[serde(flatten)]
            new: &'a NewPool,
        }
        let call = call(CREATE_POOL, Method::POST, path("pools", None));
        self.write(session, call, &Body("pool", &In { loadbalancer_id: balancer, new })).await
    }

    pub(crate) async fn update_pool(
        &self,
        session: &Session,
        id: &str,
        change: &UpdatePool,
    ) -> VendorResult<()> {
        let call = call(UPDATE_POOL, Method::PUT, path("pools", Some(id)));
        self.write(session, call, &json!({ "pool": change })).await
    }

    pub(crate) async fn delete_pool(&self, session: &Session, id: &str) -> VendorResult<()> {
        self.delete(session, call(DELETE_POOL, Method::DELETE, path("pools", Some(id)))).await
    }

    pub(crate) async fn update_members(
        &self,
        session: &Session,
        pool: &str,
        which: Which,
        members: &[NewMember],
    ) -> VendorResult<()> {
        let query = match which {
            Which::All => "",
            Which::Named => "?additive_only=true",
        };
        let path = format!("/v2/lbaas/pools/{}/members{query}", encode(pool));
        self.write(session, call(UPDATE_MEMBERS, Method::PUT, path), &Body("members", members)).await
    }

    pub(crate) async fn create_monitor(
        &self,
        session: &Session,
        pool: &str,
        new: &NewMonitor,
    ) -> VendorResult<()> {
        #[derive(Serialize)]
        struct Of<'a> {
            pool_id: &'a str,
            #[serde(flatten)]
            new: &'a NewMonitor,
        }
        let call = call(CREATE_MONITOR, Method::POST, path("healthmonitors", None));
        self.write(session, call, &json!({ "healthmonitor": Of { pool_id: pool, new } })).await
    }

    pub(crate) async fn update_monitor(
        &self,
        session: &Session,
        id: &str,
        change: &MonitorSettings,
    ) -> VendorResult<()> {
        let call = call(UPDATE_MONITOR, Method::PUT, path("healthmonitors", Some(id)));
        self.write(session, call, &json!({ "healthmonitor": change })).await
    }

    pub(crate) async fn delete_monitor(&self, session: &Session, id: &str) -> VendorResult<()> {
        self.delete(session, call(DELETE_MONITOR, Method::DELETE, path("healthmonitors", Some(id)))).await
    }
}

fn call(operation: Operation, method: Method, path: String) -> Call {
    Call { operation, service: Service::LoadBalancer, method, path }
}

fn path(collection: &str, id: Option<&str>) -> String {
    let id = id.map(|id| format!("/{}", encode(id))).unwrap_or_default();
    format!("/v2/lbaas/{collection}{id}")
}
