//! The term in which this process may write: its epoch, its end, and the object for Events that concern the whole cluster.

use std::{future::Future, time::Duration};

use cloud_lease::{Leadership, ShardHandle, Visit};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{Again, Clock};

/// Time after the expiry of an unrenewed Lease at which an election counts as stuck. Source: the former cloud controller manager.
const STUCK: Duration = Duration::from_secs(20);

/// Delay until the next check whether the process can rely on its term.
const RECHECK: Duration = Duration::from_secs(1);

const SECOND: Duration = Duration::from_secs(1);

/// The namespace that identifies the cluster: its UID is `--cluster-id`.
const CLUSTER: &str = "kube-system";

/// The term of this process. A controller starts its work when its term has begun. Clones share the state.
///
/// While the Lease cannot be renewed in time, nothing is written. The work resumes in a new term if no other process has acquired the Lease
/// by the next renewal. So an outage of the API server ends no process. If another process has acquired the Lease, this process ends.
/// Without an election, the term lasts as long as the process.
#[derive(Clone, Debug)]
pub struct Term(Kind);

#[derive(Clone, Debug)]
enum Kind {
    OneProcess(OneProcess),
    Elected(Elected),
}

#[derive(Clone, Debug)]
struct OneProcess {
    epoch: u64,
    /// Time before which nothing is written.
    begins: Instant,
    namespace: ObjectReference,
}

#[derive(Clone, Debug)]
struct Elected {
    handle: ShardHandle,
    leadership: watch::Receiver<Leadership>,
    lease: ObjectReference,
    /// The identity with which this process holds the Lease.
    identity: String,
    /// Time after which an unrenewed Lease expires.
    duration: Duration,
}

