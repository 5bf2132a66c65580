//! Collects the data of the status page from its sources, without vendor calls.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::v1alpha1::Scope;
use cloud_budget::{self as budget, BucketReport, QueueReport, Time};
use jiff::Timestamp;
use telemetry::report::{
    AdapterStatus, Breaker, BreakerState, Budget, ClusterObjects, Queue, Task, VendorWrite,
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};

use super::{
    clusters::clusters,
    history::{History, STEP},
};
use crate::{
    config::Config,
    driver::{Driver, Item, VendorError},
    leadership::Duty,
    load_balancers::{Converger, TaskReport},
    rpc::Rpc,
    snapshot::Snapshot,
    status::Snapshots,
    vendor::{CREDENTIALS, Write},
};

/// Maximum number of tasks on the page.
const TASKS: usize = 200;
/// Maximum length of an error text from the cloud, in characters.
const ERROR: usize = 500;

/// Clones share the sources of the page.
#[derive(Clone)]
pub(crate) struct Page(Arc<dyn Fn() -> AdapterStatus + Send + Sync>);

#[derive(Debug)]
pub(crate) struct Sources<D: Driver> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshots: Snapshots<D>,
    pub(crate) converger: Arc<Converger<D>>,
    pub(crate) rpc: Rpc,
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) config_refused: watch::Receiver<Option<String>>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

impl Page {
    /// Returns the page, and the task that records the history of the page. The task never ends.
    pub(crate) fn of<D: Driver>(sources: Sources<D>) -> (Self, impl Future<Output = ()> + Send + use<D>) {
        let (vendor, history) = (Arc::clone(&sources.rpc.vendor), Arc::<Mutex<History>>::default());
        let shown = Arc::clone(&history);
        let keep = async move {
            let mut ticks = tokio::time::interval(STEP);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            // The first tick completes immediately.
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let (now, report) = vendor.report();
                history.lock().unwrap_or_else(PoisonError::into_inner).note(now, &report.buckets);
            }
        };
        let status = move || sources.status(&shown.lock().unwrap_or_else(PoisonError::into_inner));
        (Self(Arc::new(status)), keep)
    }

    #[cfg(test)]
    pub(super) fn showing(status: impl Fn() -> AdapterStatus + Send + Sync + 'static) -> Self {
        Self(Arc::new(status))
    }

    pub(super) fn status(&self) -> AdapterStatus {
        (self.0)()
    }
}

impl<D: Driver> Sources<D> {
    fn status(&self, history: &History) -> AdapterStatus {
        let (rpc, about) = (&self.rpc, self.driver.describe());
        let (now, report) = rpc.vendor.report();
        let duty = rpc.replica.subscribe().borrow().clone();
        let (leader, leader_address) = match duty {
            Duty::Leading { .. } => (true, None),
            // The holder identity in the Lease has the form `<instance id>@<address>`.
            Duty::Standby { leader } => {
                (false, leader.and_then(|it| Some(it.rsplit_once('@')?.1.to_owned())))
            }
            Duty::Draining => (false, None),
        };
        let trouble = rpc.health.borrow().clone().filter(|_| leader);
        let (tasks, more) = self.converger.report(TASKS);
        let credentials = report.credentials.map(|state| (CREDENTIALS.to_owned(), state));
        let breakers = report.breakers.into_iter().chain(credentials);
        AdapterStatus {
            at: self.time(Instant::now()),
            adapter: about.adapter_name.to_owned(),
            version: about.adapter_version.to_owned(),
            instance_id: rpc.instance_id.to_string(),
            cluster_id: rpc.cluster(),
            leader,
            leader_address,
            scope: rpc.scope().map(|scope| named(&scope)).filter(|words| !words.is_empty()),
            trouble: trouble.as_ref().map(short),
            trouble_reason: trouble.as_ref().map(|error| error.fault.reason().word().to_owned()),
            config_revision: self.config.borrow().revision.clone(),
            config_refused: self.config_refused.borrow().as_deref().map(cut),
            budgets: report.buckets.iter().map(|it| self.budget(it, now, history)).collect(),
            queues: rpc.vendor.queues().into_iter().map(queue).collect(),
            breakers: breakers.map(|(family, state)| self.breaker(family, state)).collect(),
            snapshots: vec![
                self.snapshot(&self.snapshots.instances),
                self.snapshot(&self.snapshots.load_balancers),
                self.snapshot(&self.snapshots.routes),
            ],
            clusters: self.clusters(),
            tasks: tasks.into_iter().map(task).collect(),
            more_tasks: u64::try_from(more).unwrap_or(u64::MAX),
            writes: rpc.vendor.last_writes().into_iter().map(|it| self.write(it)).collect(),
        }
    }

