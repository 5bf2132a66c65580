//! Many concurrent requests cause few vendor calls. The tests use a source that counts calls, and paused time.

mod queued;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::atomic::Ordering,
    time::Duration,
};

use cloud_api_proto::v1alpha1::Priority;
use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::*;
use crate::{
    config::CollectionSettings,
    driver::{Classify, Cursor, Fault, Lookup, Page},
    vendor::{Operation, Purpose, Vendor, VendorResponse},
};

/// Maximum number of IDs per vendor call.
const BATCH: usize = 10;
const PAGE: usize = 20;
const CALL: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Source {
    there: Mutex<BTreeSet<String>>,
    /// The results of the next look-ups. Later look-ups succeed.
    errors: Mutex<VecDeque<Option<VendorError>>>,
    batches: Mutex<Vec<(usize, Priority)>>,
    pages: AtomicUsize,
    cannot_look_up: bool,
    /// Whether the vendor's calls are queued by a budget.
    queued: bool,
}

impl Source {
    async fn call(&self, session: &Session) -> Result<(), VendorError> {
        if self.queued {
            return crate::vendor::tests::read(session, "/").await;
        }
        sleep(CALL).await;
        Ok(())
    }
}

impl Collection<Instance> for Source {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        _: Option<u32>,
    ) -> Result<Page<Instance>, VendorError> {
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.call(session).await?;
        let from: usize = cursor.map_or(0, |cursor| cursor.at().parse().unwrap());
        let there = self.there.lock().unwrap();
        let next = (from + PAGE < there.len()).then(|| (from + PAGE).to_string().into());
        let items = there.iter().skip(from).take(PAGE).map(|id| instance(id)).collect();
        Ok(Page { items, next, total: None })
    }
}

impl InstanceLookup for Source {
    async fn get_batch(
        &self,
        session: &Session,
        ids: &[String],
    ) -> Result<Option<Vec<Lookup<Instance>>>, VendorError> {
        if self.cannot_look_up {
            return Ok(None);
        }
        self.batches.lock().unwrap().push((ids.len(), session.purpose().priority));
        self.call(session).await?;
        if let Some(Some(error)) = self.errors.lock().unwrap().pop_front() {
            return Err(error);
        }
        let there = self.there.lock().unwrap();
        let look_up = |id: &String| {
            if there.contains(&format!("p-{id}")) {
                Lookup::Found(instance(&format!("p-{id}")))
            } else {
                Lookup::Gone
            }
        };
        Ok(Some(ids.iter().map(look_up).collect()))
    }
}

struct Never;

impl Classify for Never {
    fn classify(&self, _: Operation, _: &VendorResponse) -> Option<VendorError> {
        None
    }
}

struct Bed {
    source: Arc<Source>,
    snapshot: Arc<Snapshot<Instance>>,
    lookups: Arc<LookUps<Source>>,
    vendor: Arc<Vendor>,
}

impl Bed {
    fn new(count: usize) -> Self {
        Self::over(Source::default(), count)
    }

    fn over(source: Source, count: usize) -> Self {
        // This call fails if another test has installed a provider; the tests then use that provider.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let vendor = Vendor::new(&cloud_budget::Config::default(), Arc::new(Never), &Metrics::new()).unwrap();
        let source = Arc::new(source);
        *source.there.lock().unwrap() = ids(0..count).into_keys().collect();
        let settings = CollectionSettings::aged(Duration::from_secs(30));
        let snapshot = Arc::new(Snapshot::new(settings, Duration::from_secs(2), Metrics::new()));
        let locate = |id: &str| id.strip_prefix("p-").map(str::to_owned);
        let (shared, metrics) = (Arc::clone(&snapshot), Metrics::new());
        let lookups = LookUps::new(Arc::clone(&source), shared, metrics, BATCH, locate);
        Self { source, snapshot, lookups: Arc::new(lookups), vendor: Arc::new(vendor) }
    }

