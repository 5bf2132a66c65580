//! These tests cover pages that shift, interrupted listings, and items that a listing must not overwrite.

use super::*;

#[tokio::test(start_paused = true)]
async fn pages_that_shift_are_read_again() {
    let bed = Bed::new(&["a", "b", "c", "d"]);
    bed.source.offset.store(true, Ordering::Relaxed);
    *bed.source.growing.lock().unwrap() = vec![instance("x"), instance("w")];
    bed.refresh().await.expect("listed");
    assert_eq!(bed.ids(), ["a", "b", "c", "d", "w", "x"]);
    assert_eq!(bed.pages(), 5, "two pages before the total changed, three for six items");
    assert_eq!(bed.snapshot.with(|state| state.pages), Some(5), "the cost of the listing");
}

#[tokio::test(start_paused = true)]
async fn item_read_twice_restarts_the_listing() {
    let bed = Bed::new(&["a", "b", "c", "d"]);
    bed.source.offset.store(true, Ordering::Relaxed);
    let swap = async {
        tokio::time::sleep(Duration::from_millis(15)).await;
        // The total is unchanged, but all remaining items move by one position.
        bed.has(&["x", "a", "b", "c"]);
    };
    let (listed, ()) = tokio::join!(bed.refresh(), swap);
    listed.expect("listed");
    assert_eq!(bed.ids(), ["a", "b", "c", "x"]);
}

#[tokio::test(start_paused = true)]
async fn always_shifting_listing_fails() {
    let bed = Bed::new(&["a", "b", "c"]);
    bed.refresh().await.expect("listed");
    bed.source.offset.store(true, Ordering::Relaxed);
    *bed.source.growing.lock().unwrap() = (0..100).map(|n| instance(&format!("n-{n}"))).collect();
    advance(Duration::from_secs(1)).await;
    assert_eq!(bed.refresh().await.expect_err("shifts").fault, Fault::Unavailable);
    assert_eq!(bed.ids(), ["a", "b", "c"]);
    assert_eq!(bed.pages(), 2 + 8, "the listing fails after four tries");
}

#[tokio::test(start_paused = true)]
async fn waiter_continues_an_interrupted_listing() {
    let bed = Bed::new(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    let hasty = tokio::time::timeout(Duration::from_millis(25), bed.refresh());
    let bound = Instant::now();
    let patient = async {
        tokio::task::yield_now().await;
        bed.snapshot.at_least(Some(bound), &*bed.source, &bed.session()).await
    };
    let (hasty, patient) = tokio::join!(hasty, patient);
    assert!(hasty.is_err(), "left");
    assert_eq!(patient.expect("listed").items.len(), 8);
    assert_eq!(bed.pages(), 5, "only the interrupted page was read twice");
}

#[tokio::test(start_paused = true)]
async fn unchanged_items_are_shared_between_listings() {
    let bed = Bed::new(&["a=0", "b=0", "c=0"]);
    bed.refresh().await.expect("listed");
    advance(Duration::from_secs(1)).await;
    bed.has(&["a=0", "b=1", "c=0"]);
    let left = tokio::time::timeout(Duration::from_millis(15), bed.refresh()).await;
    assert!(left.is_err(), "interrupted after the first page");
    let listing = bed.snapshot.listing.lock().await;
    let read = &listing.as_ref().expect("left").items;
    let shared = |id: &str| Arc::ptr_eq(&read[id], &bed.snapshot.observed_item(id).expect("listed").0);
    assert_eq!((shared("a"), shared("b")), (true, false));
}

#[tokio::test(start_paused = true)]
async fn interrupted_listing_is_too_old_for_a_later_reader() {
    let bed = Bed::new(&["a", "b", "c", "d"]);
    let left = tokio::time::timeout(Duration::from_millis(15), bed.refresh()).await;
    assert!(left.is_err());
    advance(Duration::from_secs(1)).await;
    bed.has(&["z", "b", "c", "d"]);
    bed.refresh().await.expect("listed");
    assert_eq!(bed.ids(), ["b", "c", "d", "z"], "the first page of the earlier listing is not used");
}

#[tokio::test(start_paused = true)]
async fn later_absence_survives_an_older_listing() {
    let bed = Bed::new(&["a", "b"]);
    bed.refresh().await.expect("listed");
    advance(Duration::from_secs(1)).await;
    let look_up = async {
        tokio::task::yield_now().await;
        advance(Duration::from_micros(10)).await;
        let read = LookedUp { asked: Instant::now(), found: Vec::new(), gone: vec!["a".to_owned()] };
        bed.snapshot.learn(read);
    };
    let (listed, ()) = tokio::join!(bed.refresh(), look_up);
    listed.expect("listed");
    assert_eq!(bed.ids(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn doubt_after_a_write_ends_with_the_next_read() {
    let bed = Bed::new(&["a", "b"]);
    bed.refresh().await.expect("listed");
    advance(Duration::from_secs(1)).await;
    bed.snapshot.doubt("a");
    assert!(bed.snapshot.doubted("a") && !bed.snapshot.doubted("b"));
    advance(Duration::from_secs(1)).await;
    bed.refresh().await.expect("listed");
    assert!(!bed.snapshot.doubted("a"));
}

#[tokio::test(start_paused = true)]
async fn mass_disappearance_is_distinguished() {
    let bed = Bed::new(&["a", "b", "c"]);
    bed.refresh().await.expect("listed");
    for (left, en_masse) in [(&["b", "c"][..], false), (&[][..], true)] {
        advance(Duration::from_secs(1)).await;
        bed.has(left);
        bed.refresh().await.expect("listed");
        let gone = ["a", "b", "c"].into_iter().filter_map(|id| bed.snapshot.departed(id)).collect::<Vec<_>>();
        assert!(gone.iter().any(|one| one.en_masse) == en_masse, "{gone:?}");
    }
    assert!(!bed.snapshot.departed("a").expect("gone").en_masse, "the other items are unchanged");
}

#[tokio::test(start_paused = true)]
async fn log_keeps_no_old_states() {
    let bed = Bed::new(&["a=0"]);
    bed.refresh().await.expect("listed");
    let mut watcher = bed.watch(WatchOptions::default());
    next(&mut watcher, 3).await;
    let before = Arc::downgrade(&bed.snapshot.view(None).expect("listed").items[0]);
    for round in 1..=30 {
        bed.snapshot.upsert(instance(&format!("a={round}")));
    }
    bed.snapshot.upsert(instance("b"));
    assert!(before.upgrade().is_none(), "thousands of old states of large items would use too much memory");
    assert_eq!(next(&mut watcher, 2).await, ["upsert a", "upsert b"], "only the newest state is sent");
    bed.snapshot.remove("b");
    bed.snapshot.upsert(instance("a=31"));
    assert_eq!(next(&mut watcher, 2).await, ["gone b", "upsert a"]);
}
