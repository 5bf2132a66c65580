//! A cluster on the real services of `cargo xtask openstack`. It has a separate project. The proxy of the conformance suite counts the
//! adapter's calls to this project, and injects faults.
//!
//! This module starts and stops no service: `e2e/openstack/run.sh` does this for a whole run.

mod account;
mod project;
mod state;
mod vendor;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adapter_conformance::params::ProxyParams;
use adapter_conformance::proxy::Proxy;
use anyhow::Context;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};

pub use account::{Account, Credentials, Refusal, Service};
pub(crate) use project::DONE_WITHIN;
pub use project::Project;
pub use state::{Balancer, Count, FloatingIp, Listener, Member, Route, Server, State};
pub use vendor::operation;

use crate::control_plane::ControlPlane;
use crate::helm::merge;

/// The environment variable with the path of the administrator's clouds.yaml.
const CLOUDS: &str = "OS_CLIENT_CONFIG_FILE";
/// The Secret with the adapter's credentials.
const SECRET: &str = "openstack";
const REGION: &str = "RegionOne";
/// The name of the cloud for users in the clouds.yaml.
pub const USERS_CLOUD: &str = "user";
/// The services that the adapter calls, each with the version with which its paths begin.
const SERVICES: [(Service, &str); 4] = [
    (Service::Identity, "/v3"),
    (Service::Compute, "/v2.1"),
    (Service::Network, ""),
    (Service::LoadBalancer, ""),
];

/// A project of the real services, and the proxy between it and the adapter.
#[derive(Clone, Debug)]
pub struct OpenStack {
    /// The project, in which tests act as users. It outlives this value.
    pub project: Arc<Project>,
    /// The proxy through which the adapter calls the services.
    pub proxy: Proxy,
    clouds: PathBuf,
}

impl OpenStack {
    /// Starts the proxy for a project, and creates the adapter's credentials.
    pub async fn start(control_plane: &ControlPlane, project: Arc<Project>) -> anyhow::Result<Self> {
        let listen = format!("127.0.0.1:{}", test_support::ports::take()?);
        let proxy = proxy(&project, &listen).await?;
        let this = Self { project, proxy, clouds: control_plane.dir().join("clouds.yaml") };
        let keys = this.project.keys();
        let people = json!({ "auth": this.auth(&keys, Way::Straight), "region_name": REGION });
        fs::write(&this.clouds, json!({ "clouds": { USERS_CLOUD: people } }).to_string())
            .with_context(|| format!("cannot write {}", this.clouds.display()))?;
        this.give(&control_plane.client(), &keys).await?;
        Ok(this)
    }

    /// The path of the clouds.yaml for users. Calls of users do not pass through the proxy.
    pub fn clouds(&self) -> &Path {
        &self.clouds
    }

    /// The chart values for the cloud.
    pub fn values(&self) -> Value {
        let Project { subnet, router, external, .. } = &*self.project;
        json!({ "adapter": { "kind": "openstack", "credentialsSecret": SECRET, "openstack": {
            "routerId": router,
            "loadBalancers": { "subnetId": subnet, "floatingNetworkId": external },
        } } })
    }

    /// Writes these credentials into the adapter's Secret. The adapter gets them when the Secret's volume is refreshed.
    pub async fn give(&self, client: &Client, keys: &Value) -> anyhow::Result<()> {
        let mut cloud: BTreeMap<String, Value> = SERVICES
            .map(|it| {
                (format!("{}_endpoint_override", it.0.word().replace('-', "_")), json!(self.proxied(it)))
            })
            .into();
        cloud.insert("auth".to_owned(), self.auth(keys, Way::Proxied));
        cloud.insert("region_name".to_owned(), json!(REGION));
        let clouds = json!({ "clouds": { "adapter": cloud } }).to_string();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": SECRET },
            "stringData": { "clouds.yaml": clouds },
        });
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
        let apply = PatchParams::apply("e2e").force();
        secrets.patch(SECRET, &apply, &Patch::Apply(secret)).await.context("cannot write the Secret")?;
        Ok(())
    }

    fn auth(&self, keys: &Value, way: Way) -> Value {
        let [identity, ..] = SERVICES;
        let url = match way {
            Way::Proxied => self.proxied(identity),
            Way::Straight => self.project.member.credentials().auth_url.clone(),
        };
        let mut auth = keys.clone();
        merge(&mut auth, &json!({ "auth_url": url }));
        auth
    }

    fn proxied(&self, (service, version): (Service, &str)) -> String {
        format!("http://{}/{}{version}", self.proxy.address(), service.word())
    }
}

/// Whether a client calls the services through the proxy or directly.
#[derive(Clone, Copy, Debug)]
enum Way {
    Proxied,
    Straight,
}

/// The cloud `admin` of the file that the environment variable names.
fn administrator() -> anyhow::Result<Credentials> {
    #[derive(Deserialize)]
    struct Clouds {
        clouds: BTreeMap<String, Cloud>,
    }
    #[derive(Deserialize)]
    struct Cloud {
        auth: Credentials,
    }
    let file = env::var_os(CLOUDS).map(PathBuf::from).with_context(|| {
        format!(
            "{CLOUDS} is not set: run `cargo xtask demo --cloud openstack` or `cargo xtask test openstack-e2e`, \
             which start a local OpenStack, or `eval \"$(cargo xtask openstack up)\"` first"
        )
    })?;
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let Clouds { mut clouds } =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is not a clouds.yaml", file.display()))?;
    let cloud = clouds.remove("admin");
    Ok(cloud.with_context(|| format!("{} has no cloud admin", file.display()))?.auth)
}

async fn proxy(project: &Project, listen: &str) -> anyhow::Result<Proxy> {
    let mut upstreams = BTreeMap::new();
    for (service, _) in SERVICES {
        let url = project.member.endpoint(service)?;
        // Only scheme and host of the endpoint are used, because the paths of calls already contain the version.
        let (scheme, rest) = url.split_once("://").context("invalid endpoint URL")?;
        let host = rest.split('/').next().unwrap_or(rest);
        upstreams.insert(format!("/{}", service.word()), format!("{scheme}://{host}"));
    }
    let params: ProxyParams = serde_json::from_value(json!({ "listen": listen, "upstreams": upstreams }))?;
    Ok(Proxy::start(params, vendor::params()?).await?)
}
