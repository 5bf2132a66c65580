//! Tests the whole path of a call through a session to a fake vendor, with paused time.

mod jumps;
mod position;
mod shared;
mod traces;

use std::{collections::VecDeque, sync::Mutex, time::Duration};

use cloud_budget::{BucketConfig, Mode, RateLimit};
use futures::{FutureExt as _, future::BoxFuture};

use super::*;
use super::{Fault, dispatch::Permit};

const READ: Operation = Operation::read(Family::Compute, "ListInstances");
const WRITE: Operation = Operation::write(Family::Compute, "CreateInstance");
const LATENCY: Duration = Duration::from_millis(10);

/// The status for which the driver's table returns a long text, and the status for which it panics.
const LONG_ERROR_STATUS: u16 = 418;
const BREAKS: u16 = 599;

/// An answer of the vendor: the status, and `Retry-After` in seconds.
type Order = (u16, Option<u64>);

/// A fake vendor, which records the time and content of requests. It returns the prepared answers, then answers 200.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    began: Instant,
    arrived: Arc<Mutex<Vec<(String, Duration)>>>,
    orders: Arc<Mutex<VecDeque<Order>>>,
}

impl Fake {
    pub(crate) fn answers(&self, orders: impl IntoIterator<Item = Order>) {
        self.orders.lock().expect("whole").extend(orders);
    }

    /// The path of each request, and its arrival time in milliseconds.
    pub(crate) fn arrived(&self) -> Vec<(String, u128)> {
        let arrived = self.arrived.lock().expect("whole");
        arrived.iter().map(|(path, at)| (path.clone(), at.as_millis())).collect()
    }

    fn times(&self) -> Vec<u128> {
        self.arrived().into_iter().map(|(_, at)| at).collect()
    }
}

impl Transport for Fake {
    fn send(
        &self,
        _permit: Permit,
        _operation: Operation,
        request: VendorRequest,
    ) -> BoxFuture<'_, Result<VendorResponse, VendorError>> {
        let arrival = (request.uri().path().to_owned(), self.began.elapsed());
        self.arrived.lock().expect("whole").push(arrival);
        let (status, retry_after) = self.orders.lock().expect("whole").pop_front().unwrap_or((200, None));
        async move {
            tokio::time::sleep(LATENCY).await;
            let id = if status == LONG_ERROR_STATUS { "7".repeat(50_000) } else { "req-7".to_owned() };
            let response = http::Response::builder().status(status).header("x-request-id", id);
            let response = match retry_after {
                Some(seconds) => response.header("retry-after", seconds),
                None => response,
            };
            Ok(response.body(Bytes::new()).expect("a response"))
        }
        .boxed()
    }
}

/// The captured log output.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("whole").clone()).expect("text")
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("whole").write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl tracing_subscriber::fmt::MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

struct Table;

impl Classify for Table {
    fn classify(&self, _operation: Operation, response: &VendorResponse) -> Option<VendorError> {
        let fault = match response.status().as_u16() {
            200 => return None,
            401 => Fault::Auth,
            409 => Fault::Busy,
            429 => Fault::Throttled,
            504 => Fault::OutcomeUnknown,
            LONG_ERROR_STATUS => {
                let code = Some("é".repeat(50_000));
                let fields = vec!["é".repeat(100_000); 2_000];
                let message = "é".repeat(100_000);
                return Some(VendorError { code, fields, ..VendorError::new(Fault::Invalid, message) });
            }
            BREAKS => panic!("on purpose"),
            _ => Fault::Unavailable,
        };
        let header =
            response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = header.map(Duration::from_secs);
        Some(VendorError { retry_after, ..VendorError::new(fault, "as prepared") })
    }
}

pub(crate) fn limits(rate: f64, burst: u32) -> Config {
    let bucket = BucketConfig { limit: RateLimit { rate, burst }, ..BucketConfig::unconfigured() };
    Config { buckets: [("compute".to_owned(), bucket)].into(), reserve: 0.0, ..Config::default() }
}

pub(crate) fn vendor(limits: &Config) -> (Fake, Arc<Vendor>) {
    let fake = Fake { began: Instant::now(), arrived: Arc::default(), orders: Arc::default() };
    let vendor = Vendor::over(Box::new(fake.clone()), limits, Arc::new(Table), &Metrics::new());
    (fake, Arc::new(vendor))
}

fn session(vendor: &Arc<Vendor>) -> Session {
    vendor.session(Purpose::own(Priority::Interactive, "test"))
}

