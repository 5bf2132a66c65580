//! The shards that the work of a controller is split into, and which of them this process holds.
//!
//! An object belongs to the shard that its UID hashes to, and each shard has its own Lease. All replicas keep mirrors of all objects; work
//! on an object begins with [`Shards::enter`], which fails if another replica holds the shard. Every write during that work is checked
//! against the term in which the work began. See [`ShardPass::run`].

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use cloud_api_proto::v1alpha1::Fence;
use cloud_lease::Visit;
use futures::future::select_all;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio_util::sync::CancellationToken;

use super::Term;
use crate::Again;

tokio::task_local! {
    static HERE: ShardPass;
}

/// All shards. Clones share the state.
#[derive(Clone, Debug)]
pub struct Shards(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    controller: &'static str,
    /// The terms, by the number of the shard. There is at least one term.
    terms: Vec<Term>,
    /// The counter for fences: later requests get a greater sequence number.
    sequence: AtomicU64,
    /// Cancelled when the process must stop.
    stop: OnceLock<CancellationToken>,
}

/// Work in one shard. The shard is not released while the work lasts, but the shard may be lost.
#[derive(Clone, Debug)]
pub struct ShardPass {
    shards: Shards,
    shard: usize,
    /// The epoch of this process's first term since another process last held the shard.
    since: u64,
    /// The term of the work. `None`: there is only one process, whose term does not end.
    hold: Option<Visit>,
}

impl Shards {
    pub(crate) fn new(controller: &'static str, terms: Vec<Term>) -> Self {
        debug_assert!(!terms.is_empty(), "no shard can be held");
        Self(Arc::new(Inner { controller, terms, sequence: AtomicU64::new(0), stop: OnceLock::new() }))
    }

    /// Sets the token that makes this process release its shards.
    pub(crate) fn ends_by(&self, stop: &CancellationToken) {
        // The process calls this function only once, so `set` cannot fail.
        let _set = self.0.stop.set(stop.clone());
    }

