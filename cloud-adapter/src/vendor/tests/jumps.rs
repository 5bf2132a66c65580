//! Tests clocks that jump. Wall-clock time does not affect sending. A jump of monotonic time, as after a host was suspended for hours,
//! causes no excessive burst, and no call waits forever.

use super::*;

const HOURS: Duration = Duration::from_hours(5);

/// Asserts that each time window contains at most burst + rate x window arrivals.
#[track_caller]
fn within(times: &[u128], rate: f64, burst: usize) {
    for (first, from) in times.iter().enumerate() {
        for (last, until) in times.iter().enumerate().skip(first) {
            let window = Duration::from_millis(u64::try_from(until - from).expect("hours"));
            let most = burst as f64 + rate * window.as_secs_f64() + 1e-6;
            assert!((last - first + 1) as f64 <= most, "{} calls in {window:?}: {times:?}", last - first + 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clock_jump_fills_a_bucket_only_once() {
    let (fake, vendor) = vendor(&limits(10.0, 3));
    let session = session(&vendor);
    let calls = futures::future::join_all((0..30).map(|_| read(&session, "/")));
    let jumps = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(450)).await;
            tokio::time::advance(HOURS).await;
        }
    };
    let (answers, ()) = tokio::join!(calls, jumps);
    assert!(answers.iter().all(Result::is_ok), "all calls are sent");
    let times = fake.times();
    assert_eq!(times.len(), 30);
    within(&times, 10.0, 3);
    let last = times.last().expect("sent");
    assert!(
        *last <= 3 * (HOURS.as_millis() + 450) + 3_000,
        "no call waits longer than the rate requires: {times:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn pause_is_over_after_a_clock_jump() {
    let (fake, vendor) = vendor(&limits(10.0, 3));
    let session = session(&vendor);
    fake.answers([(429, Some(60))]);
    let calls = futures::future::join_all((0..6).map(|_| read(&session, "/")));
    let jump = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(fake.times().len() <= 3, "the vendor pauses");
        tokio::time::advance(HOURS).await;
    };
    let (answers, ()) = tokio::join!(calls, jump);
    assert!(answers.iter().all(Result::is_ok));
    let jumped = HOURS.as_millis() + 1_000;
    let later: Vec<_> = fake.times().into_iter().filter(|at| *at > 1_000).collect();
    assert!(later.iter().all(|at| (jumped..jumped + 30_000).contains(at)), "{later:?}");
    within(&later, 10.0, 3);
}

#[tokio::test(start_paused = true)]
async fn breaker_recovers_after_a_clock_jump() {
    let (fake, vendor) = vendor(&limits(1000.0, 100));
    let session = session(&vendor);
    fake.answers([(503, None); 20]);
    for _ in 0..20 {
        read(&session, "/").await.expect_err("503");
    }
    read(&session, "/").await.expect_err("the breaker is open");
    tokio::time::advance(HOURS).await;
    read(&session, "/").await.expect("sent at once");
    assert_eq!(fake.times().len(), 21);
}

#[tokio::test(start_paused = true)]
async fn permission_to_send_expires() {
    let (fake, vendor) = vendor(&limits(10.0, 3));
    let session = session(&vendor);
    vendor.allow_until(Instant::now() + Duration::from_secs(6));
    let calls = futures::future::join_all((0..30).map(|_| read(&session, "/")));
    let jump = async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let before = fake.times().len();
        tokio::time::advance(HOURS).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(fake.times().len(), before, "another replica may lead by now");
        vendor.allow_until(Instant::now() + HOURS);
    };
    let (answers, ()) = tokio::join!(calls, jump);
    assert!(answers.iter().all(Result::is_ok));
    within(&fake.times(), 10.0, 3);
}
