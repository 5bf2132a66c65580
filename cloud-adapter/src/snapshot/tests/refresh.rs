//! The refresher: when it lists, when it does not, and how much it spends.

use super::*;

/// Lets the refresher run while something else happens.
async fn beside(bed: &Bed, act: impl Future<Output = ()>) {
    tokio::select! {
        () = bed.keep_fresh() => panic!("never ends"),
        () = act => (),
    }
}

/// Reads a watch for so long, so that somebody watches.
async fn watching(bed: &Bed, time: Duration) {
    let mut watcher = bed.watch(WatchOptions::default());
    let over = tokio::time::sleep(time);
    tokio::pin!(over);
    loop {
        tokio::select! {
            _ = watcher.next() => (),
            () = &mut over => break,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_refresher_comes_back_when_the_vendor_asked_it_to() {
    let bed = Bed::new(&["a"]);
    let mut slow = VendorError::new(Fault::Throttled, "slow down");
    slow.retry_after = Some(Duration::from_secs(60));
    *bed.source.failing.lock().unwrap() = Some(slow);
    let watching = async {
        let mut watcher = bed.watch(WatchOptions::default());
        assert_eq!(next(&mut watcher, 1).await, ["error slow down"]);
        let _again = bed.watch(WatchOptions::default());
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(bed.pages(), 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(bed.pages(), 2);
    };
    beside(&bed, watching).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_watches_and_nothing_is_listed() {
    let bed = Bed::new(&["a"]);
    beside(&bed, async {
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(bed.pages(), 0, "nobody watched");
        watching(&bed, Duration::from_mins(5)).await;
        assert!((11..=12).contains(&bed.pages()), "{}: at once and then one each 30 s", bed.pages());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn adapters_that_start_together_list_at_different_times() {
    let mut moments = Vec::new();
    for who in ["c-1", "c-2", "c-3", "c-4"] {
        let bed = Bed::new(&["a"]);
        let replica = Replica::standing_by();
        replica.lead(0);
        let started = Instant::now();
        tokio::select! {
            () = bed.snapshot.keep_fresh(&*bed.source, &bed.vendor, &replica, who) => panic!("never ends"),
            () = watching(&bed, Duration::from_secs(65)) => (),
        }
        let observed = bed.snapshot.view(None).expect("listed").observed;
        moments.push(observed.duration_since(started).as_secs() % 30);
    }
    moments.sort_unstable();
    moments.dedup();
    assert_eq!(moments.len(), 4, "{moments:?}");
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_somebody_else_made_moves_nothing_and_the_age_stays_bounded() {
    let bed = Bed::new(&["a"]);
    beside(&bed, async {
        let mut oldest = Duration::ZERO;
        let look = async {
            loop {
                tokio::time::sleep(Duration::from_millis(700)).await;
                if let Some(view) = bed.snapshot.view(None) {
                    oldest = oldest.max(view.observed.elapsed());
                }
                if bed.pages() % 3 == 1 {
                    bed.refresh().await.expect("listed");
                }
            }
        };
        tokio::select! {
            () = look => panic!("never ends"),
            () = watching(&bed, Duration::from_mins(10)) => (),
        }
        assert!(oldest <= Duration::from_secs(31), "{oldest:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_long_listing_takes_no_more_than_its_share_of_the_rate() {
    let ids: Vec<String> = (0..200).map(|n| format!("i-{n:03}")).collect();
    let bed = Bed::new(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let rate = bed.vendor.rate(crate::vendor::Family::Compute);
    beside(&bed, async {
        watching(&bed, Duration::from_secs(1)).await;
        assert_eq!(bed.pages(), 100);
        watching(&bed, Duration::from_mins(20)).await;
    })
    .await;
    let spent = f64::from(u32::try_from(bed.pages() - 200).unwrap()) / Duration::from_mins(20).as_secs_f64();
    assert!(spent <= 0.25 * rate, "{spent} of {rate} calls a second");
    assert!(spent > 0.2 * rate, "{spent} of {rate} calls a second: it goes on");
}

#[tokio::test(start_paused = true)]
async fn settings_may_change_while_it_runs() {
    let bed = Bed::new(&["a"]);
    beside(&bed, async {
        watching(&bed, Duration::from_mins(1)).await;
        bed.snapshot.configure(CollectionSettings::aged(Duration::from_secs(5)));
        let before = bed.pages();
        watching(&bed, Duration::from_mins(1)).await;
        assert!((11..=13).contains(&(bed.pages() - before)), "{}", bed.pages() - before);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_stands_by_lists_nothing_and_one_that_takes_over_only_when_due() {
    let bed = Bed::new(&["a", "b"]);
    let replica = Replica::standing_by();
    let refresher = bed.snapshot.keep_fresh(&*bed.source, &bed.vendor, &replica, "c-1");
    let leading = async {
        watching(&bed, Duration::from_mins(5)).await;
        assert_eq!(bed.pages(), 0, "the one that leads does");
        bed.snapshot.replace_from(vec![instance("a"), instance("b")], Instant::now());
        replica.lead(1);
        let fed = Instant::now();
        let mut watcher = bed.watch(WatchOptions::default());
        assert_eq!(next(&mut watcher, 3).await, ["reset", "items a b", "synced 2"]);
        assert_eq!(bed.pages(), 0, "what it was fed is fresh");
        while bed.pages() == 0 {
            watching(&bed, Duration::from_secs(1)).await;
        }
        assert!(fed.elapsed() <= Duration::from_secs(31));
        replica.stand_by(None);
        let before = bed.pages();
        watching(&bed, Duration::from_mins(5)).await;
        assert_eq!(bed.pages(), before, "it stands by again");
    };
    tokio::select! {
        () = refresher => panic!("never ends"),
        () = leading => (),
    }
}

#[tokio::test(start_paused = true)]
async fn who_wants_a_listing_fresher_than_there_is_gets_it_at_once() {
    let bed = Bed::new(&["a"]);
    bed.refresh().await.expect("listed");
    advance(Duration::from_secs(1)).await;
    bed.has(&["a", "b"]);
    let live =
        || WatchOptions { stop_when_synced: true, bound: Some(Instant::now()), ..WatchOptions::default() };
    let stale = WatchOptions { stop_when_synced: true, ..WatchOptions::default() };
    beside(&bed, async {
        assert_eq!(next(&mut bed.watch(stale), 3).await, ["reset", "items a", "synced 1"]);
        let begun = Instant::now();
        assert_eq!(next(&mut bed.watch(live()), 4).await, ["reset", "items a b", "synced 2", "end"]);
        assert!(begun.elapsed() < Duration::from_secs(1), "no tick was waited for");
        *bed.source.failing.lock().unwrap() = Some(VendorError::new(Fault::Unavailable, "gone fishing"));
        advance(Duration::from_secs(1)).await;
        assert_eq!(next(&mut bed.watch(live()), 2).await, ["error gone fishing", "end"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_listing_has_a_target_age_while_somebody_watches() {
    let ids: Vec<String> = (0..200).map(|n| format!("i-{n:03}")).collect();
    let bed = Bed::new(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let target = || bed.snapshot.age().target;
    beside(&bed, async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(target(), None, "nobody watches");
        let watcher = bed.watch(WatchOptions::default());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(target(), Some(Duration::from_secs(30)), "not listed yet");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let share = 100.0 / (0.25 * bed.vendor.rate(crate::vendor::Family::Compute));
        assert_eq!(target(), Some(Duration::from_secs_f64(share)), "a hundred pages take longer");
        bed.snapshot.configure(CollectionSettings::aged(Duration::from_mins(5)));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(target(), Some(Duration::from_mins(5)), "so it was set");
        drop(watcher);
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert_eq!(target(), None, "nobody watches any more");
        assert!(bed.snapshot.age().age > Some(Duration::from_mins(30)), "and it grows old");
    })
    .await;
}