    /// Returns the number of shards of all replicas together.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.terms.len()
    }

    /// Returns the number of shards that this process holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.terms.iter().filter(|term| term.held().is_some()).count()
    }

    /// Returns the epoch since which no other process has held this shard. `None`: this process does not hold the shard.
    #[must_use]
    pub fn since(&self, shard: usize) -> Option<u64> {
        self.term(shard)?.held().map(|(_epoch, since)| since)
    }

    /// Returns the number of the shard that an object belongs to.
    #[must_use]
    pub fn of(&self, uid: &str) -> usize {
        let count = u64::try_from(self.count()).unwrap_or(u64::MAX);
        usize::try_from(fnv1a(uid.as_bytes()) % count).unwrap_or_default()
    }

    /// Whether this process holds the shard of an object, as far as it knows.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.term(self.of(uid)).is_some_and(|term| term.held().is_some())
    }

    /// Begins work on an object.
    pub fn enter(&self, uid: &str) -> Result<ShardPass, Again> {
        self.enter_shard(self.of(uid))
    }

    /// Begins work in all shards that this process holds.
    #[must_use]
    pub fn enter_all(&self) -> Vec<ShardPass> {
        (0..self.count()).filter_map(|shard| self.enter_shard(shard).ok()).collect()
    }

    /// Begins work in the only shard, which is not released until the pass is dropped. Returns `None` if there are several shards.
    pub(crate) fn enter_alone(&self) -> Option<ShardPass> {
        if self.count() > 1 { None } else { self.enter_shard(0).ok() }
    }

    fn enter_shard(&self, shard: usize) -> Result<ShardPass, Again> {
        let term = self.term(shard).ok_or(Again::Done)?;
        let visit = term.enter()?;
        let (_epoch, since) = term.held().ok_or(Again::Done)?;
        Ok(ShardPass { shards: self.clone(), shard, since, hold: visit })
    }

    /// Returns a receiver of the shards that this process acquires from now on.
    #[must_use]
    pub fn acquisitions(&self) -> ShardAcquisitions {
        let seen = self.0.terms.iter().map(Term::held).collect();
        ShardAcquisitions { shards: self.clone(), seen }
    }

    /// Returns the object for Events that concern the whole cluster and no Node or Service: the Lease of the first shard that this process
    /// holds, or the namespace kube-system of a process without an election. Call this function for each Event.
    #[must_use]
    pub fn regarding(&self) -> ObjectReference {
        let held = self.0.terms.iter().find(|term| term.held().is_some());
        held.or(self.0.terms.first()).map(Term::regarding).unwrap_or_default()
    }

    /// Returns the Lease that represents all shards: the Lease of the first shard. `None`: election is disabled.
    pub(crate) fn lease(&self) -> Option<ObjectReference> {
        self.0.terms.first().filter(|term| term.is_elected()).map(Term::regarding)
    }

    /// Whether the caller may write now. Within a pass, the term of the pass must still last. Outside of passes, this process must hold any
    /// shard.
    pub(crate) fn may_write(&self) -> bool {
        HERE.try_with(ShardPass::is_valid).unwrap_or_else(|_outside| self.is_running())
    }

    /// Whether Events may be written now. A stopping process writes its last Events after it has released the shards of the objects
    /// concerned.
    pub(crate) fn may_emit(&self) -> bool {
        self.may_write() || self.0.stop.get().is_some_and(CancellationToken::is_cancelled)
    }

    /// Returns a fence for the current pass. The adapter orders requests with this fence after all earlier requests, including those of
    /// earlier holders of the shard.
    #[must_use]
    pub fn fence(&self) -> Fence {
        HERE.try_with(ShardPass::fence).unwrap_or_else(|_outside| {
            let visit = None;
            ShardPass { shards: self.clone(), shard: 0, since: 0, hold: visit }.fence()
        })
    }

    /// Returns the epoch in which the caller may write now. 0: no writes are allowed.
    pub(crate) fn epoch(&self) -> u64 {
        HERE.try_with(ShardPass::epoch).unwrap_or_else(|_outside| match self.0.terms.as_slice() {
            [only] => only.epoch(),
            _several => 0,
        })
    }

    /// Whether this process may write at all.
    pub(crate) fn is_running(&self) -> bool {
        self.0.terms.iter().any(Term::is_running)
    }

    pub(crate) fn terms(&self) -> &[Term] {
        &self.0.terms
    }

    fn term(&self, shard: usize) -> Option<&Term> {
        self.0.terms.get(shard)
    }

    /// Waits until this process holds a shard.
    pub(crate) async fn begin(&self) {
        select_all(self.0.terms.iter().map(|term| Box::pin(term.begins()))).await;
    }

    /// With a single shard, waits until another process may have written after the term of this process began. This process must end then.
    /// With several shards, never returns, because each shard may be lost and acquired again.
    pub(crate) async fn is_lost(&self) -> anyhow::Error {
        match self.0.terms.as_slice() {
            [only] => only.is_lost().await,
            _several => std::future::pending().await,
        }
    }

    /// Checks whether a standby is ready: it must know the holder of at least one Lease. The standby need not know all holders, because
    /// some Leases may have no holder.
    pub(crate) fn standby_readiness(&self) -> Result<(), String> {
        let standings = self.0.terms.iter().map(Term::standby_readiness);
        standings.reduce(Result::or).unwrap_or(Ok(()))
    }

    /// Checks whether a working replica is ready: it may write, or it knows that other replicas work.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        match self.0.terms.as_slice() {
            [only] => only.readiness(),
            several if several.iter().any(|term| term.held().is_some()) => {
                let ours = several.iter().filter(|term| term.held().is_some());
                ours.map(Term::readiness).find(Result::is_err).unwrap_or(Ok(()))
            }
            _others => self.standby_readiness(),
        }
    }

    pub(crate) fn liveness(&self) -> Result<(), String> {
        self.0.terms.iter().try_for_each(Term::liveness)
    }
}

