//! Tests of flights whose calls are queued.

use tokio::time::timeout;

use super::*;
use crate::{
    auth::{Caller, Role},
    vendor::tests as wire,
};

/// A batch or a page contains a third of all instances, so reading all instances takes three calls. While many calls are queued, the first
/// of the three calls is sent at once. The other calls are queued fairly; low-priority calls get a ninth of the rate.
async fn busy(listed: bool) -> Bed {
    let (_, vendor) = wire::vendor(&wire::limits(10.0, 1));
    let count = 3 * if listed { PAGE } else { BATCH };
    let bed = Bed { vendor, ..Bed::over(Source { queued: true, ..Source::default() }, count) };
    if listed {
        bed.listed().await;
    }
    bed
}

impl Bed {
    async fn storm(&self) {
        let caller = Caller { role: Role::ServiceController, subject: Arc::from("services") };
        let session = self.vendor.session(Purpose { caller, ..Purpose::own(Priority::Traffic, "storm") });
        join_all((0..2_000).map(|_| wire::read(&session, "/storm"))).await;
        panic!("the storm is over");
    }

    fn within(&self, millis: u64, priority: Priority) -> Session {
        let deadline = Some(Instant::now() + Duration::from_millis(millis));
        self.vendor.session(Purpose { deadline, ..Purpose::own(priority, "test") })
    }

    async fn after(
        &self,
        millis: u64,
        session: impl FnOnce() -> Session,
    ) -> (Result<usize, VendorError>, Duration) {
        sleep(Duration::from_millis(millis)).await;
        let began = Instant::now();
        let all = self.source.there.lock().unwrap().len();
        let answers = self.lookups.get(ids(0..all), None, &session()).await;
        (answers.map(|answers| found(&answers)), began.elapsed())
    }
}

/// Returns how long an urgent caller waits for three calls while many calls are queued. A low-priority flight may be in progress, too.
async fn urgent(listed: bool, leisurely: bool) -> Duration {
    let bed = busy(listed).await;
    let began = async {
        if leisurely {
            bed.after(0, || bed.session(Priority::Background)).await.0.expect("answered");
        }
    };
    let joins = bed.after(400, || bed.within(60_000, Priority::Interactive));
    tokio::select! {
        biased;
        () = bed.storm() => Duration::MAX,
        ((), (found, waited)) = futures::future::join(began, joins) => {
            assert!(found.is_ok(), "{found:?}");
            assert_eq!((bed.pages(), bed.batches().len()), if listed { (3, 0) } else { (0, 3) }, "one flight is made");
            waited
        }
    }
}

#[tokio::test(start_paused = true)]
async fn urgent_caller_speeds_up_a_running_flight() {
    for listed in [false, true] {
        let (alone, joined) = (urgent(listed, false).await, urgent(listed, true).await);
        assert!(joined <= alone, "{joined:?} instead of {alone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_flight_have_their_own_deadlines() {
    for listed in [false, true] {
        let bed = busy(listed).await;
        let began = bed.after(0, || bed.within(1_500, Priority::Background));
        let hasty = bed.after(500, || bed.within(300, Priority::Background));
        let patient = bed.after(500, || bed.within(60_000, Priority::Background));
        let all = futures::future::join3(began, hasty, patient);
        let ((began, began_waited), (hasty, hasty_waited), (patient, _)) = tokio::select! {
            biased;
            () = bed.storm() => return,
            all = timeout(Duration::from_secs(60), all) => all.expect("all callers get the error"),
        };
        for refused in [began, hasty] {
            let error = refused.expect_err("three queued calls take two seconds");
            assert_eq!((error.fault, error.retry_after.is_some()), (Fault::Budget, true), "{error:?}");
        }
        assert_eq!(hasty_waited, Duration::ZERO, "the first call is sent at once");
        assert!(began_waited < Duration::from_millis(1_100), "before its third call: {began_waited:?}");
        assert!(patient.is_ok(), "{patient:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn look_ups_of_different_instances_queue_separately() {
    let mut limits = wire::limits(10.0, 1);
    limits.queue.per_object = 1;
    let (_, vendor) = wire::vendor(&limits);
    let bed = Bed { vendor, ..Bed::over(Source { queued: true, ..Source::default() }, 4 * BATCH) };
    let session = bed.session(Priority::Lifecycle);
    // One call is sent at once; the other calls are queued.
    let flights = (0..4).map(|n| bed.lookups.get(ids(n * BATCH..(n + 1) * BATCH), None, &session));
    for answers in join_all(flights).await {
        assert_eq!(answers.map(|answers| found(&answers)), Ok(BATCH));
    }
    assert_eq!(bed.batches(), [BATCH; 4]);
}