fn get(path: &str) -> VendorRequest {
    http::Request::get(format!("http://vendor{path}")).body(Bytes::new()).expect("a request")
}

pub(crate) async fn read(session: &Session, path: &str) -> Result<(), VendorError> {
    session.call(READ, get(path)).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn burst_is_sent_at_once_and_the_rest_at_the_rate() {
    let (fake, vendor) = vendor(&limits(10.0, 3));
    let session = session(&vendor);
    futures::future::join_all((0..6).map(|_| read(&session, "/"))).await;
    assert_eq!(fake.times(), [0, 0, 0, 100, 200, 300]);
    assert_eq!(session.meter().cost(cloud_api_proto::v1alpha1::cost::Source::Memory, None).vendor_calls, 6);
}

#[tokio::test(start_paused = true)]
async fn all_calls_wait_for_a_pause_and_throttled_call_is_resent() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    let session = session(&vendor);
    fake.answers([(429, Some(7))]);
    let (first, second) = tokio::join!(read(&session, "/first"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        read(&session, "/second").await
    });
    assert_eq!((first, second), (Ok(()), Ok(())));
    let arrived = fake.arrived();
    let paths: Vec<_> = arrived.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/first", "/first", "/second"], "the throttled call is sent first");
    assert!(arrived[1].1 >= 7_010, "not sent before the end of the pause: {arrived:?}");
}

