//! Tests that shared work is done as if its most urgent waiter were alone, and that each waiter is refused by its own deadline.

use cloud_api_proto::v1alpha1::{Instance, cost::Source};
use futures::future::{join, join_all};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::*;
use crate::{
    config::CollectionSettings,
    driver::{Collection, Cursor, Page},
    snapshot::Snapshot,
};

const PAGES: usize = 5;

struct Pages;

impl Collection<Instance> for Pages {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        _: Option<u32>,
    ) -> Result<Page<Instance>, VendorError> {
        let page: usize = cursor.map_or(0, |cursor| cursor.at().parse().expect("a number"));
        read(session, &format!("/pages/{page}")).await?;
        let next = (page + 1 < PAGES).then(|| (page + 1).to_string().into());
        Ok(Page { items: Vec::new(), next, total: None })
    }
}

fn snapshot() -> Snapshot<Instance> {
    Snapshot::new(CollectionSettings::aged(Duration::from_secs(30)), Duration::from_secs(2), Metrics::new())
}

fn purpose(priority: Priority, role: Role) -> Purpose {
    let own = Purpose::own(priority, "test");
    Purpose { caller: Caller { role, ..own.caller }, ..own }
}

fn within(seconds: u64, purpose: Purpose) -> Purpose {
    Purpose { deadline: Some(Instant::now() + Duration::from_secs(seconds)), ..purpose }
}

async fn storm(vendor: &Arc<Vendor>, purpose: Purpose, calls: usize) {
    let session = vendor.session(purpose);
    let calls = (0..calls).map(|object| {
        let session = session.about(object.to_string());
        async move { read(&session, "/storm").await }
    });
    join_all(calls).await;
}

