//! These tests show when the refresher lists, when it does not list, and how many calls it uses.

use super::*;

async fn beside(bed: &Bed, act: impl Future<Output = ()>) {
    tokio::select! {
        () = bed.keep_fresh() => panic!("never ends"),
        () = act => (),
    }
}

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
async fn refresher_retries_after_the_vendors_delay() {
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
async fn nothing_is_listed_without_watches() {
    let bed = Bed::new(&["a"]);
    beside(&bed, async {
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(bed.pages(), 0, "without a watch");
        watching(&bed, Duration::from_mins(5)).await;
        assert!(
            (11..=12).contains(&bed.pages()),
            "{}: one listing at once and then one every 30 s",
            bed.pages()
        );
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
async fn listings_by_readers_do_not_move_the_ticks() {
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
async fn long_listing_keeps_to_its_share_of_the_rate() {
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
    assert!(spent > 0.2 * rate, "{spent} of {rate} calls a second after the change");
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
async fn standby_lists_nothing_and_new_leader_only_when_due() {
    let bed = Bed::new(&["a", "b"]);
    let replica = Replica::standing_by();
    let refresher = bed.snapshot.keep_fresh(&*bed.source, &bed.vendor, &replica, "c-1");
    let leading = async {
        watching(&bed, Duration::from_mins(5)).await;
        assert_eq!(bed.pages(), 0, "the leader lists");
        bed.snapshot.replace_from(vec![instance("a"), instance("b")], Instant::now());
        replica.lead(1);
        let fed = Instant::now();
        let mut watcher = bed.watch(WatchOptions::default());
        assert_eq!(next(&mut watcher, 3).await, ["reset", "items a b", "synced 2"]);
        assert_eq!(bed.pages(), 0, "the followed content is fresh");
        while bed.pages() == 0 {
            watching(&bed, Duration::from_secs(1)).await;
        }
        assert!(fed.elapsed() <= Duration::from_secs(31));
        replica.stand_by(None);
        let before = bed.pages();
        watching(&bed, Duration::from_mins(5)).await;
        assert_eq!(bed.pages(), before, "this replica is a standby again");
    };
    tokio::select! {
        () = refresher => panic!("never ends"),
        () = leading => (),
    }
}

#[tokio::test(start_paused = true)]
async fn stale_snapshot_is_listed_at_once_for_a_fresher_bound() {
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
        assert!(begun.elapsed() < Duration::from_secs(1), "listed without waiting for a tick");
        *bed.source.failing.lock().unwrap() = Some(VendorError::new(Fault::Unavailable, "gone fishing"));
        advance(Duration::from_secs(1)).await;
        assert_eq!(next(&mut bed.watch(live()), 2).await, ["error gone fishing", "end"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn target_age_is_shown_while_watched() {
    let ids: Vec<String> = (0..200).map(|n| format!("i-{n:03}")).collect();
    let bed = Bed::new(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let target = || bed.snapshot.age().target;
    beside(&bed, async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(target(), None, "without a watch");
        let watcher = bed.watch(WatchOptions::default());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(target(), Some(Duration::from_secs(30)), "not listed yet");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let share = 100.0 / (0.25 * bed.vendor.rate(crate::vendor::Family::Compute));
        assert_eq!(target(), Some(Duration::from_secs_f64(share)), "a hundred pages take longer");
        bed.snapshot.configure(CollectionSettings::aged(Duration::from_mins(5)));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(target(), Some(Duration::from_mins(5)), "the interval is as configured");
        drop(watcher);
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert_eq!(target(), None, "without a watch again");
        assert!(bed.snapshot.age().age > Some(Duration::from_mins(30)), "the age of the listing increases");
    })
    .await;
}
