//! Random histories of elections. Networks lose and delay messages, and clocks differ. Replicas are disconnected, paused, killed, stopped
//! and started, and the number of shards changes.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use crate::{
    FakeServer,
    world::{Dice, Net, Replica, Watcher, Work, is_fair},
};

const SECOND: Duration = Duration::from_secs(1);
/// Longest pause of a process.
const PAUSE: Duration = Duration::from_secs(25);
/// Time after which shares must be fair if no message is lost, because lost Leases have expired and requested shards were handed over.
const SETTLES: Duration = Duration::from_secs(45);
/// With each further 20 % of lost messages, shares may take [`SETTLES`] longer. At 60 %, a renewal succeeds once in six attempts, so
/// Leases expire and shards move again and again.
const LOST_PER_SETTLES: u64 = 20;

struct History {
    server: FakeServer,
    dice: Dice,
    net: Net,
    replicas: Vec<Replica>,
    stopping: Vec<Replica>,
    watcher: Watcher,
    started: u32,
    shards: u16,
    /// Whether Leases are deleted and emptied. If so, the number of shards does not change, because docs/decisions/0009 does not allow both
    /// at the same time.
    by_hand: bool,
}

impl History {
    fn start(&mut self) {
        self.started += 1;
        let name = format!("r{}", self.started);
        self.replicas.push(Replica::start_far(&self.server, &name, self.shards, &self.dice, self.net));
    }

    fn any(&self) -> usize {
        usize::try_from(self.dice.below(self.replicas.len().try_into().expect("few"))).expect("few")
    }

    fn any_lease(&self) -> u16 {
        u16::try_from(self.dice.below(5)).expect("few")
    }

    fn something_happens(&mut self) {
        let at = self.any();
        match self.dice.below(13) {
            0 | 1 => {
                let pause = Duration::from_millis(self.dice.below(25_000));
                self.replicas[at].freeze(Instant::now() + pause);
            }
            2 | 3 => {
                let cut = self.replicas[at].is_cut();
                self.replicas[at].cut(!cut);
            }
            4 => {
                drop(self.replicas.remove(at));
                self.start();
            }
            5 => {
                let replica = self.replicas.remove(at);
                if self.dice.below(2) == 0 { &replica.leaving } else { &replica.stop }.cancel();
                self.stopping.push(replica);
                self.start();
            }
            6 if self.replicas.len() < 4 => self.start(),
            7 if self.replicas.len() > 1 => drop(self.replicas.remove(at)),
            8 if !self.by_hand => {
                self.shards = u16::try_from(1 + self.dice.below(5)).expect("few");
                drop(self.replicas.remove(at));
                self.start();
            }
            9 if !self.by_hand && self.dice.below(2) == 0 => self.all_at_once(),
            10 if self.by_hand => {
                self.server.put_of(self.any_lease(), None);
                self.watcher.forgets = true;
            }
            11 if self.by_hand => {
                let at = self.any_lease();
                let mut lease = self.server.lease_of(at);
                if !lease["spec"]["holderIdentity"].is_null() {
                    lease["spec"]["holderIdentity"] = "".into();
                    self.server.put_of(at, Some(lease));
                }
            }
            _ => (),
        }
    }

    /// Stops all replicas, and starts replicas that use up to three different numbers of shards.
    fn all_at_once(&mut self) {
        for replica in self.replicas.drain(..) {
            replica.stop.cancel();
            self.stopping.push(replica);
        }
        for _ in 0..2 {
            self.start();
            self.shards = u16::try_from(1 + self.dice.below(5)).expect("few");
        }
        self.start();
    }

    /// Does work for a short or a long time in held shards.
    fn work(&mut self, long: bool) {
        let now = Instant::now();
        for replica in self.replicas.iter_mut().chain(&mut self.stopping) {
            replica.visits.retain(|work| work.until > now);
            for (shard, handle) in replica.handles.iter().enumerate() {
                let lasts = if long && self.dice.below(20) == 0 { 40_000 } else { 500 };
                let until = now + Duration::from_millis(self.dice.below(lasts));
                replica.visits.extend(handle.enter().map(|visit| Work { shard, began: now, until, visit }));
            }
        }
    }

