//! This process as a candidate: for which Leases, under which name, through a client of its own.
//!
//! Its calls pass neither the guard against writes outside of a term nor the pace of the others: what keeps the term must not wait
//! for what needs it.

use anyhow::Context as _;
use cloud_lease::{Seat, ShardElector};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{Names, Term, host};
use crate::{Clock, config::Election};

/// A candidate that asks nobody anything until it runs.
#[derive(Debug)]
pub(super) struct Candidate {
    elector: ShardElector,
    /// The terms that it may come to, one a shard.
    pub(super) terms: Vec<Term>,
}

impl Candidate {
    /// # Errors
    /// The machine's name is none that can stand in a Lease.
    pub(super) fn new(
        names: Names,
        election: &Election,
        client: Client,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let now = clock.now();
        // Differs between processes, also between two on one machine.
        let identity = format!("{}_{:x}-{:x}", host(), now.as_nanosecond(), std::process::id());
        let settings = election.settings(names.controller, identity);
        let (namespace, duration) = (settings.namespace.clone(), settings.timing.duration);
        let identity = settings.identity.clone();
        let elector = ShardElector::new(client, settings, election.shards, now);
        let (elector, seats) = elector.context("leader election")?;
        let term = |seat: Seat| {
            let about = ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(seat.lease().to_owned()),
                ..ObjectReference::default()
            };
            Term::of_candidate(seat, about, identity.clone(), duration)
        };
        Ok(Self { elector, terms: seats.into_iter().map(term).collect() })
    }

    /// Takes part until told that this process is leaving, then gives back what nothing is under way in, and at `release` the rest.
    pub(super) async fn run(self, leaving: CancellationToken, release: CancellationToken) {
        self.elector.run(leaving, release).await;
    }
}
