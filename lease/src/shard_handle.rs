//! A handle for one shard. It shows whether this process holds the shard, and begins units of work (visits) in it.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

/// The leadership of a shard, as known to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This process leads.
    Leader {
        /// The time at which the leadership ends. Each renewal moves this time forward. Code that acts as leader must compare this time
        /// with the clock.
        valid_until: Instant,
        /// The epoch, which identifies the term and is higher than the epoch of any earlier term. See
        /// [`Record::epoch`](crate::Record::epoch).
        epoch: u64,
        /// The epoch of this process's first term since which no other process has held the Lease.
        since: u64,
        /// The UID of the Lease, for Events about the Lease.
        uid: Arc<str>,
    },
    /// Another process leads, or no process leads.
    Follower {
        /// The holder of the lease, or `None` if there is no holder or the holder is not known yet.
        holder: Option<String>,
    },
}

/// One shard, as seen by this process. Clones are handles to the same shard.
#[derive(Clone, Debug)]
pub struct ShardHandle {
    lease: Arc<str>,
    leadership: watch::Receiver<Leadership>,
    beats: watch::Receiver<Instant>,
    gate: Gate,
}

impl ShardHandle {
    /// Creates a handle for a shard that is never handed over.
    #[must_use]
    pub fn over(
        lease: &str,
        leadership: watch::Receiver<Leadership>,
        beats: watch::Receiver<Instant>,
    ) -> Self {
        Self::behind(Gate::default(), lease, leadership, beats)
    }

    pub(crate) fn behind(
        gate: Gate,
        lease: &str,
        leadership: watch::Receiver<Leadership>,
        beats: watch::Receiver<Instant>,
    ) -> Self {
        Self { lease: lease.into(), leadership, beats, gate }
    }

    /// The name of the shard's Lease.
    #[must_use]
    pub fn lease(&self) -> &str {
        &self.lease
    }

    /// The leadership of the shard.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// See [`crate::Elector::beats`].
    #[must_use]
    pub fn beats(&self) -> watch::Receiver<Instant> {
        self.beats.clone()
    }

    /// Begins a unit of work in this shard. Returns `None` if this process does not hold the shard, or is about to hand it over.
    ///
    /// The shard is not handed over while the visit lasts, for up to 30 seconds. The shard may still be lost: see [`Visit::is_valid`].
    #[must_use]
    pub fn enter(&self) -> Option<Visit> {
        let mut since = None;
        self.gate.0.send_if_modified(|gate| {
            since = term(&self.leadership).map(|(since, _)| since).filter(|_| !gate.closed);
            gate.inside += usize::from(since.is_some());
            since.is_some()
        });
        let visit = |since| Visit {
            since,
            leadership: self.leadership.clone(),
            _inside: Arc::new(Inside(self.gate.clone())),
        };
        since.map(visit)
    }
}

/// A unit of work in progress in a shard, which ends when its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The leadership's `since` when the visit began.
    since: u64,
    leadership: watch::Receiver<Leadership>,
    _inside: Arc<Inside>,
}

impl Visit {
    /// Returns whether this process holds the shard now, by the clock, and no other process has held the shard since the visit began.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.epoch() != 0
    }

    /// Returns the epoch of the current term, or 0 if the visit is no longer valid.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        term(&self.leadership).filter(|(since, _)| *since == self.since).map_or(0, |(_, epoch)| epoch)
    }
}

/// Returns the leadership's `since` and the epoch of the current term. Returns `None` if no term is valid by the clock.
fn term(leadership: &watch::Receiver<Leadership>) -> Option<(u64, u64)> {
    match &*leadership.borrow() {
        Leadership::Leader { valid_until, epoch, since, .. } if Instant::now() < *valid_until => {
            Some((*since, *epoch))
        }
        Leadership::Leader { .. } | Leadership::Follower { .. } => None,
    }
}

/// Counts visits, and admits no more as soon as the shard is to be handed over.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    closed: bool,
    inside: usize,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }
}

impl Gate {
    pub(crate) fn set_closed(&self, closed: bool) {
        self.0.send_if_modified(|gate| {
            let changes = gate.closed != closed;
            gate.closed = closed;
            changes
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().inside == 0
    }

    pub(crate) async fn empty(&self) {
        // Waiting cannot fail, because `self` owns the sender.
        drop(self.0.subscribe().wait_for(|gate| gate.inside == 0).await);
    }
}

#[derive(Debug)]
struct Inside(Gate);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.send_modify(|gate| gate.inside = gate.inside.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn leads(epoch: u64, since: u64) -> Leadership {
        Leadership::Leader { valid_until: Instant::now() + SECOND, epoch, since, uid: Arc::from("u") }
    }

    #[tokio::test(start_paused = true)]
    async fn a_visit_is_valid_until_expiry_or_a_term_of_another_process() {
        let (sender, leadership) = watch::channel(Leadership::Follower { holder: None });
        let (_beats, beats) = watch::channel(Instant::now());
        let handle = ShardHandle::over("shard", leadership, beats);
        assert!(handle.enter().is_none());
        sender.send_replace(leads(7, 7));
        let visit = handle.enter().expect("ours");
        assert_eq!((visit.is_valid(), visit.epoch()), (true, 7));
        tokio::time::advance(SECOND).await;
        assert!(!visit.is_valid() && handle.enter().is_none(), "expired by the clock, without an update");
        sender.send_replace(leads(8, 7));
        assert_eq!(
            (visit.is_valid(), visit.epoch()),
            (true, 8),
            "held again, and no other process held it in between"
        );
        sender.send_replace(leads(10, 10));
        assert_eq!((visit.is_valid(), visit.epoch()), (false, 0), "another process held it");
        assert_eq!(handle.enter().map(|visit| visit.epoch()), Some(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_admits_no_visit_and_waits_for_clones() {
        let (_sender, leadership) = watch::channel(leads(7, 7));
        let (_beats, beats) = watch::channel(Instant::now());
        let gate = Gate::default();
        let handle = ShardHandle::behind(gate.clone(), "shard", leadership, beats);
        let visit = handle.enter().expect("open");
        let clone = visit.clone();
        gate.set_closed(true);
        assert!(handle.enter().is_none() && visit.is_valid());
        drop(visit);
        assert!(!gate.is_empty());
        drop(clone);
        gate.empty().await;
        assert!(gate.is_empty() && handle.enter().is_none());
        gate.set_closed(false);
        assert!(handle.enter().is_some());
    }
}