#[tokio::test(start_paused = true)]
async fn twice_throttled_call_returns_the_delay() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(429, Some(2)), (429, Some(9))]);
    let error = read(&session(&vendor), "/").await.expect_err("throttled");
    assert_eq!((error.fault, error.retry_after), (Fault::Throttled, Some(Duration::from_secs(9))));
    assert_eq!(error.request_id.as_deref(), Some("req-7"));
    assert_eq!(fake.times().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn deadline_within_a_pause_returns_the_vendor_error() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(429, Some(60))]);
    let deadline = Some(Instant::now() + Duration::from_secs(5));
    let session = vendor.session(Purpose { deadline, ..Purpose::own(Priority::Interactive, "test") });
    let error = read(&session, "/").await.expect_err("throttled");
    assert_eq!((error.fault, error.message.as_str()), (Fault::Throttled, "as prepared"));
    assert!(error.retry_after >= Some(Duration::from_secs(60)), "{error:?}");
    let next = read(&session, "/").await.expect_err("the pause lasts beyond the deadline");
    assert_eq!(next.fault, Fault::Throttled);
    assert!(next.retry_after > Some(Duration::from_secs(50)), "{next:?}");
    assert_eq!(fake.times().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn late_waiter_of_shared_work_gets_the_vendor_pause() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    let session = session(&vendor);
    let late = || session.late(READ.family, "not listed before the deadline");
    assert_eq!(late().fault, Fault::Budget);
    fake.answers([(429, Some(60))]);
    let deadline = Some(Instant::now() + Duration::from_secs(5));
    let hasty = vendor.session(Purpose { deadline, ..Purpose::own(Priority::Interactive, "test") });
    read(&hasty, "/").await.expect_err("throttled");
    let error = late();
    assert_eq!(error.fault, Fault::Throttled);
    assert!(error.retry_after > Some(Duration::from_secs(50)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn late_call_is_refused_at_once_with_delay() {
    let (fake, vendor) = vendor(&limits(0.1, 1));
    read(&session(&vendor), "/").await.expect("the call that uses up the burst");
    let deadline = Some(Instant::now() + Duration::from_secs(2));
    let hasty = vendor.session(Purpose { deadline, ..Purpose::own(Priority::Interactive, "test") });
    let before = Instant::now();
    let error = read(&hasty, "/").await.expect_err("ten seconds away");
    assert_eq!((error.fault, before.elapsed()), (Fault::Budget, Duration::ZERO));
    assert!(error.retry_after >= Some(Duration::from_millis(9_900)), "{error:?}");
    assert_eq!(fake.times().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn abandoned_read_is_never_sent() {
    let (fake, vendor) = vendor(&limits(1.0, 1));
    let session = session(&vendor);
    read(&session, "/first").await.expect("the call that uses up the burst");
    {
        let abandoned = read(&session, "/abandoned");
        let given_up = tokio::time::timeout(Duration::from_millis(100), abandoned).await;
        assert!(given_up.is_err(), "the call is queued");
    }
    read(&session, "/last").await.expect("the call is sent");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fake.arrived(), [("/first".to_owned(), 0), ("/last".to_owned(), 1000)]);
}

#[tokio::test(start_paused = true)]
async fn sent_call_counts_without_a_waiter() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(429, Some(7))]);
    let session = session(&vendor);
    let given_up = tokio::time::timeout(LATENCY / 2, read(&session, "/abandoned")).await;
    assert!(given_up.is_err(), "the vendor takes longer");
    tokio::time::sleep(LATENCY).await;
    read(&session, "/next").await.expect("after the pause");
    let arrived = fake.arrived();
    assert_eq!(arrived.len(), 2, "without a waiter the call is not sent again: {arrived:?}");
    assert!(arrived[1].1 >= 7_010, "{arrived:?}");
}

#[tokio::test(start_paused = true)]
async fn halt_waits_for_sent_calls_without_waiters() {
    let (_fake, vendor) = vendor(&limits(100.0, 10));
    let began = Instant::now();
    let given_up = tokio::time::timeout(LATENCY / 2, read(&session(&vendor), "/abandoned")).await;
    assert!(given_up.is_err(), "the vendor takes longer");
    vendor.halt();
    vendor.landed().await;
    assert_eq!(began.elapsed(), LATENCY);
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_only_counts_delays() {
    let (fake, vendor) = vendor(&Config { mode: Mode::Shadow, ..limits(1.0, 1) });
    let session = session(&vendor);
    futures::future::join_all((0..5).map(|_| read(&session, "/"))).await;
    assert_eq!(fake.times(), [0; 5]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (_, report) = vendor.dispatcher.report();
    let bucket = report.buckets.iter().find(|one| one.name == "compute").expect("reported");
    assert_eq!((bucket.would_delay, bucket.would_delay_for), (4, Duration::from_secs(1 + 2 + 3 + 4)));
}

#[tokio::test(start_paused = true)]
async fn new_rate_applies_and_queue_order_is_kept() {
    let (fake, vendor) = vendor(&limits(1.0, 1));
    let session = session(&vendor);
    let paths: Vec<_> = (0..6).map(|n| format!("/{n}")).collect();
    let calls = futures::future::join_all(paths.iter().map(|path| read(&session, path)));
    let reload = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        vendor.configure(&limits(10.0, 1));
    };
    tokio::join!(calls, reload);
    let arrived = fake.arrived();
    let order: Vec<_> = arrived.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(order, paths);
    assert_eq!(arrived[1].1, 1_000, "sent at the old rate");
    assert!(arrived[2].1 > 1_500 && arrived[2].1 <= 1_600, "{arrived:?}");
    for pair in arrived[2..].windows(2) {
        assert_eq!(pair[1].1 - pair[0].1, 100, "sent at the new rate: {arrived:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_vendor_opens_the_breaker() {
    let (fake, vendor) = vendor(&limits(1000.0, 100));
    let session = session(&vendor);
    fake.answers([(503, None); 20]);
    for _ in 0..20 {
        assert_eq!(read(&session, "/").await.expect_err("503").fault, Fault::Unavailable);
    }
    let error = read(&session, "/").await.expect_err("the breaker is open");
    assert_eq!(error.fault, Fault::Unavailable);
    assert!(error.retry_after >= Some(Duration::from_secs(14)), "{error:?}");
    assert_eq!(fake.times().len(), 20);
    let (_, breakers) = vendor.status(&crate::clock::Clock::starting_at(std::time::SystemTime::UNIX_EPOCH));
    let breaker = breakers.iter().find(|one| one.family == "compute").expect("reported");
    assert_eq!(breaker.state(), cloud_api_proto::v1alpha1::breaker::State::Open);
    assert!(breaker.retry_at.is_some());
    tokio::time::sleep(error.retry_after.expect("reported")).await;
    read(&session, "/").await.expect("the call succeeds again");
}

#[tokio::test(start_paused = true)]
async fn rejected_credentials_stop_everything_but_the_self_check() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(401, None), (401, None)]);
    assert_eq!(read(&session(&vendor), "/").await.expect_err("401").fault, Fault::Auth);
    tokio::time::timeout(Duration::from_secs(1), vendor.rejected()).await.expect("the rejection is reported");
    assert_eq!(read(&vendor.self_checking(), "/check").await.expect_err("401").fault, Fault::Auth);
    vendor.self_check(false);
    let stopped = session(&vendor).call(WRITE, get("/write")).await.expect_err("stopped");
    assert_eq!(stopped.fault, Fault::Auth);
    read(&vendor.self_checking(), "/check").await.expect("the self-check succeeds");
    vendor.self_check(true);
    read(&session(&vendor), "/").await.expect("all calls pass again");
    let arrived = fake.arrived();
    assert_eq!(arrived.len(), 4, "{arrived:?}");
    assert!(arrived[2].1 - arrived[1].1 >= 30_000, "vendors lock accounts: {arrived:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_candidate_credentials_stop_no_calls() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(401, None)]);
    assert_eq!(read(&vendor.self_checking(), "/check").await.expect_err("401").fault, Fault::Auth);
    read(&session(&vendor), "/").await.expect("the current credentials are valid");
}

#[tokio::test(start_paused = true)]
async fn vendor_texts_are_truncated_for_callers() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(429, Some(u64::MAX)), (429, Some(u64::MAX))]);
    let error = read(&session(&vendor), "/").await.expect_err("throttled twice");
    assert_eq!((error.fault, error.retry_after), (Fault::Throttled, Some(Duration::from_mins(15))));
    fake.answers([(LONG_ERROR_STATUS, None)]);
    let error = read(&session(&vendor), "/").await.expect_err("refused");
    let lengths =
        [&error.message, error.code.as_ref().expect("a code"), error.request_id.as_ref().expect("an ID")]
            .map(String::len);
    assert!(lengths.iter().all(|length| *length <= 1_100), "{lengths:?}");
    assert!(error.message.ends_with('…'), "the cut is marked: {error}");
    assert_eq!(error.fields.len(), 500, "all IDs of a look-up may be invalid");
    assert!(error.fields.iter().all(|field| field.len() <= 1_100));
    let status = tonic::Status::from(cloud_api_proto::AdapterError::from(error)).into_http::<()>();
    let trailers: usize =
        status.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(trailers < 16 * 1024, "{trailers} bytes: clients accept no larger trailers");
}

