//! These tests cover a snapshot that a standby updates from the watch of the leader.

use super::*;

#[tokio::test(start_paused = true)]
async fn followed_content_keeps_its_age() {
    let bed = Bed::new(&[]);
    advance(Duration::from_mins(2)).await;
    let observed = Instant::now() - Duration::from_secs(40);
    bed.snapshot.replace_from(vec![instance("a"), instance("b")], observed);
    assert_eq!(bed.snapshot.view(None).expect("fed").observed, observed);
    bed.snapshot.upsert_from(instance("c"));
    bed.snapshot.remove_from("a");
    assert_eq!(bed.ids(), ["b", "c"]);
    let view = bed.snapshot.view(None).expect("fed");
    assert_eq!(view.observed, observed, "only a bookmark updates the time of observation");
    let later = Instant::now() - Duration::from_secs(10);
    bed.snapshot.observed_from(later);
    assert_eq!(bed.snapshot.view(None).expect("fed").observed, later);
    bed.snapshot.observed_from(Instant::now() + Duration::from_mins(1));
    let view = bed.snapshot.view(None).expect("fed");
    assert_eq!(
        view.observed,
        Instant::now(),
        "the clock of another host may be ahead: observations are never in the future"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_alone_is_no_listing() {
    let bed = Bed::new(&[]);
    bed.snapshot.observed_from(Instant::now());
    bed.snapshot.upsert_from(instance("a"));
    assert!(bed.snapshot.view(None).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_newer_listing_of_the_leader_replaces_all() {
    let bed = Bed::new(&[]);
    bed.snapshot.replace_from(vec![instance("a"), instance("b")], Instant::now());
    bed.snapshot.upsert_from(instance("c"));
    advance(Duration::from_secs(1)).await;
    bed.snapshot.replace_from(vec![instance("b=new")], Instant::now());
    assert_eq!(bed.ids(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn scope_change_resets_all_watches() {
    let bed = Bed::new(&["a"]);
    bed.refresh().await.expect("listed");
    let mut watcher = bed.watch(WatchOptions::default());
    next(&mut watcher, 3).await;
    bed.snapshot.forget();
    assert!(bed.snapshot.view(None).is_none());
    bed.has(&["z"]);
    let (words, listed) = tokio::join!(next(&mut watcher, 3), bed.refresh());
    listed.expect("listed");
    assert_eq!(words, ["reset", "items z", "synced 1"]);
    assert!(bed.snapshot.departed("a").is_none(), "items are not compared with those of another scope");
}

#[tokio::test(start_paused = true)]
async fn departed_items_are_forgotten_without_listings() {
    let bed = Bed::new(&[]);
    bed.snapshot.replace_from(vec![instance("a"), instance("b")], Instant::now());
    bed.snapshot.remove_from("a");
    for (minutes, remembered) in [(9, true), (2, false)] {
        advance(Duration::from_mins(minutes)).await;
        bed.snapshot.observed_from(Instant::now());
        assert_eq!(bed.snapshot.departed("a").is_some(), remembered);
    }
}
