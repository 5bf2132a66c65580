//! These tests cover the shared listing and its watch protocol. They use a source that counts calls, and paused time.

mod feed;
mod listing;
mod refresh;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use cloud_api_proto::v1alpha1::{Instance, Priority};
use tokio::time::{Duration, Instant, advance};

use super::{Frame, LookedUp, Snapshot, WatchOptions, Watcher, checksum};
use crate::{
    auth::Caller,
    config::CollectionSettings,
    driver::{Classify, Collection, Cursor, Fault, Page, VendorError},
    leadership::Replica,
    metrics::Metrics,
    vendor::{Operation, Purpose, Session, Vendor, VendorResponse},
};

const HORIZON: Duration = Duration::from_secs(2);

/// A source that lists its items. A page contains two items and takes ten milliseconds.
#[derive(Debug, Default)]
struct Source {
    items: Mutex<Vec<Instance>>,
    pages: AtomicUsize,
    failing: Mutex<Option<VendorError>>,
    /// The items that appear before all other items while pages are read, one item per page.
    growing: Mutex<Vec<Instance>>,
    /// Whether the source pages by offset and returns the total.
    offset: AtomicBool,
}

impl Collection<Instance> for Source {
    async fn list_page(
        &self,
        _: &Session,
        cursor: Option<&Cursor>,
        _: Option<u32>,
    ) -> Result<Page<Instance>, VendorError> {
        self.pages.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        if let Some(error) = self.failing.lock().unwrap().clone() {
            return Err(error);
        }
        if let Some(new) = self.growing.lock().unwrap().pop() {
            self.items.lock().unwrap().insert(0, new);
        }
        let from: usize = cursor.map_or(0, |cursor| cursor.at().parse().unwrap());
        let items = self.items.lock().unwrap();
        let next = (from + 2 < items.len()).then(|| (from + 2).to_string().into());
        let total = self.offset.load(Ordering::Relaxed).then(|| u64::try_from(items.len()).unwrap());
        Ok(Page { items: items.iter().skip(from).take(2).cloned().collect(), next, total })
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
    vendor: Arc<Vendor>,
}

impl Bed {
    fn new(ids: &[&str]) -> Self {
        // This call fails if another test has installed a provider; the tests then use that provider.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let vendor = Vendor::new(&cloud_budget::Config::default(), Arc::new(Never), &Metrics::new()).unwrap();
        let bed = Self {
            source: Arc::default(),
            snapshot: Arc::new(Snapshot::new(
                CollectionSettings::aged(Duration::from_secs(30)),
                HORIZON,
                Metrics::new(),
            )),
            vendor: Arc::new(vendor),
        };
        bed.has(ids);
        bed
    }

    fn has(&self, ids: &[&str]) {
        *self.source.items.lock().unwrap() = ids.iter().map(|id| instance(id)).collect();
    }

    fn session(&self) -> Session {
        self.vendor.session(Purpose::own(Priority::Background, "test"))
    }

    async fn refresh(&self) -> Result<usize, VendorError> {
        let view = self.snapshot.at_least(Some(Instant::now()), &*self.source, &self.session()).await?;
        Ok(view.items.len())
    }

    async fn keep_fresh(&self) {
        let replica = Replica::standing_by();
        replica.lead(0);
        self.snapshot.keep_fresh(&*self.source, &self.vendor, &replica, "c-1").await;
    }

    fn pages(&self) -> usize {
        self.source.pages.load(Ordering::Relaxed)
    }

    fn ids(&self) -> Vec<String> {
        let view = self.snapshot.view(None).expect("listed");
        view.items.iter().map(|item| item.provider_id.clone()).collect()
    }