#[tokio::test(start_paused = true)]
async fn request_ids_in_logs_are_truncated() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(LONG_ERROR_STATUS, None)]);
    telemetry::traces::testing::ask_each_thread();
    let lines = Lines::default();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).finish();
    let logging = tracing::subscriber::set_default(log);
    let purpose = Purpose { request_id: "é".repeat(50_000), ..Purpose::own(Priority::Interactive, "test") };
    vendor.session(purpose).call(WRITE, get("/")).await.expect_err("refused");
    drop(logging);
    let lines = lines.text();
    let audit = lines
        .lines()
        .find(|line| line.contains(" audit: ") && line.contains("éé"))
        .expect("a write is logged");
    assert!(audit.contains("77"), "{audit}");
    let longest = lines.lines().map(str::len).max().unwrap_or_default();
    assert!(longest < 4_000, "{longest} bytes");
}

#[tokio::test(start_paused = true)]
async fn driver_panic_frees_the_slot_and_leaves_write_unknown() {
    let limits = Config { concurrency: [("compute".to_owned(), 1)].into(), ..limits(100.0, 10) };
    let (fake, vendor) = vendor(&limits);
    fake.answers([(BREAKS, None), (BREAKS, None)]);
    assert_eq!(read(&session(&vendor), "/read").await.expect_err("broken").fault, Fault::Nonsense);
    let error = session(&vendor).call(WRITE, get("/write")).await.expect_err("broken");
    assert_eq!(error.fault, Fault::OutcomeUnknown);
    read(&session(&vendor), "/").await.expect("the only place in flight is free again");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_permitted_time() {
    let (fake, vendor) = vendor(&limits(1.0, 1));
    let session = session(&vendor);
    vendor.allow_until(Instant::now() + Duration::from_secs(3));
    let calls = futures::future::join_all((0..5).map(|_| read(&session, "/")));
    let renewed = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(fake.times(), [0, 1000, 2000], "the fourth call would be sent just before the deadline");
        vendor.allow_until(Instant::now() + Duration::from_secs(30));
    };
    tokio::join!(calls, renewed);
    assert_eq!(fake.times().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_begins_with_empty_buckets() {
    let (fake, vendor) = vendor(&limits(1.0, 10));
    vendor.start_empty();
    read(&session(&vendor), "/").await.expect("the call is sent");
    assert_eq!(fake.times(), [1000]);
}
