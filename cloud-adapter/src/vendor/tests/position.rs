//! Tests of the reports on queued work and on the last writes.

use tokio::time::sleep;

use super::*;
use crate::vendor::Write;

const SECOND: Duration = Duration::from_secs(1);

fn said(vendor: &Vendor, position: &QueuePosition) -> Option<String> {
    vendor.waits(position).map(|wait| wait.to_string())
}

#[tokio::test(start_paused = true)]
async fn work_reports_its_wait_until_sent() {
    let (_fake, vendor) = vendor(&limits(0.1, 1));
    read(&session(&vendor), "/").await.expect("the call that uses up the burst");
    let position = QueuePosition::default();
    let work = session(&vendor).about("work").with_position(&position);
    assert_eq!(said(&vendor, &position), None, "no call is submitted yet");
    let looks = async {
        sleep(SECOND).await;
        let waits = said(&vendor, &position);
        sleep(9 * SECOND - LATENCY / 2).await;
        (waits, said(&vendor, &position))
    };
    let (read, (waits, sent)) = tokio::join!(read(&work, "/"), looks);
    read.expect("sent in order");
    let sentence =
        "waits for the call budget of bucket compute: 0 calls ahead at 0.1 a second, next call in about 9 s";
    assert_eq!(waits.as_deref(), Some(sentence));
    assert_eq!(sent, None, "the vendor executes it");
}

#[tokio::test(start_paused = true)]
async fn waiter_reports_the_wait_of_shared_work() {
    let (_fake, vendor) = vendor(&limits(0.1, 1));
    read(&session(&vendor), "/").await.expect("the call that uses up the burst");
    let waiters = Arc::<Waiters>::default();
    let (first, second) = (QueuePosition::default(), QueuePosition::default());
    let lists = session(&vendor).about("first").with_position(&first);
    let waits = session(&vendor).about("second").with_position(&second);
    let _lists = waiters.join(&lists);
    let waiter = waiters.join(&waits);
    let shared = lists.shared(&waiters);
    let looks = async {
        sleep(SECOND).await;
        let both = [&first, &second].map(|position| said(&vendor, position));
        drop(waiter);
        (both, said(&vendor, &second))
    };
    let (read, (both, left)) = tokio::join!(read(&shared, "/"), looks);
    read.expect("sent in order");
    let sentence =
        "waits for the call budget of bucket compute: 0 calls ahead at 0.1 a second, next call in about 9 s"
            .to_owned();
    assert_eq!(both, [Some(sentence.clone()), Some(sentence)]);
    assert_eq!(left, None, "the call no longer waits for the budget");
}

#[tokio::test(start_paused = true)]
async fn abandoned_call_has_no_queue_position() {
    let (_fake, vendor) = vendor(&limits(0.1, 1));
    read(&session(&vendor), "/").await.expect("the call that uses up the burst");
    let position = QueuePosition::default();
    let work = session(&vendor).with_position(&position);
    let given_up = tokio::time::timeout(SECOND, read(&work, "/")).await;
    assert!(given_up.is_err(), "the call is sent later");
    assert_eq!(said(&vendor, &position), None);
}

#[tokio::test(start_paused = true)]
async fn the_last_writes_are_kept_and_no_read() {
    let (fake, vendor) = vendor(&limits(1_000.0, 1_000));
    fake.answers([(200, None), (409, None)]);
    let service = session(&vendor).about("Service shop/web (6f1c)");
    service.call(WRITE, get("/")).await.expect("accepted");
    service.call(WRITE, get("/")).await.expect_err("busy");
    read(&service, "/").await.expect("a read");
    let reported: Vec<_> = vendor
        .last_writes()
        .into_iter()
        .map(|Write { operation, object, controller, error, .. }| {
            (operation, object, controller, error.is_some())
        })
        .collect();
    let write = |failed| ("CreateInstance", Some("shop/web".to_owned()), "adapter", failed);
    assert_eq!(reported, [write(true), write(false)], "the newest write comes first");
    for _ in 0..60 {
        session(&vendor).call(WRITE, get("/")).await.expect("accepted");
    }
    let kept = vendor.last_writes();
    assert_eq!(kept.len(), 50);
    assert!(kept.iter().all(|write| write.object.as_deref() == Some("test")), "{kept:?}");
}