/// Returns how long an urgent caller waits for a listing while many other calls are queued, and the cost. `leisurely`: a low-priority
/// listing is in progress.
async fn urgent_listing(leisurely: bool) -> (Duration, u32) {
    let (_fake, vendor) = vendor(&limits(10.0, 1));
    let snapshot = snapshot();
    let listing = async {
        let session = vendor.session(Purpose::own(Priority::Background, "refresh"));
        if leisurely {
            snapshot.at_least(Some(Instant::now()), &Pages, &session).await.expect("listed");
        }
        session.meter().cost(Source::Live, None).vendor_calls
    };
    let bound = Instant::now();
    let urgent = async {
        sleep(Duration::from_millis(250)).await;
        let began = Instant::now();
        let session = vendor.session(within(60, purpose(Priority::Interactive, Role::NodeController)));
        snapshot.at_least(Some(bound), &Pages, &session).await.expect("listed");
        (began.elapsed(), session.meter().cost(Source::Live, None).vendor_calls)
    };
    tokio::select! {
        biased;
        () = storm(&vendor, purpose(Priority::Traffic, Role::ServiceController), 2_000) => panic!("runs for minutes"),
        (paid, (waited, also_paid)) = join(listing, urgent) => {
            assert_eq!(paid + also_paid, u32::try_from(PAGES).expect("few"), "each page is charged once");
            (waited, also_paid)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn urgent_caller_speeds_up_a_running_listing() {
    let (alone, all) = urgent_listing(false).await;
    let (joined, none) = urgent_listing(true).await;
    assert_eq!((all, none), (5, 0), "the caller that lists is charged");
    assert!(alone > Duration::from_millis(500), "the listing is queued fairly with the storm: {alone:?}");
    assert!(joined <= alone, "{joined:?} instead of {alone:?}");
}

#[tokio::test(start_paused = true)]
async fn shared_work_is_queued_outside_namespaces() {
    let (fake, vendor) = vendor(&limits(1.0, 1));
    read(&session(&vendor), "/").await.expect("the call that uses up the burst");
    let evil = || Purpose {
        namespace: Arc::from("evil"),
        ..purpose(Priority::Interactive, Role::ServiceController)
    };
    let waiters = Arc::<Waiters>::default();
    let first = vendor.session(evil());
    let _waiter = waiters.join(&first);
    let payer = first.shared(&waiters);
    let listing = async {
        sleep(Duration::from_millis(100)).await;
        read(&payer, "/shared").await
    };
    let (shared, ()) = join(listing, storm(&vendor, evil(), 20)).await;
    shared.expect("sent");
    let at = fake.arrived().iter().position(|(path, _)| path == "/shared");
    assert!(at.is_some_and(|at| at <= 2), "{at:?}: behind the burst and one call of the namespace");
}

#[tokio::test(start_paused = true)]
async fn early_deadline_is_refused_and_later_one_served() {
    let (fake, vendor) = vendor(&limits(0.1, 1));
    read(&session(&vendor), "/").await.expect("the call that uses up the burst");
    let waiters = Arc::<Waiters>::default();
    let patient = vendor.session(within(30, Purpose::own(Priority::Interactive, "patient")));
    let _patient = waiters.join(&patient);
    let payer = patient.shared(&waiters);
    let hasty = async {
        sleep(Duration::from_secs(1)).await;
        let hasty = vendor.session(within(2, Purpose::own(Priority::Interactive, "hasty")));
        let began = Instant::now();
        let refused = timeout(Duration::from_secs(2), waiters.join(&hasty).refused()).await;
        (refused.expect("refused before its deadline has passed"), began.elapsed())
    };
    let (served, (refused, waited)) = tokio::join!(read(&payer, "/shared"), hasty);
    served.expect("in time for the waiter with the later deadline");
    assert_eq!((refused.fault, waited), (Fault::Budget, Duration::ZERO));
    let left = Duration::from_secs(8)..Duration::from_secs(12);
    assert!(refused.retry_after.is_some_and(|after| left.contains(&after)), "{refused:?}");
    assert_eq!(fake.times(), [0, 10_000]);
}

#[tokio::test(start_paused = true)]
async fn queued_call_lives_until_its_last_waiter() {
    for (joins, sent) in [(false, false), (true, true)] {
        let (fake, vendor) = vendor(&limits(1.0, 1));
        read(&session(&vendor), "/").await.expect("the call that uses up the burst");
        let waiters = Arc::<Waiters>::default();
        let first = vendor.session(within(2, Purpose::own(Priority::Background, "first")));
        let waiter = waiters.join(&first);
        let payer = first.shared(&waiters);
        let later = async {
            sleep(Duration::from_millis(500)).await;
            drop(waiter);
            let later = vendor.session(within(60, Purpose::own(Priority::Background, "later")));
            let _later = joins.then(|| waiters.join(&later));
            storm(&vendor, purpose(Priority::Traffic, Role::ServiceController), 12).await;
        };
        let (shared, ()) = tokio::join!(read(&payer, "/shared"), later);
        assert_eq!(shared.is_ok(), sent, "{shared:?}");
        assert_eq!(fake.arrived().iter().any(|(path, _)| path == "/shared"), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn new_pause_refuses_waiters_with_earlier_deadlines() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(429, Some(20))]);
    let waiters = Arc::<Waiters>::default();
    let hasty = vendor.session(within(10, Purpose::own(Priority::Interactive, "hasty")));
    let patient = vendor.session(within(60, Purpose::own(Priority::Background, "patient")));
    let (mut hasty, patient) = (waiters.join(&hasty), (waiters.join(&patient), patient.shared(&waiters)));
    let refused =
        async { timeout(Duration::from_secs(2), hasty.refused()).await.expect("refused within seconds") };
    let (served, refused) = tokio::join!(read(&patient.1, "/"), refused);
    served.expect("sent after the pause");
    assert_eq!((refused.fault, refused.message.as_str()), (Fault::Throttled, "as prepared"));
    assert!(refused.retry_after > Some(Duration::from_secs(15)), "{refused:?}");
}

/// Returns how long a write takes that is queued behind a hundred resyncs. The priority of the write is `asked` at first, and `later` after
/// half a second.
async fn write_behind_resyncs(asked: Priority, later: Priority) -> Duration {
    let (_fake, vendor) = vendor(&limits(10.0, 1));
    let (raised, requested) = watch::channel(asked);
    let session = vendor.session(purpose(asked, Role::ServiceController));
    let session = session.with_priority(requested, Some(Priority::Traffic));
    let began = Instant::now();
    let write = async {
        sleep(Duration::from_millis(250)).await;
        session.call(WRITE, get("/write")).await.expect("written");
        began.elapsed()
    };
    let joins = async {
        sleep(Duration::from_millis(500)).await;
        raised.send_replace(later);
    };
    let resyncs = storm(&vendor, purpose(Priority::Background, Role::ServiceController), 100);
    let (waited, (), ()) = tokio::join!(write, joins, resyncs);
    waited
}

#[tokio::test(start_paused = true)]
async fn joining_caller_raises_a_queued_write() {
    use Priority::{Background, Interactive};
    let leisurely = write_behind_resyncs(Background, Background).await;
    let raised = write_behind_resyncs(Background, Interactive).await;
    assert!(leisurely > Duration::from_secs(9), "sent after all others: {leisurely:?}");
    assert!(raised < Duration::from_secs(1), "sent first after the priority was raised: {raised:?}");
}
