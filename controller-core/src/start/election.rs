//! This process as a candidate: which Lease, under which name, through a client of its own.
//!
//! Its calls pass neither the guard against writes outside of a term nor the pace of the others: what keeps the term must not wait
//! for what needs it.

use anyhow::Context as _;
use cloud_lease::Elector;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{Names, Term, host};
use crate::{Clock, config::Election};

/// A candidate that asks nobody anything until it runs.
#[derive(Debug)]
pub(super) struct Candidate {
    elector: Elector,
    /// The name of the Lease, as metrics show it.
    pub(super) lease: String,
    /// The term that it may come to.
    pub(super) term: Term,
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
        let (lease, identity) = (settings.name.clone(), settings.identity.clone());
        let about = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(settings.namespace.clone()),
            name: Some(lease.clone()),
            ..ObjectReference::default()
        };
        let duration = settings.timing.duration;
        let (elector, leadership) = Elector::new(client, settings, now).context("leader election")?;
        let term = Term::of_candidate(leadership, about, identity).kept_by(elector.beats(), duration);
        Ok(Self { elector, lease, term })
    }

    /// Takes part until told to give the Lease back.
    pub(super) async fn run(self, release: CancellationToken) {
        self.elector.run(release).await;
    }
}
