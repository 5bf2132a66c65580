//! A simulated cloud on a loopback port. Tests create its objects and faults through its admin API.

use adapter_sim::simcloud::{Cloud, Operation, SharedCloud, counts::Counts, model::Project, serve};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) struct TestCloud {
    pub(crate) url: String,
    cloud: SharedCloud,
    admin: Client,
    _serving: JoinSet<std::io::Result<()>>,
}

impl TestCloud {
    /// Starts a cloud. `settings` are merged into the default settings.
    pub(crate) async fn start(settings: Value) -> Self {
        Self::start_at("127.0.0.1:0", settings).await
    }

    /// Starts a cloud that completes every write at once.
    pub(crate) async fn fast(settings: Value) -> Self {
        let instant = json!({ "create_ms": 0, "update_ms": 0, "delete_ms": 0 });
        let cloud = Self::start(json!({ "provisioning": instant })).await;
        cloud.settings(settings).await;
        cloud
    }

    /// Starts a cloud at this address. `settings` are merged into the default settings.
    pub(crate) async fn start_at(address: &str, settings: Value) -> Self {
        let project = Project { account: "sim".into(), project: "demo".into(), region: "sim-1".into() };
        let cloud = SharedCloud::new(Cloud::new(project));
        let listener = TcpListener::bind(address).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, cloud.clone(), CancellationToken::new()));
        #[expect(
            clippy::disallowed_methods,
            reason = "tests act as the vendor's operator, which needs no budget"
        )]
        let admin = Client::builder().no_proxy().build().expect("a client");
        let started = Self { url, cloud, admin, _serving: serving };
        started.settings(settings).await;
        started
    }

    pub(crate) async fn admin(&self, method: Method, path: &str, body: Value) -> Value {
        self.call(method, &format!("admin/{path}"), body).await
    }

    /// Makes one call of the vendor's API, as a user would.
    pub(crate) async fn vendor(&self, method: Method, path: &str, body: Value) -> Value {
        self.call(method, &format!("v1/{path}"), body).await
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.admin.request(method, format!("{}/{path}", self.url)).json(&body);
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let answer: Value = response.json().await.expect("JSON");
        assert!(status.is_success(), "{path}: {answer}");
        answer
    }

    pub(crate) async fn settings(&self, settings: Value) {
        self.admin(Method::PATCH, "settings", settings).await;
    }

    pub(crate) async fn fault(&self, rule: Value) {
        self.admin(Method::POST, "faults", rule).await;
    }

    /// Creates instances `node-1`, `node-2` and so on. If no instance exists yet, their IDs are `i-0001`, `i-0002` and so on.
    pub(crate) async fn machines(&self, count: u64) {
        self.admin(Method::POST, "instances", json!({ "count": count, "name": "node-{n}" })).await;
    }

    /// Returns all objects in their latest state, without the consistency lag.
    pub(crate) async fn state(&self) -> Value {
        self.admin(Method::GET, "state", Value::Null).await
    }

    pub(crate) async fn balancer(&self) -> Value {
        let mut all = self.state().await["load_balancers"].take();
        let all = all.as_array_mut().expect("a list");
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.cloud.with(|cloud, _| cloud.counts().clone())
    }

    pub(crate) fn count(&self, operation: Operation) -> u64 {
        self.counts().of(operation)
    }

    pub(crate) fn count_from_here(&self) {
        self.cloud.with(|cloud, _| cloud.reset_counts());
    }
}