    fn check(&mut self) {
        let mut all = std::mem::take(&mut self.replicas);
        let alive = all.len();
        all.append(&mut self.stopping);
        self.watcher.check(&all);
        self.stopping = all.split_off(alive);
        self.replicas = all;
    }

    async fn run(&mut self, time: Duration, busy: bool) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if busy && self.dice.below(40) == 0 {
                self.something_happens();
            }
            if self.dice.below(10) == 0 {
                self.work(busy);
            }
            self.check();
        }
    }

    /// Makes all replicas use the same number of shards, without further faults.
    fn peace(&mut self) {
        for replica in &mut self.stopping {
            replica.stop.cancel();
            replica.visits.clear();
        }
        let shards = self.shards;
        self.replicas.retain(|replica| replica.shards == shards);
        if self.replicas.is_empty() {
            self.start();
        }
        for replica in &mut self.replicas {
            replica.cut(false);
            replica.freeze(Instant::now());
            replica.visits.clear();
        }
    }
}

async fn history(seed: u64, by_hand: bool, replicas: u16, shards: u16, net: Net) -> Watcher {
    let server = FakeServer::with_shards(5);
    server.allow_create();
    let mut history = History {
        server,
        dice: Dice::new(seed),
        net,
        replicas: Vec::new(),
        stopping: Vec::new(),
        watcher: Watcher::default(),
        started: 0,
        shards,
        by_hand,
    };
    for _ in 0..replicas {
        history.start();
    }
    for _ in 0..2 {
        history.run(Duration::from_mins(1), true).await;
        history.peace();
        // By the end of this time, all paused processes continue.
        history.run(PAUSE, false).await;
        let begin = Instant::now();
        let settles = SETTLES * u32::try_from(1 + net.lost / LOST_PER_SETTLES).expect("few");
        while !is_fair(&history.replicas) {
            let held: Vec<_> = history.replicas.iter().map(|r| (&r.name, r.terms())).collect();
            let leases: Vec<_> = (0..5).map(|shard| history.server.lease_of(shard)).collect();
            assert!(begin.elapsed() < settles, "{held:?} {leases:?}");
            history.run(SECOND, false).await;
        }
        let moves = history.watcher.moves;
        history.run(10 * SECOND, false).await;
        if net.lost == 0 && net.millis < 500 {
            assert_eq!(history.watcher.moves, moves, "the shares stay the same");
        }
    }
    history.watcher
}

proptest! {
    #![proptest_config(ProptestConfig { cases: test_support::cases(4), max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn no_two_replicas_work_in_one_shard_and_shares_become_fair(
        (seed, by_hand) in any::<(u64, bool)>(),
        replicas in 1..=4_u16,
        shards in 1..=5_u16,
        millis in 0..1200_u64,
        lost in prop_oneof![Just(0), 0..60_u64],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            // A deleted Lease has lost its epoch, so clocks may differ by at most the lease duration.
            let skew = if by_hand { 3 } else { 3600 };
            history(seed, by_hand, replicas, shards, Net { millis, lost, skew }).await
        });
    }
}

/// Checks that the histories contain the events that these tests are about. Each run differs, because `select!` has its own randomness.
#[tokio::test(start_paused = true)]
async fn histories_change_hands_and_divisions_often() {
    let (mut moves, mut divisions) = (0, 0);
    for seed in 0..6 {
        let watcher = history(seed, false, 3, 4, Net { millis: 300, lost: 10, skew: 3600 }).await;
        moves += watcher.moves;
        divisions += watcher.divisions;
    }
    assert!(moves > 24 && divisions > 3, "{moves} moves, {divisions} divisions");
}