    fn watch(&self, options: WatchOptions) -> Watcher<Instance, String> {
        let seen = |i: &Instance| (!i.provider_id.starts_with("hidden")).then(|| i.provider_id.clone());
        Watcher::new(Arc::clone(&self.snapshot), options, seen, |id| id).expect("the watch is accepted")
    }
}

impl Default for WatchOptions {
    fn default() -> Self {
        let (resume_token, epoch) = (String::new(), String::new());
        Self { caller: Caller::anyone(), stop_when_synced: false, resume_token, epoch, bound: None }
    }
}

fn instance(id: &str) -> Instance {
    let (id, name) = id.split_once('=').unwrap_or((id, ""));
    Instance { provider_id: id.to_owned(), name: name.to_owned(), ..Instance::default() }
}

/// Returns the next messages, as one word per message.
async fn next(watcher: &mut Watcher<Instance, String>, n: usize) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..n {
        words.push(match watcher.next().await {
            None => "end".to_owned(),
            Some(Err(error)) => format!("error {error}"),
            Some(Ok(Frame::Reset)) => "reset".to_owned(),
            Some(Ok(Frame::Items(items))) => format!("items {}", items.join(" ")),
            Some(Ok(Frame::Synced { count, .. })) => format!("synced {count}"),
            Some(Ok(Frame::Upsert(id))) => format!("upsert {id}"),
            Some(Ok(Frame::Gone(id))) => format!("gone {id}"),
            Some(Ok(Frame::Bookmark { .. })) => "bookmark".to_owned(),
        });
    }
    words
}

#[tokio::test(start_paused = true)]
async fn readers_at_one_time_share_one_listing() {
    let bed = Bed::new(&["a", "b", "c"]);
    let reads = (0..50).map(|_| async {
        let session = bed.session();
        let bound = Some(Instant::now());
        bed.snapshot.at_least(bound, &*bed.source, &session).await.map(|view| view.items.len())
    });
    let sizes = futures::future::join_all(reads).await;
    assert!(sizes.iter().all(|size| *size == Ok(3)));
    assert_eq!(bed.source.pages.load(Ordering::Relaxed), 2, "three items are two pages");
}

