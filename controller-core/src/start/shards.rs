//! Into which parts the work of a controller is split, and which of them this process has.
//!
//! An object belongs to the shard that its UID hashes to, and each shard has a Lease of its own. All replicas mirror everything; what
//! they do with it begins with [`Shards::enter`], which says no if another replica has the shard. All writes of a piece of work are
//! judged by the term in which it began, wherever they are made: see [`Turn::run`].

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
    static HERE: Turn;
}

/// All shards. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct Shards(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    controller: &'static str,
    /// By number, one at least.
    terms: Vec<Term>,
    /// Of fences: what is sent later has a greater one.
    sequence: AtomicU64,
    /// Cancelled when the process shall stop.
    stop: OnceLock<CancellationToken>,
}

/// A piece of work in one shard. The shard is not handed over to another replica before it ends, but it may be lost.
#[derive(Clone, Debug)]
pub struct Turn {
    shards: Shards,
    shard: usize,
    /// Since that term nobody else had the shard.
    since: u64,
    /// `None`: there is one process, and no end to its term.
    visit: Option<Visit>,
}

impl Shards {
    /// One term a shard.
    pub(crate) fn new(controller: &'static str, terms: Vec<Term>) -> Self {
        debug_assert!(!terms.is_empty(), "nobody would have the work");
        Self(Arc::new(Inner { controller, terms, sequence: AtomicU64::new(0), stop: OnceLock::new() }))
    }

    /// This process gives its shards back when it is told to stop.
    pub(crate) fn ends_by(&self, stop: &CancellationToken) {
        // Told once.
        let _told = self.0.stop.set(stop.clone());
    }

    /// How many there are, of all replicas together.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.terms.len()
    }

    /// How many this process has.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.terms.iter().filter(|term| term.held().is_some()).count()
    }

    /// Since which term nobody else had this shard. `None`: it is not this process's.
    #[must_use]
    pub fn since(&self, shard: usize) -> Option<u64> {
        self.term(shard)?.held().map(|(_epoch, since)| since)
    }

    /// The number of the shard that an object belongs to.
    #[must_use]
    pub fn of(&self, uid: &str) -> usize {
        let count = u64::try_from(self.count()).unwrap_or(u64::MAX);
        usize::try_from(fnv1a(uid.as_bytes()) % count).unwrap_or_default()
    }

    /// Whether this process has the shard of an object, as far as it knows.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.term(self.of(uid)).is_some_and(|term| term.held().is_some())
    }

    /// Begins work on an object.
    ///
    /// # Errors
    /// When to look at it again: its shard is another replica's, or cannot be relied on at the moment.
    pub fn enter(&self, uid: &str) -> Result<Turn, Again> {
        self.enter_shard(self.of(uid))
    }

    /// Begins work in all shards that this process has.
    #[must_use]
    pub fn enter_all(&self) -> Vec<Turn> {
        (0..self.count()).filter_map(|shard| self.enter_shard(shard).ok()).collect()
    }

    /// For a process that has the whole work or none: its only shard is not given back before this is dropped.
    pub(super) fn enter_alone(&self) -> Option<Turn> {
        if self.count() > 1 { None } else { self.enter_shard(0).ok() }
    }

    fn enter_shard(&self, shard: usize) -> Result<Turn, Again> {
        let term = self.term(shard).ok_or(Again::Done)?;
        let visit = term.enter()?;
        let (_epoch, since) = term.held().ok_or(Again::Done)?;
        Ok(Turn { shards: self.clone(), shard, since, visit })
    }

    /// Tells of shards that this process comes to from now on.
    #[must_use]
    pub fn gains(&self) -> Gains {
        let seen = self.0.terms.iter().map(Term::held).collect();
        Gains { shards: self.clone(), seen }
    }

    /// The object on which people are told what concerns the whole cluster and no Node or Service: the Lease of the first shard that
    /// this process has, or the namespace kube-system of a process without an election. Ask when telling.
    #[must_use]
    pub fn regarding(&self) -> ObjectReference {
        let held = self.0.terms.iter().find(|term| term.held().is_some());
        held.or(self.0.terms.first()).map(Term::regarding).unwrap_or_default()
    }

    /// The Lease that stands for all shards: the first one's. `None`: there is no election.
    pub(crate) fn lease(&self) -> Option<ObjectReference> {
        self.0.terms.first().filter(|term| term.is_elected()).map(Term::regarding)
    }

    /// Whether something may be written now: by the piece of work that asks, in its term; by anybody else if this process has a
    /// shard at all.
    pub(crate) fn may_write(&self) -> bool {
        HERE.try_with(Turn::is_valid).unwrap_or_else(|_outside| self.is_running())
    }

    /// Whether people may be told something now. Who stops has given back what it speaks of as soon as it was done.
    pub(crate) fn may_tell(&self) -> bool {
        self.may_write() || self.0.stop.get().is_some_and(CancellationToken::is_cancelled)
    }

    /// Sets what the piece of work asks for that runs here apart from all that was asked for before, also by others that had its shard.
    #[must_use]
    pub fn fence(&self) -> Fence {
        HERE.try_with(Turn::fence).unwrap_or_else(|_outside| {
            let visit = None;
            Turn { shards: self.clone(), shard: 0, since: 0, visit }.fence()
        })
    }

    /// The epoch of what is written here and now. 0: none is.
    pub(crate) fn epoch(&self) -> u64 {
        HERE.try_with(Turn::epoch).unwrap_or_else(|_outside| match self.0.terms.as_slice() {
            [only] => only.epoch(),
            _several => 0,
        })
    }

    /// Whether this process may write at all.
    pub(super) fn is_running(&self) -> bool {
        self.0.terms.iter().any(Term::is_running)
    }

    pub(super) fn terms(&self) -> &[Term] {
        &self.0.terms
    }

    fn term(&self, shard: usize) -> Option<&Term> {
        self.0.terms.get(shard)
    }

    /// Waits until this process has a shard.
    pub(super) async fn begin(&self) {
        select_all(self.0.terms.iter().map(|term| Box::pin(term.begins()))).await;
    }

    /// Waits until the term of a process that works alone has begun, and another process may have written since: this one has to
    /// end. Of several shards each may come and go.
    pub(super) async fn is_lost(&self) -> anyhow::Error {
        match self.0.terms.as_slice() {
            [only] => only.is_lost().await,
            _several => std::future::pending().await,
        }
    }

    /// Who stands by is ready as long as it knows of somebody who works: if others split the work into fewer shards, nobody has the rest.
    ///
    /// # Errors
    /// The text for `/readyz`.
    pub(super) fn standby_readiness(&self) -> Result<(), String> {
        let standings = self.0.terms.iter().map(Term::standby_readiness);
        standings.reduce(Result::or).unwrap_or(Ok(()))
    }

    /// Who works is ready as long as it may write, or knows that others work.
    ///
    /// # Errors
    /// The text for `/readyz`.
    pub(super) fn readiness(&self) -> Result<(), String> {
        match self.0.terms.as_slice() {
            [only] => only.readiness(),
            several if several.iter().any(|term| term.held().is_some()) => {
                let ours = several.iter().filter(|term| term.held().is_some());
                ours.map(Term::readiness).find(Result::is_err).unwrap_or(Ok(()))
            }
            _others => self.standby_readiness(),
        }
    }

    /// # Errors
    /// The text for `/livez`.
    pub(super) fn liveness(&self) -> Result<(), String> {
        self.0.terms.iter().try_for_each(Term::liveness)
    }
}

