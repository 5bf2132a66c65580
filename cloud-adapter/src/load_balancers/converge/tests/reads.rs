//! These tests show whether a task reads one load balancer or lists all load balancers.

use std::collections::BTreeSet;

use super::{
    cloud::{Cloud, Read},
    *,
};

/// Returns the kinds of reads that poll load balancers of these keys, while a user waits for each of the first `users` keys. If `raised` is
/// set, traffic also depends on these keys.
async fn polls(owners: &[&str], users: usize, raised: bool) -> BTreeSet<Read> {
    let (_fake, vendor) = vendor(&limits(100.0, 10));
    let converger = converger(&vendor, Cloud::changing(owners));
    let submit = |priority| {
        for owner in &owners[..users] {
            let key = LoadBalancerKey { owner_uid: (*owner).to_owned(), ..key() };
            converger.submit(&key, order(&key, priority)).expect("a task");
        }
    };
    submit(Priority::Interactive);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(converger.snapshot.pages(), Some(owners.len()), "the first read is a listing");
    if raised {
        submit(Priority::Traffic);
    }
    converger.driver.reads();
    tokio::time::sleep(Duration::from_secs(10)).await;
    converger.driver.reads().into_iter().map(|(read, _)| read).collect()
}

#[tokio::test(start_paused = true)]
async fn awaited_load_balancer_is_polled_alone_if_cheaper() {
    for (what, owners, users, raised, expected) in [
        ("one user and two pages", &["web", "mail"][..], 1, false, Read::LookUp),
        ("traffic depends on it, too", &["web", "mail"], 1, true, Read::LookUp),
        ("as many users as pages", &["web", "mail"], 2, false, Read::Page),
        ("one page", &["web"], 1, false, Read::Page),
        ("one page, and traffic depends on it, too", &["web"], 1, true, Read::Page),
        ("two load balancers of the key", &["web", "web", "mail"], 1, false, Read::Page),
    ] {
        assert_eq!(polls(owners, users, raised).await, BTreeSet::from([expected]), "{what}");
    }
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
