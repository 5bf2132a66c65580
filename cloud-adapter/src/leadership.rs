//! The duty of this replica: leader, standby or shutting down. The services check the duty.
//!
//! This module makes no decisions: `election` sets the duty.

use std::sync::Arc;

use cloud_api_proto::{AdapterError, Reason};
use tokio::{sync::watch, time::Instant};

/// The request ID that standbys put in their answers.
pub(crate) const STANDBY: &str = "standby";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Another replica leads, or no leader is known yet.
    Standby { leader: Option<Arc<str>> },
    Leading {
        /// The number of the term. Each new leader increases it.
        epoch: u64,
        since: Instant,
    },
    /// The replica is shutting down, and accepts no new work. This is the last duty of a process.
    Draining,
}

/// Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Replica(Arc<watch::Sender<Duty>>);

impl Replica {
    pub(crate) fn standing_by() -> Self {
        Self(Arc::new(watch::Sender::new(Duty::Standby { leader: None })))
    }

    /// Begins the term with this epoch, unless this term is already running or the replica is shutting down.
    pub(crate) fn lead(&self, epoch: u64) {
        self.0.send_if_modified(|duty| {
            let begins = match duty {
                Duty::Leading { epoch: running, .. } => *running != epoch,
                Duty::Standby { .. } => true,
                Duty::Draining => false,
            };
            if begins {
                *duty = Duty::Leading { epoch, since: Instant::now() };
            }
            begins
        });
    }

    /// Ends the term, if there is one. Work that began in this term stops at its next step.
    pub(crate) fn stand_by(&self, leader: Option<Arc<str>>) {
        self.change(Duty::Standby { leader });
    }

    /// Ends the term, and prevents further terms.
    pub(crate) fn drain(&self) {
        self.change(Duty::Draining);
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Duty> {
        self.0.subscribe()
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(*self.0.borrow(), Duty::Leading { .. })
    }

    pub(crate) fn drains(&self) -> bool {
        *self.0.borrow() == Duty::Draining
    }

    /// Returns the current term.
    ///
    /// Returns `NOT_LEADER` or `DRAINING` if there is no term. The caller should then try another replica.
    pub(crate) fn term(&self) -> Result<Term, AdapterError> {
        match &*self.0.borrow() {
            Duty::Leading { epoch, since } => {
                Ok(Term { duty: self.0.subscribe(), epoch: *epoch, since: *since })
            }
            duty @ (Duty::Standby { .. } | Duty::Draining) => Err(refusal(duty)),
        }
    }

    fn change(&self, next: Duty) {
        self.0.send_if_modified(|duty| {
            let changes = *duty != Duty::Draining && *duty != next;
            if changes {
                *duty = next;
            }
            changes
        });
    }
}

/// One uninterrupted period as leader. Work that began in a term must end with it.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    duty: watch::Receiver<Duty>,
    epoch: u64,
    since: Instant,
}

impl Term {
    /// Returns the time at which the term began. Earlier observations may lack changes that the previous leader made.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Checks that this term is still current.
    ///
    /// Returns the reason why the term is over: `NOT_LEADER` or `DRAINING`.
    pub(crate) fn check(&self) -> Result<(), AdapterError> {
        let duty = self.duty.borrow();
        if self.is(&duty) { Ok(()) } else { Err(refusal(&duty)) }
    }

    /// Waits until the term is over, and returns the reason.
    pub(crate) async fn ended(mut self) -> AdapterError {
        let this = self.clone();
        match self.duty.wait_for(|duty| !this.is(duty)).await {
            Ok(duty) => refusal(&duty),
            Err(_sender_is_gone) => refusal(&Duty::Draining),
        }
    }

    fn is(&self, duty: &Duty) -> bool {
        *duty == Duty::Leading { epoch: self.epoch, since: self.since }
    }
}

fn refusal(duty: &Duty) -> AdapterError {
    match duty {
        Duty::Draining => AdapterError::new(Reason::Draining, "this adapter is shutting down"),
        Duty::Standby { leader: Some(leader) } => {
            let text = format!("this replica is a standby: {leader} leads");
            AdapterError::new(Reason::NotLeader, text)
        }
        Duty::Standby { leader: None } => {
            AdapterError::new(Reason::NotLeader, "this replica is a standby, and no leader is known")
        }
        // This replica leads again, but the refused work belongs to an earlier term.
        Duty::Leading { .. } => {
            AdapterError::new(Reason::NotLeader, "another replica led in the meantime: repeat the request")
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_standby_says_who_leads() {
        let replica = Replica::standing_by();
        replica.stand_by(Some("b@10.0.0.2:8443".into()));
        let refused = replica.term().expect_err("a standby");
        assert_eq!(refused.reason, Reason::NotLeader);
        assert!(refused.message.contains("b@10.0.0.2:8443"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_with_its_term_even_if_reelected() {
        let replica = Replica::standing_by();
        replica.lead(1);
        let term = replica.term().expect("leads");
        assert!(term.check().is_ok());
        assert!(term.clone().ended().now_or_never().is_none(), "still current");
        replica.stand_by(None);
        replica.lead(3);
        assert_eq!(term.check().expect_err("over").reason, Reason::NotLeader);
        assert_eq!(term.ended().await.reason, Reason::NotLeader);
        assert!(replica.term().expect("leads again").check().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn draining_replica_never_leads_again() {
        let replica = Replica::standing_by();
        replica.lead(1);
        let term = replica.term().expect("leads");
        replica.drain();
        replica.lead(2);
        assert!(!replica.leads());
        assert_eq!(replica.term().expect_err("drains").reason, Reason::Draining);
        assert_eq!(term.ended().await.reason, Reason::Draining);
    }
}