impl ShardPass {
    /// Returns the number of the pass's shard.
    #[must_use]
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Returns the epoch of this process's first term since another process last held the shard. If this epoch differs from that of an
    /// earlier pass, another replica may have worked in the shard. Any state that was kept from the earlier pass is then invalid.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Whether an object belongs to the pass's shard.
    #[must_use]
    pub fn is_for(&self, uid: &str) -> bool {
        self.shards.of(uid) == self.shard
    }

    /// Whether the term in which the pass began still lasts.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.as_ref().is_none_or(Visit::is_valid)
    }

    /// Returns the epoch of the pass's term. 0: the term has ended.
    fn epoch(&self) -> u64 {
        match (&self.hold, self.shards.term(self.shard)) {
            (Some(visit), _) => visit.epoch(),
            (None, Some(term)) => term.epoch(),
            (None, None) => 0,
        }
    }

    /// Runs the work. Each of its writes, to the cluster or to the cloud, is made in the term in which the pass began, or not at all.
    ///
    /// This applies to the task that runs the work, not to tasks that the work spawns.
    pub async fn run<F: Future>(&self, work: F) -> F::Output {
        HERE.scope(self.clone(), work).await
    }

    fn fence(&self) -> Fence {
        let Inner { controller, sequence, .. } = self.shards.0.as_ref();
        Fence {
            scope: format!("{controller}/{}", self.shard),
            epoch: self.epoch(),
            sequence: sequence.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// How the shards of a process have changed since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The process holds the same shards, or holds no shard, which may be temporary.
    Same,
    /// The process holds fewer shards, or regained shards that no other process has held in between.
    Other,
    /// The process acquired shards in which another replica may have worked before.
    Regained,
}

/// Remembers which shards a process has held, even after it lost them, for limits that apply per process and not per object.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// For each shard that this process has held: the epoch since which no other process had held it.
    since: BTreeMap<usize, u64>,
    held: usize,
}

impl Holdings {
    /// Compares the current shards with those of the last call.
    pub fn update(&mut self, shards: &Shards) -> Share {
        let terms = shards.terms().iter().enumerate();
        let now: BTreeMap<usize, u64> =
            terms.filter_map(|(shard, term)| Some((shard, term.held()?.1))).collect();
        if now.is_empty() {
            return Share::Same;
        }
        let regained = now.iter().any(|(shard, since)| self.since.get(shard) != Some(since));
        let other = now.len() != self.held;
        self.held = now.len();
        self.since.extend(now);
        match (regained, other) {
            (true, _) => Share::Regained,
            (false, true) => Share::Other,
            (false, false) => Share::Same,
        }
    }
}

/// The shards that a process acquires over time.
#[derive(Debug)]
pub struct ShardAcquisitions {
    shards: Shards,
    /// For each shard that this process held at the last check: its epoch, and the epoch since which no other process has held it.
    seen: Vec<Option<(u64, u64)>>,
}

impl ShardAcquisitions {
    /// Waits for the next shards and returns their numbers, which may include shards that this process held a moment ago. Cancel-safe.
    pub async fn next(&mut self) -> Vec<usize> {
        loop {
            // The subscription comes before the check, so that no change in between is missed.
            let changes: Vec<_> = self.shards.terms().iter().map(|term| Box::pin(term.changes())).collect();
            let acquisitions = self.update();
            if !acquisitions.is_empty() {
                return acquisitions;
            }
            select_all(changes).await;
        }
    }

    fn update(&mut self) -> Vec<usize> {
        let now: Vec<_> = self.shards.terms().iter().map(Term::held).collect();
        let pairs = self.seen.iter().zip(&now).enumerate();
        let acquisitions =
            pairs.filter(|(_, (seen, now))| now.is_some() && seen != now).map(|(shard, _)| shard).collect();
        self.seen = now;
        acquisitions
    }
}

/// Hashes a UID. The hash must not differ between versions of this program or between replicas. Source: the Internet draft
/// draft-eastlake-fnv, FNV-1a with 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
