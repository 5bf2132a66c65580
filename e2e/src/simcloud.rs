//! The simulated cloud as a separate process, which therefore outlives the adapter, and the cloud's admin API. Through this API, the test
//! acts as the user, who creates instances. It also acts as the operator, who observes and injects faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adapter_sim::simcloud::counts::{Counts, LogEntry};
use adapter_sim::simcloud::faults::FaultRule;
use adapter_sim::simcloud::model::{Instance, InstanceStatus, LoadBalancer, Project, Route};
use anyhow::{Context, ensure};
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::eventually::eventually;
use crate::http::Http;
use crate::pods::binaries;
use crate::process::{Launch, Process};
use crate::seconds;

/// A running simulated cloud. Dropping this value ends the cloud, and its state is lost.
#[derive(Debug)]
pub struct Simcloud {
    /// The process. `None` if another process started the cloud.
    process: Option<Process>,
    url: String,
    http: Http,
    /// The token that clients of the cloud must use. `None` until a token is set.
    token: Arc<Mutex<Option<String>>>,
}

/// The complete state of the cloud, including what its API does not show yet.
#[derive(Clone, Debug, Deserialize)]
pub struct State {
    /// The project.
    pub project: Project,
    /// All instances, including deleted ones while they are still listed.
    pub instances: Vec<Instance>,
    /// Load balancers, with listeners, pools and members.
    pub load_balancers: Vec<LoadBalancer>,
    /// The route table.
    pub routes: Vec<Route>,
}

impl State {
    /// The load balancer of a Service.
    pub fn balancer(&self, service: &str) -> anyhow::Result<&LoadBalancer> {
        let mut all = self.load_balancers.iter();
        all.find(|it| it.tags.get("cloudadapter.dev/owner-name").is_some_and(|name| name == service))
            .with_context(|| format!("{service} has no load balancer"))
    }
}

impl Simcloud {
    /// Starts a simulated cloud and waits until it answers.
    pub async fn start(control_plane: &ControlPlane) -> anyhow::Result<Self> {
        let address = format!("127.0.0.1:{}", test_support::ports::take()?);
        let launch = launch(control_plane, vec![format!("--listen={address}")])?;
        let process = launch.start().context("build the programs first: `cargo xtask test e2e` does this")?;
        let this = Self {
            process: Some(process),
            url: format!("http://{address}"),
            http: Http::new()?,
            token: Arc::default(),
        };
        eventually("simcloud answers", seconds(10), || async { this.counts().await }).await?;
        Ok(this)
    }

    /// A client of a simulated cloud that already runs.
    pub fn at(url: &str) -> anyhow::Result<Self> {
        Ok(Self { process: None, url: url.to_owned(), http: Http::new()?, token: Arc::default() })
    }

    /// Another client of the same cloud, for a separate task.
    pub fn caller(&self) -> Self {
        let (url, http, token) = (self.url.clone(), self.http.clone(), Arc::clone(&self.token));
        Self { process: None, url, http, token }
    }

    /// Replaces the cloud with a new cloud at the same address. The new cloud is another, empty project.
    pub async fn give_way_to(&mut self, project: &str, control_plane: &ControlPlane) -> anyhow::Result<()> {
        let address = self.url.trim_start_matches("http://");
        let args = vec![format!("--listen={address}"), format!("--project={project}")];
        self.process
            .as_mut()
            .context("this simcloud was not started by this process, so it cannot be stopped")?
            .kill()
            .await?;
        self.process = Some(launch(control_plane, args)?.start()?);
        eventually("the new simcloud answers", seconds(10), || async { self.counts().await }).await?;
        Ok(())
    }

    /// The URL of the cloud, for the adapter.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Creates one running instance; the cloud chooses its address.
    pub async fn create_instance(&self, name: &str) -> anyhow::Result<Instance> {
        let made = self.create_instances(&json!({ "name": name })).await?;
        made.into_iter().next().context("the cloud created no instance")
    }

    /// Creates `n` instances named by `pattern`, in which `{n}` is replaced by 1, 2, ...
    pub async fn create_numbered(&self, pattern: &str, n: usize) -> anyhow::Result<Vec<Instance>> {
        self.create_instances(&json!({ "name": pattern, "count": n })).await
    }

    /// Creates instances from a description: `{"name", "count", "type", "zone", "status", "addresses", "tags"}`.
    pub async fn create_instances(&self, order: &Value) -> anyhow::Result<Vec<Instance>> {
        #[derive(Deserialize)]
        struct Made {
            instances: Vec<Instance>,
        }
        let made: Made = self.call(Method::POST, "/admin/instances", Some(order)).await?;
        Ok(made.instances)
    }

