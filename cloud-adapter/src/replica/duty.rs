//! Whether this replica serves now, as everything that serves sees it.
//!
//! Decides nothing: who leads is decided elsewhere and told here.

use std::sync::Arc;

use cloud_api_proto::{AdapterError, Reason};
use tokio::{sync::watch, time::Instant};

/// What this replica does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Another replica talks to the vendor, or none does yet.
    Standby {
        /// Who leads, if known.
        leader: Option<Arc<str>>,
    },
    /// This one talks to the vendor.
    Leading {
        /// Tells terms apart; grows from leader to leader.
        epoch: u64,
        /// When the term began.
        since: Instant,
    },
    /// It is about to stop and takes nothing new on. The last duty of a process.
    Draining,
}

/// This replica's duty. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Replica(Arc<watch::Sender<Duty>>);

impl Replica {
    /// One that stands by until it is told to lead.
    pub(crate) fn standing_by() -> Self {
        Self(Arc::new(watch::Sender::new(Duty::Standby { leader: None })))
    }

    /// Begins a term, unless it runs already.
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

    /// Ends the term, if there is one: work that began in it ends at its next step.
    pub(crate) fn stand_by(&self, leader: Option<Arc<str>>) {
        self.change(Duty::Standby { leader });
    }

    /// Ends the term for good.
    pub(crate) fn drain(&self) {
        self.change(Duty::Draining);
    }

    /// The duty, and word of its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Duty> {
        self.0.subscribe()
    }

    /// Whether it talks to the vendor now.
    pub(crate) fn leads(&self) -> bool {
        matches!(*self.0.borrow(), Duty::Leading { .. })
    }

    /// Whether it is about to stop.
    pub(crate) fn drains(&self) -> bool {
        *self.0.borrow() == Duty::Draining
    }

    /// The term that runs.
    ///
    /// # Errors
    /// `NOT_LEADER` and `DRAINING`: the caller looks for another replica.
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

/// One uninterrupted time as leader. What began in it must not go on after it.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    duty: watch::Receiver<Duty>,
    epoch: u64,
    since: Instant,
}

impl Term {
    /// When it began. What was seen of the cloud before may since have been changed by the leader before.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// Why it is over: `NOT_LEADER` or `DRAINING`.
    pub(crate) fn check(&self) -> Result<(), AdapterError> {
        let duty = self.duty.borrow();
        if self.is(&duty) { Ok(()) } else { Err(refusal(&duty)) }
    }

    /// Until it is over, and why it is.
    pub(crate) async fn ended(mut self) -> AdapterError {
        let this = self.clone();
        match self.duty.wait_for(|duty| !this.is(duty)).await {
            Ok(duty) => refusal(&duty),
            Err(_nobody_left_to_tell) => refusal(&Duty::Draining),
        }
    }

    fn is(&self, duty: &Duty) -> bool {
        *duty == Duty::Leading { epoch: self.epoch, since: self.since }
    }
}

fn refusal(duty: &Duty) -> AdapterError {
    match duty {
        Duty::Draining => AdapterError::new(Reason::Draining, "this adapter is about to stop"),
        Duty::Standby { leader: Some(leader) } => {
            let text = format!("this replica stands by: {leader} leads");
            AdapterError::new(Reason::NotLeader, text)
        }
        Duty::Standby { leader: None } => {
            AdapterError::new(Reason::NotLeader, "this replica stands by: it knows of no leader")
        }
        // Only a term of old is refused while one runs.
        Duty::Leading { .. } => {
            AdapterError::new(Reason::NotLeader, "another replica led meanwhile: repeat the request")
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
        let refused = replica.term().expect_err("stands by");
        assert_eq!(refused.reason, Reason::NotLeader);
        assert!(refused.message.contains("b@10.0.0.2:8443"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_of_a_term_ends_with_it_even_if_the_next_is_ours_again() {
        let replica = Replica::standing_by();
        replica.lead(1);
        let term = replica.term().expect("leads");
        assert!(term.check().is_ok());
        assert!(term.clone().ended().now_or_never().is_none(), "it runs");
        replica.stand_by(None);
        replica.lead(3);
        assert_eq!(term.check().expect_err("over").reason, Reason::NotLeader);
        assert_eq!(term.ended().await.reason, Reason::NotLeader);
        assert!(replica.term().expect("leads again").check().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_drains_never_leads_again() {
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
