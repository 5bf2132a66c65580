use std::{collections::BTreeMap, time::Duration};

use futures::poll;
use tokio::time::advance;

use super::*;
use crate::testing::FakeShards;

const MINUTE: Duration = Duration::from_mins(1);

fn uid_in(shards: &Shards, shard: usize) -> String {
    let mut uids = (0..1000).map(|n| format!("uid-{n}"));
    uids.find(|uid| shards.of(uid) == shard).expect("one of a thousand")
}

// Behaviour: P9
#[test]
fn objects_spread_over_shards_and_stay_where_they_are() {
    let shards = FakeShards::new("c", 8).shards();
    let mut counts = BTreeMap::<usize, usize>::new();
    for n in 0..8000 {
        // The UIDs have the form that the API server creates, but are not random.
        *counts.entry(shards.of(&format!("6a2f1c1e-8c5b-4c56-9d3e-{n:012x}"))).or_default() += 1;
    }
    assert_eq!(counts.len(), 8);
    assert!(counts.values().all(|n| (850..1150).contains(n)), "{counts:?}");
    // Another version of this program must assign the same shards.
    assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    assert_eq!(FakeShards::new("c", 1).shards().of("whatever"), 0);
}

#[tokio::test(start_paused = true)]
async fn work_begins_only_in_shards_with_a_valid_term() {
    let (fake_shards, moment) = (FakeShards::new("c", 2), Again::After(Duration::from_secs(1)));
    let (shards, uid) = (fake_shards.shards(), uid_in(&fake_shards.shards(), 1));
    assert_eq!(shards.enter(&uid).map(|_| ()), Err(Again::Done));
    fake_shards.give(0, MINUTE);
    assert_eq!(shards.enter(&uid).map(|_| ()), Err(Again::Done), "only the other shard is held");
    fake_shards.give(1, MINUTE);
    assert!(shards.enter(&uid).expect("ours").is_valid());
    assert_eq!((shards.held(), shards.enter_all().len()), (2, 2));
    advance(MINUTE).await;
    assert_eq!(
        shards.enter(&uid).map(|_| ()),
        Err(moment),
        "the Lease may be renewed late, which triggers no event"
    );
    assert_eq!((shards.held(), shards.enter_all().len()), (2, 0));
}

// Behaviour: P9
#[tokio::test(start_paused = true)]
async fn work_from_before_the_loss_of_a_shard_writes_nothing() {
    let fake_shards = FakeShards::new("c", 2);
    let (shards, uid) = (fake_shards.shards(), uid_in(&fake_shards.shards(), 0));
    fake_shards.give(0, MINUTE);
    fake_shards.give(1, MINUTE);
    let pass = shards.enter(&uid).expect("ours");
    let (fence, again) = pass.run(async { (shards.fence(), shards.fence()) }).await;
    assert_eq!((fence.scope.as_str(), fence.epoch), ("c/0", 1));
    assert!(again.sequence > fence.sequence);
    assert!(pass.run(async { shards.may_write() }).await);
    assert_eq!(pass.run(async { shards.epoch() }).await, 1);

    fake_shards.take(0);
    assert!(!pass.run(async { shards.may_write() }).await, "another replica works in the shard");
    assert!(shards.may_write(), "code outside of passes may write, because the other shard is held");
    fake_shards.give(0, MINUTE);
    assert!(!pass.run(async { shards.may_write() }).await, "another replica worked in the shard in between");
    assert_eq!(pass.fence().epoch, 0);
    let later = shards.enter(&uid).expect("the shard is held again");
    assert_ne!(later.since(), pass.since());
    let pass = later;
    assert!(pass.run(async { shards.may_write() }).await);
}

#[tokio::test(start_paused = true)]
async fn gained_shards_are_reported_and_renewals_are_not() {
    let fake_shards = FakeShards::new("c", 3);
    let mut acquisitions = fake_shards.shards().acquisitions();
    {
        let next = acquisitions.next();
        tokio::pin!(next);
        assert!(poll!(next.as_mut()).is_pending());
        fake_shards.give(2, MINUTE);
        assert_eq!(next.await, [2]);
    }
    fake_shards.renew(2, MINUTE, false);
    {
        let next = acquisitions.next();
        tokio::pin!(next);
        assert!(poll!(next.as_mut()).is_pending(), "a renewal is not a gain");
    }
    fake_shards.renew(2, MINUTE, true);
    assert_eq!(acquisitions.next().await, [2], "a new term directly after an earlier one of this process");
    fake_shards.take(2);
    fake_shards.give(2, MINUTE);
    fake_shards.give(0, MINUTE);
    assert_eq!(acquisitions.next().await, [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_process_is_ready_if_it_keeps_its_shards_or_has_none() {
    let fake_shards = FakeShards::new("c", 2);
    let shards = fake_shards.shards();
    assert_eq!(shards.readiness(), Ok(()), "another process holds both shards");
    fake_shards.give(0, MINUTE);
    assert_eq!(shards.readiness(), Ok(()));
    advance(MINUTE).await;
    assert_eq!(shards.readiness(), Err("the Lease could not be renewed in time".to_owned()));
    fake_shards.take(0);
    assert_eq!(shards.readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn per_process_state_resets_only_after_another_holder() {
    let (fake_shards, mut holdings) = (FakeShards::new("c", 3), Holdings::default());
    let mut update = || holdings.update(&fake_shards.shards());
    assert_eq!(update(), Share::Same, "no shard is held");
    fake_shards.give(0, MINUTE);
    fake_shards.give(1, MINUTE);
    assert_eq!([update(), update()], [Share::Regained, Share::Same]);
    fake_shards.lapse(1);
    assert_eq!([update(), update()], [Share::Other, Share::Same]);
    fake_shards.recover(1, MINUTE);
    assert_eq!(update(), Share::Other, "no other process held the shard");
    fake_shards.lapse(0);
    fake_shards.lapse(1);
    assert_eq!(update(), Share::Same, "the loss may be temporary");
    fake_shards.recover(0, MINUTE);
    fake_shards.recover(1, MINUTE);
    assert_eq!(update(), Share::Same);
    fake_shards.take(1);
    fake_shards.give(1, MINUTE);
    assert_eq!(update(), Share::Regained);
}