    /// Sets the status of an instance: started, stopped or failed.
    pub async fn set_instance_status(&self, id: &str, status: InstanceStatus) -> anyhow::Result<Instance> {
        self.change_instance(id, &json!({ "status": status })).await
    }

    /// Changes fields of an instance.
    pub async fn change_instance(&self, id: &str, change: &Value) -> anyhow::Result<Instance> {
        self.call(Method::PATCH, &format!("/admin/instances/{id}"), Some(change)).await
    }

    /// Deletes an instance.
    pub async fn delete_instance(&self, id: &str) -> anyhow::Result<()> {
        self.order(Method::DELETE, &format!("/admin/instances/{id}"), None).await
    }

    /// Creates a route without owner tags, as another client would. The cloud counts this call like all others.
    pub async fn create_route(&self, destination: &str, instance: &str) -> anyhow::Result<()> {
        let order = json!({ "add": [{ "destination": destination, "next_hop_instance": instance }] });
        let done: Value = self.call(Method::POST, "/v1/routes:batch", Some(&order)).await?;
        ensure!(done.pointer("/added/0/error").is_none(), "the cloud refused the route: {done}");
        Ok(())
    }

    /// Calls the cloud's own API, as another client would. The cloud counts this call like all others.
    pub async fn by_hand(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
        self.order(method, path, body).await
    }

    /// Deletes a load balancer directly in the cloud, without the adapter.
    pub async fn delete_load_balancer(&self, id: &str) -> anyhow::Result<()> {
        self.order(Method::DELETE, &format!("/admin/load-balancers/{id}"), None).await
    }

    /// The state of the cloud.
    pub async fn state(&self) -> anyhow::Result<State> {
        self.call(Method::GET, "/admin/state", None).await
    }

    /// The number of calls of each operation since the last reset.
    pub async fn counts(&self) -> anyhow::Result<Counts> {
        self.call(Method::GET, "/admin/counts", None).await
    }

    /// Resets the counts, and returns the counts before the reset.
    pub async fn reset_counts(&self) -> anyhow::Result<Counts> {
        let counts = self.counts().await?;
        self.order(Method::POST, "/admin/counts/reset", None).await?;
        Ok(counts)
    }

    /// The last 10,000 requests since the reset of the counts, oldest first.
    pub async fn requests(&self) -> anyhow::Result<Vec<LogEntry>> {
        #[derive(Deserialize)]
        struct Log {
            requests: Vec<LogEntry>,
        }
        let log: Log = self.call(Method::GET, "/admin/log?limit=10000", None).await?;
        Ok(log.requests)
    }

    /// Injects a fault, and returns the ID by which the test ends it.
    pub async fn add_fault(&self, rule: &FaultRule) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct Standing {
            id: String,
        }
        let standing: Standing = self.call(Method::POST, "/admin/faults", Some(&json!(rule))).await?;
        Ok(standing.id)
    }

    /// Ends one fault.
    pub async fn remove_fault(&self, id: &str) -> anyhow::Result<()> {
        self.order(Method::DELETE, &format!("/admin/faults/{id}"), None).await
    }

    /// Ends all faults.
    pub async fn clear_faults(&self) -> anyhow::Result<()> {
        self.order(Method::DELETE, "/admin/faults", None).await
    }

    /// Makes only these tokens valid, each given as `{"token", "project"}`. This client uses the first one.
    pub async fn set_tokens(&mut self, tokens: &Value) -> anyhow::Result<()> {
        self.order(Method::PUT, "/admin/tokens", Some(&json!({ "tokens": tokens }))).await?;
        *self.token() = tokens.pointer("/0/token").and_then(Value::as_str).map(str::to_owned);
        Ok(())
    }

    /// Changes latency, limits, quotas and other settings. Settings that are not given stay unchanged.
    pub async fn configure(&self, settings: &Value) -> anyhow::Result<()> {
        self.order(Method::PATCH, "/admin/settings", Some(settings)).await
    }

    fn token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and ignores the content of the answer.
    async fn order(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
        self.call::<Value>(method, path, body).await.map(drop)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<T> {
        let (what, url) = (format!("simcloud {method} {path}"), format!("{}{path}", self.url));
        let answer = self.http.text(&what, |client| {
            let request = client.request(method, &url);
            let request = match &*self.token() {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            match body {
                Some(body) => request.json(body),
                None => request,
            }
        });
        let answer = answer.await?;
        serde_json::from_str(&answer).with_context(|| format!("unexpected answer to {what}: {answer}"))
    }
}

fn launch(control_plane: &ControlPlane, args: Vec<String>) -> anyhow::Result<Launch> {
    Ok(Launch {
        name: "simcloud".to_owned(),
        program: binaries()?.join("simcloud"),
        args,
        env: BTreeMap::new(),
        log_dir: control_plane.log_dir(),
    })
}