    fn clusters(&self) -> Vec<ClusterObjects> {
        let Snapshots { load_balancers, routes, .. } = &self.snapshots;
        // A load balancer that its owner released while other Services use it still has the owner's tags.
        let balancers = load_balancers.tally(|it| it.summary.key.as_ref().map_or("", |key| &key.cluster_id));
        clusters(&self.rpc.cluster(), balancers, routes.tally(Item::cluster))
    }

    fn budget(&self, bucket: &BucketReport, now: Time, history: &History) -> Budget {
        let paused_until = bucket.paused_until.filter(|until| *until > now);
        Budget {
            bucket: bucket.name.clone(),
            rate: bucket.rate,
            ceiling: bucket.ceiling,
            tokens: bucket.tokens,
            queued: bucket.queued,
            paused_until: paused_until.map(|until| self.time(self.rpc.vendor.instant(until))),
            calls: bucket.calls,
            throttled: bucket.throttled,
            history: history.of(&bucket.name, now),
        }
    }

    fn breaker(&self, family: String, state: budget::BreakerState) -> Breaker {
        let (state, retry_at) = match state {
            budget::BreakerState::Closed => (BreakerState::Closed, None),
            budget::BreakerState::HalfOpen => (BreakerState::HalfOpen, None),
            budget::BreakerState::Open { retry_at } => (BreakerState::Open, Some(retry_at)),
        };
        let retry_at = retry_at.map(|at| self.time(self.rpc.vendor.instant(at)));
        Breaker { family, state, retry_at }
    }

    fn snapshot<T: Item>(&self, snapshot: &Snapshot<T>) -> telemetry::report::Snapshot {
        let (observed, items, revision, error) = snapshot.report();
        telemetry::report::Snapshot {
            collection: T::COLLECTION.to_owned(),
            age_seconds: observed.map(|at| seconds(at.elapsed())),
            target_age_seconds: seconds(snapshot.target_age()),
            items: u64::try_from(items).unwrap_or(u64::MAX),
            revision,
            error: error.as_ref().map(short),
        }
    }

    fn write(&self, Write { at, operation, object, controller, error }: Write) -> VendorWrite {
        VendorWrite {
            at: self.time(at),
            operation: operation.to_owned(),
            object,
            controller: controller.to_owned(),
            outcome: error.map_or_else(|| "ok".to_owned(), |error| cut(&error)),
        }
    }

    /// Converts a wall-clock time to whole milliseconds.
    fn time(&self, instant: Instant) -> Timestamp {
        let wall = Timestamp::try_from(self.rpc.clock.at(instant)).unwrap_or_default();
        Timestamp::from_millisecond(wall.as_millisecond()).unwrap_or(wall)
    }
}

fn queue(QueueReport { bucket, class, controller, queued, oldest }: QueueReport) -> Queue {
    let (class, controller) = (class.word().to_ascii_uppercase(), controller.to_owned());
    Queue { bucket, class, controller, queued, oldest_seconds: seconds(oldest) }
}

fn task(TaskReport { key, name, waits_for, began, done, total }: TaskReport) -> Task {
    let (done, total) = (u64::from(done), u64::from(total));
    Task { key, name, waits_for: cut(&waits_for), since_seconds: seconds(began.elapsed()), done, total }
}

fn named(Scope { account, project, region, .. }: &Scope) -> String {
    let parts = [("account", account), ("project", project), ("region", region)];
    let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
    parts.map(|(word, value)| format!("{word} {value}")).collect::<Vec<_>>().join(" ")
}

