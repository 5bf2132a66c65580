//! An adapter with or without a fault, and its own cloud.

use std::time::Duration;

use adapter_sim::{
    SimOptions,
    broken::{Broken, Fault},
};
use clap::Parser;
use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        BatchGetInstancesResponse, EnsureLoadBalancerRequest, Existence, Instance, InstanceResult,
        instance_ref::Ref,
    },
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    adapter::bench::{TestAdapter, live, options},
    support::TIMEOUT,
    support::cloud::TestCloud,
    support::wanted::{backend, spec, tcp},
};

/// Time to wait for an event that must not happen.
pub(crate) const WHILE: Duration = Duration::from_secs(5);
/// Consistency lag of the cloud.
const HORIZON_MS: &str = "50";
/// A bucket that only an excessive number of calls exceeds.
const PLENTY: &str = "{rate: 100000, burst: 10000}";

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    cloud: SimOptions,
}

/// An adapter and its cloud.
pub(crate) struct World {
    pub(crate) cloud: TestCloud,
    pub(crate) adapter: TestAdapter,
    fault: Option<Fault>,
}

/// The configuration file. One family may have a different limit.
pub(crate) fn config(compute: &str) -> String {
    format!(
        "limits: {{buckets: {{compute: {compute}, network: {PLENTY}, loadbalancer: {PLENTY}, identity: {PLENTY}}}}}"
    )
}

async fn adapter(cloud: &str, fault: Option<Fault>, config: &str) -> TestAdapter {
    let flags = ["test", "--endpoint", cloud, "--consistency-horizon-ms", HORIZON_MS];
    let cloud = Flags::try_parse_from(flags).expect("the flags are valid").cloud;
    let (file, options) = options(config);
    let adapter = match fault {
        None => {
            let driver = cloud.driver().await.expect("no token");
            TestAdapter::serve((file, options), driver, std::convert::identity).await
        }
        Some(fault) => {
            let broken = Broken::new(fault);
            let driver = broken.driver(cloud, &options).await.expect("no token");
            let options = broken.flags(&options);
            TestAdapter::serve((file, options), driver, move |services| broken.front(services)).await
        }
    };
    adapter.ready().await;
    adapter
}

impl World {
    pub(crate) async fn of(fault: Option<Fault>) -> Self {
        Self::limited(fault, PLENTY).await
    }

    /// Starts both with another limit for reading instances.
    pub(crate) async fn limited(fault: Option<Fault>, compute: &str) -> Self {
        let quick = json!({ "provisioning": { "create_ms": 0, "update_ms": 0, "delete_ms": 0 } });
        let cloud = TestCloud::start(quick).await;
        let adapter = adapter(&cloud.url, fault, &config(compute)).await;
        cloud.count_from_here();
        Self { cloud, adapter, fault }
    }

    /// Starts the adapter with a limit for reading instances, and an existing cloud.
    pub(crate) async fn with_limit(self, compute: &str) -> Self {
        Self::limited(self.fault, compute).await
    }

    /// Replaces the process by a new one.
    pub(crate) async fn restarted(self) -> Self {
        let Self { cloud, adapter: old, fault } = self;
        old.kill().await;
        let adapter = adapter(&cloud.url, fault, &config(PLENTY)).await;
        cloud.count_from_here();
        Self { cloud, adapter, fault }
    }

    /// Makes the next call of an operation fail, or all calls of it.
    pub(crate) async fn spoil(&self, operation: &str, when: Value, action: Value) {
        self.cloud
            .fault(json!({ "match": { "operation": operation }, "when": when, "action": action }))
            .await;
    }

    pub(crate) async fn refuse(&self, operation: &str, status: u16) {
        self.spoil(operation, json!({ "next": 1 }), json!({ "respond": { "status": status } })).await;
    }

    /// Makes one call of the vendor's API, as a user would.
    pub(crate) async fn vendor(&self, method: Method, path: &str, body: Value) -> Value {
        #[expect(
            clippy::disallowed_methods,
            reason = "tests act as the vendor's operator, which needs no budget"
        )]
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let request = client.request(method, format!("{}/v1/{path}", self.cloud.url)).json(&body);
        let response = request.send().await.expect("an answer");
        let answer = response.json().await.expect("JSON");
        self.cloud.count_from_here();
        answer
    }

    /// The number of load balancers.
    pub(crate) async fn balancers(&self) -> usize {
        self.cloud.state().await["load_balancers"].as_array().map_or(0, Vec::len)
    }

    /// The first load balancer.
    pub(crate) async fn first(&self) -> Value {
        self.cloud.state().await["load_balancers"][0].take()
    }

    /// A context that requires a fresh answer from the vendor.
    pub(crate) async fn look_up(
        &self,
        refs: impl IntoIterator<Item = Ref>,
    ) -> Result<BatchGetInstancesResponse, AdapterError> {
        self.adapter.batch_get(live(), refs).await
    }

    /// The result for one instance.
    pub(crate) async fn result(&self, one: Ref) -> InstanceResult {
        self.look_up([one]).await.expect("answered").results.remove(0)
    }

    pub(crate) async fn existence(&self, one: Ref) -> Existence {
        self.result(one).await.existence()
    }

    pub(crate) async fn instance(&self, n: u16) -> Instance {
        self.result(id(n)).await.instance.expect("there")
    }

    /// A request with one port and one backend.
    pub(crate) async fn web(&self) -> EnsureLoadBalancerRequest {
        self.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await
    }

    /// Repeats Ensure until the load balancer is ACTIVE.
    pub(crate) async fn made(&self) -> EnsureLoadBalancerRequest {
        let request = self.web().await;
        self.adapter.ensured(&request).await;
        self.cloud.count_from_here();
        request
    }
}

/// A reference to the instance `i-000n`.
pub(crate) fn id(n: u16) -> Ref {
    Ref::ProviderId(format!("sim://sim-1/i-{n:04}"))
}

/// Whether a condition becomes true within [`WHILE`].
pub(crate) async fn soon(mut is_so: impl AsyncFnMut() -> bool) -> bool {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WHILE.min(TIMEOUT), wait).await.is_ok()
}
