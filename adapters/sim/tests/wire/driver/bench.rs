//! A driver with a cloud, and a minimal version of the runtime's loop.

use std::{sync::Arc, time::Duration};

use adapter_sim::{ClientTokens, Settings, SimDriver};
use cloud_adapter::{
    driver::{
        Collection, DesiredLoadBalancer, Driver, Inheritance, LoadBalancerRecord, Outcome, RouteChanges,
        VendorError, WantedRoute,
    },
    metrics::Metrics,
    vendor::{Family, Purpose, Session, Vendor},
};
use cloud_api_proto::v1alpha1::{
    Backend, Fence, Instance, LoadBalancerSpec, LoadBalancerState, NextHop, Owner, Priority, Route, RouteKey,
    RouteUpsert,
};
use cloud_budget::{BucketConfig, Config, RateLimit};
use serde_json::{Value, json};

use crate::{
    support::cloud::TestCloud,
    support::wanted::{CLUSTER, key, owner},
};

pub(crate) type Record = LoadBalancerRecord<<SimDriver as Driver>::Detail>;

const ROUNDS_MAX: usize = 200;

pub(crate) struct Bench {
    pub(crate) cloud: TestCloud,
    pub(crate) driver: SimDriver,
    pub(crate) session: Session,
}

/// Starts a cloud that completes every write at once.
pub(crate) async fn bench() -> Bench {
    bench_with(json!({})).await
}

pub(crate) async fn bench_with(settings: Value) -> Bench {
    let cloud = TestCloud::fast(settings).await;
    let driver = driver(&cloud.url, None, "sim-1");
    Bench { session: session(&driver), cloud, driver }
}

pub(crate) fn driver(url: &str, token: Option<&str>, region: &str) -> SimDriver {
    let settings = Settings {
        endpoint: url.parse().expect("a URL"),
        token: token.map(Into::into),
        region: region.to_owned(),
        consistency_horizon: Duration::from_secs(2),
        create_horizon: Duration::from_secs(2),
        client_tokens: ClientTokens::Sent,
    };
    SimDriver::new(settings).expect("a plain token")
}

pub(crate) fn session(driver: &SimDriver) -> Session {
    let limit = RateLimit { rate: 1e6, burst: 10_000 };
    let unlimited = BucketConfig { limit, ..BucketConfig::unconfigured() };
    let buckets = Family::ALL.map(|family| (family.word().to_owned(), unlimited.clone())).into();
    let vendor =
        Vendor::new(&Config { buckets, ..Config::default() }, Arc::new(driver.clone()), &Metrics::new());
    Arc::new(vendor.expect("a client")).session(Purpose::own(Priority::Interactive, "test"))
}

/// Returns the desired state of the load balancer of the Service `shop/web`.
pub(crate) fn desired(spec: LoadBalancerSpec, backends: impl Into<Arc<[Backend]>>) -> DesiredLoadBalancer {
    DesiredLoadBalancer {
        key: key("web"),
        owner: owner("web"),
        cluster_name: "prod".into(),
        inheritance: Inheritance::ByName,
        hash: format!("1-{}", spec.listeners.len()),
        spec,
        backends: backends.into(),
    }
}

impl Bench {
    pub(crate) async fn balancers(&self) -> Vec<Record> {
        let page = Collection::<Record>::list_page(&self.driver, &self.session, None, None).await;
        page.expect("a listing").items
    }

    pub(crate) async fn instances(&self) -> Vec<Instance> {
        let page = Collection::<Instance>::list_page(&self.driver, &self.session, None, None).await;
        page.expect("a listing").items
    }

    pub(crate) async fn routes(&self) -> Vec<Route> {
        let page = Collection::<Route>::list_page(&self.driver, &self.session, None, None).await;
        page.expect("a listing").items
    }

    /// Observes the cloud, makes the first write of a plan, and repeats this until no write is left. Returns the load balancer and the
    /// writes.
    pub(crate) async fn ensure(&self, desired: &DesiredLoadBalancer) -> (Record, Vec<String>) {
        let mut writes = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let mut records = self.balancers().await;
            assert!(records.len() <= 1, "a second load balancer was created");
            let record = records.pop();
            if record.as_ref().is_some_and(|record| record.summary.state() == LoadBalancerState::Pending) {
                // The loop polls a condition, so this is not a wait for a fixed time.
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let steps = self.driver.plan(desired, &Fence::default(), record.as_ref()).expect("possible");
            match (steps.first(), record) {
                (None, record) => return (record.expect("there"), writes),
                (Some(step), _) => {
                    self.driver.execute(&self.session, step).await.expect("accepted");
                    writes.push(step.to_string());
                }
            }
        }
        panic!("writes do not end: {writes:#?}");
    }

    /// Deletes the load balancer, and returns the number of writes.
    pub(crate) async fn remove(&self) -> usize {
        let mut writes = 0;
        for _ in 0..ROUNDS_MAX {
            let Some(record) = self.balancers().await.pop() else { return writes };
            match self.driver.plan_deletion(&record).first() {
                None => tokio::time::sleep(Duration::from_millis(1)).await,
                Some(step) => {
                    self.driver.execute(&self.session, step).await.expect("accepted");
                    writes += 1;
                }
            }
        }
        panic!("the load balancer is not deleted");
    }

    pub(crate) async fn change_routes(
        &self,
        remove: &[&str],
        add: impl IntoIterator<Item = WantedRoute>,
    ) -> Vec<Result<(), VendorError>> {
        let remove = remove.iter().map(|id| (*id).to_owned()).collect();
        let steps = self.driver.plan_routes(&RouteChanges { remove, add: add.into_iter().collect() });
        assert_eq!(steps.len(), 1, "one call");
        match self.driver.execute(&self.session, &steps[0]).await.expect("answered") {
            Outcome::Items(items) => items.into_iter().map(|item| item.map(drop)).collect(),
            Outcome::Accepted | Outcome::Created(_) => panic!("a batch answers item by item"),
        }
    }
}

/// Returns a route for `10.244.n.0/24`, the pod CIDR of `node-n`, to this instance.
pub(crate) fn route(n: u8, instance: &str) -> WantedRoute {
    let uid = format!("node-{n}");
    let destination = format!("10.244.{n}.0/24");
    let provider_id = format!("sim://sim-1/{instance}");
    let upsert = RouteUpsert {
        key: Some(RouteKey { cluster_id: CLUSTER.into(), node_uid: uid.clone(), destination }),
        next_hop: Some(NextHop { provider_id, ..NextHop::default() }),
        owner: Some(Owner { kind: "Node".into(), name: uid.clone(), uid, ..Owner::default() }),
    };
    WantedRoute { upsert, fence: Fence::default(), cluster_name: "prod".into() }
}