    fn session(&self, priority: Priority) -> Session {
        self.vendor.session(Purpose::own(priority, "test"))
    }

    async fn get(&self, wanted: Wanted) -> Result<Vec<Arc<FlightResults>>, VendorError> {
        let session = self.session(Priority::Lifecycle);
        self.lookups.get(wanted, Some(Instant::now()), &session).await
    }

    fn fails(&self, errors: impl IntoIterator<Item = Option<VendorError>>) {
        self.source.errors.lock().unwrap().extend(errors);
    }

    fn batches(&self) -> Vec<usize> {
        self.source.batches.lock().unwrap().iter().map(|(size, _)| *size).collect()
    }

    fn pages(&self) -> usize {
        self.source.pages.load(Ordering::Relaxed)
    }

    async fn listed(&self) {
        let session = self.session(Priority::Background);
        self.snapshot.at_least(Some(Instant::now()), &*self.source, &session).await.expect("listed");
        self.source.pages.store(0, Ordering::Relaxed);
    }
}

fn ids(range: std::ops::Range<usize>) -> Wanted {
    range.map(|n| (format!("p-{n:04}"), format!("{n:04}"))).collect()
}

fn instance(id: &str) -> Instance {
    Instance { provider_id: id.to_owned(), ..Instance::default() }
}

fn count(answers: &[Arc<FlightResults>], wanted: impl Fn(&LookupResult) -> bool) -> usize {
    answers.iter().flat_map(|one| one.found.values()).filter(|answer| wanted(answer)).count()
}

fn found(answers: &[Arc<FlightResults>]) -> usize {
    count(answers, |answer| matches!(answer, LookupResult::Found(_)))
}

