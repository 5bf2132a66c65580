//! Replicas that share shards, and their faults.

use std::{
    collections::BTreeMap,
    num::NonZeroU16,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use cloud_lease::{Leadership, ShardElector, ShardHandle, Visit};
use k8s_openapi::jiff::SignedDuration;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, Sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{FakeServer, server::Way, settings};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Net {
    /// Maximum delay of a request or an answer, in milliseconds.
    pub(crate) millis: u64,
    /// The number of requests in 1,000, and of answers in 1,000, that are lost.
    pub(crate) lost: u64,
    /// Maximum difference between a replica's wall clock and the server's, in seconds.
    pub(crate) skew: u64,
}

/// Dropping this value is like killing the replica.
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) shards: u16,
    pub(crate) handles: Vec<ShardHandle>,
    /// The token that makes this replica release each Lease as soon as no work is in progress in its shard.
    pub(crate) leaving: CancellationToken,
    /// The token that makes this replica release all Leases, and end.
    pub(crate) stop: CancellationToken,
    pub(crate) visits: Vec<Work>,
    cut: watch::Sender<bool>,
    frozen: Arc<Mutex<Instant>>,
    pub(crate) task: JoinSet<()>,
}

pub(crate) struct Work {
    pub(crate) shard: usize,
    pub(crate) began: Instant,
    pub(crate) until: Instant,
    pub(crate) visit: Visit,
}

#[derive(Clone)]
pub(crate) struct Dice(Arc<AtomicU64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed | 1)))
    }

    /// Source: xorshift64*.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.store(x, Ordering::Relaxed);
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit.max(1)
    }
}

impl Replica {
    pub(crate) fn start(server: &FakeServer, name: &str, shards: u16) -> Self {
        Self::start_far(server, name, shards, &Dice::new(1), Net::default())
    }

    pub(crate) fn start_far(server: &FakeServer, name: &str, shards: u16, dice: &Dice, net: Net) -> Self {
        let (cut, is_cut) = watch::channel(false);
        let of_calls = dice.clone();
        let client = server.client_over(move || {
            let way = || {
                let lost = *is_cut.borrow() || of_calls.below(1000) < net.lost;
                (!lost).then(|| Duration::from_millis(of_calls.below(net.millis + 1)))
            };
            Way { there: way(), back: way(), cut: is_cut.clone() }
        });
        // A replica's clock may be ahead of or behind the server's clock, by up to `net.skew` seconds.
        let skew = i64::try_from(dice.below(2 * net.skew + 1)).expect("fits");
        let skew = skew - i64::try_from(net.skew).expect("fits");
        let wall = server.wall() + SignedDuration::from_secs(skew);
        let shards_of = NonZeroU16::new(shards).expect("some");
        let (elector, handles) = ShardElector::new(client, settings(name), shards_of, wall).expect("valid");
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        let leaving = stop.child_token();
        let frozen = Arc::new(Mutex::new(Instant::now()));
        let inner = Box::pin(elector.run(leaving.clone(), stop.clone()));
        task.spawn(Freezable { inner, until: frozen.clone(), sleep: None });
        Self { name: name.to_owned(), shards, handles, leaving, stop, visits: Vec::new(), cut, frozen, task }
    }

