//! These tests show whether a task reads one load balancer or lists all load balancers.

use std::collections::BTreeSet;

use super::{
    cloud::{Cloud, Read},
    *,
};

/// Returns the kinds of reads that poll load balancers of these keys, while a user waits for each of the first `users` keys. A listing has
/// `pages` pages. If `raised` is set, traffic also depends on these keys.
async fn polls(owners: &[&str], pages: usize, users: usize, raised: bool) -> BTreeSet<Read> {
    let (_fake, vendor) = vendor(&limits(100.0, 10));
    let converger = converger(&vendor, Cloud::changing(owners).paged(owners.len().div_ceil(pages)));
    let submit = |priority| {
        for owner in &owners[..users] {
            let key = LoadBalancerKey { owner_uid: (*owner).to_owned(), ..key() };
            converger.submit(&key, order(&key, priority)).expect("a task");
        }
    };
    submit(Priority::Interactive);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(converger.snapshot.pages(), Some(pages), "the first read is a listing");
    if raised {
        submit(Priority::Traffic);
    }
    converger.driver.reads();
    tokio::time::sleep(Duration::from_secs(10)).await;
    converger.driver.reads().into_iter().map(|(read, _)| read).collect()
}

#[tokio::test(start_paused = true)]
async fn awaited_load_balancer_is_polled_alone_if_cheaper() {
    for (what, owners, pages, users, raised, expected) in [
        ("one user and two pages", &["web", "mail"][..], 2, 1, false, Read::LookUp),
        ("traffic depends on it, too", &["web", "mail"], 2, 1, true, Read::LookUp),
        ("as many users as pages", &["web", "mail"], 2, 2, false, Read::LookUp),
        ("more users than pages", &["web", "mail"], 1, 2, false, Read::Page),
        ("one page", &["web", "mail"], 1, 1, false, Read::LookUp),
        ("two load balancers of the key", &["web", "web", "mail"], 3, 1, false, Read::Page),
    ] {
        assert_eq!(polls(owners, pages, users, raised).await, BTreeSet::from([expected]), "{what}");
    }
}

/// The runtime learns how long a creation takes. Then a new load balancer costs one read that proves its absence, one write and one poll.
#[tokio::test(start_paused = true)]
async fn awaited_change_is_polled_when_it_should_be_done() {
    let takes = Duration::from_millis(3_300);
    let (fake, vendor) = vendor(&limits(100.0, 10));
    let converger = converger(&vendor, Cloud::creating(takes));
    let mut costs = Vec::new();
    for number in 0..30 {
        let key = LoadBalancerKey { owner_uid: format!("web-{number}"), ..key() };
        let began = Instant::now();
        let (_, handle) = converger.submit(&key, order(&key, Priority::Interactive)).expect("a task");
        let mut progress = handle.progress.clone();
        let ended = progress.wait_for(|it| matches!(it, Progress::Ended { .. }));
        timeout(Duration::from_secs(60), ended).await.expect("in time").expect("it ends");
        let reads = converger.driver.reads().len();
        costs.push((reads, began.elapsed().saturating_sub(takes).as_millis()));
    }
    assert_eq!(fake.arrived().len(), 30, "one write each");
    let settled = &costs[10..];
    let reads: usize = settled.iter().map(|(reads, _)| reads).sum();
    assert!(reads <= settled.len() * 2 * 6 / 5, "within 1.2 of two reads each: {costs:?}");
    // The proof of absence takes 1 s here.
    assert!(settled.iter().all(|(_, late)| *late <= 1_600), "{costs:?}");
}

/// A read that began before the horizon proves nothing, even if it ends after the horizon.
#[tokio::test(start_paused = true)]
async fn absence_is_proven_only_by_reads_after_the_horizon() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(504, None)]);
    let start = Instant::now();
    let converger = converger(&vendor, Cloud::changing(&["mail", "news"]));
    converger.submit(&key(), order(&key(), Priority::Interactive)).expect("a task");
    while fake.arrived().len() < 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let [(_, lost), (_, created)] = fake.arrived()[..] else { panic!("recreated after several tries") };
    let finds: Vec<u128> = converger
        .driver
        .reads()
        .into_iter()
        .filter(|(read, _)| *read == Read::Find)
        .map(|(_, at)| at.duration_since(start).as_millis())
        .collect();
    let horizon = lost + CREATE_HORIZON.as_millis();
    let across = |at: &u128| *at < horizon && *at + 1_000 > horizon;
    assert!(finds.iter().any(across), "no read began before the horizon and ended after it: {finds:?}");
    assert!(
        finds.last().is_some_and(|at| (horizon..created).contains(at)),
        "{finds:?}, created at {created}"
    );
}