#[tokio::test(start_paused = true)]
async fn thousand_equal_requests_cost_one_call() {
    let bed = Bed::new(5);
    let asking = (0..1000).map(|_| bed.get(ids(0..1)));
    for answers in join_all(asking).await {
        assert_eq!(found(&answers.expect("answered")), 1);
    }
    assert_eq!((bed.batches(), bed.pages()), (vec![1], 0));
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_a_batch() {
    let bed = Bed::new(100);
    let asking = (0..5).map(async |n| {
        sleep(Duration::from_millis(15) * n).await;
        bed.get(ids(n as usize..n as usize + 1)).await.expect("answered")
    });
    let started = Instant::now();
    let answers = join_all(asking).await;
    assert!(answers.iter().all(|answers| found(answers) == 5), "one flight serves all callers");
    assert_eq!(bed.batches(), [5]);
    let after_the_last = Duration::from_millis(20);
    assert_eq!(started.elapsed(), Duration::from_millis(60) + after_the_last + CALL);
}

#[tokio::test(start_paused = true)]
async fn batch_closes_after_its_maximum_time() {
    let bed = Bed::new(100);
    let started = Instant::now();
    let asking = (0..40).map(async |n| {
        sleep(Duration::from_millis(10) * n).await;
        bed.get(ids(0..1)).await.expect("answered");
        started.elapsed()
    });
    let first = join_all(asking).await.into_iter().min();
    assert_eq!(first, Some(Duration::from_millis(200) + CALL));
}

#[tokio::test(start_paused = true)]
async fn full_batch_is_sent_at_once() {
    let bed = Bed::new(100);
    let started = Instant::now();
    bed.get(ids(0..BATCH)).await.expect("answered");
    assert_eq!(started.elapsed(), CALL);
}

#[tokio::test(start_paused = true)]
async fn the_window_may_change_while_it_runs() {
    let bed = Bed::new(1);
    bed.lookups.configure(BatchWindow { idle: Duration::from_secs(1), max: Duration::from_secs(1) });
    let started = Instant::now();
    bed.get(ids(0..1)).await.expect("answered");
    assert_eq!(started.elapsed(), Duration::from_secs(1) + CALL);
}

#[tokio::test(start_paused = true)]
async fn only_a_late_enough_call_is_joined() {
    let bed = Bed::new(1);
    let under_way = Duration::from_millis(50);
    let before = Some(Instant::now());
    let session = bed.session(Priority::Lifecycle);
    let joining = async {
        sleep(under_way).await;
        bed.lookups.get(ids(0..1), before, &session).await.expect("answered")
    };
    let (first, joined) = tokio::join!(bed.get(ids(0..1)), joining);
    assert_eq!((found(&first.expect("answered")), found(&joined)), (1, 1));
    assert_eq!(bed.batches(), [1], "the request accepts an answer of that age");
    let asking_again = async {
        sleep(under_way).await;
        bed.get(ids(0..1)).await
    };
    let (_first, second) = tokio::join!(bed.get(ids(0..1)), asking_again);
    assert_eq!(found(&second.expect("answered")), 1);
    assert_eq!(bed.batches(), [1, 1, 1], "the request needs a newer answer");
}

#[tokio::test(start_paused = true)]
async fn listing_replaces_many_batches_except_for_missing_ids() {
    let bed = Bed::new(30);
    bed.listed().await;
    let answers = bed.get(ids(0..35)).await.expect("answered");
    assert_eq!((found(&answers), count(&answers, |answer| *answer == LookupResult::Gone)), (30, 5));
    assert_eq!((bed.pages(), bed.batches()), (2, vec![5]), "four batches cost more than two pages");
    bed.get(ids(0..20)).await.expect("answered");
    assert_eq!((bed.pages(), bed.batches()), (2, vec![5, 10, 10]), "two batches cost as much as two pages");
}

#[tokio::test(start_paused = true)]
async fn many_batches_are_replaced_by_a_first_listing() {
    let bed = Bed::new(90);
    assert_eq!(found(&bed.get(ids(0..80)).await.expect("answered")), 80);
    assert_eq!((bed.pages(), bed.batches().len()), (0, 8), "as many batches as a listing has assumed pages");
    let bed = Bed::new(90);
    assert_eq!(found(&bed.get(ids(0..90)).await.expect("answered")), 90);
    assert_eq!(bed.batches(), Vec::<usize>::new());
}

#[tokio::test(start_paused = true)]
async fn known_instances_are_looked_up_as_witnesses() {
    let bed = Bed::new(30);
    bed.listed().await;
    let answers = bed.get(ids(40..41)).await.expect("answered");
    assert_eq!(bed.batches(), [4]);
    assert_eq!((found(&answers), count(&answers, |answer| *answer == LookupResult::Gone)), (3, 1));
    let first: Vec<_> = answers[0].found.keys().cloned().collect();
    let answers = bed.get(ids(40..41)).await.expect("answered");
    assert_ne!(answers[0].found.keys().cloned().collect::<Vec<_>>(), first, "the witnesses rotate");
}

#[tokio::test(start_paused = true)]
async fn full_batch_gets_witnesses_only_if_all_are_gone() {
    let bed = Bed::new(30);
    bed.listed().await;
    bed.get(ids(25..35)).await.expect("answered");
    assert_eq!(bed.batches(), [10], "five instances exist");
    let answers = bed.get(ids(40..50)).await.expect("answered");
    assert_eq!(bed.batches(), [10, 10, 3]);
    assert_eq!(found(&answers), 3);
}

#[tokio::test(start_paused = true)]
async fn throttled_batch_fails_with_one_call() {
    let bed = Bed::new(100);
    bed.fails([Some(VendorError::new(Fault::Throttled, "slow down"))]);
    let (first, second) = tokio::join!(bed.get(ids(0..8)), bed.get(ids(5..9)));
    for result in [first, second] {
        assert_eq!(result.expect_err("throttled").fault, Fault::Throttled);
    }
    assert_eq!(bed.batches(), [9]);
}

#[tokio::test(start_paused = true)]
async fn failed_batch_stops_the_flight_and_keeps_its_answers() {
    let bed = Bed::new(100);
    bed.fails([None, Some(VendorError::new(Fault::Unavailable, "out of order"))]);
    let (some, all) = tokio::join!(bed.get(ids(0..9)), bed.get(ids(0..30)));
    assert_eq!(found(&some.expect("answered")), 10, "the first batch was sent");
    assert_eq!(all.expect_err("the whole batch failed").fault, Fault::Unavailable);
    assert_eq!(bed.batches(), [10, 10], "of three");
}

#[tokio::test(start_paused = true)]
async fn ids_named_by_an_error_are_left_out_once() {
    for (fault, wanted) in [(Fault::NotFound, LookupResult::Gone), (Fault::Invalid, LookupResult::Unsaid)] {
        let bed = Bed::new(4);
        let named = VendorError::new(fault, "no such thing").in_field("0001").in_field("0003");
        bed.fails([Some(named.clone())]);
        let answers = bed.get(ids(0..4)).await.expect("answered");
        assert_eq!((found(&answers), count(&answers, |answer| *answer == wanted)), (2, 2), "{fault:?}");
        assert_eq!(bed.batches(), [4, 2]);
        bed.fails([Some(named), Some(VendorError::new(fault, "again").in_field("0000"))]);
        assert_eq!(bed.get(ids(0..4)).await.expect_err("the error names an ID again").fault, fault);
        assert_eq!(bed.batches(), [4, 2, 4, 2], "no third call is made");
    }
}

#[tokio::test(start_paused = true)]
async fn abandoned_call_is_not_sent() {
    let bed = Bed::new(4);
    assert!(tokio::time::timeout(Duration::from_millis(10), bed.get(ids(0..4))).await.is_err());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bed.batches(), [0; 0]);
    let (left, stayed) = tokio::join!(
        tokio::time::timeout(Duration::from_millis(50), bed.get(ids(0..4))),
        bed.get(ids(0..4)),
    );
    assert!(left.is_err());
    assert_eq!(found(&stayed.expect("answered")), 4);
    assert_eq!(bed.batches(), [4], "the waiter gets the answer of the flight that the other waiter left");
}

