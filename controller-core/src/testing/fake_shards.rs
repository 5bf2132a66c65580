//! Shards that a test gives to a process and takes away.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cloud_lease::{Leadership, ShardHandle};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use tokio::{sync::watch, time::Instant};

use crate::leadership::{Shards, Term};

/// The holders of the shards. Cloning gives another handle to the same state.
#[derive(Clone, Debug)]
pub struct FakeShards(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tellers: Vec<watch::Sender<Leadership>>,
    shards: Shards,
    epochs: AtomicU64,
    /// The epoch since which the process held a shard before the shard lapsed, by shard number.
    lapsed: Mutex<BTreeMap<usize, u64>>,
}

const ME: &str = "me";
/// Duration of a Lease.
const LASTS: Duration = Duration::from_secs(15);

impl FakeShards {
    /// Creates this number of shards, none of which the process holds.
    #[must_use]
    pub fn new(controller: &'static str, count: usize) -> Self {
        let handle = |number: usize| {
            let (teller, leadership) =
                watch::channel(Leadership::Follower { holder: Some("other".to_owned()) });
            let lease = format!("cloud-{controller}-{number}");
            let about = ObjectReference {
                namespace: Some("kube-system".to_owned()),
                name: Some(lease.clone()),
                ..ObjectReference::default()
            };
            let (_beating, beats) = watch::channel(Instant::now());
            let handle = ShardHandle::over(&lease, leadership, beats);
            (teller, Term::of_candidate(handle, about, ME.to_owned(), LASTS))
        };
        let (tellers, terms) = (0..count).map(handle).unzip();
        Self(Arc::new(Inner {
            tellers,
            shards: Shards::new(controller, terms),
            epochs: AtomicU64::new(0),
            lapsed: Mutex::default(),
        }))
    }

    /// Gives this shard to the process for the duration `lasts`, in a new term. Another process is assumed to have held the shard before.
    pub fn give(&self, shard: usize, lasts: Duration) {
        let (valid_until, uid) = (Instant::now() + lasts, Arc::from("lease-uid"));
        if let Some(teller) = self.0.tellers.get(shard) {
            let epoch = self.0.epochs.fetch_add(1, Ordering::Relaxed) + 1;
            teller.send_replace(Leadership::Leader { valid_until, epoch, since: epoch, uid });
        }
    }

    /// Extends the time for which the process keeps this shard, in a new term or in the current one. No other process held the shard in
    /// between.
    pub fn renew(&self, shard: usize, lasts: Duration, in_new_term: bool) {
        let until = Instant::now() + lasts;
        let next = self.0.epochs.fetch_add(u64::from(in_new_term), Ordering::Relaxed) + 1;
        let Some(teller) = self.0.tellers.get(shard) else { return };
        teller.send_modify(|leadership| {
            if let Leadership::Leader { valid_until, epoch, .. } = leadership {
                *valid_until = until;
                *epoch = if in_new_term { next } else { *epoch };
            }
        });
    }

    /// Makes the process unable to rely on this shard until [`Self::recover`]. No other process holds the shard in the meantime.
    pub fn lapse(&self, shard: usize) {
        let Some(teller) = self.0.tellers.get(shard) else { return };
        if let Leadership::Leader { since, .. } = &*teller.borrow() {
            self.lapsed().insert(shard, *since);
        }
        teller.send_replace(Leadership::Follower { holder: Some(ME.to_owned()) });
    }

    /// Gives the shard back to the process, in a new term that directly follows the process's own last term.
    pub fn recover(&self, shard: usize, lasts: Duration) {
        let (valid_until, uid) = (Instant::now() + lasts, Arc::from("lease-uid"));
        let epoch = self.0.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        let since = self.lapsed().remove(&shard).unwrap_or(epoch);
        if let Some(teller) = self.0.tellers.get(shard) {
            teller.send_replace(Leadership::Leader { valid_until, epoch, since, uid });
        }
    }

    fn lapsed(&self) -> MutexGuard<'_, BTreeMap<usize, u64>> {
        self.0.lapsed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives this shard to another process.
    pub fn take(&self, shard: usize) {
        if let Some(teller) = self.0.tellers.get(shard) {
            teller.send_replace(Leadership::Follower { holder: Some("other".to_owned()) });
        }
    }

    /// Returns the Lease that represents all shards.
    pub(super) fn first_lease(&self) -> Lease {
        let about = self.0.shards.lease().unwrap_or_default();
        let metadata = ObjectMeta { namespace: about.namespace, name: about.name, ..ObjectMeta::default() };
        Lease { metadata, ..Lease::default() }
    }

    /// Returns all shards.
    #[must_use]
    pub fn shards(&self) -> Shards {
        self.0.shards.clone()
    }
}