    /// The replica does not notice the pause.
    pub(crate) fn freeze(&self, until: Instant) {
        *self.frozen.lock().expect("not poisoned") = until;
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    pub(crate) fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    /// Returns the terms that the replica relies on now, by the clock. Each term is a shard and an epoch.
    pub(crate) fn terms(&self) -> Vec<(usize, u64)> {
        let term = |(at, handle): (usize, &ShardHandle)| match &*handle.leadership().borrow() {
            Leadership::Leader { valid_until, epoch, .. } if Instant::now() < *valid_until => {
                Some((at, *epoch))
            }
            Leadership::Leader { .. } | Leadership::Follower { .. } => None,
        };
        self.handles.iter().enumerate().filter_map(term).collect()
    }

    pub(crate) fn held(&self) -> usize {
        self.terms().len()
    }
}

/// Checks continuously that no two replicas work in the same shard, and that no two replicas work with different numbers of shards.
#[derive(Default)]
pub(crate) struct Watcher {
    /// The epoch and the holder of the last term of each shard's Lease.
    terms: BTreeMap<usize, (u64, String)>,
    /// The time at which each replica last relied on each shard.
    relied: BTreeMap<(usize, String), Instant>,
    /// The time at which each number of shards was last used for work.
    divided: BTreeMap<u16, Instant>,
    /// Whether Leases were deleted. If so, clocks that differ by more than the lease duration may cause a repeated or lower epoch.
    pub(crate) forgets: bool,
    division: u16,
    pub(crate) moves: u64,
    /// The number of changes of the number of shards.
    pub(crate) divisions: u64,
}

impl Watcher {
    pub(crate) fn check(&mut self, replicas: &[Replica]) {
        let mut holders = BTreeMap::new();
        let mut division = None;
        for replica in replicas {
            for (shard, epoch) in replica.terms() {
                self.divisions +=
                    u64::from(std::mem::replace(&mut self.division, replica.shards) != replica.shards);
                if let Some(other) = holders.insert(shard, &replica.name) {
                    panic!("{other} and {} work in shard {shard}", replica.name);
                }
                let (others, name) = *division.get_or_insert((replica.shards, &replica.name));
                assert_eq!(others, replica.shards, "different divisions in use: {name} and {}", replica.name);
                let term = (epoch, replica.name.clone());
                self.relied.insert((shard, replica.name.clone()), Instant::now());
                self.divided.insert(replica.shards, Instant::now());
                if let Some(last) = self.terms.insert(shard, term.clone()) {
                    let grows = last == term || last.0 < epoch || self.forgets;
                    assert!(grows, "shard {shard}: {term:?} after {last:?}");
                    self.moves += u64::from(last.1 != term.1);
                }
            }
        }
        for replica in replicas {
            for work in replica.visits.iter().filter(|work| work.visit.is_valid()) {
                self.check_work(replica, work);
            }
        }
    }

    /// Checks that no other replica has worked on the shard since the work began. Also checks that the work belongs to the term that its
    /// replica relies on.
    fn check_work(&self, replica: &Replica, work: &Work) {
        let Work { shard, began, visit, .. } = work;
        let name = &replica.name;
        for ((at, other), relied) in &self.relied {
            let overlaps = at == shard && other != name && relied > began;
            assert!(!overlaps, "{other} got shard {shard}, in which {name} still works");
        }
        for (division, last) in &self.divided {
            let overlaps = *division != replica.shards && last > began;
            assert!(!overlaps, "{division} shards were in force while {name} worked in {shard}");
        }
        let term = (*shard, visit.epoch());
        assert!(replica.terms().contains(&term), "{name}: a visit without a term");
    }

    pub(crate) async fn pass(&mut self, replicas: &[Replica], time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(37)).await;
            self.check(replicas);
        }
    }

    pub(crate) async fn until(&mut self, replicas: &[Replica], so: impl Fn(&[Replica]) -> bool) -> Duration {
        let begin = Instant::now();
        while !so(replicas) {
            let held: Vec<_> = replicas.iter().map(|replica| (&replica.name, replica.terms())).collect();
            assert!(begin.elapsed() < Duration::from_mins(5), "timed out waiting: {held:?}");
            self.pass(replicas, Duration::from_millis(20)).await;
        }
        begin.elapsed()
    }
}

/// Returns whether each shard is held, and no replica holds at least two shards more than another replica.
pub(crate) fn is_fair(replicas: &[Replica]) -> bool {
    let held: Vec<_> = replicas.iter().map(Replica::held).collect();
    let (fewest, most) = (held.iter().min().expect("some"), held.iter().max().expect("some"));
    let shards = usize::from(replicas.iter().map(|replica| replica.shards).max().expect("some"));
    held.iter().sum::<usize>() == shards && most - fewest <= 1
}

/// A process that can be paused, as with SIGSTOP.
struct Freezable {
    inner: Pin<Box<dyn Future<Output = ()> + Send>>,
    until: Arc<Mutex<Instant>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Future for Freezable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let until = *self.until.lock().expect("not poisoned");
        if Instant::now() < until {
            let mut sleep = Box::pin(tokio::time::sleep_until(until));
            if sleep.as_mut().poll(context).is_pending() {
                self.sleep = Some(sleep);
                return Poll::Pending;
            }
        }
        self.inner.as_mut().poll(context)
    }
}
