//! A task that waits for its turn to write, on paused time.

use std::{fmt, time::SystemTime};

use cloud_adapter_security::{Caller, Refusals, Role};
use cloud_api_proto::v1alpha1::{Adoption, Instance, Limits, LoadBalancerSpec, Owner, Recreate, Scope};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use super::{super::decide::Terms, *};
use crate::{
    clock::Clock,
    config::CollectionSettings,
    driver::{
        Classify, Collection, Cursor, Deduplication, Description, DesiredLoadBalancer, InstanceLookup, Item,
        Location, Lookup, Outcome, Page, RouteChanges, Step, VendorError,
    },
    security::Access,
    vendor::{
        Family, Operation, Session, VendorResponse,
        tests::{limits, read, vendor},
    },
};

/// A cloud of which nothing is known but that it takes writes.
#[derive(Debug)]
struct WriteOnly;

#[derive(Clone, Debug, PartialEq)]
struct Create;

impl fmt::Display for Create {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("create")
    }
}

impl Step for Create {
    fn operation(&self) -> Operation {
        Operation::write(Family::Compute, "Create")
    }

    fn class(&self) -> Priority {
        Priority::Traffic
    }
}

impl Classify for WriteOnly {
    fn classify(&self, _: Operation, _: &VendorResponse) -> Option<VendorError> {
        None
    }
}

impl<T: Item> Collection<T> for WriteOnly {
    async fn list_page(
        &self,
        _: &Session,
        _: Option<&Cursor>,
        _: Option<u32>,
    ) -> Result<Page<T>, VendorError> {
        Ok(Page { items: Vec::new(), next: None, total: None })
    }
}

impl InstanceLookup for WriteOnly {
    async fn get_batch(
        &self,
        _: &Session,
        _: &[String],
    ) -> Result<Option<Vec<Lookup<Instance>>>, VendorError> {
        Ok(None)
    }
}

impl Driver for WriteOnly {
    type Detail = ();
    type Step = Create;

    fn describe(&self) -> Description {
        Description {
            adapter_name: "test",
            adapter_version: "0",
            provider: "test",
            capabilities: Vec::new(),
            limits: Limits::default(),
            call_limits: Vec::new(),
            parameters: Vec::new(),
            consistency_horizon: Duration::ZERO,
            deduplication: Deduplication::ClientToken,
            batch: 1,
            poll: Duration::from_secs(60),
            expected_latency: Vec::new(),
        }
    }

    async fn self_check(&self, _: &Session) -> Result<Scope, VendorError> {
        Ok(Scope::default())
    }

    fn locate(&self, _: &str) -> Location {
        Location::Elsewhere
    }

    fn plan(
        &self,
        _: &DesiredLoadBalancer,
        _: &Fence,
        _: Option<&LoadBalancerRecord<()>>,
    ) -> Result<Vec<Create>, VendorError> {
        Ok(vec![Create])
    }

    fn names_of(&self, _: &LoadBalancerKey) -> impl Fn(&str) -> bool {
        |_: &str| false
    }

    fn plan_deletion(&self, _: &LoadBalancerRecord<()>) -> Vec<Create> {
        Vec::new()
    }

    fn plan_routes(&self, _: &RouteChanges) -> Vec<Create> {
        Vec::new()
    }

    async fn execute(&self, session: &Session, step: &Create) -> Result<Outcome, VendorError> {
        let request =
            http::Request::post("http://vendor/write").body(bytes::Bytes::new()).expect("a request");
        session.call(step.operation(), request).await.map(|_| Outcome::Accepted)
    }
}

fn purpose(priority: Priority) -> Purpose {
    let own = Purpose::own(priority, "test");
    Purpose { caller: Caller { role: Role::ServiceController, ..own.caller }, ..own }
}

fn converger(vendor: &Arc<Vendor>) -> Arc<Converger<WriteOnly>> {
    let metrics = Metrics::new();
    let replica = Replica::standing_by();
    replica.lead(1);
    let rpc = Rpc {
        vendor: Arc::clone(vendor),
        clock: Clock::starting_at(SystemTime::UNIX_EPOCH),
        access: Access { cluster_id: None, refusals: Refusals::new(metrics.security()) },
        metrics: metrics.clone(),
        instance_id: "test".into(),
        scope: Arc::new(watch::Sender::new(None)),
        replica,
        draining: CancellationToken::new(),
        health: watch::Sender::new(None).subscribe(),
    };
    let settings = CollectionSettings::aged(Duration::from_secs(60));
    let snapshot = Arc::new(Snapshot::new(settings, Duration::ZERO, metrics));
    Arc::new(Converger::new(Arc::new(WriteOnly), snapshot, &rpc, TaskTracker::new()))
}

fn order(key: &LoadBalancerKey, priority: Priority) -> Order {
    let desired = DesiredLoadBalancer {
        key: key.clone(),
        owner: Owner::default(),
        cluster_name: String::new(),
        spec: LoadBalancerSpec::default(),
        backends: Arc::new([]),
        hash: "1-0".to_owned(),
    };
    let terms = Terms { recreate: Recreate::Never, adoption: Adoption::Never, known: None };
    let fence = Fence { scope: "shard".to_owned(), epoch: 1, sequence: 1 };
    Order::new(Goal::Present(Arc::new(desired), terms), fence, purpose(priority), None)
}

/// When the write of a resync goes that waits behind a hundred others, in whole milliseconds; whether or not a user joins it.
async fn written(joined: bool) -> u128 {
    let (fake, vendor) = vendor(&limits(10.0, 1));
    let converger = converger(&vendor);
    let key = LoadBalancerKey { cluster_id: "c".to_owned(), owner_uid: "web".to_owned() };
    let resyncs = join_all((0..100).map(|object| {
        let session = vendor.session(purpose(Priority::Background)).about(object.to_string());
        async move { read(&session, "/resync").await }
    }));
    let orders = async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        converger.submit(&key, order(&key, Priority::Background)).expect("a task");
        tokio::time::sleep(Duration::from_millis(250)).await;
        if joined {
            converger.submit(&key, order(&key, Priority::Interactive)).expect("joins it");
        }
        tokio::time::sleep(Duration::from_secs(12)).await;
    };
    tokio::join!(resyncs, orders);
    fake.arrived().into_iter().find(|(path, _)| path == "/write").expect("written").1
}

#[tokio::test(start_paused = true)]
async fn whoever_joins_a_task_raises_the_write_that_waits() {
    let (alone, joined) = (written(false).await, written(true).await);
    assert!(alone > 9_000, "the last of all: {alone} ms");
    assert!(joined < 1_000, "the first from then on: {joined} ms");
}