fn short(error: &VendorError) -> String {
    cut(&error.to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(ERROR) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

/// Returns a duration in seconds, rounded to milliseconds.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{LoadBalancer, LoadBalancerKey, Priority, Route, RouteKey};
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::{
        config::CacheSettings,
        driver::{Fault, LoadBalancerRecord, testing::WriteOnly},
        vendor::{
            Purpose,
            tests::{limits, read, vendor},
        },
    };

    fn sources() -> Sources<WriteOnly> {
        let (_fake, vendor) = vendor(&limits(0.1, 1));
        let (rpc, driver) = (Rpc::testing(vendor, None), Arc::new(WriteOnly));
        let cache = CacheSettings::default();
        let snapshots = Snapshots::new(&cache, Duration::ZERO, &rpc.metrics);
        let balancers = Arc::clone(&snapshots.load_balancers);
        let converger = Converger::new(Arc::clone(&driver), balancers, &rpc, TaskTracker::new());
        let limits = limits(0.1, 1);
        let config = Config { limits, cache, share: 1.0, assumed: Vec::new(), revision: "7".to_owned() };
        let config = watch::Sender::new(Arc::new(config)).subscribe();
        let config_refused = watch::Sender::new(Some("limits.x: unknown key".to_owned())).subscribe();
        Sources { driver, snapshots, converger: Arc::new(converger), rpc, config, config_refused }
    }

    #[tokio::test(start_paused = true)]
    async fn page_shows_budget_queues_and_history() {
        let sources = sources();
        let session = sources.rpc.vendor.session(Purpose::own(Priority::Interactive, "test"));
        let (page, keep) = Page::of(sources);
        let reads = async { tokio::join!(read(&session, "/"), read(&session, "/")) };
        tokio::select! {
            both = reads => assert_eq!(both, (Ok(()), Ok(()))),
            () = keep => panic!("never ends"),
        }
        let status = page.status();
        let [budget] = &status.budgets[..] else { panic!("{:?}", status.budgets) };
        assert_eq!((budget.bucket.as_str(), budget.calls), ("compute", 2));
        let steps: Vec<_> = budget.history.iter().map(|step| (step.calls, step.queued)).collect();
        assert_eq!(steps.last(), Some(&(1, 1)), "one was sent and one waited: {steps:?}");
        assert_eq!(status.config_revision, "7");
        assert_eq!(status.config_refused.as_deref(), Some("limits.x: unknown key"));
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_counted_by_the_cluster_that_their_tags_name() {
        let sources = sources();
        let balancer = |n: usize, cluster: Option<&str>, left: bool| {
            let key =
                cluster.map(|id| LoadBalancerKey { cluster_id: id.to_owned(), owner_uid: n.to_string() });
            let summary = LoadBalancer { vendor_id: format!("lb-{n}"), key, ..LoadBalancer::default() };
            LoadBalancerRecord { left, ..LoadBalancerRecord::new(summary, ()) }
        };
        for (n, (cluster, left)) in
            [(Some("a"), false), (Some("a"), true), (Some("b"), false), (None, false)].into_iter().enumerate()
        {
            sources.snapshots.load_balancers.upsert(balancer(n, cluster, left));
        }
        for n in 0..10_000 {
            let key = RouteKey { cluster_id: format!("c-{}", n % 2), ..RouteKey::default() };
            let key = Some(key).filter(|_| n % 10 != 0);
            sources.snapshots.routes.upsert(Route { vendor_id: n.to_string(), key, ..Route::default() });
        }
        let (page, _keep) = Page::of(sources);
        let all = page.status().clusters;
        let all: Vec<_> =
            all.iter().map(|it| (it.cluster_id.as_str(), it.load_balancers, it.routes)).collect();
        assert_eq!(all, [("", 1, 1_000), ("a", 2, 0), ("b", 1, 0), ("c-0", 0, 4_000), ("c-1", 0, 5_000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn standby_knows_the_leaders_address() {
        let sources = sources();
        let replica = sources.rpc.replica.clone();
        let (page, _keep) = Page::of(sources);
        let leader = |page: &Page| (page.status().leader, page.status().leader_address);
        assert_eq!(leader(&page), (false, None));
        replica.stand_by(Some("18c2@10.0.0.2:8443".into()));
        assert_eq!(leader(&page), (false, Some("10.0.0.2:8443".to_owned())));
        replica.lead(1);
        assert_eq!(leader(&page), (true, None));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_of_the_leader_has_a_reason() {
        let (mut sources, health) = (sources(), watch::Sender::new(None));
        sources.rpc.health = health.subscribe();
        let replica = sources.rpc.replica.clone();
        let (page, _keep) = Page::of(sources);
        let trouble = |page: &Page| (page.status().trouble, page.status().trouble_reason);
        health.send_replace(Some(VendorError::new(Fault::Unavailable, "no answer")));
        assert_eq!(trouble(&page), (None, None), "a standby does not call the vendor");
        replica.lead(1);
        assert_eq!(trouble(&page), (Some("no answer".to_owned()), Some("VENDOR_UNAVAILABLE".to_owned())));
        health.send_replace(Some(VendorError::new(Fault::Auth, "401")));
        assert_eq!(trouble(&page), (Some("401".to_owned()), Some("VENDOR_AUTH".to_owned())));
    }

    #[test]
    fn a_scope_is_named_by_what_it_has() {
        let scope = |account: &str, region: &str| Scope {
            account: account.to_owned(),
            region: region.to_owned(),
            endpoint: "https://cloud".to_owned(),
            ..Scope::default()
        };
        assert_eq!(named(&scope("sim", "r1")), "account sim region r1");
        assert_eq!(named(&scope("", "")), "");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"é".repeat(ERROR + 1));
        assert_eq!(long, format!("{}...", "é".repeat(ERROR)));
    }
}