impl Turn {
    /// The number of its shard.
    #[must_use]
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// The first of the terms that this process has had the shard in without a break. Another one than last time: another replica may
    /// have been at work in it, and what is remembered of it is worth nothing.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Whether an object belongs to its shard.
    #[must_use]
    pub fn is_for(&self, uid: &str) -> bool {
        self.shards.of(uid) == self.shard
    }

    /// Whether the term in which it began still runs, now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.visit.as_ref().is_none_or(Visit::is_valid)
    }

    /// The epoch of its term. 0: it does not run any more.
    fn epoch(&self) -> u64 {
        match (&self.visit, self.shards.term(self.shard)) {
            (Some(visit), _) => visit.epoch(),
            (None, Some(term)) => term.epoch(),
            (None, None) => 0,
        }
    }

    /// Does the work: whatever it writes, to the cluster or to the cloud, is written in the term in which it began or not at all.
    ///
    /// That holds for the task that it runs in, and not for tasks that it spawns.
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

/// What became of the shards of a process since it last looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// They are the same, or it has none, which need not last.
    Same,
    /// It has some less, or some again that nobody else had meanwhile.
    Other,
    /// It has some in which another replica may have been at work before.
    Anew,
}

/// Remembers which shards a process has had, over losses too, for what counts per process and not per object.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    /// By shard, since which term nobody else had it when it was this process's last.
    since: BTreeMap<usize, u64>,
    held: usize,
}

impl Holdings {
    /// Looks at what the process has now.
    pub fn look(&mut self, shards: &Shards) -> Share {
        let terms = shards.terms().iter().enumerate();
        let now: BTreeMap<usize, u64> =
            terms.filter_map(|(shard, term)| Some((shard, term.held()?.1))).collect();
        if now.is_empty() {
            return Share::Same;
        }
        let anew = now.iter().any(|(shard, since)| self.since.get(shard) != Some(since));
        let other = now.len() != self.held;
        self.held = now.len();
        self.since.extend(now);
        match (anew, other) {
            (true, _) => Share::Anew,
            (false, true) => Share::Other,
            (false, false) => Share::Same,
        }
    }
}

/// The shards that a process comes to, one after the other.
#[derive(Debug)]
pub struct Gains {
    shards: Shards,
    /// In which term each shard was when it was looked at last.
    seen: Vec<Option<(u64, u64)>>,
}

impl Gains {
    /// Waits for the next ones, by their numbers, also for those that were this process's a moment ago. Safe to drop.
    pub async fn next(&mut self) -> Vec<usize> {
        loop {
            // Subscribed before the look: nothing is missed in between.
            let changes: Vec<_> = self.shards.terms().iter().map(|term| Box::pin(term.changes())).collect();
            let gains = self.look();
            if !gains.is_empty() {
                return gains;
            }
            select_all(changes).await;
        }
    }

    fn look(&mut self) -> Vec<usize> {
        let now: Vec<_> = self.shards.terms().iter().map(Term::held).collect();
        let pairs = self.seen.iter().zip(&now).enumerate();
        let gains =
            pairs.filter(|(_, (seen, now))| now.is_some() && seen != now).map(|(shard, _)| shard).collect();
        self.seen = now;
        gains
    }
}

/// The same for each version of this program, and for all replicas. Source: the Internet draft draft-eastlake-fnv, FNV-1a with 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