#[tokio::test(start_paused = true)]
async fn reader_joins_only_a_late_enough_listing() {
    let bed = Bed::new(&["a"]);
    let first = bed.refresh();
    let second = async {
        tokio::task::yield_now().await;
        advance(Duration::from_micros(10)).await;
        bed.refresh().await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first, second), (Ok(1), Ok(1)));
    assert_eq!(bed.source.pages.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_listing_keeps_the_content() {
    let bed = Bed::new(&["a"]);
    bed.refresh().await.expect("listed");
    *bed.source.failing.lock().unwrap() = Some(VendorError::new(Fault::Auth, "invalid credentials"));
    advance(Duration::from_secs(1)).await;
    assert_eq!(bed.refresh().await.expect_err("refused").fault, Fault::Auth);
    assert_eq!(bed.snapshot.view(None).expect("kept").items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_resets_lists_syncs_and_follows() {
    let bed = Bed::new(&["a", "hidden", "b"]);
    bed.refresh().await.expect("listed");
    let mut watcher = bed.watch(WatchOptions::default());
    assert_eq!(next(&mut watcher, 3).await, ["reset", "items a b", "synced 2"]);
    bed.has(&["a=new name", "c"]);
    advance(Duration::from_secs(1)).await;
    bed.refresh().await.expect("listed");
    assert_eq!(next(&mut watcher, 4).await, ["gone b", "upsert a", "upsert c", "bookmark"]);
}

#[tokio::test(start_paused = true)]
async fn quiet_watch_sends_a_bookmark_every_30_s() {
    let bed = Bed::new(&[]);
    bed.refresh().await.expect("listed");
    let mut watcher = bed.watch(WatchOptions::default());
    assert_eq!(next(&mut watcher, 2).await, ["reset", "synced 0"]);
    let started = Instant::now();
    assert_eq!(next(&mut watcher, 2).await, ["bookmark", "bookmark"]);
    assert_eq!(started.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stops_when_synced_is_a_list() {
    let bed = Bed::new(&["a"]);
    bed.refresh().await.expect("listed");
    let mut watcher = bed.watch(WatchOptions { stop_when_synced: true, ..WatchOptions::default() });
    assert_eq!(next(&mut watcher, 4).await, ["reset", "items a", "synced 1", "end"]);
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_from_its_token_but_not_from_a_foreign_one() {
    let bed = Bed::new(&["a"]);
    bed.refresh().await.expect("listed");
    let options = |token: &str| WatchOptions {
        resume_token: token.to_owned(),
        epoch: "me/instances".to_owned(),
        ..WatchOptions::default()
    };
    let mut first = bed.watch(options(""));
    let token = loop {
        if let Frame::Synced { token, .. } = first.next().await.expect("open").expect("no error") {
            break token;
        }
    };
    bed.has(&["a", "b"]);
    advance(Duration::from_secs(1)).await;
    bed.refresh().await.expect("listed");
    assert_eq!(next(&mut bed.watch(options(&token)), 1).await, ["upsert b"]);
    let stranger = token.replace("me/", "you/");
    assert_eq!(next(&mut bed.watch(options(&stranger)), 1).await, ["reset"]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_fell_behind_is_reset() {
    let bed = Bed::new(&["a"]);
    bed.refresh().await.expect("listed");
    let mut watcher = bed.watch(WatchOptions::default());
    next(&mut watcher, 3).await;
    for round in 0..5000 {
        bed.snapshot.upsert(instance(&format!("a={round}")));
    }
    assert_eq!(next(&mut watcher, 3).await, ["reset", "items a", "synced 1"]);
}

#[tokio::test(start_paused = true)]
async fn watch_before_the_first_listing_returns_its_error() {
    let bed = Bed::new(&[]);
    *bed.source.failing.lock().unwrap() = Some(VendorError::new(Fault::Unavailable, "gone fishing"));
    let mut watcher = bed.watch(WatchOptions::default());
    tokio::select! {
        () = bed.keep_fresh() => panic!("never ends"),
        words = next(&mut watcher, 2) => assert_eq!(words, ["error gone fishing", "end"]),
    }
}

#[tokio::test(start_paused = true)]
async fn watch_ignores_errors_from_before_it() {
    let bed = Bed::new(&["a"]);
    *bed.source.failing.lock().unwrap() = Some(VendorError::new(Fault::Unavailable, "gone fishing"));
    bed.refresh().await.expect_err("failing");
    *bed.source.failing.lock().unwrap() = None;
    advance(Duration::from_secs(1)).await;
    let mut watcher = bed.watch(WatchOptions::default());
    tokio::select! {
        () = bed.keep_fresh() => panic!("never ends"),
        words = next(&mut watcher, 3) => assert_eq!(words, ["reset", "items a", "synced 1"]),
    }
}

#[tokio::test(start_paused = true)]
async fn deadlines_of_waiters_are_independent() {
    let bed = Bed::new(&["a", "b", "c", "d", "e", "f", "g"]);
    let purpose = Purpose { deadline: Some(Instant::now() + Duration::from_millis(20)), ..urgent() };
    let session = bed.vendor.session(purpose);
    let hasty = bed.snapshot.at_least(Some(Instant::now()), &*bed.source, &session);
    let (hasty, patient) = tokio::join!(hasty, bed.refresh());
    assert_eq!(hasty.expect_err("four pages take forty milliseconds").fault, Fault::Budget);
    assert_eq!(patient, Ok(7));
}

fn urgent() -> Purpose {
    Purpose::own(Priority::Interactive, "test")
}

#[tokio::test(start_paused = true)]
async fn later_look_up_survives_an_older_listing() {
    let bed = Bed::new(&["a=old"]);
    let listing = bed.refresh();
    let look_up = async {
        tokio::task::yield_now().await;
        advance(Duration::from_micros(10)).await;
        let asked = Instant::now();
        bed.snapshot.learn(LookedUp { asked, found: vec![instance("a=new")], gone: Vec::new() });
    };
    let (listed, ()) = tokio::join!(listing, look_up);
    listed.expect("listed");
    assert_eq!(bed.snapshot.view(None).expect("listed").items[0].name, "new");
}

#[tokio::test(start_paused = true)]
async fn earlier_look_up_does_not_undo_a_listing() {
    let bed = Bed::new(&["a=new"]);
    let asked = Instant::now();
    advance(Duration::from_micros(10)).await;
    bed.refresh().await.expect("listed");
    bed.snapshot.learn(LookedUp { asked, found: vec![instance("a=old")], gone: vec!["a".to_owned()] });
    let items = bed.snapshot.view(None).expect("listed").items;
    assert_eq!(items.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn lagging_reads_do_not_undo_writes() {
    let bed = Bed::new(&["a", "b"]);
    bed.refresh().await.expect("listed");
    bed.snapshot.upsert(instance("new"));
    bed.snapshot.remove("a");
    let ids = || {
        bed.snapshot
            .view(None)
            .expect("listed")
            .items
            .iter()
            .map(|i| i.provider_id.clone())
            .collect::<Vec<_>>()
    };
    advance(Duration::from_secs(1)).await;
    bed.refresh().await.expect("the listing shows the old state");
    assert_eq!(ids(), ["b", "new"]);
    assert!(bed.snapshot.departed("a").is_some() && bed.snapshot.departed("b").is_none());
    advance(HORIZON).await;
    bed.refresh().await.expect("reads are reliable now");
    assert_eq!(ids(), ["a", "b"], "reads are reliable, whatever they show");
}

/// A message contains at most 512 items. So a client that does not read costs no more than one message, and misses no change.
#[tokio::test(start_paused = true)]
async fn changes_during_a_listing_are_sent_after_it() {
    let names: Vec<String> = (0..1_000).map(|n| format!("i{n:04}")).collect();
    let bed = Bed::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    bed.refresh().await.expect("listed");
    let mut watcher = bed.watch(WatchOptions::default());
    assert_eq!(next(&mut watcher, 1).await, ["reset"]);
    let first = next(&mut watcher, 1).await.remove(0);
    assert!(first.starts_with("items i0000 ") && first.ends_with(" i0511"), "{first}");

    bed.snapshot.remove("i0007");
    bed.snapshot.remove("i0600");
    bed.snapshot.upsert(instance("i0007b"));
    bed.snapshot.upsert(instance("i0600b"));
    let rest = next(&mut watcher, 1).await.remove(0);
    assert!(rest.contains(" i0599 i0600b i0601 ") && rest.ends_with(" i0999"), "the current state: {rest}");
    let Some(Ok(Frame::Synced { count, checksum: sum, .. })) = watcher.next().await else {
        panic!("all items")
    };
    let handed = format!("{first} {rest}").replace("items ", "");
    assert_eq!((count, sum), (1_000, checksum(handed.split(' '))), "the checksum of the items sent");
    let changes = next(&mut watcher, 4).await;
    assert_eq!(
        changes,
        ["gone i0007", "gone i0600", "upsert i0007b", "upsert i0600b"],
        "the repeated change has no effect"
    );
}

/// An incomplete listing is never reported as complete.
#[tokio::test(start_paused = true)]
async fn listing_restarts_if_content_is_dropped_while_sending() {
    let names: Vec<String> = (0..600).map(|n| format!("i{n:04}")).collect();
    let bed = Bed::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    bed.refresh().await.expect("listed");
    let mut watcher = bed.watch(WatchOptions::default());
    next(&mut watcher, 2).await;
    bed.snapshot.forget();
    bed.has(&["other"]);
    bed.refresh().await.expect("listed");
    assert_eq!(next(&mut watcher, 3).await, ["reset", "items other", "synced 1"]);
}