#[tokio::test(start_paused = true)]
async fn deadlines_of_waiters_are_independent() {
    let bed = Bed::new(4);
    let purpose = Purpose {
        deadline: Some(Instant::now() + Duration::from_millis(50)),
        ..Purpose::own(Priority::Lifecycle, "test")
    };
    let session = bed.vendor.session(purpose);
    let hasty = bed.lookups.get(ids(0..4), None, &session);
    let (hasty, patient) = tokio::join!(hasty, bed.get(ids(0..4)));
    assert_eq!(hasty.expect_err("the answer would be too late").fault, Fault::Budget);
    assert_eq!(found(&patient.expect("answered")), 4);
    assert_eq!(bed.batches(), [4]);
}

#[tokio::test(start_paused = true)]
async fn most_urgent_caller_determines_batch_priority() {
    let bed = Bed::new(4);
    let (idle, urgent) = (bed.session(Priority::Background), bed.session(Priority::Interactive));
    let (first, second) =
        tokio::join!(bed.lookups.get(ids(0..2), None, &idle), bed.lookups.get(ids(1..3), None, &urgent),);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(*bed.source.batches.lock().unwrap(), [(3, Priority::Interactive)]);
    assert_eq!(urgent.meter().cost(cloud_api_proto::v1alpha1::cost::Source::Live, None).coalesced, 1);
}

#[tokio::test(start_paused = true)]
async fn without_look_up_nothing_is_gone() {
    let bed = Bed::over(Source { cannot_look_up: true, ..Source::default() }, 30);
    let answers = bed.get(ids(25..35)).await.expect("answered");
    assert_eq!((found(&answers), count(&answers, |answer| *answer == LookupResult::NotListed)), (5, 5));
    assert_eq!(bed.pages(), 2);
}