impl Term {
    /// Creates the term of a process without an election. Its epoch is the next second of the clock, and the term begins with that second.
    /// So a process that starts after another process has written has a greater epoch, unless the clock is set back.
    ///
    /// The unit is a second, as in an election. A finer unit would give greater epochs than any election, and no process with
    /// `--leader-elect` could take over from this process.
    #[must_use]
    pub fn of_one_process(clock: &Clock, cluster_id: &str) -> Self {
        let namespace = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some(CLUSTER.to_owned()),
            uid: Some(cluster_id.to_owned()),
            ..ObjectReference::default()
        };
        let (epoch, wait) = next_second(clock.now());
        Self(Kind::OneProcess(OneProcess { epoch, begins: Instant::now() + wait, namespace }))
    }

    pub(crate) fn of_candidate(
        handle: ShardHandle,
        lease: ObjectReference,
        identity: String,
        duration: Duration,
    ) -> Self {
        Self(Kind::Elected(Elected { leadership: handle.leadership(), handle, lease, identity, duration }))
    }

    /// Begins work in the term. `Ok(None)`: there is no election. An error says when to retry.
    pub(crate) fn enter(&self) -> Result<Option<Visit>, Again> {
        let Kind::Elected(it) = &self.0 else { return Ok(None) };
        let leads = matches!(&*it.leadership.borrow(), Leadership::Leader { .. });
        // A process reconciles all objects in a new term, so nothing has to be requeued.
        it.handle.enter().map(Some).ok_or(if leads { Again::After(RECHECK) } else { Again::Done })
    }

    /// Returns the epoch, and the epoch since which no other process has led. `None`: another process may lead.
    pub(crate) fn held(&self) -> Option<(u64, u64)> {
        match &self.0 {
            Kind::OneProcess(OneProcess { epoch, .. }) => Some((*epoch, *epoch)),
            Kind::Elected(it) => match &*it.leadership.borrow() {
                Leadership::Leader { epoch, since, .. } => Some((*epoch, *since)),
                Leadership::Follower { .. } => None,
            },
        }
    }

    /// Waits until the term changes. Never returns without an election.
    pub(crate) fn changes(&self) -> impl Future<Output = ()> + Send + 'static {
        let leadership = match &self.0 {
            Kind::OneProcess(_) => None,
            Kind::Elected(it) => Some(it.leadership.clone()),
        };
        let seen = self.held();
        async move {
            let held = |now: &Leadership| match now {
                Leadership::Leader { epoch, since, .. } => Some((*epoch, *since)),
                Leadership::Follower { .. } => None,
            };
            let changed = match leadership {
                None => false,
                Some(mut leadership) => leadership.wait_for(|now| held(now) != seen).await.is_ok(),
            };
            if !changed {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the name of the Lease, for metrics.
    pub(crate) fn lease(&self) -> Option<&str> {
        match &self.0 {
            Kind::OneProcess(_) => None,
            Kind::Elected(it) => it.lease.name.as_deref(),
        }
    }

    /// Returns the epoch for fences, which is greater than that of every earlier term. Call this function for each write, not before the
    /// work begins. A process that does not lead has epoch 0, which adapters refuse.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        match &self.0 {
            Kind::OneProcess(OneProcess { epoch, .. }) => *epoch,
            Kind::Elected(Elected { leadership, .. }) => match &*leadership.borrow() {
                Leadership::Leader { epoch, .. } => *epoch,
                Leadership::Follower { .. } => 0,
            },
        }
    }

    /// Returns the object for Events that concern the whole cluster and no Node or Service: this controller's Lease, or the namespace
    /// kube-system of a process without an election. Call this function for each Event.
    #[must_use]
    pub fn regarding(&self) -> ObjectReference {
        match &self.0 {
            Kind::OneProcess(it) => it.namespace.clone(),
            Kind::Elected(Elected { leadership, lease, .. }) => {
                let uid = match &*leadership.borrow() {
                    Leadership::Leader { uid, .. } => Some(uid.to_string()),
                    Leadership::Follower { .. } => None,
                };
                ObjectReference { uid, ..lease.clone() }
            }
        }
    }

    /// Whether this process may write now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        match &self.0 {
            Kind::OneProcess(it) => it.begins <= Instant::now(),
            Kind::Elected(it) => is_valid(&it.leadership.borrow()),
        }
    }

    pub(crate) fn is_elected(&self) -> bool {
        matches!(self.0, Kind::Elected(_))
    }

    /// Checks whether a standby is ready: it must know the leader.
    pub(crate) fn standby_readiness(&self) -> Result<(), String> {
        let Kind::Elected(it) = &self.0 else { return Ok(()) };
        match &*it.leadership.borrow() {
            Leadership::Leader { .. } | Leadership::Follower { holder: Some(_) } => Ok(()),
            Leadership::Follower { holder: None } => Err("the holder of the Lease is not known".to_owned()),
        }
    }

    /// Checks whether a leader is ready: it must be allowed to write.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        if self.is_running() { Ok(()) } else { Err("the Lease could not be renewed in time".to_owned()) }
    }

    /// Checks liveness. A Lease that cannot be renewed is not a reason to restart. A hanging election is a reason, because it would never
    /// renew the Lease.
    pub(crate) fn liveness(&self) -> Result<(), String> {
        let Kind::Elected(it) = &self.0 else { return Ok(()) };
        let still = it.handle.beats().borrow().elapsed();
        if still > it.duration + STUCK {
            Err(format!("the election has not made progress for {} s", still.as_secs()))
        } else {
            Ok(())
        }
    }

    pub(crate) async fn begins(&self) {
        match &self.0 {
            Kind::OneProcess(it) => sleep_until(it.begins).await,
            Kind::Elected(it) => {
                if it.leadership.clone().wait_for(is_valid).await.is_err() {
                    // The election itself has ended; `is_lost` reports this.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Waits until another process may have written after the term of this process began. This process must end then.
    pub(crate) async fn is_lost(&self) -> anyhow::Error {
        let Kind::Elected(it) = &self.0 else { return std::future::pending().await };
        let holder = it.wait_for_another().await;
        let (namespace, name) = (it.lease.namespace.as_deref(), it.lease.name.as_deref());
        anyhow::anyhow!(
            "the Lease {}/{} was lost to {holder}",
            namespace.unwrap_or_default(),
            name.unwrap_or_default()
        )
    }
}

impl Elected {
    /// Waits until another process has led after this process, and returns the name of the other process.
    async fn wait_for_another(&self) -> String {
        let (mut leadership, mut ours) = (self.leadership.clone(), None);
        loop {
            match (&*leadership.borrow_and_update(), ours) {
                (Leadership::Leader { since, .. }, None) => ours = Some(*since),
                // The term may be a new one, but no other process led in between.
                (Leadership::Leader { since, .. }, Some(ours)) if *since == ours => (),
                (Leadership::Leader { .. }, Some(_)) => {
                    return "another replica, which no longer holds the Lease".to_owned();
                }
                (Leadership::Follower { holder: Some(holder) }, Some(_)) if *holder != self.identity => {
                    return holder.clone();
                }
                (Leadership::Follower { .. }, _) => (),
            }
            if leadership.changed().await.is_err() {
                return "an unknown replica: the election task has ended".to_owned();
            }
        }
    }
}

/// Returns the first second that begins now or later, and the time until that second.
fn next_second(now: Timestamp) -> (u64, Duration) {
    let rest = Duration::from_nanos(u64::try_from(now.subsec_nanosecond()).unwrap_or_default());
    let begun = u64::try_from(now.as_second()).unwrap_or_default();
    if rest.is_zero() { (begun, rest) } else { (begun.saturating_add(1), SECOND.saturating_sub(rest)) }
}

fn is_valid(leadership: &Leadership) -> bool {
    match leadership {
        Leadership::Leader { valid_until, .. } => Instant::now() < *valid_until,
        Leadership::Follower { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    fn candidate() -> (watch::Sender<Leadership>, Term) {
        let (sender, leadership) = watch::channel(Leadership::Follower { holder: None });
        let lease = ObjectReference {
            namespace: Some("kube-system".to_owned()),
            name: Some("cloud-node-controller".to_owned()),
            ..ObjectReference::default()
        };
        let (beating, beats) = watch::channel(Instant::now());
        // Without its sender, the time of the last heartbeat does not change any more.
        drop(beating);
        let handle = ShardHandle::over("cloud-node-controller", leadership, beats);
        (sender, Term::of_candidate(handle, lease, "me".to_owned(), TEN))
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_election_fails_liveness() {
        let (_sender, term) = candidate();
        tokio::time::advance(TEN + STUCK).await;
        assert_eq!(term.liveness(), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(term.liveness(), Err("the election has not made progress for 31 s".to_owned()));
    }

    /// Returns a leader in the term `epoch` that has led without interruption since the term `since`.
    fn leads(epoch: u64, since: u64) -> Leadership {
        Leadership::Leader { valid_until: Instant::now() + TEN, epoch, since, uid: Arc::from("u") }
    }

    fn leader(epoch: u64) -> Leadership {
        leads(epoch, epoch)
    }

    fn follower(holder: &str) -> Leadership {
        Leadership::Follower { holder: Some(holder.to_owned()) }
    }

    /// Returns why a process in this term would end now. `None`: it would not end.
    async fn is_over(term: &Term) -> Option<String> {
        let lost = tokio::time::timeout(Duration::from_millis(1), term.is_lost()).await;
        lost.ok().map(|error| error.to_string())
    }

    #[test]
    fn each_later_process_has_a_greater_epoch() {
        let at = |time: &str| {
            Term::of_one_process(&Clock::starting_at(time.parse().expect("a time")), "u").epoch()
        };
        assert!(at("2026-01-01T00:00:01Z") > at("2026-01-01T00:00:00Z"));
    }

    /// Models a container that restarts immediately: the first process may have written just before it ended.
    #[tokio::test(start_paused = true)]
    async fn two_starts_within_a_second_have_different_epochs() {
        let clock = Clock::starting_at("2026-01-01T00:00:00.2Z".parse().expect("a time"));
        let mut epochs = Vec::new();
        for _ in 0..3 {
            let term = Term::of_one_process(&clock, "u");
            term.begins().await;
            assert!(term.is_running());
            epochs.push(term.epoch());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(epochs.is_sorted_by(|earlier, later| earlier < later), "{epochs:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_has_an_epoch_and_an_object_for_events() {
        let (sender, term) = candidate();
        assert!(!term.is_running());
        assert!(term.standby_readiness().is_err(), "the process does not know yet whether any replica works");
        sender.send_replace(follower("other"));
        assert_eq!((term.standby_readiness(), term.epoch()), (Ok(()), 0));
        assert_eq!(is_over(&term).await, None, "a candidate does not end");
        sender.send_replace(leader(7));
        term.begins().await;
        assert!(term.is_running());
        assert_eq!((term.epoch(), term.regarding().uid.as_deref()), (7, Some("u")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_without_renewal_pauses_and_resumes() {
        let (sender, term) = candidate();
        sender.send_replace(leader(7));
        let waits = term.is_lost();
        tokio::pin!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        tokio::time::advance(TEN).await;
        // No update of the leadership reports that the Lease has expired.
        assert!(!term.is_running());
        assert!(term.readiness().is_err());
        sender.send_replace(follower("me"));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        sender.send_replace(leads(18, 7));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert_eq!((term.is_running(), term.epoch()), (true, 18));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_ends_when_another_leads_or_has_led() {
        for (then, reason) in [(follower("other"), "other"), (leader(8), "no longer holds")] {
            let (sender, term) = candidate();
            sender.send_replace(leader(7));
            let waits = term.is_lost();
            tokio::pin!(waits);
            assert!(futures::poll!(waits.as_mut()).is_pending());
            sender.send_replace(follower("me"));
            assert!(futures::poll!(waits.as_mut()).is_pending());
            sender.send_replace(then);
            let error = waits.await.to_string();
            assert!(error.contains("kube-system/cloud-node-controller") && error.contains(reason), "{error}");
        }
    }
}
